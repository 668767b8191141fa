"""Pieces of a flow are integrated a second time: those of the reference agree; a curve that is no flow is refuted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reference_attention.losses import loss_named
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import max_margin
from reference_attention.training import arc_length, derivatives, iteration, slope
from reference_attention.training.flow import Flow, gradient_flow
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.curves import flow_chords
from theorems.curves.flow_chords import PIECES, VACUOUS, ArcFlow, chords, start_and_norms
from theorems.faults import fault_named

KEYS = np.array([[[1.0, 0.2, 0], [0, 0.1, 0.5], [-0.3, 1, 0]], [[0.7, 0.9, 1], [0, 0, 0], [0.1, 0.3, -1]]])
PROBLEM = Problem(KEYS, np.array([[1.0, 0.5, 0.5], [2, 0, 0]]), loss_named("logistic"))
START = np.array([0.3, -0.2, 0.1])


def flow_with(name: str) -> Flow:
    implementation = REFERENCE if name == "reference" else fault_named(name).implementation
    return implementation[gradient_flow](PROBLEM, START, norm=1e6)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_the_flow_of_the_reference_is_upheld() -> None:
    flow = flow_with("reference")
    claim = chords(PROBLEM, flow, rng())
    assert claim.verdict is Verdict.UPHELD
    assert -claim.slack < 0.05 * claim.tolerance < 0.05 * VACUOUS
    assert start_and_norms(flow, START, 1e6).verdict is Verdict.UPHELD


@pytest.mark.parametrize(
    "name",
    ["flow-jumps-sideways", "flow-on-the-ray", "flow-of-another-loss", "flow-of-other-scores", "flow-of-other-keys"],
)
def test_a_curve_that_is_no_flow_is_refuted(name: str) -> None:
    assert chords(PROBLEM, flow_with(name), rng()).verdict is Verdict.FALSIFIED


@pytest.mark.parametrize("name", ["flow-from-elsewhere", "flow-without-its-start", "flow-ends-half-way"])
def test_a_flow_with_another_start_or_end_is_refuted(name: str) -> None:
    assert start_and_norms(flow_with(name), START, 1e6).verdict is Verdict.FALSIFIED


def test_a_flow_with_wrong_norms_is_refuted() -> None:
    flow = flow_with("reference")
    assert start_and_norms(replace(flow, norms=1.1 * flow.norms), START, 1e6).verdict is Verdict.FALSIFIED


def test_the_amplification_bounds_how_far_two_curves_drift_apart() -> None:
    """Two nearby flows near the ridge between two directions drift apart by at most the computed amplification."""
    keys = np.array([[[1.0, 1], [0, 0]], [[1.0, -1], [0, 0]]])
    again = ArcFlow(Problem(keys, np.array([[1.0, 0], [1.0, 0]]), loss_named("logistic")))
    begin, beside = np.array([-3.0, 0.2]), np.array([-3.0, 0.2 + 1e-5])
    first, second = (again.piece(p, 0.0, 4.0, 1e-10, 1e-12) for p in (begin, beside))
    grown = np.linalg.norm(first.end - second.end) / 1e-5
    assert grown > 1.5
    assert grown < first.amplification


def test_a_piece_that_is_not_integrated_leaves_the_claim_undecided() -> None:
    flow = flow_with("reference")
    lost = replace(flow, evaluations=10**9)
    claim = chords(PROBLEM, lost, rng())
    assert claim.verdict is Verdict.INCONCLUSIVE
    assert "the tolerance of a piece is" in claim.undecided


def test_the_reference_flow_is_upheld_from_far_and_opposite_starts() -> None:
    solution = max_margin(PROBLEM.keys, PROBLEM.optimal)
    for start in (1e3 * START, -10 * solution.p):  # type: ignore[union-attr]
        flow = gradient_flow(PROBLEM, start, norm=1e6)
        assert flow.reached_norm
        assert chords(PROBLEM, flow, rng()).verdict is Verdict.UPHELD


def two_tokens(score: float = 1.0) -> ArcFlow:
    """Return the flow for keys (4, 0) and 0, which moves along the first axis, or rests if scores are equal."""
    return ArcFlow(Problem(np.array([[[4.0, 0], [0, 0]]]), np.array([[score, 0.0]]), loss_named("logistic")))


def test_a_flow_along_a_line_has_amplification_one() -> None:
    piece = two_tokens().piece(np.array([0.5, 0.0]), 0.0, 2.0, 1e-10, 1e-12)
    assert piece.end == pytest.approx([2.5, 0.0], rel=1e-9, abs=1e-12)
    assert piece.amplification == 1.0
    assert not piece.failed


def test_the_field_is_a_unit_vector_unless_the_gradient_is_zero() -> None:
    for p in (np.zeros(2), np.array([3.0, -1.0]), np.array([-60.0, 2.0])):
        assert two_tokens()._unit(p) == pytest.approx([1.0, 0.0])
    still = two_tokens(0.0)
    assert not still._unit(np.ones(2)).any()
    unit, curvature = still._curvature(np.ones(2))
    assert not unit.any()
    assert not curvature.any()


def test_a_piece_fails_when_its_steps_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("theorems.curves.flow_chords.MOST_STEPS", 2)
    piece = ArcFlow(PROBLEM).piece(START, 0.0, 1e3, 1e-10, 1e-12)
    assert piece.failed == "running after 2 steps at arc length 0"


def test_the_first_piece_of_a_flow_and_one_of_each_third_are_integrated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    begins, piece = [], ArcFlow.piece

    def seen(self: ArcFlow, p: np.ndarray, begin: float, *rest: float) -> object:
        begins.append(begin)
        return piece(self, p, begin, *rest)

    monkeypatch.setattr(ArcFlow, "piece", seen)
    flow = flow_with("reference")
    chords(PROBLEM, flow, rng())
    assert len(begins) == 1 + PIECES
    thirds = [int(3 * np.searchsorted(flow.arc_length, s) / len(flow.arc_length)) for s in begins[1:]]
    assert begins[0] == 0
    assert thirds == [0, 1, 2]


def temperature(keys: Any, scores: Any, loss: Any) -> tuple[Any, Any, Any]:
    return 1.01 * keys, scores, loss


def slope_dropped(keys: Any, scores: Any, loss: Any) -> tuple[Any, Any, Any]:
    return keys, scores, loss_named("correlation")


def last_input_forgotten(keys: Any, scores: Any, loss: Any) -> tuple[Any, Any, Any]:
    return keys[:-1], scores[:-1], loss


@pytest.mark.parametrize("change", [temperature, slope_dropped, last_input_forgotten])
def test_a_fault_in_our_own_derivatives_is_caught(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """The gradient and Hessian from which our flow is computed are wrong in the same way in all modules."""
    gradient, newton = derivatives.gradient_field, derivatives.newton_field
    wrong = {
        "gradient_field": lambda *of: gradient(*change(*of[:3]), *of[3:]),
        "newton_field": lambda *of: newton(*change(*of[:3]), *of[3:]),
    }
    for module in (derivatives, iteration, slope, arc_length, flow_chords):
        for name, field in wrong.items():
            monkeypatch.setattr(module, name, field, raising=False)
    assert chords(PROBLEM, flow_with("reference"), rng()).verdict is Verdict.FALSIFIED


def test_a_jacobian_without_its_off_diagonal_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Jacobian diag(s) − s sᵀ of the softmax s is replaced by diag(s), which for differences to the selected token
    is right only where the softmax saturates.
    """

    def wrong(keys: Any, scores: Any, loss: Any, span: Any = None) -> Any:
        at = derivatives.Selected(keys, scores, span)

        def field(p: Any) -> Any:
            differences, relative = at(p)
            result = derivatives.terms(differences, loss, relative)
            log_slope = loss.log_slope(result.outputs)[:, None]
            return 0.0, -(np.exp(log_slope + result.log_weights) * differences.gaps).ravel() @ differences.rows

        return field

    for module in (derivatives, iteration, slope, flow_chords):
        monkeypatch.setattr(module, "gradient_field", wrong, raising=False)
    monkeypatch.setattr(slope, "newton_field", lambda *of: arc_length._central_differences(wrong(*of), 1.0))
    assert chords(PROBLEM, flow_with("reference"), rng()).verdict is Verdict.FALSIFIED


@pytest.mark.parametrize("loss", ["logistic", "exponential", "sigmoid"])
def test_the_hessian_is_the_derivative_of_the_gradient(loss: str) -> None:
    again = ArcFlow(Problem(KEYS, PROBLEM.scores, loss_named(loss)))
    for p in (START, 8 * START, -20 * START):
        unit, curvature = again._curvature(p)
        assert unit == pytest.approx(-again._unit(p), rel=1e-12, abs=1e-14)
        _, direction, theirs = derivatives.newton_field(KEYS, PROBLEM.scores, loss_named(loss))(p)
        assert curvature == pytest.approx(theirs / np.linalg.norm(direction), rel=1e-9, abs=1e-12)
