"""Objective for benchopt: 1 − cos of the angle between p and its limit, and p's share of the largest margins."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchopt import BaseObjective

from reference_attention.angles import one_minus_cosine
from reference_attention.outer_keys import OuterKeys
from reference_attention.problem import Problem
from theorems.benchmark.measurements import Limit, Limits, limit_of


class Objective(BaseObjective):
    """Distance of p from the solution of ATT-SVM for the tokens that the gradient flow from the same start selects."""

    name = "Direction of attention"
    url = "https://arxiv.org/abs/2306.13596"
    min_benchopt_version = "1.6"
    sampling_strategy = "iteration"

    def skip(self, problem: Problem, start: np.ndarray, **data: Any) -> tuple[bool, str | None]:
        """Return whether to skip the data, and why: on some data the gradient flow has no limit to compare p with."""
        limit = limit_of(problem, start)
        return isinstance(limit, str), limit if isinstance(limit, str) else None

    def set_data(self, problem: Problem, start: np.ndarray, shape: tuple[int, ...], keys: OuterKeys | None) -> None:
        """Store the problem, the start p(0), and the shape of the trained parameter."""
        limit = limit_of(problem, start)
        assert isinstance(limit, Limit)
        self.problem, self.start, self.shape, self.limits = problem, start, shape, Limits(problem, limit, keys)

    def get_objective(self) -> dict[str, Any]:
        """Return the arguments that ``Solver.set_objective`` takes: problem, start and shape."""
        return {"problem": self.problem, "start": self.start, "shape": self.shape}

    def evaluate_result(self, p: np.ndarray) -> dict[str, float]:
        """Return 1 − cos (of the angle between p and its limit) and p's two margins; for p = 0 these are 1, 0 and 0."""
        if not p.any():
            return {"value": 1.0, "margin_l2": 0.0, "margin_linf": 0.0}
        euclidean, boxed = self.limits.shares(p)
        apart = float(one_minus_cosine(p, self.limits.svm.direction))
        return {"value": apart, "margin_l2": euclidean, "margin_linf": boxed}

    def get_one_result(self) -> dict[str, np.ndarray]:
        """Return an example of a solver's result: the limit direction as p."""
        return {"p": self.limits.svm.direction}
