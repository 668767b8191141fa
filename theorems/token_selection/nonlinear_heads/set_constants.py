"""Constants of Theorem 8 and Lemma 14: κ for sets of optimal tokens, costs of single tokens, the bound from the duals.

Lengths are in units of ‖p_mm‖, see :mod:`theorems.curves.constraints`; singletons with a linear head are Theorem 1's.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix D, Lemma 14, Theorem 8.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float64
from numpy.linalg import norm

from generators.optimal_sets import LinearMixing
from reference_attention.floats import EPS
from reference_attention.loss import Loss
from reference_attention.problem import Problem
from reference_attention.svm.max_margin_sets import ChoiceSolution, MaxMarginSets, exact_logits
from theorems.core.claim import Form, NotANumber
from theorems.core.implementation import Implementation
from theorems.curves.constraints import Constraints, log_excess, rank_of_neighbours
from theorems.rounding.approximate import bend
from theorems.rounding.attention_at import Numbers
from theorems.rounding.bounded import exact, possibly_at_least, rounded


def log_slope_bounds(mixing: LinearMixing, loss: Loss) -> tuple[Float64[np.ndarray, "n"], Float64[np.ndarray, "n"]]:
    """log C0_i, log C1_i with C0_i q_i ≤ ℓ(Y_i ψ) − ℓ(ν_i) ≤ C1_i q_i: c0, c1 times the extreme |ℓ'| on [ν − c1, ν].

    Not mixed inputs lose nothing: +inf and −inf.
    """
    low, high = np.full(len(mixing.nu), np.inf), np.full(len(mixing.nu), -np.inf)
    for i in np.flatnonzero(mixing.mixed).tolist():
        interval = float(mixing.nu[i] - mixing.c1[i]), float(mixing.nu[i])
        low[i] = math.log(mixing.c0[i]) + loss.log_floor(*interval)
        high[i] = math.log(mixing.c1[i]) + loss.log_bound(*interval)
    return low, high


def mixing_kappa(mixing: LinearMixing, loss: Loss) -> float:
    """κ = log Σ_i C1_i |Ō_i| − min_i log(C0_i/(1 + |O_i|)); never above Theorem 1's where that applies."""
    low, high = log_slope_bounds(mixing, loss)
    used = mixing.mixed
    size = mixing.optimal.sum(axis=1)
    upper = np.logaddexp.reduce((high + np.log(np.maximum(mixing.optimal.shape[1] - size, 1)))[used])
    return float(upper - np.min((low - np.log1p(size))[used]))


def set_margins(mixing: LinearMixing, problem: Problem, p: Numbers) -> Numbers:
    """min_i max_{α∈O_i} min_{β∉O_i} (k_iα − k_iβ)·p, shape (*b, d) → (*b,)."""
    keys, optimal = exact(problem.keys[mixing.mixed]), mixing.optimal[mixing.mixed]
    logits = np.vecdot(keys - keys[:, :1], p[..., None, None, :])
    best = np.max(np.where(optimal, logits, -np.inf), axis=-1)
    other = np.max(np.where(optimal, -np.inf, logits), axis=-1)
    return np.min(best - other, axis=-1)


def least_margin(
    mixing: LinearMixing, problem: Problem, kappa: float, rho: Float64[np.ndarray, "m"], ray: Float64[np.ndarray, "m d"]
) -> Numbers:
    """ρ − κ, less than which no point below ``ray`` has, (m,); off by κ and by a dozen roundings of ray's ρ p_mm."""
    moved = set_margins(mixing, problem, exact(ray) * exact(1.0).widened(8 * EPS)).error
    return (exact(rho) - kappa).widened(moved + log_rounding(mixing, problem.loss))


@lru_cache(maxsize=1)
def log_rounding(mixing: LinearMixing, loss: Loss) -> float:
    """Error of the logarithms of slopes, gaps, weights and their sums: of κ, of a token's costs, of log(L − L_*)."""
    size = max(float(np.abs(x[mixing.mixed]).max()) for x in log_slope_bounds(mixing, loss))
    return 4 * EPS * (sum(mixing.gaps.shape) + 8) * (1 + size)


def excess_rounding(
    problem: Problem, mixing: LinearMixing, p: Float64[np.ndarray, "*b d"]
) -> Float64[np.ndarray, "*b"]:
    """What an implementation may lose of log(L − L_*): in a logit, 2 (d + 4) eps max Σ_k |δk_k p_k|; in logarithms."""
    reach = np.max(problem.keys, axis=1) - np.min(problem.keys, axis=1)
    logits = 2 * (problem.d + 4) * EPS * np.max(np.abs(p) @ reach.T, axis=-1)
    return np.asarray(logits + log_rounding(mixing, problem.loss))


def excess_of(
    seen: Implementation, problem: Problem, mixing: LinearMixing, p: Float64[np.ndarray, "m d"], claim: str, form: Form
) -> Numbers:
    """log(L − L_*) under test with what it may be off by, (m,); ``claim`` is falsified where it is no number."""
    excess = log_excess(seen, problem, p)
    if np.isnan(excess).any():
        raise NotANumber(claim, "the excess risk under test is negative or no number", form)
    return exact(excess).widened(np.where(np.isinf(excess), 0.0, excess_rounding(problem, mixing, p)))


def log_token_costs(mixing: LinearMixing, loss: Loss, *, secants: bool = False) -> Float64[np.ndarray, "n T"]:
    """log of |ℓ'(ν_i)| Σ_j |b_j| φ'_j g_itj, what a little weight on token t costs; −inf at optimal tokens.

    Args:
        secants: with the least secant slope of φ_j instead: what weight on t costs at least.
    """
    head = mixing.head
    reach = mixing.gaps.max(axis=1)
    slopes = (
        head.units("lowest_secant", mixing.best, head.signs, reach)
        if secants
        else head.units("slope", mixing.best, head.signs)
    )
    rate = np.sum(mixing.gaps * (np.abs(head.weights) * slopes)[:, None], axis=2)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(rate) + loss.log_slope(mixing.nu)[:, None])


def separation(problem: Problem, sets: MaxMarginSets, choice: ChoiceSolution) -> tuple[float, Float64[np.ndarray, "n"]]:
    """How far, in margins of p_mm, other optimal tokens with other keys stay behind α at p_mm; how many equal α's key.

    The first is 0 for an exact tie and +inf when there is no such token. Decided over the rationals.
    """
    least, multiplicity = math.inf, np.ones(problem.n)
    for i in np.flatnonzero(~sets.optimal.all(axis=1)).tolist():
        keys, own = problem.keys[i], int(choice.alpha[i])
        logits = exact_logits(keys, choice.svm)
        rivals = sets.optimal[i] & (keys != keys[own]).any(axis=1)
        multiplicity[i] = sets.optimal[i].sum() - rivals.sum()
        for t in np.flatnonzero(rivals).tolist():
            least = min(least, max(float(logits[own] - logits[t]), 0.0))
    return least, multiplicity


def constraints_of(
    problem: Problem, mixing: LinearMixing, choice: ChoiceSolution, multiplicity: Float64[np.ndarray, "n"]
) -> Constraints:
    """The constraints of one choice with the costs of the tokens, as those of Theorem 1; α's key may be shared."""
    others = ~mixing.optimal
    best = problem.keys[np.arange(problem.n), choice.alpha]
    log_costs = (log_token_costs(mixing, problem.loss) - np.log(multiplicity)[:, None])[others]
    duals = choice.duals[others]
    return Constraints(
        rows=choice.svm.norm * (best[:, None] - problem.keys)[others],
        margins=choice.margins[others],
        neighbours=choice.neighbours[others],
        log_costs=log_costs - log_costs.max(),
        log_unit=float(log_costs.max()),
        weights=duals / duals.sum(),
        rank=rank_of_neighbours(choice.svm),
        others=others,
    )


def allowed_choices(sets: MaxMarginSets, least: Numbers, p: Numbers) -> Bool[np.ndarray, "m c"]:
    """Choices with ‖p‖Θ_α ≥ ``least``, a lower bound of the margin of p: those which p may select; (m, c)."""
    best = sets.choices[0].norm_squared
    # 1 − Θ_α/Θ = x/(1 + √(1 − x)), x = 1 − (Θ_α/Θ)², without cancellation.
    x = rounded([float((c.norm_squared - best) / c.norm_squared) for c in sets.choices])
    length = norm(p, axis=1) / norm(rounded(sets.choices[0].p))
    return np.asarray(possibly_at_least((length - least)[:, None], length[:, None] * (x / (1 + np.sqrt(1 - x)))))


def nearest(sets: MaxMarginSets, allowed: Bool[np.ndarray, "m c"], p: Numbers) -> Numbers:
    """The largest ⟨p, p̄_α⟩/‖p_mm‖ over the allowed choices, shape (m,)."""
    along = p @ towards(sets).T / norm(rounded(sets.choices[0].p))
    return np.max(np.where(allowed, along, -np.inf), axis=-1)


def towards(sets: MaxMarginSets) -> Numbers:
    """p̄_α of all choices, (c, d)."""
    solutions = rounded(np.array([c.p for c in sets.choices]))
    return solutions / norm(solutions, axis=1, keepdims=True)


def dual_bound(
    problem: Problem, mixing: LinearMixing, sets: MaxMarginSets, allowed: Bool[np.ndarray, "m c"], beyond: Numbers
) -> Numbers:
    """min over the allowed choices of Σ_j w_j log(C_j/w_j), where all margins are at least ``beyond``, shape (m,).

    C_iβ = |ℓ'(ν_i)| (least cost of β) e^{−b x} / (|O_i| + |Ō_i| e^{−beyond}), w = λ/Σλ; x = min(1, T e^{−beyond}) ≥ q_i
    and b of :func:`bend`.
    """
    size = mixing.optimal.sum(axis=1)
    log_costs, lost = log_token_costs(mixing, problem.loss, secants=True), log_rounding(mixing, problem.loss)
    small = np.exp(-np.maximum(beyond, 0.0))
    normaliser = np.log(size + (problem.T - size) * small[:, None])
    bent = bend(problem.loss, mixing.nu[mixing.mixed], mixing.c1[mixing.mixed]) * np.minimum(problem.T * small, 1.0)
    bounds = []
    for choice in sets.choices:
        # A token that stands twice in the SVM has the sum of its duals.
        duals, used = rounded(choice.duals) * exact(1.0).widened(problem.T * EPS), choice.duals > 0
        w = duals / np.sum(duals)
        fixed = np.sum(w[used] * (exact(log_costs[used]).widened(lost) - np.log(w[used])))
        bounds.append(fixed - bent - normaliser @ np.sum(w, axis=1))
    return np.min(np.where(allowed, np.stack(bounds, axis=-1), np.inf), axis=-1)
