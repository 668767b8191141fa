"""One case in five has sizes at which kernels work block by block; assumptions hold on these cases too."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase

from generators.case import Case
from generators.hypothesis_driver import drive
from generators.numbers import AROUND_BLOCKS, BLOCKS, MODERATE, SOLVABLE_BLOCKS, Large
from generators.problems import cases
from reference_attention.errors import InvalidInput
from tests.generators.test_strategies import broken_assumptions


@pytest.mark.parametrize(
    ("large", "expected"),
    [
        (BLOCKS, ()),
        (BLOCKS, ("positive-labels", "strict-optimum", "head-in-key-range")),
        (SOLVABLE_BLOCKS, ("separable", "strict-optimum", "equal-non-optimal-scores")),
        (SOLVABLE_BLOCKS, ("separable", "strict-optimum", "equal-non-optimal-scores", "single-input")),
        (MODERATE, ("locally-optimal",)),
    ],
)
def test_a_fifth_of_the_cases_has_large_sizes(large: Large, expected: tuple[str, ...]) -> None:
    shapes = []

    def check(case: Case) -> None:
        assert not broken_assumptions(case, expected)
        shapes.append(case.problem.keys.shape)

    drive(
        cases(assumptions=expected, large=large),
        check,
        examples=60,
        seed=0,
        phases=[Phase.generate],
        unchecked=list(HealthCheck),
        near_copies=False,
    )
    wide = [(n, T, d) for n, T, d in shapes if T > 5 or d > 5]
    assert 0.1 * len(shapes) <= len(wide) <= 0.4 * len(shapes)
    assert all(T in large.tokens and d in large.d and n <= large.n[1] for n, T, d in wide)
    assert all(n * T * d <= large.entries and n * T <= large.rows for n, T, d in wide)


def test_every_length_around_a_multiple_of_a_block_size_can_be_drawn() -> None:
    lengths = set()

    def check(shape: tuple[int, int, int]) -> None:
        lengths.update({("T", shape[1]), ("d", shape[2])})

    drive(
        BLOCKS.shapes(),
        check,
        examples=400,
        seed=0,
        phases=[Phase.generate],
        unchecked=list(HealthCheck),
        near_copies=False,
    )
    assert lengths == {(axis, size) for axis in "Td" for size in AROUND_BLOCKS}


def test_large_sizes_together_with_other_requested_sizes_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^large: tokens or d already gives the sizes"):
        cases(large=BLOCKS, d=1)
    with pytest.raises(InvalidInput, match=r"^large: general-position"):
        cases(large=BLOCKS, assumptions=("general-position",))
