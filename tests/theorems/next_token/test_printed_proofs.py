"""Steps of the proofs printed in arXiv 2402.18551 that are false as displayed, on data that satisfy all their
hypotheses.

The theorems hold nevertheless: `ntp-path` and `ntp-descent` prove them in another way, and Lemma 5 holds with the
    length
R' = ‖W_⊥‖/‖W^mm‖. See FINDINGS.md. Notation: W^mm solves the SVM; the loss has a finite minimiser W⋆ in a subspace F;
W_F = P_F W and W_⊥ are the parts of W in F and orthogonal to F; CE is the cross-entropy.
"""

from __future__ import annotations

import numpy as np
import pytest
from jaxtyping import Float64

from reference_attention.exact import to_float
from reference_attention.next_token.compatibility import compatible
from reference_attention.next_token.extended_supports import extended_supports
from reference_attention.next_token.finite_minimum import finite_minimum
from reference_attention.next_token.master_problem import MasterProblem
from reference_attention.next_token.next_token_path import next_token_path
from reference_attention.next_token.next_token_svm import NextTokenSvm, next_token_svm
from reference_attention.next_token.split_loss import SplitLoss, next_token_loss
from reference_attention.next_token.subspace_split import Split

ONE = MasterProblem.of_tokens([[1.0]], [[1, 1, 0]])
"""Three tokens and one context h = 1, after which the tokens have the probabilities ½, ½ and 0."""
TWO = MasterProblem.of_tokens([[1.0, 0.0], [1.0, 1.0]], [[2, 1, 0, 0], [0, 0, 3, 0]])


def solved(problem: MasterProblem) -> tuple[NextTokenSvm, SplitLoss]:
    """Return the SVM's solution and the loss in two parts, after checking the hypotheses of the paper's theorems."""
    supports = extended_supports(problem)
    assert supports.error(problem) == ""
    assert supports.separable(problem)
    assert compatible(problem)
    assert (~problem.supports).any()
    svm = next_token_svm(problem, supports.sets)
    assert isinstance(svm, NextTokenSvm)
    return svm, SplitLoss(finite_minimum(Split.of(problem, supports.sets)))


def displayed(problem: MasterProblem, loss: SplitLoss, inside: np.ndarray, outside: np.ndarray) -> float:
    """Return the cross-entropy as equations (15) and (16) display it.

    For tokens v of probability 0 they have e^{−a} + e^{−b} instead of e^{−(a + b)}, where a and b are the parts of (e_z
    − e_v)ᵀWh from W_F and W_⊥.
    """
    total = 0.0
    shares = problem.counts / problem.counts.sum()
    for j, z in np.argwhere(problem.supports):
        terms = 0.0
        for v in range(problem.counts.shape[1]):
            row = problem.vectors[j, z] - problem.vectors[j, v]
            a, b = row @ inside, row @ outside
            terms += np.exp(-(a + b)) if problem.supports[j, v] else np.exp(-a) + np.exp(-b)
        total += shares[j, z] * np.log(terms)
    return float(total)


@pytest.mark.parametrize("problem", [ONE, TWO])
def test_the_displayed_cross_entropy_is_larger_than_the_true_one(problem: MasterProblem) -> None:
    """At W⋆ + R W^mm the true loss tends to its infimum; the displayed formula stays at least 0.1 above the
    true loss.
    """
    svm, loss = solved(problem)
    theta = loss.minimum.floats
    for R in (5.0, 10.0, 20.0):
        true = float(next_token_loss(problem, theta + R * svm.floats))
        assert displayed(problem, loss, theta, R * svm.floats) - true > 0.1
        assert true - float(loss.minimum.value.mid()) < 2 * np.exp(-R)


def test_the_displayed_cross_entropy_is_too_large_by_log_three_halves_for_one_context() -> None:
    svm, loss = solved(ONE)
    gap = displayed(ONE, loss, loss.minimum.floats, 40 * svm.floats) - np.log(2)
    assert gap == pytest.approx(np.log(1.5), abs=1e-12)


def test_a_divergence_is_not_at_most_one_of_its_terms() -> None:
    """Equations (10) and (30) use Σ p log(p/q) ≥ p_z log(p_z/q_z) for one z, but p = (½, ½), q = (.9, .1) give .51 <
    .80.

    With log 2 added to the left side the inequality holds, since the other terms sum to at least −log 2.
    """
    p, q = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    terms = p * np.log(p / q)
    assert terms.sum() == pytest.approx(0.511, abs=1e-3)
    assert terms.max() == pytest.approx(0.805, abs=1e-3)
    rng = np.random.default_rng(0)
    for _ in range(200):
        p, q = rng.dirichlet(np.ones(4) / 3, 2)
        terms = p * np.log(np.maximum(p, 1e-300) / np.maximum(q, 1e-300))
        assert terms.sum() + np.log(2) >= terms.max() - 1e-12


def enough(loss: SplitLoss, x: Float64[np.ndarray, "r"], long: float) -> float:
    """Return the least αR' for which Lemma 5 is proven: log(Σπw · max (1 + we^{−R'})/(πw)), with the weights π of the
    loss's terms and their factors w at W_F.
    """
    _, _, logs = loss.parts(x, np.zeros(loss.minimum.split.outside.shape[2]))
    w = np.exp(logs)
    there = w > 0
    pi = np.broadcast_to(loss.weights[:, None], w.shape)
    share = (1 + w[there] * np.exp(-long)) / (pi[there] * w[there])
    return float(np.log((pi * w).sum() * share.max()))


@pytest.mark.parametrize("problem", [ONE, TWO])
def test_lemma_5_holds_with_lengths_in_units_of_the_svm(problem: MasterProblem) -> None:
    """CE(W_F + (1 + α)R'W^mm) ≤ CE(W) with R' = ‖W_⊥‖/‖W^mm‖ at every W for which αR' is at least ``enough``."""
    svm, loss = solved(problem)
    split = loss.minimum.split
    along = split.coordinates_of(svm.floats)[split.dimension :]
    norm = to_float(svm.norm_squared) ** 0.5
    rng, tried = np.random.default_rng(0), 0
    for _ in range(300):
        x = rng.normal(size=split.dimension)
        y = rng.normal(size=len(along)) * rng.choice([0.1, 1.0]) + rng.uniform(0, 20) * along
        long, alpha = float(np.linalg.norm(y)) / norm, rng.uniform(0.05, 1)
        if alpha * long < enough(loss, x, long):
            continue
        tried += 1
        assert loss.excess(x, (1 + alpha) * long * along) <= loss.excess(x, y) * (1 + 1e-12)
    assert tried > 100


def test_the_part_of_the_path_in_f_is_near_its_limit_and_not_at_it() -> None:
    """Case (ii) of Theorem 1 assumes P_F(Ŵ_B) = W⋆ for the path Ŵ_B; in fact P_FŴ_B − W⋆ is of order e^{−ρ}, with ρ the
    length of Ŵ_B along W^mm.
    """
    problem = MasterProblem.of_tokens([[1.0, 0.0], [1.0, 1.0]], [[2, 1, 0, 0], [0, 1, 3, 0]])
    svm, loss = solved(problem)
    run = next_token_path(loss.minimum, svm, np.exp(-np.arange(5.0, 25.0, 5.0)))
    split = loss.minimum.split
    along = split.coordinates_of(svm.floats)[split.dimension :]
    rho = run.y[:, 0] @ along / (along @ along)
    away = np.linalg.norm(run.x[:, 0], axis=1)
    assert (away > 0).all()
    scaled = away * np.exp(rho)
    assert scaled.min() > 0.1
    assert scaled.max() < 5 * scaled.min()
