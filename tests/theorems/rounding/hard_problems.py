"""Problems and points at which rounding errors are visible."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from reference_attention.losses import DRAWN_LOSSES, LOSSES
from reference_attention.problem import Problem
from theorems.core.points import probe_points


def nasty_problems() -> Iterator[Problem]:
    """Yield random problems, some with tiny or large score gaps, a common offset of all keys, equal keys, or d = 1."""
    rng = np.random.default_rng(20230613)
    for k, loss in enumerate(3 * list(DRAWN_LOSSES)):
        n, tokens, d = int(rng.integers(1, 4)), int(rng.integers(2, 6)), int(rng.integers(1, 6))
        keys = rng.standard_normal((n, tokens, d)) * np.exp(rng.uniform(-6, 0, (n, tokens, 1)))
        scores = rng.standard_normal((n, tokens))
        if k % 4 == 1:
            keys += 10.0
        if k % 4 == 2:
            scores = np.round(scores) + 1e-12 * rng.standard_normal((n, tokens))
        if k % 4 == 3:
            keys[:, 1] = keys[:, 0]
            scores *= 8.0
        yield Problem(keys, scores, LOSSES[loss])


PROBLEMS = list(nasty_problems())


def ratio(error: object, bound: object) -> float:
    """Return the largest |error| / bound, where entries of error 0 count as 0."""
    e, b = np.abs(np.asarray(error, dtype=float)), np.asarray(bound, dtype=float)
    return float(np.max(np.where(e == 0, 0.0, e / np.where(b > 0, b, np.finfo(float).tiny))))


def points_of(problem: Problem, m: int = 12) -> np.ndarray:
    rng = np.random.default_rng(problem.n + 10 * problem.T)
    return probe_points(rng, problem, rng.standard_normal(problem.d), m=m)
