"""The logistic loss of classification with bounds of its rounding error, and the fall of its log-excess Y in a run.

Feature h_i has the class y_i and the weight π_i, π_min is the least weight, and e_v is the unit vector of class v. Each
wrong class v ≠ y_i gives a row g_iv = (e_{y_i} − e_v) h_iᵀ. With x_i = Σ_{v≠y_i} e^{−g_iv·W} the loss is L = Σ_i π_i
log(1 + x_i); further G = Σ_i π_i x_i/(1 + x_i), u = L/π_min, and Y = log(e^u − 1) is called the log-excess of the loss.
γ, D and D' are as in :mod:`.geometry`. The derivations are in :mod:`.steepest_multiclass`.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64

from generators.labelled_features import LabelledFeatures
from reference_attention.exact import to_floats
from reference_attention.next_token.label_descent import label_descent, label_gradient
from reference_attention.norms import KINDS, Blocks, Norm, Schatten
from reference_attention.svm.norm_max_margin import NormMaxMargin, Rational
from theorems.bounded import exact, value_of, with_rounding
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import ClaimName, sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.rounding.approximations import approximate
from theorems.rounding.attention_at import Numbers
from theorems.steepest_descent.geometry import RowGeometry, certify_norm_margin
from theorems.steepest_descent.steepest_run import (
    STEEPEST_ROUNDING,
    SteepestRun,
    StepSchedule,
    claim_start,
    claim_steps,
)

LONG, SHORT = stated_claim("gradient-is-long"), sharper("gradient-is-short")
PROXY = stated_claim("proxy-follows-loss")
POINT_CLAIMS = (LONG, SHORT, PROXY)
FALLS_FURTHER = sharper("log-excess-falls-by-curvature", when="weights are equal")
FALLS, LOSS, GROWS = sharper("log-excess-falls"), sharper("loss-is-small"), sharper("margin-grows")
GAP = stated_claim("margin-gap", when="the bound on the margin becomes positive")
RUN_CLAIMS = (FALLS, LOSS, GROWS, GAP)


@dataclass(frozen=True, eq=False)
class LabelGeometry(RowGeometry):
    """The rows g_iv of classification data in one norm, and the loss L that they define (symbols: see the module).

    Attributes:
        case: features and classes.
        solution: the W of the largest margin, and its duals.
    """

    case: LabelledFeatures
    solution: NormMaxMargin

    @property
    def exact_rows(self) -> list[Rational]:
        """The rows g_iv over the rationals, input by input, (n (k−1), k d), with k the number of classes."""
        differences = self.case.problem.differences
        return [differences[pair] for pair in self.case.problem.pairs]

    @cached_property
    def rows(self) -> Numbers:
        """The rows g_iv as floats, (n (k−1), k d), exact because their entries are ±h_ij and 0."""
        return exact(np.array([to_floats(row) for row in self.exact_rows]))

    @cached_property
    def weights(self) -> Numbers:
        """The weights π_i of the features, (n,)."""
        return with_rounding(to_floats(self.case.problem.weights))

    @property
    def least_weight(self) -> Numbers:
        """The smallest weight π_min."""
        return np.min(self.weights)

    def log_odds(self, W: Any) -> tuple[Numbers, Numbers]:
        """Return the logits −g_iv·W of each feature's wrong classes v, (*b, n, k−1), and the log-odds log x_i, (*b, n).

        x_i = Σ_v e^{−g_iv·W} are the odds of a wrong class of feature i, and g_iv are the :attr:`rows`.
        """
        logits = -(W @ self.rows.T)
        by_input = logits.reshape(*logits.shape[:-1], len(self.case.features), self.case.classes - 1)
        return by_input, np.logaddexp.reduce(by_input, axis=-1)

    def losses(self, W: Any) -> Numbers:
        """Return the losses log(1 + x_i) of the samples, (*b, n)."""
        return softplus(self.log_odds(W)[1])

    def loss(self, W: Any) -> Numbers:
        """Return the loss L, (*b,)."""
        return np.sum(self.losses(W) * self.weights, axis=-1)

    def log_excess(self, W: Any) -> Numbers:
        """Return the log-excess Y = log(e^{L/π_min} − 1) of the loss, (*b,)."""
        u = self.loss(W) / self.least_weight
        return u + np.log(-np.expm1(-u))

    def gradient(self, W: Any) -> tuple[Numbers, Float64[np.ndarray, "..."]]:
        """Return ∇L e^{−S}, (*b, k d), and S, (*b,), the logarithm of the largest weight of a row in −∇L."""
        logits, odds = self.log_odds(W)
        logs = logits + (np.log(self.weights) - softplus(odds))[..., None]
        flat = logs.reshape(*logs.shape[:-2], -1)
        top = np.max(value_of(flat), axis=-1)
        return -(np.exp(flat - top[..., None]) @ self.rows), top

    def gain(self, step: Numbers, lag: Numbers) -> Numbers:
        """Return b = η(γ − D'τ) − (e^{Dη} − 1 − Dη): a step of length η lowers Y by at least b, if b ≥ 0.

        The lag τ bounds the total variation between the weights of the rows in the momentum M_t and in ∇L. (Other
        symbols: see the module.)
        """
        moved = self.reach * step
        return step * (self.margin - self.diameter * lag) - (np.expm1(moved) - moved)

    @cached_property
    def has_equal_weights(self) -> bool:
        """True if all weights π_i are equal."""
        return len(set(self.case.counts.tolist())) == 1

    def curvature(self, u: Any) -> Numbers:
        """Return the upper bound V(u) of the second derivative of Y in any direction Δ with ‖Δ‖ = 1, for equal weights.

        V is D'²/4 for n = 1; for other n it tends to D'²/4 as u = L/π_min → 0. (Symbols: see the module.)
        """
        n, D, apart = float(len(self.case.features)), self.reach, self.diameter
        saturated = -np.expm1(-u / n) * n
        size = saturated / -np.expm1(-u)
        near = apart * apart / 4 + apart * D * (size - 1) + D * D * size * saturated * (1 - exact(1.0) / n)
        return np.minimum(D * D * size, near)

    def curved_gain(self, step: Numbers, W: Any) -> Numbers:
        """Return b = ηγ − η²V(u)/2: for equal weights a step of length η from W lowers Y by at least b.

        V(u) is :meth:`curvature`. A negative b proves nothing.
        """
        u = self.loss(W) / self.least_weight
        return step * self.margin - step * step * self.curvature(u) / 2

    @property
    def steepness(self) -> float:
        """An upper bound of ‖∇Y‖_*/D at every W: (1/π_min)/(1 − e^{−1/π_min}), with π_min the least weight.

        Y is the :meth:`log_excess`, and D the largest ‖g_iv‖_* of a row.
        """
        most = 1 / float(value_of(self.least_weight)) * (1 + 1e-12)
        return most / -math.expm1(-most)


def softplus(x: Any) -> Numbers:
    """Return log(1 + e^x) without cancellation or overflow."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def certify_labels(
    case: LabelledFeatures, norm: Norm, under_test: Implementation
) -> Generator[Claim, None, LabelGeometry]:
    """Yield the claim that no W with ‖W‖ = 1 has a larger margin than the solution under test; return the geometry."""
    return LabelGeometry(case, (yield from certify_norm_margin(case.keys, case.labels, norm, under_test)))


def norms_tried(case: LabelledFeatures, rng: np.random.Generator) -> list[Norm]:
    """Return two of the six norms of arXiv 2502.04664, and one block norm.

    The six are ‖·‖_1, ‖·‖_F, ‖·‖_3 and ‖·‖_∞ of the entries, and the nuclear and the spectral norm. The steepest step
    of a block norm normalises each row, or each column, or the first entry and the block of all other entries. In each
    of these norms the difference (e_u − e_v)h_iᵀ of two rows of an input has the same ‖·‖_* as the rows of this input.
    """
    blocks = Blocks(math.inf, str(np.random.default_rng([case.seed, 1]).choice([*KINDS])), case.shape)
    every: list[Norm] = [1.0, 2.0, 3.0, math.inf, Schatten(1.0, case.shape), Schatten(math.inf, case.shape)]
    return [*(every[k] for k in rng.choice(len(every), 2, replace=False)), blocks]


def point_claims(
    geometry: LabelGeometry, under_test: Implementation, points: Float64[np.ndarray, "m D"]
) -> Iterator[Claim]:
    """Claim γG ≤ ‖∇L‖_* ≤ DG and G ≥ π_min(1 − e^{−u}) at every point, with the notation of the module."""
    right, top = geometry.gradient(exact(points))
    reported = under_test[label_gradient](geometry.case.problem, points)
    # A correct implementation adds the same terms, possibly in another order.
    scaled = np.exp(np.asarray(reported.log_scale) - top)[..., None] * np.asarray(reported.direction)
    length = geometry.dual_length(approximate(scaled, 2 * right.error))
    losses = geometry.losses(exact(points))
    proxy = np.sum(-np.expm1(-losses) * geometry.weights, axis=-1)
    unit = np.exp(-exact(top)) * proxy
    yield at_least(LONG, Form.EFFECTIVE, length, geometry.margin * unit)
    yield at_least(SHORT, Form.EFFECTIVE, geometry.reach * unit, length)
    u = np.sum(losses * geometry.weights, axis=-1) / geometry.least_weight
    yield at_least(PROXY, Form.EFFECTIVE, proxy, geometry.least_weight * -np.expm1(-u))


def follow_labels(
    geometry: LabelGeometry, under_test: Implementation, starts: Float64[np.ndarray, "b D"], schedule: StepSchedule
) -> Generator[Claim, None, SteepestRun]:
    """Yield the claims that the run under test is steepest descent on L, and return the run."""
    points = under_test[label_descent](
        geometry.case.problem,
        starts,
        lengths=schedule.lengths,
        norm=geometry.norm,
        momentum=schedule.momentum,
        gradient=under_test[label_gradient],
    )
    yield from claim_start(points, starts, schedule)
    gradient, log_scale = geometry.gradient(exact(points[:-1]))
    return (yield from claim_steps(geometry, points, gradient.widen(gradient.error), log_scale, schedule))


def run_claims(geometry: LabelGeometry, run: SteepestRun, gain: Numbers, falls: ClaimName = FALLS) -> Iterator[Claim]:
    """Claim that Y falls at step t by at least ``gain[t]``, and the resulting bounds of loss and margin.

    ``gain`` has the shape (t, 1), or (t, b) for b runs. The errors of the steps are subtracted from the claimed bounds.
    ``falls`` is the name of the claim on Y.
    """
    options: dict[str, Any] = {"why": STEEPEST_ROUNDING, "points": "step"}
    step_error = value_of(geometry.reach * run.step_error) * geometry.steepness * (1 + 1e-12)
    Y = geometry.log_excess(run.p)
    yield at_least(falls, Form.EFFECTIVE, Y[:-1] - Y[1:] + step_error, gain, **options)
    gained = np.cumsum(gain + np.zeros_like(step_error), axis=0) - np.cumsum(exact(step_error), axis=0)
    most = geometry.least_weight * softplus(Y[0] - gained)
    yield at_least(LOSS, Form.EFFECTIVE, most, geometry.loss(run.p[1:]), **options)
    least, margins = gained - Y[0], geometry.margins(run.p[1:])
    yield at_least(GROWS, Form.EFFECTIVE, margins, least, **options)
    positive = np.asarray(least > 0)
    if positive.any():
        norms, longest = geometry.length(run.p[1:]), geometry.length(run.p[:1]) + run.schedule.time[:, None]
        yield at_least(GAP, Form.EFFECTIVE, (margins / norms)[positive], (least / longest)[positive], **options)
