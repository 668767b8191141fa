"""A headless Chromium, if one is installed, and access to what a Bokeh page shows; otherwise tests are skipped."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest

from tests.places import ROOT

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or find_spec("playwright") is None or find_spec("bokeh") is None,
    reason="no Chromium, or neither playwright nor bokeh is installed",
)
WAIT = 30_000
"""Longest time in milliseconds to wait for a change of the page, which takes a fraction of it on an idle machine."""

PLACE = """([name, k]) => {
  const document = Bokeh.documents[0], view = Bokeh.index.find_one(document.get_model_by_name('plane'));
  const box = view.canvas_view.el.getBoundingClientRect(), data = document.get_model_by_name(name).data;
  return [box.x + view.frame.x_scale.compute(data.x[k]), box.y + view.frame.y_scale.compute(data.y[k])];
}"""
COLUMN = "([name, column]) => Array.from(Bokeh.documents[0].get_model_by_name(name).data[column])"
DRAWN = (
    "() => { const runs = window.Bokeh?.documents[0]?.get_model_by_name('run flow'); return runs?.data.xs.length > 0 }"
)


@contextmanager
def served(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yield the address of the page that the command serves, and the command's process."""
    command = [sys.executable, "-m", "theorems", "explore", "--no-open", *arguments]
    fresh = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=fresh,
        # Restore the default: under nohup SIGHUP is ignored, and child processes inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    try:
        assert process.stdout is not None
        address = re.match(r"Open (http://127\.0\.0\.1:\d+/[\w-]+/)$", process.stdout.readline().strip())
        assert address
        yield address[1], process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


class Seen:
    """A page in a browser, with the addresses that it loaded and its console messages."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.loaded: list[str] = []
        page.set_default_timeout(WAIT)
        page.on("console", lambda log: self.complaints.append(log.text) if log.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.loaded.append(request.url))

    def open(self, address: str) -> Seen:
        """Open the address, and wait for the picture."""
        self.page.goto(address)
        self.page.wait_for_function(DRAWN)
        return self

    def column(self, source: str, name: str) -> list[Any]:
        """Return a column of a drawn data source."""
        return self.page.evaluate(COLUMN, [source, name])

    def edit(self, cell: Any, text: str) -> None:
        """Type into a cell of a table; if a redraw of the rows closes its editor, open it again."""
        from playwright.sync_api import Error

        for attempt in range(10):
            try:
                cell.click()
                cell.locator("input").fill(text, timeout=2000)
                cell.locator("input").press("Enter", timeout=2000)
                return
            except Error:
                if attempt == 9:
                    raise

    def wait_for(self, source: str, name: str, k: int, condition: str) -> None:
        """Wait until entry k of a drawn column satisfies a condition in JavaScript on ``x``; texts may change before
        that.
        """
        script = f"([name, column, k]) => {{ const x = ({COLUMN})([name, column])[k]; return {condition}; }}"
        self.page.wait_for_function(script, arg=[source, name, k])

    def place(self, source: str, k: int) -> tuple[float, float]:
        """Return the place of the k-th point of a source on the screen."""
        x, y = self.page.evaluate(PLACE, [source, k])
        return x, y

    def drag(self, source: str, k: int, across: float, up: float, *, drop: bool = True) -> None:
        """Drag a point by the given numbers of pixels."""
        x, y = self.place(source, k)
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        for step in range(1, 11):
            self.page.mouse.move(x + across * step / 10, y - up * step / 10)
            self.page.wait_for_timeout(20)
        if drop:
            self.page.mouse.up()

    def until(self, text: str) -> None:
        """Wait until the text is on the page."""
        self.page.get_by_text(text, exact=False).first.wait_for()

    def shows(self, title: str, value: str) -> None:
        """Wait until the input with the given title has the given value."""
        from playwright.sync_api import expect

        expect(self.widget(title)).to_have_value(value, timeout=WAIT)

    def row(self, name: str) -> Any:
        """Return the row of a table that begins with the given name."""
        return self.page.locator("tr", has=self.page.locator(f"td:first-child:text-is('{name}')"))

    def widget(self, title: str) -> Any:
        """Return the input with the given title."""
        return self.page.get_by_label(title, exact=True)


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()
