"""Solvers for benchopt: the update rules that ``theorems bench`` knows."""

from __future__ import annotations

import numpy as np
from benchopt import BaseSolver

from reference_attention.problem import Problem
from theorems.benchmark.rules import DEFAULT, rule_named


class Solver(BaseSolver):
    """One update rule, which runs from the data's start for a given number of iterations."""

    name = "rules"
    parameters = {"rule": [*DEFAULT, "muon-0.02", "spectral-0.02"]}  # noqa: RUF012
    sampling_strategy = "iteration"

    def set_objective(self, problem: Problem, start: np.ndarray, shape: tuple[int, ...]) -> None:
        """Store the problem, the start and the shape of the trained parameter; nothing is computed yet."""
        self.problem, self.start, self.shape, self.chosen = problem, start, shape, rule_named(self.rule)

    def run(self, n_iter: int) -> None:
        """Run the rule from the start for ``n_iter`` steps."""
        self.p = self.start
        if n_iter > 0:
            run = self.chosen.run([self.problem], self.start[None], n_iter, shape=self.shape, record_every=n_iter)
            self.p = run.final[0]

    def get_result(self) -> dict[str, np.ndarray]:
        """Return the last iterate p."""
        return {"p": np.asarray(self.p)}
