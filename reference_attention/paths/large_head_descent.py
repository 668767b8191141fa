"""Descent of head and prompt where r q ≫ 1: in units of r q, the joint risk is piecewise linear up to rounding.

Here r is the norm of the head, and q the softmax weight of tokens other than α. Second derivatives are 0 between the
kinks of the risk and overflow at them, so a quasi-Newton method makes progress where Newton's method cannot. The
remaining gradient shows whether the descent reached a minimiser.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, Theorem 5 with r ≫ e^{RΘ}.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64
from scipy.optimize import minimize

from reference_attention.paths.joint_newton import Spheres
from reference_attention.paths.joint_risk import joint_gradient

LARGE_HEAD = 150.0
"""Value of log(r max_i q_i) beyond which BFGS replaces Newton's method, because second derivatives contain the
square of r max_i q_i, which may overflow."""
RESTARTS, ITERATIONS = 3, 200
"""Largest number of runs of BFGS, and of iterations per run. BFGS is restarted if rounding errors stopped it well
before its goal, as happens if its approximate Hessian contains the curvature of far-away points."""


def descend_large_heads(
    s: Spheres, y: Float64[np.ndarray, "e"], p: Float64[np.ndarray, "k"], scale: float, gradient: float
) -> tuple[Float64[np.ndarray, "e"], Float64[np.ndarray, "k"], float]:
    """Return the local minimiser (y, p) that BFGS reaches from a given pair, and the norm of the gradient there.

    Args:
        s: the spheres of heads and prompts.
        y: the coordinates of the first head's part orthogonal to v̄_mm, (e,).
        p: the first prompt, (k,).
        scale: the unit of y and of the objective, about r q.
        gradient: largest component of the gradient at which the descent ends.
    """
    e, inverse = y.size, math.exp(-min(s.log_r, 690.0))

    def objective(x: Float64[np.ndarray, "m"]) -> tuple[float, Float64[np.ndarray, "m"]]:
        head, q = s.shorten(x[:e] * scale), p + x[e:]
        unit = q / float(np.linalg.norm(q))
        value, by_w, by_p = joint_gradient(s.joint, s.log_r, s.offset(head), s.R * unit)
        ratio = head * inverse
        along = float(s.joint.svm.direction @ by_w) * (ratio / math.sqrt(1 - float(ratio @ ratio)))
        across = (by_p - (by_p @ unit) * unit) * (s.R / float(np.linalg.norm(q)))
        return value / scale, np.concatenate([s.basis.T @ by_w - along, across / scale])

    x = np.concatenate([y / scale, np.zeros(p.size)])
    for _ in range(RESTARTS):
        result = minimize(objective, x, jac=True, method="BFGS", options={"gtol": gradient, "maxiter": ITERATIONS})
        x = np.asarray(result.x)
        if result.nit <= 1 or float(np.max(np.abs(result.jac), initial=0.0)) <= 1e3 * gradient:
            break
    q = p + x[e:]
    q *= s.R / float(np.linalg.norm(q))
    x[e:] = q - p
    return s.shorten(x[:e] * scale), q, float(np.linalg.norm(objective(x)[1]))
