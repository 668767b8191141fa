"""A run with a falsified verdict is falsified; one with an undecided or without an upheld verdict is inconclusive."""

from __future__ import annotations

from itertools import combinations

import pytest

from theorems.core.claim import Verdict
from theorems.core.exit_code import Exit
from theorems.core.exit_rule import exit_of

CODES = {
    Verdict.FALSIFIED: Exit.FALSIFIED,
    Verdict.INCONCLUSIVE: Exit.INCONCLUSIVE,
    Verdict.UPHELD: Exit.UPHELD,
    Verdict.NOT_APPLICABLE: Exit.INCONCLUSIVE,
}
"""Verdicts with their exit codes, the gravest first."""


@pytest.mark.parametrize("count", range(1, 5))
def test_the_gravest_verdict_decides(count: int) -> None:
    for verdicts in combinations(CODES, count):
        assert exit_of(reversed(verdicts)) is CODES[verdicts[0]]


def test_a_run_without_any_verdict_is_inconclusive() -> None:
    assert exit_of([]) is Exit.INCONCLUSIVE
