"""The journal of a run: incomplete lines are removed, other files are refused in one sentence, numbers are exact."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from reference_attention.errors import InvalidInput
from tests.theorems.run.units import Adding, Sum
from theorems.benchmark.bench_units import Batch, Generated
from theorems.benchmark.comparison import Comparison, PowerLimit
from theorems.benchmark.fit import Fit
from theorems.benchmark.measurements import Measurement
from theorems.benchmark.optimisers.optimiser import Against, Theory
from theorems.core.claim import Form, Verdict
from theorems.figures.figure import Settings
from theorems.figures.figure_units import Computed, Sheet
from theorems.run.digest_chain import BEGIN, seal
from theorems.run.journal import Journal, open_journal
from theorems.run.result import ClaimSummary, Failure, Result
from theorems.run.statement_unit import Unit

RUN = {"command": "add", "seed": 1}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def sealed(content: str) -> bytes:
    return seal(content, BEGIN)[0].encode() + b"\n"


def filled(path: Path, count: int = 3) -> bytes:
    journal = Journal(path, RUN)
    for k in range(count):
        journal.keep_result(Adding(str(k)), Sum(str(k), k))
    journal.close()
    return path.read_bytes()


def numbers_in(path: Path) -> list[int]:
    journal = Journal(path, RUN)
    result = [journal.result_of(Adding(str(k))) for k in range(3)]
    journal.close()
    return [item.value for item in result if item is not None]


def test_a_journal_cut_off_anywhere_keeps_the_complete_lines(path: Path) -> None:
    content = filled(path)
    ends = [k for k, byte in enumerate(content) if byte == ord("\n")]
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        whole = max(sum(end < cut for end in ends) - 1, 0)
        assert numbers_in(path) == list(range(whole))
        # The incomplete line is removed, so that new lines follow complete ones.
        assert path.read_bytes() == content[: ends[whole] + 1]


def test_a_tail_of_zeros_after_a_power_loss_is_removed(path: Path) -> None:
    content = filled(path)
    path.write_bytes(content + b"\0" * 20 + b"\n")
    assert numbers_in(path) == [0, 1, 2]
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"notes\n", "is not a journal"),
        (b"no end of line", "is not a journal"),
        (b"[]\n", "is not a journal"),
        (sealed('{"journal": 3}'), "is not a journal"),
        (sealed('{"journal": {"command": "add", "seed": 2}}'), "another run (seed: 2 there, 1 here)"),
        (sealed('{"journal": {"seed": 1}}'), "another run (command: nothing there, add here)"),
        (sealed('{"journal": {"command": "add", "seed": 1, "more": 1}}'), "another run (more: 1 there, nothing here)"),
        (sealed('{"journal": {"command": "add", "seed": 1}}').replace(b"1", b"2"), "is damaged in line 1"),
        (b'{"journal": {"command": "add", "seed": 1}}\n', "was written by an earlier version"),
    ],
)
def test_a_file_that_is_no_journal_of_this_run_is_refused_and_left_unchanged(
    path: Path, content: bytes, message: str
) -> None:
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"^--resume: ") as refused:
        Journal(path, RUN)
    assert message in str(refused.value)
    assert path.read_bytes() == content


def test_a_damaged_line_is_named_by_its_number(path: Path) -> None:
    lines = filled(path).split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], lines[2][:-5], *lines[3:]]))
    with pytest.raises(InvalidInput, match="is damaged in line 3"):
        Journal(path, RUN)


def test_a_malformed_result_counts_as_damage(path: Path) -> None:
    filled(path)
    journal = Journal(path, RUN)
    journal.append({"unit": "Adding 1", "result": {"id": []}})
    journal.close()
    journal = Journal(path, RUN)
    with pytest.raises(
        InvalidInput, match="holds a value that is not a result in line 5; delete that line and all after it"
    ):
        journal.result_of(Adding("1"))
    journal.close()


def test_a_journal_is_used_by_one_run_at_a_time(path: Path) -> None:
    journal = Journal(path, RUN)
    with pytest.raises(InvalidInput, match="in use by another run"):
        Journal(path, RUN)
    journal.close()
    assert numbers_in(path) == []


def test_unwritable_targets_are_refused(tmp_path: Path) -> None:
    for target, why in (
        (tmp_path, "directory"),
        (tmp_path / "no" / "where", "No such file"),
        (Path("/dev/null"), "regular"),
    ):
        with pytest.raises(InvalidInput, match=why):
            Journal(target, RUN)


def test_a_full_disk_is_reported_once_and_leaves_whole_lines(
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
    message = f"theorems: {path} cannot be written any more (No space left on device); the run goes on.\n"
    assert capsys.readouterr().err == message
    journal.close()
    assert numbers_in(path) == [0]


def test_partial_writes_are_completed_to_a_whole_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, usual = Journal(path, RUN), os.write
    monkeypatch.setattr("theorems.run.journal.os.write", lambda file, content: usual(file, content[:7]))
    journal.keep_result(Adding("0"), Sum("0", 0))
    journal.keep_result(Adding("1"), Sum("1", 1))
    monkeypatch.undo()
    journal.close()
    assert numbers_in(path) == [0, 1]


CLAIMS = tuple(
    ClaimSummary(f"a{slack}", Form.LIMIT, slack, 0.1, "why", Verdict.UPHELD, (("left", 2),), 3)
    for slack in (math.inf, -math.inf, 5e-324, 0.1 + 0.2, -0.0)
)
RESULT = Result(
    "lemma-3", "Title", {Verdict.FALSIFIED: 2, Verdict.UPHELD: 1}, CLAIMS, {Verdict.FALSIFIED: "so „it“ is"}
)
RESULTS = [
    (Unit("lemma-3", 3, 0), RESULT),
    (Unit("b", 1, 0), Result("b", "c", failure=Failure(Verdict.FALSIFIED, "s", '{"a": 1}', True), listed=("x",))),
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
                            loss=0.25,
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
def test_results_are_read_back_unchanged(path: Path, unit: object, result: object) -> None:
    journal = Journal(path, RUN)
    journal.keep_result(unit, result)
    journal.close()
    again = Journal(path, RUN).result_of(unit)
    assert again == result
    assert repr(again) == repr(result)  # also the sign of −0.0 is kept
    json.loads(path.read_text(encoding="utf-8").splitlines()[1], parse_constant=lambda token: pytest.fail(token))


def test_numpy_numbers_are_stored_as_numbers(path: Path) -> None:
    journal = Journal(path, RUN)
    unit = Sheet(("8",), Settings(1, 0))
    journal.keep_result(unit, Computed("8", {"x": np.float64(0.1), "y": np.arange(2.0)}))
    journal.close()
    assert Journal(path, RUN).result_of(unit).numbers == {"x": 0.1, "y": [0.0, 1.0]}


def damages(content: bytes, other: bytes, chance: random.Random) -> Iterator[bytes]:
    """Yield damaged versions of a journal without end; ``other`` is the journal of another run, parts of which are
    used.
    """
    lines, others = content.splitlines(keepends=True), other.splitlines(keepends=True)
    digits = [k for k, byte in enumerate(content) if chr(byte).isdigit()]

    def within(count: int) -> list[int]:
        return sorted(chance.sample(range(len(lines)), count))

    while True:
        flipped, k = bytearray(content), chance.randrange(len(content))
        flipped[k] ^= 1 << chance.randrange(8)
        yield bytes(flipped)
        k = chance.choice(digits)
        yield content[:k] + str((int(content[k : k + 1]) + chance.randint(1, 9)) % 10).encode() + content[k + 1 :]
        i, j = within(2)
        yield b"".join([*lines[:i], lines[j], *lines[i + 1 : j], lines[i], *lines[j + 1 :]])
        [i] = within(1)
        yield b"".join([*lines[: i + 1], lines[i], *lines[i + 1 :]])
        yield b"".join([*lines[:i], *lines[i + 1 :]])
        yield b"".join([*lines[:i], others[i], *lines[i + 1 :]])
        yield content + b"".join(others[chance.randrange(len(others)) :])
        yield other + content
        yield content[: chance.randrange(len(content))]
        i, j = sorted((chance.randrange(len(content)), chance.randrange(len(content))))
        yield content[:i] + content[j:]


def test_no_damaged_journal_gives_wrong_results(path: Path) -> None:
    count, chance, refused = 6, random.Random(0), 0
    written = []
    for seed in (1, 2):
        path.unlink(missing_ok=True)
        with open_journal(path, {**RUN, "seed": seed}) as journal:
            assert journal is not None
            for k in range(count):
                journal.append({"cases": [10 * seed + k]})
                journal.keep_result(Adding(str(k)), Sum(str(k), 100 * seed + k, 4))
        written.append(path.read_bytes())
    for content in islice(damages(*written, chance), 300):
        path.write_bytes(content)
        sentence = ""
        try:
            with open_journal(path, RUN) as journal:
                assert journal is not None
                results = [journal.result_of(Adding(str(k))) for k in range(count)]
        except InvalidInput as error:
            sentence = str(error)
            refused += 1
        if sentence:
            assert re.search(r"is not a journal; |another run|line \d+; ", sentence), sentence
            assert path.read_bytes() == content
        else:
            # What remains of the journal is the beginning of the undamaged one.
            assert written[0].startswith(path.read_bytes())
            assert [result.value for result in results if result] == [100 + k for k in range(sum(map(bool, results)))]
    assert refused >= 150


def test_a_journal_in_use_by_another_process_is_refused(path: Path) -> None:
    lock = "f = os.open(sys.argv[1], os.O_RDWR); fcntl.flock(f, fcntl.LOCK_EX)"
    script = f"import fcntl, os, sys; {lock}; print(1, flush=True); input()"
    filled(path)
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(InvalidInput, match="in use by another run"):
            Journal(path, RUN)
        other.communicate(b"\n")
    assert numbers_in(path) == [0, 1, 2]


RESULT_OF_ONE = Result("b", "c", {Verdict.UPHELD: 1}, (replace(CLAIMS[2], cases=1),))


@pytest.mark.parametrize(
    "result",
    [
        replace(RESULT_OF_ONE, id="another"),
        replace(RESULT_OF_ONE, counts={Verdict.UPHELD: 9}),
        replace(RESULT_OF_ONE, counts={Verdict.UPHELD: -1}),
        replace(RESULT_OF_ONE, not_found=2),
        replace(RESULT_OF_ONE, seconds=math.nan),
        replace(RESULT_OF_ONE, claims=(replace(CLAIMS[2], cases=2),)),
        replace(RESULT_OF_ONE, claims=RESULT_OF_ONE.claims * 2),
        replace(RESULT_OF_ONE, claims=(replace(CLAIMS[2], cases=1, verdict=Verdict.FALSIFIED),)),
    ],
)
def test_results_with_inconsistent_numbers_are_refused(path: Path, result: Result) -> None:
    unit = Unit("b", 1, 0)
    for kept, fits in ((RESULT_OF_ONE, True), (result, False)):
        path.unlink(missing_ok=True)
        with open_journal(path, RUN) as journal:
            assert journal is not None
            journal.keep_result(unit, kept)
        with open_journal(path, RUN) as journal:
            assert journal is not None
            if fits:
                assert journal.result_of(unit) == kept
            else:
                with pytest.raises(InvalidInput, match=r"inconsistent numbers \(.*\) in line 2; delete that line"):
                    journal.result_of(unit)
