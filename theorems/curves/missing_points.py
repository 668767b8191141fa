"""The claim that a path under test has a point at every radius; undecided where the reference path has none.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 1; *Transformers as Support Vector Machines*,
Theorem 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from theorems.core.claim import Claim, Form, undecided_claim
from theorems.core.tolerances import EXACT


def missing_claim(name: str, reasons: Sequence[str], reference: Callable[[], Sequence[str]] | None) -> Claim | None:
    """Return the claim that a path has a point at every requested radius; None if it does.

    The claim is falsified where the reference finds a point that the path leaves out, and undecided where neither finds
    a point.

    Args:
        name: the name of the claim.
        reasons: why there is no point, for every radius; empty where there is one.
        reference: returns such reasons for the reference; None if the reference itself is under test.
    """
    missing = [k for k, reason in enumerate(reasons) if reason]
    if not missing:
        return None
    why = f"points at {len(reasons) - len(missing)} of {len(reasons)} radii: {reasons[missing[-1]]}"
    theirs = reasons if reference is None else reference()
    if len(theirs) != len(reasons) or all(theirs[k] for k in missing):
        return undecided_claim(name, why, not_found=True)
    return Claim(name, Form.EXACT, -1.0, 0.0, EXACT, f"{why}; the reference finds one there")
