"""Program that prints the angles between W and its limit W^mm at the end of gradient flows, for docs/second_paper.md.

The tokens lie on the unit sphere. The flows begin at a W whose margin is so large that convergence to W^mm is proven,
and are followed to ‖W‖ = 1e6. Run it with ``python benchmarks/query_limits.py``.
"""

from __future__ import annotations

import numpy as np

from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.flow import gradient_flow
from theorems.bounded import value_of
from theorems.curves.margin_points import with_least_margin
from theorems.token_selection.global_paths.margin_constants import MarginConstants

SIZES = ((4, 6, 10), (6, 8, 10))
"""Sizes (n, T, d) of the problems; T − 1 ≤ d and n(T − 1) ≤ d², so that the rows of ATT-SVM's constraints can be
independent."""
NORM = 1e6


def on_the_sphere(seed: int, n: int, T: int, d: int) -> Problem:
    """Draw tokens, queries and head on the unit sphere, and random labels, and return the problem of training W."""
    rng = np.random.default_rng(seed)
    drawn = (rng.standard_normal(shape) for shape in ((n, T, d), (n, d), (d,)))
    X, queries, v = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in drawn)
    return QueryDataset(X, queries, rng.choice([-1.0, 1.0], n), v).problem


def gap_at(problem: Problem, seed: int, norm: float = NORM) -> float:
    """Return 1 − cos of the angle between W^mm and W at ‖W‖ = ``norm``, on a gradient flow from a random start.

    The start has the margin ``kappa + needed`` of :class:`MarginConstants`, which is proven to suffice for convergence
    to W^mm.
    """
    svm = max_margin(problem.exact_keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    constants = MarginConstants(problem, svm)
    beside = np.random.default_rng(seed).standard_normal((1, problem.d))
    start = with_least_margin(constants, beside, np.atleast_1d(value_of(constants.kappa + constants.needed)))[0]
    flow = gradient_flow(problem, start, norm=norm, axis=svm.p)
    assert flow.reached_norm, flow.reason
    return float(flow.one_minus_cosine(svm.p)[-1])


def main(seeds: int = 25) -> None:
    """Print, for each size, the least, the largest and the median 1 − cos over the seeds."""
    for n, T, d in SIZES:
        gaps = [gap_at(on_the_sphere(seed, n, T, d), seed) for seed in range(seeds)]
        low, middle, high = min(gaps), float(np.median(gaps)), max(gaps)
        print(f"(n, T, d) = ({n}, {T}, {d}), ‖W‖ = {NORM:g}: 1 − cos from {low:.1e} to {high:.1e}, median {middle:.1e}")


if __name__ == "__main__":
    main()
