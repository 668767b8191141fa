"""Theorem 2: from any start gradient descent diverges, and for one input it turns to the max-margin direction.

Main results: at every iterate of gradient descent, bounds on the progress along p_mm, on ‖p‖ (which grows like log t)
and, for one input, on the correlation with p_mm; along the gradient flow up to norms of 1e6, an a-priori bound 1 − cos
= O(‖p‖^{−2}) and the predicted offset from the ray of p_mm.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 2, Appendix B.3; :mod:`.flow_offset`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from numpy.linalg import norm

from generators.case import Case
from generators.numbers import MODERATE
from generators.problems import cases
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from reference_attention.training.flow import RELATIVE
from theorems.bounded import exact, value_of, with_rounding
from theorems.core.att_svm import certify
from theorems.core.claim import Claim, Form, Undecided, at_least, section
from theorems.core.claim_name import premises, sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import calls
from theorems.core.key_rows import key_rows
from theorems.core.parts import Condition
from theorems.core.statement import statement
from theorems.core.svm_certificate import SVM_IS_OPTIMAL
from theorems.core.tolerances import tolerance
from theorems.curves.constraints import Constraints
from theorems.curves.descent import (
    DESCENT_PREMISES,
    DESCENT_ROUNDING,
    NORMALIZED_PREMISES,
    Descent,
    NormalizedDescent,
    starts_around,
)
from theorems.curves.followed_flow import FLOW_PREMISES, FollowedFlow, flow_start
from theorems.rounding.approximations import approximate
from theorems.rounding.attention_at import Numbers
from theorems.token_selection.global_paths.flow_offset import FlowOffset
from theorems.token_selection.global_paths.lemma_04_descent_direction import log_climb, log_gaps

GRADIENT_FLOW = tolerance(
    "gradient-flow",
    "evaluations · √d (1e-12 ‖p‖ + max(1e-10/κ, 64 eps ‖p_end‖)) + 8 d eps ‖p‖",
    "the solver keeps its local error below rtol‖p‖ + atol per coordinate and step; these errors only add up, because"
    " for n = 1 the flow is that of the convex Σ e^{−g_j·p}, which amplifies no error, and ⟨p, p_mm⟩ rises along every"
    " flow; the last term is the rounding of a point of norm ‖p‖; rtol is 1e-9 for n > 1",
)
LARGEST_LOGARITHM = 1e6
"""The largest |log x| for which x, computed as the exponential of log x, still has ten digits."""
FLOW_RELATIVE = 1e-12
"""The flow solver's relative tolerance for n = 1, small because p's offset from the ray of p_mm is compared."""

ONE_INPUT = Condition("n = 1", lambda case: bool(case.problem.n == 1))
CLIMBS = sharper("climbs-to-max-margin")
CLIMBS_LIKE_LOG = sharper("climbs-like-log-t")
NORM_GROWS = sharper("norm-grows-like-log-t")
SUMMABLE = sharper("steps-are-summable")
CORRELATION_STEP = sharper("correlation-step", when=ONE_INPUT)
CORRELATION = sharper("correlation-lower-bound", when=ONE_INPUT)
NORMALIZED_CLIMBS = sharper("normalized-run-climbs")
NORM_DIVERGES = stated_claim("norm-diverges")
ARC_CLIMBS = sharper("arc-climbs")
FLOW_CORRELATION = stated_claim("flow-correlation", when=ONE_INPUT)
OFFSET_KEPT = sharper("flow-offset-is-kept", when=ONE_INPUT, refines=FLOW_CORRELATION)
OFFSET_CLOSED_FORM = sharper("flow-offset-closed-form", when=ONE_INPUT, refines=FLOW_CORRELATION)

ASSUMPTIONS = ("well-behaved-loss", "equal-non-optimal-scores", "separable")


def _cases() -> SearchStrategy[Case]:
    """Return cases, half of them with one input, because the limit of the direction is claimed for one input only."""
    single = cases(assumptions=(*ASSUMPTIONS, "single-input"), large=MODERATE)
    return st.one_of(single, cases(assumptions=ASSUMPTIONS, large=MODERATE, n=(2, 4)))


@statement(
    "theorem-2",
    "Global convergence of gradient descent",
    source="Theorem 2, Appendix B.3",
    claims=(
        SVM_IS_OPTIMAL,
        *DESCENT_PREMISES,
        *NORMALIZED_PREMISES,
        NORMALIZED_CLIMBS,
        CLIMBS,
        CLIMBS_LIKE_LOG,
        NORM_GROWS,
        SUMMABLE,
        NORM_DIVERGES,
        *FLOW_PREMISES,
        ARC_CLIMBS,
        CORRELATION_STEP,
        CORRELATION,
        FLOW_CORRELATION,
        OFFSET_KEPT,
        OFFSET_CLOSED_FORM,
    ),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    kernel=calls(
        "every iterate of descent with the kernel's gradient; the limit is checked with the reference only", turn=6
    ),
)
def theorem_2(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumptions A and B hold and p_mm = p_mm(opt) exist.

    Gradient descent with η ≤ 1/L_p from any p(0) has ‖p(t)‖ → ∞; if n = 1 also p(t)/‖p(t)‖ → p̄_mm. Write w = ⟨p, p_mm⟩,
    u = ⟨p, p̄_mm⟩, D = max‖k_i,opt − k_it‖, gap_i = γ_i,opt − the common score of the other tokens of input i, s_i for
    the softmax weights and c_i for the least |ℓ'| on the scores of input i.

    **Effective, any n.** Lemma 4: w(t+1) − w(t) ≥ (η/n) Σ_i |ℓ'(γ_iᵀs_i)| gap_i s_i,opt (1 − s_i,opt) > 0. Moreover
    w(t) ≥ w(0) + log(1 + D²βt)/D² with β = η e^{−D‖p(0)‖} (1/n)Σ c_i gap_i/(4(T−1)), hence ‖p(t)‖ ≥ Θ w(t) → ∞.
    *Derivation.* −∇L = (1/n)Σ|ℓ'| gap_i s_i,opt Σ_t s_it (k_i,opt − k_it) has a norm of at most D times Lemma 4's lower
    bound of −⟨∇L, p_mm⟩, so ‖p(t+1) − p(t)‖ ≤ D (w(t+1) − w(t)) and ‖p(t)‖ ≤ ‖p(0)‖ + D x_t, x_t = w(t) − w(0). As s(1
    − s) ≥ e^{−D‖p‖}/(4(T−1)) (:func:`log_rate`), x_{t+1} ≥ x_t + β e^{−D² x_t}. Then e^{D² x_{t+1}} ≥ e^{D² x_t}(1 +
    D²β e^{−D² x_t}) = e^{D² x_t} + D²β.

    **Exact.** The points of the effective claims are a run of gradient descent: p(0) is the start, and each checked
    iterate is followed by p − η∇L(p) with the gradient under test, up to rounding
    (:mod:`theorems.rounding.descent_steps`). The same is claimed of normalized gradient descent. Each of its steps of
    length s climbs at least s/D, as it has the direction of a step of GD.

    **Effective, n = 1.** With λ = ‖p_mm‖ log(T−1) and Δ = p(t+1) − p(t): ⟨Δ, p̄_mm⟩ (‖p(t)‖ + λ) ≥ ⟨Δ, p(t)⟩ (Lemma 5),
    that is the paper's inequality with π_t = λ/‖p(t)‖. Summed:
    u(t) − u(0) ≥ ‖p(t)‖ − ‖p(0)‖ − λ log((‖p(t)‖+λ)/(‖p(0)‖+λ)) − Σ_{s<t} ‖Δ_s‖²/(2(‖p(s)‖+λ)).
    *Derivation.* ⟨Δ, p⟩ = (‖p⁺‖² − ‖p‖² − ‖Δ‖²)/2, and (‖p⁺‖² − ‖p‖²)/(2(‖p‖+λ)) ≥ ∫ r/(r+λ) dr from ‖p‖ to ‖p⁺‖,
    because r/(r+λ) ≤ r/(‖p‖+λ) where r ≥ ‖p‖ and the reverse where r ≤ ‖p‖. Lemma 6 bounds the sum:
    Σ‖Δ_s‖² ≤ 2η (L(p(0)) − L_opt), the only place where η ≤ 1/L_p enters. So the right side is ‖p(t)‖(1 − o(1)).

    **Limit**, along the gradient flow (its curve is parametrised by arc length) from starts near, far and opposite to
    p_mm. The claims include that the curve is this flow: it begins at the start, the gradient at its recorded points is
    the one under test, and pieces between them, integrated again by another method, end at the next recorded point
    (:mod:`theorems.curves.flow_chords`). The norm reaches 1e6 (1e5 or 1e4 where float64 resolves no more), because w
    rises by at least s/D along an arc of length s. For n = 1, 1 − cos ≤ 1 − √(1 − (B/ρ)²) at norm ρ‖p_mm‖ with a bound
    B of the offset from the ray computed only from the data and p(0) (:mod:`.flow_offset`); B grows like log ρ if an
    SVM-neighbour has no positive dual.

    **Sharp**, n = 1. Let S be the neighbours with positive duals λ, and G_S their rows k_opt − k_t. Within span(G_S)
    the offset from the ray tends to the q with G_S q = −log(λ/Σλ), which is also the limit for the regularization path.
    Orthogonally to span(G_S) the offset tends to a point that differs from the part of p(0) there by the pull of the
    rows outside S.
    """
    problem = case.problem
    svm = yield from certify(problem, problem.optimal, under_test)
    rng = case.rng()
    starts, fractions = starts_around(case, svm, rng)
    yield from at_every_iterate(Descent.of(problem, under_test, starts, fractions, CLIMBS), svm)
    if under_test.textbook_eps:
        # Long before a limit is visible, a gradient that a kernel computes by the textbook formulas consists of
        # rounding errors.
        return
    yield from at_every_normalized_step(NormalizedDescent.of(problem, under_test, starts), svm)
    single, start = problem.n == 1, flow_start(case, svm, rng)
    # For one input, where directions are compared, norms are in units of ‖p_mm‖; otherwise in units of 1/(largest
    # |entry| of the keys), up to a factor of 2.
    unit, relative = (svm.norm, FLOW_RELATIVE) if single else (1 / problem.key_scale, RELATIVE)
    flow = FollowedFlow.of(problem, under_test, start, unit, relative, rng, NORM_DIVERGES)
    yield from along_the_flow(flow, svm)
    if single:
        yield from in_the_limit(flow, svm)


@section
def at_every_iterate(descent: Descent, svm: MaxMargin) -> Iterator[Claim]:
    """Yield the effective claims at every iterate at which the descent evaluates the gradient."""
    yield from premises(descent)
    problem, at, log_step = descent.problem, descent.at, descent.log_step
    log_climbs = log_climb(at)
    largest, error = float(np.abs(log_climbs.value).max()), float(log_climbs.error.max())
    if not (largest < LARGEST_LOGARITHM and error < 1):
        why = f"log|∇L| reaches {largest:.3g} with an error of {error:.3g}: no digits left in float64"
        raise Undecided(CLIMBS, why, Form.EFFECTIVE)
    p_mm, iterate, drifted = with_rounding(svm.p), {"points": "iterate"}, {"points": "iterate", "why": DESCENT_ROUNDING}

    # Both sides of −⟨∇L, p_mm⟩ ≥ (1/n) Σ_i |ℓ'| gap_i s_i,opt (1 − s_i,opt) are in units of the gradient.
    climbs = np.sum(np.exp(log_climbs - at.log_scale[:, None]), axis=1)
    yield at_least(CLIMBS, Form.EFFECTIVE, descent.direction @ p_mm, climbs, **iterate)

    p, norms, t = descent.p, descent.norms, descent.checked_iterates
    w, climbed = p @ p_mm, climb_bound(problem, log_step + log_rate(problem, norms[0]), t)
    yield at_least(CLIMBS_LIKE_LOG, Form.EFFECTIVE, (w - w[0])[1:], climbed[1:], **drifted)
    least_norms = (w[0] + climbed) / norm(p_mm)
    yield at_least(NORM_GROWS, Form.EFFECTIVE, norm(p, axis=-1)[1:], least_norms[1:], **drifted)

    # η (L(p(0)) − L_opt) ≥ ½ Σ_s ‖Δ_s‖² for the steps Δ_s.
    lengths, drop = norm(descent.increments, axis=-1), descent.drop(SUMMABLE)
    half_squares = np.sum(lengths * lengths, axis=0) / 2
    yield at_least(SUMMABLE, Form.EFFECTIVE, drop, half_squares, why=DESCENT_ROUNDING, points="start")
    if problem.n > 1:
        return

    # ⟨Δ, p̄_mm⟩ (‖p‖ + λ) ≥ ⟨Δ, p⟩ for a step Δ, divided by the step size, with λ = ‖p_mm‖ log(T−1); then the sum of
    # these inequalities from the first p with ‖p‖ + λ > 0 on.
    lag = norm(p_mm) * np.log(exact(problem.T - 1))
    towards = descent.direction @ p_mm / norm(p_mm) * (norm(exact(at.points), axis=-1) + lag)
    yield at_least(CORRELATION_STEP, Form.EFFECTIVE, towards, np.vecdot(descent.direction, at.points), **iterate)

    first = np.where(norms[0].value + lag.value > 0, 0, 1)
    begin = exact(descent.run.points[first, np.arange(len(first))])
    progress = (p - begin) @ p_mm / norm(p_mm)
    least_progress = norm(p, axis=-1) - norm(begin, axis=-1) - correlation_deficit(norms, lengths, lag)[t]
    later = t[:, None] > first
    yield at_least(CORRELATION, Form.EFFECTIVE, progress[later], least_progress[later], **drifted)


@section
def at_every_normalized_step(descent: NormalizedDescent, svm: MaxMargin) -> Iterator[Claim]:
    """Claim ⟨p(t) − p(0), p_mm⟩ ≥ s t/D for steps of length s, by ‖∇L‖ ≤ −D⟨∇L, p_mm⟩, D = max ‖k_i,opt − k_it‖."""
    yield from premises(descent)
    least = exact(descent.length) * descent.times / reach(descent.problem)
    yield at_least(
        NORMALIZED_CLIMBS, Form.EFFECTIVE, descent.displacements @ with_rounding(svm.p), least, points="iterate"
    )


def along_the_flow(followed: FollowedFlow, svm: MaxMargin) -> Iterator[Claim]:
    """Claim that ‖p‖ reaches the requested norm, and ⟨p, p_mm⟩ rises by s/D on an arc of length s; D: :func:`reach`."""
    yield from premises(followed)
    yield from followed.diverges()
    flow, w = followed.flow, followed.flow.points @ svm.p
    yield at_least(
        ARC_CLIMBS,
        Form.LIMIT,
        w[1:] - w[0],
        flow.arc_length[1:] / value_of(reach(followed.problem)),
        rounding=(svm.norm * followed.solver + 16 * EPS * np.abs(w))[1:],
        why=GRADIENT_FLOW,
        scale=svm.norm * (flow.norms + flow.arc_length)[1:],
        points="recorded norm",
    )


def in_the_limit(followed: FollowedFlow, svm: MaxMargin) -> Iterator[Claim]:
    """Yield the claims for n = 1 about z, the flow's offset from the ray of p_mm, at each recorded norm ρ.

    Lengths are in units of ‖p_mm‖; :mod:`.flow_offset` derives the bound B of |z| and the limit q of its part in the
    span of the neighbours' rows.
    """
    offsets = FlowOffset.of(Constraints.of(followed.problem, svm), svm)
    if not offsets.solved:
        raise Undecided(FLOW_CORRELATION, "Newton's method for the dual weights did not converge", Form.LIMIT)
    p, rho, solver = followed.flow.points / svm.norm, followed.flow.norms / svm.norm, followed.solver / svm.norm
    z = offsets.across(p)
    size = np.linalg.norm(z, axis=1)
    large = np.maximum(size, 1.0)
    noise = solver + 8 * followed.problem.d * EPS * rho
    flow: dict[str, Any] = {"why": GRADIENT_FLOW, "points": "recorded norm"}

    # The bound B(p(0), ρ) ≥ |z| implies one on 1 − cos = 1 − √(1 − |z|²/ρ²).
    bound = np.array([offsets.from_start(p[0], r) for r in rho[1:]])
    yield at_least(FLOW_CORRELATION, Form.LIMIT, bound, size[1:], rounding=solver[1:], scale=large[1:], **flow)

    # From each distant recorded point to the next, z stays near q plus the part of p orthogonal to span(G_S), which is
    # the limit of z up to the pull of tokens outside S.
    late = np.flatnonzero(rho >= max(100.0, 10 * rho[0]))
    k, after = late[:-1], late[1:]
    limits = [offsets.q + offsets.free(p[j]) for j in k]
    remaining = np.array([offsets.after(p[j], rho[j + 1], q) for j, q in zip(k, limits, strict=True)])
    distances = np.array([np.linalg.norm(z[j + 1] - offsets.across(q)) for j, q in zip(k, limits, strict=True)])
    yield at_least(OFFSET_KEPT, Form.SHARP, remaining, distances, rounding=noise[after], scale=large[after], **flow)

    # The part of z − q in span(G_S) is at most the bound (**) of flow_offset.
    least = np.minimum(offsets.contraction_bounds(p), rho + float(np.linalg.norm(offsets.q)))[late]
    inside = np.linalg.norm(offsets.inside(p[late] - offsets.q), axis=1)
    yield at_least(OFFSET_CLOSED_FORM, Form.SHARP, least, inside, rounding=noise[late], scale=large[late], **flow)


def reach(problem: Problem) -> Numbers:
    """Return D = max ‖k_i,opt − k_it‖, the largest distance of an optimal token's key to another key of its input."""
    return np.max(np.linalg.norm(key_rows(problem, problem.optimal), axis=2))


def log_rate(problem: Problem, start_norm: Any) -> Numbers:
    """Return log(β/η) for the step size η and the β of Theorem 2: β/η = e^{−D‖p(0)‖} (1/n) Σ_i c_i gap_i / (4(T−1)).

    c_i is the least |ℓ'| on the scores of input i, gap_i its score gap, D the value of :func:`reach`.

    Let a_t be the margins of p in an input, and o = Σ_{t≠opt} e^{−a_t} the odds against the optimal token, whose weight
    s has s(1 − s) = o/(1 + o)². As |a_t| ≤ D‖p‖, |log o| ≤ D‖p‖ + log(T−1), and o/(1 + o)² = 1/(2 + 2 cosh log o) ≥
    e^{−|log o|}/4.
    """
    low, high = problem.scores.min(axis=1), problem.scores.max(axis=1)
    floors = np.array([problem.loss.log_floor(float(a), float(b)) for a, b in zip(low, high, strict=True)])
    total = np.logaddexp.reduce(approximate(floors, 8 * EPS * (1 + np.abs(floors))) + log_gaps(problem))
    return total - np.log(exact(4 * problem.n * (problem.T - 1))) - reach(problem) * start_norm


def climb_bound(problem: Problem, log_beta: Any, steps: Any) -> Numbers:
    """Return log(1 + D²βt)/D², the lower bound of ⟨p(t) − p(0), p_mm⟩ for t = ``steps``, D of :func:`reach`, (r, b)."""
    D = reach(problem)
    return np.logaddexp(0.0, 2 * np.log(D) + log_beta + np.log(exact(steps))[:, None]) / (D * D)


def correlation_deficit(norms: Any, lengths: Any, lag: Any) -> Any:
    """Return the most by which ⟨p(t) − p(b), p̄_mm⟩ falls short of ‖p(t)‖ − ‖p(b)‖ for n = 1, for every t.

    This deficit is λ log((‖p(t)‖ + λ)/(‖p(b)‖ + λ)) + Σ_{b≤s<t} ‖p(s+1) − p(s)‖²/(2(‖p(s)‖ + λ)), with λ = ``lag`` =
    ‖p_mm‖ log(T−1). Here b = 0, or b = 1 where ‖p(0)‖ + λ = 0: the first step of such a start is along p_mm itself.
    """
    shifted = norms + lag
    positive = value_of(shifted)[:-1] > 0
    base = np.where(positive[0], shifted[0], shifted[1])
    halves = 2 * np.where(positive, shifted[:-1], 1.0)
    terms = np.where(positive, lengths * lengths / halves, 0.0)
    bend = lag * np.log1p((shifted - base) / base) if value_of(lag) > 0 else np.zeros_like(norms)
    return bend + np.concatenate([np.zeros_like(terms[:1]), np.cumsum(terms, axis=0)])
