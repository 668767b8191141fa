"""Lemmas 1, 3, 4, 5, 6 and 11: upheld by the reference and by textbook kernels, in corner cases and at all scales."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from flint import fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.losses import LOSSES
from reference_attention.problem import Dataset, Problem
from reference_attention.risk import scaled_gradient
from reference_attention.svm.max_margin import MaxMargin, max_margin
from tests.theorems.token_selection.faults import FAULTS
from theorems.core.check import check
from theorems.core.claim import Claim, Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.run.registry.lookup import statement_named
from theorems.token_selection.global_paths.lemma_11_feasibility import least_norm_preimage
from theorems.token_selection.softmax.smoothness import log_sharp_smoothness

LEMMAS = ("lemma-1", "lemma-3", "lemma-4", "lemma-5", "lemma-6", "lemma-11")

CASES = 6
"""Number of fixed cases of each lemma."""


def cases_of(id: str) -> list[Case]:
    """Return cases that satisfy the assumptions, drawn from fixed seeds, with small cases and all losses among them."""
    expected = statement_named(id).assumptions
    results: list[Case] = []
    seed = 0
    while len(results) < CASES:
        seed += 1
        rng = np.random.default_rng(seed)
        n = 1 if "single-input" in expected else int(rng.integers(1, 4))
        tokens, d = int(rng.integers(2, 6)), int(rng.integers(2, 6))
        loss = LOSSES[list(LOSSES)[seed % 3]]
        if "head-in-key-range" in expected:
            X, W, v = (rng.standard_normal(shape) for shape in ((n, tokens, d), (d + 1, d), (d,)))
            data = Dataset(X, np.ones(n), v, W, loss)
            results.append(Case(data.problem, data, seed=seed).normalise())
            continue
        keys, scores = rng.standard_normal((n, tokens, d)), rng.standard_normal((n, tokens))
        if "equal-non-optimal-scores" in expected:
            scores = np.where(np.arange(tokens) == 0, 1.0 + rng.random((n, 1)), rng.standard_normal((n, 1)))
        problem = Problem(keys, scores, loss)
        if "separable" in expected and not isinstance(max_margin(keys, problem.optimal), MaxMargin):
            continue
        results.append(Case(problem, seed=seed).normalise())
    return results


def verdicts(id: str, cases: list[Case], under_test: Implementation) -> set[Verdict]:
    return {check(statement_named(id), case, under_test).verdict for case in cases}


def is_caught(id: str, cases: list[Case], under_test: Implementation) -> bool:
    statement = statement_named(id)
    return any(check(statement, case, under_test).verdict is Verdict.FALSIFIED for case in cases)


@pytest.mark.parametrize("id", LEMMAS)
def test_each_lemma_is_upheld_on_generated_cases(id: str) -> None:
    statement = statement_named(id)

    @settings(max_examples=25)
    @given(statement.cases())
    def upheld(case: Case) -> None:
        outcome = check(statement, case, REFERENCE)
        assert outcome.verdict is Verdict.UPHELD, outcome.reason

    upheld()


@pytest.mark.parametrize("id", LEMMAS)
def test_each_lemma_is_upheld_on_fixed_cases(id: str) -> None:
    assert verdicts(id, cases_of(id), REFERENCE) == {Verdict.UPHELD}


@pytest.mark.parametrize("id", ["lemma-1", "lemma-3", "lemma-4", "lemma-5", "lemma-6"])
def test_right_textbook_kernels_are_upheld_and_wrong_ones_are_caught(id: str) -> None:
    cases = cases_of(id)
    for name, eps in (("cancelling-gradient", EPS), ("float32-softmax", 2.0**-23)):
        assert verdicts(id, cases, replace(FAULTS[name], textbook_eps=eps)) == {Verdict.UPHELD}
    assert is_caught(id, cases, replace(FAULTS["negated-gradient"], textbook_eps=EPS))
    if id in ("lemma-1", "lemma-3", "lemma-6"):
        off = replace(FAULTS["one-coordinate-off"], textbook_eps=EPS)
        assert is_caught(id, cases, off)


@pytest.mark.parametrize(
    ("id", "broken", "names"),
    [
        ("lemma-4", {"scores": [[1.0, 0.5, 0.0]]}, "equal-non-optimal-scores"),
        ("lemma-4", {"keys": [[[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]]}, "separable"),
        ("lemma-5", {"n": 2}, "single-input"),
    ],
)
def test_a_lemma_does_not_apply_to_data_that_violate_an_assumption(
    id: str, broken: dict[str, list[float]], names: str
) -> None:
    keys = np.array(broken.get("keys", [[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]]))
    scores = np.array(broken.get("scores", [[1.0, 0.0, 0.0]]))
    repeat = int(broken.get("n", 1))  # type: ignore[call-overload]
    case = Case(Problem(np.repeat(keys, repeat, axis=0), np.repeat(scores, repeat, axis=0)))
    outcome = check(statement_named(id), case, REFERENCE)
    assert outcome.verdict is Verdict.NOT_APPLICABLE
    assert outcome.reason.startswith(names)


@pytest.mark.parametrize("id", LEMMAS)
@given(power=st.integers(-100, 100))
@settings(max_examples=5)
def test_units_of_the_keys_do_not_change_the_claims(id: str, power: int) -> None:
    case = cases_of(id)[0]
    keys = case.problem.keys * 2.0**power
    data = case.dataset and replace(case.dataset, W=case.dataset.key_query * 2.0**power)
    scaled = case.replace(problem=replace(case.problem, keys=keys), dataset=data)
    first, second = (check(statement_named(id), c, REFERENCE).claims for c in (case, scaled))
    assert first == second


def claim(claims: tuple[Claim, ...], name: str) -> Claim:
    return next(c for c in claims if c.name == name)


def test_lemma_4_is_an_equality_for_two_tokens() -> None:
    # Because of this equality, a gradient that is shorter by more than rounding violates the lemma.
    case = Case(Problem(np.array([[[1.0, 0.0], [0.0, 1.0]]]), np.array([[1.0, 0.0]])))
    descent = claim(check(statement_named("lemma-4"), case, REFERENCE).claims, "descent")
    assert abs(descent.slack) <= descent.tolerance

    def slightly_less(*arguments: object) -> object:
        right = scaled_gradient(*arguments)  # type: ignore[arg-type]
        return replace(right, direction=right.direction * (1 - 1e-9))

    assert verdicts("lemma-4", [case], REFERENCE.replace("less", {scaled_gradient: slightly_less})) == {
        Verdict.FALSIFIED
    }


def test_lemma_5_is_false_without_its_factor_1_plus_pi() -> None:
    """The inequality without the factor (1 + π) fails for three tokens and a prompt near the origin."""
    problem = Problem(np.array([[[0.0, 0.0], [-1.0, 0.0], [-8.0, 0.0]]]), np.array([[1.0, 0.0, 0.0]]))
    p = np.array([1e-3, 0.0])
    solution = max_margin(problem.keys, problem.optimal)
    assert isinstance(solution, MaxMargin)
    along = -scaled_gradient(problem.keys, problem.scores, problem.loss, p).direction
    assert along @ p / 1e-3 == pytest.approx(along @ solution.direction)
    tilted = np.array([1e-3, 1e-6])
    problem = Problem(np.array([[[0.0, 0.0], [-1.0, 0.0], [-1.0, -8.0]]]), np.array([[1.0, 0.0, 0.0]]))
    solution = max_margin(problem.keys, problem.optimal)
    assert isinstance(solution, MaxMargin)
    along = -scaled_gradient(problem.keys, problem.scores, problem.loss, tilted[::-1]).direction
    assert along @ tilted[::-1] / np.linalg.norm(tilted) > 1.5 * (along @ solution.direction)


@pytest.mark.parametrize("loss", LOSSES)
def test_smoothness_constant_is_below_lemma_6_and_not_far_above_the_curvature(loss: str) -> None:
    problem = Problem(np.array([[[1.0], [0.0]]]), np.array([[0.5, -0.5]]), LOSSES[loss])
    constant = np.exp(log_sharp_smoothness(problem))
    assert constant < np.exp(problem.log_smoothness)
    p = np.linspace(-6, 6, 4001)[:, None]
    gradient = scaled_gradient(problem.keys, problem.scores, problem.loss, p)
    slopes = np.diff(np.exp(gradient.log_scale) * gradient.direction[:, 0]) / np.diff(p[:, 0])
    assert 0.2 * constant < np.abs(slopes).max() < constant


def test_lemma_6_fails_with_a_constant_that_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    import theorems.token_selection.softmax.lemma_06_smoothness_and_descent as module

    smaller: Callable[[Problem], float] = lambda problem: log_sharp_smoothness(problem) - np.log(8.0)  # noqa: E731
    monkeypatch.setattr(module, "log_sharp_smoothness", smaller)
    case = Case(Problem(np.array([[[1.0], [0.0]]]), np.array([[0.5, -0.5]]), LOSSES["correlation"]))
    claims = check(statement_named("lemma-6"), case, REFERENCE).claims
    assert claim(claims, "lipschitz").verdict is Verdict.FALSIFIED
    assert claim(claims, "first-order-model").verdict is Verdict.FALSIFIED


def test_lemma_11_preimage_is_exact_and_of_least_norm() -> None:
    # W has a null direction on either side; the preimage (Wᵀ)⁺v of v = (3, 4, 0) is computed by hand.
    W = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    X = np.array([[[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    inside = Dataset(X, np.ones(1), np.array([3.0, 4.0, 0.0]), W)
    assert least_norm_preimage(inside) == [fmpq(3, 2), fmpq(2), fmpq(0), fmpq(3, 2)]
    assert least_norm_preimage(replace(inside, v=np.array([3.0, 4.0, 1e-30]))) is None


def test_lemma_2_is_lemma_11() -> None:
    assert statement_named("lemma-2") is statement_named("lemma-11")


def test_an_svm_solver_that_reports_infeasibility_without_proof_falsifies_lemmas_4_and_5() -> None:
    for id in ("lemma-4", "lemma-5"):
        assert verdicts(id, cases_of(id)[:1], FAULTS["svm-always-infeasible"]) == {Verdict.FALSIFIED}


@pytest.mark.parametrize("spread", [0.0, 1e-9])
def test_lemma_6_is_upheld_with_an_input_whose_logits_change_by_hundreds(spread: float) -> None:
    """The step 1/L̂, with the smoothness constant L̂, depends little on an input of nearly equal scores, whose logits
    may thus change by hundreds in a step.
    """
    for size in (64.0, 4096.0):
        keys = np.array([[[0.0], [-1.0]], [[-1.0], [0.0]], [[0.0], [-size]]])
        scores = np.array([[0.0, 0.0], [0.0, 1.0], [spread, 0.0]])
        case = Case(Problem(keys, scores, LOSSES["logistic"]))
        assert check(statement_named("lemma-6"), case, REFERENCE).verdict is Verdict.UPHELD


@pytest.mark.parametrize("loss", LOSSES)
def test_lemma_6_is_decided_for_scores_whose_exponential_overflows(loss: str) -> None:
    """All claims are upheld, except that on the sum of squared gradients, which is undecided where the risk
    overflows.
    """
    problem = Problem(
        np.array([[[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]]]), 1e8 * np.array([[-1.0, 0.3, -0.2]]), LOSSES[loss]
    )
    claims = check(statement_named("lemma-6"), Case(problem), REFERENCE).claims
    left_open = {c.name for c in claims if c.verdict is not Verdict.UPHELD}
    assert left_open == ({"squared-gradients-are-summable"} if loss == "exponential" else set())
    assert all("overflows" in c.undecided for c in claims if c.name in left_open)
