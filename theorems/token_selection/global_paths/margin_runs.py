"""Where descents and flows of sufficient margin start, how they run, and what rounding leaves of their margins.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 2, Appendix E.1 (normalized GD); derivations in
:mod:`.descent_from_a_margin`.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.training.descent import Stop, Trajectory
from theorems.bounded import Bounded, exact, value_of
from theorems.core.claim import Claim, Ended, Form, NotANumber, Undecided, Verdict
from theorems.core.claim_name import ClaimName
from theorems.core.implementation import Implementation
from theorems.core.points import affordable, directions, log_uniform
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.rounding.steps import starts_claim, steps_claim
from theorems.token_selection.global_paths.flow_offset import FlowOffset, own_bound
from theorems.token_selection.global_paths.margin_constants import MarginConstants

STEPS, NORMALIZED_STEPS = 200, 300
"""Iterations at which the claims are made."""
EVALUATIONS = 1_000_000
"""About how many entries of keys at all iterates may be looked at; large problems get fewer iterations."""
POINTS = 100
"""Points at which the bounds on the gradient are tried, before the search for worse ones."""
LEAST, MOST = 1e-3, 1e4
"""Margins beyond log((T − 1)A) at which they are tried."""
ASKEW_POINTS = (1e-2, 1e3)
"""How far beside the ray of p_mm they lie, in units of ‖p_mm‖."""
ASKEW = (0.0, 1.0, 30.0)
"""The same of starts."""
FARTHEST = 1e9
"""‖p(0)‖ max‖g‖ of starts beside the ray, at most: 200 steps then move a margin by 1e-4 in their rounding."""


@dataclass(frozen=True, eq=False)
class Run:
    """Iterates with their margins.

    Attributes:
        p: p(0) … p(t), floats, (t + 1, b, d).
        moved: the steps between them, (t, b, d).
        drift: Σ_{s<t} of by how much a step may differ from −η∇L, (t, b).
        margins: m(p), (t + 1, b).
    """

    p: Numbers
    moved: Numbers
    drift: Float64[np.ndarray, "t b"]
    margins: Numbers


def affordable_steps(constants: MarginConstants, runs: int, steps: int) -> int:
    """How many of the steps are taken."""
    return max(10, min(steps, EVALUATIONS // (runs * constants.problem.keys.size)))


def is_a_run(
    constants: MarginConstants,
    under_test: Implementation,
    found: Trajectory,
    starts: Float64[np.ndarray, "b d"],
    step: float | Float64[np.ndarray, "b"],
    names: tuple[ClaimName, ClaimName],
    first: str,
) -> Generator[Claim, None, Run]:
    """That it is one; then its margins: ``run = yield from is_a_run(…)``.

    Args:
        step: log η, or the length of a normalized step.
        names: of the premises.
        first: what is undecided where a step overflows.
    """
    asked_for, is_a_step = names
    normalized, problem = isinstance(step, float), constants.problem
    steps = affordable_steps(constants, len(starts), NORMALIZED_STEPS if normalized else STEPS)
    asked = starts_claim(asked_for, found.points, starts, steps)
    yield asked
    if asked.verdict is Verdict.FALSIFIED:
        raise Ended(asked_for)
    if found.stop is Stop.OVERFLOW:
        raise Undecided(first, "a step overflows float64", Form.EFFECTIVE)
    if not np.isfinite(found.points).all():
        raise NotANumber(is_a_step, "an iterate is not finite")
    before, after = found.points[:-1], found.points[1:]
    at = AttentionAt(problem, before.reshape(-1, problem.d))
    gradient = at.gradient_of(under_test, is_a_step).reshape(before.shape)
    log_scale = at.log_scale.reshape(before.shape[:-1])
    log_step = np.log(step) if normalized else step
    yield steps_claim(is_a_step, before, after, gradient, log_scale, log_step, normalized=normalized)
    moved = after - before
    if normalized:
        # |g/|g| − h/|h|| ≤ 2|g − h|/|g|, and 2 where nothing is known of g.
        off = 2 * norm(gradient.error, axis=-1) / np.maximum(norm(gradient.value, axis=-1), EPS)
        of_gradient = step * np.fmin(off, 2.0)
        logs = np.full(before.shape[:-1], float(problem.d))
    else:
        logs = log_step + log_scale
        of_gradient = np.exp(np.minimum(logs, 700.0)) * norm(gradient.error, axis=-1)
    rounded_by = np.abs(after) + (8 + 2 * np.abs(logs))[..., None] * np.abs(moved)
    each = of_gradient + EPS * norm(rounded_by, axis=-1)
    p = exact(found.points)
    return Run(p, p[1:] - p[:-1], np.cumsum(each, axis=0), constants.margins(p))


def log_excess_rate(constants: MarginConstants, run: Run, kept: Numbers) -> Float64[np.ndarray, "b"]:
    """How fast log(L − L_opt) changes at most: (1 + q) max‖g‖ times how far the slopes of an input are apart."""
    problem = constants.problem
    lowest = np.maximum(run.margins.value.min(axis=0), kept.value - kept.error)
    q = np.minimum(value_of(constants.odds_bound(exact(lowest))), 1.0)
    ranges = list(zip(problem.scores.max(axis=1).tolist(), problem.gaps().max(axis=1).tolist(), strict=True))
    loss, apart = problem.loss, []
    for x in q.tolist():
        ends = [(top - x * gap, top) for top, gap in ranges]
        apart.append(max(loss.log_bound(*end) - loss.log_floor(*end) for end in ends))
    return np.asarray(2 * (1 + q) * float(value_of(constants.reach)) * np.exp(np.minimum(apart, 700.0)))


def widen(x: Numbers, by: Float64[np.ndarray, "t b"]) -> Numbers:
    """With more room, where it is no plain float."""
    return x.widen(by) if isinstance(x, Bounded) else x


def with_least_margin(
    constants: MarginConstants, beside: Float64[np.ndarray, "m d"], margins: Float64[np.ndarray, "m"]
) -> Float64[np.ndarray, "m d"]:
    """p = r p_mm + v for the v given (``beside``), of margin m(p) as asked for, a little more where that is rounded.

    min_j (r a_j + g_j·v) is the margin asked for at r = max_j (margin − g_j·v)/a_j, a_j = g_j·p_mm ≥ 1.
    """
    rows, p_mm = value_of(constants.rows), constants.svm.p
    a, wanted, points = np.maximum(rows @ p_mm, 1.0), margins, beside
    for doubled in range(60):
        r = np.max((wanted[:, None] - beside @ rows.T) / a, axis=1)
        points = r[:, None] * p_mm + beside
        short = ~np.asarray(constants.margins(exact(points)) >= margins)
        if not short.any():
            break
        more = 2.0**doubled * EPS * (1 + np.abs(margins) + norm(beside, axis=1) * norm(rows, axis=1).max())
        wanted = np.where(short, margins + more, wanted)
    return np.asarray(points)


def beside_the_ray(
    rng: np.random.Generator, constants: MarginConstants, sizes: Float64[np.ndarray, "m"]
) -> Float64[np.ndarray, "m d"]:
    """Vectors of those lengths in units of ‖p_mm‖: in any direction, or for or against single rows."""
    rows, m = value_of(constants.rows), len(sizes)
    chosen = rows[rng.integers(len(rows), size=m)] * rng.choice([-1.0, 1.0], size=(m, 1))
    chosen = chosen / norm(chosen, axis=1, keepdims=True)
    mixed = directions(rng, m, rows.shape[1]) * rng.choice([0.1, 0.9], size=(m, 1))
    raw = np.where(rng.random((m, 1)) < 0.5, chosen + mixed, mixed)
    raw /= norm(raw, axis=1, keepdims=True)
    return np.asarray(raw * (sizes * constants.svm.norm)[:, None])


def offset_bound(
    offsets: FlowOffset,
    p: Float64[np.ndarray, "r d"],
    rho: Float64[np.ndarray, "r"],
    changed: Float64[np.ndarray, "r"],
    q: Float64[np.ndarray, "d"],
    k: int,
) -> float:
    """|r| at ρ_k; log t = ⟨p − q − r, p̄_mm⟩ is known to |r|, which enters its own bound."""
    begin, shift = float((p[0] - q) @ offsets.direction), float(q @ offsets.direction)
    first, off = float(np.sum(offsets.across(p[0] - q) ** 2)), offsets.residual(q)
    grown = offsets.growth(q, begin)
    rates = 2 * changed[:k] * np.expm1(changed[:k])

    def squared_offset(bound: float) -> float:
        times = np.maximum(rho[1 : k + 1] - p[:k] @ offsets.direction + 2 * bound, 0.0)
        end = float(rho[k]) - shift + bound
        growth = math.exp(changed[0]) * grown(end) + 2 * bound * off * max(end - begin, 0.0)
        return first + growth + float(rates @ times)

    return min(own_bound(squared_offset, first), float(rho[k]) + float(np.linalg.norm(offsets.across(q))))


def log_coefficient_change(constants: MarginConstants, later: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
    """E: by how much the logarithm of a row's coefficient may differ from log c_j + log e^{−g_j·p} where margins are
    at least ``later``; ∞ where it may be negative.
    """
    problem, loss = constants.problem, constants.problem.loss
    top, gaps = problem.scores.max(axis=1), problem.gaps()
    widest, least = gaps.max(axis=1), np.where(constants.others, gaps, np.inf).min(axis=1)
    q = missed_later(constants, later)
    found = np.full(len(q), np.inf)
    for k, missed in enumerate(q.tolist()):
        each = []
        for a, wide, small in zip(top.tolist(), widest.tolist(), least.tolist(), strict=True):
            share, low = missed * wide / small, a - min(missed, 1.0) * wide
            slopes = loss.log_bound(low, a) - loss.log_floor(low, a)
            each.append(missed - math.log1p(-share) + slopes if share < 1 else math.inf)
        found[k] = max(each)
    return found * (1 + 16 * EPS)


def missed_later(constants: MarginConstants, later: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
    """q = (T − 1) e^{−m}."""
    with np.errstate(over="ignore"):
        return np.asarray((constants.problem.T - 1) * np.exp(-later))


def shares_later(constants: MarginConstants, later: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
    """1 − Aq."""
    return np.asarray(1 - float(value_of(constants.widest)) * missed_later(constants, later))


def starts_with_margin(case: Case, constants: MarginConstants, rng: np.random.Generator) -> Float64[np.ndarray, "b d"]:
    """On the ray and beside it, with just the margin that is needed; the case's own if it has it."""
    needed = constants.needed
    least = np.full(len(ASKEW), float(value_of(needed) + needed.error))
    starts = with_least_margin(constants, beside_the_ray(rng, constants, np.array(ASKEW)), least)
    # Far out beside the ray a long row's margin is lost to the rounding of p; the first start is on the ray.
    near = norm(starts, axis=1) * float(value_of(constants.reach)) <= FARTHEST
    starts = starts[near | (np.arange(len(starts)) == 0)]
    if case.start is not None and bool(constants.margins(exact(case.start)) >= needed):
        starts = np.concatenate([case.start[None], starts])
    return starts


def points_with_margin(constants: MarginConstants, rng: np.random.Generator) -> Float64[np.ndarray, "m d"]:
    """Points beside the ray of margins beyond log((T − 1)A), by little and by much."""
    m = affordable(constants.problem, POINTS)
    sizes = log_uniform(rng, *ASKEW_POINTS, m) * (rng.random(m) < 0.9)
    edge = float(value_of(constants.edge)) * (1 + 8 * EPS)
    wanted = edge + log_uniform(rng, LEAST, MOST, m)
    return with_least_margin(constants, beside_the_ray(rng, constants, sizes), wanted)
