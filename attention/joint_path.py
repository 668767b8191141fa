"""The joint regularization path: argmin L(v, p) over ‖v‖ ≤ r, ‖p‖ ≤ R, along a schedule R ↦ r(R).

The objective is :func:`attention.joint.relative_log_risk`, so r = e^{RΘ} and RΘ = 10⁶ are routine. Where
r e^{−RΘ} is not tiny, (v, p) are minimised together; where it is, p has no influence on the digits of L, and head
and prompt are minimised in turn, p on the log-excess risk (each turn then gains as many digits as r e^{−RΘ} has
zeros). Both constraints bind, so the search is on the two spheres.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, Theorems 5 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.optimize import minimize

from attention.joint import Joint, excess_gradient, joint_gradient

Schedule = Callable[[float], float]
"""R ↦ log r."""

COUPLED = -9.0
"""log(r max q) above which head and prompt are minimised together."""
TURNS = 6
"""Turns of head and prompt; each contracts the error by about r max q ≤ e^{COUPLED}."""
GRADIENT, ON_THE_WAY = 1e-10, 1e-4
"""Largest entry of the gradient of log L, per unit of w and p, at the radii asked for and at those between them."""
GROWTH = 4.0
"""Radii between those asked for: continuation in R, this factor at a time while logits are small …"""
LATE, LATE_GROWTH = 256.0, 16.0
"""… and this one once max|k_iα − k_it| R is beyond LATE, where p moves along a straight line up to o(1)."""


@dataclass(frozen=True, eq=False)
class JointPath:
    """Minimisers along a schedule.

    Attributes:
        radii: R, shape (k,).
        log_head_radii: log r, shape (k,).
        offsets: w = v − r v̄_mm, shape (k, d).
        prompts: p, shape (k, dk).
        residuals: norm of the projected gradients that is left, shape (k,).
    """

    radii: Float64[np.ndarray, "k"]
    log_head_radii: Float64[np.ndarray, "k"]
    offsets: Float64[np.ndarray, "k d"]
    prompts: Float64[np.ndarray, "k dk"]
    residuals: Float64[np.ndarray, "k"]


def joint_path(
    joint: Joint, schedule: Schedule, radii: Float64[np.ndarray, "k"], start: Float64[np.ndarray, "dk"]
) -> JointPath:
    """Follow the minimiser from the direction ``start`` at a small radius to each of ``radii`` (increasing).

    It is a local search: near R = 0 the risk is nearly linear in p and the start does not matter; the tests compare
    with other starts.
    """
    basis = _complement(joint.svm.direction)
    unit = float(np.max(np.linalg.norm(joint.rows, axis=-1)))
    R = min(1.0 / unit, float(radii[0]))
    p = start / np.linalg.norm(start) * R
    y, p, left = _minimised(joint, basis, schedule(R), R, np.zeros(basis.shape[1]), p, GRADIENT)
    before: tuple[float, Float64[np.ndarray, "dk"]] | None = None
    found = []
    for goal in radii.tolist():
        while goal > R:
            growth = LATE_GROWTH if R * unit > LATE else GROWTH
            target = goal if R * growth >= goal * (1 - 1e-9) else R * growth
            first = _predicted(R, p, before, target) if R * unit > LATE else p * (target / R)
            before = (R, p)
            y, p, left = _minimised(joint, basis, schedule(target), target, y, first, GRADIENT if target == goal else ON_THE_WAY)
            R = target
        found.append((schedule(R), _offset(joint, basis, schedule(R), y), p, left))
    return _path(radii, found)


def polished(
    joint: Joint, schedule: Schedule, R: float, start: Float64[np.ndarray, "dk"], heads: Float64[np.ndarray, "d"]
) -> JointPath:
    """The local minimiser at one radius that descent reaches from the prompt R·start/‖start‖ and the offset ``heads``."""
    basis = _complement(joint.svm.direction)
    log_r = schedule(R)
    y, p, left = _minimised(joint, basis, log_r, R, basis.T @ heads, R * start / np.linalg.norm(start), GRADIENT)
    return _path(np.array([R]), [(log_r, _offset(joint, basis, log_r, y), p, left)])


def head_at(joint: Joint, log_r: float, p: Float64[np.ndarray, "dk"]) -> Float64[np.ndarray, "d"]:
    """The offset w of the best head of radius r for a fixed prompt, shape (d,); a convex problem."""
    basis = _complement(joint.svm.direction)
    y, _ = _head_turn(joint, basis, log_r, np.zeros(basis.shape[1]), p, GRADIENT)
    return _offset(joint, basis, log_r, y)


def _path(
    radii: Float64[np.ndarray, "k"],
    found: list[tuple[float, Float64[np.ndarray, "d"], Float64[np.ndarray, "dk"], float]],
) -> JointPath:
    return JointPath(
        radii=np.asarray(radii),
        log_head_radii=np.array([f[0] for f in found]),
        offsets=np.array([f[1] for f in found]),
        prompts=np.array([f[2] for f in found]),
        residuals=np.array([f[3] for f in found]),
    )


def _predicted(
    R: float,
    p: Float64[np.ndarray, "dk"],
    before: tuple[float, Float64[np.ndarray, "dk"]] | None,
    target: float,
) -> Float64[np.ndarray, "dk"]:
    """p = R p̄ + o(1) continues along its secant; scaling would blow the offset up."""
    q = p * (target / R) if before is None else p + (p - before[1]) * ((target - R) / (R - before[0]))
    return np.asarray(q * (target / float(np.linalg.norm(q))))


def _minimised(
    joint: Joint,
    basis: Float64[np.ndarray, "d e"],
    log_r: float,
    R: float,
    y: Float64[np.ndarray, "e"],
    p: Float64[np.ndarray, "dk"],
    gradient: float,
) -> tuple[Float64[np.ndarray, "e"], Float64[np.ndarray, "dk"], float]:
    """A local minimiser on both spheres, from (y, p)."""
    y = _shortened(y, log_r)
    coupling = log_r + float(np.max(joint.log_nonoptimality(joint.log_weights(p))))
    residual = math.inf
    if coupling > COUPLED:
        y, p, residual = _together(joint, basis, log_r, R, y, p, max(0.0, coupling), gradient)
        coupling = log_r + float(np.max(joint.log_nonoptimality(joint.log_weights(p))))
    if coupling > COUPLED:
        return y, p, residual
    for _ in range(TURNS):
        y, left_y = _head_turn(joint, basis, log_r, y, p, gradient)
        p, left_p = _prompt_turn(joint, log_r, R, _offset(joint, basis, log_r, y), p, gradient)
        residual = max(left_y, left_p)
        if log_r + float(np.max(joint.log_nonoptimality(joint.log_weights(p)))) < -40.0:
            break
    return y, p, residual


def _together(
    joint: Joint,
    basis: Float64[np.ndarray, "d e"],
    log_r: float,
    R: float,
    y: Float64[np.ndarray, "e"],
    p: Float64[np.ndarray, "dk"],
    coupling: float,
    gradient: float,
) -> tuple[Float64[np.ndarray, "e"], Float64[np.ndarray, "dk"], float]:
    # At r q ≫ 1 heads of size r q compete: they and the objective are measured in that unit.
    scale = math.exp(min(coupling, 690.0))
    e = y.size

    def objective(x: Float64[np.ndarray, "m"]) -> tuple[float, Float64[np.ndarray, "m"]]:
        head = _shortened(x[:e] * scale, log_r)
        point, pull = _on_sphere(p + x[e:], R)
        value, by_w, by_p = joint_gradient(joint, log_r, _offset(joint, basis, log_r, head), point)
        by_head = _head_gradient(joint, basis, log_r, head, by_w)
        return value / scale, np.concatenate([by_head, pull(by_p) / scale])

    x = _descend(objective, np.concatenate([y / scale, np.zeros(p.size)]), gradient)
    head = _shortened(x[:e] * scale, log_r)
    return head, _on_sphere(p + x[e:], R)[0], float(np.linalg.norm(objective(x)[1]))


def _head_turn(
    joint: Joint,
    basis: Float64[np.ndarray, "d e"],
    log_r: float,
    y: Float64[np.ndarray, "e"],
    p: Float64[np.ndarray, "dk"],
    gradient: float,
) -> tuple[Float64[np.ndarray, "e"], float]:
    if y.size == 0:
        return y, 0.0

    def objective(x: Float64[np.ndarray, "e"]) -> tuple[float, Float64[np.ndarray, "e"]]:
        head = _shortened(x, log_r)
        value, by_w, _ = joint_gradient(joint, log_r, _offset(joint, basis, log_r, head), p)
        return value, _head_gradient(joint, basis, log_r, head, by_w)

    x = _descend(objective, y, gradient)
    return _shortened(x, log_r), float(np.linalg.norm(objective(x)[1]))


def _prompt_turn(
    joint: Joint,
    log_r: float,
    R: float,
    w: Float64[np.ndarray, "d"],
    p: Float64[np.ndarray, "dk"],
    gradient: float,
) -> tuple[Float64[np.ndarray, "dk"], float]:
    def objective(x: Float64[np.ndarray, "dk"]) -> tuple[float, Float64[np.ndarray, "dk"]]:
        point, pull = _on_sphere(p + x, R)
        value, by_p = excess_gradient(joint, log_r, w, point)
        return value, pull(by_p)

    x = _descend(objective, np.zeros(p.size), gradient)
    return _on_sphere(p + x, R)[0], float(np.linalg.norm(objective(x)[1]))


def _descend(
    objective: Callable[..., object], x: Float64[np.ndarray, "m"], gradient: float
) -> Float64[np.ndarray, "m"]:
    """BFGS, restarted where rounding stopped it well before its goal: a memory of far-away curvature does that."""
    for _ in range(3):
        result = minimize(objective, x, jac=True, method="BFGS", options={"gtol": gradient, "maxiter": 200})
        x = np.asarray(result.x)
        if result.nit <= 1 or float(np.max(np.abs(result.jac), initial=0.0)) <= 1e3 * gradient:
            break
    return x


def _on_sphere(
    q: Float64[np.ndarray, "dk"], R: float
) -> tuple[Float64[np.ndarray, "dk"], Callable[[Float64[np.ndarray, "dk"]], Float64[np.ndarray, "dk"]]]:
    """R q/‖q‖ and the map from gradients there to gradients at q."""
    norm = float(np.linalg.norm(q))
    unit = q / norm
    return R * unit, lambda g: (g - (g @ unit) * unit) * (R / norm)


def _complement(u: Float64[np.ndarray, "d"]) -> Float64[np.ndarray, "d e"]:
    """An orthonormal basis of the complement of a unit vector, shape (d, d − 1)."""
    return np.asarray(np.linalg.svd(u[None])[2][1:].T)


def _shortened(y: Float64[np.ndarray, "e"], log_r: float) -> Float64[np.ndarray, "e"]:
    """y, or 0.99 r of its direction: heads with v̄_mm·v ≤ 0 are not searched."""
    size = float(np.linalg.norm(y))
    limit = 0.99 * math.exp(min(log_r, 690.0))
    return y if size <= limit else y * (limit / size)


def _offset(
    joint: Joint, basis: Float64[np.ndarray, "d e"], log_r: float, y: Float64[np.ndarray, "e"]
) -> Float64[np.ndarray, "d"]:
    """The w with ‖r v̄_mm + w‖ = r whose part across v̄_mm is y."""
    size = float(np.linalg.norm(y))
    ratio = size * math.exp(-min(log_r, 690.0))
    along = size * ratio / (1 + math.sqrt((1 - ratio) * (1 + ratio)))
    return np.asarray(basis @ y - along * joint.svm.direction)


def _head_gradient(
    joint: Joint,
    basis: Float64[np.ndarray, "d e"],
    log_r: float,
    y: Float64[np.ndarray, "e"],
    by_w: Float64[np.ndarray, "d"],
) -> Float64[np.ndarray, "e"]:
    """The gradient in y from that in w."""
    ratio = y * math.exp(-min(log_r, 690.0))
    slope = ratio / math.sqrt(1 - float(ratio @ ratio))
    return np.asarray(basis.T @ by_w - float(joint.svm.direction @ by_w) * slope)
