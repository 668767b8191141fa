"""Choices of one token α_i per input of users' data, for statements about locally optimal tokens α.

A statement about locally optimal tokens passes :func:`locally_optimal_choices` as the argument ``from_data``.

References: *Max-Margin Token Selection in Attention Mechanism*, Definition 2, Theorem 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Int64

from generators.case import Case
from reference_attention.outer_keys import first_inputs
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import Infeasible, locally_optimal, max_margin
from reference_attention.training.batched_flow import gradient_flows

MOST_CHOICES = 4096
"""The largest number of choices α that are enumerated; with more, only choices that gradient flows select are tried."""

FLOWS = 8
"""The number of gradient flows that search for α when there are too many choices."""

ROUGH = 1e-3
"""The relative tolerance of the search's gradient flows; the tokens that they select are then checked exactly."""

SELECTED_AT = 1e3
"""The norm of p, in units of 1/max|key|, at which the tokens with the largest weights are taken as a flow's choice."""


def locally_optimal_choices(case: Case) -> Iterator[Case]:
    """Yield the case with each locally optimal α, in lexicographic order; if the case has an α, yield the case alone.

    All T^n choices are decided exactly if there are at most :data:`MOST_CHOICES`. Otherwise only those α are tried that
    gradient flows from ``case.start`` and from seeded random starts select; a locally optimal α may be missed. If no α
    is locally optimal, the case is yielded with the optimal tokens, so that the failing assumption is reported.
    """
    if case.alpha is not None:
        yield case
        return
    problem = case.problem
    few = problem.n * np.log(problem.T) <= np.log(MOST_CHOICES) * (1 + 1e-12)
    optimum_exists = False
    for alpha in separable_choices(problem) if few else flow_selections(case):
        solution = max_margin(problem.exact_keys, alpha)
        if not isinstance(solution, Infeasible) and locally_optimal(solution, problem.scores):
            optimum_exists = True
            yield case.replace(alpha=alpha)
    if not optimum_exists:
        yield case.replace(alpha=problem.optimal)


def separable_choices(problem: Problem) -> Iterator[Int64[np.ndarray, "n"]]:
    """Yield every α, in lexicographic order, for which ATT-SVM(α) is feasible.

    If tokens chosen for the first inputs are not separable by themselves, no choice that begins with these tokens is
    tried.
    """

    def extend(chosen: tuple[int, ...]) -> Iterator[Int64[np.ndarray, "n"]]:
        alpha = np.array(chosen, dtype=np.int64)
        if chosen and isinstance(max_margin(first_inputs(problem.exact_keys, len(chosen)), alpha), Infeasible):
            return
        if len(chosen) == problem.n:
            yield alpha
            return
        for token in range(problem.T):
            yield from extend((*chosen, token))

    yield from extend(())


@lru_cache(maxsize=1)
def flow_selections(case: Case) -> Sequence[Int64[np.ndarray, "n"]]:
    """Return the distinct choices α that gradient flows select, in lexicographic order; the last result is cached."""
    problem = case.problem
    unit = 1.0 / problem.key_scale
    rng = case.rng()
    starts = [] if case.start is None else [case.start]
    starts += [unit * rng.standard_normal(problem.d) for _ in range(FLOWS)]
    norms = np.array([max(SELECTED_AT * unit, 10 * float(np.linalg.norm(start))) for start in starts])
    points = np.array(starts, dtype=np.float64)
    flows = gradient_flows([problem] * len(starts), points, norms=norms, relative=ROUGH)
    selected = {tuple(problem.selection_at(p).tolist()) for p in flows.points}
    return [np.array(alpha, dtype=np.int64) for alpha in sorted(selected)]
