"""The claims of Theorem 3 in an invariant cone; the inequalities are derived in :mod:`.invariant_cone`.

A caller passes the cone, so a test can pass a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from reference_attention.training.flow import Flow, gradient_flow
from theorems.core.claim import Claim, Form, at_least, undecided
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.tolerances import tolerance
from theorems.rounding.evaluation import GRADIENT
from theorems.token_selection.local_paths.cone_descent import Descent
from theorems.token_selection.local_paths.cone_points import ConeView, cone_points, is_followable, resolvable_rho
from theorems.token_selection.local_paths.invariant_cone import SLACK, InvariantCone, cone_for_flow

CONE = tolerance(
    "cone",
    "(d + 8) eps (‖p‖ + ‖a‖)/‖p − a‖ · √(2ν')",
    "1 − cos = |p̄' − p̄_mm|²/2, and the unit vectors carry (d + 8) eps of the vectors they were made of; the drift"
    " of a step has the rounding of the gradient",
)
INCREMENTS = tolerance(
    "increments",
    "Σ_{s<t} ‖Δ(s)‖ (|err ∇L|/|∇L| √(2ν' + 2|π'|) + (d + 64) eps); for logarithms 2 err log s + (t + 64) eps"
    " (1 + |exponent|)",
    "each increment inherits the rounding of its gradient, times the part of p̄' − p̄_mm that the inequality sees;"
    " sums of t increments add t eps",
)
FLOW_SOLVER = tolerance(
    "flow-solver",
    "√d · evaluations · (rtol · |z| + atol)/‖p_mm‖",
    "a step of the solver has a local error of rtol |z| + atol per coordinate across p_mm, z the part of p there, and"
    " costs at least one gradient; lateral errors do not grow along the path, because it descends a convex function"
    " of the lateral coordinates",
)

VISIBLE = 1e-9
"""The 1 − cos at which a limit counts as seen."""

SHARES = (1e-6, 1e-4, 1e-2)
"""Absolute tolerances of the solver, in units of the cone's half-width at the start, in the order in which they are
tried.
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
    value, rounding = view.along(np.broadcast_to(constants.solution.direction, points.shape))
    least = view.in_units(constants.log_descent(cone.height, axis=True) - view.axial)
    rounding = rounding + least * np.expm1(view.log_error)
    scale = np.maximum(least, rounding) + 1e-300
    return at_least("no-stationary-point", Form.EFFECTIVE, value, least, rounding=rounding, scale=scale, why=GRADIENT)


def iterates(cone: InvariantCone, under_test: Implementation, descent: Descent) -> ConeView:
    """The distinct iterates in one batch, the last ones included."""
    flat = descent.points.reshape(-1, descent.points.shape[-1])
    return ConeView(cone.constants, np.unique(flat, axis=0), under_test, cone.tip)


def stays_in_cone(cone: InvariantCone, gd: Descent, views: list[ConeView]) -> Claim:
    """μ − ν' ≥ 0 at every iterate; and h(p + Δ) ≥ h(p) for GD at starts near the boundary of K."""
    constants, mu = cone.constants, cone.constants.mu
    inside = [(mu - view.nu, view.nu_error, np.full(len(view.nu), mu)) for view in views]
    view = ConeView(constants, gd.points[0], views[0].under_test, cone.tip)
    near = view.nu >= (1 - SLACK) * mu
    value, rounding = view.along(mu * constants.solution.direction - (1 - mu) * view.apart)
    size = np.maximum(np.linalg.norm(view.descent, axis=1), 1e-300)
    second = (1 - mu) * np.exp(np.minimum(gd.log_sizes[0], 700.0)) / (2 * view.lengths)
    inside.append(((value / size - second)[near], (rounding / size)[near], np.full(int(near.sum()), mu)))
    value, rounding, scale = _joined(inside)
    return at_least(
        "stays-in-cone", Form.EFFECTIVE, value, 0.0, rounding=rounding, scale=scale, why=CONE, points="iterate"
    )


def increments(cone: InvariantCone, views: list[ConeView]) -> Claim:
    """⟨Δ, p̄_mm⟩ (1 + π') ≥ ⟨Δ, p̄'⟩."""
    value, rounding, scale = _joined(
        [(*view.correlation(cone.kappa), np.maximum(np.linalg.norm(view.descent, axis=1), 1e-300)) for view in views]
    )
    return at_least(
        "increments", Form.EFFECTIVE, value, 0.0, rounding=rounding, scale=scale, why=GRADIENT, points="iterate"
    )


def norm_grows(cone: InvariantCone, views: list[ConeView]) -> Claim:
    """⟨Δ, p̄⟩ ≥ (C⁻/C⁺)‖Δ‖ > 0 (L2 with q = p)."""
    rho = cone.height
    share = math.exp(cone.constants.log_lower(rho) - cone.constants.log_upper(rho))
    rows = []
    for view in views:
        value, rounding = view.along(view.points / np.linalg.norm(view.points, axis=1, keepdims=True))
        size = np.linalg.norm(view.descent, axis=1)
        least = share * size
        # Without a descent direction there is no growth, although 0 ≥ 0; the share alone may underflow.
        rows.append((np.where(size > 0, value, -1.0), least, rounding + share * np.linalg.norm(view.own.error, axis=1)))
    value, least, rounding = _joined(rows)
    scale = np.maximum(np.maximum(least, rounding), 1e-300)
    return at_least(
        "norm-grows", Form.EFFECTIVE, value, least, rounding=rounding, scale=scale, why=GRADIENT, points="iterate"
    )


def log_growth(cone: InvariantCone, gd: Descent, log_step: float) -> Claim:
    """log ⟨p(t) − p(0), p̄_mm⟩ ≥ log(P log1p((ηC/P) t e^{−Z(0)/P})) for t = 1 … 1000, Z(0) = ⟨p(0), p̄_mm⟩."""
    constants, starts = cone.constants, gd.points[0]
    norm, axis = constants.norm, constants.solution.direction
    first = (starts @ axis) / norm
    axial = gd.moved @ axis
    count = np.arange(1, len(axial) + 1)[:, None]
    log_rate = log_step + constants.log_descent(cone.height, axis=True) - math.log(norm)
    exponent = log_rate + np.log(count) - first
    small = exponent < -30
    log_least = math.log(norm) + np.where(small, exponent, np.log(np.log1p(np.exp(np.where(small, 0.0, exponent)))))
    moved = axial > 0
    log_moved = np.where(moved, np.log(np.where(moved, axial, 1.0)) + gd.log_unit, -1e300)
    view = ConeView(constants, starts, REFERENCE, np.zeros(starts.shape[1]))
    rounding = 2 * view.log_error + (len(axial) + 64) * EPS * (1 + np.abs(exponent)) + 2 * _relative(view)
    return at_least(
        "log-growth", Form.EFFECTIVE, log_moved, log_least, rounding=rounding, why=INCREMENTS, points="iterate"
    )


def correlation(cone: InvariantCone, long: Descent) -> Claim:
    """cos(p'(t), p_mm)·‖p'(t)‖ ≥ ⟨p'(0), p̄_mm⟩ + Σ_{s<t} ⟨Δ(s), p̄'(s)⟩/(1 + π'(s))."""
    constants, axis, d = cone.constants, cone.constants.solution.direction, long.points.shape[-1]
    moved = long.points - cone.tip
    length = np.linalg.norm(moved, axis=-1)
    apart = moved / length[..., None] - axis
    nu = np.sum(apart * apart, axis=-1)[:-1] / 2 if d > 1 else np.zeros(long.log_sizes.shape)
    pi = cone.kappa * constants.norm / length[:-1] - nu
    size = np.exp(long.log_sizes)
    axial = np.sum(long.directions * axis, axis=-1)
    # 1/(1 + π') − 1 taken out: what remains of the increments is small and does not cancel.
    excess = size * (np.sum(long.directions * apart[:-1], axis=-1) - pi * axial) / (1 + pi)
    left = -np.cumsum(excess, axis=0)
    view = ConeView(constants, long.points[:-1].reshape(-1, d), REFERENCE, cone.tip)
    gradient = _relative(view).reshape(pi.shape) * np.sqrt(2 * nu + 2 * np.abs(pi))
    rounding = np.cumsum(size * (gradient + (d + 64) * EPS), axis=0)
    return at_least(
        "correlation",
        Form.EFFECTIVE,
        left,
        0.0,
        rounding=rounding,
        scale=length[1:],
        why=INCREMENTS,
        points="iterate",
    )


def flow_claims(cone: InvariantCone, under_test: Implementation, starts: Batch) -> Iterator[Claim]:
    """Gradient flow in the cone: ν'ρ'² stays below its bound, and the angle to p_mm ends below the proven one.

    From the first of the starts from which float64 can follow it; at norms of 1e7 and more a solver may chatter in the
    valley of the path at one tolerance, or from one start, and not at the next.
    """
    constants, norm = cone.constants, cone.constants.norm
    factor = max(10.0, 2 * math.sqrt(cone.start_mu / VISIBLE))
    reason = "float64 cannot follow it in this cone, where lateral forces cancel to rounding"
    for start in starts:
        begin = float(np.linalg.norm(start))
        goal = min(max(LOWEST_GOAL, factor * begin), resolvable_rho(constants) * norm)
        if not is_followable(constants, begin / norm) or goal < 2 * begin:
            continue
        width = math.sqrt(2 * constants.mu) * begin
        for share in SHARES:
            flow = gradient_flow(
                constants.problem,
                start,
                norm=goal,
                gradient=under_test.scaled_gradient,
                axis=constants.solution.p,
                absolute=share * width,
            )
            if flow.norms[-1] >= 2 * begin:
                yield from _along(cone_for_flow(constants, start, goal) or cone, flow)
                return
            reason = f"{flow.reason or flow.stop.value} at ‖p‖ = {flow.norms[-1]:.3g}"
    yield undecided("flow-rate", f"flow: {reason}", Form.EFFECTIVE)


def _along(around: InvariantCone, flow: Flow) -> Iterator[Claim]:
    constants, norm, start = around.constants, around.constants.norm, flow.points[0]
    view = ConeView(constants, flow.points, REFERENCE, around.tip)
    bound = np.array([around.lateral_squared(start, length) for length in view.rho])
    value = np.sqrt(2 * view.nu) * view.rho
    # The solver works in a frame along p_mm: its tolerances are on the part of p across it.
    across = np.maximum(np.sqrt(2 * bound), value) + float(np.linalg.norm(around.apex.offset)) / norm
    steps = flow.evaluations * math.sqrt(constants.problem.d)
    lateral = steps * (flow.relative * across + flow.absolute / norm)
    rounding = lateral + (np.sqrt(2 * (view.nu + view.nu_error)) - np.sqrt(2 * view.nu)) * view.rho
    yield at_least(
        "flow-rate", Form.EFFECTIVE, np.sqrt(2 * bound), value, rounding=rounding, why=FLOW_SOLVER, points="record"
    )
    end = float(flow.norms[-1])
    proven = around.flow_angle(start, end)
    reached = math.sqrt(2 * float(flow.one_minus_cosine(constants.solution.p)[-1]))
    rounding = lateral[-1] * norm / end + 8 * EPS
    claim = at_least("limit", Form.LIMIT, proven, reached, rounding=rounding, why=FLOW_SOLVER, points="end")
    yield claim


def _relative(view: ConeView) -> Float64[np.ndarray, "m"]:
    """Relative rounding of the gradient."""
    return np.asarray(
        np.linalg.norm(view.own.error, axis=1) / np.maximum(np.linalg.norm(view.own.direction, axis=1), 1e-300)
    )


def _joined(rows: Sequence[tuple[Float64[np.ndarray, "_"], ...]]) -> tuple[Float64[np.ndarray, "_"], ...]:
    return tuple(np.concatenate([row[k] for row in rows]) for k in range(len(rows[0])))
