"""Predicates on tokens, labels and head: what they prove, what they refute, and what they leave undecided.

Notation: Γ is the largest label margin, v̄_mm the direction of the head that has it, x mixed features; ν is the
constant of Assumption C, by which the margin decreases with the weight of other tokens.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from flint import fmpq

from generators.assumptions import ASSUMPTIONS, Finding
from generators.case import Case
from generators.label_margin import label_margin
from reference_attention.problem import Dataset, Problem
from reference_attention.risk import softmax_weights
from reference_attention.svm.label_svm import label_svm
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin

ULP = 2.0**-52


def case(X: Any, Y: Any, v: Any, W: Any = None, alpha: Any = None, **arrays: Any) -> Case:
    given = (np.array(a, dtype=np.float64) for a in (X, Y, v))
    data = Dataset(*given, None if W is None else np.array(W, dtype=np.float64))
    named = {key: np.array(value, dtype=np.float64) for key, value in arrays.items()}
    return Case(data.problem, dataset=data, alpha=None if alpha is None else np.array(alpha), arrays=named)


def finding_of(id: str, *args: Any, **options: Any) -> Finding:
    return ASSUMPTIONS[id].check(case(*args, **options))


def test_predicates_on_datasets_establish_nothing_without_a_dataset() -> None:
    bare = Case(Problem(np.array([[[1.0], [0.0]]]), np.array([[1.0, 0.0]])))
    for id in ("positive-labels", "head-in-key-range", "optimal-tokens", "optimal-support-tokens"):
        finding = ASSUMPTIONS[id].check(bare)
        assert finding.holds is None
        assert "give tokens X" in finding.evidence


def test_positive_labels_are_recognised() -> None:
    X, v = [[[1], [0]], [[2], [0]]], [1]
    assert finding_of("positive-labels", X, [1, 1], v).holds
    assert finding_of("positive-labels", X, [1, -1], v) == Finding(False, "label 1 is -1")


def test_a_head_in_the_range_of_keys_is_decided_exactly() -> None:
    X = [[[1, 0], [0, 0]]]
    assert finding_of("head-in-key-range", X, [1], [3, 1]).holds
    assert finding_of("head-in-key-range", X, [1], [1, 1], [[1, 1], [2, 2]]).holds
    assert finding_of("head-in-key-range", X, [1], [0, 0], [[0, 0]]).holds
    off = finding_of("head-in-key-range", X, [1], [1, 1 + ULP], [[1, 1], [2, 2]])
    assert off.holds is False
    assert "W z = 0" in off.evidence
    assert off.exact == {"z": ["-1", "1"], "v·z": str(fmpq(1, 2**52))}
    # In floats 0.1 + 0.2 is not 0.3: the rows (0.1, 0.2) and (0.2, 0.4) are proportional, so are (0.1, 0.3) and (0.2,
    # 0.6), but (0.1, 0.7) and (0.3, 2.1) are not.
    assert finding_of("head-in-key-range", X, [1], [0.2, 0.4], [[0.1, 0.2]]).holds
    assert finding_of("head-in-key-range", X, [1], [0.3, 2.1], [[0.1, 0.7]]).holds is False


def paper_family(short: float, Y: Any = (1, -1)) -> Finding:
    X = [[[0, 2], [-1, short]], [[0, -2], [-1, -short]]]
    return finding_of("optimal-tokens", X, Y, [0, 1])


def test_assumption_c_is_proven_on_the_papers_family_of_data() -> None:
    proven = paper_family(1.0)
    assert proven.holds
    assert "ν" in proven.evidence
    # ‖(−1, 1.7)‖ < ‖u*‖ = 2 is within the family; (−1, 1.8) is longer, but any mixture still reduces the margin.
    assert paper_family(1.7).holds
    assert paper_family(1.8).holds
    # A mixture of (∓1, 2) and (0, 2) at one input has the same margin: both tokens have Y_i v̄_mm·x = Γ.
    assert paper_family(2.0).holds is not True


def test_assumption_c_holds_in_figure_3a_and_is_refuted_in_figure_3b() -> None:
    X = np.zeros((3, 2, 2))
    X[:, 0] = [(1, 1), (1, -1), (0.5, 1)]
    assert finding_of("optimal-tokens", X, [1, -1, 1], [0, 1]).holds
    # All duals can be positive at once, though one is zero at the vertex of the dual polytope that a solver returns.
    label = label_margin(np.array([(1.0, 1.0), (-1.0, 1.0), (0.5, 1.0)]))
    assert label is not None
    assert all(x > 0 for x in label.duals)
    X[2, 0] = (0.5, 1.5)
    refuted = finding_of("optimal-tokens", X, [1, -1, 1], [0, 1])
    assert refuted.holds is False
    assert "input 2" in refuted.evidence
    assert finding_of("optimal-support-tokens", X, [1, -1, 1], [0, 1]).holds
    # If its margin is one ulp larger, the third input is no longer a support.
    X[2, 0] = (0.5, 1 + ULP)
    assert finding_of("optimal-tokens", X, [1, -1, 1], [0, 1]).holds is False


def test_assumption_c_is_refuted_where_features_are_not_separable() -> None:
    opposed = finding_of("optimal-tokens", [[[1], [0]], [[1], [0]]], [1, -1], [1], alpha=[0, 0])
    assert opposed.holds is False
    assert "no" in opposed.evidence


def test_assumption_c_is_refuted_where_a_longer_token_has_the_larger_margin() -> None:
    longer = finding_of("optimal-tokens", [[[1, 0], [2, 1]]], [1], [1, 0], alpha=[0])
    assert longer.holds is False


def relaxed(head_radii: Any, prompt_radii: Any) -> Finding:
    X = np.zeros((3, 2, 2))
    X[:, 0] = [(1, 1), (1, -1), (0.5, 1.5)]
    radii = {"head_radii": head_radii, "prompt_radii": prompt_radii}
    return finding_of("radius-schedule", X, [1, -1, 1], [0, 1], **radii)


def test_the_assumption_on_radii_of_head_and_prompt_is_decided() -> None:
    assert relaxed([10, 1e3], [1, 10]).holds
    assert relaxed([1e3, 1e3], [1, 10]).holds is False
    assert relaxed([0.1, 10], [1, 10]).holds is False
    assert finding_of("radius-schedule", [[[1, 1], [0, 0]]], [1], [0, 1]).holds


@pytest.mark.parametrize("features", [[(1.0, 1.0), (-1.0, 1.0), (0.5, 1.0), (0.25, 1.0)], [(2.0, 0.0), (2.0, 0.0)]])
def test_label_margin_solves_the_svm_exactly(features: Any) -> None:
    label = label_margin(np.array(features))
    assert label is not None
    for k in range(2):
        total = sum(w * int(4 * f[k]) for w, f in zip(label.duals, features, strict=True)) / 4
        assert total == label.v[k]
    assert all(m >= 1 for m in label.margins)
    assert all(w > 0 for w, m in zip(label.duals, label.margins, strict=True) if m == 1)
    assert label_margin(np.array([(1.0, 0.0), (-1.0, 0.0)])) is None


REFUTED = {
    # In turn: an input that is no support and whose chosen token need not be selected (Figure 3(b)); a longer token of
    # the same label margin; a token with which the margin is larger; an input that is no support.
    "tied": ([[[1, 1], [0, 0]], [[1, -1], [0, 0]], [[0.5, 1.5], [0, 0]]], [1, -1, 1]),
    "longer": ([[[2, 1], [3, 2]], [[-2, -1], [1, 1]]], [1, -1]),
    "swapped": ([[[1, 3], [0.99, -3.2]], [[1, -3], [0.5, 0]]], [1, 1]),
    "spare": ([[[1, 0], [0, 0]], [[0, -1], [0, 0]], [[2, 2], [0, 0]]], [1, -1, 1]),
}


def nonoptimality_and_loss(example: Case, p: np.ndarray) -> tuple[float, float]:
    """Return the largest weight max_i (1 − s_iα) of other tokens, and Γ minus the label margin at p, in units of Γ."""
    assert example.dataset is not None
    signed = example.dataset.Y[:, None, None] * example.dataset.X
    weights = softmax_weights(example.problem.keys, p)
    best, here = label_svm(signed[:, 0]), label_svm(np.sum(weights[..., None] * signed, axis=1))
    assert not isinstance(best, Infeasible)
    margin = 0.0 if isinstance(here, Infeasible) else here.margin
    return 1 - float(weights[:, 0].min()), 1 - margin / best.margin


@pytest.mark.parametrize("name", sorted(REFUTED))
def test_the_reported_prompt_refutes_assumption_c(name: str) -> None:
    """At the prompt as printed, to six digits, the weight 1 − s_iα of other tokens is not small but the label margin is
    Γ, so that no ν > 1e-9 exists.
    """
    X, Y = REFUTED[name]
    finding = finding_of("optimal-tokens", X, Y, [1, 1], alpha=[0] * len(X))
    assert finding.holds is False
    named = re.search(r"at p = \(([^)]*)\)", finding.evidence)
    assert named is not None
    example = case(X, Y, [1, 1], alpha=[0] * len(X))
    q, loss = nonoptimality_and_loss(example, np.array([float(x) for x in named[1].split(",")]))
    assert q > 0.1
    assert loss < 1e-10
    # A prompt that selects the chosen tokens refutes nothing, as the numbers at it show.
    selecting = max_margin(example.problem.keys, example.chosen_tokens)
    assert isinstance(selecting, MaxMargin)
    assert nonoptimality_and_loss(example, 40 * selecting.p)[0] < 1e-9
