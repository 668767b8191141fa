"""Gradient flows of W come as close to the max-margin direction W^mm as docs/second_paper.md says."""

from __future__ import annotations

import re

import pytest

from benchmarks.query_limits import NORM, SIZES, gap_at, on_the_sphere
from tests.documents import read

PRINTED = re.findall(
    r"\((\d+), (\d+), (\d+)\), ‖W‖ = 1e\+06: 1 − cos from (\S+) to (\S+),", read("docs/second_paper.md")
)


def test_docs_second_paper_has_a_line_for_each_size() -> None:
    assert [tuple(map(int, row[:3])) for row in PRINTED] == list(SIZES)


@pytest.mark.parametrize("row", PRINTED)
@pytest.mark.parametrize("seed", [0, 24])
def test_one_minus_cosine_is_within_the_printed_range(row: tuple[str, ...], seed: int) -> None:
    n, T, d = map(int, row[:3])
    gap = gap_at(on_the_sphere(seed, n, T, d), seed)
    # The page prints bounds of two digits, which may be off by 2 %.
    assert float(row[3]) * 0.98 <= gap <= float(row[4]) * 1.02 < 1e-9


def test_one_minus_cosine_falls_with_the_square_of_the_norm() -> None:
    problem = on_the_sphere(0, *SIZES[0])
    near, far = gap_at(problem, 0, NORM / 100), gap_at(problem, 0)
    # W minus its part along W^mm has nearly converged, so that 1 − cos falls as 1/‖W‖².
    assert near / far == pytest.approx(1e4, rel=1e-2)
