"""The journal: what is cut off is cut away, what is not its own is refused in one sentence, numbers are exact."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from reference_attention.errors import InvalidInput
from tests.theorems.run.units import Adding, Sum
from theorems.benchmark.comparison import Comparison, PowerLimit
from theorems.benchmark.fit import Fit
from theorems.benchmark.measure import Measurement
from theorems.benchmark.optimisers.optimiser import Against, Theory
from theorems.benchmark.work import Batch, Generated
from theorems.core.claim import Form, Verdict
from theorems.faults.power.trial import Cell, FaultOutcome
from theorems.faults.power.work import Column, FaultTrials
from theorems.figures.figure import Settings
from theorems.figures.work import Computed, Sheet
from theorems.run.journal import Journal
from theorems.run.result import ClaimSummary, Failure, Result
from theorems.run.unit import Unit
from theorems.run.verify import SoFar

RUN = {"command": "add", "seed": 1}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def filled(path: Path, count: int = 3) -> bytes:
    journal = Journal(path, RUN)
    for k in range(count):
        journal.keep_result(Adding(str(k)), Sum(str(k), k))
    journal.close()
    return path.read_bytes()


def held(path: Path) -> list[int]:
    journal = Journal(path, RUN)
    found = [journal.result_of(Adding(str(k))) for k in range(3)]
    journal.close()
    return [one.value for one in found if one is not None]


def test_wherever_it_is_cut_off_the_lines_before_are_kept(path: Path) -> None:
    content = filled(path)
    ends = [k for k, byte in enumerate(content) if byte == ord("\n")]
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        whole = max(sum(end < cut for end in ends) - 1, 0)
        assert held(path) == list(range(whole))
        # It goes on from there.
        assert path.read_bytes() == content[: ends[whole] + 1]


def test_what_a_lost_power_supply_leaves_at_the_end_is_cut_away(path: Path) -> None:
    content = filled(path)
    path.write_bytes(content + b"\0" * 20 + b"\n")
    assert held(path) == [0, 1, 2]
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"notes\n", "is no journal"),
        (b"no end of line", "is no journal"),
        (b'{"journal": 3}\n', "is no journal"),
        (b"[]\n", "is no journal"),
        (b'{"journal": {"command": "add", "seed": 2}}\n', "another run (seed: 2 there, 1 here)"),
        (b'{"journal": {"seed": 1}}\n', "another run (command: nothing there, add here)"),
        (b'{"journal": {"command": "add", "seed": 1, "more": 1}}\n', "another run (more: 1 there, nothing here)"),
    ],
)
def test_what_is_not_its_own_is_refused_and_left_as_it_is(path: Path, content: bytes, said: str) -> None:
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"^--resume: ") as refused:
        Journal(path, RUN)
    assert said in str(refused.value)
    assert path.read_bytes() == content


def test_a_damaged_line_is_named(path: Path) -> None:
    lines = filled(path).split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], lines[2][:-5], *lines[3:]]))
    with pytest.raises(InvalidInput, match="is damaged in line 3"):
        Journal(path, RUN)


def test_a_result_that_is_none_is_damage(path: Path) -> None:
    path.write_bytes(filled(path) + b'{"unit": "Adding 1", "result": {"id": []}}\n')
    journal = Journal(path, RUN)
    with pytest.raises(InvalidInput, match="holds a result that is none"):
        journal.result_of(Adding("1"))
    journal.close()


def test_one_run_at_a_time(path: Path) -> None:
    journal = Journal(path, RUN)
    with pytest.raises(InvalidInput, match="in use by another run"):
        Journal(path, RUN)
    journal.close()
    assert held(path) == []


def test_targets_that_cannot_be_written(tmp_path: Path) -> None:
    for target, why in (
        (tmp_path, "directory"),
        (tmp_path / "no" / "where", "No such file"),
        (Path("/dev/null"), "regular"),
    ):
        with pytest.raises(InvalidInput, match=why):
            Journal(target, RUN)


def test_a_full_disk_is_said_once_and_leaves_whole_lines(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Journal(path, RUN)
    journal.keep_result(Adding("0"), Sum("0", 0))
    usual = os.write

    def full(file: int, content: bytes) -> int:
        if usual(file, content[:5]) == 5 and len(content) == 5:
            return 5
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("theorems.run.journal.os.write", full)
    journal.keep_result(Adding("1"), Sum("1", 1))
    journal.keep_result(Adding("2"), Sum("2", 2))
    monkeypatch.undo()
    said = f"theorems: {path} cannot be written any more (No space left on device); the run goes on.\n"
    assert capsys.readouterr().err == said
    journal.close()
    assert held(path) == [0]


def test_what_the_system_writes_in_pieces_is_a_whole_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, usual = Journal(path, RUN), os.write
    monkeypatch.setattr("theorems.run.journal.os.write", lambda file, content: usual(file, content[:7]))
    journal.keep_result(Adding("0"), Sum("0", 0))
    journal.keep_result(Adding("1"), Sum("1", 1))
    monkeypatch.undo()
    journal.close()
    assert held(path) == [0, 1]


CLAIMS = tuple(
    ClaimSummary("a", Form.LIMIT, slack, 0.1, "why", Verdict.UPHELD, (("left", 2),), 7)
    for slack in (math.inf, -math.inf, 5e-324, 0.1 + 0.2, -0.0)
)
RESULT = Result(
    "lemma-3", "Title", {Verdict.FALSIFIED: 2, Verdict.UPHELD: 1}, CLAIMS, {Verdict.FALSIFIED: "so „it“ is"}
)
RESULTS = [
    (Unit("lemma-3", 1, 0), RESULT),
    (Unit("lemma-3", 1, 0), Result("b", "c", failure=Failure(Verdict.FALSIFIED, "s", '{"a": 1}', True), listed=("x",))),
    (
        FaultTrials("lemma-3", ("a",), 1, 0),
        Column("lemma-3", 3, 4, "", {"a": Cell(FaultOutcome.CAUGHT, 2, "claim")}, seconds=0.5),
    ),
    (
        Generated(0, 0, 1, ("gd",), 5),
        Batch(
            "g",
            (
                Comparison(
                    "g",
                    (0.1, 1e300),
                    (1,),
                    "GMM",
                    (0.5,),
                    2.0,
                    "",
                    (
                        Measurement(
                            "gd",
                            Theory(1.5, "somebody", Against.LOG, 1.0),
                            (None, 3),
                            1.0,
                            2.0,
                            None,
                            (0.5, 0.25),
                            Fit("t", 1.0, 0.1, 10, 1000),
                            ((1, 2), (0.5, 0.25)),
                            (0,),
                            True,
                            False,
                        ),
                    ),
                    (PowerLimit(1.5, (0.5,), 2.0, 1e-16),),
                ),
            ),
        ),
    ),
    (Sheet(("8",), Settings(1, 0)), Computed("8", {"curve": [[0.1, None], "text"], "more": {"n": 3}})),
]


@pytest.mark.parametrize(("unit", "result"), RESULTS, ids=lambda one: type(one).__name__)
def test_results_come_back_as_they_were(path: Path, unit: object, result: object) -> None:
    journal = Journal(path, RUN)
    journal.keep_result(unit, result)
    journal.close()
    again = Journal(path, RUN).result_of(unit)
    assert again == result
    assert repr(again) == repr(result)  # −0.0 and 0.0 are equal
    json.loads(path.read_text(encoding="utf-8").splitlines()[1], parse_constant=lambda token: pytest.fail(token))


def test_what_is_under_way_comes_back_too(path: Path) -> None:
    so_far = SoFar(RESULT, Result("lemma-3", "Title"), "ZeroDivisionError", 3)
    journal = Journal(path, RUN)
    journal.so_far(Unit("lemma-3", 1, 0, so_far=so_far))  # not at once
    journal.so_far(Unit("lemma-3", 1, 0, so_far=so_far), at_once=True)
    journal.close()
    assert len(path.read_bytes().splitlines()) == 2
    assert Journal(path, RUN).resume(Unit("lemma-3", 1, 0)).so_far == so_far


def test_numpy_numbers_are_numbers(path: Path) -> None:
    journal = Journal(path, RUN)
    unit = Sheet(("8",), Settings(1, 0))
    journal.keep_result(unit, Computed("8", {"x": np.float64(0.1), "y": np.arange(2.0)}))
    journal.close()
    assert Journal(path, RUN).result_of(unit).numbers == {"x": 0.1, "y": [0.0, 1.0]}
