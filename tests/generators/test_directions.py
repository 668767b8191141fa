"""Strategies for prompts of any size, and for points that lie in a cone by construction."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from generators.assumptions import ASSUMPTIONS
from generators.case import Case
from generators.directions import points_in_cone, prompts
from generators.problems import cases
from reference_attention.errors import InvalidInput
from reference_attention.svm.max_margin import MaxMargin, max_margin

QUICK = settings(max_examples=300, derandomize=True, database=None, phases=[Phase.generate])


@pytest.mark.parametrize("d", [1, 3])
def test_drawn_prompts_include_zero_small_and_huge_ones(d: int) -> None:
    along = np.arange(1.0, d + 1)
    made = prompts(d, along=along)
    find(made, lambda p: not p.any(), settings=QUICK)
    find(made, lambda p: 0 < np.linalg.norm(p) < 1e-4, settings=QUICK)
    find(made, lambda p: np.linalg.norm(p) > 900, settings=QUICK)
    find(made, lambda p: np.array_equal(p, along), settings=QUICK)
    find(made, lambda p: np.array_equal(p, -along), settings=QUICK)
    assert not find(made, lambda p: True, settings=settings(database=None)).any()
    with pytest.raises(InvalidInput, match="along"):
        prompts(d + 1, along=along).example()


@settings(max_examples=150)
@given(
    cases(assumptions=("locally-optimal",)),
    st.sampled_from([0.5, 1e-2, 1e-6, 1e-10, 0.0]),
    st.sampled_from([0.0, 1e-3, 7.0, 1e5]),
    st.data(),
)
def test_points_lie_in_the_cone(case: Case, mu: float, radius: float, data: st.DataObject) -> None:
    case = case.normalise()
    solution = max_margin(case.problem.keys, case.chosen_tokens)
    assert isinstance(solution, MaxMargin)
    p = data.draw(points_in_cone(solution.p, mu, radius))
    arrays = {"cone_mu": np.array(max(mu, 2.0**-45)), "cone_radius": np.array(radius)}
    placed = case.replace(start=p, arrays=arrays)
    assert ASSUMPTIONS["in-cone"].check(placed).holds
    # For a larger radius the same point is too short.
    too_far = case.replace(start=p, arrays={**arrays, "cone_radius": np.array(2 * np.linalg.norm(p) + 1)})
    assert ASSUMPTIONS["in-cone"].check(too_far).holds is False


def test_drawn_points_approach_the_boundary_of_their_cone() -> None:
    axis = np.array([1.0, 2.0, 0.0])
    mu, radius = 0.1, 3.0

    def miss(p: np.ndarray) -> float:  # type: ignore[type-arg]
        return float(p @ axis / np.linalg.norm(p) / np.linalg.norm(axis)) - (1 - mu)

    # At 0.999 times the cone's angle, the cosine exceeds 1 − μ by about 2μ/1000.
    near = find(points_in_cone(axis, mu, radius), lambda p: miss(p) < 3e-3 * mu, settings=QUICK)
    assert miss(near) > 0
    shortest = find(points_in_cone(axis, mu, radius), lambda p: np.linalg.norm(p) < radius * 1.001, settings=QUICK)
    assert math.hypot(*shortest) >= radius


@pytest.mark.parametrize(("p", "mu", "radius"), [([0.0], 0.5, 1.0), ([1.0], 1.5, 1.0), ([1.0], 0.5, -1.0)])
def test_cones_with_invalid_parameters_are_refused(p: list[float], mu: float, radius: float) -> None:
    with pytest.raises(InvalidInput, match="cone"):
        points_in_cone(np.array(p), mu, radius).example()
