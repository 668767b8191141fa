"""The joint regularization path: argmin L(v, p) over ‖v‖ ≤ r, ‖p‖ ≤ R, along a schedule R ↦ r(R).

The objective is :func:`reference_attention.paths.joint_risk.relative_log_risk`, so r = e^{RΘ} and RΘ = 10⁶ are routine.
Where r e^{−RΘ} is not tiny, (v, p) are minimised together. Where it is tiny, p does not change the digits of L, so head
and prompt are minimised in turn, the prompt on the log-excess risk; each turn gains as many digits as r e^{−RΘ} has
zeros. Both constraints are active, so the search is on the two spheres.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, Theorems 5 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64

from reference_attention.paths.joint_newton import (
    JointObjective,
    PromptObjective,
    Spheres,
    beside_ties,
    complement,
    descend,
)
from reference_attention.paths.joint_risk import Joint, exponents, relative_log_risk
from reference_attention.paths.large_head_descent import LARGE_HEAD, descend_large_heads

Schedule = Callable[[float], float]
"""A function R ↦ log r."""

LOST = 1e-3
"""Norm of the gradient of the log-excess; a descent that ends above it was stopped by rounding, far from its goal."""
COUPLED = -9.0
"""Value of log(r max_i q_i), with q_i = 1 − s_iα, above which head and prompt are minimised together."""
TURNS = 6
"""Number of alternations between head and prompt; each multiplies the error by about r max q ≤ e^{COUPLED}."""
GRADIENT = 1e-10
"""Norm of the gradient of log L at which descent ends at the requested radii."""
ON_THE_WAY = 1e-4, 1e-3
"""Criteria for ending a descent at radii between the requested ones: the norm of the gradient, and the decrease per
step."""
GROWTH = 4.0
"""Ratio of successive radii in the continuation between the requested radii, while logits are small."""
LATE, LATE_GROWTH = 256.0, 16.0
"""Value of max‖k_iα − k_it‖ R beyond which p(R) is nearly a straight line, and the ratio of successive radii beyond
it."""
MOST_STEPS = 24
"""Largest number of radii on the way to a requested radius; after them the search jumps to that radius, and the
residual tells whether it succeeded."""
HARMLESS, SMALLEST_GROWTH = 8.0, 1.2
"""Largest log L + rΓ of a starting point for which all inputs count as selecting their tokens (at the minimiser it is
at most about log 2), and the ratio of radii below which a step is no longer shortened."""


def linear_schedule(ratio: float) -> Schedule:
    """Return the schedule r = ratio·R."""
    return lambda R: math.log(ratio * R)


def exponential_schedule(rate: float, unit: float = 1.0) -> Schedule:
    """Return the schedule r = max(R, e^{rate·R}/unit)."""
    return lambda R: max(math.log(R), rate * R - math.log(unit))


@dataclass(frozen=True, eq=False)
class JointPath:
    """Minimisers along a schedule.

    Attributes:
        radii: R, shape (k,).
        log_head_radii: log r, shape (k,).
        offsets: w = v − r v̄_mm, shape (k, d).
        prompts: p, shape (k, dk).
        residuals: norm of the remaining projected gradients, shape (k,).
    """

    radii: Float64[np.ndarray, "k"]
    log_head_radii: Float64[np.ndarray, "k"]
    offsets: Float64[np.ndarray, "k d"]
    prompts: Float64[np.ndarray, "k dk"]
    residuals: Float64[np.ndarray, "k"]


def joint_path(
    joint: Joint,
    schedule: Schedule,
    radii: Float64[np.ndarray, "k"],
    start: Float64[np.ndarray, "dk"],
    *,
    most_steps: int = MOST_STEPS,
) -> JointPath:
    """Follow the minimiser from the direction ``start`` at a small radius to each of ``radii`` (increasing).

    This is a local search. Near R = 0 the risk is nearly linear in p, so the start does not matter; tests compare
    several starts.
    """
    basis = complement(joint.svm.direction)
    unit = joint.longest_row
    branch = begin_branch(joint, basis, schedule, min(1.0 / unit, float(radii[0])), start, GRADIENT)
    branches = []
    for goal in radii.tolist():
        branch = advance_branch(joint, basis, schedule, branch, goal, most_steps=most_steps)
        branches.append(branch)
    return path_of(branches)


@dataclass(frozen=True, eq=False)
class Branch:
    """A local minimiser that is being followed.

    Attributes:
        spheres: the spheres on which the minimiser lies.
        y, p: the head's part orthogonal to v̄_mm, and the prompt.
        residual: norm of the remaining projected gradients.
        before: the previous radius and prompt.
    """

    spheres: Spheres
    y: Float64[np.ndarray, "e"]
    p: Float64[np.ndarray, "dk"]
    residual: float
    before: tuple[float, Float64[np.ndarray, "dk"]] | None = None

    @cached_property
    def rank(self) -> float:
        """Return an upper bound of log L + rΓ, given the rounding of outputs; lower is better, and inf is worst."""
        spheres = self.spheres
        value = float(JointObjective(spheres).values(self.y, self.p))
        value += spheres.joint.output_rounding(spheres.offset(self.y))
        return value if math.isfinite(value) else math.inf


def begin_branch(
    joint: Joint,
    basis: Float64[np.ndarray, "d e"],
    schedule: Schedule,
    R: float,
    start: Float64[np.ndarray, "dk"],
    *ends: float,
) -> Branch:
    """Return the local minimiser at R that descent reaches from the head r v̄_mm and the prompt R·start/‖start‖."""
    spheres = Spheres(joint, schedule(R), R, basis)
    return Branch(
        spheres, *_minimise(spheres, np.zeros(basis.shape[1]), R * joint.unit_prompt(start), *(ends or ON_THE_WAY))
    )


def advance_branch(
    joint: Joint,
    basis: Float64[np.ndarray, "d e"],
    schedule: Schedule,
    branch: Branch,
    goal: float,
    *,
    final: bool = True,
    most_steps: int = MOST_STEPS,
) -> Branch:
    """Return the branch continued to a larger radius.

    Args:
        joint: the tokens, keys and α, and the solution of (SVM).
        basis: an orthonormal basis of the complement of v̄_mm, (d, e).
        schedule: R ↦ log r.
        branch: the branch so far.
        goal: the radius to reach.
        final: whether to descend as far as rounding allows at that radius.
        most_steps: largest number of radii on the way.
    """
    steps = 0
    while goal > branch.spheres.R:
        steps += 1
        target, first = _next(joint, basis, schedule, branch, goal)
        if steps > most_steps:
            target, first = goal, branch.p * (goal / branch.spheres.R)
        spheres = Spheres(joint, schedule(target), target, basis)
        ends = (GRADIENT,) if final and target == goal else ON_THE_WAY
        before = (branch.spheres.R, branch.p)
        branch = Branch(spheres, *_minimise(spheres, branch.y, first, *ends), before)
    return branch


def polish_branch(branch: Branch) -> Branch:
    """Return the branch at the same radius, after descending as far as rounding allows."""
    return Branch(branch.spheres, *_minimise(branch.spheres, branch.y, branch.p, GRADIENT), branch.before)


def descend_at_radius(
    joint: Joint, schedule: Schedule, R: float, start: Float64[np.ndarray, "dk"], heads: Float64[np.ndarray, "d"]
) -> JointPath:
    """Return the local minimiser at one radius that descent reaches from a given prompt and head.

    The prompt is R·start/‖start‖, and the offset of the head is ``heads``.
    """
    spheres = Spheres(joint, schedule(R), R, complement(joint.svm.direction))
    return path_of(
        [Branch(spheres, *_minimise(spheres, spheres.basis.T @ heads, R * joint.unit_prompt(start), GRADIENT))]
    )


def head_at(joint: Joint, log_r: float, p: Float64[np.ndarray, "dk"]) -> Float64[np.ndarray, "d"]:
    """Return the offset w of the best head of radius r for a fixed prompt, shape (d,); the problem is convex."""
    spheres = Spheres(joint, log_r, float(np.linalg.norm(p)), complement(joint.svm.direction))
    y, _, _ = descend(JointObjective(spheres, moves=False), np.zeros(spheres.basis.shape[1]), p, GRADIENT)
    return spheres.offset(y)


def prompt_at(
    joint: Joint, log_r: float, R: float, w: Float64[np.ndarray, "d"], start: Float64[np.ndarray, "dk"]
) -> Float64[np.ndarray, "dk"]:
    """Return the prompt of norm R that descent on the log-excess risk reaches from ``start`` for a fixed head.

    The log-excess risk of the result is never above that of ``start``.
    """
    spheres = Spheres(joint, log_r, R, complement(joint.svm.direction))
    return descend(PromptObjective(spheres, w), np.zeros(0), R * joint.unit_prompt(start), GRADIENT)[1]


def path_of(branches: list[Branch]) -> JointPath:
    """Return the path whose points are the given branches, one for each radius."""
    return JointPath(
        radii=np.array([b.spheres.R for b in branches]),
        log_head_radii=np.array([b.spheres.log_r for b in branches]),
        offsets=np.array([b.spheres.offset(b.y) for b in branches]),
        prompts=np.array([b.p for b in branches]),
        residuals=np.array([b.residual for b in branches]),
    )


def _next(
    joint: Joint,
    basis: Float64[np.ndarray, "d e"],
    schedule: Schedule,
    branch: Branch,
    goal: float,
) -> tuple[float, Float64[np.ndarray, "dk"]]:
    """Return the next radius and a prompt from which the descent at that radius starts.

    The prompt is p scaled to the next radius or, if the risk is lower there, the point at the next radius on the line
    through the last two prompts (p = R p̄ + o(1) follows such a line). Scaling enlarges the offset, but keeps a
    selected token selected. Either prompt may stop selecting α at a non-support that selects α only narrowly, and then
    the risk jumps by many orders of magnitude. At large radii the step is therefore shortened until no selection is
    lost.
    """
    R, y, p, before = branch.spheres.R, branch.y, branch.p, branch.before
    late = R * branch.spheres.joint.longest_row > LATE
    growth = LATE_GROWTH if late else GROWTH
    while True:
        target = goal if R * growth >= goal * (1 - 1e-9) else R * growth
        tries = [p * (target / R)]
        if late and before is not None:
            secant = p + (p - before[1]) * ((target - R) / (R - before[0]))
            tries.insert(0, secant * (target / float(np.linalg.norm(secant))))
        log_r = schedule(target)
        spheres = Spheres(joint, log_r, target, basis)
        w = spheres.offset(spheres.shorten(y))
        risks = [float(relative_log_risk(joint, log_r, w, joint.log_weights(q))) for q in tries]
        best = int(np.argmin(risks))
        if risks[best] < HARMLESS or growth < SMALLEST_GROWTH or not late:
            return target, tries[best]
        growth = math.sqrt(growth)


def _coupling(spheres: Spheres, y: Float64[np.ndarray, "e"], p: Float64[np.ndarray, "dk"]) -> float:
    """Return log(r max q) over the inputs with E_i < 40, which are those that influence the digits of L."""
    joint, log_r = spheres.joint, spheres.log_r
    logs = joint.log_weights(p)
    matters = joint.svm.support | (exponents(joint, log_r, spheres.offset(y), logs) < 40.0)
    return log_r + float(np.max(joint.log_nonoptimality(logs)[matters]))


def _minimise(
    spheres: Spheres, y: Float64[np.ndarray, "e"], p: Float64[np.ndarray, "dk"], gradient: float, enough: float = 0.0
) -> tuple[Float64[np.ndarray, "e"], Float64[np.ndarray, "dk"], float]:
    """Return a local minimiser on both spheres, reached from (y, p), and the norm of the remaining gradient."""
    y = spheres.shorten(y)
    coupling = _coupling(spheres, y, p)
    residual = math.inf
    if coupling > COUPLED:
        scale = math.exp(min(max(0.0, coupling), 690.0))
        if coupling > LARGE_HEAD:
            y, p, residual = descend_large_heads(spheres, y, p, scale, gradient)
        else:
            y, p, residual = descend(JointObjective(spheres, scale), y, p, gradient, enough)
        coupling = _coupling(spheres, y, p)
    if coupling > COUPLED:
        return y, p, residual
    for _ in range(TURNS):
        earlier = p
        y, _, left_y = descend(JointObjective(spheres, moves=False), y, p, gradient, enough)
        _, p, left_p = descend(PromptObjective(spheres, spheres.offset(y)), np.zeros(0), p, gradient, enough)
        if left_p > LOST and not enough:
            p = beside_ties(spheres, spheres.offset(y), p, gradient)
            _, p, left_p = descend(PromptObjective(spheres, spheres.offset(y)), np.zeros(0), p, gradient, enough)
        residual = max(left_y, left_p)
        converged = float(np.linalg.norm(p - earlier)) * spheres.joint.longest_row < 1e3 * gradient
        if converged or enough or _coupling(spheres, y, p) < -40.0:
            break
    return y, p, residual
