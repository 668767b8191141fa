"""Estimates of the time of large runs: a part of a run goes to the first free core, and no part is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.planning import costs, format_duration, parts_of_verify, tables, wall
from theorems.command.app import main


@pytest.mark.parametrize(
    ("parts", "cores", "seconds"),
    [([3, 1, 1, 1], 1, 6), ([3, 1, 1, 1], 2, 3), ([1, 1, 1, 3], 2, 4), ([5, 1], 9, 5), ([2, 2, 2], 2, 4)],
)
def test_parts_go_to_the_first_free_core(parts: list[float], cores: int, seconds: float) -> None:
    assert wall(parts, cores) == seconds


def test_costs_are_read_and_printed_and_split_into_parts_without_loss(tmp_path: Path) -> None:
    measured = tmp_path / "verify.json"
    assert main(["verify", "lemma-5", "lemma-10", "--examples", "2", "--json", str(measured)]) == 0
    cost = costs(measured)
    assert list(cost) == ["lemma-5", "lemma-10"]
    assert "| `lemma-10` |" in tables(cost)
    assert sum(parts_of_verify(cost, 1000)) == pytest.approx(1000 * sum(cost.values()))
    assert [format_duration(value) for value in (7, 150, 7200, 40 * 3600, 60 * 3600)] == [
        "7 s",
        "2.5 min",
        "2.0 h",
        "40 h",
        "2.5 days",
    ]
