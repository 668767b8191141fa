"""Theorem 3: started in a cone around a locally optimal direction, gradient descent converges to it.

Main results: the cone has no stationary point (T1); GD stays in it, its norm grows without bound at least like log t,
and its direction tends to p_mm(α) (T2).

References: *Max-Margin Token Selection in Attention Mechanism*, Section 2, Theorem 3, Appendix B.4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from jaxtyping import Float64

from generators.case import Case
from generators.directions import points_in_cone
from generators.numbers import MODERATE
from generators.problems import cases
from reference_attention.svm.max_margin import Infeasible, max_margin
from theorems.core.att_svm import certify
from theorems.core.claim import Claim, Form, NotANumber, Undecided, Verdict, undecided_claim
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.on_kernel import FAR
from theorems.core.points import affordable
from theorems.core.statement import always, statement
from theorems.core.svm_certificate import local_optimality_claim
from theorems.rounding.steps import starts_claim
from theorems.token_selection.local_paths.chosen_tokens import locally_optimal_choices
from theorems.token_selection.local_paths.cone_claims import (
    correlation,
    flow_claims,
    increments,
    is_a_step,
    iterates,
    log_growth,
    no_stationary_point,
    norm_grows,
    stays_in_cone,
)
from theorems.token_selection.local_paths.cone_descent import descent, growth, longest_steps
from theorems.token_selection.local_paths.cone_points import cone_points, is_resolvable, resolvable_rho
from theorems.token_selection.local_paths.invariant_cone import InvariantCone, invariant_cone
from theorems.token_selection.local_paths.lemma_07_local_gradient_condition import too_thin
from theorems.token_selection.local_paths.local_cases import followable, without_near_neighbours
from theorems.token_selection.local_paths.local_constants import local_constants

ASSUMPTIONS = ("well-behaved-loss", "separable", "locally-optimal", "in-cone", "step-size")

STEPS = 1000
"""Iterations of GD."""

LONGEST_STEPS = 500
"""Iterations of the longest steps."""

ENTRIES = 1 << 24
"""About how many entries of keys are looked at, at all iterates of a descent; large problems get fewer iterations."""

SHORTEST, LARGEST_LOG_STEP = math.log(0.01), 600.0
"""log ηL_p of the shortest steps that are drawn; no log η is beyond the other in its size, so that η is a float."""

SAME_LIMIT = "its flow has the same limit, within the same bound; that it is no flow of this risk is seen by Theorem 2"

START_NORMS = (1.0, 1.0, 2.0)
"""Norms of the starts in units of R, besides the given one."""

MOST_GROWTH = 1e6
"""‖p(1000)‖/‖p(0)‖ that the longest steps aim at."""


def _shorter_step(draw: DrawFn, case: Case) -> Case:
    """In half of the cases η is not 1/L_p but down to a hundredth of it; so far as floats have it, in any unit."""
    share = draw(st.one_of(st.just(0), st.integers(1, 64))) / 64
    logs = [share * SHORTEST - given.problem.log_smoothness for given in (case, case.normalise())]
    if share == 0 or max(map(abs, logs)) > LARGEST_LOG_STEP:
        return case
    return case.replace(arrays=MappingProxyType({**case.arrays, "eta": np.array(math.exp(logs[0]))}))


@st.composite
def _cases(draw: DrawFn) -> Case:
    case = draw(cases(assumptions=("well-behaved-loss", "separable", "locally-optimal"), large=MODERATE))
    if not followable(case):
        case = without_near_neighbours(case)
        # What remains are margins that differ by many orders of magnitude: a few in a hundred.
        assume(followable(case))
    case = _shorter_step(draw, case)
    if not draw(st.booleans()):
        return case
    known = with_cone(case)
    solution = max_margin(case.normalise().problem.exact_keys, case.chosen_tokens)
    if "cone_mu" not in known.arrays or isinstance(solution, Infeasible):
        return case
    # Drawn in units in which keys are of order one, and scaled back by a power of two.
    scale = case.problem.key_scale
    radius = float(known.arrays["cone_radius"]) * scale
    start = draw(points_in_cone(solution.p, float(known.arrays["cone_mu"]), radius))
    constants = local_constants(case.normalise().problem, solution)
    furthest = max(2 * radius, resolvable_rho(constants) * solution.norm / 4) if constants is not None else 0.0
    # Halving is exact and leaves the angle as it is.
    while np.linalg.norm(start) > furthest:
        start = start / 2
    return known.replace(start=start / scale)


def _strategy() -> SearchStrategy[Case]:
    return _cases()


def log_step_of(case: Case) -> float:
    """log η: the array ``eta`` if given, 1/L_p otherwise."""
    if "eta" in case.arrays:
        return math.log(float(case.arrays["eta"]))
    return -case.problem.log_smoothness


def with_cone(case: Case) -> Case:
    """The case with μ and R of Theorem 3 as arrays ``cone_mu`` and ``cone_radius``, where they exist."""
    normal = case.normalise()
    solution = REFERENCE.max_margin(normal.problem.exact_keys, normal.chosen_tokens)
    constants = None if isinstance(solution, Infeasible) else local_constants(normal.problem, solution)
    cone = None if constants is None else invariant_cone(constants, log_step_of(normal))
    if cone is None:
        return case
    arrays = {"cone_mu": np.array(cone.start_mu), "cone_radius": np.array(cone.radius / case.problem.key_scale)}
    return case.replace(arrays=MappingProxyType({**case.arrays, **arrays}))


def _from_data(case: Case) -> Iterator[Case]:
    for chosen in locally_optimal_choices(case):
        yield with_cone(chosen)


@statement(
    "theorem-3",
    "Local convergence of gradient descent",
    source="Section 2, Theorem 3",
    claims=always(
        "svm-is-optimal",
        "run-is-the-one-asked-for",
        "iterate-is-a-step",
        "flow-is-the-one-asked-for",
        "locally-optimal-is-definition-2",
        "no-stationary-point",
        "stays-in-cone",
        "increments",
        "norm-grows",
        "log-growth",
        "correlation",
        "flow-rate",
        "limit",
    ),
    states=("no-stationary-point", "limit"),
    premises=(
        "svm-is-optimal",
        "run-is-the-one-asked-for",
        "iterate-is-a-step",
        "flow-is-the-one-asked-for",
        "locally-optimal-is-definition-2",
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
    """Let Assumption A hold and α be locally optimal. There are μ and R such that, with p_mm = p_mm(α),

        T1. C_{μ,R}(p_mm) contains no stationary point of L;
        T2. GD with η ≤ 1/L_p from any p(0) in C_{μ,R}(p_mm) has ‖p(t)‖ → ∞ and p(t)/‖p(t)‖ → p_mm/‖p_mm‖.

    μ and R come from the data: :mod:`.invariant_cone` derives them from the constants of Lemma 7, with all the
    inequalities below. Starts lie in C_{μ/4,R}, iterates in a cone K ⊂ cone_μ whose tip a is moved towards the ray
    that GD converges to; p' = p − a, ρ' = ‖p'‖/‖p_mm‖, ν' = 1 − cos(p', p_mm), π' = κ/ρ' − ν'.

    Effective forms, at each iteration from several starts: 1000 of GD with η = 1/L_p (fewer where n T d is large), its
    increments tracked in their own scale where they underflow next to p (they are e^{−1000} or less where R is large),
    and steps along −∇L as long as the proof allows, which take ‖p‖ through orders of magnitude.
    - run-is-the-one-asked-for, iterate-is-a-step (exact): GD starts at p(0), and p(t+1) = p(t) − η∇L(p(t)) to rounding.
    - no-stationary-point: −⟨∇L, p̄_mm⟩ ≥ C e^{−⟨p, p_mm⟩/‖p_mm‖²}.
    - stays-in-cone: ν' ≤ μ; near the boundary of K a step of GD leads away from it.
    - increments: ⟨Δ, p̄_mm⟩ ≥ ⟨Δ, p̄'⟩/(1 + π').
    - norm-grows: ‖p(t+1)‖ > ‖p(t)‖ by at least ⟨Δ, p̄⟩ ≥ (C⁻/C⁺)‖Δ‖ (L2 for q = p).
    - log-growth: ⟨p(t), p̄_mm⟩ ≥ P log(e^{⟨p(0), p̄_mm⟩/P} + ηCt/P), P = ‖p_mm‖.
    - correlation: the increments summed, cos(p'(t), p_mm) ≥ (⟨p'(0), p̄_mm⟩ + Σ ⟨Δ, p̄'⟩/(1 + π'))/‖p'(t)‖.

    Limit. Gradient flow satisfies ν'ρ'² ≤ ν'_0ρ'_0² + κ(ρ' − ρ'_0) (flow-rate), whence a proven bound of the angle
    between p and p_mm that falls like 1/‖p‖ at the offset (limit): 1 − cos ~ 1/‖p‖². It is followed to ‖p‖ = 1e6 and
    far enough that the angle allowed at the start would give 1 − cos ≤ 1e-9. The only tolerance is the accuracy of
    the solver.
    """
    problem = case.problem
    solution = yield from certify(problem, case.chosen_tokens, under_test)
    yield local_optimality_claim(problem, case.chosen_tokens, solution, under_test)
    constants = local_constants(problem, solution)
    log_step = log_step_of(case)
    cone = None if constants is None else invariant_cone(constants, log_step)
    if constants is None or cone is None or not is_resolvable(constants, cone.height):
        raise Undecided("no-stationary-point", too_thin(constants), Form.EFFECTIVE)
    # The cone is that of the theorem's step size; the descent in it takes the implementation's.
    taken = log_step if "eta" in case.arrays else -under_test.log_smoothness(problem)
    yield from claims(cone, under_test, taken, case.rng(), case.start)


def claims(
    cone: InvariantCone,
    under_test: Implementation,
    log_step: float,
    rng: np.random.Generator,
    given: Float64[np.ndarray, "d"] | None = None,
) -> Iterator[Claim]:
    """The claims in this cone; a test passes a wrong one."""
    yield no_stationary_point(cone, under_test, rng)
    if given is not None and not (cone.contains(given) and is_resolvable(cone.constants, _rho(cone, given))):
        reason = f"float64 resolves no logits at the given start, of norm {np.linalg.norm(given):.3g}"
        yield undecided_claim("stays-in-cone", reason, Form.EFFECTIVE)
        given = None
    starts = _starts(cone, rng, given)
    room = resolvable_rho(cone.constants) * cone.constants.norm / float(np.linalg.norm(starts, axis=1).max())
    problem = cone.constants.problem
    steps, longest = (affordable(problem, most, ENTRIES // len(starts)) for most in (STEPS, LONGEST_STEPS))
    most = growth(longest, float(np.clip(room, 2.0, MOST_GROWTH)), len(starts))
    gd = descent(problem, under_test, starts, log_step, steps)
    asked = starts_claim("run-is-the-one-asked-for", gd.points, starts, steps)
    yield asked
    if asked.verdict is Verdict.FALSIFIED:
        return
    long = longest_steps(cone, under_test, starts, most)
    if not (np.isfinite(gd.points).all() and np.isfinite(long.points).all()):
        raise NotANumber("stays-in-cone", "an iterate of gradient descent is not finite")
    along, taken = iterates(cone, under_test, gd), iterates(cone, under_test, long)
    views = (along[0], taken[0])
    made = [
        is_a_step(gd, *along, log_step),
        stays_in_cone(cone, gd, views),
        increments(cone, views),
        norm_grows(cone, views),
        log_growth(cone, *along, log_step),
        correlation(cone, long, *taken),
    ]
    yield from made
    # The flow of a gradient that is known to be wrong costs most and says least.
    if not any(claim.verdict is Verdict.FALSIFIED for claim in made):
        yield from flow_claims(cone, under_test, starts)


def _rho(cone: InvariantCone, p: Float64[np.ndarray, "d"]) -> float:
    return float(np.linalg.norm(p)) / cone.constants.norm


def _starts(
    cone: InvariantCone, rng: np.random.Generator, given: Float64[np.ndarray, "d"] | None
) -> Float64[np.ndarray, "b d"]:
    """Starts in C_{μ/4,R}, at R and beyond; the given one first."""
    norms = cone.radius * (1 + 1e-9) * np.array(START_NORMS)
    starts = cone_points(rng, cone.constants, norms, cone.start_mu)
    if given is not None:
        starts = np.concatenate([given[None], starts])
    return starts
