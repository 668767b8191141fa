"""The effective claims of Theorems 5 and 6 over sublevel sets; derivations in :mod:`.joint_sublevel`."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float64

from reference_attention.floats import EPS
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance
from theorems.token_selection.joint_paths.joint_sublevel import (
    JOINT_SUBLEVEL,
    LOGIT_FLOOR,
    JointSetup,
    Points,
    Sublevel,
)

LABEL_DUALS = tolerance(
    "label-duals",
    "Σ λ z = Γ v̄_mm, Σ λ = 1: (2n + 8) eps (Σ λ|z| + Γ|v̄_mm|), (2n + 8) eps; λ ≥ 0 and λ = 0 off the supports: none",
    "each dual is a rounded rational divided by a rounded sum of n of them; n products with them are summed",
)


def effective_claims(levels: list[Sublevel], rng: np.random.Generator, *, quadrant: bool = False) -> Iterator[Claim]:
    """Selection, margin, quadrant, direction and head bounds at hunted points of every sublevel set.

    Args:
        quadrant: only at points whose margins at the non-supports are not negative.
    """
    gathered: dict[str, list[tuple[Float64[np.ndarray, "m"], ...]]] = {}
    for level in levels:
        points = level.hunted(rng)
        if quadrant:
            points = points.where(_in_quadrant(level, points))
        for name, sides in _sides(level, points).items():
            gathered.setdefault(name, []).append(sides)
    for name, parts in gathered.items():
        left, right, rounding = (np.concatenate([np.broadcast_to(p[k], p[0].shape) for p in parts]) for k in range(3))
        if left.size or name == "non-optimality":
            yield at_least(
                name, Form.EFFECTIVE, left, right, rounding=rounding, why=JOINT_SUBLEVEL, points="pair (v, p)"
            )


def _sides(level: Sublevel, points: Points) -> dict[str, tuple[Float64[np.ndarray, "m"], ...]]:
    """left ≥ right with its rounding, per claim."""
    setup, joint = level.setup, level.setup.joint
    support = joint.svm.support
    relative = level.relative(points.p)
    B = level.bound * (1 + 64 * EPS)
    log_q = joint.log_nonoptimality(points.log_weights)
    out: dict[str, tuple[Float64[np.ndarray, "m"], ...]] = {}
    worst_q = np.max(log_q[:, support], axis=1)
    out["non-optimality"] = (
        np.full_like(worst_q, math.log(B)) if B > 0 else worst_q * 0 - np.inf,
        worst_q,
        2 * relative,
    )
    rows = np.where(joint.others, np.sum(joint.rows * points.p[:, None, None, :], axis=-1), np.inf)
    margins = np.min(rows, axis=2)
    supports = np.min(margins[:, support], axis=1)
    floors = log_odds(np.where(support, B, level.other_bounds * (1 + 64 * EPS)))
    if B < 1:
        out["prompt-margin"] = (supports, np.full_like(supports, floors[support][0]), 2 * relative)
    quadrant = ~support & np.isfinite(floors)
    if quadrant.any():
        out["quadrant"] = (
            margins[:, quadrant].ravel(),
            np.broadcast_to(floors[quadrant], margins[:, quadrant].shape).ravel(),
            np.repeat(2 * relative, int(quadrant.sum())),
        )
    lowest = direction_bound(level, floors, points)
    good = np.isfinite(lowest) & (lowest > 0)
    if good.any():
        target = setup.target
        along = points.p[good] @ target.direction
        # ‖p‖ ≤ R: ⟨p, p̄⟩/R is at most the cosine, and it is what the derivation bounds.
        slip = 8 * EPS * (points.p.shape[1] + 2) * level.R
        out["prompt-direction"] = (along, level.R * lowest[good], slip + relative[good] * level.R)
    if 0 <= level.head_loss <= 1:
        # Whether r v̄_mm + w lies in the ball is known up to the rounding of w; a ball larger by δ adds δ/r to 1 − cos.
        length = part_along(joint.svm.direction, level.log_r, points.w)
        error = (points.w.shape[1] + 4) * EPS * np.linalg.norm(points.w, axis=1) / np.maximum(length, 1e-300)
        out["head-direction"] = (
            np.full(len(points.w), level.head_loss * (1 + 64 * EPS)),
            one_minus_cosine(joint.svm.direction, level.log_r, points.w),
            error * (1 + error),
        )
    return out


def _in_quadrant(level: Sublevel, points: Points) -> Bool[np.ndarray, "m"]:
    joint = level.setup.joint
    rows = np.where(joint.others, np.sum(joint.rows * points.p[:, None, None, :], axis=-1), np.inf)
    return np.asarray((np.min(rows, axis=2) >= -level.relative(points.p)[:, None])[:, ~joint.svm.support].all(axis=1))


def direction_bound(level: Sublevel, floors: Float64[np.ndarray, "n"], points: Points) -> Float64[np.ndarray, "m"]:
    """The lower bound of ⟨p, p̄⟩/R by item 7 at every point."""
    joint = level.setup.joint
    rows = np.where(joint.others, np.sum(joint.rows * points.p[:, None, None, :], axis=-1), np.inf)
    margins = np.min(rows, axis=2)
    return target_bound(level.setup, floors[None], margins, level.relative(points.p), level.R)


def target_bound(
    setup: JointSetup,
    floors: Float64[np.ndarray, "#m n"],
    margins: Float64[np.ndarray, "m n"],
    slip: Float64[np.ndarray, "m"],
    R: float,
) -> Float64[np.ndarray, "m"]:
    """Σ_i (Σ_t μ_it) floor_i/(R‖p_relax‖), floor_i ≤ R m_i.

    At a non-support whose margin is not negative, up to rounding, that may serve as the floor: p is then in the
    quadrant of Lemma 12, the theorem's own hypothesis.
    """
    shares = np.sum(setup.target.duals, axis=1)
    support = setup.joint.svm.support
    floor = np.where(~support & (margins >= -slip[:, None]), np.maximum(floors, -slip[:, None]), floors)
    used = np.where(shares > 0, shares * np.where(shares > 0, floor, 0.0), 0.0)
    return np.asarray(np.sum(used, axis=1) / (R * setup.target.norm))


def one_minus_cosine(
    u: Float64[np.ndarray, "d"], log_r: float, w: Float64[np.ndarray, "m d"]
) -> Float64[np.ndarray, "m"]:
    """1 − cos(r u + w, u) for unit u, without cancellation: x²/(1 + x² + √(1 + x²)), x = ‖w_⊥‖/(r + u·w)."""
    length = part_along(u, log_r, w)
    x = np.linalg.norm(w - (w @ u)[:, None] * u, axis=1) / length
    with np.errstate(over="ignore", invalid="ignore"):
        small = x * x / (1 + x * x + np.sqrt(1 + x * x))
    return np.where(length > 0, small, 2.0)


def part_along(u: Float64[np.ndarray, "d"], log_r: float, w: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "m"]:
    """⟨r u + w, u⟩ for unit u, shape (m,); r is cut off where it would overflow."""
    return np.asarray(math.exp(min(log_r, 690.0)) + w @ u)


def log_odds(
    bound: Float64[np.ndarray, "n"], log_bound: Float64[np.ndarray, "n"] | None = None
) -> Float64[np.ndarray, "n"]:
    """log(1/B − 1), −inf where B is 1 or more (or not positive, which rounding can do to a zero).

    Args:
        log_bound: log B, where it is known although B underflows.
    """
    inside = (bound > 0) & (bound < 1)
    safe = np.where(inside, bound, 0.5)
    plain = np.where(inside, np.log1p(-safe) - np.log(safe), -np.inf)
    return plain if log_bound is None else np.where(log_bound < -600.0, -log_bound, plain)


def competitor_claims(levels: list[Sublevel]) -> Iterator[Claim]:
    """The competitor selects α as p̄ says: σ(−R m) ≤ q_i ≤ (T−1)/(e^{R m} + T − 1), and Λ_c is at most its closed
    form.
    """
    above, below, closed, relative, errors = [], [], [], [], []
    for level in levels:
        joint, start = level.setup.joint, level.start
        T = joint.keys.shape[1]
        rows = np.where(joint.others, np.sum(joint.rows * level.competitor, axis=-1), np.inf)
        m = np.min(rows, axis=1)
        log_q = joint.log_nonoptimality(start.log_weights)[0]
        upper = math.log(T - 1) - np.logaddexp(m, math.log(T - 1))
        seen = m < -LOGIT_FLOOR - math.log(T)
        above.append((upper - log_q)[seen])
        below.append((log_q + np.logaddexp(m, 0.0))[seen])
        relative.append(np.full(int(seen.sum()), 2 * float(level.relative(start.p)[0])))
        r = math.exp(min(level.log_r, 690.0))
        exponent = r * (level.setup.largest_drops * np.exp(upper) - joint.svm.slack)
        closed.append(float(np.logaddexp.reduce(exponent) - math.log(len(m)) - start.value[0]))
        errors.append(float(start.error[0]) + 8 * EPS * abs(float(np.max(exponent))))
    names = (("competitor-selects", above), ("competitor-mixes", below))
    for name, parts in names:
        yield at_least(
            name,
            Form.EFFECTIVE,
            np.concatenate(parts),
            0.0,
            rounding=np.concatenate(relative),
            why=JOINT_SUBLEVEL,
            points="input",
        )
    yield at_least(
        "competitor-risk",
        Form.EFFECTIVE,
        np.array(closed),
        0.0,
        rounding=np.array(errors),
        why=JOINT_SUBLEVEL,
        points="pair of radii",
    )


def _duals_claim(setup: JointSetup) -> Claim:
    """The duals of (SVM) prove that v_mm is optimal: λ ≥ 0, zero off S, Σ λ = 1, Σ λ_i z_i = Γ v̄_mm.

    Each is a rounded rational, divided by a rounded sum of n of them; n products are summed.
    """
    svm, z = setup.joint.svm, setup.joint.chosen
    n, target = len(z), svm.margin * svm.direction
    size = svm.duals @ np.abs(z) + np.abs(target)
    off = np.concatenate(
        [np.abs(svm.duals @ z - target), [abs(svm.duals.sum() - 1)], -svm.duals, svm.duals[~svm.support]]
    )
    rounding = np.zeros_like(off)
    rounding[: len(size) + 1] = (2 * n + 8) * EPS * np.append(size, 1.0)
    return at_least(LABEL_DUALS, Form.EXACT, 0.0, off, rounding=rounding, why=LABEL_DUALS, points="condition")


def solution_claims(setup: JointSetup, under_test: Implementation) -> Iterator[Claim]:
    """What v_mm and the target must do as competitors: label margin Γ, attained exactly on S; margin Θ, attained on S.

    At R p̄ with margin RΘ over S: σ(−RΘ) ≤ max_{i∈S} q_i ≤ (T−1)/(e^{RΘ} + T − 1), and q_i ≤ (T−1)/T off S.
    """
    joint, target = setup.joint, setup.target
    support, T, d = joint.svm.support, joint.keys.shape[1], joint.tokens.shape[2]
    outputs = joint.chosen @ joint.svm.direction
    rounding = (d + 4) * EPS * np.sum(np.abs(joint.chosen) * np.abs(joint.svm.direction), axis=1)
    yield at_least(
        "label-margin",
        Form.EFFECTIVE,
        outputs - joint.svm.slack,
        joint.svm.margin,
        rounding=rounding,
        why=JOINT_SUBLEVEL,
        points="input",
    )
    yield at_least(
        "label-supports",
        Form.EFFECTIVE,
        joint.svm.margin,
        outputs[support],
        rounding=rounding[support],
        why=JOINT_SUBLEVEL,
        points="support",
    )
    yield _duals_claim(setup)
    level = Sublevel(setup, under_test, 0.0, 600.0 * target.norm, 600.0 * target.p)
    prompts = np.array([4.0, 60.0, 600.0])[:, None] * target.p
    points = level.points(np.zeros((3, d)), prompts)
    log_q = joint.log_nonoptimality(points.log_weights)
    worst = np.max(log_q[:, support], axis=1)
    units = np.linalg.norm(prompts, axis=1) * target.margin
    relative = 2 * level.relative(prompts) + 4 * EPS * units
    yield at_least(
        "target-selects",
        Form.EFFECTIVE,
        math.log(T - 1) - np.logaddexp(units, math.log(T - 1)),
        worst,
        rounding=relative,
        why=JOINT_SUBLEVEL,
        points="radius",
    )
    yield at_least(
        "target-is-tight",
        Form.EFFECTIVE,
        worst,
        -np.logaddexp(units, 0.0),
        rounding=relative,
        why=JOINT_SUBLEVEL,
        points="radius",
    )
    if not support.all():
        yield at_least(
            "target-keeps-others",
            Form.EFFECTIVE,
            math.log((T - 1) / T),
            log_q[:, ~support],
            rounding=relative[:, None],
            why=JOINT_SUBLEVEL,
            points="radius and input",
        )
