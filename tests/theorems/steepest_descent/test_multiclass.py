"""Steepest descent on classification data: upheld by the reference, falsified by planted faults; by hand; its hunts."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from generators.labelled import Labelled, separable_labels
from reference_attention.errors import InvalidInput
from reference_attention.next_token.label_descent import label_descent, label_gradient, label_loss
from reference_attention.norms import Schatten
from tests.theorems.token_selection.path_cases import statement
from theorems.bounded import exact, value_of
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults import FAULTS
from theorems.run.verify import draw_cases
from theorems.steepest_descent.followed import Asked, Followed
from theorems.steepest_descent.label_loss import LabelGeometry, run_claims, softplus
from theorems.without.steepest_multiclass import inseparable_labels, inseparable_with_momentum

PLAIN, MOMENTUM = "steepest-multiclass", "steepest-momentum"
RUNS = {
    "steepest-in-the-dual-norm": "iterate-is-a-steepest-step",
    "steepest-is-euclidean": "iterate-is-a-steepest-step",
    "orthogonal-factor-approximate": "iterate-is-a-steepest-step",
    "orthogonal-factor-bent": "iterate-is-a-steepest-step",
    "steepest-step-too-long": "step-is-no-longer-than-asked-for",
    "label-weights-forgotten": "iterate-is-a-steepest-step",
    "label-softmax-of-the-others": "iterate-is-a-steepest-step",
    "norm-margin-of-another-basis": "norm-margin-is-largest",
    "norm-margin-in-another-norm": "norm-margin-is-largest",
    "norm-margin-with-euclidean-duals": "norm-margin-is-largest",
    "norm-margin-negative-duals": "norm-margin-is-largest",
    "norm-margin-off": "norm-margin-is-largest",
}


def data(features: list[list[float]], labels: list[int], classes: int, **more: object) -> Labelled:
    ones = np.ones(len(labels), dtype=np.int64)
    return Labelled(np.array(features), np.array(labels), ones, classes, **more)  # type: ignore[arg-type]


TWO = data([[1.0], [-2.0]], [0, 1], 2)
"""Rows (1, −1) and (2, −2) for W = (w_0, w_1): γ = 2 in ‖·‖_∞, √2 in ‖·‖_F and the spectral norm."""


@cache
def drawn(id: str) -> tuple[Labelled, ...]:
    return tuple(draw_cases(statement(id), 40, 0))


@pytest.mark.parametrize("id", [PLAIN, MOMENTUM])
def test_upheld_by_the_reference(id: str) -> None:
    assert {check(statement(id), one, REFERENCE).verdict for one in drawn(id)[:6]} == {Verdict.UPHELD}


def falsifies(id: str, under_test: Implementation, expected: str) -> bool:
    for one in drawn(id):
        claims = check(statement(id), one, under_test).claims
        if any(claim.name == expected and claim.verdict is Verdict.FALSIFIED for claim in claims):
            return True
    return False


@pytest.mark.parametrize("fault", RUNS)
def test_faults_are_caught(fault: str) -> None:
    assert falsifies(PLAIN, FAULTS[fault].implementation, RUNS[fault])


@pytest.mark.parametrize("fault", ["momentum-forgotten", "momentum-too-short", "label-softmax-of-the-others"])
def test_faults_in_momentum_are_caught(fault: str) -> None:
    assert falsifies(MOMENTUM, FAULTS[fault].implementation, "iterate-is-a-steepest-step")


def test_the_gradient_at_points_is_that_under_test() -> None:
    assert falsifies(PLAIN, FAULTS["label-softmax-of-the-others"].implementation, "gradient-is-short")


def test_gradient_and_loss_are_the_textbook_s() -> None:
    case = drawn(PLAIN)[12].normalise()
    W = np.random.default_rng(0).normal(size=(1, math.prod(case.shape)))
    logits = case.features @ W.reshape(case.shape).T
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    weights = case.counts / case.counts.sum()
    seen = np.eye(case.classes)[case.labels]
    due_loss = -(weights * np.log((probabilities * seen).sum(axis=1))).sum()
    assert label_loss(case.problem, W)[0] == pytest.approx(due_loss)
    found = label_gradient(case.problem, W)
    due = (weights[:, None] * (probabilities - seen)).T @ case.features
    np.testing.assert_allclose(math.exp(found.log_scale[0]) * found.direction[0], due.ravel(), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(
    ("norm", "margin"), [(math.inf, 2.0), (2.0, math.sqrt(2)), (1.0, 1.0), (Schatten(math.inf, (2, 1)), math.sqrt(2))]
)
def test_two_classes_by_hand(norm: float | Schatten, margin: float) -> None:
    found = REFERENCE.norm_max_margin(TWO.keys, TWO.labels, norm)
    assert found is not None
    geometry = LabelGeometry(TWO, found)
    assert float(value_of(geometry.margin)) == pytest.approx(margin, rel=1e-7)
    # At 0 both inputs have a loss of log 2, u = 2 log 2 and Y = log 3.
    assert float(value_of(geometry.log_excess(np.zeros(2)))) == pytest.approx(math.log(3))


def test_the_bound_fails_for_steps_that_are_none() -> None:
    """Descent in ‖·‖_1 where γ and lengths are those of ‖·‖_∞."""
    found = REFERENCE.norm_max_margin(TWO.keys, TWO.labels, math.inf)
    assert found is not None
    geometry, asked = LabelGeometry(TWO, found), Asked(np.full(50, 0.05), 0.0)
    for norm, verdict in ((math.inf, Verdict.UPHELD), (1.0, Verdict.FALSIFIED)):
        p = label_descent(TWO.problem, np.zeros((1, 2)), lengths=asked.lengths, norm=norm)
        run = Followed(asked, exact(p), np.zeros((50, 1)))
        assert next(iter(run_claims(geometry, run, exact(np.zeros(50))))).verdict is verdict


def test_softplus_keeps_its_digits() -> None:
    x = np.array([-800.0, -40.0, 0.0, 800.0])
    np.testing.assert_allclose(value_of(softplus(x)), [0.0, math.exp(-40), math.log(2), 800.0], rtol=1e-15)


def test_what_no_weights_tell_apart_is_found_and_refutes() -> None:
    both = data([[1.0], [1.0]], [0, 1], 2)
    assert separable_labels(both).holds is False
    assert separable_labels(TWO).holds is True
    for weakened in (inseparable_labels, inseparable_with_momentum):
        assert [one.verdict for one in weakened.conclusion(both, REFERENCE)] == [Verdict.FALSIFIED]
        assert [one.verdict for one in weakened.conclusion(TWO, REFERENCE)] == [Verdict.UPHELD]
    assert check(statement(PLAIN), both, REFERENCE).verdict is Verdict.NOT_APPLICABLE


def test_units_of_features_do_not_matter() -> None:
    large = TWO.replace(features=TWO.features * 2.0**30, start=np.ones(2) * 2.0**-30).normalise()
    np.testing.assert_array_equal(large.features, TWO.normalise().features)
    assert large.start is not None
    assert large.start.tolist() == [2.0, 2.0]


def test_bad_input_is_refused() -> None:
    for wrong, word in (
        ({"labels": np.array([0, 2])}, "labels"),
        ({"counts": np.array([0, 1])}, "counts"),
        ({"classes": 1}, "classes"),
        ({"features": np.array([[np.nan], [1.0]])}, "features"),
        ({"start": np.zeros(3)}, "start"),
    ):
        with pytest.raises(InvalidInput, match=word):
            TWO.replace(**wrong)


def test_what_is_drawn_is_separable_and_shrinks() -> None:
    assert all(separable_labels(one).holds for one in drawn(PLAIN))
    several = next(one for one in drawn(PLAIN) if len(one.labels) > 2)
    assert {len(one.labels) for one in several.simpler()} >= {len(several.labels) - 1}
