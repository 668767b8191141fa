"""Softmax attention in ball arithmetic (Arb through python-flint): the true values, with a proven error.

Inputs are floats taken exactly; outputs are ``flint.arb`` balls of relative radius far below float64. Slow:
a few points at a time, only for tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq
from jaxtyping import Float64, Int64

from reference_attention.exact import rational
from reference_attention.loss import Loss
from reference_attention.problem import Problem
from tests.reference_attention.exact_losses import SLOPES, VALUES

BITS = 256
"""Working precision in bits beyond what the range of the logits needs."""


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Use ball arithmetic of the given precision in bits inside the block."""
    before = ctx.prec
    ctx.prec = bits
    try:
        yield
    finally:
        ctx.prec = before


def _dot(a: Sequence[float], b: Sequence[float]) -> fmpq:
    return sum((rational(x) * rational(y) for x, y in zip(a, b, strict=True)), fmpq(0))


def logits(problem: Problem, p: Float64[np.ndarray, "d"]) -> list[list[fmpq]]:
    """Return the logits K p exactly, shape (n, T)."""
    prompt = p.tolist()
    return [[_dot(key, prompt) for key in keys] for keys in problem.keys.tolist()]


def bits_for(problem: Problem, p: Float64[np.ndarray, "d"]) -> int:
    """Return a precision at which 1 − s and ℓ(γᵀs) − ℓ(γ) keep leading digits although a weight s is within e^{−a} of
    1, where a is the largest difference between two logits of an input.
    """
    reach = max(float(max(row) - min(row)) if row else 0.0 for row in _floats(logits(problem, p)))
    return BITS + 2 * math.ceil(reach / math.log(2))


def _floats(rows: list[list[fmpq]]) -> list[list[float]]:
    return [[float(int(x.p) / int(x.q)) for x in row] for row in rows]


def weights(problem: Problem, p: Float64[np.ndarray, "d"]) -> list[list[arb]]:
    """Return the softmax weights s = softmax(K p), shape (n, T)."""
    rows = []
    for row in logits(problem, p):
        top = max(row)
        terms = [arb(x - top).exp() for x in row]
        total = sum(terms, arb(0))
        rows.append([x / total for x in terms])
    return rows


def outputs(problem: Problem, p: Float64[np.ndarray, "d"]) -> list[arb]:
    """Return the outputs γ_iᵀ s_i, shape (n,)."""
    return [
        sum((s * arb(rational(g)) for s, g in zip(row, scores, strict=True)), arb(0))
        for row, scores in zip(weights(problem, p), problem.scores.tolist(), strict=True)
    ]


def loss_value(loss: Loss, u: Any) -> arb:
    """Return ℓ(u)."""
    return VALUES[loss.name](u)


def loss_slope(loss: Loss, u: Any) -> arb:
    """Return |ℓ'(u)|."""
    return -SLOPES[loss.name](u)


def risk(problem: Problem, p: Float64[np.ndarray, "d"]) -> arb:
    """Return L(p)."""
    with precision(bits_for(problem, p)):
        values = [loss_value(problem.loss, u) for u in outputs(problem, p)]
        return sum(values, arb(0)) / problem.n


def gradient(problem: Problem, p: Float64[np.ndarray, "d"]) -> list[arb]:
    """Return ∇L(p) = −(1/n) Σ_i |ℓ'_i| Σ_{t<u} s_t s_u (γ_t − γ_u)(k_t − k_u), with the softmax weights s, as d
    balls.
    """
    with precision(bits_for(problem, p)):
        total = [arb(0)] * problem.d
        inputs = zip(problem.keys.tolist(), problem.scores.tolist(), weights(problem, p), strict=True)
        for (keys, scores, s), u in zip(inputs, outputs(problem, p), strict=True):
            slope = loss_slope(problem.loss, u) / problem.n
            g = [rational(x) for x in scores]
            for a in range(problem.T):
                for b in range(a):
                    factor = slope * s[a] * s[b] * arb(g[a] - g[b])
                    apart = [rational(x) - rational(y) for x, y in zip(keys[a], keys[b], strict=True)]
                    total = [t - factor * arb(x) for t, x in zip(total, apart, strict=True)]
        return total


def excess_risk(problem: Problem, p: Float64[np.ndarray, "d"], alpha: Int64[np.ndarray, "n"]) -> arb:
    """Return L(p) − L_α, where L_α = (1/n) Σ ℓ(γ_iα_i) is the risk if the tokens α have all weight."""
    with precision(bits_for(problem, p)):
        chosen = problem.scores[np.arange(problem.n), alpha].tolist()
        terms = [
            loss_value(problem.loss, u) - loss_value(problem.loss, arb(rational(g)))
            for u, g in zip(outputs(problem, p), chosen, strict=True)
        ]
        return sum(terms, arb(0)) / problem.n


def risk_change(problem: Problem, p: Float64[np.ndarray, "d"], h: Float64[np.ndarray, "d"]) -> arb:
    """Return L(p + h) − L(p), where the sum p + h is exact."""
    before = logits(problem, p)
    by = logits(problem, h)
    smallest = min((abs(x) for x in h.tolist() if x), default=1.0)
    with precision(3 * bits_for(problem, p) + 2 * bits_for(problem, h) + 8 * abs(math.frexp(smallest)[1])):
        total = arb(0)
        for row, change, scores in zip(before, by, problem.scores.tolist(), strict=True):
            ends = []
            for l in (row, [x + y for x, y in zip(row, change, strict=True)]):
                top = max(l)
                terms = [arb(x - top).exp() for x in l]
                mean = sum((t * arb(rational(g)) for t, g in zip(terms, scores, strict=True)), arb(0))
                ends.append(loss_value(problem.loss, mean / sum(terms, arb(0))))
            total += ends[1] - ends[0]
        return total / problem.n


def scaled(x: Any, log_scale: float) -> float:
    """Return x · e^{−log_scale} as a float."""
    with precision(2 * BITS):
        return float((x * (-arb(rational(log_scale))).exp()).mid()) if math.isfinite(log_scale) else float(x.mid())
