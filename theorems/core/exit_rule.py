"""From verdicts to the exit code of a command."""

from __future__ import annotations

from collections.abc import Iterable

from theorems.core.claim import Verdict
from theorems.core.exit_code import Exit


def exit_of(verdicts: Iterable[Verdict]) -> Exit:
    """What they are worth together: nothing is upheld where all are not applicable, or there are none."""
    found = set(verdicts)
    if Verdict.FALSIFIED in found:
        return Exit.FALSIFIED
    return Exit.UPHELD if Verdict.UPHELD in found and Verdict.INCONCLUSIVE not in found else Exit.INCONCLUSIVE
