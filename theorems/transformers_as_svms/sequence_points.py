"""Claims on the risk over several queries per input, at points: two-sided bounds, and the sublevel sets of balls.

References: *Transformers as Support Vector Machines*, Lemma 1 and Theorem 2, carried over to sequence outputs;
derivations in :mod:`.sequence`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.sequence_max_margin import SequenceMaxMargin
from theorems.bounded import exact, value_of, with_rounding
from theorems.core.claim import Claim, Form, at_least
from theorems.core.points import climb, probe_points
from theorems.curves.reduced import Reduced, tangent_basis
from theorems.curves.sublevel_hunt import hunt
from theorems.rounding.attention_at import Numbers, violation_of
from theorems.rounding.sized import sized_equal
from theorems.transformers_as_svms.sequence_numbers import SequenceRows, dual_value

POINTS = 60
SUBLEVEL_RADII = (1.01, 2.0, 10.0, 1e3, 1e6)
"""RΘ/κ of the sublevel sets."""
RAY = (1.0, 4.0, 20.0, 100.0, 1e3, 1e5)
"""RΘ along W^mm, where the risk's leading term is claimed."""
HUNT_BUDGET = 60_000
"""About how many floats one batch of hunted points may occupy."""


def risk_claims(
    rows: SequenceRows, svm: SequenceMaxMargin, largest: Problem, rng: np.random.Generator
) -> Iterator[Claim]:
    """The excess under test is the mean over all queries, and lies between its bounds, at any W."""

    def floor(points: Float64[np.ndarray, "m d"]) -> tuple[Any, Any]:
        # For the search alone.
        plain = rows.plain_log_excess(points) + np.log(rows.total)
        least = np.min(points @ value_of(rows.stacked_rows).T, axis=1)
        low = float(value_of(rows.log_slope_bounds)[1]) + float(value_of(rows.log_least_gap))
        return plain, low - np.log(2) - np.maximum(least, 0.0)

    ray = np.array(RAY)[:, None] * svm.p
    points = np.concatenate([climb(rng, probe_points(rng, largest, svm.p, m=POINTS), violation_of(floor)), ray])
    at = exact(points)
    yield sized_equal("excess-is-the-mean", rows.excess_under_test(at, "excess-is-the-mean"), rows.excess(at))
    log_excess = rows.log_excess_under_test(at, "risk-floor")
    steep, flat = rows.log_slope_bounds
    margins = rows.margins(at)
    every: Any = np.concatenate([h.reshape(len(points), -1) for h in margins], axis=1)
    least = np.maximum(np.min(every, axis=1), 0.0)
    low = flat + rows.log_least_gap - np.log(exact(2)) - least
    yield at_least("risk-floor", Form.EFFECTIVE, log_excess, low)
    terms = [gap - h for gap, h in zip(rows.log_gaps, margins, strict=True)]
    flattened: Any = np.concatenate([term.reshape(len(points), -1) for term in terms], axis=1)
    yield at_least("risk-ceiling", Form.EFFECTIVE, steep + np.logaddexp.reduce(flattened, axis=1), log_excess)
    yield from _leading_term(rows, exact(ray))


def _leading_term(rows: SequenceRows, ray: Numbers) -> Iterator[Claim]:
    log_excess = rows.log_excess_under_test(ray, "leading-term-from-below")
    margins = rows.margins(ray)
    count = len(RAY)
    below, above = [], []
    for h, costs, problem in zip(margins, rows.log_costs, rows.problems, strict=True):
        others: Any = np.exp(np.logaddexp.reduce(-h, axis=-1))
        lost = np.log1p(others) + rows.bent * np.minimum(others, 1.0)
        width = exact(problem.scores.max(axis=1)) - problem.scores.min(axis=1)
        below.append((costs - h - lost[..., None]).reshape(count, -1))
        above.append((costs - h + (width * np.minimum(others, 1.0))[..., None]).reshape(count, -1))
    low: Any = np.logaddexp.reduce(np.concatenate(below, axis=1), axis=1)
    high: Any = np.logaddexp.reduce(np.concatenate(above, axis=1), axis=1)
    what = {"points": "point of the ray"}
    yield at_least("leading-term-from-below", Form.SHARP, log_excess, low, **what)
    yield at_least("leading-term-from-above", Form.SHARP, high, log_excess, **what)


def sublevel_claims(rows: SequenceRows, svm: SequenceMaxMargin, rng: np.random.Generator) -> Iterator[Claim]:
    """Hunt for points of sublevel sets that violate the bounds on margin and correlation.

    A point of the ball whose risk is larger than at R W̄^mm by a factor e^o belongs to the sublevel set of ρ − o.
    """
    kappa = rows.log_kappa
    rhos = float(value_of(kappa)) * np.array(SUBLEVEL_RADII)
    ray = rhos[:, None] * svm.direction
    edge = rows.plain_log_excess(svm.norm * ray)

    def inside(points: Float64[np.ndarray, "r b d"]) -> Bool[np.ndarray, "r b"]:
        short = norm(points, axis=-1) <= rhos[:, None] * (1 + 4 * EPS)
        return np.asarray(short & (rows.plain_log_excess(svm.norm * points) <= edge[:, None]))

    unit = svm.norm * value_of(rows.stacked_rows)
    parts = list(zip(rows.problems, svm.margins, svm.neighbours, strict=True))
    others = [np.arange(problem.T) != problem.optimal[:, None] for problem in rows.problems]
    margins = np.concatenate([one[where] for (_, one, _), where in zip(parts, others, strict=True)])
    near = np.concatenate([one[where] for (_, _, one), where in zip(parts, others, strict=True)])
    costs = np.concatenate([value_of(cost).ravel() for cost in rows.log_costs])
    basis = tangent_basis(svm.direction)
    flat = np.zeros(svm.p.size - 1)
    centres = np.array([Reduced(unit @ basis, margins, costs, rho).newton(flat, 60)[0] for rho in rhos])
    size = int(np.clip(HUNT_BUDGET // (len(rhos) * sum(q.keys.size for q in rows.problems)), 6, 24))
    found = hunt(inside, svm.direction, basis, unit, near, rhos, centres, size=size, rounds=1, rng=rng)
    # R W̄^mm itself belongs to its sublevel set.
    found.append((ray[:, None], np.ones((len(rhos), 1), dtype=np.bool_)))
    p = exact(svm.norm * np.concatenate([batch[good] for batch, good in found]))
    of_radius = np.concatenate([np.nonzero(good)[0] for _, good in found])

    p_mm, rho = with_rounding(svm.p), rhos[of_radius]
    log_edge = rows.log_excess_under_test(rhos[:, None] * p_mm, "sublevel-margin")[of_radius]
    over = np.maximum(rows.log_excess_under_test(p, "sublevel-margin") - log_edge, 0.0)
    length, along = norm(p, axis=1) / norm(p_mm), p @ p_mm / (p_mm @ p_mm)
    least, what = rho - over - kappa, {"points": "point of a sublevel set"}
    yield at_least("sublevel-margin", Form.EFFECTIVE, np.min(p @ rows.stacked_rows.T, axis=1), least, **what)
    yield at_least("sublevel-correlation", Form.EFFECTIVE, along / length, least / np.maximum(length, rho), **what)
    most = max(problem.T for problem in rows.problems)
    left = (most - 1) * np.exp(-np.maximum(least, 0.0))
    lost = np.log1p(left) + rows.bent * np.minimum(left, 1.0)
    bound = dual_value(rows, svm) - lost - (log_edge + over)
    yield at_least("sublevel-correlation-from-duals", Form.EFFECTIVE, along, bound, **what)
