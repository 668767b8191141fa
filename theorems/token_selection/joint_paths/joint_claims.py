"""The effective claims of Theorems 5 and 6 over sublevel sets; derivations in :mod:`.joint_sublevel`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from theorems.bounded import exact, possibly_at_least
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.statement import always
from theorems.rounding.attention_at import Numbers
from theorems.token_selection.joint_paths.joint_sublevel import JointSetup, Points, Sublevel, rounded_often

SOLUTION_CLAIMS = always("label-margin", "label-supports", "label-duals", "target-selects", "target-is-tight") | {
    "target-keeps-others": "some input is no support of v_mm"
}
"""The claims of :func:`solution_claims`, and when they are made."""
COMPETITOR_CLAIMS = always("competitor-selects", "competitor-mixes", "competitor-risk")
"""The claims of :func:`competitor_claims`."""
EFFECTIVE_CLAIMS = always("non-optimality") | {
    "prompt-margin": "the bound on 1 − s_iα is below 1 at some radii",
    "quadrant": "the bound on some q_i, i no support of v_mm, is below 1 at some radii",
    "prompt-direction": "the bound on the cosine is positive at some radii",
    "head-direction": "the bound on 1 − cos(v, v_mm) is at most 1 at some radii",
}
"""The claims of :func:`effective_claims`, and when they are made."""


def effective_claims(levels: list[Sublevel], rng: np.random.Generator, *, quadrant: bool = False) -> Iterator[Claim]:
    """Selection, margin, quadrant, direction and head bounds at hunted points of every sublevel set.

    Args:
        quadrant: only at points whose margins at the non-supports are not negative.
    """
    gathered: dict[str, list[tuple[Numbers, Numbers]]] = {}
    for level in levels:
        points = level.search_points(rng)
        if quadrant:
            points = points.where(_in_quadrant(level, points))
        for name, (left, right) in _sides(level, points).items():
            shape = np.broadcast_shapes(left.shape, right.shape)
            flat: Any = [np.ravel(np.broadcast_to(x, shape)) for x in (left, right)]
            gathered.setdefault(name, []).append((flat[0], flat[1]))
    for name, parts in gathered.items():
        left, right = (np.concatenate(side) for side in zip(*parts, strict=True))
        if left.size or name == "non-optimality":
            yield at_least(name, Form.EFFECTIVE, left, right, points="pair (v, p)")


def _sides(level: Sublevel, points: Points) -> dict[str, tuple[Numbers, Numbers]]:
    """left ≥ right, per claim."""
    setup, joint = level.setup, level.setup.joint
    support = joint.svm.support
    out = {"non-optimality": (level.bound, np.max(level.nonoptimality(points)[:, support], axis=1))}
    margins, floors = setup.margins(points.p), log_odds(level.other_bounds)
    if level.bound < 1:
        out["prompt-margin"] = (margins[:, support], floors[support])
    quadrant = ~support & np.isfinite(floors)
    if quadrant.any():
        out["quadrant"] = (margins[:, quadrant], floors[quadrant])
    lowest = target_bound(setup, floors, margins, level.R)
    good = lowest > 0
    if good.any():
        # ‖p‖ ≤ R: ⟨p, p̄⟩/R is at most the cosine, and it is what the derivation bounds.
        out["prompt-direction"] = (exact(points.p[good]) @ setup.towards / level.R, lowest[good])
    if level.head_loss <= 1:
        out["head-direction"] = (level.head_loss, one_minus_cosine(setup.u, level.r, points.w))
    return out


def _in_quadrant(level: Sublevel, points: Points) -> Bool[np.ndarray, "m"]:
    margins = level.setup.margins(points.p)[:, ~level.setup.joint.svm.support]
    return np.asarray(possibly_at_least(margins, 0.0).all(axis=1))


def target_bound(setup: JointSetup, floors: Numbers, margins: Numbers, R: float) -> Numbers:
    """The lower bound of ⟨p, p̄_relax⟩/R by item 7, Σ_i (Σ_t μ_it) floor_i/(R‖p_relax‖), floor_i ≤ R m_i.

    A margin of a non-support may serve as its floor, up to 0 where p is in the quadrant of Lemma 12, the theorem's own
    hypothesis.
    """
    shares = np.sum(rounded_often(setup.target.duals, 1), axis=1)
    floor = np.where(setup.joint.svm.support, floors, np.maximum(floors, np.minimum(margins, 0.0)))
    used = np.where(setup.target.duals.any(axis=1), shares * floor, 0.0)
    return np.sum(used, axis=-1) / (R * norm(rounded_often(setup.target.p, 1)))


def one_minus_cosine(u: Numbers, r: float, w: Float64[np.ndarray, "m d"]) -> Numbers:
    """1 − cos(r u + w, u) for unit u, without cancellation: x²/(1 + x² + √(1 + x²)), x = ‖w_⊥‖/(r + u·w); (m,)."""
    along = exact(w) @ u
    length = r + along
    ahead = length > 0
    x = norm(w - along[:, None] * u, axis=1) / np.where(ahead, length, 1.0)
    return np.where(ahead, x * x / (1 + x * x + np.sqrt(1 + x * x)), 2.0)


def log_odds(bound: Numbers) -> Numbers:
    """log(1/B − 1), −inf where B may be 1 or more, or not positive."""
    inside = (bound > 0) & (bound < 1)
    safe = np.where(inside, bound, 0.5)
    return np.where(inside, np.log1p(-safe) - np.log(safe), -np.inf)


def competitor_claims(levels: list[Sublevel]) -> Iterator[Claim]:
    """The competitor selects α as p̄ says: σ(−R m) ≤ q_i ≤ (T−1)/(e^{R m} + T − 1), and Λ_c is at most its closed
    form.
    """
    selected, largest, smallest, risks, closed = [], [], [], [], []
    for level in levels:
        setup, start = level.setup, level.start
        upper, lower = nonoptimality_bounds(setup.margins(start.p[0]), setup.problem.T)
        selected.append(level.nonoptimality(start)[0])
        largest.append(upper)
        smallest.append(lower)
        exponents = level.r * (setup.largest_drops * upper - setup.slack)
        closed.append(np.logaddexp.reduce(exponents, keepdims=True) - np.log(exact(setup.problem.n)))
        risks.append(start.value)
    q, upper, lower, closed_form, risk = map(np.concatenate, (selected, largest, smallest, closed, risks))
    yield at_least("competitor-selects", Form.EFFECTIVE, upper, q, points="input")
    yield at_least("competitor-mixes", Form.EFFECTIVE, q, lower, points="input")
    yield at_least("competitor-risk", Form.EFFECTIVE, closed_form, risk, points="pair of radii")


def nonoptimality_bounds(margin: Numbers, T: int) -> tuple[Numbers, Numbers]:
    """What q is at most and at least where the smallest of T − 1 margins is m: (T−1)/(e^m + T − 1), σ(−m)."""
    odds = np.exp(-margin)
    return (T - 1) * odds / (1 + (T - 1) * odds), odds / (1 + odds)


def _duals_claim(setup: JointSetup) -> Claim:
    """The duals of (SVM) prove that v_mm is optimal: λ ≥ 0, zero off S, Σ λ = 1, Σ λ_i z_i = Γ v̄_mm.

    Each is a rounded rational, divided by a rounded sum of n of them.
    """
    svm, n = setup.joint.svm, setup.problem.n
    duals = rounded_often(svm.duals, n + 2)
    off = duals @ setup.joint.chosen_tokens - setup.margin * setup.u
    total = np.sum(duals, keepdims=True) - 1
    conditions = [np.abs(off), np.abs(total), exact(-svm.duals), exact(svm.duals[~svm.support])]
    return at_least("label-duals", Form.EXACT, 0.0, np.concatenate(conditions), points="condition")


def solution_claims(setup: JointSetup, under_test: Implementation) -> Iterator[Claim]:
    """What v_mm and the target must do as competitors: label margin Γ, attained exactly on S; margin Θ, attained on S.

    At R p̄ with margin RΘ over S: σ(−RΘ) ≤ max_{i∈S} q_i ≤ (T−1)/(e^{RΘ} + T − 1), and q_i ≤ (T−1)/T off S.
    """
    joint, target, T = setup.joint, setup.target, setup.problem.T
    support = joint.svm.support
    outputs = joint.chosen_tokens @ setup.u
    yield at_least("label-margin", Form.EFFECTIVE, outputs - setup.slack, setup.margin, points="input")
    yield at_least("label-supports", Form.EFFECTIVE, setup.margin, outputs[support], points="support")
    yield _duals_claim(setup)
    level = Sublevel(setup, under_test, 0.0, 600.0 * target.norm, 600.0 * target.p)
    RTheta = np.array([4.0, 60.0, 600.0])
    points = level.points(np.zeros((3, joint.tokens.shape[2])), RTheta[:, None] * target.p)
    # Entries of p are rounded twice: margins, and so logarithms of q, move by at most EPS Σ|δk p|.
    moved = EPS * np.max(np.sum(np.abs(joint.rows) * np.abs(points.p)[:, None, None, :], axis=-1), axis=(1, 2))
    q = level.nonoptimality(points) * np.exp(exact(np.zeros(3)).widen(moved * (1 + 16 * EPS)))[:, None]
    worst = np.max(q[:, support], axis=1)
    upper, lower = nonoptimality_bounds(exact(RTheta), T)
    yield at_least("target-selects", Form.EFFECTIVE, upper, worst, points="radius")
    yield at_least("target-is-tight", Form.EFFECTIVE, worst, lower, points="radius")
    if not support.all():
        others = (exact(T) - 1) / T
        yield at_least("target-keeps-others", Form.EFFECTIVE, others, q[:, ~support], points="radius and input")
