"""A conjecture, not a theorem: with independent rows every gradient flow on W ends at locally optimal tokens.

References: *Transformers as Support Vector Machines*, Theorems 4 and 5; the conjecture is our own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64, Int64
from numpy.linalg import norm

from generators.case import Case
from generators.query_cases import Family, query_cases
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.descent import Stop
from reference_attention.training.flow import Flow, gradient_flow
from theorems.bounded import value_of
from theorems.core.att_svm import certify
from theorems.core.claim import Claim, Form, Undecided, Verdict, at_least, undecided_claim
from theorems.core.claim_name import premises, sharper
from theorems.core.dataset_claims import QUERY_CLAIMS, query_claims
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import FAR
from theorems.core.key_rows import key_rows
from theorems.core.statement import statement
from theorems.core.svm_certificate import SVM_IS_OPTIMAL
from theorems.core.tolerances import EXACT, tolerance
from theorems.curves.flow_chords import FLOW_IS_ASKED_FOR, start_and_norms
from theorems.rounding.attention_at import AttentionAt
from theorems.token_selection.local_paths.invariant_cone import cone_for_flow
from theorems.token_selection.local_paths.local_constants import local_constants

INDEPENDENT_ROWS = tolerance(
    "independent-rows-flow",
    "‖W‖·‖W/‖W‖ − W^mm_α/‖W^mm_α‖‖ at the end is at most twice its value at a quarter of the norm, or twice one logit",
    "argued rate of a conjecture: if the deviation is O(1/‖W‖), ‖W‖·deviation stays bounded, or grows like log‖W‖"
    " beside a token whose constraint is tight with dual 0; with another limit, ‖W‖·deviation grows fourfold",
)

ARE_LOCALLY_OPTIMAL = sharper("selected-tokens-are-locally-optimal")
DIRECTION_RATE = sharper("direction-rate")

NORMS = (1e3, 1e5)
"""The norms ‖W‖ to which the flow is followed, in units of the larger of 1/max|key| and ‖W(0)‖/100.

The second norm is used if at the first norm the selected tokens are not locally optimal or the flow is still
turning."""
LAST = 30.0
"""The norm ‖W‖ to which the flow is followed if no token is selected at the earlier norms, in units of ‖W^mm_α‖.

Growth by one unit along W^mm_α increases every margin by at least 1."""
SELECTED = 1e-2
"""The tokens α count as selected if 1 − s_iα_i is below this number at every input i."""
ATTRACTING = 1 / 16
"""A token counts as attracting the flow if its term in the gradient is at least this share of its input's largest."""
GROWTH = 2.0
"""The factor by which ‖W‖ times W's deviation from the limit may grow from a quarter of the final norm to the end.

:data:`INDEPENDENT_ROWS` has the reason; :func:`_deviations` defines the deviation.
"""


def _cases() -> SearchStrategy[Case]:
    options: dict[str, Any] = {"families": (Family.INDEPENDENT,), "distinct": True}
    return st.one_of(*[query_cases(**options)] * 3, query_cases(**options, start=True))


@statement(
    "conjecture-independent-rows",
    "conjecture: independent rows, so every flow ends at locally optimal tokens",
    source="T-SVM, Section 4 (ours)",
    claims=(*QUERY_CLAIMS, FLOW_IS_ASKED_FOR, SVM_IS_OPTIMAL, ARE_LOCALLY_OPTIMAL, DIRECTION_RATE),
    assumptions=("queries-given", "well-behaved-loss", "distinct-scores", "independent-rows"),
    cases=_cases,
    kernel=FAR,
    varies={"inputs-twice": "repeated inputs violate its assumption of independent rows"},
    search="in other coordinates the solver takes other steps, and may leave the case undecided",
)
def conjecture_independent_rows(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the rows (x_iα − x_it) z_iᵀ be linearly independent, and no two scores of an input equal.

    *A conjecture: neither paper states it.* From almost every W(0) the gradient flow selects one token α_i of each
    input, α is locally optimal, and W/‖W‖_F → W^mm_α/‖W^mm_α‖_F.

    From every start it is proven that the flow has no stationary point, that ‖W‖_F → ∞, and that single tokens are
    selected (:mod:`.no_stationary_point`). The limit is proven once the flow is in the cone of Theorem 5 around W^mm_α
    of a locally optimal α. Whether the flow reaches such a cone is open. The conjecture excepts a set of starts of
    measure zero: if a token that scores higher than α is an SVM-neighbour, that token's margin stays tight along a
    direction Σ λ_j G_j (G_j the rows) with λ < 0 at the token. This direction repels nearby flows, but some flows may
    end there.

    The flow starts near the origin, far from it, or beside W^mm_α of tokens that are not locally optimal, from which it
    has to turn away. Selected tokens are read off at ‖W‖ = 1e3 (for keys of order one). If they are not locally optimal
    or the flow is still turning, they are read off at 1e5; if none are selected then, at 30 ‖W^mm_α‖. Whether α is
    locally optimal is decided exactly. Evidence for the limit (direction-rate): ‖W‖ times the deviation from W^mm_α
    does not double from a quarter of the final norm to the end. The claim's detail reports whether the flow has reached
    the cone in which Theorem 5 proves the limit. The claims are undecided unless every margin at the end exceeds the
    absolute value of every margin at the start.
    """
    yield from premises(query_claims(case, under_test))
    problem = case.problem
    start = _start(case, case.rng())
    for factor in NORMS:
        goal = max(factor / problem.key_scale, factor / 10 * float(norm(start)))
        flow, alpha = _follow_flow(problem, start, goal, under_test)
        if flow.stop is not Stop.NORM:
            break
        if _selects(problem, flow, alpha) and _lower(problem, alpha):
            allowed, deviation = _deviations(problem, _limit_of_flow(problem, _solution(problem, alpha)), flow)
            if deviation <= allowed:
                break
    if flow.stop is Stop.NORM and not _selects(problem, flow, alpha):
        goal = max(goal, LAST * _solution(problem, alpha).norm)
        flow, alpha = _follow_flow(problem, start, goal, under_test)
    first_claim = start_and_norms(flow, start, goal)
    yield first_claim
    if first_claim.verdict is Verdict.FALSIFIED:
        return
    reached = f"at ‖W‖ = {flow.norms[-1]:.3g}"
    if flow.stop is not Stop.NORM:
        why = flow.reason or "the gradient is rounding noise"
        stalled = f"the flow stalls {reached}, {flow.stop.value}: {why}"
        # A solver that gives up leaves the conjecture untested; a stationary point would refute the conjecture.
        gave_up = flow.stop is Stop.FAILED
        yield undecided_claim(ARE_LOCALLY_OPTIMAL, stalled, Form.LIMIT, not_found=gave_up)
        return
    if not _selects(problem, flow, alpha):
        raise Undecided(ARE_LOCALLY_OPTIMAL, f"{reached} some input has no selected token", Form.LIMIT)
    svm = yield from certify(problem, alpha, under_test)
    chosen = "the optimal tokens" if np.array_equal(alpha, problem.optimal) else "other tokens"
    wrong = [(int(i), int(t)) for i, t in np.argwhere(svm.neighbours) if not _below(problem, alpha, int(i), int(t))]
    if wrong and not _outgrown(problem, start, flow, alpha):
        why = f"{reached} the logits of the start exceed the margins of {chosen}: the flow is still turning"
        yield undecided_claim(ARE_LOCALLY_OPTIMAL, why, Form.LIMIT, not_found=True)
        return
    if wrong and not _attracts(problem, flow, alpha, wrong):
        why = f"{reached} tokens of higher score have too little weight to attract the flow, which is still turning"
        yield undecided_claim(ARE_LOCALLY_OPTIMAL, why, Form.LIMIT, not_found=True)
        return
    detail = f"{reached} {chosen} are selected"
    detail += f"; their SVM-neighbour, token {wrong[0][1]} of input {wrong[0][0]}, scores no less" if wrong else ""
    yield Claim(
        ARE_LOCALLY_OPTIMAL, Form.LIMIT, -1.0 if wrong else 0.0, 0.0, EXACT, detail, branch=f"{chosen} are selected"
    )
    allowed, deviation = _deviations(problem, _limit_of_flow(problem, svm), flow)
    if deviation > allowed and not _outgrown(problem, start, flow, alpha):
        why = f"{reached} the logits of the start exceed the margins: the flow is still turning"
        yield undecided_claim(DIRECTION_RATE, why, Form.LIMIT, not_found=True)
        return
    rate = at_least(DIRECTION_RATE, Form.LIMIT, allowed, deviation, rounding=0.0, why=INDEPENDENT_ROWS, points="norm")
    yield replace(rate, branch=_proof_branch(problem, svm, flow))


def _follow_flow(
    problem: Problem, start: Float64[np.ndarray, "d"], goal: float, under_test: Implementation
) -> tuple[Flow, Int64[np.ndarray, "n"]]:
    """Return the flow to ‖W‖ = goal, and the tokens of largest weight at its end."""
    flow = under_test[gradient_flow](problem, start, norm=goal, gradient=under_test[scaled_gradient])
    return flow, np.asarray(problem.selection_at(flow.final), dtype=np.int64)


def _solution(problem: Problem, alpha: Int64[np.ndarray, "n"]) -> MaxMargin:
    """Return the max-margin solution W^mm_α of the tokens α, which exists as the rows are independent."""
    svm = max_margin(problem.exact_keys, alpha)
    assert isinstance(svm, MaxMargin), "rows are independent"
    return svm


def _limit_of_flow(problem: Problem, svm: MaxMargin) -> MaxMargin:
    """Return the conjectured limit of the flow: W^mm_α for the keys that the flow uses, which are usually rounded.

    For nearly equal tokens, the solution for exact keys x zᵀ and the solution for rounded keys differ by more than the
    flow deviates from its limit. If no W separates the rounded keys, ``svm``, which is for exact keys, is returned.
    """
    if problem.factors is None:
        return svm
    rounded_keys = max_margin(problem.keys, svm.alpha)
    return rounded_keys if isinstance(rounded_keys, MaxMargin) else svm


def _outgrown(problem: Problem, start: Float64[np.ndarray, "d"], flow: Flow, alpha: Int64[np.ndarray, "n"]) -> bool:
    """Return whether every margin at the end is larger than the absolute value of every margin at the start.

    While this is false, the logits of the start still matter: a token whose logit is very small at the start has no
    visible weight.
    """
    others = np.arange(problem.T) != alpha[:, None]
    rows = value_of(key_rows(problem, alpha))[others]
    return bool((rows @ flow.final).min() > np.abs(rows @ start).max())


def _attracts(problem: Problem, flow: Flow, alpha: Int64[np.ndarray, "n"], tokens: Sequence[tuple[int, int]]) -> bool:
    """Return whether a token of ``tokens`` has a term of at least :data:`ATTRACTING` times its input's largest term.

    The gradient at input i is a sum of terms (γ_iα − γ_it) s_it (k_iα − k_it), up to a remainder that vanishes with
    1 − s_iα. A token whose score nearly equals that of α, or whose weight is small, has a term much smaller than the
    largest one. Its term becomes the largest only once the margin of each other token exceeds its own by the logarithm
    of the ratio of the other term to its term; that may take very long.
    """
    logits = problem.keys @ flow.final
    gaps = np.abs(problem.scores - problem.scores[np.arange(problem.n), alpha][:, None])
    with np.errstate(divide="ignore"):
        log_shares = logits + np.log(gaps)
    return any(log_shares[i, t] >= log_shares[i].max() + math.log(ATTRACTING) for i, t in tokens)


def _deviations(problem: Problem, svm: MaxMargin, flow: Flow) -> tuple[float, float]:
    """Return the bound on ‖W‖·deviation at the end of the flow, and the value of ‖W‖·deviation there.

    The deviation is ‖W/‖W‖ − W^mm_α/‖W^mm_α‖‖. The bound is :data:`GROWTH` times the larger of ‖W‖·deviation at a
    quarter of the final norm and the ‖W‖ that changes a logit by 1.
    """
    early = int(np.searchsorted(flow.norms, flow.norms[-1] / 4 * (1 + 1e-9)) - 1)
    points, lengths = flow.points[[early, -1]], flow.norms[[early, -1]]
    offsets = norm(points - lengths[:, None] * svm.direction, axis=1)
    logit = 1 / float(np.max(norm(problem.keys - problem.keys[:, :1], axis=-1)))
    return GROWTH * max(float(offsets[0]), logit), float(offsets[1])


def _start(case: Case, rng: np.random.Generator) -> Float64[np.ndarray, "d"]:
    """Return W(0): the start of the case, or a point near 0, far from 0, or near W^mm_α of not locally optimal α."""
    problem = case.problem
    near = rng.normal(size=problem.d) / problem.key_scale
    kind = int(rng.integers(3))
    if case.start is not None or kind < 2:
        return np.asarray([near, 30 * near][kind] if case.start is None else case.start)
    for _ in range(4):
        alpha = rng.integers(problem.T, size=problem.n)
        svm = max_margin(problem.exact_keys, alpha)
        if isinstance(svm, MaxMargin) and not _lower(problem, alpha):
            return np.asarray(10 * svm.p + 1e-3 * near)
    return near


def _selects(problem: Problem, flow: Flow, alpha: Int64[np.ndarray, "n"]) -> bool:
    missed = value_of(AttentionAt(problem, flow.points[-1:]).log_complement(alpha))
    return bool((missed < np.log(SELECTED)).all())


def _lower(problem: Problem, alpha: Int64[np.ndarray, "n"]) -> bool:
    """Return whether α is locally optimal, decided exactly."""
    pairs = np.argwhere(_solution(problem, alpha).neighbours)
    return all(_below(problem, alpha, int(i), int(t)) for i, t in pairs)


def _below(problem: Problem, alpha: Int64[np.ndarray, "n"], i: int, t: int) -> bool:
    return bool(problem.scores[i, t] < problem.scores[i, alpha[i]])


def _proof_branch(problem: Problem, svm: MaxMargin, flow: Flow) -> str:
    """Return words that say whether the end of the flow is in the cone in which Theorem 5 proves the limit."""
    constants = local_constants(problem, svm)
    inside = constants is not None and any(
        cone_for_flow(constants, p, float(flow.norms[-1])) is not None for p in flow.points[-2:-10:-2]
    )
    return (
        "in the cone where the limit is proven"
        if inside
        else "the flow ends outside the cone where the limit is proven"
    )
