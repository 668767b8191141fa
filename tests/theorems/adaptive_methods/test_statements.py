"""The statements on adaptive methods: upheld by the reference, falsified by planted faults, equal to sums by hand."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from generators.adaptive_methods import KINDS, batch_schedule, equal_moduli
from generators.case import Case
from generators.labelled_features import LabelledFeatures
from reference_attention.errors import InvalidInput
from reference_attention.losses import loss_named
from reference_attention.next_token.label_descent import label_descent, label_gradient
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.svm.norm_max_margin import norm_max_margin
from tests.theorems.explanations.test_rule_ends import DATA
from tests.theorems.token_selection.path_cases import statement
from theorems.adaptive_methods.adam import Betas, adam_descent
from theorems.adaptive_methods.adam_bounds import AdamBounds
from theorems.adaptive_methods.batches import BatchSchedule, batch_gradient, label_samples, misplaced, schedule_fault
from theorems.adaptive_methods.inexact_steps import FALLS, InexactSteps, label_gain
from theorems.adaptive_methods.without import unequal_moduli
from theorems.bounded import exact, value_of
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.faults import FAULTS
from theorems.library.explain import explain
from theorems.run.verify import draw_cases
from theorems.steepest_descent.label_loss import LabelGeometry
from theorems.steepest_descent.steepest_run import StepSchedule

ADAM, STEP, SHORT = "adam-max-margin", "iterate-is-a-step-of-adam", "step-is-within-cauchy-schwarz"
CAUGHT = {
    "gradient-proxy": {
        "diagonal-jacobian": "gradient-is-long",
        "gradient-too-long": "gradient-is-short",
        "norm-margin-in-another-norm": "norm-margin-is-largest",
        "wrong-loss-derivative": "gradient-is-long",
    },
    "minibatch-momentum": {
        "batches-with-replacement": "batches-are-those-asked-for",
        "last-batch-dropped": "batches-are-those-asked-for",
        "batch-summed": "batches-are-those-asked-for",
        "batch-of-the-last-step": "iterate-is-a-steepest-step",
        "momentum-per-epoch": "iterate-is-a-steepest-step",
        "momentum-after-normalisation": "potential-falls",
        "batch-shares-forgotten": "iterate-is-a-steepest-step",
        "sample-loss-exponential": "iterate-is-a-steepest-step",
    },
    ADAM: {
        "adam-with-epsilon": STEP,
        "adam-otherwise-corrected": STEP,
        "adam-corrects-the-mean-only": SHORT,
        "adam-corrects-the-root-only": STEP,
        "adam-without-root": "step-follows-gradient",
        "adam-betas-swapped": STEP,
        "adam-mean-starts-at-gradient": SHORT,
        "adam-moments-start-at-gradient": STEP,
        "adam-sums-squares": STEP,
        "adam-squares-the-mean": SHORT,
        "adam-never-lowers-squares": STEP,
        "adam-with-decay": STEP,
        "adam-turns-an-entry": STEP,
    },
    "adam-one-input": {
        "adam-with-epsilon": STEP,
        "adam-sums-squares": STEP,
        "adam-turns-an-entry": "step-follows-gradient",
        "norm-margin-off": "norm-margin-is-largest",
    },
    "adam-from-a-margin": {
        "adam-with-epsilon": STEP,
        "adam-never-lowers-squares": STEP,
        "adam-turns-an-entry": "step-follows-gradient",
        "norm-margin-negative-duals": "norm-margin-is-largest",
    },
    "minibatch-from-a-margin": {
        "batches-with-replacement": "batches-are-those-asked-for",
        "momentum-per-epoch": "iterate-is-a-steepest-step",
        "momentum-after-normalisation": "iterate-is-a-steepest-step",
    },
    "incremental-adam-equal-moduli": {
        "adam-sums-squares": STEP,
        "adam-turns-an-entry": "step-is-along-momentum",
        "sample-loss-exponential": STEP,
        "last-batch-dropped": "batches-are-those-asked-for",
    },
}


@cache
def drawn(id: str) -> tuple[Any, ...]:
    return tuple(draw_cases(statement(id), 24, 0))


@pytest.mark.parametrize("id", CAUGHT)
def test_every_statement_is_upheld_by_the_reference(id: str) -> None:
    assert {check(statement(id), case, REFERENCE).verdict for case in drawn(id)[:6]} == {Verdict.UPHELD}


@pytest.mark.parametrize(("id", "fault"), [(id, fault) for id, faults in CAUGHT.items() for fault in faults])
def test_each_planted_fault_falsifies_the_claim_that_catches_it(id: str, fault: str) -> None:
    for case in drawn(id):
        claims = check(statement(id), case, FAULTS[fault].implementation).claims
        if any(claim.name == CAUGHT[id][fault] and claim.verdict is Verdict.FALSIFIED for claim in claims):
            return
    pytest.fail(f"{fault} is not caught by {CAUGHT[id][fault]}")


def binary(rows: list[list[float]], counts: list[int] | None = None) -> LabelledFeatures:
    """Return two classes with all samples in class 0, so that W = (w, −w) has the margins 2 x·w."""
    n = len(rows)
    return LabelledFeatures(np.array(rows), np.zeros(n, dtype=np.int64), np.array(counts or [1] * n), 2)


THREE = binary([[1, 1, -1, 1, -1], [1, 1, -1, -1, 1], [3, -3, 3, 3, 3]])
"""Samples, each with entries of one modulus; the ℓ2 solution is (11, 5, −5, 3, 3)/21, the ℓ∞ solution (1, 1, −1, 1,
1)/3.
"""


def geometry_of(case: LabelledFeatures, norm: float) -> LabelGeometry:
    solution = norm_max_margin(case.keys, case.labels, norm)
    assert solution is not None
    return LabelGeometry(case, solution)


def test_the_solutions_for_three_samples_in_both_norms_are_those_found_by_hand() -> None:
    for norm, due in ((2.0, np.array([11, 5, -5, 3, 3]) / 21), (math.inf, np.array([1, 1, -1, 1, 1]) / 3)):
        p = geometry_of(THREE, norm).solution.p
        w = (p[:5] - p[5:]) / 2
        np.testing.assert_allclose(w / np.abs(w).max(), due / np.abs(due).max(), atol=1e-12)
    assert math.sqrt(1 / np.sum((np.array([11, 5, -5, 3, 3]) / 21) ** 2)) == pytest.approx(math.sqrt(7 / 3))


@pytest.mark.parametrize("beta", [(0.9, 0.95), (0.9, 0.9)])
def test_full_batches_go_to_one_margin_and_single_samples_to_the_other(beta: tuple[float, float]) -> None:
    lengths, problem = 0.5 / np.sqrt(np.arange(1.0, 12_001)), THREE.problem

    def run(shares: np.ndarray) -> np.ndarray:
        batches = iter(shares)

        def field(W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            slope = batch_gradient(label_samples(problem, W), next(batches))
            return slope.log_scale, slope.direction

        return adam_descent(field, np.zeros((1, 10)), lengths=lengths, betas=Betas(*beta))[-1, 0]

    def margins(points: np.ndarray) -> tuple[float, float]:
        w = (points[:5] - points[5:]) / 2
        least = float((THREE.features @ w).min())
        return least / np.linalg.norm(w) / math.sqrt(7 / 3), least / np.abs(w).max() / 3

    full = margins(run(np.full((12_000, 3), 1 / 3)))
    single = margins(run(np.tile(np.eye(3), (4000, 1))))
    assert full[1] > 0.95 > full[0]
    assert single[0] > 0.99
    assert single[1] == pytest.approx(7 / 11, abs=0.02)


def test_the_formulas_of_adam_in_plain_floats() -> None:
    """Compute κ_t by the statement's formulas with loops; Adam's steps satisfy ⟨∇L, step⟩ ≥ κ_t G and |step| ≤ ρ_t."""
    geometry = geometry_of(THREE, math.inf)
    first, second, steps = 0.5, 0.9, 12
    lengths = 1e-3 / np.sqrt(np.arange(1.0, steps + 1))
    D, gamma = float(value_of(geometry.reach)), float(value_of(geometry.margin))
    for corrected in (False, True):
        bounds = AdamBounds(
            StepSchedule(lengths, 0.0), Betas(first, second, corrected), geometry.reach, geometry.margin, geometry.reach
        )
        c = (1 - first) / math.sqrt((1 - second) * (1 - first**2 / second))
        W, M, V = np.zeros(10), np.zeros(10), np.zeros(10)
        rho = []
        for t in range(steps):
            a, b = 1 - first ** (t + 1), math.sqrt(1 - second ** (t + 1))
            rho.append(c * (b / a if corrected else 1))
            ell = [sum(lengths[r] * rho[r] for r in range(t - s, t)) for s in range(t + 1)]
            tau = (1 - first) * sum(first**s * math.expm1(D * ell[s]) for s in range(t + 1))
            sigma = math.sqrt((1 - second) * sum(second**s * math.expm1(D * ell[s]) ** 2 for s in range(t + 1)))
            kappa = a / b * gamma - D * (tau / b + max(a * sigma / b**2, c * tau / a))
            kappa *= b / a if corrected else 1
            assert float(bounds.kappa.value[t]) == pytest.approx(kappa, rel=1e-12)
            slope = label_gradient(THREE.problem, W[None])
            g = math.exp(slope.log_scale[0]) * slope.direction[0]
            M, V = first * M + (1 - first) * g, second * V + (1 - second) * g * g
            step = M / np.sqrt(V) * (b / a if corrected else 1)
            x = np.exp(-THREE.features @ (W[:5] - W[5:]))
            G = np.mean(x / (1 + x))
            assert g @ step >= kappa * G
            assert np.abs(step).max() <= rho[t] * (1 + 1e-12)
            W = W - lengths[t] * step


def test_misplaced_mass_by_hand() -> None:
    """Two samples take turns with β = ½ and tiny steps: their weights in the momentum differ by a factor 2, so the
    share of misplaced mass is tanh(log 2/4).
    """
    shares = np.tile(np.eye(2), (30, 1))
    share = misplaced(exact(1.0), StepSchedule(np.full(60, 1e-12), 0.5), shares, exact(np.array([0.5, 0.5])))
    assert share.value[0] == 1.0
    assert share.value[-1] == pytest.approx(math.tanh(math.log(2) / 4), rel=1e-6)
    far = misplaced(exact(1e9), StepSchedule(np.full(60, 1.0), 0.5), shares, exact(np.array([0.5, 0.5])))
    assert far.value[1:].tolist() == [1.0] * 59


@pytest.mark.parametrize("weight", [1, 3])
def test_lemma_0_bounds_the_loss_of_a_step_in_the_wrong_direction(weight: int) -> None:
    """A step in the wrong direction satisfies claim FALLS with the bound of Lemma 0, but not with a fifth of it."""
    case = binary([[1.0], [1.0]], [1, weight])
    geometry = geometry_of(case, math.inf)
    lengths = np.full(1, 0.01)
    start = np.array([[-9.0, 9.0]])
    points = 2 * start - label_descent(case.problem, start, lengths=lengths, norm=math.inf)
    excess = geometry.log_excess(exact(points))

    def falls(gain: Any) -> Verdict:
        run = InexactSteps(geometry, exact(points), excess, exact(0.0), gain, np.zeros((1, 1)), exact(lengths)[:, None])
        return next(claim for claim in run.claims() if claim.name == FALLS).verdict

    kappa = exact(np.array([[-1.0]])) * float(value_of(geometry.reach))
    gain = label_gain(geometry, exact(lengths)[:, None], kappa, exact(1.0))
    assert falls(gain) is Verdict.UPHELD
    assert falls(gain * 0.2) is Verdict.FALSIFIED


def test_bounds_are_vacuous_where_rounding_of_w_hides_the_steps() -> None:
    """Steps of 1e-22 vanish in the rounding of W near 1e20. The bound on a step includes this rounding, so its
    exponential overflows, and the claims hold vacuously.
    """
    features = np.array([[1.991543865584311e-17], [323.61612839427823], [647.2322567885565]])
    case = LabelledFeatures(features, np.zeros(3, dtype=np.int64), np.array([3551, 222, 1]), 2, seed=4899)
    claims = check(statement(ADAM), case, REFERENCE).claims
    assert {claim.name: claim.verdict for claim in claims}[FALLS] is Verdict.UPHELD
    assert {claim.verdict for claim in claims} == {Verdict.UPHELD}


@pytest.mark.parametrize("kind", KINDS)
def test_batch_schedules_are_valid_and_wrong_ones_are_detected(kind: str) -> None:
    rng, weights = np.random.default_rng(0), np.full(5, 0.2)
    shares = batch_schedule(kind, weights, 2, 12, rng)
    assert schedule_fault(BatchSchedule(kind, 2, shares), weights, 12) == ""
    assert "batches of shape" in schedule_fault(BatchSchedule(kind, 2, shares[1:]), weights, 12)
    wrong = shares.copy()
    wrong[4] = [0.3, 0.7, 0.0, 0.0, 0.0]
    assert schedule_fault(BatchSchedule(kind, 2, wrong), weights, 12) != ""
    if kind in ("cyclic", "shuffled"):
        twice = shares.copy()
        twice[1] = twice[0]
        assert "times, not once" in schedule_fault(BatchSchedule(kind, 2, twice), weights, 12) or kind == "shuffled"


def test_schedules_of_unknown_kind_or_impossible_size_are_refused() -> None:
    for kind, size in (("cyclical", 1), ("cyclic", 0), ("cyclic", 6)):
        with pytest.raises(InvalidInput, match="kind, size"):
            batch_schedule(kind, np.full(5, 0.2), size, 3, np.random.default_rng(0))


def test_with_unequal_gaps_the_first_step_of_adam_goes_the_wrong_way() -> None:
    """The keys' differences are 3 and 1, the scores' 0.1 and 1: −∇L(0) = −1/18, although every p > 0 separates."""
    problem = Problem(np.array([[[3.0], [0.0], [2.0]]]), np.array([[1.0, 0.9, 0.0]]), loss_named("correlation"))
    case = Case(problem)
    slope = scaled_gradient(problem.keys, problem.scores, problem.loss, np.zeros((1, 1)))
    assert math.exp(slope.log_scale[0]) * slope.direction[0, 0] == pytest.approx(1 / 18)
    assert check(statement("gradient-proxy"), case, REFERENCE).verdict is Verdict.NOT_APPLICABLE
    for id in ("gradient-proxy", "adam-one-input"):
        claims = statement(id).conclusion(case, REFERENCE)
        assert Verdict.FALSIFIED in {claim.verdict for claim in claims}


def test_the_assumption_of_equal_moduli_is_decided_and_needed() -> None:
    assert equal_moduli(THREE).holds is True
    unequal = binary([[4.0, 1.0], [4.0, -1.0]])
    assert equal_moduli(unequal).holds is False
    assert equal_moduli(THREE.replace(classes=3)).holds is False
    verdicts = {claim.verdict for claim in unequal_moduli.conclusion(unequal, REFERENCE)}
    assert Verdict.FALSIFIED in verdicts
    restored = {claim.verdict for claim in unequal_moduli.conclusion(THREE, REFERENCE)}
    assert restored == {Verdict.UPHELD}


def test_explain_names_the_theorems_on_adam() -> None:
    [adam] = explain(DATA, rules=["adam-0.1"]).rules  # type: ignore[misc]
    assert "No theorem about attention gives its limit (ℓ∞ margin up to a gap" in adam.words
    assert [id for id, _ in adam.speaks] == ["adam-from-a-margin"]
    assert "adam-from-a-margin applies to these data (Adam without ε on attention, from a start" in adam.words
    assert "adam-one-input does not apply: equal-non-optimal-scores fails (" in adam.words
