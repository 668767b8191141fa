"""Theorem 3: from a start in a cone around a locally optimal direction, gradient descent converges to this direction.

Main results: the cone contains no stationary point (T1); gradient descent stays in the cone, the norm of p grows
without bound, at least like log t, and the direction of p tends to p_mm(α) (T2).

References: *Max-Margin Token Selection in Attention Mechanism*, Section 2, Theorem 3, Appendix B.4;
:mod:`.invariant_cone`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from types import MappingProxyType

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from jaxtyping import Float64
from numpy.linalg import norm

from generators.case import Case
from generators.chosen_tokens import locally_optimal_choices
from generators.directions import points_in_cone
from generators.near_neighbours import without_near_neighbours
from generators.numbers import MODERATE
from generators.problems import cases
from reference_attention.floats import EPS
from reference_attention.problem import log_smoothness
from reference_attention.svm.max_margin import Infeasible, max_margin
from reference_attention.training.flow import Flow
from theorems.bounded import exact, value_of, with_rounding
from theorems.core.att_svm import certify
from theorems.core.claim import Claim, Form, Undecided, Verdict, at_least, undecided_claim
from theorems.core.claim_name import premises, sharper, stated_claim
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.kernel_use import FAR
from theorems.core.points import affordable
from theorems.core.statement import statement
from theorems.core.svm_certificate import LOCAL_OPTIMALITY, SVM_IS_OPTIMAL, local_optimality_claim
from theorems.core.tolerances import tolerance
from theorems.curves.cone_points import NO_STATIONARY_POINT, ConeView, cone_points, is_resolvable, resolvable_rho
from theorems.curves.descent import DESCENT_PREMISES
from theorems.curves.flow_chords import FLOW_IS_ASKED_FOR
from theorems.rounding.approximations import approximate
from theorems.rounding.attention_at import Numbers
from theorems.token_selection.local_paths.cone_descent import ConeDescent, ConeRun, growth, longest_steps
from theorems.token_selection.local_paths.cone_flow import along_a_flow
from theorems.token_selection.local_paths.invariant_cone import (
    SLACK,
    InvariantCone,
    cone_for_flow,
    flow_is_resolved,
    invariant_cone,
    log_step_of,
    with_cone,
)
from theorems.token_selection.local_paths.local_constants import local_constants, resolution_failure

FLOW_SOLVER = tolerance(
    "flow-solver",
    "√d · evaluations/3 · (rtol · |z| + atol)/‖p_mm‖, 0 for d = 1; no more than a quarter of the bound",
    "a step of the solver has a local error of rtol |z| + atol per coordinate orthogonal to p_mm, z the part of p in"
    " these coordinates, and costs at least three gradients: at its start, at its end and, for the time, half-way;"
    " errors in these coordinates do not grow along the path, which descends a convex function of them",
)

STAYS_IN_CONE = sharper("stays-in-cone")
INCREMENTS = sharper("increments")
NORM_GROWS = sharper("norm-grows")
LOG_GROWTH = sharper("log-growth")
CORRELATION = sharper("correlation")
FLOW_RATE = sharper("flow-rate")
LIMIT = stated_claim("limit")

STEPS, LONGEST_STEPS = 1000, 500
"""The numbers of iterations of gradient descent, and of descent with the longest steps that the cone allows."""
ENTRIES = 1 << 24
"""Approximate largest number of key entries evaluated over all iterates of a descent; large problems get fewer."""
SHORTEST, LARGEST_LOG_STEP = math.log(0.01), 600.0
"""The smallest log ηL_p drawn for a step size η, and the largest |log η| at which η is in the range of floats."""
START_NORMS = (1.0, 1.0, 2.0)
"""The norms of the drawn starts, in units of the radius R of the cone of starts."""
MOST_GROWTH = 1e6
"""The largest ratio ‖p(t)‖/‖p(0)‖ for which descent with the longest steps is run."""
VISIBLE = 1e-9
"""The value of 1 − cos below which a limit counts as reached."""

ASSUMPTIONS = ("well-behaved-loss", "separable", "locally-optimal", "in-cone", "step-size")


def _shorter_step(draw: DrawFn, case: Case) -> Case:
    """Draw the case with a step size η between 1/(100 L_p) and 1/L_p; in half of the draws η = 1/L_p.

    A shorter η is used only if floats can represent it both for the keys as given and for keys of order one.
    """
    share = draw(st.one_of(st.just(0), st.integers(1, 64))) / 64
    logs = [share * SHORTEST - data.problem.log_smoothness for data in (case, case.normalise())]
    if share == 0 or max(map(abs, logs)) > LARGEST_LOG_STEP:
        return case
    return case.replace(arrays=MappingProxyType({**case.arrays, "eta": np.array(math.exp(logs[0]))}))


@st.composite
def _cases(draw: DrawFn) -> Case:
    case = draw(cases(assumptions=("well-behaved-loss", "separable", "locally-optimal"), large=MODERATE))
    if not flow_is_resolved(case):
        case = without_near_neighbours(case)
        # A few cases in a hundred are rejected: their margins differ by many orders of magnitude.
        assume(flow_is_resolved(case))
    case = _shorter_step(draw, case)
    if not draw(st.booleans()):
        return case
    with_constants = with_cone(case)
    solution = max_margin(case.normalise().problem.exact_keys, case.chosen_tokens)
    if "cone_mu" not in with_constants.arrays or isinstance(solution, Infeasible):
        return case
    # The start is drawn in units in which keys are of order one, and scaled back by a power of two.
    scale = case.problem.key_scale
    radius = float(with_constants.arrays["cone_radius"]) * scale
    start = draw(points_in_cone(solution.p, float(with_constants.arrays["cone_mu"]), radius))
    constants = local_constants(case.normalise().problem, solution)
    furthest = max(2 * radius, resolvable_rho(constants) * solution.norm / 4) if constants is not None else 0.0
    # Halving is exact and does not change the angle.
    while np.linalg.norm(start) > furthest:
        start = start / 2
    return with_constants.replace(start=start / scale)


def _strategy() -> SearchStrategy[Case]:
    return _cases()


def _from_data(case: Case) -> Iterator[Case]:
    for chosen in locally_optimal_choices(case):
        yield with_cone(chosen)


@statement(
    "theorem-3",
    "Local convergence of gradient descent",
    source="Section 2, Theorem 3",
    claims=(
        SVM_IS_OPTIMAL,
        *DESCENT_PREMISES,
        FLOW_IS_ASKED_FOR,
        LOCAL_OPTIMALITY,
        NO_STATIONARY_POINT,
        STAYS_IN_CONE,
        INCREMENTS,
        NORM_GROWS,
        LOG_GROWTH,
        CORRELATION,
        FLOW_RATE,
        LIMIT,
    ),
    assumptions=ASSUMPTIONS,
    cases=_strategy,
    from_data=_from_data,
    kernel=FAR,
    needs={
        "separable": "the cone, local optimality and the limit are defined by p_mm(α), which exists only if"
        " ATT-SVM(α) is feasible"
    },
)
def theorem_3(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold and α be locally optimal.

    There are μ and R such that, with p_mm = p_mm(α),

        T1. C_{μ,R}(p_mm) contains no stationary point of L;
        T2. GD with η ≤ 1/L_p from any p(0) in C_{μ,R}(p_mm) has ‖p(t)‖ → ∞ and p(t)/‖p(t)‖ → p_mm/‖p_mm‖.

    μ and R come from the data: :mod:`.invariant_cone` derives them from the constants of Lemma 7, with all the
    inequalities below. Starts lie in C_{μ/4,R}, iterates in a cone K ⊂ cone_μ whose tip a is moved towards the ray
    that GD converges to; p' = p − a, ρ' = ‖p'‖/‖p_mm‖, ν' = 1 − cos(p', p_mm), π' = κ/ρ' − ν'.

    Effective forms, at each iteration from several starts: 1000 of GD with η = 1/L_p (fewer where n T d is large), its
    increments tracked in their own scale where they underflow next to p (they are e^{−1000} or less where R is large),
    and steps along −∇L as long as the proof allows, which take ‖p‖ through orders of magnitude.
    - run-is-the-one-asked-for, iterate-is-a-step (exact): GD starts at p(0), and p(t+1) = p(t) − η∇L(p(t)) to rounding.
    - no-stationary-point: −⟨∇L, p̄_mm⟩ ≥ C e^{−⟨p, p_mm⟩/‖p_mm‖²}, C, C⁻, C⁺ the constants of Lemma 7.
    - stays-in-cone: ν' ≤ μ; near the boundary of K a step of GD leads away from it.
    - increments: ⟨Δ, p̄_mm⟩ ≥ ⟨Δ, p̄'⟩/(1 + π') for a step Δ.
    - norm-grows: ‖p(t+1)‖ > ‖p(t)‖ by at least ⟨Δ, p̄⟩ ≥ (C⁻/C⁺)‖Δ‖ (L2 for q = p).
    - log-growth: ⟨p(t), p̄_mm⟩ ≥ P log(e^{⟨p(0), p̄_mm⟩/P} + ηCt/P), P = ‖p_mm‖.
    - correlation: the increments summed, cos(p'(t), p_mm) ≥ (⟨p'(0), p̄_mm⟩ + Σ ⟨Δ, p̄'⟩/(1 + π'))/‖p'(t)‖.

    Where ⟨Δ, p̄_mm⟩ and ⟨Δ, p̄'⟩ nearly cancel, ⟨Δ, p̄_mm⟩ is subtracted from both sides: π'⟨Δ, p̄_mm⟩ ≥ ⟨Δ, p̄' −
    p̄_mm⟩.

    Limit. Gradient flow satisfies ν'ρ'² ≤ ν'_0ρ'_0² + κ(ρ' − ρ'_0) (flow-rate), whence a proven bound of the angle
    between p and p_mm that falls like 1/‖p‖ if the tip a has the right offset (limit): 1 − cos ~ 1/‖p‖². The flow is
    followed to ‖p‖ = 1e6 and so far that the angle allowed at the start would give 1 − cos ≤ 1e-9. The only tolerance
    is the accuracy of the solver.
    """
    problem = case.problem
    svm = yield from certify(problem, case.chosen_tokens, under_test)
    yield from premises(local_optimality_claim(problem, case.chosen_tokens, svm, under_test))
    constants, log_step = local_constants(problem, svm), log_step_of(case)
    cone = None if constants is None else invariant_cone(constants, log_step)
    if constants is None or cone is None or not is_resolvable(constants, cone.height):
        raise Undecided(NO_STATIONARY_POINT, resolution_failure(constants), Form.EFFECTIVE, not_found=True)
    # The cone is for the theorem's step size 1/L_p; the descent uses the L_p of the implementation.
    log_eta = log_step if "eta" in case.arrays else -under_test[log_smoothness](problem)
    yield from in_the_cone(cone, under_test, log_eta, case.rng(), case.start)


def in_the_cone(
    cone: InvariantCone,
    under_test: Implementation,
    log_step: float,
    rng: np.random.Generator,
    case_start: Float64[np.ndarray, "d"] | None = None,
) -> Iterator[Claim]:
    """Yield the claims that follow from the cone's properties; tests also pass a wrong cone."""
    yield no_stationary_point(cone, under_test, rng)
    if case_start is not None and (unusable := _unusable_start(cone, case_start)):
        yield unusable
        case_start = None
    starts = starts_in(cone, rng, case_start)
    steps, most = affordable_steps(cone, starts)
    gd = ConeDescent.of(cone.constants, cone.tip, under_test, starts, log_step, steps, STAYS_IN_CONE)
    yield from premises(gd)
    long = longest_steps(cone.constants, cone.tip, under_test, starts, cone.longest_step, most, STAYS_IN_CONE)
    yield from premises(long)
    claims = list(at_every_iterate(cone, gd, long))
    yield from claims
    # If a claim is falsified, the flow is skipped: claims about the flow cost the most time, and the verdict is certain
    # already.
    if not any(claim.verdict is Verdict.FALSIFIED for claim in claims):
        factor = max(10.0, 2 * math.sqrt(cone.start_mu / VISIBLE))
        yield from along_a_flow(cone.constants, under_test, starts, factor, flow_claims(cone), FLOW_RATE)


def _unusable_start(cone: InvariantCone, start: Float64[np.ndarray, "d"]) -> Claim | None:
    """Return None, or an undecided claim if float64 does not resolve the start or the start is outside the cone."""
    inside = cone.contains(start)
    if not is_resolvable(cone.constants, rho_of(cone, start)):
        reason = f"float64 resolves no logits at the given start, of norm {norm(start):.3g}"
    elif not inside:
        reason = f"the given start, of norm {norm(start):.3g}, is outside the cone of radius {cone.radius:.3g}"
    else:
        return None
    return undecided_claim(STAYS_IN_CONE, reason, Form.EFFECTIVE, not_found=not inside)


def no_stationary_point(cone: InvariantCone, under_test: Implementation, rng: np.random.Generator) -> Claim:
    """Claim −⟨∇L, p̄_mm⟩ ≥ C e^{−⟨p, p_mm⟩/‖p_mm‖²}, which implies T1, at points p of the cone around p_mm.

    C is :meth:`.LocalConstants.log_descent` without its logarithm. Norms are 1 to 1000 times the radius of starts.
    """
    constants = cone.constants
    norms = cone.radius * (1 + 1e-9) * np.geomspace(1, 1e3, 64)
    norms = norms[norms <= resolvable_rho(constants) * constants.norm]
    at = ConeView(constants, cone_points(rng, constants, norms, constants.mu), under_test, np.zeros(cone.tip.size))
    log_C = constants.carrying.log_descent(cone.height, axis=True)
    return at_least(NO_STATIONARY_POINT, Form.EFFECTIVE, at.along, at.in_units(log_C - at.axial))


def at_every_iterate(cone: InvariantCone, gd: ConeDescent, long: ConeRun) -> Iterator[Claim]:
    """Yield the claims of T2; claims about steps of any length along −∇L are made at the iterates of both runs.

    The comments have steps Δ and the symbols of :func:`theorem_3`. ``gd`` is the run of gradient descent, ``long`` that
    with the longest steps.
    """
    yield stays_in_cone(cone, gd, long)
    runs = (gd.view, long.view)

    # The increments, after subtraction of ⟨Δ, p̄_mm⟩: π'⟨Δ, p̄_mm⟩ ≥ ⟨Δ, p̄' − p̄_mm⟩.
    sides = all_sides((at.pi(cone.kappa) * at.along, at.aside) for at in runs)
    yield at_least(INCREMENTS, Form.EFFECTIVE, *sides, points="iterate")

    # The growth of the norm: ⟨Δ, p̄⟩ ≥ (C⁻/C⁺)‖Δ‖ > 0 with the constants of L2.
    constants = cone.constants.carrying
    share = np.exp(constants.log_lower(cone.height) - constants.log_upper(cone.height))
    sides = all_sides((outward(at), share * norm(at.descent, axis=1)) for at in runs)
    yield at_least(NORM_GROWS, Form.EFFECTIVE, *sides, points="iterate")

    # The progress along p_mm: ⟨p(t) − p(0), p̄_mm⟩ ≥ P log1p((ηC/P) t e^{−ζ(0)}), ζ(0) = ⟨p(0), p_mm⟩/P², P = ‖p_mm‖.
    least = np.exp(np.minimum(log_climb_bound(cone, gd) - gd.unit, 700.0))
    yield at_least(LOG_GROWTH, Form.EFFECTIVE, gd.climb, least, points="iterate")

    # The increments summed, divided by 1 + π': Σ_{s<t} π'⟨Δ, p̄_mm⟩/(1 + π') ≥ Σ_{s<t} ⟨Δ, p̄' − p̄_mm⟩/(1 + π').
    at, pi = long.view, long.view.pi(cone.kappa)
    left, right = long.sum_of(pi * at.along / (1 + pi)), long.sum_of(at.aside / (1 + pi))
    yield at_least(CORRELATION, Form.EFFECTIVE, left, right, points="iterate")


def stays_in_cone(cone: InvariantCone, gd: ConeRun, *others: ConeRun) -> Claim:
    """Claim ν' ≤ μ at every iterate, and h(p + Δ) ≥ h(p) for gradient descent from starts near the cone's boundary.

    h ≥ 0 exactly on the cone; h, ν', μ, and the bound (***) by which the claim on h follows from ⟨Δ, μ p̄_mm − (1 −
    μ)(p̄' − p̄_mm)⟩ ≥ (1 − μ)‖Δ‖²/(2‖p'‖), are in :mod:`.invariant_cone`. This inequality is claimed after division by
    the step size.
    """
    mu, start = cone.constants.mu, gd.starts
    near = start.nu >= (1 - SLACK) * mu
    inward = np.vecdot(start.descent, mu * start.axis - (1 - exact(mu)) * start.deviation)
    length = np.exp(exact(np.minimum(gd.log_sizes[0], 700.0)))
    second = (1 - exact(mu)) * length / (2 * norm(start.from_tip, axis=1)) * norm(start.descent, axis=1)
    inside = [(np.full_like(run.view.nu, mu), run.view.nu) for run in (gd, *others)]
    sides = all_sides([*inside, (inward[near], second[near])])
    return at_least(STAYS_IN_CONE, Form.EFFECTIVE, *sides, points="iterate")


def outward(at: ConeView) -> Numbers:
    """Return ⟨−∇L, p̄⟩/e^{log_scale}, (m,), but −1 where ∇L = 0, so that a norm that does not grow is noticed."""
    moves = np.any(value_of(at.descent) != 0, axis=1)
    return np.where(moves, np.vecdot(at.descent, at.points) / norm(exact(at.points), axis=1), -1.0)


def log_climb_bound(cone: InvariantCone, gd: ConeDescent) -> Numbers:
    """Return log(P log1p((ηC/P) t e^{−ζ(0)})) for t = 1, 2, …, the bound of progress along p_mm, (t, b).

    P = ‖p_mm‖, ζ(0) = ⟨p(0), p_mm⟩/P², and C is the constant of :func:`no_stationary_point`.
    """
    constants, p_mm, indices = cone.constants.carrying, with_rounding(cone.constants.solution.p), gd.index
    # Each iterate is rounded, and the next step begins at the rounded iterate.
    drift = len(indices) * EPS * np.abs(gd.view.points[indices]).max(axis=0)
    height = approximate(gd.view.points[indices[0]], drift) @ p_mm / np.vecdot(p_mm, p_mm)
    rate = gd.log_step + constants.log_descent(cone.height, axis=True) - np.log(constants.norm)
    exponent = rate + np.log(exact(np.arange(1, len(indices))))[:, None] - height
    # For exponents x < −700, log1p(e^x) is computed as e^x, from which it differs by at most e^{2x}/2.
    underflows = exponent.value < -700
    log_growth = np.where(
        underflows, exponent.widen(1e-300), np.log(np.log1p(np.exp(np.where(underflows, 0.0, exponent))))
    )
    return np.log(constants.norm) + log_growth


def flow_claims(cone: InvariantCone) -> Callable[[Flow, float], Iterator[Claim]]:
    """Return the function that yields the claims about a flow: bounds of its distance from the ray, and its limit.

    The bounds come from the cone that :func:`.cone_for_flow` chooses for the flow's start, or else from ``cone``.
    """

    def claims(flow: Flow, goal: float) -> Iterator[Claim]:
        start, length = flow.points[0], cone.constants.norm
        around = cone_for_flow(cone.constants, start, goal) or cone
        at = ConeView(cone.constants, flow.points, REFERENCE, around.tip)

        # The distance from the ray, √(2ν'ρ'²) ≤ √(2(ν'_0ρ'_0² + κ(ρ' − ρ'_0))), with the symbols of the module
        # invariant_cone.
        bound = np.sqrt([2 * around.lateral_squared(start, rho) for rho in value_of(at.rho).tolist()])
        lateral = norm(at.deviation, axis=1) * at.rho
        error = solver_error(around, flow, np.maximum(bound, value_of(lateral)))
        # Slacks are in units of the bound at the end of the flow; in one dimension, where this bound is 0, in units of
        # the cone's width.
        unit = max(float(bound.max()), math.sqrt(2 * cone.constants.mu) * float(flow.norms[0]) / length)
        sides = bound, lateral.widen(error)
        yield at_least(FLOW_RATE, Form.EFFECTIVE, *sides, why=FLOW_SOLVER, scale=unit, points="record")

        # The angle between p and p_mm at the end of the flow is at most the proven bound.
        end = float(flow.norms[-1])
        angle = math.sqrt(2 * float(flow.one_minus_cosine(cone.constants.solution.p)[-1]))
        rounding = error[-1] * length / end + 8 * EPS
        proven = around.flow_angle(start, end)
        yield at_least(LIMIT, Form.LIMIT, proven, angle, rounding=rounding, why=FLOW_SOLVER, points="end")

    return claims


def solver_error(around: InvariantCone, flow: Flow, lateral: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
    """Return the bound :data:`FLOW_SOLVER` of the solver's error at each recorded point, in units of ‖p_mm‖, (r,).

    The solver works in coordinates along and across p_mm; its tolerances apply to the part of p across p_mm.
    """
    length, d = around.constants.norm, around.constants.problem.d
    across = lateral + norm(around.apex.offset) / length
    # In one dimension p has no part across p_mm.
    steps = flow.evaluations / 3 * (math.sqrt(d) if d > 1 else 0.0)
    return np.asarray(steps * (flow.relative * across + flow.absolute / length))


def rho_of(cone: InvariantCone, p: Float64[np.ndarray, "d"]) -> float:
    """Return ρ = ‖p‖/‖p_mm‖ for a point p."""
    return float(norm(p)) / cone.constants.norm


def starts_in(
    cone: InvariantCone, rng: np.random.Generator, case_start: Float64[np.ndarray, "d"] | None
) -> Float64[np.ndarray, "b d"]:
    """Return starts with the norms of :data:`START_NORMS` in the cone of starts, after the case's start if any."""
    norms = cone.radius * (1 + 1e-9) * np.array(START_NORMS)
    starts = cone_points(rng, cone.constants, norms, cone.start_mu)
    return starts if case_start is None else np.concatenate([case_start[None], starts])


def affordable_steps(
    cone: InvariantCone, starts: Float64[np.ndarray, "b d"]
) -> tuple[int, Float64[np.ndarray, "steps b"]]:
    """Return the number of steps of gradient descent, and upper bounds of the longest steps in units of ‖p − tip‖."""
    room = resolvable_rho(cone.constants) * cone.constants.norm / float(norm(starts, axis=1).max())
    problem = cone.constants.problem
    steps, longest = (affordable(problem, most, ENTRIES // len(starts)) for most in (STEPS, LONGEST_STEPS))
    return steps, growth(longest, float(np.clip(room, 2.0, MOST_GROWTH)), len(starts))


def all_sides(sides: Iterable[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    """Return the left sides of all pairs as one array, and their right sides as another."""
    left, right = (np.concatenate(parts) for parts in zip(*sides, strict=True))
    return left, right
