"""Planted faults: each is caught by the statement that its declaration names; the reference is never caught."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch

from generators.case import Case
from reference_attention.losses import loss_named
from reference_attention.risk import log_excess_risk, risk, scaled_gradient, softmax_weights
from tests.theorems.faults.trial import Baseline, FaultOutcome, baseline, try_fault
from theorems.core.implementation import Implementation
from theorems.faults import FAULTS, Fault, Kind, fault_named
from theorems.faults.fault import right
from theorems.faults.size_faults import FAULTS as SIZE_FAULTS
from theorems.faults.softmax import on_keys
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.suite import statements
from theorems.run.verify import draw_cases

EXAMPLES = 10

LEMMAS = ("lemma-1", "lemma-3", "lemma-4", "lemma-5", "lemma-6", "lemma-11")
"""Lemmas that are cheap to check."""

NAMED_IN_THE_PLAN = {
    "temperature",
    "negated-logits",
    "negated-gradient",
    "diagonal-jacobian",
    "detached-normaliser",
    "sigmoid-normalised",
    "sparsemax",
    "top-2",
    "clipped-logits",
    "epsilon-in-denominator",
    "logits-of-few-bits",
    "wrong-loss-derivative",
    "svm-with-bias",
    "svm-misses-a-constraint",
    "neighbours-by-tolerance",
    "step-above-bound",
    "optimal-by-key-norm",
    "svm-by-key-norm",
}


class Lazily(Sequence[Baseline]):
    """The reference's results on cases, computed on demand, since most faults are caught on the first cases."""

    def __init__(self, id: str, cases: int) -> None:
        self._statement = statement_named(id)
        self._cases = draw_cases(self._statement, cases, 0, every=False)
        self._made: dict[int, Baseline] = {}

    def __len__(self) -> int:
        return len(self._cases)

    def __getitem__(self, k):  # type: ignore[no-untyped-def]
        if k not in self._made:
            self._made[k] = baseline(self._statement, self._cases[k])
        return self._made[k]


@cache
def baselines(id: str, cases: int = EXAMPLES) -> Lazily:
    return Lazily(id, cases)


def outcome_of(id: str, fault: Fault, cases: int = EXAMPLES) -> FaultOutcome:
    return try_fault(statement_named(id), fault, baselines(id, cases)).outcome


def _unchanged(keys, size):  # type: ignore[no-untyped-def]
    return keys


def missed_faults(id: str, faults: Iterable[Fault]) -> list[str]:
    """Return the names of the faults that the statement catches on none of its first cases."""
    return [fault.name for fault in faults if outcome_of(id, fault) is not FaultOutcome.CAUGHT]


@pytest.mark.parametrize("id", statements())
def test_a_statement_catches_the_faults_that_name_it(id: str) -> None:
    assert missed_faults(id, [fault for fault in FAULTS.values() if fault.caught_by == id]) == []


@pytest.mark.parametrize("id", sorted(set(statements()) - {fault.caught_by for fault in FAULTS.values()}))
def test_a_statement_that_no_fault_names_catches_at_least_three_faults(id: str) -> None:
    """One case is tried first; all cases are tried if fewer than three faults are caught on it."""
    caught: set[str] = set()
    for cases, fault in product((1, EXAMPLES), FAULTS.values()):
        if outcome_of(id, fault, cases) is FaultOutcome.CAUGHT:
            caught.add(fault.name)
        if len(caught) == 3:
            return
    pytest.fail(f"catches {caught} alone")


def test_a_fault_whose_named_statement_misses_it_is_noticed() -> None:
    # tsvm-local-descent is of another paper, which need not be installed.
    assert {fault.caught_by for fault in FAULTS.values()} <= {*statements(), "tsvm-local-descent"}
    wrong = [FAULTS[name] for name in ("svm-with-bias", "neighbour-lost", "temperature")]
    assert missed_faults("lemma-11", wrong) == ["neighbour-lost", "temperature"]


def test_each_fault_of_attention_and_gradient_is_caught_by_some_cheap_lemma() -> None:
    kinds = (Kind.SOFTMAX, Kind.GRADIENT)
    attention = {softmax_weights, risk, scaled_gradient, log_excess_risk}
    asked = [f for f in FAULTS.values() if f.kind in kinds and attention.issuperset(f.implementation.replaced)]
    assert [fault.name for fault in asked if all(missed_faults(id, [fault]) for id in LEMMAS)] == []


def test_the_reference_as_a_fault_is_caught_by_no_statement() -> None:
    for id in ("lemma-3", "lemma-4", "lemma-6", "lemma-11"):
        assert {base.verdict for base in baselines(id)} == {"upheld"}
        same = Fault("reference", Kind.SOFTMAX, "nothing", id, on_keys(_unchanged))
        assert outcome_of(id, same) in (FaultOutcome.UNMOVED, FaultOutcome.UNTOUCHED)
        assert outcome_of(id, Fault("reference", Kind.SOFTMAX, "nothing", id, right)) is FaultOutcome.UNTOUCHED


def test_common_faults_of_attention_are_planted() -> None:
    assert set(FAULTS) >= NAMED_IN_THE_PLAN
    assert {fault.kind for fault in FAULTS.values()} == set(Kind)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda fault: fault.name)
def test_faults_can_be_pickled_and_change_what_their_kind_says(fault: Fault) -> None:
    sent = pickle.loads(pickle.dumps(fault.implementation))
    assert isinstance(sent, Implementation)
    assert sent.name == fault.name
    softmax = {"softmax_weights", "risk", "scaled_gradient", "log_excess_risk"}
    allowed = {
        Kind.SOFTMAX: softmax,
        Kind.GRADIENT: {"scaled_gradient"},
        Kind.RISK: {"risk", "log_excess_risk"},
        Kind.STEP: {"log_smoothness", "factored_gradient_descent"},
        Kind.DATA: softmax | {"keys_and_scores", "outer_keys_and_scores"},
        Kind.SVM: {"max_margin", "relaxed_max_margin", "locally_optimal", "nuclear_max_margin", "norm_max_margin"},
        Kind.SETS: {"max_margin_sets"},
        Kind.DIRECTION: {"direction"},
        Kind.LABELS: {"label_svm", "relaxed_max_margin"},
        Kind.JOINT: {
            "joint_gradient",
            "joint_minimiser",
            "joint_descent",
            "head_gradient",
            "scheduled_direction",
            "critical_ratio",
        },
        Kind.MIXING: {"optimal_attention", "general_svm", "finite_part", "mixing_path", "mixing_offset"},
        Kind.RUN: {
            "gradient_descent",
            "normalized_gradient_descent",
            "gradient_flow",
            "regularization_path",
            "local_path",
            "factored_flow",
            "factored_gradient_descent",
            "nuclear_path",
            "steepest_descent",
            "mirror_descent",
        },
    }
    replaced = {function.__name__ for function in fault.implementation.replaced}
    ours = {name for names in allowed.values() for name in names}
    assert replaced & ours <= allowed[fault.kind]
    assert (fault.spoil is None) != (not replaced)
    if fault.kind is Kind.SOFTMAX:
        assert replaced == softmax


def _points() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 4)), rng.normal(size=(5, 3))


SOFTMAX = [fault for fault in FAULTS.values() if fault.kind is Kind.SOFTMAX]


STRAIGHT_THROUGH = ("logits-of-few-bits", "float32-softmax", "epsilon-in-denominator")
"""Faults in whose gradient the rounding and the largest logit count as constants, as in a kernel."""


@pytest.mark.parametrize("fault", [f for f in SOFTMAX if f.name not in STRAIGHT_THROUGH], ids=lambda fault: fault.name)
def test_the_gradient_of_a_wrong_softmax_is_the_derivative_of_its_risk(fault: Fault) -> None:
    """Compare with central differences of the wrong risk, at points where it is differentiable."""
    _check_gradient(fault, *_points())


def _wide_points() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(2, 35, 66)), rng.normal(size=(2, 35)), 0.1 * rng.normal(size=(5, 66))


@pytest.mark.parametrize("fault", SIZE_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_of_large_sizes_is_right_at_small_ones_and_consistent_at_large_ones(fault: Fault) -> None:
    faulty, loss = fault.implementation, loss_named("logistic")
    keys, scores, points = _points()
    for alpha in (np.array([0, 1]), np.array([3, 2])):
        ours = log_excess_risk(keys, scores, loss, points, alpha)
        assert np.abs(np.array(faulty[log_excess_risk](keys, scores, loss, points, alpha)) - ours).max() < 1e-13
    assert np.abs(faulty[softmax_weights](keys, points) - softmax_weights(keys, points)).max() < 1e-15
    keys, scores, points = _wide_points()
    weights = faulty[softmax_weights](keys, points)
    assert np.abs(weights - softmax_weights(keys, points)).max() > 1e-3
    value = np.mean(loss.value(np.sum(weights * scores, axis=-1)), axis=-1)
    assert np.abs(value - faulty[risk](keys, scores, loss, points)).max() < 1e-14
    if fault.name != "running-maximum-never-rescaled":  # in its gradient the maxima count as constants
        _check_gradient(fault, keys, scores, points)


def _check_gradient(fault: Fault, keys: np.ndarray, scores: np.ndarray, points: np.ndarray) -> None:
    loss, faulty = loss_named("logistic"), fault.implementation
    g = faulty[scaled_gradient](keys, scores, loss, points)
    gradient = np.exp(g.log_scale)[:, None] * g.direction
    h = 1e-5 * np.eye(points.shape[-1])
    up, down = (faulty[risk](keys, scores, loss, points[:, None] + sign * h) for sign in (1, -1))
    assert np.abs((up - down) / 2e-5 - gradient).max() < 1e-8


@pytest.mark.parametrize("fault", SOFTMAX, ids=lambda fault: fault.name)
def test_a_wrong_softmax_agrees_in_numpy_and_torch_and_its_excess_with_its_risk(fault: Fault) -> None:
    keys, scores, points = _points()
    loss, faulty, alpha = loss_named("logistic"), fault.implementation, np.array([0, 1])
    there = [torch.tensor(x) for x in (keys, scores, points)]
    weights = faulty[softmax_weights](keys, points)
    assert np.abs(faulty[softmax_weights](there[0], there[2]).numpy() - weights).max() < 1e-6
    sign, size = faulty[log_excess_risk](keys, scores, loss, points, alpha)
    excess = faulty[risk](keys, scores, loss, points) - loss.value(scores[[0, 1], alpha]).mean()
    assert np.abs(sign * np.exp(size) - excess).max() < 1e-6


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("temperature", "lemma-3"),
        ("logits-of-few-bits", "lemma-3"),
        ("gradient-too-long", "lemma-3"),
        ("one-coordinate-off", "lemma-3"),
        ("key-off", "lemma-3"),
        ("score-off", "lemma-3"),
        ("svm-coordinate-off", "lemma-11"),
        ("svm-dual-off", "theorem-1"),
        ("step-above-bound", "lemma-6"),
    ],
)
def test_a_fault_below_rounding_is_not_caught(name: str, id: str) -> None:
    """At size 1e-18 a fault changes nothing, so whatever is caught at larger sizes is the fault, not its planting."""
    assert outcome_of(id, fault_named(name).of_size(1e-18), cases=3) in (FaultOutcome.MISSED, FaultOutcome.UNMOVED)


def test_a_statement_that_raises_does_not_count_as_catching() -> None:
    def broken(case: Case) -> Case:
        raise ZeroDivisionError("planted")

    cell = try_fault(
        statement_named("lemma-3"), Fault("broken", Kind.DATA, "", "", right, spoil=broken), baselines("lemma-3")
    )
    assert cell.outcome is FaultOutcome.UNDECIDED
    assert "planted" in cell.why
