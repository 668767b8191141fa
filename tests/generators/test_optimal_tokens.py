"""Assumption C: the cone certificate is right, refutations have a witness, the strategies reach the corners.

Notation: z are the features of chosen tokens, Γ is their label margin, λ are the duals, and ν is the constant by which
the margin decreases with the weight q of other tokens; u* is the paper's signal vector, x a token, Y a label.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from flint import fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from generators.case import Case
from generators.datasets import DATASETS
from generators.joint_cases import joint_cases
from generators.optimal_tokens import _mixing, support_of, token_optimality
from reference_attention.paths.joint_risk import chosen_rows
from reference_attention.problem import Dataset
from reference_attention.svm.label_svm import LabelSvm, label_svm


def case_of(X: list[list[tuple[float, ...]]], Y: list[float], alpha: list[int] | None = None) -> Case:
    data = Dataset(np.array(X), np.array(Y), np.eye(len(X[0][0]))[0])
    return Case(data.problem, dataset=data, alpha=np.array(alpha or [0] * len(Y)))


def signed(case: Case) -> np.ndarray:
    assert case.dataset is not None
    return case.dataset.Y[:, None, None] * case.dataset.X


def label_margin_at(tokens: np.ndarray, weights: np.ndarray) -> float:
    """Return the label margin of mixed features, or 0 if no head separates them."""
    features = np.sum(weights[..., None] * tokens, axis=1)
    svm = label_svm(np.where(np.abs(features) < 1e-100, 0.0, features))
    return svm.margin if isinstance(svm, LabelSvm) else 0.0


@settings(max_examples=40)
@given(joint_cases(), st.integers(0, 2**16))
def test_the_certified_bound_holds_at_every_mixture(case: Case, seed: int) -> None:
    """Check m(s) ≤ Γ − ν q_max for all softmax weights (vertices, edges, interior), not only those that
    some p attains.
    """
    optimality = token_optimality(case)
    assert optimality.holds, optimality.evidence
    tokens, alpha = signed(case), case.chosen_tokens
    svm = label_svm(chosen_rows(tokens, alpha))
    assert isinstance(svm, LabelSvm)
    assert svm.support.all()
    rng = np.random.default_rng(seed)
    n, T = tokens.shape[:2]
    for concentration in (1e-3, 0.1, 1.0):
        weights = rng.dirichlet(np.full(T, concentration), size=n)
        for share in (0.0, 0.5, 0.99):
            mixed = share * np.eye(T)[alpha] + (1 - share) * weights
            q = float(np.max(1 - mixed[np.arange(n), alpha]))
            # Features carry T + 2 roundings of entries of size max|z|.
            slip = 2.0**-48 * float(np.abs(tokens).max())
            assert label_margin_at(tokens, mixed) <= svm.margin - optimality.nu * q + slip


@settings(max_examples=30)
@given(joint_cases(non_supports=True))
def test_supports_are_certified_and_non_supports_are_not(case: Case) -> None:
    support = support_of(case)
    assert 0 < support.sum() < len(support)
    assert token_optimality(case, supports_only=True).holds
    assert token_optimality(case).holds is not True


def test_the_certified_constant_of_the_papers_example_is_the_papers() -> None:
    """For x_i1 = Y_i u* and ‖x_it‖ < ‖u*‖, the constant is ν = ‖u*‖ − max‖x_it‖."""
    case = case_of([[(2.0, 0.0), (0.0, 1.0)], [(-2.0, 0.0), (0.6, 0.8)]], [1.0, -1.0])
    optimality = token_optimality(case)
    assert optimality.holds
    assert optimality.nu == pytest.approx(1.0, rel=1e-9)


def test_assumption_c_in_figure_3a_is_certified_with_the_best_duals() -> None:
    """For Γ = 1 and other tokens of zero, ν is the least of the largest values of single duals, which are 1/2, 1/2 and
    2/3 for z = (1, 1), (−1, 1) and (1/2, 1).
    """
    optimality = token_optimality(DATASETS["figure-3a"]())
    assert optimality.holds
    assert optimality.nu == pytest.approx(1 / 3, rel=1e-9) or optimality.nu == pytest.approx(0.5, rel=1e-9)


def test_assumption_c_is_refuted_with_a_witness_for_negative_copies_of_chosen_tokens() -> None:
    """For z = (1, ±10) with copies −0.9 z the theorem on copies c z, c ≥ 0, does not apply, and an exchange of tokens
    gives a margin far above Γ = 1.
    """
    first, second = np.array([1.0, 10.0]), np.array([1.0, -10.0])
    case = case_of([[tuple(first), tuple(-0.9 * first)], [tuple(second), tuple(0.0 * second)]], [1.0, 1.0])
    optimality = token_optimality(case)
    assert optimality.holds is False
    assert optimality.witness is not None
    logits = case.problem.keys @ optimality.witness
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    assert label_margin_at(signed(case), weights / weights.sum(axis=1, keepdims=True)) > 1.0


def test_assumption_c_is_not_certified_at_the_boundary_of_the_cone() -> None:
    inside = case_of([[(1.0, 0.0), (0.0, 1 - 2.0**-20)]], [1.0])
    boundary = case_of([[(1.0, 0.0), (0.0, 1.0)]], [1.0])
    assert token_optimality(inside).holds
    assert token_optimality(boundary).holds is None


def test_assumption_c_is_refuted_where_another_token_is_longer() -> None:
    """With a single input the longer token gives the larger label margin."""
    optimality = token_optimality(case_of([[(1.0, 0.0), (0.0, 2.0)]], [1.0]))
    assert optimality.holds is False


def test_assumption_c_is_not_established_without_tokens() -> None:
    case = replace(case_of([[(1.0, 0.0), (0.0, 0.0)]], [1.0]), dataset=None)
    assert token_optimality(case).holds is None


def test_the_strategy_for_assumption_c_reaches_its_corners() -> None:
    kinds: set[str] = set()

    @settings(max_examples=300)
    @given(joint_cases(non_supports=True))
    def look(case: Case) -> None:
        assert case.dataset is not None
        tokens = signed(case)
        chosen = chosen_rows(tokens, case.chosen_tokens)[support_of(case)]
        if len(chosen) > 1:
            kinds.add("one direction" if np.ptp(chosen, axis=0).max() == 0 else "several directions")
        if np.linalg.matrix_rank(chosen) < len(chosen):
            kinds.add("dependent supports")
        if len(chosen) == 1:
            kinds.add("one support")
        if set(case.dataset.Y) == {1.0, -1.0}:
            kinds.add("both labels")
        if case.dataset.W is not None and case.dataset.W.shape[0] > case.dataset.W.shape[1]:
            kinds.add("tall W")
        if (tokens == 0).all(axis=2).any():
            kinds.add("zero token")
        if np.abs(tokens * 64 - np.round(tokens * 64)).max() > 0:
            kinds.add("rotated")

    look()
    assert kinds == {
        "one direction",
        "several directions",
        "dependent supports",
        "one support",
        "both labels",
        "tall W",
        "zero token",
        "rotated",
    }


def test_nu_of_a_token_that_is_nearly_the_chosen_one_is_valid() -> None:
    """Other tokens lie within 1e-5 of chosen ones of length 1000, so that floats lose digits of the differences; Γ = 1,
    and all λ are 1/2.
    """
    X = np.zeros((2, 2, 3))
    X[:, 0] = [[1.0, 1000.1, 0.0], [1.0, -1000.1, 0.0]]
    X[:, 1] = (1 - 2.0**-26) * X[:, 0]
    X[:, 1, 2] = -0.8 * 2.0**-26
    data = Dataset(X, np.ones(2), np.eye(3)[0], np.eye(3)[2:])
    optimality = token_optimality(Case(data.problem, dataset=data, alpha=np.array([0, 0])))
    assert optimality.holds
    shares = [1 - Fraction(_mixing(token, chosen, fmpq(1)) or 0.0) for chosen, token in X]
    rho = 2 * Fraction(optimality.nu) / min(shares)
    for (chosen, token), rest in zip(X.tolist(), shares, strict=True):
        apart = [Fraction(a) - (1 - rest) * Fraction(b) for a, b in zip(token, chosen, strict=True)]
        assert sum(x * x for x in apart) <= ((1 - rho) * rest) ** 2
