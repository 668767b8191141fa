"""Claims on the softmax under test on the ray W_fin + r W^mm: ratios inside O_i, and the mass of masked tokens.

References: *Transformers as Support Vector Machines*, Section 6.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from flint import arb, ctx
from jaxtyping import Float64

from reference_attention.exact import rational
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from theorems.core.claim import Claim, Form, at_least
from theorems.core.equality import equal
from theorems.core.implementation import Implementation
from theorems.rounding.approximations import approximate
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.weights_under_test import weights_of
from theorems.transformers_as_svms.mixing_numbers import Mixing, balls, inner

RAY = (0.0, 1.0, 8.0)
"""The values of r; at the largest value, masked tokens have about a thousandth of the mass."""


class RayPoints:
    """Points W_fin + r W^mm rounded to floats, and the effect of this rounding on margins.

    Args:
        mixing: the data.
    """

    def __init__(self, mixing: Mixing) -> None:
        """Set the data; points are computed on first use."""
        self.mixing = mixing

    @cached_property
    def points(self) -> Float64[np.ndarray, "b d"]:
        """The points vec(W), one per r in :data:`RAY`, each entry rounded once."""
        with ctx.workprec(256):
            return np.array([[float(x.mid()) for x in self.mixing.on_the_ray(arb(r))] for r in RAY])

    @cached_property
    def shift(self) -> Float64[np.ndarray, "b"]:
        """Bounds on the changes of margins that rounding each point causes, (b,)."""
        with ctx.workprec(256):
            shifts = []
            for r, p in zip(RAY, self.points.tolist(), strict=True):
                rounding = [arb(rational(a)) - b for a, b in zip(p, self.mixing.on_the_ray(arb(r)), strict=True)]
                sizes = [abs(inner(balls(row), rounding)).abs_upper() for row in self.mixing.rows.values()]
                shifts.append(float(max(sizes).mid()) * (1 + EPS))
        return np.array(shifts)


def _weights(name: str, problem: Problem, ray: RayPoints, under_test: Implementation) -> Any:
    return weights_of(AttentionAt(problem, ray.points, under_test.textbook_eps), under_test, name, Form.EXACT)


def ratios_claim(name: str, problem: Problem, mixing: Mixing, under_test: Implementation) -> Claim:
    """Claim log s_α − log s_t = log s⋆_α − log s⋆_t for all tokens t of the sets O_i, at every r."""
    ray = RayPoints(mixing)
    logs = np.log(_weights(name, problem, ray, under_test))
    pairs = list(mixing.level_rows)
    inputs, tokens = [i for i, _ in pairs], [t for _, t in pairs]
    left = logs[:, inputs, mixing.svm.alpha[inputs]] - logs[:, inputs, tokens]
    expected = np.array([float(mixing.log_ratio(pair).mid()) for pair in pairs])
    right = approximate(np.broadcast_to(expected, left.shape), EPS * np.abs(expected) + ray.shift[:, None])
    return equal(name, left, right, points="ratio")


def mass_claim(name: str, problem: Problem, mixing: Mixing, under_test: Implementation) -> Claim:
    """Claim that the masked tokens τ of each input have at most the weight Σ_τ s⋆_α e^{−h_τ(W_fin) − r} at each r.

    Here h_τ(W) is the margin of α against τ (:mod:`.mixing`); inputs without masked tokens are left out.
    """
    ray = RayPoints(mixing)
    weights = _weights(name, problem, ray, under_test)
    masked = ~mixing.attention.sets
    inputs = np.flatnonzero(masked.any(axis=1))
    mass = np.sum(np.where(masked, weights, 0.0), axis=-1)[:, inputs]
    most = np.zeros((len(RAY), len(masked)))
    for (i, t), row in mixing.masked_rows.items():
        at_finite = inner(balls(row), mixing.finite)
        for k, r in enumerate(RAY):
            most[k, i] += float((arb(mixing.best((i, t))) * (-at_finite - r).exp()).mid())
    # Rounding the point changes the margins and the weight of α.
    right = approximate(most, most * ((len(RAY) + 4) * EPS + np.expm1(2 * ray.shift))[:, None])[:, inputs]
    return at_least(name, Form.EFFECTIVE, right, mass)
