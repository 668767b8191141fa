"""Next-token training compared with closed forms: orthogonal contexts, small problems, the definition of attention.

Notation: h and h_j are embeddings of contexts, π the share of samples with context j, V the number of tokens, S the
number of tokens that follow a context, and p_z the probability that token z does; L_⋆ is the infimum of the loss.
"""

from __future__ import annotations

import numpy as np
import pytest
from flint import fmpq

from reference_attention.next_token.attention_samples import attention_problem, component_sets
from reference_attention.next_token.compatibility import compatible
from reference_attention.next_token.extended_supports import extended_supports
from reference_attention.next_token.finite_minimum import FiniteMinimum, finite_minimum
from reference_attention.next_token.master_problem import MasterProblem
from reference_attention.next_token.next_token_descent import next_token_descent, smoothness
from reference_attention.next_token.next_token_path import next_token_path
from reference_attention.next_token.next_token_svm import NextTokenSvm, next_token_svm
from reference_attention.next_token.split_loss import SplitLoss, next_token_loss
from reference_attention.next_token.subspace_split import Split
from reference_attention.svm.max_margin import Infeasible

ORTHOGONAL = MasterProblem.of_tokens(np.diag([1.0, 2.0, 0.5]), [[3, 1, 0, 0], [0, 2, 5, 1], [4, 0, 0, 0]])
TWICE = MasterProblem.of_tokens([[1.0], [1.0]], [[1, 0, 0], [0, 3, 0]])
"""Not separable: two equal embeddings; a quarter of the samples has the first token next, the others the second."""
AGAINST = MasterProblem.of_tokens([[1.0], [2.0]], [[2, 1, 0], [2, 1, 0]])
"""Not compatible: the log-odds of the two tokens are log 2 at h = 1 and also at h = 2, so no linear map gives both."""


def trained(problem: MasterProblem) -> tuple[FiniteMinimum, NextTokenSvm]:
    sets = extended_supports(problem).sets
    svm = next_token_svm(problem, sets)
    assert isinstance(svm, NextTokenSvm)
    return finite_minimum(Split.of(problem, sets)), svm


def test_orthogonal_contexts_have_the_svm_in_closed_form() -> None:
    """The solution W^mm of the SVM has ‖W^mm‖² = Σ S(V − S)/(V‖h‖²), tight constraints and duals λ_jv = S/(V‖h‖²)."""
    _, svm = trained(ORTHOGONAL)
    sizes, squares = [2, 3, 1], [fmpq(1), fmpq(4), fmpq(1, 4)]
    assert svm.norm_squared == sum((fmpq(s * (4 - s), 4) / h for s, h in zip(sizes, squares, strict=True)), fmpq(0))
    masked = {pair: x for pair, x in svm.margins(ORTHOGONAL).items() if not svm.sets[pair]}
    assert set(masked.values()) == {fmpq(1)}
    assert all(svm.duals[j, v] == fmpq(sizes[j], 4) / squares[j] for j, v in masked)
    assert svm.error(ORTHOGONAL) == ""


def test_finite_part_of_orthogonal_contexts_is_the_log_odds_and_slow_where_tokens_are_rare() -> None:
    """After k steps of size η the part P_F W_k of the weights in F, the span of differences of tokens that follow one
    context, misses its limit W⋆: along h̄_j = h_j/‖h_j‖, ηk(P_F W_k − W⋆)_zj → −(S(V−S)/(Vπ‖h‖³))(x_z − mean x), where
    x_z = 1/(S p_z).
    """
    minimum, _ = trained(ORTHOGONAL)
    W = minimum.floats.reshape(4, 3)
    assert (W[0] - W[1])[0] == pytest.approx(np.log(3))
    assert (W[2] - W[3])[1] == pytest.approx(np.log(5) / 2)
    split = minimum.split
    step = 1 / smoothness(ORTHOGONAL)
    zero = np.zeros((1, ORTHOGONAL.dimension - split.dimension))
    start = split.coordinates_of(-minimum.floats)[None, : split.dimension]
    steps = 20_000
    run = next_token_descent(minimum, start, zero, step=step, steps=steps)
    result = step * steps * (run.x[-1, 0] @ split.basis.T[: split.dimension]).reshape(4, 3)
    for j, (size, h) in enumerate(((2, 1.0), (3, 2.0))):
        counts = ORTHOGONAL.counts[j]
        there = counts > 0
        x = counts.sum() / (size * counts[there])
        scale = size * (4 - size) / (4 * float(counts.sum() / ORTHOGONAL.counts.sum()) * h**3)
        assert result[there, j] == pytest.approx(-scale * (x - x.mean()), rel=2e-2)


def test_without_separability_extended_supports_join_the_tokens_of_equal_embeddings() -> None:
    minimum, svm = trained(TWICE)
    assert float(minimum.value.mid()) == pytest.approx(0.5623, abs=1e-4)
    assert svm.point == [fmpq(1, 3), fmpq(1, 3), fmpq(-2, 3)]
    assert minimum.floats == pytest.approx([-np.log(3) / 2, np.log(3) / 2, 0])
    assert isinstance(next_token_svm(TWICE, TWICE.supports), Infeasible)


def test_without_compatibility_the_infimum_is_above_the_entropy() -> None:
    minimum, _ = trained(AGAINST)
    entropy = -(2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3))
    assert not compatible(AGAINST)
    assert float(minimum.value.mid()) - entropy == pytest.approx(0.0054, abs=1e-4)


@pytest.mark.parametrize("seed", range(40))
def test_the_infimum_is_the_entropy_exactly_if_compatible_and_separable(seed: int) -> None:
    """Compare exact decisions on compatibility and separability with the minimum of a convex function, enclosed in
    balls.
    """
    rng = np.random.default_rng(seed)
    m, V, d = (int(rng.integers(low, high)) for low, high in ((1, 5), (2, 5), (1, 4)))
    counts = rng.integers(0, 2, size=(m, V)) * 2 ** rng.integers(0, 3, size=(m, V))
    counts[np.arange(m), rng.integers(0, V, m)] += 1
    problem = MasterProblem.of_tokens(rng.integers(-2, 3, size=(m, d)), counts)
    minimum, _ = trained(problem)
    p = counts / counts.sum(axis=1, keepdims=True)
    entropy = -(counts / counts.sum() * np.log(np.where(counts, p, 1.0))).sum()
    attained = abs(float(minimum.value.mid()) - entropy) < 1e-12
    assert attained == (compatible(problem) and extended_supports(problem).separable(problem))


@pytest.mark.parametrize("problem", [ORTHOGONAL, TWICE, AGAINST])
def test_loss_in_two_parts_is_the_loss_and_its_gradient_the_difference_quotient(problem: MasterProblem) -> None:
    minimum, _ = trained(problem)
    split, loss = minimum.split, SplitLoss(minimum)
    rng, r = np.random.default_rng(0), split.dimension
    x, y = rng.normal(size=r), rng.normal(size=problem.dimension - r)
    here = np.concatenate([x, y])
    slope = np.concatenate(loss.gradient(x, y))
    for k, along in enumerate(np.eye(problem.dimension)):
        ends = [here + s * 1e-5 * along for s in (1, -1)]
        values = [next_token_loss(problem, minimum.floats + split.basis @ end) for end in ends]
        assert (values[0] - values[1]) / 2e-5 == pytest.approx(slope[k], abs=1e-9)
    whole = next_token_loss(problem, minimum.floats + split.basis @ here)
    assert whole == pytest.approx(float(minimum.value.mid()) + loss.excess(x, y), rel=1e-13)


@pytest.mark.parametrize("problem", [ORTHOGONAL, TWICE, AGAINST])
def test_points_of_the_path_of_next_token_training_are_stationary(problem: MasterProblem) -> None:
    minimum, svm = trained(problem)
    multipliers = np.exp(-np.arange(1.0, 40.0, 3.0))
    run = next_token_path(minimum, svm, multipliers)
    along, away = SplitLoss(minimum).gradient(run.x[:, 0], run.y[:, 0])
    origin = minimum.split.coordinates_of(minimum.floats)[: minimum.split.dimension]
    assert along == pytest.approx(-multipliers[:, None] * (origin + run.x[:, 0]), rel=1e-9, abs=1e-30)
    assert away == pytest.approx(-multipliers[:, None] * run.y[:, 0], rel=1e-9, abs=1e-30)


def test_attention_of_orthonormal_tokens_decouples_and_components_are_supports() -> None:
    samples, labels = np.array([[0, 1, 2], [1, 0, 2], [0, 3, 2], [3, 3, -1]]), np.array([0, 1, 0, 3])
    problem = attention_problem(np.eye(4), samples, labels)
    sets = extended_supports(problem).sets
    assert np.array_equal(sets, component_sets(samples, labels))
    assert sets.tolist() == [[True, True, False], [True, True, False], [True, False, False], [True, False, False]]
    assert problem.multiplicities[3].tolist() == [2, 0, 0]


def test_dependent_embeddings_tie_tokens_that_the_graph_distinguishes() -> None:
    """For embeddings with e_2 = (e_0 + e_1)/2, and samples {0, 2} → 0 and {1, 2} → 1 (tokens → label), the graph of
    tokens is acyclic, but the graph-SVM is infeasible and L_⋆ = log 2.
    """
    e = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    samples, labels = np.array([[0, 2], [1, 2]]), np.array([0, 1])
    problem = attention_problem(e, samples, labels)
    minimum, svm = trained(problem)
    assert extended_supports(problem).sets.all()
    assert component_sets(samples, labels).sum() == 2
    assert float(minimum.value.mid()) == pytest.approx(np.log(2))
    assert svm.norm_squared == 0
