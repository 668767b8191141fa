"""Gradient flow on (K, Q) from a start of low rank: it need not converge to the W of least nuclear norm.

References: derived here; *Transformers as Support Vector Machines*, (KQ-ERM).
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64

from generators.case import Case
from generators.numbers import integers
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from reference_attention.training.descent import Stop
from reference_attention.training.factored_flow import FactoredFlow, factored_flow
from theorems.core.claim import Claim, Form, Undecided
from theorems.core.implementation import REFERENCE, Implementation
from theorems.without.flow_claims import EARLIER, LIMIT_FOLLOWED, NORM
from theorems.without.query_drawing import plain_query_cases
from theorems.without.weakening import weaken

LEAST_NORM = "flow-finds-least-nuclear-norm"
SIZE = 4.0
"""The unit of the entries of K(0) and Q(0), so large that the start has the required margin."""
SHORT = 300.0
"""The norm of (K, Q) up to which a search computes the flow."""
CLEAR = 0.01
"""The excess ‖W‖_⋆/(m(W) C_⋆) − 1 that the end of a short flow must exceed if a search is to examine the case."""


@st.composite
def _rank_one(draw: DrawFn) -> Case:
    """Draw two inputs, and the starts K(0) = k aᵀ and Q(0) = q aᵀ with a = (1, 0)."""
    case = draw(plain_query_cases(n=(2, 2), tokens=(2, 3), d=(2, 2), e=(2, 2)))
    zero = np.zeros(2)
    K, Q = (np.stack([SIZE * draw(integers((2,), -2, 2)), zero], axis=1) for _ in "KQ")
    return case.replace(arrays=MappingProxyType({"K0": K, "Q0": Q}))


def excesses(flow: FactoredFlow, case: Case, svm: NuclearMaxMargin) -> Float64[np.ndarray, "r"]:
    """Return the excess ‖W‖_⋆/(m(W) C_⋆) − 1 at the points of the flow, ∞ where m(W) ≤ 0."""
    problem, W = case.problem, flow.W
    others = np.arange(problem.T) != problem.optimal[:, None]
    rows = (np.take_along_axis(problem.keys, problem.optimal[:, None, None], axis=1) - problem.keys)[others]
    margins = np.min(W.reshape(len(W), -1) @ rows.T, axis=1)
    sizes = np.linalg.svd(W, compute_uv=False).sum(axis=1) / svm.bounds[1]
    return np.where(margins > 0, sizes / np.where(margins > 0, margins, 1.0) - 1, np.inf)


def _flow(case: Case, under_test: Implementation, size: float) -> tuple[FactoredFlow, NuclearMaxMargin] | None:
    """Return the flow from the case's start and the solution of ATT-SVM⋆; None if either could not be computed."""
    K, Q, data = case.arrays["K0"], case.arrays["Q0"], case.queried
    norm = max(size, float(np.hypot(np.linalg.norm(K), np.linalg.norm(Q))) * 10)
    if data is None:
        return None
    svm = under_test[nuclear_max_margin](data.keys, case.problem.optimal)
    flow = under_test[factored_flow](data, K, Q, norm=norm)
    return (flow, svm) if isinstance(svm, NuclearMaxMargin) and flow.stop is Stop.NORM else None


def _excess(case: Case) -> float:
    """Return the excess of :func:`excesses` at the end of a short flow, minus :data:`CLEAR`.

    Return −1 if the flow does not select the optimal tokens.
    """
    run = _flow(case, REFERENCE, SHORT)
    if run is None:
        return -1.0
    remaining = float(excesses(run[0], case, run[1])[-1])
    return remaining - CLEAR if np.isfinite(remaining) else -1.0


@weaken(
    "tsvm-factored-flow",
    without="definite-imbalance",
    refutes="from every (K(0), Q(0)) whose flow selects the optimal tokens, W(t)/‖W(t)‖_⋆ → 𝒲_⋆/C_⋆",
    cases=_rank_one,
    violation=_excess,
)
def rank_one_trap(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the factors start at k aᵀ and q aᵀ: they keep rank one, as their gradients are ∇L q aᵀ and ∇Lᵀk aᵀ.

    The flow converges to the best W of rank one. If the solution of the nuclear-norm SVM has rank two, this W has a
    larger nuclear norm at margin 1 than C_⋆.
    """
    run = _flow(case, under_test, float(np.sqrt(2 * NORM)))
    if run is None:
        raise Undecided(LEAST_NORM, "the flow could not be computed, or ATT-SVM⋆ has no solution", Form.LIMIT)
    flow, svm = run
    excess, rho = excesses(flow, case, svm), flow.norms[-1] ** 2 / (2 * svm.norm)
    before = excess[int(np.argmin(np.abs(np.log(flow.norms / flow.norms[-1]) + np.log(NORM / EARLIER) / 2)))]
    detail = f"‖W‖_⋆/(m(W) C_⋆) = {1 + excess[-1]:.12g} at ‖W‖_⋆ = {flow.norms[-1] ** 2 / 2:.6g}"
    if not np.isfinite(excess[-1]):
        raise Undecided(LEAST_NORM, "the flow does not select the optimal tokens", Form.LIMIT)
    if excess[-1] < before / 2:
        undecided = "" if excess[-1] < rho**-0.5 else detail
        yield Claim(LEAST_NORM, Form.LIMIT, 0.0, 0.0, LIMIT_FOLLOWED, detail, undecided=undecided)
        return
    yield Claim(LEAST_NORM, Form.LIMIT, -float(excess[-1]), float(rho**-0.5), LIMIT_FOLLOWED, detail)
