"""``theorems hunt``, ``replay`` and ``list counterexamples``: exit codes, files, one sentence for bad input."""

from __future__ import annotations

import json
import math
import shlex
import shutil
from pathlib import Path

import pytest

from tests.places import ROOT
from theorems.command.app import main
from theorems.counterexamples import assumption_table

FILE = ROOT / "counterexamples" / "theorem-2-without-single-input.json"


pytestmark = pytest.mark.usefixtures("own_directory")


def test_replay_checks_the_file_that_hunt_writes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hunt", "theorem-2", "--without", "single-input", "--seed", "7", "--out", "here"]) == 1
    output = capsys.readouterr().out
    assert "theorem-2 without single-input: refuted" in output
    assert "from every p(0)" in output
    line = next(line for line in output.splitlines() if "Replay with: " in line)
    _, replay, path = shlex.split(line.partition("Replay with: ")[2])
    assert main([replay, path]) == 1
    assert "refuted" in capsys.readouterr().out


def test_a_hunt_that_finds_nothing_reports_its_effort(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hunt", "lemma-3", "--cases", "15", "--out", "here", "--record"]) == 0
    output = capsys.readouterr().out
    assert "no counterexample found" in output
    assert "15 cases" in output
    assert "This is not a proof" in output
    assert json.loads(Path("here/lemma-3.json").read_text(encoding="utf-8"))["none_found"]["cases"] == 15
    assert main(["replay", "here/lemma-3.json"]) == 2


def test_replay_of_data_that_no_longer_falsify_exits_without_failure(capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(FILE.read_text(encoding="utf-8"))
    case = record["case"]
    case["keys"], case["scores"] = case["keys"][:1], case["scores"][:1]
    Path("one.json").write_text(json.dumps(record), encoding="utf-8")
    assert main(["replay", "one.json"]) == 0
    assert "single-input holds" in capsys.readouterr().out
    # With negated scores, the flow from the same start may or may not violate the claim.
    record = json.loads(FILE.read_text(encoding="utf-8"))
    record["case"]["scores"] = [[-x for x in row] for row in record["case"]["scores"]]
    Path("other.json").write_text(json.dumps(record), encoding="utf-8")
    assert main(["replay", "other.json"]) in (0, 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["hunt", "theorem-99", "--without", "separable"], "theorem-99"),
        (["hunt", "theorem-2", "--without", "nonsense"], "--without: theorem-2 does not assume 'nonsense'"),
        (["hunt", "theorem-2", "--without", "mixing-hurts"], "theorem-2 does not assume 'mixing-hurts'"),
        (["hunt", "theorem-2", "--without", "separable", "--seconds", "-1"], "seconds"),
        (["replay", "missing.json"], "there is no such file"),
        (["replay", "missing.npz"], "must end in .json"),
        (["replay", "broken.json"], "broken.json"),
        (["replay", "other.json"], "is missing"),
        (["replay", "elsewhere.json"], "elsewhere.json: id: 'theorem-99' is not a statement"),
        (
            ["replay", "claim.json"],
            "claim.json: 'no-such-claim' is not a claim on this case; its claims are norm-diverges",
        ),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.json").write_text('{"statement": "theo', encoding="utf-8")
    Path("other.json").write_text('{"keys": [[[1, 0], [0, 1]]]}', encoding="utf-8")
    record = json.loads(FILE.read_text(encoding="utf-8"))
    Path("elsewhere.json").write_text(json.dumps({**record, "statement": "theorem-99"}), encoding="utf-8")
    Path("claim.json").write_text(json.dumps({**record, "claim": "no-such-claim"}), encoding="utf-8")
    assert main(arguments) == 2
    errors = capsys.readouterr().err.strip()
    assert sentence in errors
    assert len(errors.splitlines()) == 1


def test_a_damaged_record_gives_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    for name, value, message in (
        ("case", {"keys": [[[0, 0], [1, float("nan")]]], "scores": [[1, 0]]}, "keys"),
        ("case", {"keys": [[[0, 0]]], "scores": [[1]]}, "T"),
        ("case", 3, "case must be an object"),
        ("claim", 3, "claim must be text"),
        ("extra", 3, "'extra' is unknown"),
    ):
        record = {**json.loads(FILE.read_text(encoding="utf-8")), name: value}
        Path("bad.json").write_text(json.dumps(record), encoding="utf-8")
        assert main(["replay", "bad.json"]) == 2
        assert message in capsys.readouterr().err


def test_replay_names_the_violated_claim_if_it_is_not_the_recorded_one(capsys: pytest.CaptureFixture[str]) -> None:
    record = {**json.loads(FILE.read_text(encoding="utf-8")), "claim": "norm-diverges"}
    Path("other.json").write_text(json.dumps(record), encoding="utf-8")
    assert main(["replay", "other.json"]) == 3
    assert "norm-diverges holds here, but direction-is-max-margin is violated" in capsys.readouterr().out


def test_numbers_are_printed_in_the_units_of_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    """Differences of keys (0, 1) and (1, 2) give p_mm = (3, −1), in whatever units the search works."""
    assert main(["replay", str(FILE)]) == 1
    output = capsys.readouterr().out
    assert f"‖p_mm‖ = {math.sqrt(10):.6g}" in output
    assert f"at ‖p‖ = {math.sqrt(10) * 1e6:.6g}" in output


MINE = """
from theorems.api import Form, at_least, max_margin, statement


@statement("mine", "what is mine", assumptions=("separable",))
def mine(case, under_test):
    'A statement.'
    svm = under_test[max_margin](case.problem.keys, case.chosen_tokens)
    {body}
"""


@pytest.mark.parametrize(
    ("body", "without", "sentence"),
    [
        (
            "yield at_least('norm', Form.EXACT, svm.norm, 0.0, rounding=0.0, why='exact')",
            ["--without", "separable"],
            "AttributeError in mine.py, line 9: 'Infeasible' object has no attribute 'norm'",
        ),
        ("raise LookupError('nothing there')", [], "LookupError in mine.py, line 9: nothing there"),
        ("raise SystemExit(0)", [], "SystemExit in mine.py, line 9"),
        ("yield svm.norm", [], "yielded a value of type float, not a Claim"),
        ("yield from ()", [], "the conclusion made no claim"),
        ("yield at_least('norm', Form.EXACT, 1.0, 0.0, rounding=-3.0, why='exact')", [], "its tolerance is -3"),
        ("yield at_least('norm', Form.EXACT, -1.0, 0.0, rounding=float('inf'), why='exact')", [], "is infinite"),
    ],
)
def test_a_conclusion_that_raises_or_makes_no_valid_claim_is_no_counterexample(
    body: str, without: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text(MINE.format(body=body), encoding="utf-8")
    assert main(["hunt", "mine.py:mine", "--cases", "40", *without]) == 3
    printed = capsys.readouterr()
    assert sentence in printed.out
    assert "No case could be decided, so this hunt is inconclusive." in printed.out
    assert "Traceback" not in printed.err


def test_a_hunt_reports_the_number_of_cases_on_which_the_assumption_fails(capsys: pytest.CaptureFixture[str]) -> None:
    body = "yield at_least('fine', Form.EXACT, 1.0, 0.0, rounding=0.0, why='exact')"
    Path("mine.py").write_text(MINE.format(body=body), encoding="utf-8")
    assert main(["hunt", "mine.py:mine", "--without", "separable", "--cases", "40"]) == 0
    output = capsys.readouterr().out
    met = int(output.partition("  on ")[2].partition(" of the cases, separable fails")[0])
    assert 0 < met < 40


def test_the_recorded_counterexamples_are_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("some").mkdir()
    shutil.copy(FILE, "some")
    monkeypatch.setattr(assumption_table, "COUNTEREXAMPLES", Path("some").absolute())
    assert main(["list", "counterexamples", "theorem-2", "lemma-5"]) == 1
    captured = capsys.readouterr()
    rows = [" ".join(line.split()) for line in captured.out.splitlines()]
    assert any(row.startswith("theorem-2 single-input refuted 2, 2, 2 ") for row in rows)
    assert any(row.startswith("lemma-5 single-input not hunted") for row in rows)
    assert "lemma-5 without single-input: not hunted" in captured.err
    assert "lemma-4" not in captured.out
