"""Values of the risk, the logarithm of the excess risk and the smoothness L_p: right ones are upheld, small errors are
caught.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from generators.case import Case
from reference_attention.losses import LOSSES
from reference_attention.problem import Dataset, Problem
from reference_attention.risk import risk
from theorems.core.claim import Claim, NotANumber, Undecided, Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults import FAULTS, Kind
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.risk_under_test import risk_of
from theorems.token_selection.softmax.lemma_06_smoothness_and_descent import lemma_6
from theorems.token_selection.softmax.risk_values import risk_values
from theorems.token_selection.softmax.smoothness_value import log_smoothness_values, log_spectral_norms


def problem(loss: str = "logistic") -> Problem:
    rng = np.random.default_rng(1)
    return Problem(rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 4)), loss)


def claims(under_test: Implementation, loss: str, size: float) -> dict[str, Claim]:
    case = Case(problem(loss))
    points = size * np.random.default_rng(2).normal(size=(20, 2))
    return {
        x.name: x for x in risk_values(case, AttentionAt(case.problem, points), under_test, np.random.default_rng(3))
    }


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", [0.0, 1e-8, 1.0, 1e6])
def test_the_reference_has_the_right_risk_at_every_norm(loss: str, size: float) -> None:
    result = claims(REFERENCE, loss, size)
    assert len(result) == 3
    assert {claim.verdict for claim in result.values()} == {Verdict.UPHELD}


@pytest.mark.parametrize("name", ["risk-too-large", "risk-of-scaled-outputs", "excess-too-large"])
def test_an_error_of_1e_11_in_a_value_is_caught(name: str) -> None:
    for loss in LOSSES:
        result = claims(FAULTS[name].made(1e-11), loss, 1.0)
        assert Verdict.FALSIFIED in {claim.verdict for claim in result.values()}


def test_where_the_softmax_saturates_an_error_in_the_excess_is_caught() -> None:
    result = claims(FAULTS["excess-too-large"].made(1e-6), "logistic", 1e4)
    assert result["excess-is-that-of-the-losses"].verdict is Verdict.FALSIFIED


def test_a_risk_that_overflows_is_undecided_and_a_nan_elsewhere_is_refuted() -> None:

    far = Problem([[[1.0], [0.0]]], [[-1e3, -2e3]], "exponential")
    with pytest.raises(Undecided, match="overflows"):
        risk_of(AttentionAt(far, np.zeros((1, 1))), REFERENCE, "risk")
    broken = REFERENCE.replace("", {risk: lambda keys, scores, loss, p: np.full(len(p), np.nan)})
    with pytest.raises(NotANumber):
        risk_of(AttentionAt(problem(), np.zeros((1, 2))), broken, "risk")


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (3, 4), (4, 3), (6, 6)])
def test_bounds_contain_the_spectral_norm(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    matrices = [rng.normal(size=shape), np.ones(shape), np.eye(*shape) * 1e-110, rng.normal(size=shape) * 1e120]
    result = log_spectral_norms(np.array(matrices))
    with mpmath.workdps(50):
        for matrix, log, error in zip(matrices, result.value, result.error, strict=True):
            exact = mpmath.log(max(mpmath.svd_r(mpmath.matrix(matrix.tolist()), compute_uv=False)))
            assert abs(exact - mpmath.mpf(log)) <= error
            assert error < 1e-12


def test_the_spectral_norm_of_a_zero_matrix_is_zero() -> None:
    result = log_spectral_norms(np.zeros((1, 2, 3)))
    assert np.isneginf(result.value).all()
    assert (result.error == 0).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_smoothness_agrees_with_its_formula_with_and_without_tokens(loss: str) -> None:
    rng = np.random.default_rng(4)
    data = Dataset(rng.normal(size=(2, 3, 4)), [1, -1], rng.normal(size=4), rng.normal(size=(2, 4)), loss)
    result = log_smoothness_values(Case(data.problem, dataset=data))
    assert np.abs(result.value - [data.problem.log_smoothness, data.log_smoothness]).max() < 1e-13
    assert result.error.max() < 1e-12


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if name.startswith("smoothness-")])
def test_a_wrong_smoothness_constant_is_falsified(name: str) -> None:
    assert FAULTS[name].kind is Kind.STEP
    first = next(iter(lemma_6.conclusion(Case(problem()), FAULTS[name].implementation)))
    assert first.name == "smoothness-is-its-formula"
    assert first.verdict is Verdict.FALSIFIED
