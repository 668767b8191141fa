"""Each rule compared with its documented formula: in plain floats, and on gradients far below the smallest float."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import polar

from generators.datasets import dataset_named
from generators.random_trials import random_trial
from reference_attention import risk
from reference_attention.errors import InvalidInput
from reference_attention.problem import Problem
from reference_attention.risk import ScaledGradient, log_excess_risk, scaled_gradient
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.steepest_descent import orthogonal_factor
from theorems.benchmark.optimisers import adam, heavy_ball, muon
from theorems.benchmark.rules import expand_rules, rule_named
from theorems.core.implementation import REFERENCE
from theorems.faults import fault_named

STEPS, FEW = 25, 3
"""Numbers of steps to compare; only few for Polyak's, whose steps are so long that the textbook's softmax saturates."""
CLOSE = 1e-9
"""Allowed difference: the textbook's gradient loses a few digits, and 25 steps of order one amplify that a little."""

Gradient = Callable[[np.ndarray], np.ndarray]


def textbook(problem: Problem) -> tuple[Gradient, Callable[[np.ndarray], float]]:
    """Return ∇L and L of the logistic loss by their textbook formulas."""

    def outputs(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weights = np.exp(problem.keys @ p)
        weights /= weights.sum(axis=1, keepdims=True)
        return weights, (weights * problem.scores).sum(axis=1)

    def gradient(p: np.ndarray) -> np.ndarray:
        weights, out = outputs(p)
        slope = -1 / (1 + np.exp(out))
        inner = weights * (problem.scores - out[:, None])
        return np.asarray((slope[:, None, None] * inner[:, :, None] * problem.keys).sum(axis=1).mean(axis=0))

    return gradient, lambda p: float(np.log1p(np.exp(-outputs(p)[1])).mean())


def plain(name: str, problem: Problem, p: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield the iterates of a rule by its formula in plain floats."""
    g, value = textbook(problem)
    best = float(np.log1p(np.exp(-problem.scores.max(axis=1))).mean())
    u, m, v, q = 0 * p, 0 * p, 0 * p, 1.5 if "1.5" in name else 3.0
    z = np.sign(p) * np.abs(p) ** (q - 1)
    d, unit = shape[0], problem.key_scale**0.5
    K, Q = np.eye(d) / unit, p.reshape(d, -1).T * unit
    for t in range(1, STEPS + 1):
        at = g(p)
        if name == "heavy-ball-0.5":
            u = 0.9 * u + at
            p = p - 0.5 * u
        elif name == "adam-0.1":
            m, v = 0.9 * m + 0.1 * at, 0.999 * v + 0.001 * at**2
            p = p - 0.1 * (m / (1 - 0.9**t)) / np.sqrt(v / (1 - 0.999**t))
        elif name == "adam-0.5-0.9-0.3":
            m, v = 0.5 * m + 0.5 * at, 0.9 * v + 0.1 * at**2
            p = p - 0.3 / np.sqrt(t) * (m / (1 - 0.5**t)) / np.sqrt(v / (1 - 0.9**t))
        elif name == "sign-0.2" or (name == "rows-0.2" and len(shape) == 1):
            p = p - 0.2 * np.sign(at)
        elif name == "rows-0.2":
            rows = at.reshape(shape)
            p = p - 0.2 * (rows / np.linalg.norm(rows, axis=1, keepdims=True)).ravel()
        elif name == "muon-0.2":
            u = 0.95 * u + at
            p = p - 0.2 * (polar(u.reshape(shape))[0].ravel() if len(shape) == 2 else u / np.linalg.norm(u))
        elif name == "spectral-0.2":
            p = p - 0.2 * (polar(at.reshape(shape))[0].ravel() if len(shape) == 2 else at / np.linalg.norm(at))
        elif "factored" in name:
            K, Q = factored_step(name, at.reshape(d, -1), K, Q)
            p = (K @ Q.T).ravel()
        elif name == "polyak":
            p = p - (value(p) - best) / (at @ at) * at
        elif name.startswith("mirror"):
            z = z - 0.4 * at
            p = np.sign(z) * np.abs(z) ** (1 / (q - 1))
        else:
            z = z - 0.4 * at / (np.abs(at) ** (q / (q - 1))).sum() ** ((q - 1) / q)
            p = np.sign(z) * np.abs(z) ** (1 / (q - 1))
        yield p


def factored_step(name: str, at: np.ndarray, K: np.ndarray, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both factors after one step of size η = 0.2, each computed from the old K and Q."""
    k, q = at @ Q, at.T @ K
    if name == "factored-0.2":
        return K - 0.2 * k, Q - 0.2 * q
    if name == "normalized-factored-0.2":
        both = np.sqrt((k**2).sum() + (q**2).sum())
        return K - 0.2 * k / both, Q - 0.2 * q / both
    eps = 2.0**-52
    k, q = k + 2 * eps * K, q + 2 * eps * Q
    return K - 0.2 * k / (np.linalg.norm(k) + eps), Q - 0.2 * q / (np.linalg.norm(q) + eps)


def iterates(name: str, problem: Problem, start: np.ndarray, shape: tuple[int, ...], steps: int) -> np.ndarray:
    """Return the first ``steps`` iterates of the formula after the start."""
    return np.array(list(islice(plain(name, problem, start, shape), steps)))


NAMES = (
    "heavy-ball-0.5",
    "adam-0.1",
    "adam-0.5-0.9-0.3",
    "sign-0.2",
    "rows-0.2",
    "muon-0.2",
    "spectral-0.2",
    "factored-0.2",
    "normalized-factored-0.2",
    "polyak",
    "mirror-1.5-0.4",
    "mirror-3-0.4",
    "normalized-mirror-1.5-0.4",
    "normalized-mirror-3-0.4",
)


def two_problems() -> tuple[list[Problem], np.ndarray]:
    starts = np.random.default_rng(5).standard_normal((2, 4))
    return [random_trial(3, 4, k).problem for k in range(2)], starts


def off(name: str, under_test: Any = REFERENCE) -> float:
    """Return the largest distance between iterates of the rule and of its formula, for two problems and for W."""
    problems, starts = two_problems()
    steps = FEW if name == "polyak" else STEPS
    run = rule_named(name).run(problems, starts, steps, under_test)
    due = np.stack([iterates(name, *item, (4,), steps) for item in zip(problems, starts, strict=True)], axis=1)
    apart = float(np.abs(run.points[1:] - due).max())
    assert (run.points[0] == starts).all()
    case = dataset_named("tsvm-paths-3")
    assert case.queried is not None
    start = np.array([0.3, -0.2, 0.1, 0.4])
    on_w = rule_named(name).run([case.problem], start[None], steps, under_test, shape=case.queried.shape)
    return max(apart, float(np.abs(on_w.points[1:, 0] - iterates(name, case.problem, start, (2, 2), steps)).max()))


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_agrees_with_its_formula(name: str) -> None:
    assert off(name) <= CLOSE


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_gradient_gives_another_run(name: str) -> None:
    assert off(name, fault_named("temperature").implementation) > 1e-3


@pytest.mark.parametrize(
    ("name", "module", "constant", "wrong"),
    [
        ("heavy-ball-0.5", heavy_ball, "MOMENTUM", 0.91),
        ("adam-0.1", adam, "BETAS", (0.9, 0.99)),
        ("muon-0.2", muon, "MOMENTUM", 0.9),
    ],
)
def test_a_changed_constant_of_a_rule_is_noticed(
    name: str, module: Any, constant: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, constant, wrong)
    assert off(name) > 1e-4


def test_mirror_descent_in_the_euclidean_norm_is_gradient_descent() -> None:
    problems, starts = two_problems()
    for mirror, plain_one in (("mirror-2-0.5", "gd-0.5"), ("normalized-mirror-2-0.5", "normalized-0.5")):
        first, second = (rule_named(name).run(problems, starts, STEPS).points for name in (mirror, plain_one))
        assert first == pytest.approx(second, rel=CLOSE)


def test_orthogonalising_a_column_is_normalizing_it() -> None:
    matrices = np.random.default_rng(0).standard_normal((3, 5, 1))
    units = orthogonal_factor(matrices)
    assert np.linalg.norm(units, axis=1) == pytest.approx(1.0, rel=1e-14)
    assert units * np.linalg.norm(matrices, axis=1, keepdims=True) == pytest.approx(matrices, rel=1e-14)


def test_orthogonalising_divides_a_matrix_of_rank_one_by_its_norm_and_keeps_zero() -> None:
    flat = np.outer([1.0, 2.0], [3.0, 4.0])[None]
    result = orthogonal_factor(flat)[0]
    assert result == pytest.approx(flat[0] / np.linalg.norm(flat), rel=1e-12)
    assert (orthogonal_factor(0 * flat) == 0).all()


def test_the_flow_agrees_with_another_solver_of_differential_equations() -> None:
    problems, starts = two_problems()
    run = rule_named("flow-0.5").run(problems, starts, 10)
    for b, (problem, start) in enumerate(zip(problems, starts, strict=True)):
        gradient = textbook(problem)[0]

        def velocity(s: float, p: np.ndarray, gradient: Gradient = gradient) -> np.ndarray:
            at = gradient(p)
            return -at / np.linalg.norm(at)

        due = solve_ivp(velocity, (0, 5), start, method="DOP853", rtol=1e-10, atol=1e-10, t_eval=run.iterations / 2)
        # The flow is integrated with a relative error of 1e-9, over a path a few times as long as the start's norm.
        assert run.points[:, b] == pytest.approx(due.y.T, abs=1e-7)
    assert run.representable.all()
    wrong = rule_named("flow-0.5").run(problems, starts, 10, fault_named("temperature").implementation)
    assert np.abs(wrong.points - run.points).max() > 1e-3


FAINT = 3000.0
"""Gradients are multiplied by e^{−3000}, which is far below the smallest float."""


@pytest.mark.parametrize("name", ["adam-0.1", "muon-0.2", "polyak", "normalized-mirror-3-0.4", "flow-0.5"])
def test_rules_that_ignore_the_gradient_s_scale_continue_where_gradients_underflow(name: str) -> None:
    def fainter(*arguments: Any) -> ScaledGradient:
        gradient = risk.scaled_gradient(*arguments)
        return ScaledGradient(gradient.log_scale - FAINT, gradient.direction)

    def less(*arguments: Any) -> Any:
        sign, size = risk.log_excess_risk(*arguments)
        return sign, size - FAINT

    problems, starts = two_problems()
    faint = REFERENCE.replace("", {scaled_gradient: fainter, log_excess_risk: less})
    first, second = (rule_named(name).run(problems, starts, STEPS, which).points for which in (REFERENCE, faint))
    # Logarithms of scales near 3000 are rounded by 3e-13, which changes every step by this relative amount.
    assert first == pytest.approx(second, rel=1e-7)


@pytest.mark.parametrize("name", ["heavy-ball-1", "mirror-3-0.4"])
def test_rules_that_use_the_gradient_s_scale_stop_where_gradients_underflow(name: str) -> None:
    def fainter(*arguments: Any) -> ScaledGradient:
        gradient = risk.scaled_gradient(*arguments)
        return ScaledGradient(gradient.log_scale - FAINT, gradient.direction)

    problems, starts = two_problems()
    run = rule_named(name).run(problems, starts, 3, REFERENCE.replace("", {scaled_gradient: fainter}))
    assert run.points == pytest.approx(np.broadcast_to(starts, (4, 2, 4)), rel=1e-15)
    assert run.representable.all()


@pytest.mark.parametrize("name", [*NAMES, "flow-1"])
def test_at_a_stationary_point_a_rule_stays(name: str) -> None:
    """All keys are equal, so ∇L(p) = 0 exactly at every p."""
    same = Problem(np.ones((2, 3, 2)), np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]]))
    run = rule_named(name).run([same, same], np.array([[1.0, -2.0], [0.5, 0.0]]), 4)
    assert run.points[-1] == pytest.approx(run.points[0], rel=1e-14)


def test_a_step_beyond_float64_stops_the_run_at_its_last_point() -> None:
    problem = dataset_named("figure-1b").problem
    run = rule_named("polyak").run([problem, problem], np.array([[0.0, -1.0], [0.0, 1.0]]), 300)
    assert run.representable.tolist() == [False, True]  # near the local max-margin direction L − L* does not vanish
    assert np.isfinite(run.points).all()


def test_separately_normalized_factors_follow_the_authors_code_where_the_gradient_vanishes() -> None:
    assert off("factored-apart-0.2") <= CLOSE
    same = Problem(np.ones((2, 3, 2)), np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]]))
    run = rule_named("factored-apart-0.2").run([same], np.array([[1.0, -2.0]]), 4)
    assert run.norms[-1, 0] < 0.8 * run.norms[0, 0]


def test_a_torch_optimiser_takes_the_steps_of_its_formula() -> None:
    pytest.importorskip("torch")
    case = dataset_named("figure-1a")
    start = np.array([[0.0, -1.0]])
    ours = rule_named("gd-1").run([case.problem], start, 40).points
    theirs = rule_named("torch.optim:SGD(lr=1)").run([case.problem], start, 40).points
    assert np.allclose(ours, theirs, rtol=1e-12, atol=0)
    ours = rule_named("heavy-ball-1").run([case.problem], start, 40).points
    theirs = rule_named("torch.optim:SGD(lr=1.0, momentum=0.9)").run([case.problem], start, 40).points
    assert np.allclose(ours, theirs, rtol=1e-9, atol=0)
    trained = dataset_named("tsvm-paths-3")
    assert trained.queried is not None
    shape = trained.queried.shape
    run = rule_named("torch.optim:Adam(lr=0.1, eps=0.0)").run(
        [trained.problem], np.zeros((1, trained.problem.d)), 5, shape=shape
    )
    adam_run = rule_named("adam-0.1").run([trained.problem], np.zeros((1, trained.problem.d)), 5, shape=shape)
    assert np.allclose(run.points, adam_run.points, rtol=1e-9, atol=1e-12)


def test_a_torch_optimiser_starts_afresh_on_every_problem() -> None:
    pytest.importorskip("torch")
    problem = dataset_named("figure-1a").problem
    run = rule_named("torch.optim:Adam(lr=0.1)").run([problem] * 2, np.array([[0.0, -1.0]] * 2), 10)
    assert np.array_equal(run.points[:, 0], run.points[:, 1])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("torch.optim:AdamZ(lr=1)", "has no optimiser 'AdamZ'"),
        ("torch.optim:Optimizer(lr=1)", "has no optimiser 'Optimizer'"),
        ("torch.optim:lr_scheduler", "has no optimiser"),
        ("torch.optim:SGD(1)", "not of the form"),
        ("torch.optim:SGD(**{'lr': 1})", "not of the form"),
        ("torch.optim:SGD(lr=print(1))", "not of the form"),
        ("torch.optim:SGD(lr=[x for x in (1,)])", "not of the form"),
        ("torch.optim:__import__('os').system(cmd='true')", "not of the form"),
        ("torch.optim:SGD(lr=1", "not of the form"),
        ("torch.optim:", "not of the form"),
        ("torch.optim:SGD(lr=-1)", "cannot be used"),
        ("torch.optim:SGD(rate=1)", "cannot be used"),
        ("torch.optim:LBFGS(lr=1)", "cannot be used"),
        ("torch.optim:SparseAdam(lr=1)", "cannot be used"),
    ],
)
def test_a_torch_class_that_is_unusable_is_refused_in_a_sentence(name: str, says: str) -> None:
    pytest.importorskip("torch")
    with pytest.raises(InvalidInput, match=says):
        rule_named(name)


def test_a_rule_with_lists_of_values_becomes_a_rule_per_combination() -> None:
    names = [
        "gd-1,0.1",
        "gd-1e-3",
        "gd-1",
        "polyak",
        "normalized-mirror-1.5-1,2",
        "torch.optim:Adam(lr=[1, 2], eps=[0, 1])",
    ]
    assert expand_rules(names) == (
        "gd-1",
        "gd-0.1",
        "gd-1e-3",
        "polyak",
        "normalized-mirror-1.5-1",
        "normalized-mirror-1.5-2",
        *(f"torch.optim:Adam(lr={lr}, eps={eps})" for lr in (1, 2) for eps in (0, 1)),
    )
    assert expand_rules(["my,file.py:A", "gd-1/L"]) == ("my,file.py:A", "gd-1/L")
    with pytest.raises(InvalidInput, match="is none of"):
        rule_named(expand_rules(["gd-1,,2"])[1])


def test_a_naive_gradient_stalls_at_its_rounding() -> None:
    """First steps agree with those of the stable gradient; the end is far from the limit, as in docs/benchmarks.md."""
    problem, start = dataset_named("figure-1a").problem, np.array([[0.0, -1.0]])
    ours, naive = (rule_named(f"{kind}-1").run([problem], start, 2000) for kind in ("normalized", "naive-normalized"))
    assert np.allclose(ours.points[:20], naive.points[:20], rtol=1e-6)
    limit = max_margin(problem.exact_keys, problem.optimal)
    assert isinstance(limit, MaxMargin)
    assert ours.one_minus_cosine(limit.direction[None])[-1, 0] < 1e-6
    assert naive.one_minus_cosine(limit.direction[None])[-1, 0] > 1e-2
