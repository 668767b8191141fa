"""Times of the first and the last change of the tokens of largest softmax weight along a gradient flow.

Time is the variable t of dp/dt = −∇L(p): a short step η of gradient descent takes the time η. The time to reach a
margin grows exponentially with the margin, so tokens can keep nearly all weight for as long as anybody trains, although
the flow finally leaves them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.problem import Problem
from theorems.explanations.ragged_problem import weights_at

LARGEST = 300
"""Power of ten from which on a time is written by its exponent, since it would come near the largest float64."""

Between = tuple[float, float]
"""Logarithms of the times of two consecutive records of a flow between which the tokens of largest weight change."""


@dataclass(frozen=True)
class ChangeTimes:
    """Times of the first and the last change of the tokens of largest weight along a flow.

    Attributes:
        first: the times of the two records between which a token of largest weight changes for the first time.
        last: the times of the two records between which a token of largest weight changes for the last time; may equal
            ``first``.
    """

    first: Between
    last: Between

    @property
    def sentence(self) -> str:
        """Say after how many steps of gradient descent the tokens of largest weight change first and last."""
        last = "" if self.last == self.first else f", the last after {_steps(self.last)}"
        return (
            f"Gradient descent with short steps of size η changes the first of these tokens after {_steps(self.first)}"
            f" steps{last}."
        )

    def as_json(self) -> dict[str, Any]:
        """Return the logarithms of the times for JSON; null stands for an infinite logarithm."""
        return {
            name: [x if math.isfinite(x) else None for x in between]
            for name, between in (("first_log_time", self.first), ("last_log_time", self.last))
        }


def change_times(
    problem: Problem, points: Float64[np.ndarray, "r d"], log_time: Float64[np.ndarray, "r"]
) -> ChangeTimes | None:
    """Return when the tokens of largest weight change along a flow of r records; None if they never change."""
    tokens = weights_at(problem, points).argmax(axis=-1)
    changed = 1 + np.flatnonzero((tokens[1:] != tokens[:-1]).any(axis=1))
    if not changed.size:
        return None
    first, last = ((float(log_time[k - 1]), float(log_time[k])) for k in (changed[0], changed[-1]))
    return ChangeTimes(first, last)


def _steps(between: Between) -> str:
    earlier, later = (_time(log, upwards) for log, upwards in zip(between, (False, True), strict=True))
    if between[1] == math.inf:
        return f"more than {earlier}/η"
    return f"at most {later}/η" if between[0] == -math.inf else f"{earlier}/η to {later}/η"


def _time(log: float, upwards: bool) -> str:
    """Format a time, given by its logarithm, with two digits, rounded up or down; it may exceed float64's range."""
    if not math.isfinite(log):
        return ""
    power = log / math.log(10)
    exponent = math.floor(power)
    size = 10 ** (power - exponent + 1)
    digits = math.ceil(size) if upwards else math.floor(size)
    return f"{digits * 10.0 ** (exponent - 1):.2g}" if exponent < LARGEST else f"{digits / 10:g}e+{exponent}"
