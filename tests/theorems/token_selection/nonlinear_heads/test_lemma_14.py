"""Lemma 14 and Assumption D: upheld, and able to fail; data that prove, refute or leave open Assumption D.

The head has units, each with a feature per token; ν_i is the output of input i at an optimal token; c0 and c1 bound by
how much weight on other tokens lowers the output; ρ and Λ are the constants of Assumption D; q_max is the largest
weight on non-optimal tokens.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from generators.assumptions import assumption_named
from generators.case import Case
from generators.optimal_set_cases import case_with_head, optimal_set_cases
from generators.optimal_sets import LinearMixing, linear_mixing, mixing_hurts
from reference_attention.heads import Head
from reference_attention.loss import Loss
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.run.registry.lookup import statement_named
from theorems.token_selection.nonlinear_heads import lemma_14_linear_label_mixing as module


def problem(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    n, T, d = int(rng.integers(1, 3)), int(rng.integers(2, 5)), int(rng.integers(1, 4))
    scores = rng.integers(-2, 2, (n, T)).astype(np.float64)
    scores[0, 0] = 2.0
    return Problem(rng.standard_normal((n, T, d)), scores, LOSSES[list(LOSSES)[seed % 3]])


def with_head(
    problem: Problem, kinds: list[int], gaps: float = 1.0, z: float = 0.5, weights: list[float] | None = None
) -> Case:
    """Return a case whose head has units of the given kinds, with features of non-optimal tokens worse by ``gaps``."""
    optimal = problem.scores == problem.scores.max(axis=1, keepdims=True)
    b = np.ones(len(kinds)) if weights is None else np.array(weights)
    features = z - np.sign(b) * np.where(optimal, 0.0, gaps)[:, :, None]
    return case_with_head(Case(problem), Head(features, b, np.array(kinds), np.ones(problem.n)))


CASES = [Case(problem(seed), seed=seed) for seed in range(1, 5)] + [
    with_head(problem(5), [1, 4]),
    with_head(problem(6), [3], z=-1.0, weights=[-2.0]),
    with_head(problem(7), [2, 0]),
]


@settings(max_examples=25, deadline=None)
@given(optimal_set_cases(separable=False))
def test_lemma_14_is_upheld(case: Case) -> None:
    outcome = check(statement_named("lemma-14"), case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_lemma_14_is_upheld_on_the_fixed_cases() -> None:
    assert [check(statement_named("lemma-14"), case, REFERENCE).verdict for case in CASES] == [Verdict.UPHELD] * len(
        CASES
    )


def test_assumption_d_with_a_larger_rho_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """If ρ is computed without Λ, Assumption D fails for some pairs of points."""
    monkeypatch.setattr(module, "log_slope_bounds", lambda mixing, loss: _shrunk(*original(mixing, loss)))
    claims = [c for case in CASES for c in check(statement_named("lemma-14"), case, REFERENCE).claims]
    assert any(c.name == "mixing-hurts" and c.verdict is Verdict.FALSIFIED for c in claims)


original = module.log_slope_bounds


def _shrunk(low: Any, high: Any) -> Any:
    """Return log C0 and log C1, bounds of the loss per weight of other tokens, with C0 raised to max C1: Λ ≤ log n."""
    return np.where(np.isfinite(low), np.max(high), low), high


@pytest.mark.parametrize(("change0", "change1", "claim"), [(1.5, 1.0, "sandwich-above"), (1.0, 0.6, "sandwich-below")])
def test_lemma_14_with_better_constants_c0_or_c1_is_refuted(
    monkeypatch: pytest.MonkeyPatch, change0: float, change1: float, claim: str
) -> None:
    def better(case: Case) -> Any:
        result = linear_mixing(case)
        assert isinstance(result, LinearMixing)
        return replace(result, c0=change0 * result.c0, c1=change1 * result.c1)

    monkeypatch.setattr(module, "linear_mixing", better)
    claims = [c for case in CASES for c in check(statement_named("lemma-14"), case, REFERENCE).claims]
    assert any(c.name == claim and c.verdict is Verdict.FALSIFIED for c in claims)


def test_the_constants_of_lemma_14_for_a_tanh_unit_are_those_found_by_hand() -> None:
    """For a tanh unit with features ½ and −½, ν is tanh ½, c0 the slope at ½, and c1 the slope at 0."""
    case = with_head(Problem(np.array([[[1.0], [0.0]]]), np.array([[1.0, 0.0]])), [1])
    result = linear_mixing(case)
    assert isinstance(result, LinearMixing)
    assert result.nu == pytest.approx([math.tanh(0.5)])
    assert result.c0 == pytest.approx([1 - math.tanh(0.5) ** 2])
    assert result.c1 == pytest.approx([1.0])


@pytest.mark.parametrize(
    ("features", "kinds", "holds", "says"),
    [
        ([0.0, 0.0, -1.0], [0], True, "c0 = 1 and c1 = 1"),
        ([0.0, 0.5, -1.0], [0], None, "differ in feature"),
        ([0.0, 0.0, -1.0], [4], None, "c0 = 0"),
        ([0.0, 0.0, 1.0], [1], False, "above ν"),
    ],
)
def test_assumption_d_is_proven_refuted_or_left_open(
    features: list[float], kinds: list[int], holds: bool | None, says: str
) -> None:
    problem = Problem(np.array([[[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]]), np.array([[1.0, 1.0, 0.0]]))
    head = Head(np.array(features).reshape(1, 3, 1), np.ones(1), np.array(kinds), np.ones(1))
    finding = mixing_hurts(case_with_head(Case(problem), head))
    assert finding.holds is holds
    assert says in finding.evidence


def test_assumption_d_is_not_proven_for_a_relu_at_its_flat_side() -> None:
    """If the optimal feature of a ReLU unit is 0, worse features give the same output, c0 is 0, and L is constant."""
    problem = Problem(np.array([[[1.0], [0.0]]]), np.array([[1.0, 0.0]]))
    assert mixing_hurts(with_head(problem, [4], z=0.0)).holds is None
    assert mixing_hurts(with_head(problem, [4], z=0.25)).holds is True


class Cubic(Loss):
    """The loss ℓ(u) = −u³, which is strictly decreasing, with ℓ' Lipschitz on bounded intervals, but ℓ'(0) = 0."""

    name = "cubic"

    def value(self, u: Any) -> Any:
        return -(u**3)

    def log_slope(self, u: Any) -> Any:
        with np.errstate(divide="ignore"):
            return math.log(3) + 2 * np.log(np.abs(u))

    def relative_curvature(self, u: Any) -> Any:
        return -2 / u

    def log_excess(self, u: Any, sign: Any, log_size: Any) -> Any:
        raise NotImplementedError

    def log_lipschitz(self, low: float, high: float) -> float:
        return math.log(6 * max(abs(low), abs(high)))

    def log_bound(self, low: float, high: float) -> float:
        return math.log(3) + 2 * math.log(max(abs(low), abs(high)))

    def log_floor(self, low: float, high: float) -> float:
        return -math.inf

    def steepening(self, low: float, high: float) -> float:
        return 2 / low if low > 0 else math.inf


FLAT = Problem(
    np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]]), np.array([[0.0, -1.0], [1.0, 0.0]]), Cubic()
)
"""Two inputs of two tokens with p_mm = (1, 1); the best score of the first is 0, where the cubic loss is flat."""


def log_excess_of_flat(a: float, b: float) -> float:
    """Return log 2(L − inf L) on :data:`FLAT` at p = (a, b): log(q_1³ + 1 − (1 − q_2)³) with weights q = σ(−margin)."""
    log_q1, log_q2 = -np.logaddexp(0.0, a), -np.logaddexp(0.0, b)
    q2 = math.exp(log_q2)
    return float(np.logaddexp(3 * log_q1, log_q2 + math.log(3 - 3 * q2 + q2 * q2)))


@pytest.mark.parametrize("x", [20.0, 1e3, 1e6])
def test_strictly_decreasing_alone_does_not_give_lemma_14(x: float) -> None:
    """Assumption A as printed asks for ℓ strictly decreasing and ℓ' Lipschitz, but not for ℓ' < 0, which is needed:
    with ℓ(u) = −u³ and Δ = ½, there are p and p' with log q_max(p) ≤ 1.5 log q_max(p'), however small, but L(p) >
    L(p'). So no ρ satisfies Assumption D, although the data satisfy the hypothesis of Lemma 14 with c0 = c1 = 1.
    """
    # q_max is σ(−x) at p = (x, x), and σ(−x/2) at p' = (x/2, 2x).
    assert -np.logaddexp(0.0, x) <= 1.5 * -np.logaddexp(0.0, x / 2)
    assert log_excess_of_flat(x / 2, 2 * x) < log_excess_of_flat(x, x) - x / 4


def test_strictly_decreasing_alone_does_not_give_theorems_1_and_8() -> None:
    """With the cubic loss on :data:`FLAT`, the path goes to the direction (1, 3)/√10, not to p̄_mm = (1, 1)/√2."""
    angles = np.linspace(0.0, math.pi / 2, 20_001)
    for R in (1e2, 1e4, 1e6):
        values = [log_excess_of_flat(R * math.cos(t), R * math.sin(t)) for t in angles]
        best = angles[int(np.argmin(values))]
        assert math.tan(best) == pytest.approx(3.0, abs=10 / R + 1e-3)


def test_assumption_a_excludes_the_flat_loss() -> None:
    finding = assumption_named("well-behaved-loss").check(Case(FLAT))
    assert finding.holds is False
    assert "not negative" in finding.evidence
    assert check(statement_named("lemma-14"), Case(FLAT), REFERENCE).verdict is Verdict.NOT_APPLICABLE
