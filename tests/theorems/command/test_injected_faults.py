"""Special files, exhausted memory, full or broken disks: each is reported in a sentence, and finished
results are kept.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from generators.corpus import read_corpus
from reference_attention.errors import InvalidInput
from reference_attention.files import read_named_values
from tests.theorems.fake_statements import install
from theorems.command.app import main
from theorems.core.exit_code import Exit
from theorems.run import known_failures
from theorems.run.registry.user_file import statement_in_file

SPECIAL = {
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a pipe": os.mkfifo,
    "a directory": Path.mkdir,
    "a loop": lambda path: path.symlink_to(path),
    "nothing": lambda path: None,
    "large": lambda path: path.open("wb").truncate(1 << 34),
}
READERS = {
    ".json": read_named_values,
    ".npz": read_named_values,
    ".txt": read_corpus,
    ".known": lambda path: known_failures.read(path, ()),
    ".py": lambda path: statement_in_file(f"{path}:any"),
}


@pytest.mark.skipif(sys.platform == "win32", reason="has other special files")
@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("suffix", READERS)
def test_every_reader_refuses_special_and_oversized_files(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    SPECIAL[kind](path)
    with pytest.raises(InvalidInput, match=r"a\.\w+: (is |there is no|cannot be read|does not)") as refused:
        READERS[suffix](path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("suffix", READERS)
def test_every_reader_reports_that_memory_is_exhausted(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"{}")

    def exhausted(*arguments: object, **named: object) -> object:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("reference_attention.files.os.fstat", exhausted)
        with pytest.raises(InvalidInput, match="does not fit into memory"):
            READERS[suffix](path)


STEPS = (
    "reference_attention.files.tempfile.mkstemp",
    *(f"os.{name}" for name in ("open", "write", "fsync", "replace")),
)
"""Names of the functions that are called to write a file."""
FILES = ["--json", "r.json", "--resume", "r.jsonl"]


class Failing:
    """A function that works as usual, except that its call number `at` raises OSError."""

    def __init__(self, usual: Callable[..., Any], at: int, number: int) -> None:
        self.usual, self.at, self.number, self.calls = usual, at, number, 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        if self.calls == self.at:
            raise OSError(self.number, os.strerror(self.number))
        return self.usual(*arguments, **named)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("step", STEPS)
def test_finished_results_are_kept_whichever_write_fails(
    step: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    install(monkeypatch.setattr)
    command = ["verify", "true", "--examples", "2", "--jobs", "1", *FILES]
    # Let the first call fail (it tests whether a file can be written), then the second one, and so on.
    for at in range(1, 30):
        for path in tmp_path.iterdir():
            path.unlink()
        with monkeypatch.context() as patch:
            failing = Failing(os.open if step == "os.open" else _at(step), at, number)
            patch.setattr(step, failing)
            code = main(command)
        errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("theorems: ")]
        if failing.calls < at:
            assert code == Exit.UPHELD
            assert at > 1
            return
        assert code in (Exit.UPHELD, Exit.BAD_INPUT), errors
        assert len(errors) <= 1, errors
        assert errors or code == Exit.UPHELD
        there = {path.name for path in tmp_path.iterdir()}
        assert there <= {"r.json", "r.jsonl"}, there
        if errors and "before" not in errors[0] and code == Exit.BAD_INPUT and "r.jsonl" not in errors[0]:
            assert len(there) >= 1
        if "r.json" in there:
            json.loads((tmp_path / "r.json").read_text())
        assert main(command) == Exit.UPHELD
        assert capsys.readouterr().err.count("cannot") == 0
    raise AssertionError(f"{step} is called without end")


def _at(step: str) -> Callable[..., Any]:
    if step.startswith("os."):
        result: Callable[..., Any] = getattr(os, step.removeprefix("os."))
        return result
    import tempfile

    return tempfile.mkstemp


def test_data_of_another_kind_are_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("corpus.txt").write_text("the cat sat on the mat")
    assert main(["verify", "theorem-2", "--data", "corpus.txt", "--jobs", "1"]) == Exit.BAD_INPUT
    message = "theorems: --data: corpus.txt holds contexts with next tokens, and theorem-2 is about a problem; "
    assert capsys.readouterr().err == f"{message}give data of that kind, or another statement.\n"


@pytest.mark.parametrize("option", ["--json", "--resume", "--out", "--data"])
def test_impossible_file_names_are_refused(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("x" * 300, os.fsdecode(b"\xff/\x1b[31m.json")):
        code = main(["verify", "lemma-11", "--examples", "1", "--jobs", "1", option, name])
        err = capsys.readouterr().err
        assert "internal error" not in err
        assert "\x1b" not in err
        if code != Exit.UPHELD:
            assert code == Exit.BAD_INPUT
            assert len(err.splitlines()) == 1
