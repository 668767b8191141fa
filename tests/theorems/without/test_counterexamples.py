"""The folder of counterexamples: each replays from its data alone, and every pair of a statement and an assumption has
a record.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reference_attention.files import read_named_values
from reference_attention.svm.max_margin import MaxMargin, max_margin
from tests.places import ROOT
from theorems.counterexamples.assumption_table import pairs
from theorems.counterexamples.check import examine
from theorems.counterexamples.record import load

FOLDER = ROOT / "counterexamples"
FILES = sorted(FOLDER.glob("*.json"))
FOUND = [path for path in FILES if "none_found" not in read_named_values(path)]


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_every_counterexample_replays(path: Path) -> None:
    record = load(path)
    observation = examine(record.weakened, record.case, guided=False, claim=record.claim)
    assert observation.is_counterexample, observation.refusal
    assert path.stem == record.weakened.name


def test_every_assumption_of_every_statement_has_a_record_or_is_needed() -> None:
    names = {path.stem for path in FILES}
    missing = sorted(f"{s.id}-without-{without}" for s, without in pairs() if without not in s.needs)
    assert [name for name in missing if name not in names] == []
    assert all(set(s.needs) <= set(s.assumptions) for s, _ in pairs())
    assert names <= set(missing)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_the_recorded_evidence_agrees_with_the_data(path: Path) -> None:
    """A recorded ‖p_mm‖ is that of the keys in the file, not of the keys in the units of the search."""
    case = load(path).case
    for assumption in read_named_values(path)["assumptions"]:
        match = re.match(r"‖p_mm‖ = ([\d.e+-]+)", assumption["because"])
        if match:
            solution = max_margin(case.problem.keys, case.chosen_tokens)
            assert isinstance(solution, MaxMargin)
            assert float(match[1]) == pytest.approx(solution.norm, rel=1e-5)
