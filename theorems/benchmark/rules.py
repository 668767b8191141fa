"""The rules that are compared: gradient descent and normalized gradient descent, each with a constant step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from reference_attention.errors import InvalidInput
from reference_attention.problem import Problem
from reference_attention.training.descent import Trajectory, descend
from theorems.core.implementation import REFERENCE, Implementation

SMOOTH = "1/L"
"""The step of Theorems 2 and 3."""
DEFAULT = ("gd-1", "gd-1/L", "normalized-0.1", "normalized-1")
"""The names of the rules that are compared unless others are named."""


@dataclass(frozen=True)
class Rule:
    """p ← p − η ∇L(p), or p ← p − η ∇L(p)/‖∇L(p)‖.

    Attributes:
        name: ``gd-ETA``, ``gd-1/L`` or ``normalized-ETA``.
        step: η; ``None`` stands for 1/L_p of the problem.
        normalized: whether the gradient is divided by its norm.
    """

    name: str
    step: float | None
    normalized: bool

    def run(
        self,
        problems: list[Problem],
        starts: Float64[np.ndarray, "b d"],
        steps: int,
        under_test: Implementation = REFERENCE,
        *,
        record_every: int = 1,
    ) -> Trajectory:
        """The iterates from one start for each of as many problems of one shape and loss; batch shape (b,)."""
        return descend(
            np.stack([problem.keys for problem in problems]),
            np.stack([problem.scores for problem in problems]),
            problems[0].loss,
            starts,
            steps=steps,
            log_step=np.array([self.log_step(problem, under_test) for problem in problems]),
            normalized=self.normalized,
            gradient=under_test.scaled_gradient,
            record_every=record_every,
        )

    def log_step(self, problem: Problem, under_test: Implementation) -> float:
        """log η on this problem."""
        if self.step is not None:
            return math.log(self.step)
        smoothness = under_test.log_smoothness(problem)
        # ∇L = 0 throughout when L_p = 0: any step will do.
        return -smoothness if smoothness > -math.inf else 0.0


def rule_named(name: str) -> Rule:
    """The rule of that name.

    Raises:
        InvalidInput: not gd-ETA, gd-1/L or normalized-ETA with a positive finite number ETA.
    """
    kind, _, size = name.partition("-")
    if name == f"gd-{SMOOTH}":
        return Rule(name, None, False)
    try:
        step = float(size)
    except ValueError:
        step = math.nan
    if kind not in ("gd", "normalized") or not (math.isfinite(step) and step > 0):
        raise InvalidInput(
            f"--rule: {name!r} is not gd-{SMOOTH}, gd-ETA or normalized-ETA with a positive number ETA"
            f" (by default {', '.join(DEFAULT)})."
        )
    return Rule(name, step, kind == "normalized")
