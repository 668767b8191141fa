"""The regime map: which schedule ends where, on Figure 3(b) and on other data."""

from __future__ import annotations

import pytest

from generators.datasets import DATASETS
from theorems.regime_map import Regime, generated, regimes, table


def by_schedule(rows: list[Regime]) -> dict[str, Regime]:
    return {row.schedule: row for row in rows}


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_the_path_ends_where_the_prediction_says(seed: int | None) -> None:
    case = DATASETS["figure-3b"]() if seed is None else generated(seed)
    rows = by_schedule(list(regimes(case)))
    for name, row in rows.items():
        # o(1)/R with R = 2²⁰/Θ; along r = √R the ratio itself is still 2^{−10} away from its limit 0.
        allowed = 2e-3 if name == "r = sqrt(R)" else 2e-5
        assert row.from_predicted < allowed, row
        assert row.from_head < 1e-2, row
    assert rows["r = 8/Γ fixed"].ends_at == "p_mm"
    assert {rows[f"r = {c} c* R"].ends_at for c in ("0.125", "0.25", "0.5", "0.75")} == {"between"}
    assert {rows[f"r = {c} c* R"].ends_at for c in ("1", "2", "4")} | {rows["r = exp(RΘ/2)"].ends_at} == {"p_relax"}


def test_figure_3b_has_critical_ratio_one() -> None:
    rows = by_schedule(list(regimes(DATASETS["figure-3b"]())))
    assert rows["r = 1 c* R"].ratio == pytest.approx(1.0, rel=1e-15)


def test_the_table_names_its_data() -> None:
    assert "| figure-3b | r = 0.5 c* R | 0.5 | between |" in table([DATASETS["figure-3b"]()])
