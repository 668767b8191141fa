"""The explanation of a paper's own kind of data: the paper's text, then assumptions, then the statements that apply."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import theorems.explanations.custom_subject
from generators.user_data import as_text
from reference_attention.errors import InvalidInput
from tests.theorems.custom_subject import STATEMENTS, Logits
from theorems.command.app import main
from theorems.core.exit_code import Exit
from theorems.library.explain import explain

CASE = Logits(np.array([0.0, 2.0]), np.array([1, 2]), name="mine")


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theorems.explanations.custom_subject, "statements", lambda: STATEMENTS)
    monkeypatch.setattr(theorems.explanations.custom_subject, "is_explained", lambda statement: True)


def test_the_paper_s_text_precedes_assumptions_and_statements() -> None:
    result = explain(CASE)
    assert repr(result) == "Explanation(mine: logits, m = 2)"
    message = str(result).splitlines()
    assert message[:3] == ["mine: logits, m = 2", "  values (0.0, 2.0)", "  counts (1.0, 2.0)"]
    assert "each-once    every logit is there once   does not hold   counts [1, 2]" in str(result)
    assert [line for line in message if line][-3:] == [
        "The largest of 2 logits is 2.",
        "Applies: test-lse (log-sum-exp with multiplicities).",
        "Does not apply (in brackets the assumptions that fail or are not established): test-small (each-once).",
    ]
    assert result.is_decided
    assert "<p>The largest of 2 logits is 2.</p>" in result._repr_html_()
    record = json.loads(result.to_json())
    assert (record["m"], record["assumptions"][0]["holds"]) == (2, False)
    assert [(statement["id"], statement["applies"]) for statement in record["statements"]] == [
        ("test-lse", True),
        ("test-small", False),
    ]
    with pytest.raises(InvalidInput, match="there is no drawing of logits"):
        result.plot()


def test_the_explanation_says_that_no_statement_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"test-small": STATEMENTS["test-small"]}
    monkeypatch.setattr(theorems.explanations.custom_subject, "statements", lambda: small)
    assert "No statement applies." in str(explain(CASE)).splitlines()


def test_the_command_explains_a_file_of_a_custom_subject(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.json").write_text(as_text(CASE))
    assert main(["explain", "--data", str(tmp_path / "mine.json"), "--json", str(tmp_path / "out.json")]) == Exit.UPHELD
    assert "\nApplies: test-lse" in capsys.readouterr().out
    assert json.loads((tmp_path / "out.json").read_text())["words"][0] == "The largest of 2 logits is 2."
    code = main(["explain", "--data", str(tmp_path / "mine.json"), "--plot", str(tmp_path / "out.svg")])
    assert code == Exit.BAD_INPUT
