"""The claims of Theorem 3 in an invariant cone; the inequalities are derived in :mod:`.invariant_cone`.

A caller passes the cone, so a test can pass a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float64, Int64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.training.flow import Flow
from theorems.bounded import exact, value_of, with_rounding
from theorems.core.claim import Claim, Form, Verdict, at_least, undecided_claim
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.tolerances import tolerance
from theorems.curves.flow_chords import start_and_norms
from theorems.rounding.approximate import approximate
from theorems.rounding.attention_at import Numbers
from theorems.rounding.steps import steps_claim
from theorems.token_selection.local_paths.cone_descent import Descent
from theorems.token_selection.local_paths.cone_points import (
    ConeView,
    cone_points,
    is_followable,
    resolvable_rho,
)
from theorems.token_selection.local_paths.invariant_cone import SLACK, InvariantCone, cone_for_flow

FLOW_SOLVER = tolerance(
    "flow-solver",
    "√d · evaluations/3 · (rtol · |z| + atol)/‖p_mm‖, 0 for d = 1; no more than a quarter of the bound",
    "a step of the solver has a local error of rtol |z| + atol per coordinate across p_mm, z the part of p there, and"
    " costs at least three gradients, its own, one at its end and one half-way for the time; lateral errors do not grow"
    " along the path, because it descends a convex function of the lateral coordinates",
)

VISIBLE = 1e-9
"""The 1 − cos at which a limit counts as seen."""

SHARES = (1e-8, 1e-7, 1e-6)
"""Absolute tolerances of the solver, in units of the cone's half-width at the start, in the order in which they are
tried.
"""

VACUOUS = 0.25
"""Where the solver's accuracy is no better than this share of the bound, the claim says nothing. It comes near only at
norms of 1e10, where a rounding of p is as long as that.
"""

LOWEST_GOAL = 1e6
"""Flow is followed at least to this norm (keys of order one)."""

Batch = Float64[np.ndarray, "m d"]


def no_stationary_point(cone: InvariantCone, under_test: Implementation, rng: np.random.Generator) -> Claim:
    """T1: −⟨∇L, p̄_mm⟩ ≥ C e^{−ζ} in cone_μ, from the radius of the starts to a thousand times that."""
    constants = cone.constants
    norms = cone.radius * (1 + 1e-9) * np.geomspace(1, 1e3, 64)
    norms = norms[norms <= resolvable_rho(constants) * constants.norm]
    points = cone_points(rng, constants, norms, constants.mu)
    view = ConeView(constants, points, under_test, np.zeros(constants.problem.d))
    log_least = constants.carrying.log_descent(cone.height, axis=True)
    return at_least("no-stationary-point", Form.EFFECTIVE, *view.descends(log_least))


def iterates(
    cone: InvariantCone, under_test: Implementation, descent: Descent
) -> tuple[ConeView, Int64[np.ndarray, "records b"]]:
    """The distinct iterates in one batch, the last ones included, and which of them each iterate is."""
    flat = descent.points.reshape(-1, descent.points.shape[-1])
    distinct, which = np.unique(flat, axis=0, return_inverse=True)
    return ConeView(cone.constants, distinct, under_test, cone.tip), which.reshape(descent.points.shape[:2])


def is_a_step(run: Descent, view: ConeView, which: Int64[np.ndarray, "records b"], log_step: float) -> Claim:
    """Every iterate of gradient descent is followed by p − η∇L(p)."""
    at, points = which[:-1], run.points
    return steps_claim("iterate-is-a-step", points[:-1], points[1:], -view.descent[at], view.log_scale[at], log_step)


def stays_in_cone(cone: InvariantCone, gd: Descent, views: Sequence[ConeView]) -> Claim:
    """μ ≥ ν' at every iterate; and h(p + Δ) ≥ h(p) for GD at starts near the boundary of K."""
    mu = cone.constants.mu
    view = ConeView(cone.constants, gd.points[0], views[0].under_test, cone.tip)
    near = view.nu >= (1 - SLACK) * mu
    inward = np.vecdot(view.descent, mu * view.axis - (1 - exact(mu)) * view.deviation)
    length = np.exp(exact(np.minimum(gd.log_sizes[0], 700.0)))
    second = (1 - exact(mu)) * length / (2 * norm(view.from_tip, axis=1)) * norm(view.descent, axis=1)
    sides = [(np.full_like(x.nu, mu), x.nu) for x in views]
    left, right = _join([*sides, (inward[near], second[near])])
    return at_least("stays-in-cone", Form.EFFECTIVE, left, right, points="iterate")


def increments(cone: InvariantCone, views: Sequence[ConeView]) -> Claim:
    """⟨Δ, p̄_mm⟩ (1 + π') ≥ ⟨Δ, p̄'⟩."""
    left, right = _join([view.correlation(view.pi(cone.kappa)) for view in views])
    return at_least("increments", Form.EFFECTIVE, left, right, points="iterate")


def norm_grows(cone: InvariantCone, views: Sequence[ConeView]) -> Claim:
    """⟨Δ, p̄⟩ ≥ (C⁻/C⁺)‖Δ‖ > 0 (L2 with q = p)."""
    constants, rho = cone.constants.carrying, cone.height
    share = np.exp(constants.log_lower(rho) - constants.log_upper(rho))
    sides = []
    for view in views:
        outward = np.vecdot(view.descent, view.points) / norm(exact(view.points), axis=1)
        # Without a descent direction there is no growth, although 0 ≥ 0.
        moves = np.any(value_of(view.descent) != 0, axis=1)
        sides.append((np.where(moves, outward, -1.0), share * norm(view.descent, axis=1)))
    left, right = _join(sides)
    return at_least("norm-grows", Form.EFFECTIVE, left, right, points="iterate")


def log_growth(cone: InvariantCone, view: ConeView, which: Int64[np.ndarray, "records b"], log_step: float) -> Claim:
    """⟨p(t) − p(0), p̄_mm⟩ ≥ P log1p((ηC/P) t e^{−Z(0)/P}) for t = 1 … 1000, Z(0) = ⟨p(0), p̄_mm⟩.

    Both sides are divided by e^{unit} of :func:`progress`.
    """
    constants, p_mm = cone.constants.carrying, with_rounding(cone.constants.solution.p)
    left, unit = progress(view, which, log_step)
    # An iterate is rounded as it is made, and the gradient is that of the rounded one.
    drift = len(which) * EPS * np.abs(view.points[which]).max(axis=0)
    starts = approximate(view.points[which[0]], drift)
    first = starts @ p_mm / np.vecdot(p_mm, p_mm)
    rate = log_step + constants.log_descent(cone.height, axis=True) - np.log(constants.norm)
    exponent = rate + np.log(exact(np.arange(1, len(which))))[:, None] - first
    # log1p(e^x) is e^x up to e^{2x}/2.
    far = exponent.value < -700
    log_least = np.where(far, exponent.widen(1e-300), np.log(np.log1p(np.exp(np.where(far, 0.0, exponent)))))
    least = np.exp(np.minimum(np.log(constants.norm) + log_least - unit, 700.0))
    return at_least("log-growth", Form.EFFECTIVE, left, least, points="iterate")


def progress(
    view: ConeView, which: Int64[np.ndarray, "records b"], log_step: float
) -> tuple[Numbers, Float64[np.ndarray, "b"]]:
    """⟨p(t) − p(0), p̄_mm⟩ e^{−unit} = Σ_{s<t} η⟨−∇L(p(s)), p̄_mm⟩ e^{−unit}, (t, b), in whose units no increment is
    lost however small; and unit.
    """
    scales = view.log_scale[which[:-1]]
    unit = log_step + scales[0]
    steps = np.exp(np.minimum(exact(log_step) + scales - unit, 700.0))
    return np.cumsum(steps * (view.descent @ view.axis)[which[:-1]], axis=0), unit


def correlation(cone: InvariantCone, long: Descent, view: ConeView, which: Int64[np.ndarray, "records b"]) -> Claim:
    """⟨p'(t), p̄_mm⟩ ≥ ⟨p'(0), p̄_mm⟩ + Σ_{s<t} ⟨Δ(s), p̄'(s)⟩/(1 + π'(s)), on both sides less Σ ⟨Δ(s), p̄_mm⟩/(1 + π'(s)).

    Δ(s) = −η_s∇L(p(s)), the step η_s as it was taken.
    """
    at, pi = which[:-1], view.pi(cone.kappa)
    size = norm(value_of(view.descent), axis=1)[at]
    taken = np.where(size > 0, np.exp(long.log_sizes) / np.where(size > 0, size, 1.0), 0.0)
    left, right = (np.cumsum(taken * (side / (1 + pi))[at], axis=0) for side in view.correlation(pi))
    return at_least("correlation", Form.EFFECTIVE, left, right, points="iterate")


def flow_claims(cone: InvariantCone, under_test: Implementation, starts: Batch) -> Iterator[Claim]:
    """Gradient flow in the cone: ν'ρ'² stays below its bound, and the angle to p_mm ends below the proven one.

    From the first of the starts from which float64 can follow it; at norms of 1e7 and more a solver may chatter in the
    valley of the path at one tolerance, or from one start, and not at the next.
    """
    constants, length = cone.constants, cone.constants.norm
    factor = max(10.0, 2 * math.sqrt(cone.start_mu / VISIBLE))
    reason = "float64 cannot follow it in this cone, where lateral forces cancel to rounding"
    for start in starts:
        begin = float(norm(start))
        goal = min(max(LOWEST_GOAL, factor * begin), resolvable_rho(constants) * length)
        if not is_followable(constants, begin / length) or goal < 2 * begin:
            continue
        width = math.sqrt(2 * constants.mu) * begin
        for share in SHARES:
            flow = under_test.gradient_flow(
                constants.problem,
                start,
                norm=goal,
                gradient=under_test.scaled_gradient,
                axis=constants.solution.p,
                absolute=share * width,
            )
            asked = start_and_norms(flow, start, goal)
            if asked.verdict is Verdict.FALSIFIED:
                yield asked
                return
            if flow.norms[-1] >= 2 * begin:
                made = list(_along(cone_for_flow(constants, start, goal) or cone, flow))
                if all(claim.tolerance <= VACUOUS for claim in made):
                    yield asked
                    yield from made
                    return
                reason = f"its solver's accuracy is {max(claim.tolerance for claim in made):.3g} of what is claimed"
                continue
            reason = f"{flow.reason or flow.stop.value} at ‖p‖ = {flow.norms[-1]:.3g}"
    # A solver of the suite's own did not get there: that says nothing about what is under test.
    yield replace(undecided_claim("flow-rate", f"flow: {reason}", Form.EFFECTIVE), not_found=True)


def _along(around: InvariantCone, flow: Flow) -> Iterator[Claim]:
    constants, length, start = around.constants, around.constants.norm, flow.points[0]
    view = ConeView(constants, flow.points, REFERENCE, around.tip)
    bound = np.sqrt([2 * around.lateral_squared(start, rho) for rho in value_of(view.rho).tolist()])
    value = norm(view.deviation, axis=1) * view.rho
    # The solver works in a frame along p_mm: its tolerances are on the part of p across it.
    across = np.maximum(bound, value_of(value)) + norm(around.apex.offset) / length
    d = constants.problem.d
    # In one dimension nothing lies across.
    steps = flow.evaluations / 3 * (math.sqrt(d) if d > 1 else 0.0)
    lateral = steps * (flow.relative * across + flow.absolute / length)
    # In units of the bound at the end, or of the cone's width where there is nothing across.
    unit = max(float(bound.max()), math.sqrt(2 * constants.mu) * float(flow.norms[0]) / length)
    sides = bound, value.widen(lateral)
    yield at_least("flow-rate", Form.EFFECTIVE, *sides, why=FLOW_SOLVER, scale=unit, points="record")
    end = float(flow.norms[-1])
    proven = around.flow_angle(start, end)
    reached = math.sqrt(2 * float(flow.one_minus_cosine(constants.solution.p)[-1]))
    rounding = lateral[-1] * length / end + 8 * EPS
    yield at_least("limit", Form.LIMIT, proven, reached, rounding=rounding, why=FLOW_SOLVER, points="end")


def _join(sides: Sequence[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    left, right = (np.concatenate(parts) for parts in zip(*sides, strict=True))
    return left, right
