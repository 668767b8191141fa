"""Gradient flow on the factors (K, Q) of W = K Qᵀ, in arc length: dK/dt = −∇L(W) Q, dQ/dt = −∇L(W)ᵀ K.

The flow conserves KᵀK − QᵀQ. Therefore ½(‖K‖² + ‖Q‖²) is the nuclear norm of W up to a bounded difference. By the norm
of (K, Q) we mean the joint norm (‖K‖² + ‖Q‖²)^½: at norm 1e3, W has a nuclear norm of about 5e5.

References: *Transformers as Support Vector Machines*, (KQ-ERM); Sheen, Chen, Wang, Zhou, arXiv 2403.08699.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from reference_attention import risk
from reference_attention.query_dataset import QueryDataset
from reference_attention.training.arc_length import Tracer
from reference_attention.training.descent import Stop
from reference_attention.training.factorization import (
    FactorRule,
    Keys,
    Layout,
    Queries,
    Weights,
    checked_factors,
    factor_gradients,
    factored_slope,
    refuse_start,
)
from reference_attention.training.flow import RELATIVE, follow
from reference_attention.training.iteration import Gradient


@dataclass(frozen=True, eq=False)
class FactoredFlow:
    """A gradient flow on the factors (K, Q) of W: points where it first reached the recorded norms, and its last point.

    Attributes:
        K, Q: the r recorded points, (r, d, m) and (r, e, m).
        norms: the joint norms (‖K‖_F² + ‖Q‖_F²)^½ of the points, (r,).
        arc_length: arc length from the start, in the joint norm, (r,).
        log_gradient_norm: log of the joint norm (‖∇_K‖² + ‖∇_Q‖²)^½ of the gradients in K and Q, (r,).
        sign: sign of L(W) − L_opt, (r,), where L_opt is the risk if all weight is on the optimal tokens.
        log_risk: log |L(W) − L_opt|, (r,).
        stop: ``NORM`` (the requested norm was reached), ``STATIONARY`` (the flow converges to the last point) or
            ``FAILED``.
        reason: the reason why the flow failed; empty if it did not fail.
    """

    K: Keys
    Q: Queries
    norms: Float64[np.ndarray, "r"]
    arc_length: Float64[np.ndarray, "r"]
    log_gradient_norm: Float64[np.ndarray, "r"]
    sign: Float64[np.ndarray, "r"]
    log_risk: Float64[np.ndarray, "r"]
    stop: Stop
    reason: str
    _times: Callable[[], Float64[np.ndarray, "r"]] = field(repr=False)

    @cached_property
    def log_time(self) -> Float64[np.ndarray, "r"]:
        """Return log of the flow's time t at each record, (r,), −inf at the start: t = ∫ ds/(‖∇_K‖² + ‖∇_Q‖²)^½."""
        return self._times()

    @cached_property
    def W(self) -> Weights:
        """Return W = K Qᵀ, (r, d, e)."""
        return np.asarray(self.K @ np.swapaxes(self.Q, 1, 2))

    @property
    def reached_norm(self) -> bool:
        """Return whether the flow reached the requested norm."""
        return self.stop is Stop.NORM


def factored_flow(
    data: QueryDataset,
    K: ArrayLike,
    Q: ArrayLike,
    *,
    norm: float,
    record: Float64[np.ndarray, "m"] | None = None,
    gradient: Gradient = risk.scaled_gradient,
    rule: FactorRule = factor_gradients,
    relative: float = RELATIVE,
) -> FactoredFlow:
    """Follow the gradient flow on (K, Q) until (‖K‖² + ‖Q‖²)^½ = ``norm``, or to a finite stationary point.

    Args:
        data: tokens, queries, labels, head and loss.
        K: the start of K, (d, m), for any m.
        Q: the start of Q, (e, m).
        norm: the joint norm at which to stop, larger than that of the start.
        record: norms; the point where the flow first reaches each of them is recorded; by default eight norms per
            decade.
        gradient: the function that computes ∇L in vec(W): the reference, a kernel or a planted fault.
        rule: the function that turns ∇L(W) into gradients in K and Q.
        relative: relative tolerance of the solver.

    Raises:
        InvalidInput: a start does not fit the data, or ``norm`` is not larger than the norm of the start.

    >>> import numpy as np
    >>> from theorems import QueryDataset, factored_flow
    >>> data = QueryDataset(X=[[[1, 2], [2, -1], [0, 1]]], queries=[[1, 0.5]], Y=[1], v=[1, 0])
    >>> flow = factored_flow(data, K=np.eye(2), Q=np.zeros((2, 2)), norm=1e3)
    >>> np.linalg.svd(flow.W[-1], compute_uv=False).round(-3)
    array([500000.,      0.])
    """
    K, Q = checked_factors(data, K, Q)
    layout, problem = Layout(K.shape[0], Q.shape[0], K.shape[1]), data.problem
    start = layout.join(K, Q)
    begin = float(np.linalg.norm(start))
    refuse_start(norm, begin)
    slope = factored_slope(problem, layout, gradient, rule)
    if record is None:
        low = max(begin, min(1e-3 / slope.unit, norm / 10))
        record = np.geomspace(low, norm, 1 + math.ceil(8 * math.log10(norm / low)))[1:]
    targets = np.unique(np.append(record[(record > begin) & (record < norm)], norm))
    tracer = Tracer(slope, start, targets, relative)
    _, stop, reason = follow(tracer)
    points = np.array(tracer.points)
    sign, log_risk = risk.log_excess_risk(
        problem.keys, problem.scores, problem.loss, layout.weights(points), problem.optimal
    )
    return FactoredFlow(
        *layout.split(points),
        norms=np.linalg.norm(points, axis=1),
        arc_length=np.array(tracer.lengths),
        log_gradient_norm=np.array(tracer.log_norms),
        sign=sign,
        log_risk=log_risk,
        stop=stop,
        reason=reason,
        _times=tracer.log_times,
    )
