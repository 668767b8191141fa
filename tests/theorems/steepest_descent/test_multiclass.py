"""Steepest descent on classification data: upheld by the reference, falsified by planted faults, equal to sums by hand.

A row is (e_y − e_v) hᵀ for a sample h of class y and another class v; γ is the largest margin of unit W over the rows;
D is the largest dual norm of a row, D' of a difference of two rows; Y is the logarithm of e^u − 1, u the sum of losses.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import product

import numpy as np
import pytest

import reference_attention.svm.norm_max_margin
from generators.labelled_features import LabelledFeatures, separable_labels
from reference_attention.errors import InvalidInput
from reference_attention.next_token.label_descent import label_descent, label_gradient, label_loss
from reference_attention.norms import KINDS, Blocks, Schatten, conjugate, conjugate_power, length, name_of
from reference_attention.svm.norm_max_margin import norm_max_margin
from reference_attention.training.steepest_descent import steepest_direction
from tests.theorems.token_selection.path_cases import statement
from theorems.bounded import exact, value_of
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults import FAULTS
from theorems.run.verify import draw_cases
from theorems.steepest_descent.label_loss import FALLS_FURTHER, LabelGeometry, run_claims, softplus
from theorems.steepest_descent.norms import norm_of
from theorems.steepest_descent.steepest_run import SteepestRun, StepSchedule
from theorems.steepest_descent.without.steepest_multiclass import inseparable_labels, inseparable_with_momentum

PLAIN, MOMENTUM = "steepest-multiclass", "steepest-momentum"
RUNS = {
    "steepest-in-the-dual-norm": "iterate-is-a-steepest-step",
    "steepest-is-euclidean": "iterate-is-a-steepest-step",
    "orthogonal-factor-approximate": "iterate-is-a-steepest-step",
    "orthogonal-factor-bent": "iterate-is-a-steepest-step",
    "blocks-transposed": "iterate-is-a-steepest-step",
    "blocks-by-mean-square": "step-is-no-longer-than-asked-for",
    "steepest-step-too-long": "step-is-no-longer-than-asked-for",
    "label-weights-forgotten": "iterate-is-a-steepest-step",
    "label-softmax-of-the-others": "iterate-is-a-steepest-step",
    "norm-margin-of-another-basis": "norm-margin-is-largest",
    "norm-margin-in-another-norm": "norm-margin-is-largest",
    "norm-margin-with-euclidean-duals": "norm-margin-is-largest",
    "norm-margin-negative-duals": "norm-margin-is-largest",
    "norm-margin-off": "norm-margin-is-largest",
}


def data(features: list[list[float]], labels: list[int], classes: int, **more: object) -> LabelledFeatures:
    ones = np.ones(len(labels), dtype=np.int64)
    return LabelledFeatures(np.array(features), np.array(labels), ones, classes, **more)  # type: ignore[arg-type]


TWO = data([[1.0], [-2.0]], [0, 1], 2)
"""Data with the rows (1, −1) and (2, −2); γ is 2 in ‖·‖_∞, and √2 in ‖·‖_F and in the spectral norm."""


@cache
def cases_of(id: str) -> tuple[LabelledFeatures, ...]:
    return tuple(draw_cases(statement(id), 40, 0))


@pytest.mark.parametrize("id", [PLAIN, MOMENTUM])
def test_the_statements_on_steepest_descent_are_upheld_by_the_reference(id: str) -> None:
    assert {check(statement(id), case, REFERENCE).verdict for case in cases_of(id)[:6]} == {Verdict.UPHELD}


def falsifies(id: str, under_test: Implementation, expected: str) -> bool:
    for case in cases_of(id):
        claims = check(statement(id), case, under_test).claims
        if any(claim.name == expected and claim.verdict is Verdict.FALSIFIED for claim in claims):
            return True
    return False


@pytest.mark.parametrize("fault", RUNS)
def test_planted_faults_of_steepest_descent_are_caught_by_the_intended_claim(fault: str) -> None:
    assert falsifies(PLAIN, FAULTS[fault].implementation, RUNS[fault])


@pytest.mark.parametrize("fault", ["momentum-forgotten", "momentum-too-short", "label-softmax-of-the-others"])
def test_planted_faults_of_momentum_are_caught(fault: str) -> None:
    assert falsifies(MOMENTUM, FAULTS[fault].implementation, "iterate-is-a-steepest-step")


def test_a_wrong_gradient_is_caught_by_the_claim_on_the_gradient_itself() -> None:
    assert falsifies(PLAIN, FAULTS["label-softmax-of-the-others"].implementation, "gradient-is-short")


def test_gradient_and_loss_agree_with_the_textbook() -> None:
    case = cases_of(PLAIN)[12].normalise()
    W = np.random.default_rng(0).normal(size=(1, math.prod(case.shape)))
    logits = case.features @ W.reshape(case.shape).T
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    weights = case.counts / case.counts.sum()
    seen = np.eye(case.classes)[case.labels]
    due_loss = -(weights * np.log((probabilities * seen).sum(axis=1))).sum()
    assert label_loss(case.problem, W)[0] == pytest.approx(due_loss)
    result = label_gradient(case.problem, W)
    due = (weights[:, None] * (probabilities - seen)).T @ case.features
    np.testing.assert_allclose(math.exp(result.log_scale[0]) * result.direction[0], due.ravel(), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(
    ("norm", "margin"), [(math.inf, 2.0), (2.0, math.sqrt(2)), (1.0, 1.0), (Schatten(math.inf, (2, 1)), math.sqrt(2))]
)
def test_margin_and_excess_of_two_classes_are_those_found_by_hand(norm: float | Schatten, margin: float) -> None:
    solution = norm_max_margin(TWO.keys, TWO.labels, norm)
    assert solution is not None
    geometry = LabelGeometry(TWO, solution)
    assert float(value_of(geometry.margin)) == pytest.approx(margin, rel=1e-7)
    # At W = 0 both samples have loss log 2, so u = 2 log 2 and Y = log(e^u − 1) = log 3.
    assert float(value_of(geometry.log_excess(np.zeros(2)))) == pytest.approx(math.log(3))


def test_the_bound_fails_for_wrong_steps() -> None:
    """Steps of steepest descent in ‖·‖_1 violate the bound for ‖·‖_∞, and those in ‖·‖_∞ satisfy it."""
    solution = norm_max_margin(TWO.keys, TWO.labels, math.inf)
    assert solution is not None
    geometry, schedule = LabelGeometry(TWO, solution), StepSchedule(np.full(50, 0.05), 0.0)
    for norm, verdict in ((math.inf, Verdict.UPHELD), (1.0, Verdict.FALSIFIED)):
        p = label_descent(TWO.problem, np.zeros((1, 2)), lengths=schedule.lengths, norm=norm)
        run = SteepestRun(schedule, exact(p), np.zeros((50, 1)))
        gain = geometry.gain(exact(schedule.lengths), exact(np.zeros(50)))[:, None]
        assert next(iter(run_claims(geometry, run, gain))).verdict is verdict


def every_choice(rows: np.ndarray) -> np.ndarray:
    """Return the sum of rows for every nonempty set of samples and every choice of one row per sample; ``rows`` is
    (n, k − 1, d).
    """
    options = [[np.zeros(rows.shape[2]), *own] for own in rows]
    return np.array([np.sum(chosen, axis=0) for chosen in product(*options)][1:])


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
def test_equal_weights_make_a_log_sum_exp(norm: float) -> None:
    """With equal weights of samples, Y is a log-sum-exp over sums of rows. Enumerate these for Y, its gradient and its
    second derivatives (variances), which are at most the bound V(u), ``LabelGeometry.curvature``.
    """
    rng, q = np.random.default_rng(0), conjugate_power(norm)
    for _ in range(40):
        n, k, d = int(rng.integers(1, 4)), int(rng.integers(2, 4)), int(rng.integers(1, 4))
        case = data(rng.normal(size=(n, d)).tolist(), rng.integers(k, size=n).tolist(), k)
        W = rng.normal(size=(k, d)) * rng.choice([0.1, 1.0, 5.0])
        rows = np.array(
            [
                [np.outer(np.eye(k)[y] - np.eye(k)[v], h).ravel() for v in range(k) if v != y]
                for h, y in zip(case.features, case.labels, strict=True)
            ]
        )
        flat = rows.reshape(-1, k * d)
        loss = np.log1p(np.exp(-rows @ W.ravel()).sum(axis=1)).sum()
        sums = every_choice(rows)
        exponents = -sums @ W.ravel()
        Y = np.logaddexp.reduce(exponents)
        assert pytest.approx(math.log(math.expm1(loss)), rel=1e-9, abs=1e-9) == Y
        share = np.exp(exponents - Y)
        # The gradient of Y is a positive multiple of the gradient of L.
        slope = label_gradient(case.problem, W.reshape(1, -1)).direction[0]
        mean = share @ sums
        cosine = -(slope @ mean) / np.linalg.norm(slope) / np.linalg.norm(mean)
        assert cosine == pytest.approx(1, abs=1e-9)
        reach = np.linalg.norm(flat, ord=q, axis=1).max()
        apart = max(np.linalg.norm(g - h, ord=q) for g in flat for h in flat)
        for u in (loss, loss + 1.0):
            drawn = n * -math.expm1(-u / n)
            h = drawn / -math.expm1(-u)
            near = apart**2 / 4 + apart * reach * (h - 1) + reach**2 * (1 - 1 / n) * drawn * h
            bound = min(reach**2 * h, near)
            directions = rng.normal(size=(50, k * d))
            directions /= np.linalg.norm(directions, ord=norm, axis=1, keepdims=True)
            along = sums @ directions.T
            variance = share @ along**2 - (share @ along) ** 2
            assert variance.max() <= bound * (1 + 1e-9)
            geometry = fabricated(case, norm)
            assert float(value_of(geometry.curvature(exact(u)))) == pytest.approx(bound, rel=1e-9)


def fabricated(case: LabelledFeatures, norm: float | Schatten) -> LabelGeometry:
    """Return the geometry with the reference's solution; if classes cannot be separated, with that of :data:`TWO`."""
    solution = norm_max_margin(case.keys, case.labels, norm)
    if solution is None:
        solution = norm_max_margin(TWO.keys, TWO.labels, norm)
    assert solution is not None
    return LabelGeometry(case, solution)


OPPOSED = data([[1.0, 0.3], [1.0, -0.3]], [0, 0], 2)
"""Two samples that differ in only one coordinate, in which sign descent moves to and fro."""


def test_long_steps_gain_where_the_excess_is_small() -> None:
    """Where the excess is small, the bound with the curvature V proves that steps of length up to nearly 8γ/D'²
    decrease Y; the general bound proves nothing from the length 2γ/D² on.
    """
    solution = norm_max_margin(OPPOSED.keys, OPPOSED.labels, math.inf)
    assert solution is not None
    geometry = LabelGeometry(OPPOSED, solution)
    margin, reach, apart = (float(value_of(x)) for x in (geometry.margin, geometry.reach, geometry.diameter))
    W = 12 * solution.p / np.abs(solution.p).max()
    far = exact(W)[None]
    limit = float(value_of(geometry.curvature(geometry.loss(far) / geometry.least_weight))[0])
    assert limit == pytest.approx(apart**2 / 4, rel=0.01)
    step = exact(0.99 * 2 * margin / limit)
    assert float(value_of(step)) > 3 * 2 * margin / reach**2
    assert float(value_of(geometry.curved_gain(step, far))[0]) > 0 > float(value_of(geometry.gain(step, exact(0.0))))


@pytest.mark.parametrize("share", [0.25, 0.9])
def test_less_curvature_is_falsified(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """At a small excess, sign descent that moves to and fro nearly attains the bound with the curvature V, so that V
    cannot be a tenth smaller.
    """
    solution = norm_max_margin(OPPOSED.keys, OPPOSED.labels, math.inf)
    assert solution is not None
    geometry = LabelGeometry(OPPOSED, solution)
    # Start such that both samples have equal weights half-way along the step.
    start = (12 * solution.p / np.abs(solution.p).max()).reshape(2, 2)
    schedule = StepSchedule(np.full(1, 0.05), 0.0)
    start[:, 1] = [1e-6, -1e-6]
    points = label_descent(OPPOSED.problem, start.reshape(1, -1), lengths=schedule.lengths, norm=math.inf)
    run = SteepestRun(schedule, exact(points), np.zeros((1, 1)))

    def falls() -> float:
        gain = geometry.curved_gain(exact(schedule.lengths)[:, None], run.p[:-1])
        claim = next(iter(run_claims(geometry, run, gain, FALLS_FURTHER)))
        return claim.slack + claim.tolerance

    assert falls() >= 0
    right = LabelGeometry.curvature
    monkeypatch.setattr(LabelGeometry, "curvature", lambda self, u: right(self, u) * share)
    assert falls() < 0


def test_a_run_that_gains_less_is_falsified() -> None:
    """Steps have half the length for which the bound is computed."""
    case = data([[1.0, 0.0], [0.0, 1.0]], [0, 0], 2)
    solution = norm_max_margin(case.keys, case.labels, math.inf)
    assert solution is not None
    geometry = LabelGeometry(case, solution)
    start = 12 * solution.p[None] / np.abs(solution.p).max()
    lengths = np.full(20, 0.05)
    points = label_descent(case.problem, start, lengths=lengths / 2, norm=math.inf)
    run = SteepestRun(StepSchedule(lengths, 0.0), exact(points), np.zeros((20, 1)))
    gain = geometry.curved_gain(exact(lengths)[:, None], run.p[:-1])
    verdicts = {claim.name: claim.verdict for claim in run_claims(geometry, run, gain, FALLS_FURTHER)}
    assert verdicts["log-excess-falls-by-curvature"] is Verdict.FALSIFIED


def test_softplus_of_large_negative_numbers_keeps_its_digits() -> None:
    x = np.array([-800.0, -40.0, 0.0, 800.0])
    np.testing.assert_allclose(value_of(softplus(x)), [0.0, math.exp(-40), math.log(2), 800.0], rtol=1e-15)


def test_classes_that_cannot_be_separated_refute_the_statement_without_separability() -> None:
    both = data([[1.0], [1.0]], [0, 1], 2)
    assert separable_labels(both).holds is False
    assert separable_labels(TWO).holds is True
    for weakened in (inseparable_labels, inseparable_with_momentum):
        assert [claim.verdict for claim in weakened.conclusion(both, REFERENCE)] == [Verdict.FALSIFIED]
        assert [claim.verdict for claim in weakened.conclusion(TWO, REFERENCE)] == [Verdict.UPHELD]
    assert check(statement(PLAIN), both, REFERENCE).verdict is Verdict.NOT_APPLICABLE


def test_units_of_features_do_not_change_verdicts() -> None:
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


def test_drawn_classification_data_are_separable_and_shrink() -> None:
    assert all(separable_labels(case).holds for case in cases_of(PLAIN))
    several = next(case for case in cases_of(PLAIN) if len(case.labels) > 2)
    assert {len(case.labels) for case in several.simpler()} >= {len(several.labels) - 1}


def test_margins_of_rows_columns_and_blocks_by_hand() -> None:
    """W has two rows of one entry each, so the blocks of kind "first" (the first entry, and the rest) are the rows; the
    only column is all of W.
    """
    for kind, due in (("rows", 2.0), ("columns", math.sqrt(2)), ("first", 2.0)):
        solution = norm_max_margin(TWO.keys, TWO.labels, Blocks(math.inf, kind, TWO.shape))
        assert solution is not None
        assert solution.margin == pytest.approx(due, rel=1e-7)
        assert 0 <= solution.duality_gap < 1e-7


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_and_steepest_directions_in_norms_of_blocks_are_those_found_by_hand(kind: str) -> None:
    largest = Blocks(math.inf, kind, (2, 3))
    x = np.array([3.0, 4.0, 0.0, 0.0, -12.0, 5.0])
    matrix = x.reshape(2, 3)
    by_hand = {
        "rows": np.linalg.norm(matrix, axis=1),
        "columns": np.linalg.norm(matrix, axis=0),
        "first": np.array([3.0, math.sqrt(4**2 + 12**2 + 5**2)]),
    }[kind]
    total = conjugate(largest)
    for norm, due in ((largest, by_hand.max()), (total, by_hand.sum())):
        assert length(x, norm) == pytest.approx(due)
        enclosed = norm_of(exact(x), norm)
        assert abs(float(enclosed.value) - due) <= float(enclosed.error) + 1e-15 * due
        step = steepest_direction(x, norm)
        assert length(step, norm) == pytest.approx(1.0)
        assert step @ x == pytest.approx(length(x, conjugate(norm)))
        assert not steepest_direction(0 * x, norm).any()
    assert name_of(largest).startswith("largest of")


def test_norms_of_unknown_blocks_or_of_another_shape_are_refused() -> None:
    for power, kind in ((2.0, "rows"), (math.inf, "diagonals")):
        with pytest.raises(InvalidInput, match="norm"):
            Blocks(power, kind, (2, 1))
    for norm in (Blocks(1.0, "rows", (2, 1)), Blocks(math.inf, "rows", (3, 1))):
        with pytest.raises(
            InvalidInput, match=r"give the largest norm of a block \(power ∞\), for a shape of 2 entries"
        ):
            norm_max_margin(TWO.keys, TWO.labels, norm)


def test_margins_in_norms_of_blocks_are_found_where_floats_do_not_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The barrier method with many digits takes over; where floats fail depends on the processor."""
    monkeypatch.setattr(reference_attention.svm.norm_max_margin, "spectral_max_margin", lambda *of: None)
    case = data([[5.0286164121615684e-14], [-119.63892891420832], [-119.63892891420832]], [3, 0, 0], 4)
    solution = norm_max_margin(case.keys, case.labels, Blocks(math.inf, "columns", case.shape))
    assert solution is not None
    assert solution.duality_gap < 1e-12
