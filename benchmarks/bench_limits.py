"""Benchmarks of hot loops: the time of our code divided by that of the fastest known program for the same work.

The programs that are compared run alternately. Run with ``make bench``, which installs numba and cvxopt.
"""

from __future__ import annotations

import multiprocessing
import time
import tracemalloc
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.bench_max_margin import feasible
from generators.random_trials import random_trial
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.batched_flow import gradient_flows
from reference_attention.training.descent import descend
from reference_attention.training.flow import gradient_flow
from theorems import Verdict, verify

SHAPES = [(4, 6, 10), (10, 10, 30), (20, 20, 50), (4, 6, 100)]
TRIALS = 1000


def compare_seconds(benchmark: BenchmarkFixture, rounds: int, *works: Callable[[], object]) -> list[float]:
    """Run the functions ``works`` alternately, and return for each of them the seconds of its fastest run."""
    least = [float("inf")] * len(works)

    def once() -> None:
        for k, work in enumerate(works):
            began = time.perf_counter()
            work()
            least[k] = min(least[k], time.perf_counter() - began)

    benchmark.pedantic(once, rounds=rounds, warmup_rounds=1)
    return least


def trials(count: int, d: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys and scores of the first ``count`` random trials of the paper, with tokens in ``d`` dimensions."""
    problems = [random_trial(0, d, k).problem for k in range(count)]
    return np.stack([trial.keys for trial in problems]), np.stack([trial.scores for trial in problems])


def test_normalized_descent_against_numba(benchmark: BenchmarkFixture) -> None:
    """Compare our time for 1000 steps of 1000 trials at (n, T, d) = (4, 6, 10) with that of a loop in numba."""
    numba = pytest.importorskip("benchmarks.comparison_programs", reason="numba, which `make bench` installs")
    keys, scores = trials(TRIALS)
    loss, start = random_trial(0, 10, 0).problem.loss, np.zeros((TRIALS, 10))
    settings = {"steps": 1000, "log_step": 0.0, "normalized": True, "record_every": 1000}
    few = descend(keys, scores, loss, start, **{**settings, "steps": 5}).final  # type: ignore[arg-type]
    moved = start.copy()
    numba.normalized_descents(keys, scores, moved, 5, 1.0)
    assert np.abs(few - moved).max() < 1e-9
    ours, theirs = compare_seconds(
        benchmark,
        5,
        lambda: descend(keys, scores, loss, start, **settings),  # type: ignore[arg-type]
        lambda: numba.normalized_descents(keys, scores, start.copy(), 1000, 1.0),
    )
    benchmark.extra_info["ratio"] = f"1000 normalized steps, {TRIALS} trials: ours / numba {ours / theirs:.2f}"


def test_normalized_descent_against_a_notebook(benchmark: BenchmarkFixture) -> None:
    """Compare the time per trial of 1000 batched steps with that of a notebook's loop (PyTorch autograd and SGD)."""
    notebook = pytest.importorskip("benchmarks.notebook_trial", reason="PyTorch, the extra `kernels`")
    keys, scores = trials(TRIALS)
    loss, start = random_trial(0, 10, 0).problem.loss, np.zeros((TRIALS, 10))

    def batched(steps: int = 1000) -> np.ndarray:
        settings = {"steps": steps, "log_step": 0.0, "normalized": True, "record_every": steps}
        return descend(keys, scores, loss, start, **settings).final  # type: ignore[arg-type]

    def loop(steps: int = 1000) -> np.ndarray:
        return notebook.path(keys[0], scores[0], steps)[-1]  # type: ignore[no-any-return]

    assert np.abs(batched(5)[0] - loop(5)).max() < 1e-9
    ours, theirs = compare_seconds(benchmark, 3, batched, loop)
    benchmark.extra_info["ratio"] = (
        f"1000 normalized steps of a trial: one in a notebook / ours, {TRIALS} at once {theirs / (ours / TRIALS):.0f}"
    )


def test_two_processes_descend_twice_as_much(benchmark: BenchmarkFixture) -> None:
    """Compare the time to run two batches of trials one after the other with the time in two processes at once."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        in_turn, at_once = compare_seconds(
            benchmark, 3, lambda: [_batch(0), _batch(1)], lambda: list(pool.map(_batch, range(2)))
        )
    benchmark.extra_info["ratio"] = (
        f"1000 normalized steps, 2 x {TRIALS} trials: two processes / one {at_once / in_turn:.2f}"
    )


@cache
def _cached_trials() -> tuple[np.ndarray, np.ndarray]:
    return trials(TRIALS)


def _batch(_: int) -> None:
    keys, scores = _cached_trials()
    start, loss = np.zeros((TRIALS, 10)), random_trial(0, 10, 0).problem.loss
    descend(keys, scores, loss, start, steps=1000, log_step=0.0, normalized=True, record_every=1000)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_exact_att_svm_against_float_solvers(benchmark: BenchmarkFixture, shape: tuple[int, int, int]) -> None:
    """Compare the exact ATT-SVM solver with two float solvers (cvxopt, daqp), which are given the rows k_iα − k_it."""
    cvxopt = pytest.importorskip("cvxopt", reason="cvxopt, which `make bench` installs")
    daqp = pytest.importorskip("daqp")
    cvxopt.solvers.options["show_progress"] = False
    keys, alpha = feasible(*shape)
    n, tokens, d = shape
    rows = np.ascontiguousarray((keys[np.arange(n), alpha][:, None] - keys)[np.arange(tokens) != alpha[:, None]])
    P, q, G, h = (cvxopt.matrix(x) for x in (np.eye(d), np.zeros(d), -rows, -np.ones(len(rows))))
    eye, zeros, free = np.eye(d), np.zeros(d), np.full(len(rows), 1e30)
    ones, sense = np.ones(len(rows)), np.zeros(len(rows), dtype=np.int32)
    solved = max_margin(keys, alpha)
    assert isinstance(solved, MaxMargin)
    ours, theirs, floats = compare_seconds(
        benchmark,
        20,
        lambda: max_margin(keys, alpha),
        lambda: cvxopt.solvers.qp(P, q, G, h),
        lambda: daqp.solve(eye, zeros, rows, free, ones, sense),
    )
    benchmark.extra_info["ratio"] = (
        f"ATT-SVM {shape}, {int(solved.neighbours.sum())} neighbours: exact / cvxopt {ours / theirs:.2f},"
        f" exact / daqp {ours / floats:.1f}"
    )


def test_flows_against_a_plain_lsoda_loop(benchmark: BenchmarkFixture) -> None:
    """Compare the time per gradient flow to ‖p‖ = 10⁶ with that of a plain LSODA loop to ‖p‖ = 10⁴.

    The flows are computed one by one and batched. The data are random trials at (n, T, d) = (4, 6, 10).
    """
    plain = pytest.importorskip("benchmarks.comparison_programs", reason="numba, which `make bench` installs")
    problems = [random_trial(0, 10, k).problem for k in range(TRIALS)]
    starts = np.random.default_rng(0).normal(size=(TRIALS, 10))
    some = range(3)
    together, alone, loop = compare_seconds(
        benchmark,
        3,
        lambda: gradient_flows(problems, starts, norms=np.full(TRIALS, 1e6)),
        lambda: [gradient_flow(problems[k], starts[k], norm=1e6) for k in some],
        lambda: [plain.lsoda_loop(problems[k].keys, problems[k].scores, starts[k], 1e4) for k in some],
    )
    batched, single, looped = together / TRIALS, alone / len(some), loop / len(some)
    benchmark.extra_info["ratio"] = (
        f"flow to 1e6, per trial: {TRIALS} at once / one by one {batched / single:.3f},"
        f" at once / plain LSODA loop to 1e4 {batched / looped:.3f}, one by one / that loop {single / looped:.2f}"
    )


@pytest.mark.parametrize("shape", [(16, 32, 128), (32, 64, 64)], ids=str)
def test_theorem_3_on_large_data(benchmark: BenchmarkFixture, shape: tuple[int, int, int]) -> None:
    """Compare the time of ``verify theorem-3 --data`` with the time of 1000 gradients by the textbook formula."""
    n, _, d = shape
    rng = np.random.default_rng(0)
    X, v = rng.normal(size=shape), rng.normal(size=d)
    X /= np.linalg.norm(X, axis=-1, keepdims=True)
    Y, p = np.where(np.arange(n) % 2 == 0, 1.0, -1.0), rng.normal(size=d)

    def gradients() -> None:
        for _ in range(1000):
            logits = X @ p
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            scores = (X @ v) * Y[:, None]
            output = np.sum(weights * scores, axis=1)
            slope = -1 / (1 + np.exp(output))
            np.einsum("nt,ntd->d", slope[:, None] * weights * (scores - output[:, None]), X)

    began = time.perf_counter()
    results = verify("theorem-3", data={"X": X, "Y": Y, "v": v})
    seconds = time.perf_counter() - began
    assert results.verdict is Verdict.UPHELD
    (plain,) = compare_seconds(benchmark, 3, gradients)
    benchmark.extra_info["ratio"] = (
        f"verify theorem-3 --data, {shape}: {seconds:.0f} s, as 1000 textbook gradients {seconds / plain:.0f} times"
    )


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> str:
    """Return as text the least-squares slope of log(seconds) as a function of log(size), with its standard error."""
    x, y = np.log(sizes), np.log(seconds)
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    rest = y - y.mean() - slope * x
    return f"{slope:.2f} ± {float(np.sqrt(rest @ rest / max(1, len(x) - 2) / (x @ x))):.2f}"


def test_scaling_of_descents(benchmark: BenchmarkFixture) -> None:
    """Measure with which powers of n, T, d and the batch size the time of a normalized step grows.

    The sizes grow from (n, T, d) = (4, 6, 10) and 100 trials.
    """
    rng = np.random.default_rng(0)
    loss = random_trial(0, 10, 0).problem.loss
    usual = {"batch": 100, "n": 4, "T": 6, "d": 10}
    lines = []
    for name in usual:
        sizes = [usual[name] * 2**k for k in range(1, 5)]
        works = []
        for size in sizes:
            b, n, tokens, d = {**usual, name: size}.values()
            keys, scores = rng.normal(size=(b, n, tokens, d)) / np.sqrt(d), rng.normal(size=(b, n, tokens))
            works.append((keys, scores, np.zeros((b, d))))
        seconds = [min(_steps(work, loss) for _ in range(5)) for work in works]
        lines.append(f"{name} {sizes[0]}-{sizes[-1]}: {exponent(sizes, seconds)}")
    benchmark.pedantic(lambda: None, rounds=1)
    benchmark.extra_info["ratio"] = "a batched step grows with the power of " + ", ".join(lines)


def _steps(work: tuple[np.ndarray, np.ndarray, np.ndarray], loss: object) -> float:
    began = time.perf_counter()
    descend(*work[:2], loss, work[2], steps=20, log_step=0.0, normalized=True, record_every=20)  # type: ignore[arg-type]
    return time.perf_counter() - began


def test_scaling_of_flows(benchmark: BenchmarkFixture) -> None:
    """Measure how the time of 100 batched gradient flows grows with the norm ‖p‖ to which they are followed."""
    problems = [random_trial(0, 10, k).problem for k in range(100)]
    starts = np.random.default_rng(0).normal(size=(100, 10))
    norms = (1e2, 1e4, 1e6)
    seconds = []
    for norm in norms:
        began = time.perf_counter()
        gradient_flows(problems, starts, norms=np.full(100, norm))
        seconds.append(time.perf_counter() - began)
    benchmark.pedantic(lambda: None, rounds=1)
    shares = ", ".join(f"{time_taken / seconds[0]:.1f}" for time_taken in seconds)
    benchmark.extra_info["ratio"] = f"100 flows to norms {', '.join(f'{x:g}' for x in norms)}: {shares}"


def test_memory_of_figure_9(benchmark: BenchmarkFixture) -> None:
    """Measure the peak memory of 50 trials at d = 100 and n = T = 30, the size of Figure 9's batches."""
    rng = np.random.default_rng(0)
    keys, scores = rng.normal(size=(50, 30, 30, 100)), rng.normal(size=(50, 30, 30))
    loss, size = random_trial(0, 10, 0).problem.loss, keys.nbytes

    def once() -> None:
        descend(keys, scores, loss, np.zeros((50, 100)), steps=5, log_step=0.0, normalized=True, record_every=5)

    tracemalloc.start()
    benchmark.pedantic(once, rounds=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    benchmark.extra_info["ratio"] = f"50 trials at d = 100, n = T = 30: peak memory / keys {peak / size:.1f}"
