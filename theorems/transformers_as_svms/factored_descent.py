"""Gradient descent on the factors (K, Q) of W: the safe step, the change of KᵀK − QᵀQ, and gradients that are not zero.

References: derived here; *Transformers as Support Vector Machines*, (KQ-ERM) and the constants L_K, L_Q beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64
from numpy.linalg import norm

from generators.case import Case
from generators.query_assumptions import label_separating_queries
from generators.query_cases import query_cases
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.label_svm import LabelSvm, label_svm
from reference_attention.training.factorization import log_curvatures
from theorems.bounded import exact, value_of
from theorems.core.att_svm import certify
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import premise, premises, sharper
from theorems.core.dataset_claims import QUERY_CLAIMS, query_claims
from theorems.core.equality import equal
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.parts import Condition
from theorems.core.points import log_uniform
from theorems.core.statement import NO_WEIGHTS, statement
from theorems.core.svm_certificate import SVM_IS_OPTIMAL
from theorems.curves.descent import DESCENT_PREMISES, NORMALIZED_PREMISES
from theorems.rounding.approximations import approximate
from theorems.rounding.attention_at import Numbers
from theorems.rounding.risk_change import risk_change
from theorems.rounding.singular_values import nuclear_norm, singular_values
from theorems.token_selection.global_paths.descent_from_a_margin import MOST_DRIFT, descent_from_a_margin
from theorems.token_selection.global_paths.margin_constants import MarginConstants
from theorems.transformers_as_svms.curves.factored_certificate import certificate_sides, signed_variances
from theorems.transformers_as_svms.curves.factored_points import FactoredPoints
from theorems.transformers_as_svms.curves.factored_run import FACTORED_STEPS, FactoredRun
from theorems.transformers_as_svms.curves.factored_starts import (
    any_factors,
    factors_with_margin,
    margin_needed,
    uneven_factors,
)

SEPARATING = Condition(
    "the queries separate the labels", lambda case: label_separating_queries(case).holds is not False
)
SMOOTH, DESCENDS = sharper("smoothness"), sharper("descends")
SAFE = premise("step-is-as-long-as-is-safe")
CHANGE, DRIFT = sharper("imbalance-changes-by"), sharper("imbalance-drifts-at-most")
KEPT = sharper("margin-is-kept", when="where rounding errors of steps change the excess risk by less than a third")
CERTIFICATE = sharper("certificate", when="where optimal tokens lead and all others score below the output")
HEAD_IN_RANGE = sharper("head-in-key-range")
QUERY_IN_RANGE = sharper("separating-query-in-range", when=SEPARATING)

POINTS = 24
"""The number of pairs of points at which smoothness is checked, and of points at which ∇L(K, Q) ≠ 0 is checked."""
APART = (1e-6, 10.0)
"""The range of the distance between the points of a pair, in units of the norm of the first point."""
STEPS = (0.02, 0.1, 0.5)
"""The lengths of normalized steps, in units of the norm of the start."""


def _cases() -> SearchStrategy[Case]:
    return query_cases()


@statement(
    "tsvm-factored-descent",
    "Gradient descent on the factors (K, Q)",
    source="own; T-SVM proves nothing of it",
    claims=(
        *(*QUERY_CLAIMS, SVM_IS_OPTIMAL, SMOOTH, HEAD_IN_RANGE, QUERY_IN_RANGE),
        *(*DESCENT_PREMISES, SAFE, CHANGE, DRIFT, DESCENDS, KEPT),
        *(*NORMALIZED_PREMISES, CERTIFICATE),
    ),
    assumptions=("queries-given", "well-behaved-loss", "strict-optimum", "separable"),
    cases=_cases,
    kernel=SATURATED,
    needs=NO_WEIGHTS | dict(descent_from_a_margin.needs),
)
def tsvm_factored_descent(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Train W = K Qᵀ by K⁺ = K − η∇L(W) Q, Q⁺ = Q − η∇L(W)ᵀ K, with factors of any width m.

    Let Assumption A hold, opt be unique and ATT-SVM(opt) feasible. Let D_i = diam(x_i) ‖z_i‖, R_i the range of the
    scores of input i, M0 the Lipschitz constant of ℓ', and M1 the largest |ℓ'|.

    **Exact.** The terms of first order in η cancel, so that in every step, for every η, Δ = KᵀK − QᵀQ changes by

        Δ⁺ − Δ = η² (Qᵀ∇Lᵀ∇L Q − Kᵀ∇L∇LᵀK) = η² (∇_Kᵀ∇_K − ∇_Qᵀ∇_Q).

    Hence ‖Δ(t) − Δ(0)‖_⋆ ≤ Σ_s η_s²‖∇L(K, Q)‖², the sum of the squared lengths of steps. If both gradients are divided
    by their joint norm, Δ grows at most like t and ‖(K, Q)‖² like t²: in the limit ½‖(K, Q)‖² is still the nuclear norm
    of W. If each gradient is divided by its own norm, the terms of first order do not cancel.

    **Effective, smoothness.** Let M be the larger of ‖K‖_op and ‖Q‖_op. Along a segment of length h from (K, Q) the
    gradient ∇L(K, Q) is Lipschitz with the constant

        2 L̂ (M + h)² + c,    L̂ = (1/n) Σ (M0 R_i² D_i² + 2 M1 R_i D_i²)/16,    c = (1/n) Σ M1 R_i D_i/4.

    *Derivation.* The second derivative along (U, V) is ∇²L[dW, dW] + 2⟨∇L, U Vᵀ⟩ with dW = U Qᵀ + K Vᵀ, ‖dW‖² ≤
    2M²(‖U‖² + ‖V‖²), and 2⟨∇L, UVᵀ⟩ ≤ ‖∇L‖(‖U‖² + ‖V‖²). The slope of the output f_i is the covariance of γ and
    a = xᵀdW z, at most R_i D_i/4. The curvature of f_i is cov(γ, y) ≤ (R_i/2) E|y − E y| with y = (a − E a)². For
    D_i = 1, y ≤ b = max(E a, 1 − E a)², so E|y − E y| ≤ 2 E y (1 − E y/b), which is at most ¼ as E y ≤ E a (1 − E a).
    So |∇²f_i| ≤ R_i D_i²/8. The paper has, as far as we remember, the constants L_K = ‖Q‖ L_W and L_Q = ‖K‖ L_W. They
    are false: the curvature in K is the curvature in W times ‖Q‖², not ‖Q‖.

    **Effective, descent.** With r = ‖∇L(K, Q)‖/(2 L̂ M² + c) ≥ η‖∇L(K, Q)‖, the step η = 1/(2 L̂ (M + r)² + c) is safe:

        L(K⁺, Q⁺) ≤ L(K, Q) − (η/2) ‖∇L(K, Q)‖².

    A run has to take a step at least as long: a shorter step would satisfy the inequality, but a run that stands still
    tests nothing. As the risk does not increase, a run from m(W(0)) ≥ κ + max(1, log(2(T − 1))) keeps every m(W(t)) ≥
    m(W(0)) − κ.

    **No stationary point.** If the head is v = K u, then ∇_Q u = ∇Lᵀv and the first bound holds. If q = Q u separates
    the labels, c_q = min Y_i qᵀz_i > 0, the second bound holds:

        ‖∇_Q‖_F ‖u‖ ≥ ‖(1/n) Σ|ℓ'_i| Var_i Y_i z_i‖,    ‖∇_K‖_F ‖u‖ ≥ (c_q/(n‖v‖)) Σ|ℓ'_i| Var_i > 0.

    The first bound is positive, too, where queries separate the labels, or are independent.

    **A certificate, at every point.** Once opt is selected, −∇L = Σ ω_j G_j with ω ≥ 0; let M̂ = −∇L/Σω. As m(W) ≤
    ⟨M̂, W⟩ ≤ ‖M̂‖_op ‖W‖_⋆, 1 ≤ ‖W‖_⋆‖M̂‖_op/m(W) at every iterate, also of normalized descent.
    """
    yield from query_claims(case, under_test)
    data, problem, rng = case.queried, case.problem, case.rng()
    assert data is not None, "the statement assumes queries-given"
    svm = yield from certify(problem, problem.optimal, under_test)
    constants = MarginConstants(problem, svm)
    yield _smoothness(data, under_test, rng)
    yield from _not_stationary(data, under_test, rng)
    required = margin_needed(constants, KEPT)
    far = factors_with_margin(case, constants, required, rng)
    has_factors = "K0" in case.arrays and "Q0" in case.arrays
    near = (case.arrays["K0"], case.arrays["Q0"]) if has_factors else uneven_factors(data, rng)
    runs = [FactoredRun.of(data, under_test, start, CHANGE) for start in (far, near)]
    length = float(rng.choice(STEPS)) * float(np.hypot(norm(far[0]), norm(far[1])))
    normalized = FactoredRun.of(data, under_test, far, CERTIFICATE, length=length)
    for run in (*runs, normalized):
        yield from premises(run)
        yield equal(CHANGE, *run.change, points="entry of a step")
        yield _drift(run)
    for run in runs:
        yield _is_long(run)
        descent = run.steps_squared / 2
        moved = risk_change(run.before.at, run.weights_moved.reshape(len(descent), -1))
        yield at_least(DESCENDS, Form.EFFECTIVE, -moved.widen(run.risk_rounding), descent, points="step")
    yield from _margin_is_kept(constants, runs[0])
    yield from _certificate(constants, normalized)


def _smoothness(data: QueryDataset, under_test: Implementation, rng: np.random.Generator) -> Claim:
    """Claim that the Lipschitz constant bounds difference quotients of ∇L(K, Q), for close and for distant points."""
    pairs = []
    for K, Q in any_factors(data, rng, POINTS):
        U, V = rng.normal(size=K.shape), rng.normal(size=Q.shape)
        share = log_uniform(rng, *APART, 1)[0] * np.hypot(norm(K), norm(Q)) / np.hypot(norm(U), norm(V))
        pair = FactoredPoints.of(data.problem, np.stack([K, K + share * U]), np.stack([Q, Q + share * V]))
        G: Any = pair.gradient_of(under_test, SMOOTH) * np.exp(exact(pair.at.log_scale))[:, None]
        h = np.sqrt(np.sum((pair.K[1] - pair.K[0]) ** 2) + np.sum((pair.Q[1] - pair.Q[0]) ** 2))
        size = np.max(np.concatenate([singular_values(pair.K[0])[:1], singular_values(pair.Q[0])[:1]]))
        gradients = pair.joint(G)
        pairs.append((lipschitz(data.problem, size + h) * h, norm(gradients[1] - gradients[0])))
    right, left = (np.stack(side) for side in zip(*pairs, strict=True))
    return at_least(SMOOTH, Form.EFFECTIVE, right, left, points="pair")


def _is_long(run: FactoredRun) -> Claim:
    """Claim that each step is at least as long as the statement's safe step: η (2 L̂ (M + r)² + c) ≥ 1."""
    points, problem = run.before, run.data.problem
    M = np.maximum(singular_values(points.K)[:, 0], singular_values(points.Q)[:, 0])
    at_point = lipschitz(problem, M)
    moving = np.asarray(value_of(at_point) > 0)
    # If ∇L = 0 everywhere, any step size is allowed.
    at_point, M = at_point[moving], M[moving]
    r = norm(run.joint, axis=-1)[moving] * np.exp(exact(points.at.log_scale[moving])) / at_point
    log_steps, constants = run.run.log_steps[:-1][moving], np.abs(log_curvatures(problem))
    # A correct run adds logarithms of these sizes, each with a rounding error.
    logs = np.abs(log_steps) + np.abs(points.at.log_scale[moving]) + 4 * np.abs(np.log(np.maximum(value_of(M), 1e-300)))
    logs += 1 + constants[np.isfinite(constants)].sum()
    log_length = approximate(log_steps, 16 * EPS * logs) + np.log(lipschitz(problem, M + r))
    return at_least(SAFE, Form.EXACT, log_length, 0.0, scale=1.0, points="step")


def lipschitz(problem: Problem, size: Numbers) -> Numbers:
    """Return the statement's Lipschitz constant 2 L̂ M² + c, where ``size`` is M, the larger ‖·‖_op of K and Q."""
    scores, loss = problem.scores, problem.loss
    ranges: Any = np.max(exact(scores), axis=1) - np.min(exact(scores), axis=1)
    apart = exact(problem.keys)[:, :, None] - problem.keys[:, None]
    diameters: Any = np.max(norm(apart, axis=-1), axis=(1, 2))
    ends = list(zip(scores.min(axis=1).tolist(), scores.max(axis=1).tolist(), strict=True))
    # The factor 1 + 1e-12 covers a few roundings of a logarithm.
    slopes, curves = (
        np.exp(exact(np.array([bound(*end) for end in ends]))) * (1 + 1e-12)
        for bound in (loss.log_bound, loss.log_lipschitz)
    )
    smooth = np.mean(curves * ranges**2 * diameters**2 + 2 * slopes * ranges * diameters**2) / 16
    steep = np.mean(slopes * ranges * diameters) / 4
    return 2 * smooth * size * size + steep


def _not_stationary(data: QueryDataset, under_test: Implementation, rng: np.random.Generator) -> Iterator[Claim]:
    """Claim the lower bounds of ‖∇_Q‖ if v ∈ range K, and of ‖∇_K‖ if the range of Q has a separating query."""
    problem, sizes = data.problem, log_uniform(rng, 1e-2, 1e2, 2 * POINTS)
    signed = data.Y[:, None] * data.queries
    separator = label_svm(signed)
    q = separator.v if isinstance(separator, LabelSvm) else np.zeros(data.shape[1])
    heads, queries = [], []
    for k, (K, Q) in enumerate(any_factors(data, rng, POINTS)):
        K[:, 0], Q[:, 0] = sizes[2 * k] * data.v, sizes[2 * k + 1] * q
        points = FactoredPoints.of(problem, K[None], Q[None])
        gradient = points.gradient_of(under_test, HEAD_IN_RANGE)
        joint = points.joint(gradient)[0]
        variances: Any = signed_variances(points.at)[0]
        lengths = norm(joint[K.size :]), norm(joint[: K.size])
        # v = K u if u is the first axis divided by the scale of the first column of K; likewise q = Q u if u is the
        # first axis divided by the scale of the first column of Q.
        scale = _scale(K[:, 0], data.v), _scale(Q[:, 0], q)
        heads.append((lengths[0] / scale[0], norm(np.einsum("n,ne->e", variances, exact(signed))) / problem.n))
        if isinstance(separator, LabelSvm):
            share = np.min(exact(signed) @ q) / (norm(exact(data.v)) * problem.n)
            queries.append((lengths[1] / scale[1], share * np.sum(variances)))
    left, right = (np.stack(side) for side in zip(*heads, strict=True))
    yield at_least(HEAD_IN_RANGE, Form.EFFECTIVE, left, right)
    if queries:
        left, right = (np.stack(side) for side in zip(*queries, strict=True))
        yield at_least(QUERY_IN_RANGE, Form.EFFECTIVE, left, right)


def _scale(column: Float64[np.ndarray, "d"], multiple: Float64[np.ndarray, "d"]) -> Numbers:
    """Return the ratio of ``column`` to ``multiple``, which is the same in all entries up to one rounding of each."""
    at = int(np.argmax(np.abs(multiple)))
    ratio: Any = exact(column[at]) / multiple[at]
    return ratio.widen(4 * np.finfo(float).eps * abs(float(value_of(ratio))))


def _drift(run: FactoredRun) -> Claim:
    """Claim ‖Δ(t) − Δ(0)‖_⋆ ≤ Σ_s ‖step_s‖² for the imbalance Δ = KᵀK − QᵀQ."""
    apart: Any = run.after.imbalance - run.before.imbalance[:1]
    lengths: Any = np.cumsum(run.lengths * run.lengths)
    # Both steps and iterates have rounding errors.
    drift = np.sqrt(run.before.layout.m) * np.cumsum(2 * run.rounding * run.norms)
    return at_least(
        DRIFT, Form.EFFECTIVE, lengths.widen(drift), nuclear_norm(apart), why=FACTORED_STEPS, points="iterate"
    )


def _margin_is_kept(constants: MarginConstants, run: FactoredRun) -> Iterator[Claim]:
    """Claim m(W(t)) ≥ m(W(0)) − κ as long as rounding errors of steps raise the excess risk by less than a third."""
    before, after = run.before.margins(constants.rows), run.after.margins(constants.rows)
    slopes = value_of(constants.log_slopes)
    rate = 4 * float(value_of(constants.reach)) * float(np.exp(min(slopes[0] - slopes[1], 700.0)))
    resolved = np.cumsum(rate * run.rounding * run.norms) < MOST_DRIFT
    if resolved.any():
        yield at_least(KEPT, Form.EFFECTIVE, after[resolved], before[0] - constants.kappa, points="iterate")


def _certificate(constants: MarginConstants, run: FactoredRun) -> Iterator[Claim]:
    """Claim ‖W‖_⋆‖M̂‖_op ≥ m(W), the least margin, wherever all ω are ≥ 0; M̂ = −∇L/Σω."""
    points = run.before
    total, leads = certificate_sides(points.at)
    if leads.any():
        descent: Any = points.gradient_of(run.under_test, CERTIFICATE).reshape(points.W.shape)
        left = nuclear_norm(points.W) * singular_values(descent)[:, 0]
        right = points.margins(constants.rows) * total
        yield at_least(CERTIFICATE, Form.EFFECTIVE, left[leads], right[leads], points="iterate")
