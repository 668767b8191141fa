"""Several queries per input, causal or not: the regularization path converges in direction to one W^mm for all queries.

References: *Transformers as Support Vector Machines*, sequence outputs and causal attention (appendix); Theorem 1 of
*Max-Margin Token Selection*, with inputs of different lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy.linalg import norm

from generators.case import Case
from generators.margin_assumptions import is_farkas_proof
from generators.sequence_assumptions import optimal_tokens_of, sequence_rows
from generators.transformers_as_svms.sequence_cases import sequence_cases
from reference_attention.floats import EPS
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from reference_attention.sequence_risk import sequence_parts
from reference_attention.svm.sequence_max_margin import SequenceInfeasible, SequenceMaxMargin, sequence_max_margin
from theorems.bounded import exact, value_of, with_rounding
from theorems.core.claim import Claim, Ended, Form, Refuted, Undecided, Verdict, at_least
from theorems.core.claim_name import premise, sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import BELOW_ROUNDING
from theorems.core.points import climb, probe_points
from theorems.core.sequence_certificate import (
    DECIDED,
    PARTS,
    UNSEEN,
    choices_claim,
    parts_claim,
    solution_claim,
    unseen_claim,
)
from theorems.core.statement import statement
from theorems.core.svm_certificate import SVM_IS_OPTIMAL
from theorems.curves.reduced_program import Reduced, tangent_basis
from theorems.curves.sublevel_hunt import hunt
from theorems.rounding.attention_at import Numbers, violation_of
from theorems.rounding.sized_numbers import sized_equal
from theorems.transformers_as_svms.sequence_numbers import SequenceRows, dual_value

IS_THE_MEAN = premise("excess-is-the-mean")
FLOOR = sharper("risk-floor")
CEILING = sharper("risk-ceiling")
FROM_BELOW = sharper("leading-term-from-below")
FROM_ABOVE = sharper("leading-term-from-above", when="a loss of this package, for which |ℓ''| ≤ |ℓ'|")
MARGIN = sharper("sublevel-margin")
CORRELATION = stated_claim("sublevel-correlation")
FROM_DUALS = sharper("sublevel-correlation-from-duals")

UNSEEN_POINTS = 12
POINTS = 60
SUBLEVEL_RADII = (1.01, 2.0, 10.0, 1e3, 1e6)
"""The radii ρ = R/‖W^mm‖ of the sublevel sets, in units of κ."""
RAY = (1.0, 4.0, 20.0, 100.0, 1e3, 1e5)
"""The values of ρ at which the leading term of the risk at ρ W^mm is checked."""
HUNT_BUDGET = 60_000
"""The approximate largest number of floats in one batch of points that :func:`sublevel_points` searches."""


@statement(
    "tsvm-sequence",
    "Several queries per input, causal or masked: selection by one W^mm",
    source="T-SVM, sequence outputs (appendix)",
    claims=(
        PARTS,
        SVM_IS_OPTIMAL,
        DECIDED,
        IS_THE_MEAN,
        FLOOR,
        CEILING,
        FROM_BELOW,
        FROM_ABOVE,
        MARGIN,
        CORRELATION,
        FROM_DUALS,
        UNSEEN,
    ),
    assumptions=("well-behaved-loss", "sequence-given", "sequence-strict-optimum", "sequence-separable"),
    cases=sequence_cases,
    kernel=BELOW_ROUNDING,
    needs={
        "sequence-given": "the statement is about several queries per input",
        "sequence-separable": "W^mm exists only if ATT-SVM is feasible",
        "sequence-strict-optimum": "κ is computed from the gaps to a single best token",
        "well-behaved-loss": "κ is computed from bounds of |ℓ'| > 0",
    },
)
def tsvm_sequence(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let L(W) = (1/nL) Σ_i Σ_k ℓ(Y_ik vᵀ X_iᵀ softmax(X_i W z_ik)), with L queries per input.

    The softmax is over the tokens that query k of input i sees (causal: t ≤ k). Let Assumption A hold, and for every
    (i, k) let one token α_ik that the query sees be strictly best. Let (x_iα_ik − x_it)ᵀ W z_ik ≥ 1, for all i, k and
    all t ≠ α_ik that query k sees, be feasible, and W^mm its solution of least ‖W‖_F. The path
    W̄(R) = argmin_{‖W‖_F ≤ R} L(W) has W̄(R)/R → W^mm/‖W^mm‖_F.

    **Exact.** Each (i, k) is an input with the keys vec(x_it z_ikᵀ) of the tokens that the query sees. A query that
    sees one token has a constant risk and no constraint. Queries that see different numbers of tokens are in different
    parts, in any order, and L is the mean over all (i, k). No token is copied to make these numbers equal, as a copy
    would take weight. Tokens that a query does not see do not change its risk. W^mm is certified over ℚ on the rows of
    all parts together. Feasibility is certified for other choices of tokens, too: every choice is separable if the rows
    (x_iα − x_it) z_ikᵀ are linearly independent, which nT(T−1) ≤ d² does not imply.

    **Effective.** Let there be M = nL queries and N constraints with margins h, m = min h. Let Γ be the gaps γ_α − γ_t,
    and let c_max and c_min bound |ℓ'| on the range of scores. At every W

        c_min Γ_min e^{−max(m, 0)}/2 ≤ M(L(W) − L_⋆) ≤ c_max Σ Γ_t e^{−h_t}.

    *Derivation.* By the mean value theorem the excess loss of a query is between c_min δ and c_max δ, δ = Σ s_t Γ_t.
    All s_t ≤ e^{−h_t}. For a query with h = m, δ ≥ Γ_min (1 − s_α) and 1 − s_α ≥ e^{−m}/(1 + e^{−m}) ≥ e^{−max(m,
    0)}/2. With κ = log(2N c_max Γ_max / (c_min Γ_min)) and ρ = R/‖W^mm‖_F > κ, every W with ‖W‖_F ≤ R and L(W) ≤ L(R
    W̄^mm) has m(W) ≥ ρ − κ and cos(W, W^mm) ≥ 1 − κ/ρ. This follows from the upper bound at R W̄^mm, where h ≥ ρ, and
    the lower bound at W; then W/m is feasible and W^mm the projection of 0. This is Theorem 1 of the first paper, which
    does not use that all inputs have the same number of tokens. Its bound from the duals does not use this either, with
    x = (T−1)e^{−(ρ−κ)} of the longest input: ⟨W, W^mm⟩/‖W^mm‖² ≥ D − log1p(x) − b min(x, 1) − log M(L(R W̄^mm) − L_⋆).

    **Sharp.** Along the ray, with c_t = |ℓ'(γ_α)| Γ_t, and with x = Σ_t e^{−h_t} and the widest gap Γ of each query,

        Σ c_t e^{−h_t − b min(x, 1)}/(1 + x) ≤ M(L − L_⋆) ≤ Σ c_t e^{−h_t + Γ min(x, 1)},

    so that log M(L(R W̄^mm) − L_⋆) + ρ → log Σ c_t over the neighbours of all queries. The upper bound requires a loss
    with |ℓ''| ≤ |ℓ'|, which Assumption A does not imply (ℓ(u) = e^{−3u}). *Derivation.* s_t = e^{−h_t}/(1 + x) and
    δ ≤ Γ min(x, 1). The lower bound is that of Theorem 1, and |ℓ''| ≤ |ℓ'| gives ℓ(γ − δ) − ℓ(γ) ≤ |ℓ'(γ)| δ e^δ.
    """
    data = case.sequence
    assert data is not None, "the statement assumes sequence-given"
    rng, reported = case.rng(), under_test[sequence_parts](data)
    parts = parts_claim(data, reported)
    yield parts
    points = probe_points(rng, case.problem, m=UNSEEN_POINTS)
    unseen = unseen_claim(data, under_test, points, rng)
    if unseen is not None:
        yield unseen
    if parts.verdict is Verdict.FALSIFIED:
        raise Ended(parts.name)
    # Build the parts from the data, with the queries in the order of the reported parts.
    ours = tuple(data.part(part.pairs) for part in reported)
    alpha = optimal_tokens_of(ours)
    svm = under_test[sequence_max_margin]([part.problem.exact_keys for part in reported], alpha)
    if isinstance(svm, SequenceInfeasible):
        refusal = "ATT-SVM(opt) was reported as infeasible"
        if not is_farkas_proof(sequence_rows(data, ours, alpha), svm.exact):
            raise Refuted(SVM_IS_OPTIMAL, f"{refusal}, but the multipliers do not prove it", Form.EXACT)
        raise Undecided(SVM_IS_OPTIMAL, refusal)
    solution = solution_claim(data, ours, alpha, svm)
    yield solution
    yield choices_claim(data, under_test, rng)
    if solution.verdict is Verdict.FALSIFIED:
        raise Ended(solution.name)
    rows = SequenceRows(ours, under_test, reported)
    yield from at_points(rows, svm, case.problem, rng)
    kappa = float(value_of(rows.log_kappa))
    if not kappa < 1 / EPS:
        why = f"κ = {kappa:.3g}: at RΘ = κ the rounding error of a logit exceeds 1"
        raise Undecided(MARGIN, why, Form.EFFECTIVE)
    rhos = kappa * np.array(SUBLEVEL_RADII)
    points, of_radius = sublevel_points(rows, svm, rhos, rng)
    yield from in_sublevel_sets(rows, svm, rhos, points, of_radius)


def at_points(
    rows: SequenceRows, svm: SequenceMaxMargin, largest: Problem, rng: np.random.Generator
) -> Iterator[Claim]:
    """Claim that the excess risk under test is the mean over all queries and lies between its bounds, at points W."""

    def floor(points: Float64[np.ndarray, "m d"]) -> tuple[Any, Any]:
        # These floats only guide the search; no claim uses them.
        plain = rows.plain_log_excess(points) + np.log(rows.total)
        least = np.min(points @ value_of(rows.stacked_rows).T, axis=1)
        low = float(value_of(rows.log_slope_bounds)[1]) + float(value_of(rows.log_least_gap))
        return plain, low - np.log(2) - np.maximum(least, 0.0)

    ray = np.array(RAY)[:, None] * svm.p
    points = np.concatenate([climb(rng, probe_points(rng, largest, svm.p, m=POINTS), violation_of(floor)), ray])
    at = exact(points)
    yield sized_equal(IS_THE_MEAN, rows.excess_under_test(at, IS_THE_MEAN), rows.excess(at))
    log_excess = rows.log_excess_under_test(at, FLOOR)
    steep, flat = rows.log_slope_bounds
    margins = rows.margins(at)
    every: Any = np.concatenate([h.reshape(len(points), -1) for h in margins], axis=1)
    least = np.maximum(np.min(every, axis=1), 0.0)
    low = flat + rows.log_least_gap - np.log(exact(2)) - least
    yield at_least(FLOOR, Form.EFFECTIVE, log_excess, low)
    terms = [gap - h for gap, h in zip(rows.log_gaps, margins, strict=True)]
    flattened: Any = np.concatenate([term.reshape(len(points), -1) for term in terms], axis=1)
    yield at_least(CEILING, Form.EFFECTIVE, steep + np.logaddexp.reduce(flattened, axis=1), log_excess)
    yield from on_the_ray(rows, exact(ray))


def on_the_ray(rows: SequenceRows, ray: Numbers) -> Iterator[Claim]:
    """Claim the lower and the upper bound of the excess risk along W^mm, which have the same leading term."""
    log_excess = rows.log_excess_under_test(ray, FROM_BELOW)
    margins = rows.margins(ray)
    count = len(RAY)
    below, above = [], []
    for h, costs, problem in zip(margins, rows.log_costs, rows.problems, strict=True):
        others: Any = np.exp(np.logaddexp.reduce(-h, axis=-1))
        lost = np.log1p(others) + rows.bent * np.minimum(others, 1.0)
        width = exact(problem.scores.max(axis=1)) - problem.scores.min(axis=1)
        below.append((costs - h - lost[..., None]).reshape(count, -1))
        above.append((costs - h + (width * np.minimum(others, 1.0))[..., None]).reshape(count, -1))
    low: Any = np.logaddexp.reduce(np.concatenate(below, axis=1), axis=1)
    high: Any = np.logaddexp.reduce(np.concatenate(above, axis=1), axis=1)
    options = {"points": "point of the ray"}
    yield at_least(FROM_BELOW, Form.SHARP, log_excess, low, **options)
    loss = rows.problems[0].loss
    if type(loss) is type(LOSSES.get(loss.name)):
        # The losses of this package have |ℓ''| ≤ |ℓ'|, which Assumption A does not imply.
        yield at_least(FROM_ABOVE, Form.SHARP, high, log_excess, **options)


def in_sublevel_sets(
    rows: SequenceRows,
    svm: SequenceMaxMargin,
    rhos: Float64[np.ndarray, "r"],
    points: Float64[np.ndarray, "m d"],
    of_radius: Int64[np.ndarray, "m"],
) -> Iterator[Claim]:
    """Claim the bounds of margin and correlation at points of sublevel sets; ``of_radius`` indexes each point's radius.

    A point of the ball whose excess risk is e^o times that of R W̄^mm belongs to the sublevel set of ρ − o.
    """
    p, kappa = exact(points), rows.log_kappa
    p_mm, rho = with_rounding(svm.p), rhos[of_radius]
    log_edge = rows.log_excess_under_test(rhos[:, None] * p_mm, MARGIN)[of_radius]
    over = np.maximum(rows.log_excess_under_test(p, MARGIN) - log_edge, 0.0)
    length, along = norm(p, axis=1) / norm(p_mm), p @ p_mm / (p_mm @ p_mm)
    least, options = rho - over - kappa, {"points": "point of a sublevel set"}
    yield at_least(MARGIN, Form.EFFECTIVE, np.min(p @ rows.stacked_rows.T, axis=1), least, **options)
    yield at_least(CORRELATION, Form.EFFECTIVE, along / length, least / np.maximum(length, rho), **options)
    most = max(problem.T for problem in rows.problems)
    weight_elsewhere = (most - 1) * np.exp(-np.maximum(least, 0.0))
    lost = np.log1p(weight_elsewhere) + rows.bent * np.minimum(weight_elsewhere, 1.0)
    bound = dual_value(rows, svm) - lost - (log_edge + over)
    yield at_least(FROM_DUALS, Form.EFFECTIVE, along, bound, **options)


def sublevel_points(
    rows: SequenceRows, svm: SequenceMaxMargin, rhos: Float64[np.ndarray, "r"], rng: np.random.Generator
) -> tuple[Float64[np.ndarray, "m d"], Int64[np.ndarray, "m"]]:
    """Search sublevel sets for points of small margin or correlation; return the points and indices of their radii."""
    ray = rhos[:, None] * svm.direction
    edge = rows.plain_log_excess(svm.norm * ray)

    def inside(points: Float64[np.ndarray, "r b d"]) -> Bool[np.ndarray, "r b"]:
        short = norm(points, axis=-1) <= rhos[:, None] * (1 + 4 * EPS)
        return np.asarray(short & (rows.plain_log_excess(svm.norm * points) <= edge[:, None]))

    unit = svm.norm * value_of(rows.stacked_rows)
    parts = list(zip(rows.problems, svm.margins, svm.neighbours, strict=True))
    others = [np.arange(problem.T) != problem.optimal[:, None] for problem in rows.problems]
    margins = np.concatenate([part_margins[where] for (_, part_margins, _), where in zip(parts, others, strict=True)])
    near = np.concatenate([neighbours[where] for (_, _, neighbours), where in zip(parts, others, strict=True)])
    costs = np.concatenate([value_of(cost).ravel() for cost in rows.log_costs])
    basis = tangent_basis(svm.direction, unit)
    flat = np.zeros(basis.shape[1])
    centres = np.array([Reduced(unit @ basis, margins, costs, rho).newton(flat, 60)[0] for rho in rhos])
    size = int(np.clip(HUNT_BUDGET // (len(rhos) * sum(q.keys.size for q in rows.problems)), 6, 24))
    batches = hunt(inside, svm.direction, basis, unit, near, rhos, centres, size=size, rounds=1, rng=rng)
    # R W̄^mm itself belongs to its sublevel set.
    batches.append((ray[:, None], np.ones((len(rhos), 1), dtype=np.bool_)))
    points = svm.norm * np.concatenate([batch[good] for batch, good in batches])
    return points, np.concatenate([np.nonzero(good)[0] for _, good in batches])
