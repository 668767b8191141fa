"""The page in headless Chromium: dragging, ties, counterexamples, saving, reloading, small screens, and the keyboard
alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generators.user_data import load
from tests.theorems.explore.browser import Seen, chromium, needs_browser, served
from theorems.command.app import main
from theorems.core.exit_code import Exit

pytestmark = needs_browser
WIDE = {"width": 1300, "height": 1000}
FOCUSED = """() => {
  let at = document.activeElement;
  while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
  return at?.labels?.[0]?.textContent ?? at?.textContent ?? '';
}"""
INKS = """() => [...Bokeh.documents[0]._all_models.values()].filter(one => one.type == 'Text'
  && one.text_alpha.value == 1).map(one => one.text_color.value)"""
PHONE = {"width": 400, "height": 800}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as result:
        yield result


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served("--data", "figure-8") as (result, _):
        yield result


@pytest.fixture
def seen(browser: Any, address: str) -> Iterator[Seen]:
    context = browser.new_context(viewport=WIDE, accept_downloads=True)
    page = Seen(context.new_page()).open(address)
    yield page
    context.close()
    assert page.complaints == []
    assert [url for url in page.loaded if not url.startswith((address, "data:", "blob:"))] == []


def test_texts_table_and_picture_follow_a_dragged_token(seen: Seen) -> None:
    before, norm = seen.column("rays", "norm"), seen.column("tokens", "x")[2]
    seen.drag("tokens", 2, 120, -30, drop=False)
    seen.page.wait_for_function(
        "norm => Bokeh.documents[0].get_model_by_name('rays').data.norm[0] != norm", arg=before[0]
    )
    seen.page.mouse.up()
    seen.until("figure-8 (edited)")
    assert seen.column("tokens", "x")[2] > norm
    seen.until("all 31 statements tried")


def test_the_run_follows_a_dragged_start(seen: Seen) -> None:
    first = seen.column("run flow", "xs")[0][0]
    seen.drag("starts", 0, -60, 40)
    seen.page.wait_for_function(
        "x => Bokeh.documents[0].get_model_by_name('run flow').data.xs[0][0] < x - 0.1", arg=first
    )


def test_a_tie_of_scores_violates_assumption_b(seen: Seen) -> None:
    seen.row("equal-non-optimal-scores").get_by_text("holds").wait_for()
    seen.widget("selected token or start").select_option("token 0·1")
    seen.shows("score", "0")
    seen.widget("score").fill("1")
    seen.widget("score").press("Enter")
    seen.row("strict-optimum").get_by_text("does not hold").wait_for()


def test_a_click_shows_a_counterexample_on_which_theorem_2_fails(seen: Seen) -> None:
    seen.widget("recorded counterexample").select_option("theorem-2-without-single-input")
    row = seen.row("theorem-2 without single-input")
    row.get_by_text("fails").wait_for()
    assert "refutes" in row.inner_text()


def test_a_file_saved_in_the_browser_is_read_by_the_suite(seen: Seen, tmp_path: Path) -> None:
    seen.drag("tokens", 0, 30, 30)
    seen.until("figure-8 (edited)")
    files = {}
    for label in (".npz", ".json", "pytest", "picture"):
        with seen.page.expect_download() as download:
            seen.page.get_by_role("button", name=label, exact=True).click()
        files[label] = tmp_path / download.value.suggested_filename
        download.value.save_as(files[label])
    both = [load(str(files[kind]), 0).case.problem for kind in (".npz", ".json")]
    assert np.array_equal(both[0].keys, both[1].keys)
    assert np.allclose(both[0].keys[0, 0], np.array(seen.column("rows", "k1"))[0], atol=2)
    assert files["picture"].read_bytes().startswith(b"\x89PNG")
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(files["pytest"])], check=False
    )
    assert process.returncode == 0


def test_a_reload_keeps_the_changes(seen: Seen) -> None:
    seen.drag("tokens", 0, 40, 20)
    seen.until("figure-8 (edited)")
    seen.page.wait_for_url("**/?state=*")
    before = seen.column("tokens", "x")
    seen.page.reload()
    seen.until("figure-8 (edited)")
    seen.wait_for("tokens", "x", 0, f"x == {before[0]}")
    assert seen.column("tokens", "x") == before


def test_a_bad_file_is_refused_with_a_sentence_on_the_page(seen: Seen, tmp_path: Path) -> None:
    bad = tmp_path / "mine.json"
    bad.write_text(json.dumps({"keys": [[[1, 2], [3, 4]]], "skores": [[1, 0]]}), encoding="utf-8")
    seen.page.locator("input[type=file]").set_input_files(str(bad))
    seen.page.get_by_role("alert").wait_for()
    assert "unknown name 'skores'. Did you mean 'scores'?" in seen.page.get_by_role("alert").inner_text()
    good = tmp_path / "good.json"
    good.write_text(json.dumps({"keys": [[[1, 2], [3, 4], [0, 1]]], "scores": [[1, 0, 0]]}), encoding="utf-8")
    seen.page.locator("input[type=file]").set_input_files(str(good))
    seen.until("good.json: n = 1, T = 3, d = 2")
    assert seen.page.get_by_role("alert").count() == 0


def test_a_score_can_be_edited_in_the_table(seen: Seen) -> None:
    cell = seen.page.locator(".slick-row").nth(1).locator(".slick-cell").nth(2)
    seen.edit(cell, "0.5")
    seen.until("figure-8 (edited)")
    seen.wait_for("tokens", "score", 1, "x == 0.5")


def test_the_keyboard_alone_moves_a_token_and_saves(seen: Seen) -> None:
    seen.page.locator("body").focus()
    for _ in range(60):
        seen.page.keyboard.press("Tab")
        label = seen.page.evaluate(FOCUSED)
        if label.strip() == "across":
            break
    assert label.strip() == "across"
    before = seen.column("tokens", "x")[0]
    seen.page.keyboard.press("ArrowUp")
    seen.page.keyboard.press("Enter")
    seen.until("figure-8 (edited)")
    seen.wait_for("tokens", "x", 0, f"x != {before}")


def test_the_slider_can_be_played_and_stopped(seen: Seen) -> None:
    seen.page.get_by_role("button", name="Play").click()
    seen.page.wait_for_function("() => Bokeh.documents[0].get_model_by_name('now').data.x.length == 1")
    first = seen.column("now", "y")
    seen.page.wait_for_function(
        "y => Math.abs(Bokeh.documents[0].get_model_by_name('now').data.y[0] - y) > 0.05", arg=first[0]
    )
    seen.page.get_by_role("button", name="Pause").click()
    seen.page.get_by_role("button", name="Play").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_saved_as_a_file_needs_no_network_and_fits_a_phone(browser: Any, tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "page.html"
    assert main(["explore", "--data", "figure-1b", "--html", str(path)]) == Exit.UPHELD
    context = browser.new_context(viewport=PHONE, color_scheme=scheme, offline=True)
    page = Seen(context.new_page()).open(path.as_uri())
    page.until("theorem-3")
    assert page.loaded == [path.as_uri()]
    assert page.complaints == []
    wide = page.page.evaluate("() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] <= wide[1]
    paper = page.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(23, 24, 27)"}[scheme]
    inks = page.page.evaluate(INKS)
    assert inks
    assert set(inks) == {{"light": "#1c1c1e", "dark": "#e8e8ea"}[scheme]}
    context.close()


def test_a_served_page_fits_a_phone(browser: Any, address: str) -> None:
    context = browser.new_context(viewport=PHONE, has_touch=True)
    page = Seen(context.new_page()).open(address)
    wide = page.page.evaluate("() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] <= wide[1]
    assert page.complaints == []
    context.close()
