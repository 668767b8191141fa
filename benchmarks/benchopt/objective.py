"""The objective of a run: 1 − cos of the angle between p and its limit, and p's margins divided by the largest ones."""

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
        """Skip data on which the gradient flow has no limit with which p could be compared."""
        limit = limit_of(problem, start)
        return isinstance(limit, str), limit if isinstance(limit, str) else None

    def set_data(self, problem: Problem, start: np.ndarray, shape: tuple[int, ...], keys: OuterKeys | None) -> None:
        """Store keys and scores, p(0), and the shape of the trained parameter."""
        limit = limit_of(problem, start)
        assert isinstance(limit, Limit)
        self.problem, self.start, self.shape, self.limits = problem, start, shape, Limits(problem, limit, keys)

    def get_objective(self) -> dict[str, Any]:
        """Return the arguments that ``Solver.set_objective`` takes: problem, start and shape."""
        return {"problem": self.problem, "start": self.start, "shape": self.shape}

    def evaluate_result(self, p: np.ndarray) -> dict[str, float]:
        """Return 1 − cos and the margins of p; for p = 0, which has no direction, return 1 and zero margins."""
        if not p.any():
            return {"value": 1.0, "margin_l2": 0.0, "margin_linf": 0.0}
        euclidean, boxed = self.limits.shares(p)
        apart = float(one_minus_cosine(p, self.limits.svm.direction))
        return {"value": apart, "margin_l2": euclidean, "margin_linf": boxed}

    def get_one_result(self) -> dict[str, np.ndarray]:
        """Return an example of a result: the limit direction as p."""
        return {"p": self.limits.svm.direction}
