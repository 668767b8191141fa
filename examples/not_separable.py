"""Conjectures on the tokens that gradient flow selects if the optimal tokens cannot all be selected at once.

The paper's theorems on optimal tokens assume that one prompt can select the optimal tokens of all inputs, that is, that
ATT-SVM of the optimal tokens, ATT-SVM(opt), is feasible. Two conjectures for data on which no prompt can:

    theorems verify examples/not_separable.py:largest_subset
    theorems verify examples/not_separable.py:locally_optimal_limit
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from hypothesis import strategies as st

from reference_attention.risk import scaled_gradient
from theorems.api import (
    Assumption,
    Case,
    Claim,
    Finding,
    Flow,
    Form,
    Implementation,
    MaxMargin,
    Problem,
    Stop,
    at_least,
    gradient_flow,
    locally_optimal,
    loss_named,
    max_margin,
    reason,
    statement,
)

FAR = 1e6
"""A diverging flow is followed up to ‖p‖ = FAR/s; s is the largest |entry| of the keys, rounded to a power of two."""

BESIDE = reason(
    "beside-the-ray",
    "√‖p‖ at ‖p‖ = 10⁶, in units of 1/max|k|",
    "argued rate: a flow keeps a distance of O(log‖p‖) from the ray of its limit, far less than √‖p‖ at ‖p‖ = 10⁶;"
    " its distance from another ray is 10⁶ times the sine of the angle between the rays",
)


def inseparable(case: Case) -> Finding:
    """Check exactly that ATT-SVM of the optimal tokens α is infeasible.

    ATT-SVM is infeasible if Σ_it λ_it (k_iα − k_it) = 0 for some multipliers λ ≥ 0 that are not all 0.
    """
    solution = max_margin(case.problem.keys, case.problem.optimal)
    if isinstance(solution, MaxMargin):
        return Finding(False, f"p_mm exists, ‖p_mm‖ = {solution.norm:.6g}")
    return Finding(True, f"{len(solution.exact)} differences of keys have a positive combination that is 0")


NOT_SEPARABLE = Assumption("not-separable", "ATT-SVM of the optimal tokens is infeasible", "here", inseparable)


@st.composite
def small_cases(draw: st.DrawFn) -> Case:
    """Draw keys in multiples of 1/16 and scores, for few inputs and tokens.

    If ATT-SVM of the optimal tokens is feasible, negate the scores of the last input, so that it may become infeasible.
    """
    n, T, d = draw(st.integers(2, 4)), draw(st.integers(2, 3)), draw(st.integers(1, 2))
    keys = draw(st.lists(st.integers(-48, 48), min_size=n * T * d, max_size=n * T * d))
    gaps = draw(st.lists(st.sampled_from((1.0, 0.5, 2.0, 8.0)), min_size=n, max_size=n))
    scores = np.array([draw(st.permutations(range(T))) for _ in range(n)]) * np.array(gaps)[:, None]
    loss = loss_named(draw(st.sampled_from(("logistic", "exponential", "correlation"))))
    case = Case(Problem(np.array(keys).reshape(n, T, d) / 16, scores, loss))
    if inseparable(case).holds:
        return case
    return case.replace(problem=Problem(case.problem.keys, np.vstack([scores[:-1], -scores[-1:]]), loss))


def end_of_flow(case: Case, under_test: Implementation) -> Flow:
    """Follow gradient flow from p(0) = 0 up to the norm that ``FAR`` sets, or to a finite stationary point."""
    start, far = np.zeros(case.problem.d), FAR / case.problem.key_scale
    return gradient_flow(case.problem, start, norm=far, gradient=under_test[scaled_gradient])


@statement(
    "largest-subset",
    "a flow that diverges selects the optimal tokens of a largest separable set of inputs",
    source="a guess",
    assumptions=("well-behaved-loss", "strict-optimum", NOT_SEPARABLE),
    cases=small_cases,
)
def largest_subset(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """If ATT-SVM(opt) is infeasible, gradient flow from p(0) = 0 stops or selects a largest separable set.

    The flow stops at a finite prompt, or its norm diverges and it selects the optimal tokens of as many inputs as
    possible: of a largest set of inputs whose optimal tokens have a feasible ATT-SVM.
    """
    flow, keys, best = end_of_flow(case, under_test), case.problem.keys, case.problem.optimal
    sets = [list(a) for size in range(1, case.problem.n) for a in combinations(range(case.problem.n), size)]
    most = max((len(a) for a in sets if isinstance(under_test[max_margin](keys[a], best[a]), MaxMargin)), default=0)
    selected = int((np.argmax(keys @ flow.final, axis=1) == best).sum())
    missing = 0 if flow.stop is Stop.STATIONARY else most - selected
    detail = f"{flow.stop.value} at ‖p‖ = {flow.norms[-1]:.4g}; optimal tokens: {selected} selected, {most} separable"
    yield Claim("as-many-as-possible", Form.EXACT, -float(missing), 0.0, "exact", detail, flow.reason)


@statement(
    "locally-optimal-limit",
    "a flow that diverges goes to the max-margin direction of locally optimal tokens",
    source="open in the paper (Theorem 4 is about regularization paths)",
    assumptions=("well-behaved-loss", "distinct-scores", "general-position", NOT_SEPARABLE),
    cases=small_cases,
)
def locally_optimal_limit(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """If ATT-SVM(opt) is infeasible, gradient flow from p(0) = 0 stops or has a locally optimal limit.

    The flow stops at a finite prompt, or p/‖p‖ → p̄_mm(α), the max-margin direction of locally optimal tokens α (the
    paper's Definition 2).
    """
    flow = end_of_flow(case, under_test)
    alpha, norm = np.argmax(case.problem.keys @ flow.final, axis=1), flow.norms[-1]
    svm = under_test[max_margin](case.problem.keys, alpha)
    detail = f"{flow.stop.value} at ‖p‖ = {norm:.4g}, α = {alpha.tolist()}"
    if flow.stop is not Stop.NORM:
        yield Claim("locally-optimal", Form.EXACT, 0.0, 0.0, "exact", detail, flow.reason)
        return
    if isinstance(svm, MaxMargin):
        near = (svm.margins > 1) & ((svm.margins - 1) * norm < 40 * svm.norm)
        if near.any():
            why = f"a token of margin 1 + {svm.margins[near].min() - 1:.3g} still counts at ‖p‖ = {norm:.4g}"
            yield Claim("locally-optimal", Form.EXACT, 0.0, 0.0, "exact", detail, undecided=why)
            return
        p = flow.final * case.problem.key_scale
        aside = float(np.linalg.norm(p - (p @ svm.direction) * svm.direction))
        yield at_least("direction", Form.LIMIT, np.sqrt(FAR), aside, rounding=0.0, why=BESIDE)
    local = isinstance(svm, MaxMargin) and locally_optimal(svm, case.problem.scores)
    yield Claim("locally-optimal", Form.EXACT, float(local) - 1, 0.0, "exact", detail)
