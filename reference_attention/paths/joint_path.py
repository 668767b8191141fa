"""The joint regularization path: minimisers (v, p) of L over ‖v‖ ≤ r and ‖p‖ ≤ R, along a schedule R ↦ r(R).

The notation is that of :mod:`.joint_risk`, and Θ is the margin of p̄_mm. The objective is
:func:`reference_attention.paths.joint_risk.relative_log_risk`, so r = e^{RΘ} and RΘ = 10⁶ are routine. Where r e^{−RΘ}
is not tiny, L is minimised in v and p together. Where it is tiny, p does not change the digits of L, so L is minimised
in turn in the head, and in the prompt on the log excess log(L − L_α), with L_α the risk if all weight is on α. Each
turn gains as many digits as r e^{−RΘ} has zeros. Both constraints are active, so the search is on the spheres ‖v‖ = r
and ‖p‖ = R.

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
"""A function R ↦ log r from the norm R of the prompt to the norm r of the head."""

LOST = 1e-3
"""Norm of the gradient of the log excess above which a descent was stopped by rounding errors, far from its goal."""
COUPLED = -9.0
"""Value of log(r max_i q_i), with q_i = 1 − s_iα, above which L is minimised in head and prompt together."""
TURNS = 6
"""Number of alternations between head and prompt; each multiplies the error by about r max_i q_i ≤ e^{COUPLED}."""
GRADIENT = 1e-10
"""At a requested radius a descent ends once the gradient of log L has at most this norm."""
ON_THE_WAY = 1e-4, 1e-3
"""The norm of the gradient, and the decrease by a step, at which a descent ends at a radius on the way to a requested
one."""
GROWTH = 4.0
"""Ratio of successive radii on the way to a requested radius, while logits are small."""
LATE, LATE_GROWTH = 256.0, 16.0
"""Value of R max‖k_iα − k_it‖ beyond which the prompt of the path is nearly a linear function of R, and the ratio of
successive radii beyond it."""
MOST_STEPS = 24
"""Largest number of radii on the way to a requested radius. After them the search jumps to the requested radius, and
the residual shows whether it succeeded."""
HARMLESS, SMALLEST_GROWTH = 8.0, 1.2
"""Every input counts as still selecting α at points with log L + rΓ below the first number (at the minimiser log L + rΓ
is at most about log 2). A step is no longer shortened if the ratio of successive radii is below the second number."""


def linear_schedule(ratio: float) -> Schedule:
    """Return the schedule r = ratio·R."""
    return lambda R: math.log(ratio * R)


def exponential_schedule(rate: float, unit: float = 1.0) -> Schedule:
    """Return the schedule r = max(R, e^{rate·R}/unit)."""
    return lambda R: max(math.log(R), rate * R - math.log(unit))


@dataclass(frozen=True, eq=False)
class JointPath:
    """The minimisers of the joint risk at k radii along a schedule (symbols: see the module).

    Attributes:
        radii: the norms R of the prompts, shape (k,).
        log_head_radii: the logarithms log r of the norms of the heads, shape (k,).
        offsets: the offsets w = v − r v̄_mm of the heads, shape (k, d).
        prompts: the prompts p, shape (k, dk).
        residuals: the norms of the remaining gradients, projected on the spheres, shape (k,).
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
    """Follow a minimiser from the prompt's direction ``start`` at a small radius to each of ``radii`` (increasing).

    This is a local search. Near R = 0 the risk is nearly linear in p, so the start hardly matters; tests compare
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
    """A local minimiser of the joint risk that is followed from radius to radius.

    Attributes:
        spheres: the spheres of heads and prompts on which the minimiser lies.
        y, p: the coordinates of the head's part orthogonal to v̄_mm, and the prompt.
        residual: the norm of the remaining gradient, projected on the spheres.
        before: the previous radius and prompt, if there are any.
    """

    spheres: Spheres
    y: Float64[np.ndarray, "e"]
    p: Float64[np.ndarray, "dk"]
    residual: float
    before: tuple[float, Float64[np.ndarray, "dk"]] | None = None

    @cached_property
    def rank(self) -> float:
        """Return log L + rΓ plus a bound of its rounding error, by which branches are compared; inf if not finite."""
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
    """Return the local minimiser at R that a descent reaches from the head r v̄_mm and the prompt R·start/‖start‖."""
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
    """Return the branch continued to the larger radius ``goal``.

    Args:
        joint: the tokens, keys and chosen tokens α, and the solution of the head's SVM.
        basis: an orthonormal basis of the orthogonal complement of v̄_mm, (d, e).
        schedule: the function R ↦ log r.
        branch: the branch so far.
        goal: the radius to reach.
        final: whether to descend as far as rounding allows at ``goal``.
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
    """Return the local minimiser at one radius that a descent reaches from a given prompt and head.

    The given prompt is R·start/‖start‖, and ``heads`` is the offset v − r v̄_mm of the given head v.
    """
    spheres = Spheres(joint, schedule(R), R, complement(joint.svm.direction))
    return path_of(
        [Branch(spheres, *_minimise(spheres, spheres.basis.T @ heads, R * joint.unit_prompt(start), GRADIENT))]
    )


def head_at(joint: Joint, log_r: float, p: Float64[np.ndarray, "dk"]) -> Float64[np.ndarray, "d"]:
    """Return the offset w, (d,), of the head of norm r with least risk for a fixed prompt, by a convex minimisation."""
    spheres = Spheres(joint, log_r, float(np.linalg.norm(p)), complement(joint.svm.direction))
    y, _, _ = descend(JointObjective(spheres, moves=False), np.zeros(spheres.basis.shape[1]), p, GRADIENT)
    return spheres.offset(y)


def prompt_at(
    joint: Joint, log_r: float, R: float, w: Float64[np.ndarray, "d"], start: Float64[np.ndarray, "dk"]
) -> Float64[np.ndarray, "dk"]:
    """Return the prompt of norm R that a descent on the log excess reaches from ``start``, for the head r v̄_mm + w.

    The log excess of the result is never above that of R·start/‖start‖.
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
    through the last two prompts; at large radii the path nearly follows such a line. Scaling enlarges the offset of p
    from the path's limiting ray, but keeps a selected token selected. Either prompt may stop selecting α in an input
    that selects α only narrowly, and then the risk jumps by many orders of magnitude. At large radii the step is
    therefore shortened until every input still selects α.
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
    """Return log(r q), q the largest 1 − s_iα of the inputs that affect digits of L: those with E_i < 40 or slack 0."""
    joint, log_r = spheres.joint, spheres.log_r
    logs = joint.log_weights(p)
    matters = joint.svm.support | (exponents(joint, log_r, spheres.offset(y), logs) < 40.0)
    return log_r + float(np.max(joint.log_nonoptimality(logs)[matters]))


def _minimise(
    spheres: Spheres, y: Float64[np.ndarray, "e"], p: Float64[np.ndarray, "dk"], gradient: float, enough: float = 0.0
) -> tuple[Float64[np.ndarray, "e"], Float64[np.ndarray, "dk"], float]:
    """Return a local minimiser (y, p) on both spheres, reached from a given pair, and the gradient's norm there."""
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
