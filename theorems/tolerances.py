"""Every tolerance of the suite, with its reason: rounding, an effective bound of the theorem, or an argued rate.

A claim names its tolerance by key; there is no other place where one is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

EPS = 2.0**-52
"""Spacing of float64 at one."""


@dataclass(frozen=True)
class Tolerance:
    """Why a claim may miss by as much as it may.

    Attributes:
        formula: how the number is computed.
        reason: why this much and no more.
    """

    formula: str
    reason: str


TOLERANCES: Mapping[str, Tolerance] = {
    "exact": Tolerance("0", "decided over the rationals: nothing is rounded"),
    "rounding": Tolerance(
        "8 eps (T + d + n) · (1 + max|k|·‖p‖) · Σ|terms|",
        "a logit differs from the exact one by at most (d + 2) eps · Σ|k_j p_j|, which is the relative error of its"
        " softmax weight; every quantity compared is a sum of products of such weights, so its error is that"
        " relative error times the sum of the absolute values of its terms",
    ),
}
"""Reasons by key."""
