"""The benchmark for benchopt agrees with ``theorems bench``; skipped where the extra ``benchopt`` is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from generators.user_data import attention_case, load
from reference_attention.angles import one_minus_cosine
from tests.places import ROOT
from theorems.benchmark.bench_units import shape_of, start_of
from theorems.benchmark.measurements import Limit, limit_of
from theorems.benchmark.rules import rule_named

pytest.importorskip("benchopt", reason="needs the extra benchopt")


def results_of(folder: Path, *options: str) -> list[dict[str, object]]:
    """Run ``benchopt run`` on a copy of the benchmark, into which it writes, and return the rows of the result."""
    import pandas as pd

    shutil.copytree(ROOT / "benchmarks" / "benchopt", folder)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HOME": str(folder)}
    command = [sys.executable, "-m", "benchopt", "run", str(folder), "-n", "1", "-r", "1", "--no-plot", *options]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert process.returncode == 0, process.stdout + process.stderr
    (result,) = (folder / "outputs").glob("*.parquet")
    rows: list[dict[str, object]] = pd.read_parquet(result).to_dict("records")
    return rows


@pytest.mark.parametrize(("data", "rule"), [("figure-1a", "normalized-1"), ("tsvm-paths-3", "spectral-0.02")])
def test_benchopt_and_the_rule_come_equally_close_to_the_limit(tmp_path: Path, data: str, rule: str) -> None:
    rows = results_of(tmp_path / "benchmark", "-d", f"named[data={data}]", "-s", f"rules[rule={rule}]")
    case = attention_case(load(data, 0))
    start = start_of(data, case)
    limit = limit_of(case.problem, start)
    assert isinstance(limit, Limit)
    assert rows
    for row in rows:
        steps = int(str(row["stop_val"]))
        p = rule_named(rule).run([case.problem], start[None], steps, shape=shape_of(case)).final[0] if steps else start
        due = one_minus_cosine(p, limit.svm.direction) if np.any(p) else 1.0
        assert row["objective_value"] == pytest.approx(float(due))


def test_random_trials_run_and_report_margins_in_two_norms(tmp_path: Path) -> None:
    rows = results_of(tmp_path / "benchmark", "-d", "trials[d=10,number=0]", "-s", "rules[rule=normalized-0.1]")
    assert {"objective_margin_l2", "objective_margin_linf"} <= set(rows[0])
