"""Runs from a start at which every optimal token leads by enough: what holds at every iterate.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 2, Appendix E.1 (normalized GD); derivations in
:mod:`.descent_from_a_margin`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.training.descent import Stop, Trajectory
from theorems.core.claim import Claim, Ended, Form, NotANumber, Undecided, Verdict, at_least, undecided_claim
from theorems.core.implementation import Implementation
from theorems.curves.descent import DESCENT_ROUNDING
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.rounding.bounded import Bounded, exact, value_of
from theorems.rounding.steps import starts_claim, steps_claim
from theorems.token_selection.global_paths.margin_constants import MarginConstants, turned

STEPS, NORMALIZED_STEPS = 200, 300
"""Iterations at which the claims are made."""
EVALUATIONS = 1_000_000
"""About how many entries of keys at all iterates may be looked at; large problems get fewer iterations."""
LENGTHS = (0.05, 0.2, 1.0)
"""Lengths of a normalized step in units of 1/max‖g‖: what it moves a margin by at most."""
MOST_DRIFT = 0.25
"""Below log(4/3), by which the bound on margins is below what its proof gives."""

DESCENT_CLAIMS = ("run-is-the-one-asked-for", "iterate-is-a-step", "margin-is-kept", "climbs", "turns")
NORMALIZED_CLAIMS = (
    "normalized-run-is-the-one-asked-for",
    "normalized-iterate-is-a-step",
    "normalized-run-climbs",
    "normalized-norm-grows",
    "normalized-turns",
)
"""What is claimed of a run of gradient descent, and of one of normalized gradient descent."""


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


def descent_run(
    constants: MarginConstants,
    under_test: Implementation,
    starts: Float64[np.ndarray, "b d"],
    fractions: Float64[np.ndarray, "b"],
) -> Iterator[Claim]:
    """Gradient descent with η ≤ 1/L_p, log ηL_p given, from starts of margin κ + log(2(T−1)A) and more."""
    problem, steps = constants.problem, _affordable(constants, len(starts), STEPS)
    log_step = fractions - under_test.log_smoothness(problem)
    found = under_test.gradient_descent(
        problem, starts, steps=steps, log_step=log_step, gradient=under_test.scaled_gradient
    )
    run = yield from _is_a_run(constants, under_test, found, starts, log_step, DESCENT_CLAIMS)
    yield _margin_is_kept(constants, run, log_step)
    yield from _turning(constants, run, "climbs", "turns")


def normalized_run(
    constants: MarginConstants,
    under_test: Implementation,
    starts: Float64[np.ndarray, "b d"],
    share: float,
) -> Iterator[Claim]:
    """Normalized gradient descent with steps of length share/max‖g‖."""
    problem, steps = constants.problem, _affordable(constants, len(starts), NORMALIZED_STEPS)
    length = share / float(value_of(constants.reach))
    found = under_test.normalized_gradient_descent(
        problem, starts, steps=steps, step=length, gradient=under_test.scaled_gradient
    )
    run = yield from _is_a_run(constants, under_test, found, starts, length, NORMALIZED_CLAIMS)
    inside = np.logical_and.accumulate(np.asarray(run.margins >= constants.region), axis=0)
    yield from _turning(constants, run, "normalized-run-climbs", "normalized-turns", inside)
    if inside[:-1].all():
        p_bar = constants.p_mm / constants.length
        least = exact(run.p.value[0]) @ p_bar + length * np.cumsum(constants.climb(run.margins[:-1]), axis=0)
        least = _widened(least, run.drift)
        yield at_least(
            "normalized-norm-grows",
            Form.EFFECTIVE,
            norm(run.p[1:], axis=-1),
            least,
            why=DESCENT_ROUNDING,
            points="iterate",
        )


def _affordable(constants: MarginConstants, runs: int, steps: int) -> int:
    return max(10, min(steps, EVALUATIONS // (runs * constants.problem.keys.size)))


def _is_a_run(
    constants: MarginConstants,
    under_test: Implementation,
    found: Trajectory,
    starts: Float64[np.ndarray, "b d"],
    step: float | Float64[np.ndarray, "b"],
    names: tuple[str, ...],
) -> Generator[Claim, None, Run]:
    """That it is one; then its margins. ``step`` is log η, or the length of a normalized step."""
    asked_for, is_a_step, first = names[:3]
    normalized, problem = isinstance(step, float), constants.problem
    steps = _affordable(constants, len(starts), NORMALIZED_STEPS if normalized else STEPS)
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


def _margin_is_kept(constants: MarginConstants, run: Run, log_step: Float64[np.ndarray, "b"]) -> Claim:
    """m(p(t)) ≥ log(e^{m(p(0)) − κ} + βt), and so at least m(p(0)) − κ."""
    top, floor = constants.log_slopes
    log_gap = np.min(constants.log_gaps)
    half = np.log(exact(0.5))
    log_beta = log_step + floor + log_gap + 2 * (floor - top - np.log(constants.length)) + 4 * half
    log_beta = log_beta - np.log(exact(constants.problem.n))
    times = np.log(exact(np.arange(1.0, len(run.p.value))))[:, None]
    kept = run.margins[0] - constants.kappa
    least = np.logaddexp(kept + np.zeros_like(run.drift), log_beta + times)
    allowed = _factor_of(constants, run, kept) * run.drift[-1]
    if not (allowed < MOST_DRIFT).all():
        why = f"the rounding of the steps may raise the risk by a factor e^{np.max(allowed):.3g}"
        return undecided_claim("margin-is-kept", why, Form.EFFECTIVE)
    return at_least("margin-is-kept", Form.EFFECTIVE, run.margins[1:], least, points="iterate")


def _factor_of(constants: MarginConstants, run: Run, kept: Numbers) -> Float64[np.ndarray, "b"]:
    """How fast log(L − L_opt) changes at most: (1 + q) max‖g‖ times how far the slopes of an input are apart."""
    problem = constants.problem
    lowest = np.maximum(run.margins.value.min(axis=0), kept.value - kept.error)
    q = np.minimum(value_of(constants.missed(exact(lowest))), 1.0)
    ranges = list(zip(problem.scores.max(axis=1).tolist(), problem.gaps().max(axis=1).tolist(), strict=True))
    loss, apart = problem.loss, []
    for x in q.tolist():
        ends = [(top - x * gap, top) for top, gap in ranges]
        apart.append(max(loss.log_bound(*end) - loss.log_floor(*end) for end in ends))
    return np.asarray(2 * (1 + q) * float(value_of(constants.reach)) * np.exp(np.minimum(apart, 700.0)))


def _turning(
    constants: MarginConstants,
    run: Run,
    climbs: str,
    turns: str,
    inside: np.ndarray | None = None,
) -> Iterator[Claim]:
    """How far a run has come along p_mm, by the length of its steps and by what its norm has grown."""
    p_bar, m = constants.p_mm / constants.length, run.margins[:-1]
    there = np.ones(run.drift.shape, dtype=bool) if inside is None else inside[:-1]
    m = np.where(there, m, constants.needed)
    along = (run.p[1:] - run.p[:1]) @ p_bar
    least = np.cumsum(constants.climb(m) * norm(run.moved, axis=-1), axis=0)
    sums = ((climbs, least), (turns, turned(constants, run.p, run.moved, m)))
    for name, bound in sums:
        left, right = _widened(along, 2 * run.drift)[there], bound[there]
        made = at_least(name, Form.EFFECTIVE, left, right, why=DESCENT_ROUNDING, points="iterate")
        if made.verdict is not Verdict.FALSIFIED and not there.all():
            why = f"the run leaves m(p) ≥ log(2(T−1)A) after {int(there.sum(axis=0).min())} steps"
            made = undecided_claim(name, why, Form.EFFECTIVE)
        yield made


def _widened(x: Numbers, by: Float64[np.ndarray, "t b"]) -> Numbers:
    return x.widened(by) if isinstance(x, Bounded) else x
