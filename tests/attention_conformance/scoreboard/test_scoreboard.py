"""``theorems scoreboard`` on right, wrong, missing and invalid kernels; and this project's list and page of results."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from attention_conformance.scoreboard.entry import OURS, Entry, read_entries
from attention_conformance.scoreboard.page import NOT_LOOKED_AT, page
from attention_conformance.scoreboard.row import Cell, Row, request_of, row_of
from reference_attention.errors import InvalidInput
from tests.places import ROOT
from theorems.command.app import main
from theorems.core.claim import Verdict
from theorems.run.registry.suite import capabilities

KERNELS = """
[[kernel]]
name = "right"
library = "torch"
attention = "examples.real_faults.attention:tiled"
examples = 1

[[kernel]]
name = "wrong"
library = "torch"
attention = "examples.real_faults.log_sum_exp:lse_in_base_two"
{looked}

[[kernel]]
name = "absent"
library = "no-such-library"
attention = "no_such_library:attention"

[[kernel]]
name = "none"
library = "torch"
attention = "math:sqrt"
"""
LOOKED = '[kernel.looked.log-sum-exp]\nwhose = "theirs"\nsays = "it is to the base 2"'


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Return the arguments of ``theorems scoreboard`` for a short run with only two capabilities."""
    few = {id: capabilities()[id] for id in ("kernel-output", "kernel-log-sum-exp")}
    monkeypatch.setattr("attention_conformance.scoreboard.row.capabilities", lambda: few)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(KERNELS.format(looked=""), encoding="utf-8")
    return ["scoreboard", "--kernels", "mine.toml", "--examples", "2", "--jobs", "1", "--out", "red"]


def test_a_scoreboard_run_writes_its_table(two: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The falsified cell is explained only in the second run, which reads all results from the journal."""
    two += ["--resume", "r.jsonl"]
    assert main([*two, "--markdown"]) == 1
    out, err = capsys.readouterr()
    assert re.search(r"^\| right \| torch [\d.+\w]+ \| float64 \| 1 \| ✓ \| ✓ \|$", out, re.MULTILINE)
    assert re.search(r"^\| wrong \| torch [\d.+\w]+ \| float64 \| 2 \| ✓ \| ✗ \|$", out, re.MULTILINE)
    assert f"| wrong | log-sum-exp ✗ |  | {NOT_LOOKED_AT}. | log-sum-exp at " in out
    assert "[Test](red/test_wrong.py) |" in out
    assert "- absent: no-such-library is not installed\n- none: --attention: math:sqrt raised TypeError" in out
    assert "[3/4] absent: no-such-library is not installed" in err
    emitted = subprocess.run([sys.executable, "red/test_wrong.py"], capture_output=True, check=False)
    assert (emitted.returncode, b"is due" in emitted.stdout) == (1, True)

    Path("mine.toml").write_text(KERNELS.format(looked=LOOKED), encoding="utf-8")
    lines = Path("r.jsonl").read_text(encoding="utf-8")
    assert main(two) == 0
    out, _ = capsys.readouterr()
    assert "(theirs: it is to the base 2)" in out
    assert Path("r.jsonl").read_text(encoding="utf-8") == lines


def row(verdict: Verdict, why: str = "") -> Row:
    return Row("k", "1", (Cell("output", verdict, "told"),), why)


def exit_code(verdict: Verdict, looked: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> int:
    text = '[[kernel]]\nname = "k"\nlibrary = "torch"\nattention = "a:b"\n'
    text += f'[kernel.looked.{looked}]\nwhose = "ours"\nsays = "it is"\n' if looked else ""
    (tmp_path / "k.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr("attention_conformance.scoreboard.command.row_of", lambda *arguments: row(verdict))
    return main(["scoreboard", "--kernels", str(tmp_path / "k.toml"), "--out", str(tmp_path / "red")])


@pytest.mark.parametrize(
    ("verdict", "looked", "code"),
    [
        (Verdict.UPHELD, "", 0),
        (Verdict.FALSIFIED, "", 1),
        (Verdict.INCONCLUSIVE, "", 3),
        (Verdict.NOT_APPLICABLE, "", 3),
        (Verdict.FALSIFIED, "scale", 1),
    ],
)
def test_the_verdict_decides_the_exit_code(
    verdict: Verdict, looked: str, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert exit_code(verdict, looked, monkeypatch, tmp_path) == code


def test_a_note_on_an_upheld_cell_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(Verdict.UPHELD, "output", monkeypatch, tmp_path) == 3
    assert "k: output: is upheld, but explained as ours; look again." in capsys.readouterr().err


def test_a_kernel_that_ends_its_process_is_reported_in_a_sentence() -> None:
    entry = Entry("dying", "torch", "tests.attention_conformance.scoreboard.exiting_kernel:attention")
    scored = row_of(entry, request_of(entry, 1, 0, 1), lambda event: None)
    assert scored.cells == ()
    assert "ended with code 3" in scored.why


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[kernel", "is no TOML"),
        ("", "lists no kernel"),
        ("kernel = 1", "lists no kernel"),
        ("kernel = [1]", "kernel 1 of .* is no table"),
        ('[[kernel]]\nname = "a"\nlibrary = "b"', "has no attention"),
        ('[[kernel]]\nname = 1\nlibrary = "b"\nattention = "c:d"', "name is no text"),
        ('[[kernel]]\nname = "a"\nlibrary = "b"\nattention = "c:d"\nexamples = 0', "examples is no number of calls"),
        ('[[kernel]]\nname = "a"\nlibrary = "b"\nattention = "c:d"\ncolour = "e"', "'colour' is not one of"),
        ('[[kernel]]\nname = "a"\nlibrary = "b"\nattention = "c:d"\nlooked.output = 1', "looked.output: give whose"),
        ('[[kernel]]\nname = "a"\nlibrary = "b"\nattention = "c:d"\n' * 2, "two kernels named 'a'"),
    ],
)
def test_an_unusable_list_is_refused_in_one_sentence(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "k.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=rf"--kernels: .*{message}"):
        read_entries(tmp_path / "k.toml")
    with pytest.raises(InvalidInput, match="there is no such file"):
        read_entries(tmp_path / "absent.toml")


def test_a_vertical_bar_in_a_message_does_not_break_the_table() -> None:
    entry = Entry("k", "torch", "a:b")
    cells = (Cell("output", Verdict.FALSIFIED, "|x| < 1"),)
    (line,) = (
        line
        for line in page(
            [entry], [Row("k", "1", cells)], Path("r"), date="", python="", seed=0, command=""
        ).splitlines()
        if line.startswith("| k | output")
    )
    assert len(re.findall(r"(?<!\\)\|", line)) == 6


# ---- the suite's own list and page --------------------------------------------------------------------------


def test_ten_libraries_are_listed_and_pinned() -> None:
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    libraries = {item.library for item in read_entries()}
    assert len(libraries) >= 10
    assert [item for item in libraries if not re.search(rf"^{item}==", pinned, re.MULTILINE)] == []


def test_notes_of_the_scoreboard_name_capabilities() -> None:
    names = {id.removeprefix("kernel-") for id in capabilities()}
    assert [(entry.name, name) for entry in read_entries() for name in entry.looked if name not in names] == []


def test_every_red_cell_of_the_page_is_explained() -> None:
    text = (ROOT / "docs" / "scoreboard.md").read_text(encoding="utf-8")
    assert NOT_LOOKED_AT not in text
    table = re.findall(r"^\| ([^|]+) \| ([\w.-]+) [^|]+ \| [^|]+ \| \d+ \| (.*) \|$", text, re.MULTILINE)
    listed = {entry.name: entry for entry in read_entries()}
    assert len({library for _, library, _ in table}) >= 10
    open_cells = sum(len(re.findall(r"[✗?]", signs)) for _, _, signs in table)
    assert open_cells == len(re.findall(r"^\| [^|]+ \| [\w-]+ [✗?] \| (?:theirs|contract|ours) \|", text, re.MULTILINE))
    assert {name for name, _, _ in table} <= {*listed}


FOUND = [one for one in read_entries(OURS) if one.library != "torch"]


@pytest.mark.adapters
@pytest.mark.parametrize("entry", FOUND, ids=lambda entry: entry.name)
def test_a_kernel_of_an_installed_library_is_upheld(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    if not entry.version or find_spec(entry.library.replace("-", "_")) is None:
        pytest.skip(f"{entry.library} is not installed")
    few = {id: capabilities()[id] for id in ("kernel-output", "kernel-repeated-calls")}
    monkeypatch.setattr("attention_conformance.scoreboard.row.capabilities", lambda: few)
    result = row_of(entry, request_of(entry, 2, 0, 1, None, 120.0), lambda event: None)
    assert [(cell.verdict, cell.says) for cell in result.cells] == [(Verdict.UPHELD, "")] * 2, result.why
