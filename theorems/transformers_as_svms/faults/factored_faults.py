"""Planted faults in training the factors (K, Q) of W: ∇L(W) is right, but the gradients in K and Q are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reference_attention.loss import Array
from reference_attention.query_dataset import QueryDataset
from reference_attention.training.factored_descent import FactoredTrajectory, factored_gradient_descent
from reference_attention.training.factorization import factor_gradients, log_curvatures
from theorems.faults.fault import Faults, Kind

RUN, STEP = Faults(Kind.RUN), Faults(Kind.STEP)
DESCENT = "tsvm-factored-descent"
Run = FactoredTrajectory
Factors = tuple[Array, Array]
Rule = Callable[..., Factors]
"""A faulty rule: it maps ∇L(W), K and Q to gradients in K and in Q; a fault's size is one more argument, the first."""


def _follow(rule: Rule, right: Callable[..., Run], *arguments: Any, **options: Any) -> Run:
    *size, data, K, Q = arguments
    return right(data, K, Q, rule=partial(rule, *size), **options)


def _rule(name: str, says: str, **further: Any) -> Callable[[Rule], Rule]:
    """Return a decorator that plants a fault: descent follows the gradients that the decorated rule returns."""
    return RUN.plant(name, says, DESCENT, factored_gradient_descent, through=_follow, **further)


@_rule("factor-frozen", "only K is trained, Q stays")
def _frozen(gradient: Array, K: Array, Q: Array) -> Factors:
    by_k, by_q = factor_gradients(gradient, K, Q)
    return by_k, 0.0 * by_q


@_rule("factors-normalised-apart", "the gradients in K and in Q are normalised separately")
def _apart(gradient: Array, K: Array, Q: Array) -> Factors:
    """Scale the gradients in K and in Q to one norm, the root mean square of their norms."""
    by_k, by_q = factor_gradients(gradient, K, Q)
    lengths = np.linalg.norm(by_k), np.linalg.norm(by_q)
    if not all(lengths):
        return by_k, by_q
    root_mean_square = float(np.hypot(*lengths)) / np.sqrt(2)
    return by_k * (root_mean_square / lengths[0]), by_q * (root_mean_square / lengths[1])


@_rule("factors-get-the-gradient-of-w", "K and Q move along ∇L(W)")
def _of_weights(gradient: Array, K: Array, Q: Array) -> Factors:
    """Return ∇L(W) and its transpose as the gradients in K and Q; if their shapes differ, the right gradients."""
    if gradient.shape != K.shape or gradient.T.shape != Q.shape:
        return factor_gradients(gradient, K, Q)
    return gradient, gradient.T


@_rule("factors-swapped", "∇_K = ∇L K and ∇_Q = ∇Lᵀ Q")
def _swap_factors(gradient: Array, K: Array, Q: Array) -> Factors:
    return (gradient @ K, gradient.T @ Q) if K.shape == Q.shape else factor_gradients(gradient, K, Q)


@_rule("factor-not-transposed", "∇_Q = ∇L K")
def _not_transposed(gradient: Array, K: Array, Q: Array) -> Factors:
    return (gradient @ Q, gradient @ K) if K.shape == Q.shape else factor_gradients(gradient, K, Q)


@_rule("factors-at-two-speeds", "∇_K is (1 + ε) times as long, so that KᵀK − QᵀQ drifts", size=1e-3)
def _uneven(size: float, gradient: Array, K: Array, Q: Array) -> Factors:
    by_k, by_q = factor_gradients(gradient, K, Q)
    return (1 + size) * by_k, by_q


@RUN.plant("factors-of-rank-one", "the start is cut to rank one", DESCENT, factored_gradient_descent)
def _rank_one(right: Callable[..., Run], data: QueryDataset, K: Array, Q: Array, **options: Any) -> Run:
    cut = (s[0] * np.outer(u[:, 0], v[0]) for u, s, v in map(np.linalg.svd, (K, Q)))
    return right(data, *cut, **options)


@RUN.change(
    "factors-rotated",
    "from the middle on (K, Q) is rotated by ε; K Qᵀ is right",
    DESCENT,
    factored_gradient_descent,
    size=1e-3,
)
def _rotate(run: Run, size: float, *arguments: Any, **options: Any) -> Run:
    """Rotate the plane of the first two columns at all points from the middle of the run on; K Qᵀ stays the same."""
    turn = np.eye(run.K.shape[-1])
    if len(turn) > 1:
        turn[:2, :2] = [[np.cos(size), -np.sin(size)], [np.sin(size), np.cos(size)]]
    later = (np.arange(len(run.K)) >= len(run.K) // 2)[:, None, None]
    return replace(run, K=np.where(later, run.K @ turn, run.K), Q=np.where(later, run.Q @ turn, run.Q))


@STEP.plant(
    "factored-descent-stands-still", "η = e^{−700} instead of the safe step", DESCENT, factored_gradient_descent
)
def _still(right: Callable[..., Run], *arguments: Any, **options: Any) -> Run:
    """Descend with η = e^{−700}, so that all iterates equal the start; normalized steps are not changed."""
    if options.get("length") is None:
        options |= {"length": None, "log_step": -700.0}
    return right(*arguments, **options)


@STEP.plant("factored-step-without-square", "η = 1/(2 L̂ M + c), without squaring M", DESCENT, factored_gradient_descent)
def _longer(right: Callable[..., Run], data: QueryDataset, K: ArrayLike, Q: ArrayLike, **options: Any) -> Run:
    """Descend with η = 1/(2 L̂ M + c), with M where tsvm-factored-descent has M²; normalized steps are not changed."""
    if options.get("length") is None:
        size = max(np.linalg.norm(np.asarray(K), 2), np.linalg.norm(np.asarray(Q), 2))
        smooth, steep = log_curvatures(data.problem)
        options |= {"length": None, "log_step": -float(np.logaddexp(np.log(2 * size) + smooth, steep))}
    return right(data, K, Q, **options)
