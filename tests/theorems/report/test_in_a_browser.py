"""A report in headless Chromium, in light and dark colours and at several widths: it is legible, fits and loads
nothing.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

from tests.theorems.report.records import many_statements
from theorems.command.app import main
from theorems.report.html import html

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
)
WIDTHS = (360, 1200)
LEAST_CONTRAST = 4.5
"""Least contrast of text against its background (WCAG AA)."""
SCHEMES = {"light": 1, "dark": 0}

# Measure in frames, which have exactly the requested widths; windows of a browser may have other ones.
MEASURE = """
const channels = colour => colour.match(/[\\d.]+/g).map(Number);
const light = colour => {
  const [r, g, b] = channels(colour).slice(0, 3).map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element, view) => {
  for (let at = element; at; at = at.parentElement) {
    const found = view.getComputedStyle(at).backgroundColor, [, , , alpha = 1] = channels(found);
    if (alpha === 1) return found;
  }
  return 'rgb(255, 255, 255)';
};
const found = [];
for (const frame of document.querySelectorAll('iframe')) {
  const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement, faint = [];
  for (const details of page.querySelectorAll('details')) details.open = true;
  let least = Infinity;
  for (const element of page.body.querySelectorAll('*')) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!own || ['title'].includes(element.localName)) continue;
    const style = view.getComputedStyle(element);
    const ink = light(element.namespaceURI.endsWith('svg') ? style.fill : style.color);
    const paper = light(behind(element, view));
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (contrast < least) { least = contrast; faint[0] = element.outerHTML.slice(0, 80); }
  }
  const text = [...page.querySelectorAll('svg text')].map(one => one.getBoundingClientRect().height);
  found.push({
    asked: frame.clientWidth, wide: root.scrollWidth, seen: root.clientWidth, contrast: least, faint: faint[0],
    paper: light(behind(page.body, view)), loaded: view.performance.getEntriesByType('resource').length,
    pictures: page.querySelectorAll('svg').length, smallest: Math.min(...text),
    scrolls: [...page.querySelectorAll('.scroll')].some(box => box.scrollWidth > box.clientWidth),
  });
}
document.body.innerHTML = '<pre id="found"></pre>';
document.getElementById('found').textContent = JSON.stringify(found);
"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


def measured(report: str, scheme: str, folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Return what the browser measures in a frame of each width, and the messages on its console."""
    frames = "".join(
        f'<iframe srcdoc="{escape(report)}" style="border: 0; width: {width}px; height: 800px"></iframe>'
        for width in WIDTHS
    )
    page = folder / f"{scheme}.html"
    body = f"<!DOCTYPE html><meta charset='utf-8'><body>{frames}<script>onload = () => {{ {MEASURE} }}</script>"
    page.write_text(body, encoding="utf-8")
    assert CHROMIUM is not None
    process = subprocess.run(
        [
            CHROMIUM,
            *FLAGS,
            f"--user-data-dir={folder / scheme}",
            f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
            "--window-size=1600,1000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        encoding="utf-8",
        timeout=90,
        check=False,
    )
    result = re.search(r'<pre id="found">(.*?)</pre>', process.stdout, re.DOTALL)
    assert result, process.stderr[-2000:]
    return json.loads(unescape(result[1])), "\n".join(line for line in process.stderr.splitlines() if "CONSOLE" in line)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the report of all statements, one of them falsified, as the command writes it."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "results.json").write_text(json.dumps(many_statements()), encoding="utf-8")
    assert main(["report", str(folder / "results.json"), "--out", str(folder / "report.html")]) == 1
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_report_is_legible_fits_the_screen_and_loads_nothing(scheme: str, report: str, tmp_path: Path) -> None:
    result, console = measured(report, scheme, tmp_path)
    assert console == ""
    assert [item["asked"] for item in result] == list(WIDTHS)
    for item in result:
        assert item["wide"] == item["seen"], "the page itself scrolls to the side"
        assert item["contrast"] >= LEAST_CONTRAST, item["faint"]
        assert (item["paper"] > 0.5) == (scheme == "light")
        assert item["loaded"] == 0
        assert item["pictures"] == 1
        assert item["smallest"] > 8, "labels of pictures are too small to read"
    assert result[0]["scrolls"], "tables have boxes of their own, which scroll on a phone"


def test_faulty_reports_fail_in_the_browser(tmp_path: Path) -> None:
    """Measure a page that is too wide, has faint text, loads a picture and runs a forbidden script."""
    page = html([]).replace(
        "<main>",
        '<main><div style="width: 2000px">wide</div><p style="color: #888">faint</p><img src="no.png">'
        '<script>0</script><svg><text style="font-size: 4px">small</text></svg>',
    )
    result, console = measured(page, "light", tmp_path)
    for item in result:
        assert item["wide"] > item["seen"]
        assert item["contrast"] < LEAST_CONTRAST
        assert item["smallest"] < 8
    assert "Content Security Policy" in console
