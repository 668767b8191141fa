"""Lemma 6 without the bound on the step size, or with a loss whose slope jumps.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.1, Lemma 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from numpy.linalg import norm

from generators.case import Case
from reference_attention.problem import Problem
from theorems.bounded import exact
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.core.tolerances import ROUNDING
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.risk_change import risk_change
from theorems.without.slopes import gradient, lasting
from theorems.without.small_cases import plain_cases, starts
from theorems.without.weakening import weaken

APART = 2.0**-40
"""Distance from the start, where the loss may have a kink, to a point on either side."""
LARGEST_M0 = 1e6
"""Value of M0, the Lipschitz constant of the loss's derivative ℓ', with which the lemma is tested; a loss whose
constants are of order one has a smaller M0, unless ℓ' jumps."""


@st.composite
def _with_steps(draw: DrawFn) -> Case:
    case = draw(plain_cases(n=(1, 1), losses=("correlation",)))
    eta = float(draw(st.sampled_from((1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32))))
    start = draw(starts(case.problem))
    return case.replace(start=start, arrays=MappingProxyType({"eta": np.array(eta)}))


@weaken(
    "lemma-6",
    without="step-size",
    refutes="L(p − η∇L(p)) ≤ L(p) − (η/2)‖∇L(p)‖²",
    cases=_with_steps,
)
def long_steps(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Take a step longer than the risk's curvature allows: it runs past the lowest point on its segment.

    This needs a step size η > 4/L_p, where L_p is the paper's smoothness constant: the risk's Hessian is at most L_p/4,
    so the inequality holds for every η ≤ 4/L_p. The paper's condition η ≤ 1/L_p cannot be relaxed much further: for the
    logistic loss, keys ±1 and scores ±1000 the inequality fails at η = 5/L_p.
    """
    if case.start is None:
        return
    eta, problem = float(case.arrays["eta"]), case.problem
    at = AttentionAt(problem, case.start[None])
    if np.all(at.gradient == 0):
        return
    # All quantities are divided by e^{log_scale}, the scale of the gradient, as the change of the risk is.
    step = eta * math.exp(float(at.log_scale[0]))
    change = risk_change(at, -step * at.gradient.value)
    least_descent = step / 2 * np.vecdot(at.gradient, at.gradient)
    detail = (
        f"η = {math.exp(math.log(eta) + problem.log_smoothness):.6g}/L_p; the risk changes by"
        f" {change.value[0] / least_descent.value[0] / 2:.6g} η‖∇L‖²"
    )
    yield lasting("descent", Form.EFFECTIVE, (-least_descent - change) / least_descent.value, ROUNDING, detail)


@st.composite
def _kinked_cases(draw: DrawFn) -> Case:
    case = draw(plain_cases(n=(1, 1), losses=("kinked",)))
    return case.replace(start=draw(starts(case.problem)))


@weaken(
    "lemma-6",
    without="well-behaved-loss",
    refutes="∇L is L_p-Lipschitz, with the Lipschitz constant M0 of ℓ' in L_p",
    cases=_kinked_cases,
)
def jumping_slope(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let ℓ' jump: then ∇L jumps, too, and no Lipschitz constant M0 of ℓ' makes L_p large enough.

    L_p is the paper's Lipschitz constant of ∇L. Two points on either side of the jump, about 2⁻⁴⁰ apart, have gradients
    that differ by at least a quarter of their size. (The other half of Assumption A, that ℓ decreases, is not needed:
    the lemma's proof uses only M0 and the bound M1 of |ℓ'|.)
    """
    if case.start is None:
        return
    problem = case.problem
    _, rising = gradient(Problem(problem.keys, problem.scores), case.start[None])
    size = float(norm(rising.value))
    if size == 0:
        return
    h = APART * rising.value / size
    ends = case.start + np.array([[1.0], [-1.0]]) * h
    scales, slopes = gradient(problem, ends)
    absolute = np.exp(exact(scales))[:, None] * slopes
    jump: Any = norm(absolute[:1] - absolute[1:], axis=-1)
    distance: Any = norm(exact(ends[:1]) - ends[1:], axis=-1)
    constant = _smoothness_for(problem, LARGEST_M0)
    detail = (
        f"‖∇L(p) − ∇L(p')‖ = {jump.value[0]:.6g} at ‖p − p'‖ = {distance.value[0]:.6g};"
        f" L_p‖p − p'‖ = {constant * distance.value[0]:.6g} for M0 = {LARGEST_M0:g}"
    )
    yield lasting("lipschitz", Form.EFFECTIVE, constant * distance - jump, ROUNDING, detail)


def _smoothness_for(problem: Problem, m0: float) -> float:
    """Return the paper's smoothness constant L_p for keys and scores, where ``m0`` is the Lipschitz constant of ℓ'."""
    keys = np.linalg.norm(problem.keys, ord=2, axis=(1, 2))
    scores = np.linalg.norm(problem.scores, axis=1)
    m1 = math.exp(problem.loss.log_bound(*problem.score_range))
    return float(np.mean(m0 * scores**2 * keys**2 + 3 * m1 * scores * keys**2))
