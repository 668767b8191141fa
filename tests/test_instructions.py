"""The hot loops execute as many instructions as before; docs/profile.md lists what is counted and what is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reference_attention.training.batched_gradient import BatchedGradient
from tests.instructions.baseline import FILE, PYTHON, Kept, Unsaid, changes, read, updated, write
from tests.instructions.counting import OURS, Cost, cost
from tests.instructions.workloads import WORKLOADS, made
from tests.places import ROOT

KEPT = read()


def counted(hash_seed: int) -> dict[str, Cost]:
    """Return the counts of all workloads, made in a separate process, because this one may check arguments' types."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.instructions", "--json"]
    out = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout
    return {name: Cost(**load) for name, load in json.loads(out).items()}


@pytest.fixture(scope="module")
def now() -> dict[str, Cost]:
    return counted(hash_seed=1)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_cost_of_a_hot_loop_is_unchanged(name: str, now: dict[str, Cost]) -> None:
    if name not in KEPT:
        pytest.skip(f"nothing is kept of it for Python {PYTHON}; python -m tests.instructions --write does")
    off = changes(KEPT[name].cost, now[name])
    assert off == {}, 'to keep the new counts: python -m tests.instructions --write, for a rise with --why "…"'


def test_each_workload_has_a_stored_count_for_some_python() -> None:
    named = {name for kept in json.loads(FILE.read_text()).values() for name in kept}
    assert named == set(WORKLOADS), "to keep counts of a new workload: python -m tests.instructions --write"


def test_another_process_makes_the_same_counts(now: dict[str, Cost]) -> None:
    assert counted(hash_seed=2) == now


def twice(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: (method(*arguments), method(*arguments))[1]


def whole_products(self: BatchedGradient, p: np.ndarray) -> np.ndarray:
    return np.asarray((self._rows * p.T).sum(axis=2))


@pytest.mark.parametrize(
    ("method", "planted", "seen"),
    [
        ("_logits", whole_products, {"bytes"}),
        ("_logits", twice(BatchedGradient._logits), {"bytes"}),
        ("_gradient", twice(BatchedGradient._gradient), {"instructions", "bytes"}),
    ],
    ids=["an array with an axis more", "a product taken twice", "a step taken twice"],
)
def test_a_slower_loop_is_noticed(method: str, planted: Any, seen: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with made("descents") as work:
        before = cost(work)
        monkeypatch.setattr(BatchedGradient, method, planted)
        off = changes(before, cost(work))
    assert {item for item, share in off.items() if share > 0} >= seen


def test_counted_bytes_are_those_of_arrays() -> None:
    def work() -> None:
        a = np.empty((10, 20))
        (a + a)[2:].T.copy()
        np.zeros(50).resize(100, refcheck=False)
        bytearray(10**6)

    assert cost(work).bytes == 8 * (200 + 200 + 160 + 50 + 100)


def test_libraries_are_not_counted() -> None:
    assert all(Path(name).is_dir() for name in OURS)
    assert cost(lambda: json.loads(json.dumps(list(range(100))))).instructions == 0


def test_stored_counts_are_raised_only_with_a_reason() -> None:
    kept = {"a": Kept(Cost(1000, 100), ""), "b": Kept(Cost(1000, 100), "exact now")}
    near = {"a": Cost(1040, 96), "b": Cost(960, 104)}
    assert updated(kept, near, "") == kept
    assert updated(kept, {**near, "b": Cost(900, 100)}, "")["b"] == Kept(Cost(900, 100), "")
    for grown in (Cost(1060, 100), Cost(500, 110)):
        with pytest.raises(Unsaid, match="b"):
            updated(kept, {**near, "b": grown}, "")
        assert updated(kept, {**near, "b": grown}, "checks more")["b"] == Kept(grown, "checks more")


def test_counts_of_other_python_versions_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    one = {"instructions": 1, "bytes": 2, "why": ""}
    path.write_text(json.dumps({"2.7": {"a": one, "b": one, "c": one}}))
    write({"a": Kept(Cost(10, 2), ""), "b": Kept(Cost(10, 2), "")}, path)
    assert json.loads(path.read_text())["2.7"] == {"a": one, "b": one, "c": one}
    kept = {"a": Kept(Cost(11, 2), "more"), "b": Kept(Cost(10, 2), ""), "c": Kept(Cost(10, 2), "")}
    write(kept, path)
    assert read(path) == kept
    assert json.loads(path.read_text())["2.7"] == {"b": one, "c": one}
