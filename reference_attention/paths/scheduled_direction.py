"""The limit direction of the joint path along r = cR, which goes from p_mm (c = 0) to p_relax (c ≥ c*).

R and r are the norms of prompt and head. The notation is that of :mod:`.joint_risk`: Γ is the label margin of the
head's SVM, slack_i = v̄_mm·z_iα − Γ, and S is the set of inputs with slack 0 (the support vectors). If input i has the
least margin m_i = min_t (k_iα − k_it)·p/R, it contributes about e^{−R (c slack_i + m_i)} to the risk along r = cR. So
p_R/R, with p_R the prompt of the path at radius R, tends to

    p(c) = argmax over ‖p‖ ≤ 1 of τ   subject to   (k_iα − k_it)·p ≥ τ (i ∈ S),   ≥ max(0, τ − c slack_i) (i ∉ S).

The formula is not in the paper: :mod:`theorems.token_selection.joint_paths.joint_constants` derives it.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64

from reference_attention.paths.joint_risk import Joint
from reference_attention.svm.max_margin import MaxMargin
from reference_attention.svm.nonnegative_least_squares import nonnegative_least_squares

BISECTIONS = 60
"""Number of times that the interval of τ is halved, down to the last digit of τ."""


def critical_ratio(joint: Joint, relaxed: MaxMargin) -> float:
    """Return c*, the least ratio c = r/R from which on the limit direction of the path is that of p_relax.

    p_relax is the shortest p with margins (k_iα − k_it)·p of at least 1 for i ∈ S and 0 for i ∉ S, and Θ_relax =
    1/‖p_relax‖. With ρ_i = min_t (k_iα − k_it)·p̄_relax, c* is the largest (Θ_relax − max(ρ_i, 0))^+ / slack_i over the
    inputs i ∉ S; 0 if there are none.
    """
    slack = joint.svm.slack
    rho = np.min(np.where(joint.others, relaxed.margins, np.inf), axis=1) * relaxed.margin
    ratios = [
        max(0.0, relaxed.margin - max(float(r), 0.0)) / float(s) for r, s in zip(rho, slack, strict=True) if s > 0
    ]
    return max(ratios, default=0.0)


def scheduled_direction(joint: Joint, ratio: float) -> Float64[np.ndarray, "k"]:
    """Return the limit direction p(c) for c = ``ratio``, a unit vector, shape (k,); ATT-SVM must be feasible."""
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
    """Return the shortest p with rows·p ≥ bounds, by non-negative least squares.

    The result is None if there is no such p or if the solver fails.
    """
    k = rows.shape[1]
    system = np.vstack([rows.T, bounds])
    target = np.append(np.zeros(k), 1.0)
    u, residual = nonnegative_least_squares(system, target)
    if not 0 < residual < math.inf:
        return None
    r = system @ u - target
    return np.asarray(-r[:k] / r[k])
