"""The planning page: what it shows is what is printed, and the simulated cores are as slow as cores are."""

from __future__ import annotations

import pytest

from benchmarks.planning import costs, format_duration, parts_of_verify, tables, wall
from tests.documents import read


def test_the_page_has_what_is_printed() -> None:
    assert tables() in read("docs/planning.md")


@pytest.mark.parametrize(
    ("parts", "cores", "seconds"),
    [([3, 1, 1, 1], 1, 6), ([3, 1, 1, 1], 2, 3), ([1, 1, 1, 3], 2, 4), ([5, 1], 9, 5), ([2, 2, 2], 2, 4)],
)
def test_parts_go_to_the_first_core_that_is_free(parts: list[float], cores: int, seconds: float) -> None:
    assert wall(parts, cores) == seconds


def test_nothing_is_left_out() -> None:
    cost = costs()
    assert sum(parts_of_verify(cost, 1000)) == pytest.approx(1000 * sum(cost.values()))
    assert [format_duration(value) for value in (7, 150, 7200, 40 * 3600, 60 * 3600)] == [
        "7 s",
        "2.5 min",
        "2.0 h",
        "40 h",
        "2.5 days",
    ]
