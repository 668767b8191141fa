"""The second computation of Lemma 1's gradient, back-propagation by hand: it agrees with torch, and uses none of the
suite's losses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.ill_behaved_losses import ILL_BEHAVED_LOSSES
from reference_attention.loss import Array
from reference_attention.losses import LOSSES, Logistic, loss_named
from reference_attention.problem import Dataset, Problem
from reference_attention.training.descent import Trajectory, gradient_descent
from tests.theorems import oracle
from theorems.bounded import Bounded, exact
from theorems.core.check import check
from theorems.core.claim import Claim, Verdict, at_least
from theorems.core.implementation import REFERENCE
from theorems.run.registry.lookup import statement_named
from theorems.token_selection.softmax import lemma_01_prompt_and_key_query as lemma_01
from theorems.token_selection.softmax.lemma_01_prompt_and_key_query import SLOPES, Setting, _setting, weight_gradient

N, T, D, DU, B = 3, 4, 5, 2, 6
ALL_LOSSES = [*LOSSES, *ILL_BEHAVED_LOSSES]


def setting_of(loss: str, seed: int = 0) -> Setting:
    rng = np.random.default_rng(seed)
    tokens, values = rng.standard_normal((N, T, D)), 3 * rng.standard_normal((N, T))
    labels = np.array([1.0, -1.0, 1.0])
    problem = Problem(tokens, labels[:, None] * values, loss_named(loss))
    return Setting(tokens, labels, values, problem.loss, problem)


def by_torch(setting: Setting, W: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return the gradient with respect to W by torch's automatic differentiation, including that of the loss."""
    weights = torch.tensor(W, requires_grad=True)
    tokens, values, labels = (torch.tensor(a) for a in (setting.tokens, setting.values, setting.labels))
    logits = (tokens @ weights.mT[:, None]) @ torch.tensor(u)
    outputs = labels * torch.sum(values * torch.softmax(logits, dim=-1), dim=-1)
    (gradient,) = torch.autograd.grad(setting.loss.value(outputs).mean(dim=-1).sum(), weights)
    return np.asarray(gradient.numpy())


@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_back_propagation_agrees_with_torch(loss: str) -> None:
    setting = setting_of(loss)
    rng = np.random.default_rng(1)
    W, u = rng.standard_normal((B, DU, D)), rng.standard_normal(DU)
    ours, theirs = weight_gradient(setting, W, u), by_torch(setting, W, u)
    size = np.max(np.abs(theirs), axis=(1, 2), keepdims=True)
    assert np.all(size > 1e-3)
    assert np.max(np.abs(ours - theirs) / size) < 256 * EPS


def test_a_common_shift_of_logits_does_not_change_the_gradient() -> None:
    """A shift by 1000 would overflow e^x and costs logits some digits, hence the tolerance."""
    setting = setting_of("logistic")
    rng = np.random.default_rng(1)
    W, u = rng.standard_normal((1, DU, D)), rng.standard_normal(DU)
    for shift in (1000.0, -1000.0):
        along = W[0].T @ u
        moved = replace(setting, tokens=setting.tokens + shift * along / (along @ along))
        ours, theirs = weight_gradient(moved, W, u), by_torch(moved, W, u)
        assert np.max(np.abs(ours - theirs)) <= 1e4 * EPS * np.max(np.abs(theirs))


@pytest.mark.parametrize("loss", LOSSES)
def test_back_propagation_contains_the_true_gradient(loss: str) -> None:
    """At W = u pᵀ/‖u‖², ∇_W L is u ∇L(p)ᵀ; the latter, in ball arithmetic, lies within bounds, also for large norms."""
    setting, u = setting_of(loss), np.random.default_rng(3).standard_normal(DU)
    points = np.random.default_rng(4).standard_normal((B, D)) * np.array([[0.1], [1.0], [3.0], [10.0], [30.0], [100.0]])
    head = exact(u)
    result = weight_gradient(setting, head[:, None] * points[:, None] / np.sum(head * head), u)
    used = []
    for b, p in enumerate(points):
        with oracle.precision(oracle.bits_for(setting.problem, p)):
            for k, j in np.ndindex(DU, D):
                truth = oracle.gradient(setting.problem, p)[j] * oracle.arb(u[k])
                used.append(abs(float((truth - result.value[b, k, j]).mid())) / result.error[b, k, j])
    print(f"used {max(used):.3g}")
    assert 1 / 500 < max(used) <= 1


def test_scores_with_error_bounds_contain_those_of_the_problem() -> None:
    """Scores Y Xv are rounded in a problem, and summed in another order in the second computation, with error
    bounds.
    """
    rng = np.random.default_rng(5)
    data = Dataset(rng.standard_normal((N, T, D)), np.array([1.0, -1.0, 1.0]), rng.standard_normal(D), np.eye(D))
    setting = _setting(Case(data.problem, data))
    off = np.abs(setting.values.value - setting.labels[:, None] * setting.problem.scores)
    assert off.max() > 0
    assert (off <= setting.values.error).all()
    np.testing.assert_array_equal(setting.in_floats.values, setting.values.value)


def test_the_slope_at_a_point_that_may_be_on_either_side_of_a_kink_covers_both() -> None:
    slope = SLOPES["kinked"](Bounded([-1.0, 0.0, 1.0], [0.1, 0.1, 0.1]))
    assert slope.value.tolist() == [-1.0, -0.625, -0.25]
    assert slope.error == pytest.approx([0.0, 0.375, 0.0], abs=1e-13)


@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_slopes_at_large_outputs_agree_with_torch(loss: str) -> None:
    u = np.array([-600.0, -1.0, 0.0, 1.0, 600.0])
    there = torch.tensor(u, requires_grad=True)
    (expected,) = torch.autograd.grad(loss_named(loss).value(there).sum(), there)
    np.testing.assert_allclose(SLOPES[loss](u), expected.numpy(), rtol=1e-12, atol=0)


class SlopeOff(Logistic):
    """The logistic loss with a derivative that is too large by the factor e^{1e-6}."""

    def log_slope(self, u: Array) -> Array:
        return super().log_slope(u) + 1e-6


def test_a_wrong_derivative_in_a_loss_itself_is_caught() -> None:
    rng = np.random.default_rng(2)
    keys, scores = rng.standard_normal((2, 3, 3)), rng.standard_normal((2, 3))
    lemma = statement_named("lemma-1")
    right, wrong = (Case(Problem(keys, scores, loss), seed=0) for loss in (Logistic(), SlopeOff()))
    assert check(lemma, right, REFERENCE).verdict is Verdict.UPHELD
    assert check(lemma, wrong, REFERENCE).verdict is Verdict.FALSIFIED


def test_a_nan_iterate_is_falsified() -> None:
    rng = np.random.default_rng(2)
    case = Case(Problem(rng.standard_normal((2, 3, 3)), rng.standard_normal((2, 3)), Logistic()), seed=0)

    def lost(*arguments: Any, **options: Any) -> Trajectory:
        run = gradient_descent(*arguments, **options)
        points = run.points.copy()
        points[1] = np.nan  # not the last iterate, from which further steps are taken
        return replace(run, points=points)

    outcome = check(statement_named("lemma-1"), case, REFERENCE.replace("lost", {gradient_descent: lost}))
    assert outcome.verdict is Verdict.FALSIFIED
    assert outcome.reason.endswith("an iterate is not finite")


def test_lemma_1_is_inconclusive_where_the_suite_s_own_computation_overflows() -> None:
    """The slope −e^{720} of the loss overflows in the suite's own back-propagation, not in the descent under test."""
    case = Case(Problem([[[1.0, 0.0], [0.0, 1.0]]], [[-720.0, -721.0]], "exponential"))
    outcome = check(statement_named("lemma-1"), case, REFERENCE)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "overflows float64" in outcome.reason
    nearer = case.replace(problem=Problem(case.problem.keys, [[-500.0, -501.0]], "exponential"))
    assert check(statement_named("lemma-1"), nearer, REFERENCE).verdict is Verdict.UPHELD


def test_the_claim_on_iterates_allows_for_the_rounding_of_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim compares iterates with an initial matrix E; it must allow for the rounding of E and of the distance."""
    records: list[Any] = []

    def recorder(*arguments: Any, **further: Any) -> Claim:
        records.append(further["rounding"])
        return at_least(*arguments, **further)

    monkeypatch.setattr(lemma_01, "at_least", recorder)
    start, u = np.array([3.0, 4.0, 0.0, 0.0, 0.0]), np.array([2.0, 1.0])
    E = np.outer(u, start) / 5
    claim = lemma_01._every_iterate(setting_of("logistic"), u, start[None], E[None], np.zeros(0), np.zeros(1))
    assert claim.verdict is Verdict.UPHELD
    assert (records[0] > (len(u) + 6) * EPS * 5.0).all()
