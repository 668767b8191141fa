"""The rule that gives the exit code of a command from verdicts."""

from __future__ import annotations

from collections.abc import Iterable

from theorems.core.claim import Verdict
from theorems.core.exit_code import Exit


def exit_of(verdicts: Iterable[Verdict]) -> Exit:
    """Return the exit code: 1 if a verdict is falsified; else 3 if one is inconclusive or none is upheld; else 0."""
    distinct = set(verdicts)
    if Verdict.FALSIFIED in distinct:
        return Exit.FALSIFIED
    return Exit.UPHELD if Verdict.UPHELD in distinct and Verdict.INCONCLUSIVE not in distinct else Exit.INCONCLUSIVE
