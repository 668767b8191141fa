"""Predicates of assumptions on step sizes: η ≤ 1/L_p for gradient descent, and normalized steps that tend to zero.

References: *Max-Margin Token Selection in Attention Mechanism*, Lemma 6.
"""

from __future__ import annotations

import math

from generators.case import Case
from generators.finding import Finding


def step_size(case: Case) -> Finding:
    """Check that η ≤ 1/L_p for the step size η and the smoothness constant L_p of the risk.

    The step size η is the array ``eta``, of shape (), of the case; without this array the assumption holds, because the
    statement uses 1/L_p. L_p is a sum of n products of norms, computed in logarithms. The error of the logarithm is at
    most 64 eps times the largest logarithm, as SVD and norms are accurate to a small multiple of eps. An η that exceeds
    1/L_p by less than this error counts as equal to 1/L_p.
    """
    log_smoothness = case.problem.log_smoothness
    if "eta" not in case.arrays:
        return Finding(True, f"η = 1/L_p is used, log L_p = {log_smoothness:.6g}")
    eta = float(case.arrays["eta"])
    if eta <= 0:
        return Finding(False, f"η = {eta:g} is not positive")
    if log_smoothness == -math.inf:
        return Finding(True, f"η = {eta:g}; L_p = 0, because the risk is constant")
    excess = math.log(eta) + log_smoothness
    rounding = 64 * 2.0**-52 * (1 + abs(math.log(eta)) + abs(log_smoothness))
    return Finding(excess <= rounding, f"η·L_p = 1 + {math.expm1(min(excess, 700.0)):.3g}")


def vanishing_steps(case: Case) -> Finding:
    """Check that the step lengths η_t tend to 0, with Σ η_t = ∞.

    A statement uses the step lengths η_0/√(t+1), unless the array ``step_norm`` (shape ()) sets one length for all
    steps.
    """
    if "step_norm" not in case.arrays:
        return Finding(True, "η_0/√(t+1) is used")
    return Finding(False, f"η = {float(case.arrays['step_norm']):g} at every step: the steps do not tend to 0")
