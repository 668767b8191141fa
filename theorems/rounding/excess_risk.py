"""The excess of the risk L(p) over L_α = (1/n) Σ_i ℓ(γ_iα_i), the risk of selecting α, accurate at any norm of p.

Apart from the loss ℓ, the formula is independent of :func:`reference_attention.risk.log_excess_risk`, which is under
test.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.risk import log_excess_risk
from theorems.bounded import Bounded, exact, hull, value_of
from theorems.core.claim import NotANumber
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.rounding.sized_numbers import Sized


def excess(problem: Problem, points: Numbers, alpha: Int64[np.ndarray, "n"]) -> Sized:
    """Return the excess of the risk over that of selecting α, (b,), at points (b, d).

    The excess is (1/n) Σ_i (ℓ(γ_iα_i − δ_i) − ℓ(γ_iα_i)), where δ_i = Σ_t s_it (γ_iα_i − γ_it) is how far the output of
    input i is below γ_iα_i. If δ_i is known up to an error e, the value of ℓ lies between its values for δ_i − e and
    δ_i + e, because ℓ decreases.
    """
    return excess_at(AttentionAt(problem, points), alpha)


def excess_at(at: AttentionAt, alpha: Int64[np.ndarray, "n"], *, from_logarithms: bool = False) -> Sized:
    """Return :func:`excess` at the points at which ``at`` evaluated attention, (b,).

    Args:
        at: attention at the points.
        alpha: the selected tokens, (n,).
        from_logarithms: True to add to δ_i (see :func:`excess`) the relative error 2⁻⁵² (1 + |log δ_i|) of an
            implementation that computes δ_i from its rounded logarithm.
    """
    problem, log_weights = at.problem, at.log_weights
    chosen_scores = exact(problem.scores[np.arange(problem.n), alpha])
    gaps = chosen_scores[:, None] - problem.scores
    others: Any = np.where(value_of(gaps) != 0, log_weights, -np.inf)
    largest = np.max(others.value, axis=-1)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    delta: Any = np.vecdot(np.exp(others - largest[..., None]), gaps)
    if from_logarithms:
        sizes = np.abs(delta.value)
        logs = np.abs(largest + np.log(np.where(sizes > 0, sizes, 1.0)))
        delta = delta.widen(EPS * (1 + logs) * sizes)

    low, high = np.nextafter(delta.value - delta.error, -np.inf), np.nextafter(delta.value + delta.error, np.inf)
    some = np.stack([delta.value, *(np.where(delta.error > 0, end, delta.value) for end in (low, high))])
    signs, sizes = problem.loss.log_excess(chosen_scores, np.sign(some), exact(largest) + np.log(exact(np.abs(some))))
    with np.errstate(invalid="ignore"):
        unit = np.max(np.where(np.isfinite(sizes.value), sizes.value, -np.inf), axis=(0, 2))
    unit = np.where(np.isfinite(unit), unit, 0.0)
    middle, least, most = signs * np.exp(sizes - unit[:, None])
    return Sized.of(np.mean(hull(hull(middle, least), most), axis=-1), unit)


def excess_of(
    under_test: Implementation,
    problem: Problem,
    points: Numbers,
    alpha: Int64[np.ndarray, "n"],
    claim: str,
) -> Sized:
    """Return L(p) − L_α under test, with the error that a correct one may have: twice that of :func:`excess_at`.

    Args:
        under_test: the implementation whose ``log_excess_risk`` is called.
        problem: keys, scores, loss.
        points: p, (*b, d).
        alpha: the selected tokens, (n,).
        claim: the name of the claim that is falsified where the result is not a number.

    Raises:
        NotANumber: a sign or a logarithm is not finite.
    """
    flat = excess_of_at(under_test, AttentionAt(problem, points.reshape(-1, problem.d)), alpha, claim)
    shape = points.shape[:-1]
    return Sized(flat.x.reshape(shape), flat.log_unit.reshape(shape))


def excess_of_at(under_test: Implementation, at: AttentionAt, alpha: Int64[np.ndarray, "n"], claim: str) -> Sized:
    """Return :func:`excess_of` at the points at which ``at`` evaluated attention, (b,)."""
    sign, log_size = _reported_excess(under_test, at.problem, at.points, alpha, claim)
    ours = excess_at(at, alpha, from_logarithms=True)
    scale, error = ours.log_unit, ours.x.error
    unit = np.maximum(log_size, scale)
    unit = np.where(np.isfinite(unit), unit, 0.0)
    x: Bounded = sign * np.exp(exact(log_size) - unit)
    finite = np.isfinite(error)
    allowed = 2 * (np.where(finite, error, 0.0) * np.exp(exact(scale) - unit))
    lost = _report_rounding(log_size)
    with np.errstate(over="ignore"):
        # If the logarithm has an error ``lost`` ≥ 1, the true size may be far above x, which may have underflowed to 0.
        widest = np.exp(log_size - unit + 2 * lost)
        reported = np.where(lost < 1, np.abs(x.value) * np.expm1(np.minimum(lost, 1.0)), widest)
    return Sized.of(x.widen(np.where(finite, allowed.value + allowed.error + reported, np.inf)), unit)


def log_excess_of(under_test: Implementation, problem: Problem, points: Numbers, claim: str) -> Numbers:
    """Return log(L(p) − L_opt) under test, (b,) for points (b, d); the optimal token must be unique in each input.

    Raises:
        NotANumber: L(p) − L_opt under test is not positive, and rounding cannot be the reason.
    """
    sign, log_size = _reported_excess(under_test, problem, points, problem.optimal, claim)
    ours = excess_at(AttentionAt(problem, points), problem.optimal, from_logarithms=True).log
    finite = np.isfinite(ours.error)
    if (finite & (sign <= 0)).any():
        raise NotANumber(claim, "L(p) ≤ L_opt under test")
    return Bounded(np.where(finite, log_size, ours.value), 2 * ours.error + _report_rounding(log_size))


def _report_rounding(log_size: Float64[np.ndarray, "*b"]) -> Float64[np.ndarray, "*b"]:
    """Return a bound of the rounding error of adding log ℓ' and log n to a logarithm, half a spacing per addition."""
    return EPS * np.where(np.isfinite(log_size), np.abs(log_size), 0.0)


def _reported_excess(
    under_test: Implementation, problem: Problem, points: Numbers, alpha: Int64[np.ndarray, "n"], claim: str
) -> tuple[Float64[np.ndarray, "*b"], Float64[np.ndarray, "*b"]]:
    """Return the sign and the logarithm of |L(p) − L_α| under test; raise NotANumber if they are not finite."""
    theirs = under_test[log_excess_risk](problem.keys, problem.scores, problem.loss, value_of(points), alpha)
    sign, log_size = (np.asarray(x, dtype=np.float64) for x in theirs)
    if not (np.isfinite(sign).all() and (log_size < np.inf).all()):
        raise NotANumber(claim, "the excess risk under test is not finite")
    return sign, np.where(sign == 0, -np.inf, log_size)
