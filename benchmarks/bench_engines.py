"""Benchmark that times the command ``theorems verify`` on two local Dask workers and on two local processes.

Each run starts a new cluster or new processes, which have to import the statements. The two engines run alternately.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.places import ROOT
from tests.theorems.run.engines.clusters import Cluster

IDS = ("lemma-4", "lemma-5", "lemma-6", "lemma-7", "lemma-9", "lemma-12", "lemma-14")
EXAMPLES = 20
ROUNDS = 3


def seconds_of(folder: Path, *options: str) -> float:
    """Run ``theorems verify`` with the options, and return how many seconds it took."""
    command = [sys.executable, "-m", "theorems", "verify", *IDS, "--examples", str(EXAMPLES), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - began


def test_dask_against_local(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Time ``theorems verify`` on Dask workers and local processes; the ratio of medians is printed at the end."""
    pytest.importorskip("distributed", reason='pip install "max-margin-theorems[dask]"')
    local: list[float] = []
    dask: list[float] = []

    def both() -> None:
        local.append(seconds_of(tmp_path, "--jobs", "2"))
        cluster = Cluster(tmp_path, 2)
        try:
            cluster.wait()
            dask.append(seconds_of(tmp_path, "--engine", f"dask://{cluster.address}"))
        finally:
            cluster.stop()

    benchmark.pedantic(both, rounds=ROUNDS)
    ratio = statistics.median(dask) / statistics.median(local)
    pairs = ", ".join(f"{seconds:.1f} / {other:.1f}" for seconds, other in zip(dask, local, strict=True))
    benchmark.extra_info["ratio"] = f"verify --engine dask, two local workers / --jobs 2: {ratio:.2f} (s: {pairs})"
