"""Verdicts on the page agree with ``theorems verify --data``, come in order, and outdated requests are dropped."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from generators.case import Case
from generators.datasets import dataset_named
from reference_attention.problem import Problem
from theorems.explore.data_sources import state_named
from theorems.explore.verdict_tables import assumptions_html, statements_html, summary_text
from theorems.explore.verdicts import StatementOnData, StatementVerdict, assumptions_of, plan, work_through
from theorems.explore.worker_thread import Cancelled, Latest
from theorems.library.catalogue import assumptions
from theorems.library.verify import verify
from theorems.run.pool import Pool
from theorems.run.verify import nothing


@pytest.mark.parametrize("name", ["figure-1a", "tsvm-paths-3"])
def test_verdicts_agree_with_those_of_verify(name: str) -> None:
    case = dataset_named(name)
    results = verify(data=case)
    with closing(Pool(1)) as pool:
        units = plan(case)
        outcome = dict(item for some in work_through(pool, units, lambda: False) for item in some)
    assert len(outcome) == len(units)
    for result, (k, message) in zip(results, sorted(outcome.items()), strict=False):
        assert units[k].id == message.id == result.id
        assert message.verdict == result.verdict_in_words
        assert message.tightest == (result.tightest.nearness if result.tightest else "")
    assert {item.id: item.holds for item in assumptions_of(case)} == {
        id: item.holds for id, item in assumptions(case).items()
    }


def test_theorem_2_fails_without_a_single_input_on_its_counterexample() -> None:
    case = state_named("theorem-2-without-single-input").case
    (unit,) = [item for item in plan(case) if (item.id, item.without) == ("theorem-2", "single-input")]
    verdict_of_unit = unit.run(nothing)
    assert verdict_of_unit.verdict == "fails"
    assert "single-input" in statements_html([unit], {0: verdict_of_unit})
    assert "refutes" in statements_html([unit], {0: verdict_of_unit})


def test_no_counterexample_is_reported_where_the_conclusion_holds_without_the_assumption() -> None:
    """The two inputs have keys in separate coordinates, so the flow goes to p_mm although Theorem 2 needs one input."""
    keys = np.array([[[1.0, 0], [0, 0]], [[0, 1.0], [0, 0]]])
    case = Case(Problem(keys, np.array([[1.0, 0], [1.0, 0]])))
    (unit,) = [item for item in plan(case) if (item.id, item.without) == ("theorem-2", "single-input")]
    assert unit.run(nothing).verdict != "fails"


def test_a_tie_violates_assumption_b() -> None:
    tied = state_named("figure-8").with_score(0, 1, 1.0).case
    by_name = {item.id: item.holds for item in assumptions_of(tied)}
    assert by_name["strict-optimum"] is False
    assert by_name["equal-non-optimal-scores"] is False
    assert 'class="wrong">does not hold' in assumptions_html(assumptions_of(tied))
    assert StatementOnData("theorem-1", plan(tied)[0].given).run(nothing).verdict == "not-applicable"


def test_results_for_former_data_are_dropped() -> None:
    case = dataset_named("figure-8")
    asked = threading.Event()
    with closing(Pool(1)) as pool:
        units = plan(case)
        results: list[Any] = []
        for some in work_through(pool, units, asked.is_set):
            results += some
            asked.set()
        assert 0 < len(results) < len(units)
        again = [item for some in work_through(pool, units[:3], lambda: False) for item in some]
    assert [k for k, _ in again] == [0, 1, 2]


def test_only_the_latest_request_is_computed_and_results_keep_their_order() -> None:
    taken: list[Any] = []
    done = threading.Event()
    latest = Latest(lambda call: call())
    first = threading.Event()

    def slow(cancelled: Cancelled) -> Iterator[str]:
        yield "old 0"
        first.set()
        while not cancelled():
            time.sleep(0.001)
        yield "old 1"

    def quick(name: str) -> Any:
        return lambda cancelled: iter([f"{name} {k}" for k in range(5)])

    def take(result: Any) -> None:
        taken.append(result)
        if result is None:
            done.set()

    latest.ask(slow, take, taken.append)
    assert first.wait(10)
    latest.ask(quick("dropped"), lambda result: None, taken.append)
    latest.ask(quick("new"), take, taken.append)
    assert done.wait(10)
    latest.close()
    latest.join(10.0)
    assert taken == ["old 0", *(f"new {k}" for k in range(5)), None]


def test_exceptions_in_the_worker_thread_reach_the_page() -> None:
    failed: list[Exception] = []
    heard = threading.Event()

    def steps(cancelled: Cancelled) -> Iterator[Any]:
        yield 1
        raise ValueError("no")

    def fail(error: Exception) -> None:
        failed.append(error)
        heard.set()

    latest = Latest(lambda call: call())
    latest.ask(steps, lambda result: None, fail)
    assert heard.wait(10)
    latest.close()
    assert str(failed[0]) == "no"


def test_only_the_last_of_many_quick_requests_is_computed() -> None:
    begun: list[int] = []
    done = threading.Event()
    latest = Latest(lambda call: call(), pause=0.2)
    for k in range(5):

        def steps(cancelled: Cancelled, k: int = k) -> Iterator[Any]:
            begun.append(k)
            return iter(())

        latest.ask(steps, lambda result: done.set(), lambda error: None)
        time.sleep(0.02)
    assert done.wait(10)
    latest.close()
    assert begun == [4]


def test_a_page_closed_before_its_results_arrive_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bokeh")
    from bokeh.document import Document

    from theorems.explore.page import Page

    failures: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    document = Document()
    page = Page(document, state_named("figure-1a"))
    document.callbacks.destroy()  # as the server does before it closes a page
    page.change(page.state)
    page.close()
    page._pictures.join(30.0)
    page._statements.join(30.0)
    assert not failures


def test_a_conclusion_that_is_claimed_for_other_data_only_is_undecided() -> None:
    """Theorem 2 gives the direction only for n = 1; figure-8 has two inputs, and flows from two starts differ."""
    verdict_of_unit = {}
    for name in ("figure-8", "figure-1b"):
        (unit,) = [item for item in plan(dataset_named(name)) if (item.id, item.without) == ("theorem-2", "")]
        verdict_of_unit[name] = unit.run(nothing)
        if name == "figure-8":
            assert "left open: flow-correlation (drawn for n = 1)" in statements_html(
                [unit], {0: verdict_of_unit[name]}
            )
    assert verdict_of_unit["figure-8"].verdict == "upheld"
    assert verdict_of_unit["figure-1b"].left_open == ""


def test_a_summary_counts_verdicts_and_names_failing_statements() -> None:
    given = plan(dataset_named("figure-1a"))[0].given
    units = [StatementOnData(f"theorem-{k}", given, "separable" if k > 3 else "") for k in range(1, 7)]
    verdicts = ["upheld", "falsified", "upheld", "fails", "holds"]
    verdict_of_unit = {
        k: StatementVerdict(units[k].id, units[k].without, word, "", "") for k, word in enumerate(verdicts)
    }
    assert summary_text(units, {}) == "0 of 3 statements tried"
    assert summary_text(units, verdict_of_unit) == (
        "all 3 statements tried: 2 upheld; 1 falsified (theorem-2). Not true without an assumption that fails here:"
        " theorem-4 (without separable) (tables below)"
    )
