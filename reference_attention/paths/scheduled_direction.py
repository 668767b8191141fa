"""The limit direction of the joint path along r = cR, which goes from p_mm (c = 0) to p_relax (c ≥ c*).

Let S be the supports of the head's SVM. Along r = cR a non-support i contributes e^{−R (c slack_i + margin_i)} to the
risk, and a support e^{−R margin_i}. So p_R/R, with p_R the prompt of the path at radius R, tends to

    p(c) = argmax over ‖p‖ ≤ 1 of τ   subject to   (k_iα − k_it)·p ≥ τ (i ∈ S),   ≥ max(0, τ − c slack_i) (i ∉ S).

The formula is not in the paper: :mod:`theorems.token_selection.joint_paths.joint_constants` derives it, and
docs/regime_map.md shows measurements.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64

from reference_attention.paths.joint_risk import Joint
from reference_attention.svm.max_margin import MaxMargin
from reference_attention.svm.nonnegative_least_squares import nonnegative_least_squares

BISECTIONS = 60
"""Number of times the interval of τ is halved, down to its last digit."""


def critical_ratio(joint: Joint, relaxed: MaxMargin) -> float:
    """Return c* = max over the non-supports of (Θ_relax − ρ_i)^+ / slack_i; 0 where every input is a support.

    ρ_i = min_t (k_iα − k_it)·p̄_relax. For r/R ≥ c* the limit direction is that of p_relax.
    """
    slack = joint.svm.slack
    rho = np.min(np.where(joint.others, relaxed.margins, np.inf), axis=1) * relaxed.margin
    ratios = [
        max(0.0, relaxed.margin - max(float(r), 0.0)) / float(s) for r, s in zip(rho, slack, strict=True) if s > 0
    ]
    return max(ratios, default=0.0)


def scheduled_direction(joint: Joint, ratio: float) -> Float64[np.ndarray, "k"]:
    """Return p(c) for c = ``ratio``, a unit vector up to rounding, shape (k,); ATT-SVM must be feasible."""
    rows = joint.rows[joint.others]
    excess = np.broadcast_to(joint.svm.slack[:, None], joint.others.shape)[joint.others] * ratio
    support = np.broadcast_to(joint.svm.support[:, None], joint.others.shape)[joint.others]
    low, high = 0.0, float(np.linalg.norm(rows[support], axis=1).min())
    best = np.zeros(rows.shape[1])
    for _ in range(BISECTIONS):
        tau = (low + high) / 2
        p = least_norm(rows, np.where(support, tau, np.maximum(0.0, tau - excess)))
        if p is not None and float(np.linalg.norm(p)) <= 1:
            low, best = tau, p
        else:
            high = tau
    return np.asarray(best / np.linalg.norm(best))


def least_norm(rows: Float64[np.ndarray, "m k"], bounds: Float64[np.ndarray, "m"]) -> Float64[np.ndarray, "k"] | None:
    """Return argmin ‖p‖ subject to rows·p ≥ bounds, by non-negative least squares; None without a solution.

    The result is None if there is no such p, or if the solver fails.
    """
    k = rows.shape[1]
    system = np.vstack([rows.T, bounds])
    target = np.append(np.zeros(k), 1.0)
    u, residual = nonnegative_least_squares(system, target)
    if not 0 < residual < math.inf:
        return None
    r = system @ u - target
    return np.asarray(-r[:k] / r[k])
