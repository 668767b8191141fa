"""Parts of conclusions that hunts for counterexamples refute: limits of long steps, Assumption C, mixed features,
signed gradients. A support is an input whose constraint in the head's SVM is tight.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from jaxtyping import Float64

from generators.case import Case
from generators.datasets import figure_3b, figure_8
from generators.optimal_tokens import optimal_tokens
from reference_attention.losses import loss_named
from reference_attention.paths.joint_minimisers import Pair
from reference_attention.problem import Dataset, Problem
from tests.places import ROOT
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.counterexamples.record import load
from theorems.counterexamples.weakened_statements import weakened_named
from theorems.without.free_mixing import assumption_c_fails, assumption_c_over_supports_fails, tilt, tying
from theorems.without.joint_path_claims import follow_joint_path, joint_of, separator_of
from theorems.without.mixed_features import mixed_margins
from theorems.without.signed_flow import norm_of_flow, signed_gradient, traps

FOLDER = ROOT / "counterexamples"


def test_large_steps_are_followed_to_the_limit_and_a_wrong_limit_is_refuted() -> None:
    """On a case with one input, the limit of Theorem 2 is upheld even for a long step; on one with two inputs, Figure
    8, the same code refutes it.
    """
    weakened = weakened_named("theorem-2", "step-size")
    problem = Problem(np.array([[[0.0, 0.0], [-1.0, 0.0], [-1.0, -2.0]]]), np.array([[1.0, 0.0, 0.0]]))
    case = Case(problem, start=np.array([-3.0, 1.0]), arrays=MappingProxyType({"eta": np.array(2.0**16)}))
    assert weakened.fails(case).holds is False
    claims = list(weakened.conclusion(case, REFERENCE))
    assert [claim.verdict for claim in claims] == [Verdict.UPHELD] * 3
    two = figure_8()
    wrong = Case(two.problem, start=np.array([3.0, 0.0]), arrays=MappingProxyType({"eta": np.array(1.0)}))
    verdicts = {claim.name: claim.verdict for claim in weakened.conclusion(wrong, REFERENCE)}
    assert verdicts["selects-the-tokens"] is Verdict.FALSIFIED


@pytest.mark.parametrize("without", ["optimal-support-tokens", "separable"])
def test_lemma_12_is_decided_at_prompts_that_select(without: str) -> None:
    weakened = weakened_named("lemma-12", without)
    case = figure_3b()
    for p, verdict in (([3.0, 0.5], Verdict.UPHELD), ([0.0, 0.1], Verdict.INCONCLUSIVE)):
        given = case.replace(arrays=MappingProxyType({"prompt": np.array(p)}))
        assert [claim.verdict for claim in weakened.conclusion(given, REFERENCE)] == [verdict]


def test_separability_follows_from_selection_by_descent() -> None:
    """Where tokens cannot be separated, descent does not select them; so no case lacks only ``separable``."""
    weakened = weakened_named("conjecture-joint-descent", "separable")
    case = load(FOLDER / "theorem-5-without-separable.json").case
    assert weakened.statement.assumption("descent-selects").check(case).holds is False


def signed(*tokens_: list[list[float]]) -> Case:
    data = Dataset(np.array(tokens_), np.ones(len(tokens_)), np.array([1.0, 0.0]))
    return Case(data.problem, dataset=data, alpha=np.zeros(len(tokens_), dtype=np.int64))


def test_assumption_c_is_refuted_on_figure_3b_and_not_where_it_holds() -> None:
    assert assumption_c_fails(figure_3b()).holds is False
    assert assumption_c_over_supports_fails(figure_3b()).holds is True
    balanced = signed([[1.0, 1.0], [0.0, 0.0]], [[1.0, -0.5], [0.0, 0.0]])
    assert optimal_tokens(balanced).holds
    assert assumption_c_fails(balanced).holds


def test_the_prompts_that_refute_assumption_c_lose_little_margin() -> None:
    """At prompts R q + c p_mm with large R, the label margin loses only O(κ²) if the weight on other tokens, κ,
    concerns a support of dual 0.
    """
    from reference_attention.svm.label_svm import LabelSvm, label_svm

    case = load(FOLDER / "lemma-13-without-optimal-support-tokens.json").case
    joint = joint_of(case)
    assert joint is not None
    weak = int(np.argmin(joint.svm.duals))
    assert tilt(joint, weak) is not None
    assert tilt(joint, 1 - weak) is None
    q, separator = tying(joint.keys, joint.alpha, weak, 1), separator_of(joint)
    assert q is not None
    assert separator is not None
    lost = []
    for c in (2.0, 4.0):
        logs = joint.log_weights(400 * q + c * separator.p)
        svm = label_svm(np.sum(np.exp(logs)[..., None] * joint.tokens, axis=1))
        assert isinstance(svm, LabelSvm)
        lost.append((joint.svm.margin - svm.margin) / np.exp(joint.log_nonoptimality(logs)).max() ** 2)
    assert 0 < lost[0] < 2
    assert 0 < lost[1] < 2


def test_the_head_s_offset_for_a_support_of_dual_zero_is_stationary() -> None:
    """The head's part y across its ray solves e^{−y} = Γ y/r, with the label margin Γ, at log r = 40."""
    case = load(FOLDER / "lemma-13-without-optimal-support-tokens.json").case
    joint = joint_of(case)
    assert joint is not None
    pairs: list[Pair] = follow_joint_path(joint, lambda R: max(np.log(R), 0.5 * R), (80.0,), 1.0, 0)
    pair = pairs[0]
    y = float(np.abs(pair.w @ np.array([-joint.svm.direction[1], joint.svm.direction[0]])))
    assert y + np.log(y) == pytest.approx(pair.log_r, abs=1e-6)


def test_the_bounds_for_mixed_features_hold_at_every_prompt() -> None:
    """At no prompt is the label margin of v̄_mm above the first number; the second, which is larger, is the label margin
    of another head.
    """
    case = load(FOLDER / "theorem-6-without-separable.json").case
    joint = joint_of(case)
    assert joint is not None
    result = mixed_margins(joint, 0)
    assert result is not None
    prompts: Float64[np.ndarray, "m k"] = np.random.default_rng(0).normal(size=(200, joint.keys.shape[2])) * 5
    features = np.sum(np.exp(joint.log_weights(prompts))[..., None] * joint.tokens, axis=2)
    assert float((features @ joint.svm.direction).min(axis=1).max()) <= result.at_most
    assert result.reached > result.at_most


def test_a_saturated_softmax_is_no_stationary_point() -> None:
    """With the squared loss and best score 1, the gradient vanishes as the output tends to 1, which is no finite
    stationary point.
    """
    case = load(FOLDER / "theorem-2-without-well-behaved-loss.json").case
    mixed = norm_of_flow(case.problem, np.zeros(1))
    assert mixed.verdict is Verdict.FALSIFIED
    at_one = replace(case.problem, scores=np.array([[1.0, 0.0]]))
    assert norm_of_flow(at_one, np.zeros(1)).verdict is not Verdict.FALSIFIED
    assert not traps(at_one, np.array([36.7]))


def test_the_signed_gradient_agrees_with_the_loss() -> None:
    """Compare with central differences of (1/n) Σ (1 − u_i)²/2, also where the loss increases."""
    problem = Problem(
        np.array([[[0.0, 0.5], [1.0, -1.0]], [[1.0, 0.0], [0.0, 2.0]]]),
        np.array([[3.0, 0.0], [0.5, -1.0]]),
        loss_named("squared"),
    )

    def risk(p: Float64[np.ndarray, "2"]) -> float:
        weights = np.exp(problem.keys @ p)
        weights /= weights.sum(axis=1, keepdims=True)
        return float(np.mean((1 - (weights * problem.scores).sum(axis=1)) ** 2 / 2))

    p, step = np.array([0.3, -0.7]), 1e-5
    expected = [(risk(p + step * e) - risk(p - step * e)) / (2 * step) for e in np.eye(2)]
    result = signed_gradient(problem.keys, problem.scores, problem.loss, p)
    np.testing.assert_allclose(np.exp(result.log_scale) * result.direction, expected, rtol=1e-7)
