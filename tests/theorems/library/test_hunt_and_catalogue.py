"""The functions hunt, assumptions, statements and datasets: their results and how the results are displayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from generators.assumptions import Finding
from generators.case import Case
from generators.datasets import DATASETS
from reference_attention.problem import Problem
from theorems.command.app import main
from theorems.core.claim import Verdict
from theorems.counterexamples.record import load
from theorems.library.catalogue import assumptions, datasets, statements
from theorems.library.hunt import hunt
from theorems.library.table_mapping import align
from theorems.run.registry import suite
from theorems.run.registry.lookup import select_statements

PROBLEM = Problem([[[1, 0], [0, 1], [0, 0]]], [[1, 0.5, 0]])


def test_a_saved_counterexample_equals_the_file_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hunted = hunt("lemma-11", without="strict-optimum", cases=50)
    assert capsys.readouterr().out == ""
    assert hunted.has_counterexample
    assert hunted.claim is not None
    assert hunted.claim.verdict is Verdict.FALSIFIED
    assert [id for id, finding in hunted.findings.items() if finding.holds is not True] == ["strict-optimum"]
    path = hunted.save(tmp_path / "mine")
    out = tmp_path / "command"
    assert main(["hunt", "lemma-11", "--without", "strict-optimum", "--cases", "50", "--out", str(out)]) == 1
    assert (out / path.name).read_text() == path.read_text() == hunted.record()
    assert load(path).claim == hunted.claim.name
    shown = hunted._repr_html_()
    assert "lemma-11 without strict-optimum: refuted" in shown
    assert "<td>strict-optimum</td><td>does not hold: " in shown


def test_a_hunt_that_finds_nothing_reports_how_many_cases_it_tried(tmp_path: Path) -> None:
    hunted = hunt("lemma-3", cases=5)
    assert not hunted.has_counterexample
    assert hunted.case is hunted.problem is hunted.claim is None
    assert hunted.findings == {}
    assert repr(hunted) == "Hunted(lemma-3: nothing found in 5 cases)"
    assert "5 cases, 0 undecided; this is not a proof" in hunted._repr_html_()
    assert '"none_found": {"cases": 5' in hunted.save(tmp_path).read_text()


def test_assumptions_on_data_have_evidence_and_without_data_a_title() -> None:
    result = assumptions(PROBLEM)
    asked = select_statements((), subject=Case(PROBLEM))
    assert set(result) == {id for item in asked for id in item.assumptions}
    assert not {"queries-given", "sequence-given"} & set(result)
    uneven = result["equal-non-optimal-scores"]
    assert isinstance(uneven, Finding)
    assert uneven.holds is False
    assert result["single-input"].holds is True
    assert result["optimal-tokens"].holds is None
    assert result.rows[[*result].index("single-input")] == ("single-input", "holds", result["single-input"].evidence)
    assert list(assumptions()) == list(suite.assumptions())
    assert set(assumptions("lemma-11")) == set(suite.statements()["lemma-11"].assumptions)
    assert set(assumptions(PROBLEM, "lemma-11")) == set(assumptions("lemma-11"))


def test_statements_and_datasets_are_all_listed() -> None:
    assert dict(statements()) == suite.statements()
    assert list(datasets()) == list(DATASETS)
    assert all(datasets().values())
    assert repr(statements()).splitlines()[0].split() == ["statement", "says", "source"]
    assert len(repr(statements()).splitlines()) == 1 + len(statements())
    assert statements()._repr_html_().count("<tr>") == 1 + len(statements())


def test_columns_of_listed_names_are_aligned_with_spaces() -> None:
    assert align([("a", "bb"), ("ccc", "")]) == "a    bb\nccc"
