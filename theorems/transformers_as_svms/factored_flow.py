"""Gradient flow on the factors (K, Q) of W: its conserved quantity, the tokens that it selects, and its limit.

References: derived here; *Transformers as Support Vector Machines*, (KQ-ERM); Sheen, Chen, Wang, Zhou, arXiv
2403.08699; Powers, Størmer, *Free states of the canonical anticommutation relations*, 1970.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis.strategies import SearchStrategy
from numpy.linalg import norm

from generators.case import Case
from generators.query_assumptions import label_separating_queries
from generators.query_cases import Family, query_cases
from reference_attention.floats import EPS
from reference_attention.svm.label_svm import LabelSvm, label_svm
from reference_attention.svm.max_margin import Infeasible
from reference_attention.svm.nuclear_max_margin import nuclear_max_margin
from theorems.bounded import exact, value_of
from theorems.core.att_svm import certify, end_as_infeasible
from theorems.core.claim import Claim, Form, at_least, undecided_claim
from theorems.core.claim_name import premise, premises, sharper
from theorems.core.dataset_claims import QUERY_CLAIMS, query_claims
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.nuclear_certificate import NuclearCertificate, nuclear_claim
from theorems.core.parts import Condition
from theorems.core.statement import NO_WEIGHTS, statement
from theorems.core.svm_certificate import SVM_IS_OPTIMAL
from theorems.core.tolerances import tolerance
from theorems.curves.followed_flow import FLOW_PREMISES
from theorems.curves.margin_points import points_with_margin
from theorems.rounding.approximations import approximate
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.rounding.singular_values import nuclear_norm, singular_values
from theorems.token_selection.global_paths.descent_from_a_margin import descent_from_a_margin
from theorems.token_selection.global_paths.margin_constants import MarginConstants
from theorems.transformers_as_svms.curves.factored_certificate import (
    certificate_sides,
    signed_variances,
    singular_value_growth,
)
from theorems.transformers_as_svms.curves.factored_flow_run import FactoredFlowRun
from theorems.transformers_as_svms.curves.factored_law import sharpest_lag
from theorems.transformers_as_svms.curves.factored_starts import factors_with_margin, least_eigenvalue, margin_needed

FACTORED_FLOW = tolerance(
    "factored-flow",
    "with E = evaluations · √k (1e-12 ‖(K, Q)‖ + atol) for k entries: 2‖(K, Q)‖E for Δ, √m times as much for ‖Δ‖_⋆, and"
    " max‖G‖‖(K, Q)‖E for a margin",
    "the exact flow conserves Δ and lowers L from any start; so the solver's local errors, at most rtol‖·‖ + atol per"
    " entry and evaluation, add up and do not grow; a local error e moves Δ by 2‖(K, Q)‖e and W by ‖(K, Q)‖e",
)
QUADRATURE = tolerance(
    "factored-quadrature",
    "|T_h − T_2h|, where T_h is the trapezoidal sum over all recorded points and T_2h over every second point",
    "the error of T_h is about a third of |T_h − T_2h|, as it falls like h²",
)

LAW = tolerance(
    "factored-law",
    "(r + 1)E + (1 + 1/r)(rE/(c_r − 2rE) − log c_r), or (r + 1)E/(c_{r+1} − 2(r + 1)E) − log c_{r+1} + (r + 1)E; plus"
    " the error of the trapezoidal rule for τ",
    "an effective bound, from the distance E of the certificate to its limit and the cosines c between the singular"
    " vectors at the first point and those of the limit (derived in factored_law.py)",
)

SEPARATING = Condition(
    "the queries separate the labels", lambda case: label_separating_queries(case).holds is not False
)
RESOLVED = "where float64 resolves the flow"
FEWEST = 3
"""The least number of recorded points from which the error of the trapezoidal rule can be estimated."""
LOGITS = 1e7
"""The largest ‖(K(0), Q(0))‖² max‖G‖ for which float64 still resolves logits once the norm has grown tenfold.

G are the rows (x_i,opt − x_it) z_iᵀ.
"""
CLIMBS_OUTWARD = sharper("climbs-outward")
CONSERVED, NUCLEAR = (sharper(name, when=RESOLVED) for name in ("imbalance-is-conserved", "norm-is-nuclear-norm"))
KEPT, DIVERGES = sharper("flow-margin-is-kept", when=RESOLVED), sharper("norm-diverges", when=RESOLVED)
LONG, NOT_STATIONARY = sharper("query-gradient-is-long", when=RESOLVED), sharper("not-stationary", when=SEPARATING)
LEADS = "where optimal tokens lead and all others score below the output"
CERTIFICATE, DUALITY = sharper("certificate", when=LEADS), sharper("value-is-enclosed", when=LEADS)
GROWTH = sharper("singular-values-grow", when=f"{LEADS}, at every recorded point")
NUCLEAR_SVM = premise("nuclear-svm-is-optimal")
LAG = sharper(
    "spurious-value-lags", when="ATT-SVM⋆ is decided and not of full rank, and gτ is at least twice the tolerance"
)


def _cases() -> SearchStrategy[Case]:
    return query_cases(families=(Family.LABEL_SEPARATING, Family.INDEPENDENT, Family.ORTHOGONAL))


@statement(
    "tsvm-factored-flow",
    "Gradient flow on the factors (K, Q)",
    source="own; T-SVM proves nothing of it",
    claims=(
        *(*QUERY_CLAIMS, SVM_IS_OPTIMAL, CLIMBS_OUTWARD),
        *(name.only(RESOLVED) for name in FLOW_PREMISES),
        *(DIVERGES, CONSERVED, NUCLEAR, KEPT, LONG, NOT_STATIONARY),
        *(NUCLEAR_SVM, CERTIFICATE, DUALITY, GROWTH, LAG),
    ),
    assumptions=("queries-given", "well-behaved-loss", "strict-optimum", "separable", "definite-imbalance"),
    cases=_cases,
    kernel=SATURATED,
    needs=NO_WEIGHTS | dict(descent_from_a_margin.needs),
    varies={"unit-of-keys": "KᵀK − QᵀQ is defined only if tokens and queries have the same unit"},
    search="in other coordinates the solver takes other steps, and may leave the case undecided",
)
def tsvm_factored_flow(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Train W = K Qᵀ by dK/dt = −∇L(W) Q, dQ/dt = −∇L(W)ᵀ K.

    Let Assumption A hold, opt be unique, ATT-SVM(opt) feasible and m(W) = min (x_i,opt − x_it)ᵀ W z_i, for any n and
    any scores. From any factors of a W(0) with

        m(W(0)) ≥ κ + max(1, log(2(T − 1))),    with the κ of Theorem 1,

    L(K(t) Q(t)ᵀ) falls to its infimum L_⋆ and ‖W(t)‖ → ∞.

    **Exact.** Δ = KᵀK − QᵀQ is conserved: d/dt KᵀK = −Qᵀ∇LᵀK − Kᵀ∇L Q is also d/dt QᵀQ. Hence, along the flow,

        0 ≤ ½(‖K‖_F² + ‖Q‖_F²) − ‖W‖_⋆ ≤ ½‖Δ‖_⋆.

    *Derivation.* With A = (KᵀK)^½ and B = (QᵀQ)^½, ‖KQᵀ‖_⋆ = ‖AB‖_⋆, so the middle is ½‖A − B‖_F² + tr AB − ‖AB‖_⋆. It
    is ≥ 0 as 2‖AB‖_⋆ ≤ ‖A‖_F² + ‖B‖_F². As tr AB ≤ ‖AB‖_⋆, it is ≤ ½‖A − B‖_F² ≤ ½‖A² − B²‖_⋆ (Powers–Størmer). So
    ½‖(K, Q)‖² is the nuclear norm of W up to a constant that the start fixes.

    **Effective.** Let Ω = (1/n) Σ|ℓ'_i| Σ_t s_it (γ_i,opt − γ_it) and h_it = (x_i,opt − x_it)ᵀ W z_i. If m(W) ≥ 1,

        −⟨∇L(W), W⟩ ≥ m (1 − (T − 1)e^{−m}) Ω.

    *Derivation.* −⟨∇L, W⟩ = (1/n) Σ|ℓ'_i| Σ_t s_it (γ_i,opt − γ_it)(h_it − Σ_u s_iu h_iu), h_it ≥ m, and s h ≤ h e^{−h}
    ≤ m e^{−m}, since h e^{−h} decreases for h ≥ 1. As L falls, m(W(t)) ≥ m(W(0)) − κ (the argument of
    ``descent-from-a-margin``), so −⟨∇L, W⟩ ≥ ½Ω at all times. Now d(‖K‖² + ‖Q‖²)/dt = −4⟨∇L, W⟩ and dL/dt ≤
    −(2⟨∇L, W⟩)²/(‖K‖² + ‖Q‖²). Suppose that L − L_⋆ ≥ ε at all times. Then Ω ≥ ε c_min/c_max, m is bounded, and so is
    −⟨∇L, W⟩ ≤ (m + κ)Ω: ‖K‖² + ‖Q‖² grows at most linearly and L falls without bound like −∫ dt/t, a contradiction.

    **No stationary point.** Let m = d and Δ ≻ 0. K stays invertible, as KᵀK = Δ + QᵀQ ⪰ Δ, and

        ‖∇_Q L‖_F = ‖∇Lᵀ K‖_F ≥ λ_min(Δ)^½ ‖∇L‖_F.

    If a query q separates the labels, c = min Y_i qᵀz_i > 0, the right side is ≥ λ_min(Δ)^½ (c/(n‖v‖‖q‖)) Σ|ℓ'_i| Var_i
    > 0 from every start, for every T and all scores, as −vᵀ∇L q = (1/n) Σ|ℓ'_i| Var_i Y_i qᵀz_i. Even if Δ ≻ 0 fails,
    (K, Q) is not stationary if q ∈ range Q, or v ∈ range K, since then ∇L Q, or ∇Lᵀ K, is not zero.

    **A certificate, at every point.** Once opt is selected, −∇L = Σ ω_j G_j with ω ≥ 0; let M̂ = −∇L/Σω. As m(W) ≤
    ⟨M̂, W⟩ ≤ ‖M̂‖_op ‖W‖_⋆, and by weak duality,

        1 ≤ ‖W‖_⋆ ‖M̂‖_op/m(W)    and    1/‖M̂‖_op ≤ C_⋆ ≤ ‖W‖_⋆/m(W),

    so that at every point the ratio ‖W‖_⋆ ‖M̂‖_op/m(W) bounds how far W/m(W) is from the nuclear-norm SVM. If the flow
    converges in direction, the limit is expected, but not proven, to be a KKT point of min ½(‖K‖² + ‖Q‖²) subject to
    margins ≥ 1, and a global minimiser iff the ratio tends to 1.

    **The law of the other singular values.** With Θ = (K; Q) the flow is dΘ/dτ = S Θ, S = (0, M̂; M̂ᵀ, 0), dτ = Σω dt;
    4⟨M̂, W⟩ dτ = d‖Θ‖². The logarithm of the volume σ_1(Θ) ⋯ σ_k(Θ) grows at most at the rate of the sum of the k
    largest eigenvalues of S, which are the singular values of M̂:

        d log(σ_1 ⋯ σ_k)(Θ) ≤ (σ_1 + … + σ_k)(M̂) dτ,    for every k.

    Once M̂ is near the limit M = Σ λ_j G_j, with r singular values 1 and a gap g = 1 − σ_{r+1}(M), this becomes
    σ_{r+1}(W)/σ_1(W) ~ ‖W‖^{−g} (:mod:`.curves.factored_law` has bounds on both sides). So a limit may be invisible:
    for g = 0.02 the ratio falls only by a factor of 0.76 over six decades of ‖W‖.
    """
    yield from query_claims(case, under_test)
    data, problem, rng = case.queried, case.problem, case.rng()
    assert data is not None, "the statement assumes queries-given"
    svm = yield from certify(problem, problem.optimal, under_test)
    constants = MarginConstants(problem, svm)
    yield _outward(constants, under_test, rng)
    required = margin_needed(constants, KEPT)
    start = factors_with_margin(case, constants, required, rng)
    if (norm(start[0]) ** 2 + norm(start[1]) ** 2) * float(value_of(constants.reach)) > LOGITS:
        return
    followed = FactoredFlowRun.of(data, under_test, start, svm.norm, rng, DIVERGES)
    yield from premises(followed)
    yield from followed.diverges()
    yield from _conservation(followed)
    yield from _selects(constants, followed)
    yield from _not_stationary(case, followed)
    yield from _nuclear(constants, followed, under_test)


def _outward(constants: MarginConstants, under_test: Implementation, rng: np.random.Generator) -> Claim:
    """Claim the lower bound of −⟨∇L, W⟩ at points W with margins of at least 1."""
    points = points_with_margin(constants, rng)
    m = constants.margins(exact(points))
    points = points[np.asarray(m >= 1.0)]
    if not len(points):
        return undecided_claim(CLIMBS_OUTWARD, "rounding leaves no point a margin of 1", Form.EFFECTIVE)
    at, m = AttentionAt(constants.problem, points), m[np.asarray(m >= 1.0)]
    outward = -np.vecdot(at.gradient_of(under_test, CLIMBS_OUTWARD), exact(points))
    return at_least(CLIMBS_OUTWARD, Form.EFFECTIVE, outward, m * (1 - constants.odds_bound(m)) * constants.omega(at))


def _conservation(followed: FactoredFlowRun) -> Iterator[Claim]:
    """Claim that Δ = KᵀK − QᵀQ is conserved, and that ½‖(K, Q)‖² exceeds ‖W‖_⋆ by at most ½‖Δ(0)‖_⋆."""
    points, options = followed.points, {"why": FACTORED_FLOW, "points": "recorded norm"}
    drift = 2 * followed.flow.norms * followed.solver
    apart: Any = norm(points.imbalance - points.imbalance[:1], axis=(-2, -1)).widen(drift)
    yield at_least(CONSERVED, Form.LIMIT, 0.0, apart[1:], scale=followed.flow.norms[1:] ** 2, **options)
    half = points.norm_squared / 2 - nuclear_norm(points.W)
    above = nuclear_norm(points.imbalance[:1]) / 2 - half
    m = points.layout.m
    sides = np.concatenate([half, above.widen(np.sqrt(m) / 2 * drift)])
    yield at_least(NUCLEAR, Form.LIMIT, sides, 0.0, scale=np.tile(followed.flow.norms**2, 2), **options)


def _selects(constants: MarginConstants, followed: FactoredFlowRun) -> Iterator[Claim]:
    """Claim that the least margin decreases by at most κ, m(W(t)) ≥ m(W(0)) − κ."""
    margins = followed.points.margins(constants.rows)
    lost = float(value_of(constants.reach)) * followed.flow.norms * followed.solver
    # At large norms the solver's error may exceed the margins, if some rows are a million times longer than others.
    resolved = np.logical_and.accumulate((lost <= 1) | (margins.value >= 8 * lost))[1:]
    if not resolved.any():
        return
    later_margins = margins[1:].widen(lost[1:])[resolved]
    options = {"why": FACTORED_FLOW, "points": "recorded norm"}
    yield at_least(KEPT, Form.LIMIT, later_margins, margins[0] - constants.kappa, **options)


def _not_stationary(case: Case, followed: FactoredFlowRun) -> Iterator[Claim]:
    """Claim ‖∇_Q L‖_F ≥ λ_min(Δ(0))^½ ‖∇L‖_F along the flow, with Δ = KᵀK − QᵀQ."""
    points, data = followed.points, followed.data
    # Bound λ_min(Δ) from below by λ_min(Δ(0)) minus the drift of Δ along the computed flow.
    drift = 2 * followed.flow.norms * followed.solver
    least: Any = (least_eigenvalue(points.imbalance[:1], LONG) + np.zeros_like(drift)).widen(drift)
    positive = np.asarray(least > 0)
    if not positive.any():
        return
    of_k = data.shape[0] * points.layout.m
    by_q = norm(points.joint(followed.gradient)[:, of_k:], axis=1)[positive]
    root = np.sqrt(least[positive])
    options = {"why": FACTORED_FLOW, "points": "recorded norm"}
    yield at_least(LONG, Form.LIMIT, by_q, root * norm(followed.gradient, axis=1)[positive], **options)
    separator = label_svm(data.Y[:, None] * data.queries)
    if isinstance(separator, LabelSvm):
        share: Numbers = np.min(exact(data.Y[:, None] * data.queries) @ separator.v)
        share = share / (norm(exact(separator.v)) * norm(exact(data.v)) * case.problem.n)
        variances = np.sum(signed_variances(points.at_floats), axis=1)[positive]
        yield at_least(NOT_STATIONARY, Form.LIMIT, by_q, root * share * variances, **options)


def _nuclear(constants: MarginConstants, followed: FactoredFlowRun, under_test: Implementation) -> Iterator[Claim]:
    """Claim the certificate at every point, the growth of σ_1 ⋯ σ_k(K; Q), and how σ_{r+1} lags behind σ_1, …, σ_r."""
    points, problem = followed.points, constants.problem
    svm = under_test[nuclear_max_margin](followed.data.keys, problem.optimal)
    if isinstance(svm, Infeasible):
        end_as_infeasible(problem, problem.optimal, svm, NUCLEAR_SVM, svm="ATT-SVM⋆")
    yield nuclear_claim(NuclearCertificate(followed.data, problem.optimal, svm), NUCLEAR_SVM)
    margins = points.margins(constants.rows)
    total, leads = certificate_sides(points.at_floats)
    if not leads.any():
        return
    descent = -followed.gradient.reshape(points.W.shape)
    spectrum, sizes = singular_values(descent), nuclear_norm(points.W)
    unit_of_points = "recorded norm"
    largest = (sizes * spectrum[:, 0])[leads]
    yield at_least(CERTIFICATE, Form.EFFECTIVE, largest, (margins * total)[leads], points=unit_of_points)
    least, most = (approximate(np.array(bound), np.array(4 * EPS * bound)) for bound in svm.bounds)
    above = np.concatenate([most * spectrum[leads, 0] / total[leads], sizes[leads] / margins[leads]])
    below = np.concatenate([np.ones(int(leads.sum())), (least + np.zeros(int(leads.sum()))).value])
    yield at_least(DUALITY, Form.EFFECTIVE, above, below, points=unit_of_points)
    if not leads.all() or len(leads) < FEWEST:
        return
    grown, allowed, quadrature_error = singular_value_growth(points, descent, spectrum)
    volumes = {"why": QUADRATURE, "points": "volume at a recorded norm"}
    yield at_least(GROWTH, Form.LIMIT, allowed, grown, rounding=quadrature_error + EPS * np.abs(grown), **volumes)
    lag = sharpest_lag(points, svm, value_of(descent) / value_of(total)[:, None, None])
    if lag is not None:
        sides, room = np.array([lag.fallen, lag.expected]), np.array([lag.above, lag.below])
        yield at_least(LAG, Form.LIMIT, sides, sides[::-1], rounding=room, why=LAW, scale=lag.expected, points="side")
