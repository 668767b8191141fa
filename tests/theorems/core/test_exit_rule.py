"""One falsified is falsified, one undecided is inconclusive, and without one upheld there is nothing to go by."""

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
"""The earlier outweigh the later."""


@pytest.mark.parametrize("count", range(1, 5))
def test_the_gravest_verdict_decides(count: int) -> None:
    for verdicts in combinations(CODES, count):
        assert exit_of(reversed(verdicts)) is CODES[verdicts[0]]


def test_no_verdict_at_all_is_inconclusive() -> None:
    assert exit_of([]) is Exit.INCONCLUSIVE
