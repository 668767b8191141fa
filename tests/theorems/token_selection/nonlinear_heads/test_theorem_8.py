"""Theorem 8: upheld, able to fail, and not vacuous; the risk of nonlinear heads is computed correctly.

A row is a difference k_α − k_t; κ is the constant that bounds margins in sublevel sets; ρ is a norm in units of ‖p_mm‖.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from generators.case import Case
from generators.optimal_set_cases import case_with_head, optimal_set_cases, symmetric_cases
from generators.optimal_sets import LinearMixing, linear_mixing
from generators.user_data import as_text, case_of
from reference_attention.files import from_json
from reference_attention.heads import Head
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from reference_attention.risk import log_excess_risk
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.max_margin_sets import ChoiceSolution, MaxMarginSets, max_margin_sets
from tests.theorems import oracle
from tests.theorems.token_selection.faults import FAULTS
from theorems.bounded import exact, value_of
from theorems.core.check import check
from theorems.core.claim import Verdict, at_least
from theorems.core.implementation import REFERENCE
from theorems.core.nonlinear_head import HeadedAttention
from theorems.curves.constraints import Constraints
from theorems.run.registry.lookup import statement_named
from theorems.token_selection.global_paths.theorem_1_regularization_path import log_kappa
from theorems.token_selection.nonlinear_heads import theorem_8_nonlinear_heads as module
from theorems.token_selection.nonlinear_heads.optimal_set_points import constraints_of, separation
from theorems.token_selection.nonlinear_heads.theorem_8_nonlinear_heads import (
    allowed_choices,
    dual_bound,
    least_margin,
    mixing_kappa,
    nearest,
    set_margins,
)

PAPER = Case(Problem(np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]]), np.array([[1.0, 1.0, 0.0]])), name="paper")


def headed(case: Case, kinds: tuple[int, ...], seed: int) -> Case:
    """Return the case with a head whose units have worse features, by 0.5 to 2, at non-optimal tokens."""
    rng = np.random.default_rng(seed)
    scores = case.problem.scores
    optimal = scores == scores.max(axis=1, keepdims=True)
    m = len(kinds)
    weights, labels = rng.choice([-1.0, 1.0, 2.0], m), rng.choice([-1.0, 1.0], len(scores))
    best = rng.integers(-3, 4, (len(scores), 1, m)) / 2
    gaps = np.where(optimal[:, :, None], 0.0, rng.choice([0.5, 1.0, 2.0], (*scores.shape, m)))
    signs = -np.sign(labels[:, None] * weights)
    return case_with_head(case, Head(best + signs[:, None] * gaps, weights, np.array(kinds), labels))


def fixed_cases() -> list[Case]:
    """Return cases in which inputs have two optimal tokens, with linear and other heads and all losses."""
    result = [PAPER]
    seed = 0
    while len(result) < 4:
        seed += 1
        rng = np.random.default_rng(seed)
        n, T, d = int(rng.integers(1, 3)), int(rng.integers(3, 5)), int(rng.integers(2, 4))
        scores = np.where(np.arange(T) < 2, 1.0, rng.integers(-2, 1, (n, T)))
        problem = Problem(rng.standard_normal((n, T, d)), scores, LOSSES[list(LOSSES)[seed % 3]])
        if not isinstance(max_margin_sets(problem.keys, scores == 1.0), MaxMarginSets):
            continue
        case = Case(problem, seed=seed).normalise()
        result.append(case if seed % 2 else headed(case, ((1, 4), (3,), (2, 0, 1))[seed % 3], seed))
    return result


CASES = fixed_cases()


@settings(max_examples=8, deadline=None)
@given(optimal_set_cases())
def test_theorem_8_is_upheld(case: Case) -> None:
    outcome = check(statement_named("theorem-8"), case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_theorem_8_is_upheld_on_the_fixed_cases() -> None:
    verdicts = [check(statement_named("theorem-8"), case, REFERENCE).verdict for case in CASES]
    assert verdicts == [Verdict.UPHELD] * len(CASES)


def test_an_svm_solver_that_reports_infeasibility_without_proof_falsifies_theorem_8() -> None:
    assert check(statement_named("theorem-8"), PAPER, FAULTS["svm-always-infeasible"]).verdict is Verdict.FALSIFIED


def test_the_papers_example_converges_to_two_points_and_not_to_their_mean() -> None:
    """By symmetry both points are minimisers at every radius R. In the direction of their mean, to which a convex
    problem would lead, the logarithm of the excess risk is higher by R(1 − 1/√2).
    """
    sets = max_margin_sets(PAPER.problem.keys, np.array([[True, True, False]]))
    assert isinstance(sets, MaxMarginSets)
    assert len(sets.solutions) == 2
    R = 1e6
    rays = np.array([R * s.svm.direction for s in sets.solutions] + [np.array([R, R]) / math.sqrt(2)])
    _, excess = log_excess_risk(
        PAPER.problem.keys, PAPER.problem.scores, PAPER.problem.loss, rays, PAPER.problem.optimal
    )
    assert excess[0] == excess[1]
    # In the direction of the mean, the two optimal tokens share the weight, which gains log 2.
    assert excess[2] - excess[0] == pytest.approx(R * (1 - math.sqrt(0.5)) - math.log(2), rel=1e-12)
    claims = check(statement_named("theorem-8"), PAPER, REFERENCE).claims
    limit = next(c for c in claims if c.name == "path-limit")
    assert "solution" in limit.detail
    assert limit.detail.endswith("of 2")


def test_single_optimal_tokens_with_a_linear_head_give_theorem_1() -> None:
    """With one optimal token per input and a linear head, κ is at most that of Theorem 1, and all constraints are
    equal.
    """
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n, T, d = int(rng.integers(1, 4)), int(rng.integers(2, 5)), int(rng.integers(2, 5))
        problem = Problem(rng.standard_normal((n, T, d)), rng.standard_normal((n, T)), LOSSES[list(LOSSES)[seed % 3]])
        svm = max_margin(problem.keys, problem.optimal)
        if not isinstance(svm, MaxMargin):
            continue
        mixing, sets, choice = parts(Case(problem))
        assert mixing_kappa(mixing, problem.loss) <= log_kappa(problem) * (1 + 1e-12)
        ahead, multiplicity = separation(problem, sets, choice)
        assert ahead == math.inf
        mine, theirs = constraints_of(problem, mixing, choice, multiplicity), Constraints.of(problem, svm)
        assert np.array_equal(mine.rows, theirs.rows)
        assert np.array_equal(mine.neighbours, theirs.neighbours)
        assert mine.log_costs == pytest.approx(theirs.log_costs, abs=1e-13)
        assert mine.weights == pytest.approx(theirs.weights, abs=1e-13)
        assert (mine.log_unit, mine.rank) == (pytest.approx(theirs.log_unit, abs=1e-13), theirs.rank)


def parts(case: Case) -> tuple[LinearMixing, MaxMarginSets, ChoiceSolution]:
    mixing = linear_mixing(case)
    assert isinstance(mixing, LinearMixing)
    sets = max_margin_sets(case.problem.keys, mixing.optimal)
    assert isinstance(sets, MaxMarginSets)
    return mixing, sets, sets.solutions[0]


def test_the_bound_on_margins_with_a_smaller_kappa_is_refuted() -> None:
    """For score gaps 100 and 0.01 and rows (1, ±1), κ is 11.0, and margins in the sublevel set are as low as ρ − log
    10⁴.
    """
    keys = np.array([[[0.0, 0.0], [-5.0, 0.0], [-1.0, -1.0], [-1.0, 1.0]]])
    case = Case(Problem(keys, np.array([[0.0, 0.0, -100.0, -0.01]]), LOSSES["correlation"]))
    mixing, sets, _ = parts(case)
    kappa = mixing_kappa(mixing, case.problem.loss)
    assert kappa == pytest.approx(math.log(1e4 * 2 * 3), rel=1e-12)
    for share, expected in ((1.0, set()), (0.75, {"sublevel-margin"})):
        rhos = share * kappa * np.array(module.SUBLEVEL_RADII)
        result = module.sublevel_points(case.problem, mixing, sets, REFERENCE, rhos, case.rng())
        claims = list(module.in_sublevel_sets(case.problem, mixing, sets, REFERENCE, share * kappa, rhos, *result))
        assert {c.name for c in claims if c.verdict is Verdict.FALSIFIED} & {"sublevel-margin"} == expected


def torch_risk(case: Case, p: torch.Tensor) -> torch.Tensor:
    """Return L by plain torch, whose gradients are right at small norms."""
    arrays = case.arrays
    keys, features = torch.tensor(case.problem.keys.copy()), torch.tensor(arrays["head_features"].copy())
    weights, labels = torch.tensor(arrays["head_weights"].copy()), torch.tensor(arrays["head_labels"].copy())
    units = (lambda z: z, torch.tanh, torch.arctan, torch.nn.functional.softplus, torch.relu)
    z = torch.einsum("nt,ntm->nm", torch.softmax(keys @ p, dim=-1), features)
    hidden = torch.stack([units[int(k)](z[:, j]) for j, k in enumerate(arrays["head_activations"])], dim=1)
    u = labels * (hidden @ weights)
    losses = {"logistic": lambda x: torch.nn.functional.softplus(-x), "exponential": lambda x: torch.exp(-x)}
    return losses.get(case.problem.loss.name, lambda x: -x)(u).mean()


@pytest.mark.parametrize("kinds", [(0,), (1,), (2,), (3,), (1, 4), (2, 3, 1)])
def test_risk_and_gradient_of_heads_agree_with_autograd(kinds: tuple[int, ...]) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        scores = np.where(np.arange(4) < 2, 1.0, 0.0) * np.ones((2, 1))
        problem = Problem(rng.standard_normal((2, 4, 3)), scores, LOSSES[list(LOSSES)[seed % 3]])
        case = headed(Case(problem), kinds, seed)
        mixing, _, _ = parts(case)
        attention = HeadedAttention(problem, mixing, REFERENCE)
        points = rng.standard_normal((5, 3)) * np.array([0.0, 0.3, 1.0, 2.0, 4.0])[:, None]
        result = attention.scaled_gradient(points)
        excess = attention.log_excess(points)
        floor = float(np.mean(problem.loss.value(mixing.nu)))
        for k, p in enumerate(points):
            variable = torch.tensor(p, requires_grad=True)
            value = torch_risk(case, variable)
            (gradient,) = torch.autograd.grad(value, variable)
            assert math.exp(float(excess[k])) == pytest.approx(float(value.detach()) - floor, rel=1e-9, abs=1e-13)
            mine = math.exp(float(result.log_scale[k])) * result.direction[k]
            assert mine == pytest.approx(gradient.numpy(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("case", [c for c in CASES if c.arrays], ids=str)
def test_at_large_norms_the_excess_risk_is_its_first_order_term(case: Case) -> None:
    """At ρ = 1000 the excess risk is Σ c_j e^{−margin_j}/n, with the costs c_j, and is computed by logarithms."""
    mixing, sets, choice = parts(case)
    _, multiplicity = separation(case.problem, sets, choice)
    constraints = constraints_of(case.problem, mixing, choice, multiplicity)
    p = 1000.0 * choice.svm.norm * choice.svm.direction
    exponents = constraints.log_costs + constraints.log_unit - 1000.0 * constraints.margins
    expected = np.logaddexp.reduce(exponents) - math.log(case.problem.n)
    assert float(HeadedAttention(case.problem, mixing, REFERENCE).log_excess(p)) == pytest.approx(expected, abs=1e-9)


@given(st.one_of(optimal_set_cases(), symmetric_cases()))
@settings(max_examples=20, deadline=None)
def test_cases_survive_a_round_trip_through_text(case: Case) -> None:
    read = case_of(from_json(as_text(case)))
    assert set(read.arrays) == set(case.arrays)
    assert all(np.array_equal(read.arrays[k], case.arrays[k]) for k in case.arrays)
    assert np.array_equal(read.problem.keys, case.problem.keys)


@given(symmetric_cases())
@settings(max_examples=20, deadline=None)
def test_symmetric_cases_have_several_solutions(case: Case) -> None:
    _, sets, _ = parts(case)
    assert len(sets.solutions) >= 2
    assert len({c.norm_squared for c in sets.solutions}) == 1


def test_theorem_8_does_not_apply_if_all_tokens_are_optimal() -> None:
    case = Case(Problem(np.array([[[1.0], [0.0]]]), np.array([[1.0, 1.0]])))
    outcome = check(statement_named("theorem-8"), case, REFERENCE)
    assert outcome.verdict is Verdict.NOT_APPLICABLE
    assert outcome.reason.startswith("mixing-hurts")


SYMMETRIC = Case(
    Problem(np.array([[[1.1, 0.3], [0.3, 1.1], [0.0, 0.0]]]), np.array([[1.0, 1.0, 0.9]]), LOSSES["logistic"])
)
"""A case with two solutions, p_mm = k_α/‖k_α‖² for either optimal token α, each with one positive dual."""


def within(carried: Any, truth: arb) -> bool:
    return bool(abs(arb(float(carried.value)) - truth) <= float(carried.error))


@pytest.mark.parametrize("rho", [3.0, 40.0, 1e6])
def test_margins_distance_and_dual_bound_are_within_their_error_bounds(rho: float) -> None:
    mixing, sets, choice = parts(SYMMETRIC)
    problem = SYMMETRIC.problem
    rng = np.random.default_rng(0)
    ray = sets.norm * (np.array([rho])[:, None] * choice.svm.direction)
    least = least_margin(mixing, problem, 2.0, np.array([rho]), ray)
    with oracle.precision(400):
        keys = [[arb(x) for x in row] for row in problem.keys[0].tolist()]
        # The point on the ray is rounded, so its margin is ρ up to the error bound.
        at_ray = max(
            float(sum((k * arb(x) for k, x in zip(key, ray[0].tolist(), strict=True)), arb(0)) - rho)
            for key in keys[:2]
        )
        assert abs(at_ray) <= float(least.error[0])
        for p in [*ray, *(rho * rng.standard_normal((8, 2)))]:
            at = exact(p[None])
            along = [sum((k * arb(x) for k, x in zip(key, p.tolist(), strict=True)), arb(0)) for key in keys[:2]]
            higher = max(along, key=float)
            assert within(set_margins(mixing, problem, at)[0], higher)
            # Since ‖p_mm‖ = 1/‖k_α‖ and p̄_mm = k_α/‖k_α‖, ⟨p, p̄_mm⟩/‖p_mm‖ is the logit k_α·p.
            allowed = allowed_choices(sets, exact([-1.0]), at)
            assert allowed.all()
            assert within(nearest(sets, allowed, at)[0], higher)
        slope = -(1 + arb(1.0).exp()).log()
        gap = (arb(1.0) - arb(problem.scores[0, 2])).log()
        truth = slope + gap - (2 + (-(arb(rho) - 2)).exp()).log()
        assert within(dual_bound(problem, mixing, sets, allowed, exact([rho - 2.0]))[0], truth)


def test_a_head_s_unit_with_equal_features_loses_no_output() -> None:
    """For a unit of the head whose features are equal for all tokens, the loss of output is 0, with logarithm −∞."""
    case = case_with_head(
        Case(Problem(np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]]), np.array([[1.0, 0.5, 0.0]]))),
        Head(np.array([[[1.0, 2.0], [0.5, 2.0], [0.0, 2.0]]]), np.array([1.0, 1.0]), np.array([0, 0]), np.array([1.0])),
    )
    mixing = linear_mixing(case)
    assert isinstance(mixing, LinearMixing), mixing
    result = HeadedAttention(case.problem, mixing, REFERENCE).log_steps(np.array([[1.0, 0.0]]))
    assert np.isfinite(result[0, 0, 0])
    assert result[0, 0, 1] == -np.inf


def test_the_distance_of_the_minimiser_is_bounded_by_the_gap_to_the_dual_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the dual value D is large, the bound is −(D − log n(L − inf L) − log n) ‖p_mm‖/‖p‖, up to rounding."""
    records: list[Any] = []

    def recorder(name: str, form: Any, left: Any, right: Any, **further: Any) -> Any:
        records.append(value_of(left))
        return at_least(name, form, left, right, **further)

    mixing, sets, _ = parts(SYMMETRIC)
    problem = SYMMETRIC.problem
    monkeypatch.setattr(module, "dual_bound", lambda *arguments: exact(np.full(len(arguments[-1]), 1e9)))
    monkeypatch.setattr(module, "at_least", recorder)
    excess, values = module.excess_of, []

    def of(*arguments: Any) -> Any:
        values.append((excess(*arguments), arguments[3]))
        return values[-1][0]

    monkeypatch.setattr(module, "excess_of", of)
    claims = list(module.minimiser_claims(problem, mixing, sets, REFERENCE, 2.0))
    assert claims[0].verdict is Verdict.FALSIFIED
    [(value, p)] = values
    P = np.linalg.norm(sets.choices[0].p)
    due = -(1e9 - value.value - math.log(problem.n)) * P / np.linalg.norm(p, axis=1)
    assert (-value.value / np.linalg.norm(p, axis=1) > 1e-3).all()
    assert records[0] - 1 == pytest.approx(due, rel=1e-12)
