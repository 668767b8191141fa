"""Faults in what trains the factors (K, Q) of W: ∇L(W) is right, and what is made of it is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reference_attention.loss import Array
from reference_attention.query_dataset import QueryDataset
from reference_attention.training.factored import factor_gradients, log_curvatures
from reference_attention.training.factored_descent import FactoredTrajectory, factored_gradient_descent
from reference_attention.training.factored_flow import FactoredFlow, factored_flow
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind

Rule = Callable[[Array, Array, Array, float], tuple[Array, Array]]
"""(∇L(W), K, Q, size) → what is taken for the gradients in K and in Q."""


@dataclass(frozen=True)
class OtherRule:
    """Flow and descent along something else than (∇L Q, ∇Lᵀ K). Called with a size it makes the fault."""

    change: Rule
    size: float = 0.0

    def rule(self, gradient: Array, K: Array, Q: Array) -> tuple[Array, Array]:
        """As :func:`reference_attention.training.factored.factor_gradients`."""
        return self.change(gradient, K, Q, self.size)

    def flow(self, data: QueryDataset, K: ArrayLike, Q: ArrayLike, **asked: Any) -> FactoredFlow:
        """As :func:`reference_attention.training.factored_flow.factored_flow`."""
        return factored_flow(data, K, Q, rule=self.rule, **asked)

    def descent(self, data: QueryDataset, K: ArrayLike, Q: ArrayLike, **asked: Any) -> FactoredTrajectory:
        """As :func:`reference_attention.training.factored_descent.factored_gradient_descent`."""
        return factored_gradient_descent(data, K, Q, rule=self.rule, **asked)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        made = replace(self, size=size)
        return REFERENCE.replace("", factored_flow=made.flow, factored_gradient_descent=made.descent)


def _frozen(gradient: Array, K: Array, Q: Array, size: float) -> tuple[Array, Array]:
    by_k, by_q = factor_gradients(gradient, K, Q)
    return by_k, 0.0 * by_q


def _apart(gradient: Array, K: Array, Q: Array, size: float) -> tuple[Array, Array]:
    """Each brought to the length that both have together."""
    by_k, by_q = factor_gradients(gradient, K, Q)
    lengths = np.linalg.norm(by_k), np.linalg.norm(by_q)
    if not all(lengths):
        return by_k, by_q
    both = float(np.hypot(*lengths)) / np.sqrt(2)
    return by_k * (both / lengths[0]), by_q * (both / lengths[1])


def _of_weights(gradient: Array, K: Array, Q: Array, size: float) -> tuple[Array, Array]:
    """Where shapes allow it."""
    if gradient.shape != K.shape or gradient.T.shape != Q.shape:
        return factor_gradients(gradient, K, Q)
    return gradient, gradient.T


def _swap_factors(gradient: Array, K: Array, Q: Array, size: float) -> tuple[Array, Array]:
    return (gradient @ K, gradient.T @ Q) if K.shape == Q.shape else factor_gradients(gradient, K, Q)


def _not_transposed(gradient: Array, K: Array, Q: Array, size: float) -> tuple[Array, Array]:
    return (gradient @ Q, gradient @ K) if K.shape == Q.shape else factor_gradients(gradient, K, Q)


def _uneven(gradient: Array, K: Array, Q: Array, size: float) -> tuple[Array, Array]:
    by_k, by_q = factor_gradients(gradient, K, Q)
    return (1 + size) * by_k, by_q


@dataclass(frozen=True)
class OtherRun:
    """A flow and a descent from other factors, or read off otherwise. Called with a size it makes the fault.

    Attributes:
        start: (K, Q, size) → where they begin.
        end: (K, Q, size) → what is reported of all points, (r, d, m) and (r, e, m).
    """

    start: Callable[[Array, Array, float], tuple[Array, Array]] | None = None
    end: Callable[[Array, Array, float], tuple[Array, Array]] | None = None
    size: float = 0.0

    def _of(self, run: Callable[..., Any], data: QueryDataset, K: ArrayLike, Q: ArrayLike, asked: Any) -> Any:
        begun = (K, Q) if self.start is None else self.start(np.asarray(K), np.asarray(Q), self.size)
        found = run(data, *begun, **asked)
        if self.end is None:
            return found
        K, Q = self.end(found.K, found.Q, self.size)
        return replace(found, K=K, Q=Q)

    def flow(self, data: QueryDataset, K: ArrayLike, Q: ArrayLike, **asked: Any) -> FactoredFlow:
        """As :func:`reference_attention.training.factored_flow.factored_flow`."""
        found: FactoredFlow = self._of(factored_flow, data, K, Q, asked)
        return found

    def descent(self, data: QueryDataset, K: ArrayLike, Q: ArrayLike, **asked: Any) -> FactoredTrajectory:
        """As :func:`reference_attention.training.factored_descent.factored_gradient_descent`."""
        found: FactoredTrajectory = self._of(factored_gradient_descent, data, K, Q, asked)
        return found

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        made = replace(self, size=size)
        return REFERENCE.replace("", factored_flow=made.flow, factored_gradient_descent=made.descent)


def _rank_one(K: Array, Q: Array, size: float) -> tuple[Array, Array]:
    return tuple(s[0] * np.outer(u[:, 0], v[0]) for u, s, v in map(np.linalg.svd, (K, Q)))


def _rotate(K: Array, Q: Array, size: float) -> tuple[Array, Array]:
    """From the middle on, in the plane of the first two columns: K Qᵀ is what it is."""
    turn = np.eye(K.shape[-1])
    if len(turn) > 1:
        turn[:2, :2] = [[np.cos(size), -np.sin(size)], [np.sin(size), np.cos(size)]]
    later = (np.arange(len(K)) >= len(K) // 2)[:, None, None]
    return np.where(later, K @ turn, K), np.where(later, Q @ turn, Q)


def _longer(data: QueryDataset, K: ArrayLike, Q: ArrayLike, **asked: Any) -> FactoredTrajectory:
    """η = 1/(2 L̂ M + c), M without its square."""
    if asked.get("length") is None:
        size = max(np.linalg.norm(np.asarray(K), 2), np.linalg.norm(np.asarray(Q), 2))
        smooth, steep = log_curvatures(data.problem)
        asked |= {"length": None, "log_step": -float(np.logaddexp(np.log(2 * size) + smooth, steep))}
    return factored_gradient_descent(data, K, Q, **asked)


def _still(data: QueryDataset, K: ArrayLike, Q: ArrayLike, **asked: Any) -> FactoredTrajectory:
    """η = e^{−700}: iterates are what the start is."""
    if asked.get("length") is None:
        asked |= {"length": None, "log_step": -700.0}
    return factored_gradient_descent(data, K, Q, **asked)


def _stands_still(size: float) -> Implementation:
    return REFERENCE.replace("", factored_gradient_descent=_still)


def _long_steps(size: float) -> Implementation:
    return REFERENCE.replace("", factored_gradient_descent=_longer)


DESCENT, FLOW = "tsvm-factored-descent", "tsvm-factored-flow"

FACTORED_FAULTS = (
    Fault("factor-frozen", Kind.RUN, "only K is trained, Q stays", DESCENT, OtherRule(_frozen)),
    Fault(
        "factors-normalised-apart",
        Kind.RUN,
        "the gradients in K and in Q are normalised each by itself",
        DESCENT,
        OtherRule(_apart),
    ),
    Fault("factors-get-the-gradient-of-w", Kind.RUN, "K and Q move along ∇L(W)", DESCENT, OtherRule(_of_weights)),
    Fault("factors-swapped", Kind.RUN, "∇_K = ∇L K and ∇_Q = ∇Lᵀ Q", DESCENT, OtherRule(_swap_factors)),
    Fault("factor-not-transposed", Kind.RUN, "∇_Q = ∇L K", DESCENT, OtherRule(_not_transposed)),
    Fault(
        "factors-at-two-speeds",
        Kind.RUN,
        "∇_K is (1 + ε) times as long, so that KᵀK − QᵀQ drifts",
        DESCENT,
        OtherRule(_uneven),
        1e-3,
        "ε",
    ),
    Fault("factors-of-rank-one", Kind.RUN, "the start is cut to rank one", DESCENT, OtherRun(start=_rank_one)),
    Fault(
        "factors-rotated",
        Kind.RUN,
        "from the middle on (K, Q) is turned by ε, K Qᵀ is right",
        DESCENT,
        OtherRun(end=_rotate),
        1e-3,
        "ε",
    ),
    Fault("factored-descent-stands-still", Kind.STEP, "η = e^{−700} in place of the safe step", DESCENT, _stands_still),
    Fault("factored-step-without-square", Kind.STEP, "η = 1/(2 L̂ M + c) in place of M²", DESCENT, _long_steps),
)
"""Faults in training (K, Q)."""
