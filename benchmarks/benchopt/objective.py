"""How near the direction of p is to its limit: 1 − cos, and its margins as shares of the largest ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchopt import BaseObjective

from reference_attention.angles import one_minus_cosine
from reference_attention.outer_keys import OuterKeys
from reference_attention.problem import Problem
from theorems.benchmark.measure import Limit, Limits, limit_of


class Objective(BaseObjective):
    """The limit is the solution of ATT-SVM for the tokens that the gradient flow from the same start selects."""

    name = "Direction of attention"
    url = "https://arxiv.org/abs/2306.13596"
    min_benchopt_version = "1.6"
    sampling_strategy = "iteration"

    def skip(self, problem: Problem, start: np.ndarray, **data: Any) -> tuple[bool, str | None]:
        """Where the flow has no limit there is nothing to compare with."""
        found = limit_of(problem, start)
        return isinstance(found, str), found if isinstance(found, str) else None

    def set_data(self, problem: Problem, start: np.ndarray, shape: tuple[int, ...], keys: OuterKeys | None) -> None:
        """Keys and scores, p(0), and the shape of what is trained."""
        found = limit_of(problem, start)
        assert isinstance(found, Limit)
        self.problem, self.start, self.shape, self.limits = problem, start, shape, Limits(problem, found, keys)

    def get_objective(self) -> dict[str, Any]:
        """What a rule is given."""
        return {"problem": self.problem, "start": self.start, "shape": self.shape}

    def evaluate_result(self, p: np.ndarray) -> dict[str, float]:
        """At p = 0, which has no direction, 1 and no margin."""
        if not p.any():
            return {"value": 1.0, "margin_l2": 0.0, "margin_linf": 0.0}
        euclidean, boxed = self.limits.shares(p)
        apart = float(one_minus_cosine(p, self.limits.svm.direction))
        return {"value": apart, "margin_l2": euclidean, "margin_linf": boxed}

    def get_one_result(self) -> dict[str, np.ndarray]:
        """The limit itself."""
        return {"p": self.limits.svm.direction}
