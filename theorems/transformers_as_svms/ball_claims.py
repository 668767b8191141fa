"""Claims of inequalities between real numbers that are enclosed in balls (a midpoint and a radius) of hundreds of bits.

References: F. Johansson, *Arb: efficient arbitrary-precision midpoint-radius interval arithmetic* (2017).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flint import arb

from theorems.core.claim import Claim, Form
from theorems.core.tolerances import tolerance

BALLS = tolerance(
    "balls",
    "the radius of left − right",
    "both sides are enclosed by ball arithmetic of hundreds of bits, which bounds its own rounding",
)


def balls_at_least(name: str, form: Form, sides: Sequence[tuple[arb, arb]], *, points: str = "point") -> Claim:
    """Claim left ≥ right at every entry; report the entry with the smallest left − right.

    The claim is undecided if a ball is not finite, or if there is no entry.

    Args:
        name: the name of the claim.
        form: the form of the claim.
        sides: left and right of each entry; logarithms where the numbers may be below the range of float64.
        points: the noun for an entry in the detail line, in the singular.
    """
    if not sides:
        return Claim(name, form, 0.0, 0.0, BALLS, undecided=f"there is no {points} at which to check it")
    gaps = [left - right for left, right in sides]
    unknown = [k for k, gap in enumerate(gaps) if not gap.is_finite()]
    failed = [k for k, gap in enumerate(gaps) if gap < 0]
    if unknown and not failed:
        return Claim(name, form, math.nan, 0.0, BALLS, undecided=f"the ball is not finite at {points} {unknown[0]}")
    worst = min(failed or range(len(gaps)), key=lambda k: float(gaps[k].mid()))
    left, right = sides[worst]
    detail = f"{float(left.mid()):.17g} ≥ {float(right.mid()):.17g} at {points} {worst} of {len(sides)}"
    # Report a violation that is too small for float64 as the negative float nearest to 0, not as 0.
    slack = float(gaps[worst].mid()) or -5e-324 * (gaps[worst] < 0)
    return Claim(name, form, slack, 0.0 if failed else float(gaps[worst].rad()), BALLS, detail)
