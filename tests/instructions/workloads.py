"""The hot loops on small data: those that `make bench` times, and those on which `theorems verify` spends its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import numpy as np

from generators.datasets import dataset_named
from generators.random_trials import random_trial
from generators.user_data import load
from reference_attention.files import to_json, write_text
from reference_attention.svm.max_margin import max_margin
from reference_attention.training.batched_flow import gradient_flows
from reference_attention.training.descent import descend
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.run.registry.lookup import statement_named

Work = Callable[[], object]


def feasible(n: int, tokens: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Gaussian keys with the chosen tokens pushed along a common direction."""
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(n, tokens, d))
    direction = rng.normal(size=d)
    alpha = np.argmax(keys @ direction, axis=1).astype(np.int64)
    keys[np.arange(n), alpha] += direction / np.linalg.norm(direction)
    return keys, alpha


def descents(folder: Path) -> Work:
    """Return the work of 100 normalized steps on 100 random trials at (n, T, d) = (4, 6, 10)."""
    trials = [random_trial(0, 10, k).problem for k in range(100)]
    keys, scores = np.stack([trial.keys for trial in trials]), np.stack([trial.scores for trial in trials])
    start, loss = np.zeros((len(trials), 10)), trials[0].loss
    return partial(descend, keys, scores, loss, start, steps=100, log_step=0.0, normalized=True, record_every=100)


def exact_svm(shape: tuple[int, int, int], folder: Path) -> Work:
    """Return the work of ATT-SVM with its certificate."""
    return partial(max_margin, *feasible(*shape))


def flows(folder: Path) -> Work:
    """Return the work of 20 flows on random trials at (4, 6, 10), in a batch, to a norm of 30."""
    problems = [random_trial(0, 10, k).problem for k in range(20)]
    starts = np.random.default_rng(0).normal(size=(20, 10))
    return partial(gradient_flows, problems, starts, norms=np.full(20, 30.0))


def checked(id: str, data: str, folder: Path) -> Work:
    """Return the work of checking a statement on a named data set."""
    statement, case = statement_named(id), dataset_named(data)

    def work() -> None:
        assert check(statement, case, REFERENCE).verdict is Verdict.UPHELD

    return work


def reading(suffix: str, folder: Path) -> Work:
    """Return the work of reading a file of keys and scores, with 30 inputs of 10 tokens in 20 dimensions."""
    rng = np.random.default_rng(0)
    arrays = {"keys": rng.normal(size=(30, 10, 20)), "scores": rng.normal(size=(30, 10))}
    path = folder / f"data{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    else:
        write_text(path, to_json({name: value.tolist() for name, value in arrays.items()}))
    return partial(load, str(path), 0)


WORKLOADS: Mapping[str, Callable[[Path], Work]] = MappingProxyType(
    {
        "descents": descents,
        "att-svm (4, 6, 10)": partial(exact_svm, (4, 6, 10)),
        "att-svm (10, 10, 30)": partial(exact_svm, (10, 10, 30)),
        "flows": flows,
        "lemma-1": partial(checked, "lemma-1", "figure-1a"),
        "theorem-3": partial(checked, "theorem-3", "figure-1b"),
        "lemma-13": partial(checked, "lemma-13", "figure-1a"),
        "read .npz": partial(reading, ".npz"),
        "read .json": partial(reading, ".json"),
    }
)


@contextmanager
def made(name: str) -> Iterator[Work]:
    """Yield the named work; the files that it reads exist within the block."""
    with TemporaryDirectory() as folder:
        yield WORKLOADS[name](Path(folder))
