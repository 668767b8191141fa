"""Cases of statements on W: realistic numbers, and the shares of their properties."""

from __future__ import annotations

import pytest

from generators.realistic_numbers import realistic
from tests.generators.test_case_statistics import statistics_of
from tests.generators.test_realistic_numbers import share_with_idle_neighbour, unmet_assumptions


@pytest.mark.parametrize("id", ["tsvm-rank", "tsvm-local-path", "tsvm-sequence"])
def test_realistic_cases_satisfy_their_assumptions(id: str) -> None:
    with realistic(True):
        assert unmet_assumptions(id) == []


@pytest.mark.parametrize("id", ["tsvm-frobenius-path", "tsvm-local-path"])
def test_more_than_a_quarter_of_cases_on_w_has_a_neighbour_without_a_dual(id: str) -> None:
    with realistic(True):
        assert share_with_idle_neighbour(id) > 1 / 4


@pytest.mark.parametrize("id", ["tsvm-rank", "tsvm-frobenius-path", "tsvm-no-stationary-point", "tsvm-local-path"])
@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("apart in one coordinate, p_mm uses it", 0.1, 0.7),
        ("apart in one coordinate, p_mm does not", 0.02, 0.5),
        ("degenerate duals", 0.05, 0.5),
    ],
)
def test_shares_of_properties_of_cases_on_w_are_within_their_bounds(
    id: str, name: str, least: float, most: float
) -> None:
    share = statistics_of(id).shares[name]
    assert share.of
    assert least <= share.value <= most, share
