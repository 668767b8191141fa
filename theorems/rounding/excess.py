"""L(p) − L_α, L_α = (1/n) Σ_i ℓ(γ_iα_i) the risk of selecting α exactly, to rounding at any norm of the prompt.

Independent of :func:`reference_attention.risk.log_excess_risk`, which is under test, but for ℓ itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from theorems.bounded import Bounded, exact, hull, value_of
from theorems.core.claim import NotANumber
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.rounding.sized import Sized


def excess(problem: Problem, points: Numbers, alpha: Int64[np.ndarray, "n"]) -> Sized:
    """(1/n) Σ_i (ℓ(γ_iα_i − δ_i) − ℓ(γ_iα_i)), δ_i = Σ_t s_it (γ_iα_i − γ_it); (b,) for points (b, d).

    As ℓ decreases, what δ_i ± e lets it be lies between the values at δ_i − e and δ_i + e.
    """
    return excess_at(AttentionAt(problem, points), alpha)


def excess_at(at: AttentionAt, alpha: Int64[np.ndarray, "n"], *, from_logarithms: bool = False) -> Sized:
    """:func:`excess` at points whose weights are there already; (b,).

    Args:
        from_logarithms: as one has it that takes δ_i from its rounded logarithm: another 2⁻⁵² (1 + |log δ_i|) of it.
    """
    problem, log_weights = at.problem, at.log_weights
    own = exact(problem.scores[np.arange(problem.n), alpha])
    gaps = own[:, None] - problem.scores
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
    signs, sizes = problem.loss.log_excess(own, np.sign(some), exact(largest) + np.log(exact(np.abs(some))))
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
    """L(p) − L_α under test, with what a right one may be off by: twice what :func:`excess` loses from logarithms.

    Args:
        points: (*b, d).
        claim: what is falsified where it is no number.

    Raises:
        NotANumber: a sign or a logarithm that is none.
    """
    made = excess_of_at(under_test, AttentionAt(problem, points.reshape(-1, problem.d)), alpha, claim)
    shape = points.shape[:-1]
    return Sized(made.x.reshape(shape), made.log_unit.reshape(shape))


def excess_of_at(under_test: Implementation, at: AttentionAt, alpha: Int64[np.ndarray, "n"], claim: str) -> Sized:
    """:func:`excess_of` at points whose weights are there already; (b,)."""
    sign, log_size = _reported_excess(under_test, at.problem, at.points, alpha, claim)
    ours = excess_at(at, alpha, from_logarithms=True)
    scale, error = ours.log_unit, ours.x.error
    unit = np.maximum(log_size, scale)
    unit = np.where(np.isfinite(unit), unit, 0.0)
    x: Bounded = sign * np.exp(exact(log_size) - unit)
    known = np.isfinite(error)
    allowed = 2 * (np.where(known, error, 0.0) * np.exp(exact(scale) - unit))
    lost = _report_rounding(log_size)
    with np.errstate(over="ignore"):
        # Beyond 1 what is lost may bring back a size that has underflowed to 0.
        widest = np.exp(log_size - unit + 2 * lost)
        reported = np.where(lost < 1, np.abs(x.value) * np.expm1(np.minimum(lost, 1.0)), widest)
    return Sized.of(x.widen(np.where(known, allowed.value + allowed.error + reported, np.inf)), unit)


def log_excess_of(under_test: Implementation, problem: Problem, points: Numbers, claim: str) -> Numbers:
    """log(L(p) − L_opt) under test, (b,) for points (b, d), where opt is strictly best in each input.

    Raises:
        NotANumber: the difference is not positive, and that is no rounding.
    """
    sign, log_size = _reported_excess(under_test, problem, points, problem.optimal, claim)
    ours = excess_at(AttentionAt(problem, points), problem.optimal, from_logarithms=True).log
    known = np.isfinite(ours.error)
    if (known & (sign <= 0)).any():
        raise NotANumber(claim, "L(p) ≤ L_opt under test")
    return Bounded(np.where(known, log_size, ours.value), 2 * ours.error + _report_rounding(log_size))


def _report_rounding(log_size: Float64[np.ndarray, "*b"]) -> Float64[np.ndarray, "*b"]:
    """What the logarithm itself loses where log ℓ' and log n are added to it: half a spacing of it each."""
    return EPS * np.where(np.isfinite(log_size), np.abs(log_size), 0.0)


def _reported_excess(
    under_test: Implementation, problem: Problem, points: Numbers, alpha: Int64[np.ndarray, "n"], claim: str
) -> tuple[Float64[np.ndarray, "*b"], Float64[np.ndarray, "*b"]]:
    """Sign and logarithm of L(p) − L_α under test."""
    theirs = under_test.log_excess_risk(problem.keys, problem.scores, problem.loss, value_of(points), alpha)
    sign, log_size = (np.asarray(x, dtype=np.float64) for x in theirs)
    if not (np.isfinite(sign).all() and (log_size < np.inf).all()):
        raise NotANumber(claim, "the excess risk under test is not finite")
    return sign, np.where(sign == 0, -np.inf, log_size)
