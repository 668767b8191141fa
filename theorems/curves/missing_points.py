"""The claim that a path under test has a point at every radius.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 1; *Transformers as Support Vector Machines*,
Theorem 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from theorems.core.claim import Claim, Form, undecided_claim
from theorems.core.tolerances import EXACT


def missing_claim(name: str, reasons: Sequence[str], reference: Callable[[], Sequence[str]] | None) -> Claim | None:
    """Return None if a path has a point at every requested radius; otherwise a claim that is falsified or undecided.

    The claim says that the path under test has a point at every radius. The claim is falsified if the reference finds a
    point at a radius where the path under test has none, and otherwise undecided.

    Args:
        name: the name of the claim.
        reasons: for every radius the reason why the path under test has no point there; empty if it has one.
        reference: the function that returns the same reasons for the path of the reference; None if the reference
            itself is under test.
    """
    missing = [k for k, reason in enumerate(reasons) if reason]
    if not missing:
        return None
    why = f"points at {len(reasons) - len(missing)} of {len(reasons)} radii: {reasons[missing[-1]]}"
    theirs = reasons if reference is None else reference()
    if len(theirs) != len(reasons) or all(theirs[k] for k in missing):
        return undecided_claim(name, why, not_found=True)
    return Claim(name, Form.EXACT, -1.0, 0.0, EXACT, f"{why}; the reference finds a point there")
