"""Runs of gradient descent on (K, Q) by the implementation under test, with claims that check every step.

The factor e^{−log_scale}, one per iterate, keeps small gradients within the range of float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.query_dataset import QueryDataset
from reference_attention.risk import scaled_gradient
from reference_attention.training.descent import Stop
from reference_attention.training.factored_descent import FactoredTrajectory, factored_gradient_descent
from reference_attention.training.factorization import Keys, Queries
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Ended, Form, NotANumber, Undecided, Verdict
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance
from theorems.curves.descent import DESCENT_PREMISES, NORMALIZED_PREMISES
from theorems.rounding.attention_at import Numbers
from theorems.rounding.descent_steps import starts_claim, steps_claim
from theorems.transformers_as_svms.curves.factored_points import FactoredPoints

FACTORED_STEPS = tolerance(
    "factored-steps",
    "the error bounds of both sides, plus √m Σ_s 2‖e_s‖‖(K, Q)‖, where step s has in each coordinate the error e_s ="
    " eps (|(K, Q)⁺| + (8 + 2|log η∇L|)|step|) + η|δ∇L|",
    "a computed iterate is off from the exact step by e, which changes KᵀK − QᵀQ by at most 2‖(K, Q)‖‖e‖",
)

STEPS = 100
"""The number of iterations; the claims are checked at every iteration."""


@dataclass(frozen=True, eq=False)
class FactoredRun:
    """A run of (K, Q)(t + 1) = (K, Q)(t) − η_t ∇L(K, Q) from one start, checked at every iterate.

    Attributes:
        data: the data.
        under_test: the implementation under test.
        start: the factors (K, Q) at t = 0.
        length: the length of normalized steps; 0 for safe steps, whose size is proven not to raise the risk and is
            computed by the implementation under test.
        run: the trajectory that the implementation returned.
        claim: the name of the claim that fails, or is undecided, if an iterate or its gradient is not a number.
    """

    data: QueryDataset
    under_test: Implementation
    start: tuple[Keys, Queries]
    length: float
    run: FactoredTrajectory
    claim: str

    @classmethod
    def of(
        cls,
        data: QueryDataset,
        under_test: Implementation,
        start: tuple[Keys, Queries],
        claim: str,
        *,
        length: float = 0.0,
    ) -> FactoredRun:
        """Run the descent under test with safe steps, or with normalized steps if their ``length`` is given."""
        gradient = under_test[scaled_gradient]
        run = under_test[factored_gradient_descent](data, *start, steps=STEPS, length=length or None, gradient=gradient)
        return cls(data, under_test, start, length, run, claim)

    def premises(self) -> Iterator[Claim]:
        """Yield the claims that the run begins at its start and that each step is one of gradient descent on (K, Q).

        Raises:
            Ended: the start or the number of steps is not the requested one.
            Undecided: a step overflows.
            NotANumber: an iterate is not finite.
        """
        asked_for, is_a_step = NORMALIZED_PREMISES if self.length else DESCENT_PREMISES
        layout = self.before.layout
        points = layout.join(self.run.K, self.run.Q)
        first_claim = starts_claim(asked_for, points, layout.join(*self.start), STEPS)
        yield first_claim
        if first_claim.verdict is Verdict.FALSIFIED:
            raise Ended(first_claim.name)
        if self.run.stop is Stop.OVERFLOW:
            raise Undecided(self.claim, "a step of gradient descent overflows float64", Form.EFFECTIVE)
        if not np.isfinite(points).all() or np.isnan(self.run.log_steps).any():
            raise NotANumber(self.claim, "an iterate of gradient descent is not finite")
        log_step = float(np.log(self.length)) if self.length else self.run.log_steps[:-1]
        normalized = bool(self.length)
        log_scale = self.before.at.log_scale
        yield steps_claim(is_a_step, points[:-1], points[1:], self.joint, log_scale, log_step, normalized=normalized)

    @cached_property
    def before(self) -> FactoredPoints:
        """All iterates except the last, as floats."""
        return FactoredPoints.of(self.data.problem, self.run.K[:-1], self.run.Q[:-1])

    @cached_property
    def after(self) -> FactoredPoints:
        """All iterates except the first, as floats."""
        return FactoredPoints.of(self.data.problem, self.run.K[1:], self.run.Q[1:])

    @cached_property
    def gradient(self) -> Numbers:
        """The gradient ∇L(W) e^{−log_scale}, (t, d·e); a correct run stays within its error bounds.

        The bounds allow for rounding W = K Qᵀ to floats and for another formula for the gradient.
        """
        enclosed: Any = self.before.at.gradient
        return enclosed.widen(3 * enclosed.error)

    @cached_property
    def joint(self) -> Numbers:
        """The gradient ∇L(K, Q) e^{−log_scale} with respect to all k entries of K and Q, (t, k)."""
        return self.before.joint(self.gradient)

    @cached_property
    def log_factor(self) -> Numbers:
        """The logarithm of the step size times the gradient's scale, log(η e^{log_scale}), (t,)."""
        if not self.length:
            return exact(self.run.log_steps[:-1]) + self.before.at.log_scale
        size: Any = norm(self.joint, axis=-1)
        zero = np.asarray(value_of(size) == 0)
        return np.where(zero, -np.inf, np.log(exact(self.length)) - np.log(np.where(zero, 1.0, size)))

    @cached_property
    def steps(self) -> Numbers:
        """The steps η∇L(K, Q), (t, k); where floats do not resolve a step's direction, the error bounds allow any."""
        steps: Any = np.exp(np.minimum(self.log_factor, 700.0))[:, None] * self.joint
        if not self.length:
            return steps
        resolved = np.max(steps.error, axis=1, keepdims=True) <= 2 * self.length
        return np.where(resolved, steps, exact(np.zeros(steps.shape)).widen(2 * self.length))

    @property
    def lengths(self) -> Numbers:
        """The lengths η‖∇L(K, Q)‖, (t,)."""
        return norm(self.steps, axis=-1)

    @property
    def steps_squared(self) -> Numbers:
        """The products η‖∇L(K, Q)‖² e^{−log_scale}, (t,)."""
        return np.exp(np.minimum(self.log_factor, 700.0)) * np.sum(self.joint * self.joint, axis=-1)

    @property
    def norms(self) -> Float64[np.ndarray, "t"]:
        """The norms ‖(K, Q)‖ before or after each step, whichever is larger, (t,)."""
        squares = np.sum(self.run.K**2, axis=(1, 2)) + np.sum(self.run.Q**2, axis=(1, 2))
        return np.sqrt(np.maximum(squares[1:], squares[:-1]))

    @cached_property
    def _beside(self) -> Float64[np.ndarray, "t k"]:
        """Bounds of the distance between each computed step and −η∇L, for each coordinate, (t, k)."""
        layout = self.before.layout
        after, steps = layout.join(self.run.K[1:], self.run.Q[1:]), self.steps
        logs = 8 + 2 * np.abs(value_of(self.log_factor))
        logs = np.where(np.isfinite(logs), logs, 8.0)
        return np.asarray(EPS * (np.abs(after) + logs[:, None] * np.abs(value_of(steps))) + steps.error)

    @property
    def rounding(self) -> Float64[np.ndarray, "t"]:
        """Bounds of the distance between each computed step and −η∇L in the Euclidean norm, (t,)."""
        return np.asarray(norm(self._beside, axis=1))

    @property
    def change(self) -> tuple[Numbers, Numbers]:
        """The changes Δ⁺ − Δ of the imbalance Δ = KᵀK − QᵀQ in each step, and η²(∇_Kᵀ∇_K − ∇_Qᵀ∇_Q), each (t, m, m).

        The error bounds of Δ⁺ − Δ include the errors of the steps.
        """
        layout = self.before.layout
        by_k, by_q = layout.split(self._beside)
        after = FactoredPoints(self.data.problem, self.after.K.widen(by_k), self.after.Q.widen(by_q))
        K, Q = layout.split(value_of(self.steps))
        k, q = layout.split(self.steps.error)
        second = FactoredPoints(self.data.problem, exact(K).widen(k), exact(Q).widen(q)).imbalance
        return after.imbalance - self.before.imbalance, second

    @property
    def weights_moved(self) -> Numbers:
        """The changes W⁺ − W in each step, (t, d, e), computed without cancellation."""
        dK, dQ = self.after.K - self.before.K, self.after.Q - self.before.Q
        product = "tik,tjk->tij"
        return np.einsum(product, dK, self.after.Q) + np.einsum(product, self.before.K, dQ)

    @property
    def risk_rounding(self) -> Float64[np.ndarray, "t"]:
        """Bounds of the difference between the risks of computed and exact iterates, times e^{−log_scale}, (t,)."""
        sizes = norm(self.joint, axis=1)
        return np.asarray(2 * (sizes.value + sizes.error) * self.rounding)
