"""Bounds on the growth of descent carry the rounding of their own formulas, which is compared with ball arithmetic.

The climb is the increase of p·p_mm after t steps of size η; Δ is a step; the deficit is the most by which
⟨p(t) − p(b), p̄_mm⟩ falls short of ‖p(t)‖ − ‖p(b)‖.
"""

from __future__ import annotations

import numpy as np
import pytest
from flint import arb

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from tests.theorems import oracle
from theorems.bounded import exact, in_floats
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.run.registry.lookup import statement_named
from theorems.token_selection.global_paths.theorem_2_global_convergence import (
    climb_bound,
    correlation_deficit,
    log_rate,
)

LINE = Problem(np.array([[[1.0], [0.0]]]), np.array([[1.0, 0.0]]), LOSSES["correlation"])
"""Two tokens on a line, with keys 1 and 0; the climb is at least log(1 + η e^{−‖p(0)‖} t/4)."""


def true_climb(start: float, steps: int) -> arb:
    """Return the exact lower bound on the climb for η = 1, in ball arithmetic."""
    return (1 + arb(steps) * arb(-start).exp() / 4).log()


def test_the_rounding_of_the_climb_exceeds_sixteen_eps() -> None:
    """For the start p(0) = 63 the logarithm −64.4 in the bound loses more than 16 eps."""
    start, steps = np.array([63.0]), np.array([1])
    outcome = check(statement_named("theorem-2"), Case(LINE, start=start), REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason
    with in_floats():
        climbed = float(climb_bound(LINE, log_rate(LINE, start), steps)[0, 0])
    carried = climb_bound(LINE, log_rate(LINE, start), steps)[0, 0]
    with oracle.precision(1000):
        truth = true_climb(63.0, 1)
        assert abs(arb(climbed) - truth) > 16 * EPS * climbed
        assert abs(arb(float(carried.value)) - truth) <= float(carried.error)


@pytest.mark.parametrize("steps", [1, 2, 3, 1000])
def test_the_exact_climb_is_within_the_error_bound(steps: int) -> None:
    starts = np.arange(0.0, 700.0, 7.0)
    carried = climb_bound(LINE, log_rate(LINE, starts), np.array([steps]))[0]
    used = []
    with oracle.precision(3000):
        for start, value, error in zip(starts, carried.value, carried.error, strict=True):
            used.append(float(abs(arb(float(value)) - true_climb(float(start), steps))) / float(error))
    assert 1 / 500 < max(used) <= 1


@pytest.mark.parametrize("lag", [0.0, 2.0])
def test_a_deficit_is_summed_over_the_steps_of_each_run(lag: float) -> None:
    """The deficit is λ log((‖p(t)‖ + λ)/(‖p(b)‖ + λ)) + Σ ‖Δ‖²/(2(‖p‖ + λ)), where λ is the lag; b is 1 if λ and p(0)
    are 0, otherwise b is 0.
    """
    norms, lengths = np.array([[1.0, 0.0], [2.0, 3.0], [4.0, 6.0]]), np.array([[1.0, 3.0], [2.0, 4.0]])
    result = correlation_deficit(exact(norms), exact(lengths), exact(lag))
    one = [lag * np.log((x + lag) / (1 + lag)) for x in (1.0, 2.0, 4.0)]
    bent = [0.0, 1 / (2 * (1 + lag)), 1 / (2 * (1 + lag)) + 4 / (2 * (2 + lag))]
    assert result.value[:, 0] == pytest.approx(np.add(one, bent), rel=1e-14)
    first = 9 / (2 * lag) if lag else 0.0
    two = [lag * np.log((x + lag) / lag) if lag else 0.0 for x in (0.0, 3.0, 6.0)]
    assert result.value[:, 1] == pytest.approx(np.add(two, [0.0, first, first + 16 / (2 * (3 + lag))]), rel=1e-14)
