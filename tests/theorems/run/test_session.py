"""A session yields typed events, from which a program can follow a run without parsing tables."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from attention_conformance.kernel.kernel_source import KernelSource
from generators.datasets import dataset_named
from generators.user_data import Given
from reference_attention.errors import InvalidInput
from tests.places import ROOT
from theorems.core.claim import Verdict
from theorems.run.events import CaseDone, Died, Event, Finished, Started, Stopped, UnitDone
from theorems.run.result import Result
from theorems.run.sandbox import ProcessDied
from theorems.run.session import Request, Session

HOSTILE = ROOT / "tests" / "theorems" / "run" / "hostile_statements.py"


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the current folder, which has a file of statements and kernels."""
    (tmp_path / "mine.py").write_text(HOSTILE.read_text())
    (tmp_path / "dead.py").write_text("import os\n\nos._exit(0)\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def same(result: Result) -> Result:
    return replace(result, seconds=0.0)


@pytest.mark.usefixtures("fake_statements")
def test_a_session_yields_its_events_in_order() -> None:
    events = list(Session(Request(("true", "false"), examples=3)).events())
    started, *between, finished = events
    assert isinstance(started, Started)
    assert isinstance(finished, Finished)
    assert [(statement.id, statement.file, statement.lost) for statement in started.about.statements] == [
        ("true", "", ""),
        ("false", "", ""),
    ]
    assert (started.about.implementation, started.about.kernel, started.about.examples) == ("reference", None, 3)
    assert set(kinds(between)) == {"CaseDone", "UnitDone"}
    assert [event.done for event in between if isinstance(event, CaseDone) and event.id == "true"] == [0, 1, 2, 3]
    done = {event.result.id: event.result for event in between if isinstance(event, UnitDone)}
    assert [done[result.id] for result in finished.results] == list(finished.results)
    assert [(result.id, result.verdict) for result in finished.results] == [
        ("true", Verdict.UPHELD),
        ("false", Verdict.FALSIFIED),
    ]


@pytest.mark.usefixtures("fake_statements")
def test_handlers_receive_the_events_that_iteration_yields() -> None:
    session, seen = Session(Request(("true", "undecided"), examples=3, seed=5)), list[Event]()
    last = session.run(seen.append)
    asked = list(session.events())
    assert kinds(seen) == kinds(asked)
    assert seen[-1] is last
    assert isinstance(asked[-1], Finished)
    assert list(map(same, last.results)) == list(map(same, asked[-1].results))


@pytest.mark.usefixtures("fake_statements")
def test_a_result_that_is_enough_stops_the_session() -> None:
    request = Request(
        ("false", "true"), examples=9, enough=lambda one: "enough" if one.verdict is Verdict.FALSIFIED else ""
    )
    last = Session(request).run()
    assert [result.stopped for result in last.results] == ["", "enough"]


@pytest.mark.usefixtures("fake_statements")
def test_a_signal_stops_a_session_and_finished_results_are_kept() -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, CaseDone) and event.id == "slow":  # the last statement runs first
            signal.raise_signal(signal.SIGINT)

    last = Session(Request(("slow", "true"), examples=2)).run(interrupt)
    assert isinstance(last, Stopped)
    assert [(result.id, result.interrupted) for result in last.results] == [("slow", True), ("true", False)]
    assert last.results[1].examples == 2


@pytest.mark.usefixtures("fake_statements")
def test_wrong_data_are_refused_before_any_statement_runs() -> None:
    given = Given(dataset_named("figure-1a"))
    started = next(Session(Request(("single",), given=given)).events())
    assert isinstance(started, Started)
    assert [(finding.id, finding.holds) for finding in started.about.findings] == [("single-input", True)]
    assert started.about.examples is None


def test_a_bad_request_is_refused_before_any_event() -> None:
    records: list[Event] = []
    with pytest.raises(InvalidInput, match="'lemma-99' is not a statement"):
        Session(Request(("lemma-99",))).run(records.append)
    assert records == []


@pytest.mark.usefixtures("files")
def test_untrusted_statements_are_loaded_and_run_in_another_process() -> None:
    ids = ("mine.py:rearranges", "mine.py:leaves", "dead.py:any")
    started, *between, finished = Session(Request(ids, examples=3)).events()
    assert isinstance(started, Started)
    assert isinstance(finished, Finished)
    *loaded, lost = started.about.statements
    assert [(name.title, name.file, name.assumptions) for name in loaded] == [
        ("One is more than zero", "mine.py", ("separable",))
    ] * 2
    assert lost.lost == "loading dead.py: the process that worked on it ended with code 0"
    upheld, died, unread = finished.results
    assert (upheld.verdict, upheld.examples) == (Verdict.UPHELD, 3)
    assert died.reason.startswith("the process that worked on it ended with code 0 in case 2, with 1 example finished")
    assert (unread.id, unread.title, unread.verdict) == ("dead.py:any", "could not be loaded", Verdict.INCONCLUSIVE)
    assert {event.result.id for event in between if isinstance(event, UnitDone)} == set(ids)


@pytest.mark.usefixtures("files")
def test_a_kernel_that_dies_while_loading_gives_only_the_event_died() -> None:
    events = list(Session(Request(("lemma-3",), under_test=KernelSource("dead:kernel"))).events())
    sentence = (
        "--attention: loading dead:kernel: the process that worked on it ended with code 0; nothing is concluded."
    )
    assert events == [Died(sentence)]
    with pytest.raises(ProcessDied, match="loading dead:kernel"):
        Session(Request(("lemma-3",), under_test=KernelSource("dead:kernel"))).run()


def test_a_kernel_given_by_name_is_not_loaded_in_the_calling_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = "def right(query, keys, values):\n    return (query @ keys.mT).softmax(dim=-1) @ values\n"
    (tmp_path / "only_there.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    source = KernelSource("only_there:right")
    assert source.by_name
    started, *_, finished = Session(Request(("lemma-3",), examples=2, under_test=source)).events()
    assert isinstance(started, Started)
    assert isinstance(finished, Finished)
    kernel = started.about.kernel
    assert kernel is not None
    assert (kernel.name, kernel.dtype, kernel.json["computes_in"]) == ("only_there:right", "auto", "float64")
    assert [result.verdict for result in finished.results] == [Verdict.UPHELD]
    assert "only_there" not in sys.modules
