"""The search space of a hunt: cases that lack only the dropped assumption are drawn, and recorded counterexamples have
a positive violation.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase

from generators.case import Case
from generators.hypothesis_driver import drive
from reference_attention.files import read_named_values
from tests.places import ROOT
from theorems.counterexamples.record import load
from theorems.without.weakening import Weakened

FILES = sorted((ROOT / "counterexamples").glob("*.json"))
FOUND = [path for path in FILES if "none_found" not in read_named_values(path)]
FEW = 150
"""Largest number of cases to draw."""
RARE = (
    "lemma-13-without-radius-schedule",
    "theorem-6-without-radius-schedule",
    "lemma-12-without-prompt-selects",
    "lemma-13-without-prompt-selects",
    "theorem-6-without-prompt-selects",
)
"""Counterexamples for which suitable cases are too rare, or too slow to find, for this test."""


class Enough(BaseException):
    """An exception that ends the draws once a suitable case is drawn."""


def meets(weakened: Weakened, case: Case) -> bool:
    """Return whether the dropped assumption fails on the case, and all others hold."""
    if weakened.fails(case).holds is not False:
        return False
    return all(weakened.statement.assumption(id).check(case).holds for id in weakened.keeps)


@pytest.mark.parametrize("path", [item for item in FOUND if item.stem not in RARE], ids=lambda path: path.stem)
def test_cases_that_lack_only_the_dropped_assumption_are_drawn(path: Path) -> None:
    weakened = load(path).weakened
    drawn: list[Case] = []

    def visit(case: Case) -> None:
        drawn.append(case.normalise())
        if meets(weakened, drawn[-1]):
            raise Enough

    quiet: Any = {"phases": (Phase.generate,), "unchecked": tuple(HealthCheck), "near_copies": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises(Enough):
            drive(weakened.cases(), visit, examples=FEW, seed=0, **quiet)
    score = 0.0 if weakened.violation is None else float(weakened.violation(drawn[-1]))
    assert not math.isnan(score)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_recorded_counterexamples_have_a_positive_violation(path: Path) -> None:
    record = load(path)
    if record.weakened.violation is None:
        return
    assert record.weakened.violation(record.case.normalise()) > 0
