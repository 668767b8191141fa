"""Gradient descent from a prompt whose margins all exceed a number computed from the data turns to p_mm.

Main results, for any number of inputs and any scores: a gradient correlation condition with an explicit π(p) at every p
whose margin is large enough; gradient descent from a somewhat larger margin keeps such a margin; a rate of convergence
with explicit constants for normalized gradient descent.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorems 1 and 2, Lemmas 4 and 5; *Transformers as
Support Vector Machines*, Theorem 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64
from numpy.linalg import norm

from generators.case import Case
from generators.numbers import SOLVABLE_BLOCKS
from generators.problems import cases
from reference_attention.floats import EPS
from reference_attention.problem import log_smoothness
from reference_attention.risk import scaled_gradient
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.descent import gradient_descent, normalized_gradient_descent
from reference_attention.training.flow import Flow
from theorems.bounded import exact, in_floats, value_of
from theorems.core.att_svm import certify
from theorems.core.claim import Claim, Ended, Form, Verdict, at_least, undecided_claim
from theorems.core.claim_name import premises, sharper
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.points import climb
from theorems.core.statement import statement
from theorems.core.svm_certificate import SVM_IS_OPTIMAL
from theorems.core.tolerances import tolerance
from theorems.curves.constraints import Constraints
from theorems.curves.descent import DESCENT_PREMISES, DESCENT_ROUNDING, NORMALIZED_PREMISES
from theorems.curves.followed_flow import FLOW_PREMISES, FollowedFlow
from theorems.curves.margin_points import points_with_margin, starts_with_margin
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.descent_steps import starts_claim
from theorems.token_selection.global_paths import long_steps
from theorems.token_selection.global_paths.flow_offset import FlowOffset
from theorems.token_selection.global_paths.margin_constants import (
    KEPT,
    MarginConstants,
    lags_later,
    least_progress,
    log_coefficient_change,
    log_excess_rate,
    offset_bound,
    shares_later,
)
from theorems.token_selection.global_paths.run_drift import Run, run_premises, step_premises, widen

MARGIN_FLOW = tolerance(
    "margin-flow",
    "evaluations · √d (1e-12 ‖p‖ + atol) + 8 d eps ‖p‖; max‖g‖ times this for a margin; plus 16 eps of each summand",
    "each inequality holds along every piece of the flow that the solver computed, and is summed over the pieces, so"
    " the solver's local errors, at most rtol‖p‖ + atol per coordinate and gradient, add up; the rest is rounding",
)

RESOLVED_FLOW = "float64 resolves the flow to 100 times the norm of its start"
CLIMBS_ALONG, SHORT = sharper("climbs-along-p_mm"), sharper("gradient-is-short")
SOFTMIN, CORRELATION = sharper("softmin-of-margins"), sharper("correlation")
CLIMBS, TURNS = sharper("climbs"), sharper("turns")
NORMALIZED_CLIMBS, NORMALIZED_TURNS = sharper("normalized-run-climbs"), sharper("normalized-turns")
NORM_GROWS = sharper("normalized-norm-grows")
LONG_CLIMBS, LONG_TURNS = sharper("long-steps-climb"), sharper("long-steps-turn")
NORM_DIVERGES = sharper("norm-diverges", when=RESOLVED_FLOW)
FLOW_KEPT, FLOW_TURNS = (sharper(name, when=RESOLVED_FLOW) for name in ("flow-margin-is-kept", "flow-turns"))
OFFSET_KEPT = sharper("flow-offset-is-kept", when=RESOLVED_FLOW, refines=FLOW_TURNS)
MARGIN_CLAIMS = (
    SVM_IS_OPTIMAL,
    *(CLIMBS_ALONG, SHORT, SOFTMIN, CORRELATION),
    *DESCENT_PREMISES,
    *(KEPT, CLIMBS, TURNS),
    *NORMALIZED_PREMISES,
    *(NORMALIZED_CLIMBS, NORM_GROWS, NORMALIZED_TURNS),
    *(LONG_CLIMBS, LONG_TURNS),
    *(name.only(RESOLVED_FLOW) for name in FLOW_PREMISES),
    *(NORM_DIVERGES, FLOW_KEPT, FLOW_TURNS, OFFSET_KEPT),
)
"""The claims about points whose margin is large enough, and about runs that start at such points."""

STEPS, NORMALIZED_STEPS = 200, 300
"""The numbers of iterations of gradient descent and of normalized gradient descent; claims are made at all iterates."""
EVALUATIONS = 1_000_000
"""Approximate largest number of key entries evaluated over all iterates; large problems get fewer iterations."""
LENGTHS = (0.05, 0.2, 1.0)
"""Lengths of a normalized step in units of 1/max‖g‖, g the rows: a step changes margins g·p by at most its length."""
MOST_DRIFT = 0.25
"""Margins are claimed where rounding changes log(L − optimal risk) by less than this; the proof allows log(4/3)."""
FLOW_RELATIVE = 1e-12
"""The relative tolerance of the flow's solver, small because the offset of p from the ray of p_mm is compared."""
NEARLY = 1e-2
"""The largest :func:`.log_coefficient_change` at which the offset of p from the ray of p_mm is compared."""
RESOLVED = 1e6
"""The largest ‖p(0)‖ max‖g‖ at which the flow is followed, with g = k_opt − k_t the rows.

At the norm 100‖p(0)‖ the solver's tolerance then changes a margin g·p by at most 1e-4, less than the start's margin."""

ASSUMPTIONS = ("well-behaved-loss", "strict-optimum", "separable")


def _cases() -> SearchStrategy[Case]:
    """Return cases, most of them of two dimensions or more: in one dimension the direction cannot turn.

    A third of the cases contain a start, which usually has the required margin.
    """
    several = cases(assumptions=ASSUMPTIONS, d=(2, 5))
    return st.one_of(several, cases(assumptions=ASSUMPTIONS, large=SOLVABLE_BLOCKS), several.map(_with_a_start))


def _with_a_start(case: Case) -> Case:
    """Return the case with p(0) = r p_mm + o, r = 64 or 256, o random with entries up to 2/(largest entry of keys)."""
    svm, rng = max_margin(case.problem.exact_keys, case.problem.optimal), case.rng()
    assert isinstance(svm, MaxMargin), "the cases are separable"
    offset = rng.uniform(-1, 1, size=case.problem.d) / case.problem.key_scale
    return case.replace(start=rng.choice([64.0, 256.0]) * svm.p + offset)


@statement(
    "descent-from-a-margin",
    "Gradient descent from a start of sufficient margin",
    source="own; sharper than Theorem 2",
    claims=MARGIN_CLAIMS,
    assumptions=ASSUMPTIONS,
    cases=_cases,
    kernel=SATURATED,
    needs={
        "separable": "p_mm exists only if ATT-SVM is feasible",
        "well-behaved-loss": "the margin required of a start is computed from bounds of |ℓ'| > 0",
        "strict-optimum": "the margin required of a start is computed from the score gaps to a single best token",
    },
)
def descent_from_a_margin(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold, opt be unique and ATT-SVM(opt) feasible; any n, any scores.

    Let g_it = k_i,opt − k_it, m(p) = min g_it·p, A = max g_it·p_mm ≥ 1, N = n(T−1), κ = log(2N c_max Γ_max/(c_min
    Γ_min)) as in Theorem 1, with bounds c_min ≤ |ℓ'| ≤ c_max and Γ_min ≤ γ_i,opt − γ_it ≤ Γ_max, and K = κ − log 2.
    From any p(0) with

        m(p(0)) ≥ κ + log(2(T−1)A),

    gradient descent with η ≤ 1/L_p has ‖p(t)‖ → ∞ and p(t)/‖p(t)‖ → p_mm/‖p_mm‖. Theorem 2 requires equal non-optimal
    scores and n = 1 instead.

    **At points** where m(p) > log((T−1)A) and m(p) > 0, put q = (T−1)e^{−m(p)} and Ω = (1/n)Σ|ℓ'_i|Σ_t s_it(γ_i,opt −
    γ_it). With δγ_t = γ_opt − γ_t, h_t = g_t·p, a_t = g_t·p_mm, all 0 at opt, and E the mean under s, −⟨∇L, w⟩ =
    (1/n)Σ|ℓ'_i| Σ_t s_t δγ_t (g_t·w − E g·w).
    - −⟨∇L, p_mm⟩ ≥ (1 − Aq)Ω > 0, as a_t ≥ 1 and E a ≤ A Σ_{t≠opt} s_t ≤ Aq: no stationary point.
    - ‖∇L‖ ≤ (1 + q) max‖g‖ Ω, as ‖E g‖ ≤ q max‖g‖.
    - −⟨∇L, p⟩ ≤ (m(p) + K + log(1+q)) Ω. E h ≥ 0, so the left side is at most Ω times the average of h under
      ω ∝ c e^{−h}, c_it = |ℓ'_i|s_i,opt δγ_it. By Gibbs' identity that is Σ ω log(c/ω) − log Σ c e^{−h} ≤ log Σc +
      m − log min c, and s_i,opt ≥ 1/(1+q).
    - −⟨∇L, p̄⟩ ≤ (1 + π)(−⟨∇L, p̄_mm⟩), 1 + π = (1 + (K + log(1+q))/ρ)/(1 − Aq), ρ = ‖p‖/‖p_mm‖: m(p) ≤ ρ because
      p/m(p) is feasible.

    **Gradient descent** keeps m(p(t)) ≥ log(e^{m(p(0))−κ} + βt), β = (η/2)(c_minΓ_min/2n)(c_min/(2c_max‖p_mm‖))².
    *Derivation.* e_t = L(p(t)) − L_opt, L_opt the risk of selecting the optimal tokens, falls, e_0 ≤ (N/n) c_max Γ_max
    e^{−m(p(0))} and e_t ≥ c_minΓ_min e^{−max(m, 0)}/(2n), which together give m ≥ m(p(0)) − κ ≥ log(2(T−1)A) for every
    t; so Aq ≤ ½ and ‖∇L‖ ≥ Ω/(2‖p_mm‖) ≥ c_min e_t/(2c_max‖p_mm‖), and e_{t+1} ≤ e_t − (η/2)‖∇L‖² makes 1/e_t grow by
    (η/2)(c_min/(2c_max‖p_mm‖))² a step. Computed steps are rounded: log e changes by at most (c_max/c_min over the
    range of the outputs)(1+q) max‖g‖ times a step's rounding; the sum of these changes must be below log(4/3), by which
    1/(1+e^{−m}) exceeds the ½ used; otherwise the claim is undecided.

    **Any rule** with steps Δ_s along −∇L, as long as m ≥ log(2(T−1)A). Gradient descent keeps this margin, as proven
    above; of a run of normalized gradient descent it is checked, and where the run loses it the claim is undecided.
    (Steps longer than about 1/max‖g‖ may lose it: with rows (1, ±10) and the correlation loss, a step of 5/max‖g‖ leads
    from m = 2.58 to −1.15.)
    - ⟨p(t) − p(0), p̄_mm⟩ ≥ Σ_s ‖Δ_s‖ (1−A q_s)/(‖p_mm‖ max‖g‖ (1+q_s)), so ‖p(t)‖ ≥ ⟨p(0), p̄_mm⟩ + cηt (normalized).
    - ⟨p(t) − p(0), p̄_mm⟩ ≥ Σ_s (‖p(s+1)‖ − ‖p(s)‖ − ‖Δ_s‖²/(2‖p(s)‖))/(1 + π_s), from ⟨Δ, p⟩ = (‖p⁺‖² − ‖p‖² −
      ‖Δ‖²)/2 and (‖p⁺‖² − ‖p‖²)/(2‖p‖) ≥ ‖p⁺‖ − ‖p‖. So 1 − cos = O(log t/t) for normalized gradient descent, ‖Δ_s‖ =
      η: ‖p(s)‖ ≥ cηs makes Σ ‖Δ_s‖²/‖p(s)‖ and Σ (K + log(1+q))/ρ_s of order log t; and where 1 + π_s differs from
      this by A q_s, what is gained in a step is at most 2‖p_mm‖η(m + K + log(1+q))/‖p(s)‖, with (m + K)e^{−m} bounded.

    The last bound is also claimed of gradient descent whose η is at each step as large as m ≥ log(2(T−1)A) allows, so
    that ‖p‖ and the angle change by orders of magnitude (:mod:`.long_steps`).

    **Limit**, along the flow to ‖p‖ = 1e6‖p_mm‖. The flow keeps m ≥ m(p(0)) − κ, also with any later point in place of
    p(0). As descent does, it satisfies d⟨p, p̄_mm⟩ ≥ d‖p‖/(1 + π), so u = ⟨p, p̄_mm⟩/‖p_mm‖ has u(k) − u(0) ≥ Σ_j (1−A
    q_j)(F_j(ρ_{j+1}) − F_j(ρ_j)) between recorded norms, F_j(ρ) = ρ − K_j log(ρ + K_j), K_j = K + log(1+q_j): 1 − cos =
    O(log ρ/ρ), with constants computed only from the data.

    **Sharp.** −∇L = Σ_j c_j e^{ε_j} e^{−g_j·p} g_j with c_j = |ℓ'(γ_i,opt)|δγ_j/n and |ε_j| ≤ E = max_i [q − log(1 −
    qΓ_i,max/Γ_i,min) + the change of log|ℓ'| over qΓ_i,max]. In the terms of :mod:`.flow_offset`, with e^{−ĝ_j·q} =
    w_j/c_j, d|r|²/d log t ≤ 2E(e^E − 1) + e^E · (what the rows off the support add), for (e^{ε−x} − 1)x ≤ E(e^E − 1).
    From where E ≤ 1e-2 the offset is read off, and bounded at every later norm: 1 − cos = O(1/ρ²), 1e-9 and less at
    ρ = 1e6 unless a neighbour has no positive dual, or one near 0.
    """
    problem = case.problem
    svm = yield from certify(problem, problem.optimal, under_test)
    constants = MarginConstants(problem, svm)
    rng = case.rng()
    yield from margin_claims(constants, under_test, starts_with_margin(case, constants, rng), rng)


def margin_claims(
    constants: MarginConstants,
    under_test: Implementation,
    starts: Float64[np.ndarray, "b d"],
    rng: np.random.Generator,
) -> Iterator[Claim]:
    """Yield all claims: at points, and for descent, normalized descent, long steps and flow from ``starts``.

    Starts have margins of at least κ + log(2(T−1)A), in the notation of :class:`.MarginConstants`.
    """
    yield from at_points(constants, under_test, rng)
    fractions = np.array([0.0, *np.log(rng.uniform(0.01, 1.0, len(starts) - 1))])
    yield from along_descent(constants, under_test, starts, fractions)
    yield from along_normalized_descent(constants, under_test, starts, float(rng.choice(LENGTHS)))
    yield from along_long_steps(constants, under_test, starts)
    resolved = starts[norm(starts, axis=1) * float(value_of(constants.reach)) <= RESOLVED]
    if len(resolved):
        yield from along_the_flow(constants, under_test, resolved[int(rng.integers(len(resolved)))], rng)


def at_points(constants: MarginConstants, under_test: Implementation, rng: np.random.Generator) -> Iterator[Claim]:
    """Yield the bounds on −∇L at points p with margins above log((T − 1)A) and 0, which need not lie on runs."""
    edge, points = float(value_of(constants.edge)) * (1 + 8 * EPS), points_with_margin(constants, rng)
    # The search for points evaluates the constants as plain floats, so it needs an instance whose cached properties are
    # not bounded arrays.
    plain = MarginConstants(constants.problem, constants.svm)

    def violation(p: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "m"]:
        with in_floats():
            sides = [(left, right) for left, right in sides_at(plain, under_test, p).values()]
            worst = np.max([(right - left) / np.abs(right) for left, right in sides], axis=0)
            return np.where(plain.margins(p) <= edge, -np.inf, worst)

    points = climb(rng, points, violation)
    inside = np.asarray(constants.margins(exact(points)) > constants.edge)
    if not inside.any():
        yield undecided_claim(
            CLIMBS_ALONG, "no point has a margin that exceeds log((T − 1)A) by more than rounding", Form.EFFECTIVE
        )
        return
    for name, (left, right) in sides_at(constants, under_test, points[inside]).items():
        yield at_least(name, Form.EFFECTIVE, left, right)


def sides_at(
    constants: MarginConstants, under_test: Implementation, points: Float64[np.ndarray, "m d"]
) -> dict[str, tuple[Any, Any]]:
    """Return both sides of each bound on −∇L at points, in units of the gradient, by the name of the claim."""
    at = AttentionAt(constants.problem, points)
    descent, p = -at.gradient_of(under_test, CLIMBS_ALONG), exact(points)
    m, omega = constants.margins(p), constants.omega(at)
    along, outward = descent @ constants.p_mm, np.vecdot(descent, p)
    return {
        CLIMBS_ALONG: (along, constants.share(m) * omega),
        SHORT: (constants.stretch(m) * constants.reach * omega, norm(descent, axis=-1)),
        SOFTMIN: ((m + constants.lag(m)) * omega, outward),
        CORRELATION: (constants.correlation(p, m) * along / constants.length, outward / norm(p, axis=-1)),
    }


def along_descent(
    constants: MarginConstants,
    under_test: Implementation,
    starts: Float64[np.ndarray, "b d"],
    fractions: Float64[np.ndarray, "b"],
) -> Iterator[Claim]:
    """Yield the claims of gradient descent with η ≤ 1/L_p from starts of at least the margin κ + log(2(T−1)A).

    ``fractions`` are the numbers log ηL_p ≤ 0, one per start; κ and A are those of :class:`.MarginConstants`.
    """
    problem, steps = constants.problem, affordable_steps(constants, len(starts), STEPS)
    log_step = fractions - under_test[log_smoothness](problem)
    trajectory = under_test[gradient_descent](
        problem, starts, steps=steps, log_step=log_step, gradient=under_test[scaled_gradient]
    )
    run = yield from run_premises(problem, under_test, trajectory, starts, steps, log_step, DESCENT_PREMISES, KEPT)
    yield margin_claim(constants, run, log_step)
    yield from turning(constants, run, CLIMBS, TURNS)


def margin_claim(constants: MarginConstants, run: Run, log_step: Float64[np.ndarray, "b"]) -> Claim:
    """Claim m(p(t)) ≥ log(e^{m(p(0)) − κ} + βt), which is at least m(p(0)) − κ, for the margins m of a run's iterates.

    κ and β are :attr:`.MarginConstants.kappa` and the exponential of :meth:`.MarginConstants.log_growth`.
    """
    times = np.log(exact(np.arange(1.0, len(run.p.value))))[:, None]
    margins = constants.margins(run.p)
    floor = margins[0] - constants.kappa
    least = np.logaddexp(floor + np.zeros_like(run.drift), constants.log_growth(log_step) + times)
    allowed = log_excess_rate(constants, margins, floor) * run.drift[-1]
    if not (allowed < MOST_DRIFT).all():
        why = f"the rounding of the steps may raise the risk by a factor e^{np.max(allowed):.3g}"
        return undecided_claim(KEPT, why, Form.EFFECTIVE)
    return at_least(KEPT, Form.EFFECTIVE, margins[1:], least, points="iterate")


def along_normalized_descent(
    constants: MarginConstants,
    under_test: Implementation,
    starts: Float64[np.ndarray, "b d"],
    share: float,
) -> Iterator[Claim]:
    """Yield the claims of normalized gradient descent with steps of length share/max‖g‖, g the rows k_i,opt − k_it."""
    problem, steps = constants.problem, affordable_steps(constants, len(starts), NORMALIZED_STEPS)
    length = share / float(value_of(constants.reach))
    trajectory = under_test[normalized_gradient_descent](
        problem, starts, steps=steps, step=length, gradient=under_test[scaled_gradient]
    )
    names, first = NORMALIZED_PREMISES, NORMALIZED_CLIMBS
    run = yield from run_premises(problem, under_test, trajectory, starts, steps, length, names, first)
    margins = constants.margins(run.p)
    inside = np.logical_and.accumulate(np.asarray(margins >= constants.region), axis=0)
    yield from turning(constants, run, NORMALIZED_CLIMBS, NORMALIZED_TURNS, inside)
    if inside[:-1].all():
        p_bar = constants.p_mm / constants.length
        least = exact(run.p.value[0]) @ p_bar + length * np.cumsum(constants.climb(margins[:-1]), axis=0)
        least = widen(least, run.drift)
        norms, options = norm(run.p[1:], axis=-1), {"why": DESCENT_ROUNDING, "points": "iterate"}
        yield at_least(NORM_GROWS, Form.EFFECTIVE, norms, least, **options)


def along_long_steps(
    constants: MarginConstants, under_test: Implementation, starts: Float64[np.ndarray, "b d"]
) -> Iterator[Claim]:
    """Yield the claims of gradient descent whose η is at each step as large as the margin m(p) ≥ log(2(T−1)A) allows.

    The norm and the angle of p change by orders of magnitude over such a run.
    """
    steps = affordable_steps(constants, len(starts), long_steps.STEPS)
    descent = long_steps.long_steps(constants, under_test, starts, steps, LONG_CLIMBS)
    asked_for, is_a_step = DESCENT_PREMISES
    for begin, points in zip(descent.begins, descent.points, strict=True):
        first_claim = starts_claim(asked_for, points, begin, 1)
        if first_claim.verdict is Verdict.FALSIFIED:
            yield first_claim
            raise Ended(asked_for)
    p = np.stack([starts, *(points[1] for points in descent.points)])
    run = yield from step_premises(constants.problem, under_test, p, descent.log_steps, is_a_step)
    inside = np.logical_and.accumulate(np.asarray(constants.margins(run.p) >= constants.region), axis=0)
    yield from turning(constants, run, LONG_CLIMBS, LONG_TURNS, inside)


def turning(
    constants: MarginConstants,
    run: Run,
    climbs: str,
    turns: str,
    inside: np.ndarray | None = None,
) -> Iterator[Claim]:
    """Claim two lower bounds of a run's progress along p_mm, from the lengths of its steps and from the growth of ‖p‖.

    ``climbs`` and ``turns`` are the names of these claims, ``inside`` is the mask of the iterates up to which the run
    has kept the margin log(2(T−1)A), by default all.
    """
    p_bar, m = constants.p_mm / constants.length, constants.margins(run.p[:-1])
    covered = np.ones(run.drift.shape, dtype=bool) if inside is None else inside[:-1]
    m = np.where(covered, m, constants.needed)
    along = (run.p[1:] - run.p[:1]) @ p_bar
    least = np.cumsum(constants.climb(m) * norm(run.moved, axis=-1), axis=0)
    sums = ((climbs, least), (turns, least_progress(constants, run.p, run.moved, m)))
    for name, bound in sums:
        left, right = widen(along, 2 * run.drift)[covered], bound[covered]
        claim = at_least(name, Form.EFFECTIVE, left, right, why=DESCENT_ROUNDING, points="iterate")
        if claim.verdict is not Verdict.FALSIFIED and not covered.all():
            why = f"the run leaves m(p) ≥ log(2(T−1)A) after {int(covered.sum(axis=0).min())} steps"
            claim = undecided_claim(name, why, Form.EFFECTIVE)
        yield claim


def along_the_flow(
    constants: MarginConstants,
    under_test: Implementation,
    start: Float64[np.ndarray, "d"],
    rng: np.random.Generator,
) -> Iterator[Claim]:
    """Yield the claims of the flow from a start of sufficient margin to 1e6‖p_mm‖, or as far as float64 resolves."""
    problem, unit = constants.problem, constants.svm.norm
    followed = FollowedFlow.of(problem, under_test, start, unit, FLOW_RELATIVE, rng, NORM_DIVERGES)
    yield from premises(followed)
    yield from followed.diverges()
    flow = followed.flow
    solver = followed.solver + 8 * problem.d * EPS * flow.norms
    margins = constants.margins(exact(flow.points))
    least = margins[0] - constants.kappa
    margin_error = value_of(constants.reach) * solver
    # From a recorded point of margin m on, the exact flow keeps the margin m − κ. From the start on, the flow keeps the
    # start's margin minus κ, and so do recorded points, up to the solver's errors.
    m, kappa = margins.value - margins.error, float(value_of(constants.kappa))
    later = np.maximum(m, m[0] - margin_error) - kappa
    # If key differences differ in length by a factor of a million, the solver's tolerance exceeds the margins at large
    # norms.
    resolved = np.logical_and.accumulate(
        ((margin_error <= 1) | (margins.value >= 8 * margin_error)) & (shares_later(constants, later) > 0)
    )
    if resolved.sum() < 2:
        return
    flow = replace(flow, points=flow.points[resolved], norms=flow.norms[resolved])
    margins, margin_error, solver, later = margins[resolved], margin_error[resolved], solver[resolved], later[resolved]
    later_margins = margins[1:].widen(margin_error[1:])
    yield at_least(FLOW_KEPT, Form.LIMIT, later_margins, least, why=MARGIN_FLOW, points="recorded norm")
    yield flow_progress_claim(constants, flow, later, solver / unit)
    offset = offset_claim(constants, flow, later, solver / unit)
    if resolved.all() or not offset.undecided:
        yield offset


def flow_progress_claim(
    constants: MarginConstants,
    flow: Flow,
    later: Float64[np.ndarray, "r"],
    solver: Float64[np.ndarray, "r"],
) -> Claim:
    """Claim u(k) − u(0) ≥ Σ_j (1 − Aq_j)(F_j(ρ_{j+1}) − F_j(ρ_j)) for the flow's component u along p_mm.

    The norm of the recorded point j is ρ_j; u and ρ are in units of ‖p_mm‖. F_j(ρ) = ρ − K_j log(ρ + K_j) with K_j = K
    + log(1 + q_j), q_j = (T − 1) e^{−m} for the margin m at least kept from point j on; A and K are those of
    :class:`.MarginConstants`.

    Args:
        constants: the constants of the problem.
        flow: the flow with its recorded points.
        later: lower bounds of the margins from each recorded point on, (r,).
        solver: the errors of the solver up to each recorded point, in units of ‖p_mm‖, (r,).
    """
    rho, u = flow.norms / constants.svm.norm, flow.points @ constants.svm.p / constants.svm.norm**2
    lag = lags_later(constants, later[:-1])
    logarithms = lag * np.log((rho[1:] + lag) / (rho[:-1] + lag))
    least = u[0] + np.cumsum(shares_later(constants, later[:-1]) * (np.diff(rho) - logarithms))
    rounding = solver[1:] + 16 * EPS * np.cumsum(rho[1:] + np.abs(logarithms) + lag)
    return at_least(
        FLOW_TURNS,
        Form.LIMIT,
        u[1:],
        least,
        rounding=rounding,
        why=MARGIN_FLOW,
        scale=rho[1:],
        points="recorded norm",
    )


def offset_claim(
    constants: MarginConstants,
    flow: Flow,
    later: Float64[np.ndarray, "r"],
    solver: Float64[np.ndarray, "r"],
) -> Claim:
    """Claim an upper bound of the flow's offset r from its predicted limit, at the recorded points after a point b.

    The bound is √(|r_b|² + e^E growth + Σ 2E_k(e^{E_k} − 1) Δlog t), with r, t and growth as in :mod:`.flow_offset` and
    E_k the bound of :func:`.log_coefficient_change` from point k on; b is the first recorded point with E_b ≤
    :data:`NEARLY`, and E stands for E_b.
    """
    offsets = FlowOffset.of(Constraints.of(constants.problem, constants.svm), constants.svm)
    changes = log_coefficient_change(constants, later)
    begins = np.flatnonzero(changes <= NEARLY)
    if not offsets.solved or len(begins) == 0 or begins[0] + 1 >= len(changes):
        why = "Newton's method for the dual weights did not converge" if not offsets.solved else "margins stay small"
        return undecided_claim(OFFSET_KEPT, why, Form.SHARP)
    b = int(begins[0])
    p, rho = flow.points[b:] / constants.svm.norm, flow.norms[b:] / constants.svm.norm
    q = offsets.q + offsets.free(p[0])
    size = np.linalg.norm(offsets.across(p - q), axis=1)
    bounds = np.array([offset_bound(offsets, p, rho, changes[b:], q, k) for k in range(1, len(rho))])
    return at_least(
        OFFSET_KEPT,
        Form.SHARP,
        bounds,
        size[1:],
        rounding=solver[b + 1 :] + 8 * constants.problem.d * EPS * rho[1:],
        why=MARGIN_FLOW,
        scale=np.maximum(size[1:], 1.0),
        points="recorded norm",
    )


def affordable_steps(constants: MarginConstants, runs: int, steps: int) -> int:
    """Return the number of steps that :data:`EVALUATIONS` allows, at least 10 and at most ``steps``."""
    return max(10, min(steps, EVALUATIONS // (runs * constants.problem.keys.size)))
