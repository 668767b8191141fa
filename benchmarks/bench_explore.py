"""Benchmarks of ``theorems explore``: seconds from the command to a picture, and from a drag to the new picture.

Run with ``pytest benchmarks/bench_explore.py -o python_files='bench_*.py' --benchmark-only``. Benchmarks in a browser
are skipped where no browser is installed; their time includes the browser's. The targets are at most 3 s from the
command to the first picture, and 0.3 s from a drag to the exact SVM and the paths at (n, T, d) = (2, 4, 2).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from generators.case import Case
from generators.datasets import dataset_named
from reference_attention.problem import Problem
from tests.theorems.explore.browser import DRAWN, Seen, chromium, needs_browser, served
from theorems.explore.picture_parts import parts_of
from theorems.explore.state import State, state_of

MOVED = """() => new Promise(done => {
  const document = Bokeh.documents[0], tokens = document.get_model_by_name('tokens'), began = performance.now();
  const runs = document.get_model_by_name('run Muon');
  const heard = () => { runs.properties.data.change.disconnect(heard); done(performance.now() - began) };
  runs.properties.data.change.connect(heard);
  const x = Array.from(tokens.data.x);
  x[0] += 0.01;
  tokens.data = {...tokens.data, x};
})"""


def random_state(n: int, T: int, d: int) -> State:
    """Return random data of size (n, T, d), with numbers that are multiples of 1/64, and three starts of p."""
    rng = np.random.default_rng(0)
    problem = Problem(np.round(rng.normal(size=(n, T, d)) * 64) / 64, np.round(rng.normal(size=(n, T)) * 64) / 64)
    return state_of(Case(problem, name=f"random ({n}, {T}, {d})")).with_starts(3)


@pytest.mark.parametrize("state", [random_state(2, 4, 2), state_of(dataset_named("digits"))], ids=["2x4x2", "digits"])
def test_solution_and_paths(benchmark: BenchmarkFixture, state: State) -> None:
    """Time the computation of a picture.

    It has ATT-SVM for each choice of tokens, the paths of five rules from each start, and contours of the risk.
    """
    benchmark(lambda: list(parts_of(state)))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Open one browser for all benchmarks of this file."""
    with chromium() as chromium_browser:
        yield chromium_browser


@needs_browser
def test_from_a_drag_to_the_picture_in_a_browser(benchmark: BenchmarkFixture, browser: Any) -> None:
    """Time from the moment a token is moved in the browser until the browser shows the last path."""
    with served("--data", "figure-8") as (address, _):
        page = Seen(browser.new_page()).open(address)
        page.until("all 31 statements tried")
        benchmark.pedantic(page.page.evaluate, args=(MOVED,), rounds=20)


@needs_browser
def test_from_the_command_to_the_picture(benchmark: BenchmarkFixture, browser: Any) -> None:
    """Time from the command until an open browser shows the picture; ending the server is not counted."""
    page = browser.new_page()
    took: list[float] = []

    def first_picture() -> None:
        began = time.perf_counter()
        with served("--data", "figure-8") as (address, _):
            page.goto(address)
            page.wait_for_function(DRAWN)
            took.append(time.perf_counter() - began)

    benchmark.pedantic(first_picture, rounds=5)
    benchmark.extra_info["seconds"] = took
