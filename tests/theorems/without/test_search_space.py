"""Where a hunt looks: cases of the kind are drawn, and what was found is a violation to what guides it."""

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
"""Cases that are drawn, at most."""
RARE = (
    "conjecture-independent-rows-without-distinct-scores",
    "lemma-13-without-radius-schedule",
    "theorem-6-without-radius-schedule",
    "lemma-12-without-prompt-selects",
    "lemma-13-without-prompt-selects",
    "theorem-6-without-prompt-selects",
)
"""Found among thousands of cases, by climbing, or in seconds."""


class Enough(BaseException):
    """No further case is needed."""


def meets(weakened: Weakened, case: Case) -> bool:
    """Whether all that is kept holds, and what is left out fails."""
    if weakened.fails(case).holds is not False:
        return False
    return all(weakened.statement.assumption(id).check(case).holds for id in weakened.keeps)


@pytest.mark.parametrize("path", [item for item in FOUND if item.stem not in RARE], ids=lambda path: path.stem)
def test_cases_are_drawn_that_might_be_counterexamples(path: Path) -> None:
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
def test_the_guide_of_a_search_accepts_its_counterexample(path: Path) -> None:
    record = load(path)
    if record.weakened.violation is None:
        return
    assert record.weakened.violation(record.case.normalise()) > 0
