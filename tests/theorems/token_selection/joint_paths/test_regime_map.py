"""The regime map: which schedule ends where, on Figure 3(b) and on other data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import theorems.command.regime_map as report
from generators.datasets import DATASETS
from tests.places import ROOT
from theorems.command.app import main
from theorems.regime_map import work as regime_map_work
from theorems.token_selection.joint_paths.regime_map import Regime, generate_case, regimes

DOCUMENT = ROOT / "docs" / "regime_map.md"


def by_schedule(rows: list[Regime]) -> dict[str, Regime]:
    return {row.schedule: row for row in rows}


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_the_path_ends_where_the_prediction_says(seed: int | None) -> None:
    case = DATASETS["figure-3b"]() if seed is None else generate_case(seed)
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


def test_the_document_is_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(regime_map_work, "documented_cases", lambda: [DATASETS["figure-3b"]()])
    assert main(["regime-map", "--markdown"]) == 0
    said = capsys.readouterr()
    assert "[1/1] figure-3b: 10 schedules" in said.err
    written = DOCUMENT.read_text(encoding="utf-8")
    assert said.out.startswith(report.BEFORE)
    assert written.startswith(report.BEFORE)
    assert written.endswith(report.AFTER)
    assert said.out.endswith(report.AFTER)

    def ends(text: str) -> list[list[str]]:
        # The distances beyond are at rounding level, which depends on the machine.
        return [line.split(" | ")[:4] for line in text.splitlines() if line.startswith("| figure-3b")]

    assert len(ends(written)) == 10
    assert ends(said.out) == ends(written)
    assert ends(said.out.replace("p_relax", "p_mm")) != ends(written)


def test_on_data_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["regime-map", "--data", "figure-5"]) == 0
    table = capsys.readouterr().out
    assert all(word in table for word in ("figure-5", "r = sqrt(R)", "between", "p_relax"))
    assert main(["regime-map", "--data", "figure-5", "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("| data | schedule | r/R → | ends at |")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("figure-3a", "figure-3a has no regime map: every input is a support of v_mm"),
        ("figure-1c", "figure-1c has no regime map: no ν of Assumption C"),
        ("keys.npz", "keys.npz has no regime map: the case has no tokens and labels"),
        ("nothing", "'nothing' is neither a file"),
        ("nothing.npz", "there is no such file"),
    ],
)
def test_data_without_a_map(
    data: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("keys.npz", keys=np.eye(2)[None], scores=np.array([[1.0, 0.0]]))
    assert main(["regime-map", "--data", data]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert not printed.out
