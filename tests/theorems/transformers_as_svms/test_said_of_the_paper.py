"""The findings of FINDINGS.md on *Transformers as Support Vector Machines*, derived again without code of the suite."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from generators.case import Case
from generators.query_assumptions import independent_rows, independent_tokens_and_queries, label_separating_queries
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin

mp.mp.dps = 60


def risk(X, Z, Y, v, W) -> mp.mpf:  # type: ignore[no-untyped-def]
    """Return L(W) of the logistic loss, from its definition, in 60 digits."""
    total = mp.mpf(0)
    for x, z, y in zip(X, Z, Y, strict=True):
        logits = [mp.fdot(row, [mp.fdot(w, z) for w in W]) for row in x]
        top = max(logits)
        weights = [mp.exp(a - top) for a in logits]
        out = [mp.fdot(weights, column) / mp.fsum(weights) for column in zip(*x, strict=True)]
        total += mp.log1p(mp.exp(-y * mp.fdot(v, out)))
    return total / len(X)


def spread(X, Z, Y, v, W) -> list[tuple[mp.mpf, mp.mpf]]:  # type: ignore[no-untyped-def]
    """Return |ℓ'| and the variance of the scores under the softmax weights, for each input."""
    results = []
    for x, z, y in zip(X, Z, Y, strict=True):
        weights = [mp.exp(mp.fdot(row, [mp.fdot(w, z) for w in W])) for row in x]
        weights = [w / mp.fsum(weights) for w in weights]
        scores = [y * mp.fdot(v, row) for row in x]
        mean = mp.fdot(weights, scores)
        results.append((1 / (1 + mp.exp(mean)), mp.fdot(weights, [(s - mean) ** 2 for s in scores])))
    return results


@pytest.mark.parametrize("seed", range(4))
def test_the_gradient_along_the_head_is_a_sum_of_variances(seed: int) -> None:
    """Check vᵀ∇L(W) q = −(1/n) Σ |ℓ'_i| Var_i Y_i z_i·q, Var_i the variance of the scores, by central differences."""
    rng = np.random.default_rng(seed)
    n, T, d = 3, 5, 2
    X, Z, W = rng.normal(size=(n, T, d)), rng.normal(size=(n, d)), 2 * rng.normal(size=(d, d))
    Y, v, q = rng.choice([-1, 1], n), rng.normal(size=d), rng.normal(size=d)
    data = [[[mp.mpf(float(a)) for a in row] for row in x] for x in X]
    queries, labels = [[mp.mpf(float(a)) for a in z] for z in Z], [mp.mpf(int(y)) for y in Y]
    head, h = [mp.mpf(float(a)) for a in v], mp.mpf(10) ** -15

    def moved(size: mp.mpf) -> list[list[mp.mpf]]:
        return [[mp.mpf(float(W[a, b])) + size * head[a] * mp.mpf(float(q[b])) for b in range(d)] for a in range(d)]

    slope = (risk(data, queries, labels, head, moved(h)) - risk(data, queries, labels, head, moved(-h))) / (2 * h)
    asked = [mp.fdot(z, [mp.mpf(float(b)) for b in q]) for z in queries]
    parts = spread(data, queries, labels, head, moved(mp.mpf(0)))
    expected = -mp.fsum(s * var * y * a for (s, var), y, a in zip(parts, labels, asked, strict=True)) / n
    assert abs(slope - expected) < mp.mpf(10) ** -25 * (1 + abs(expected))
    assert abs(expected) > mp.mpf(10) ** -12


def case(X: object, queries: object, Y: object, v: object) -> Case:
    data = QueryDataset(np.asarray(X), np.asarray(queries), np.asarray(Y), np.asarray(v))
    return Case(data.problem, queried=data)


def test_queries_that_separate_labels_leave_no_stationary_point_where_rows_are_dependent() -> None:
    """For n = 1, T = 4 > d + 1 and unequal scores, neither the paper's condition on dimensions nor Assumption B holds,
    but ∇L vanishes nowhere.
    """
    X, queries, Y, v = [[[3, 1], [2, 0], [1, 1], [0, 2]]], [[1, 2]], [1], [1, 0]
    given = case(X, queries, Y, v)
    assert label_separating_queries(given).holds is True
    assert independent_rows(given).holds is False
    assert len(set(given.problem.scores[0])) == 4
    rng = np.random.default_rng(0)
    for size in (0.0, 1.0, 10.0):
        W = [[mp.mpf(float(x)) for x in row] for row in size * rng.normal(size=(2, 2))]
        ((slope, var),) = spread(X, queries, Y, v, W)
        assert slope * var > 0, "−vᵀ∇L z/‖z‖² is that, so ∇L is not zero"


def test_a_single_input_is_separable_whatever_the_number_of_tokens() -> None:
    """For n = 1, T = 4, d = 2 the paper's condition d ≥ max(T−1, n) fails, yet W = v zᵀ separates the best token,
    though not every other token.
    """
    given = case([[[3, 1], [2, 0], [1, 1], [0, 2]]], [[1, 2]], [1], [1, 0])
    assert independent_tokens_and_queries(given).holds is False
    v, z = np.array([1.0, 0.0]), np.array([1.0, 2.0])
    margins = given.queried.X[0] @ v * (z @ z)  # type: ignore[union-attr]
    assert (margins[0] - margins[1:] > 0).all()
    assert isinstance(max_margin(given.problem.exact_keys, np.array([0])), MaxMargin)
    enclosed = case([[[0, 0], [1, 0], [-1, 0]]], [[1, 0]], [1], [1, 0])
    assert isinstance(max_margin(enclosed.problem.exact_keys, np.array([0])), Infeasible)


def test_rows_of_a_sequence_may_be_dependent_where_there_are_fewer_than_dimensions() -> None:
    """In self-attention with n = 2, T = 4 and d = 5, the 24 differences of keys in 25 dimensions have rank at
    most 21.
    """
    rng = np.random.default_rng(0)
    for _ in range(5):
        X = rng.normal(size=(2, 4, 5))
        rows = [np.outer(x[t] - x[0], x[k]).ravel() for x in X for k in range(4) for t in range(1, 4)]
        values = np.linalg.svd(np.array(rows), compute_uv=False)
        assert len(rows) == 24
        assert values[20] > 1e-3
        assert values[21] < 1e-12


PROMPT_TOKENS = np.array([[[-3.0, -1], [-1, 2], [0, 1]], [[2, 1], [-2, -3], [0, 2]]])
"""Tokens in the setting of the first paper, where keys are the tokens and one prompt serves all inputs."""


def prompt_risk(Y, p):  # type: ignore[no-untyped-def]
    """Return L(p) of the logistic loss with the head v = e1, in 60 digits."""
    total = mp.mpf(0)
    for x, y in zip(PROMPT_TOKENS.tolist(), Y, strict=True):
        weights = [mp.exp(mp.fdot([mp.mpf(a) for a in row], p)) for row in x]
        out = mp.fsum(w * mp.mpf(row[0]) for w, row in zip(weights, x, strict=True)) / mp.fsum(weights)
        total += mp.log1p(mp.exp(-y * out))
    return total / len(Y)


def slopes_at(Y, p) -> list[mp.mpf]:  # type: ignore[no-untyped-def]
    return [mp.diff(lambda a, b: prompt_risk(Y, (a, b)), tuple(p), order) for order in ((1, 0), (0, 1))]


def test_labels_of_both_signs_leave_a_minimum_with_scores_of_the_tokens() -> None:
    """Scores are Y vᵀx, the optimal tokens are unique and separable, yet ∇L = 0 and ∇²L is positive definite at a
    finite p.
    """
    Y = (1, -1)
    scores = np.array(Y)[:, None] * PROMPT_TOKENS[:, :, 0]
    best = scores.argmax(axis=1)
    assert [sorted(row)[-1] > sorted(row)[-2] for row in scores.tolist()] == [True, True]
    assert isinstance(max_margin(PROMPT_TOKENS, best), MaxMargin)
    p = mp.findroot(lambda a, b: slopes_at(Y, (a, b)), (mp.mpf("-0.835"), mp.mpf("2.655")))
    assert [round(float(x), 3) for x in p] == [-0.835, 2.655]
    assert max(abs(x) for x in slopes_at(Y, p)) < mp.mpf(10) ** -20
    a, b, c = (mp.diff(lambda a, b: prompt_risk(Y, (a, b)), tuple(p), order) for order in ((2, 0), (1, 1), (0, 2)))
    least, largest = mp.eigsy(mp.matrix([[a, b], [b, c]]), eigvals_only=True)
    assert (round(float(least), 4), round(float(largest), 4)) == (0.0067, 0.0229)


def test_labels_of_one_sign_leave_no_stationary_point_of_a_prompt() -> None:
    """For labels (1, 1) and v = e1, −∂L/∂p_1 is a sum of variances, and positive at every prompt of a grid."""
    for a in (-4.0, -0.835, 0.0, 3.0):
        for b in (-3.0, 0.0, 2.655):
            along, _ = slopes_at((1, 1), (mp.mpf(a), mp.mpf(b)))
            parts = spread(PROMPT_TOKENS.tolist(), [[1], [1]], (1, 1), (1, 0), [[a], [b]])
            expected = -mp.fsum(slope * var for slope, var in parts) / 2
            assert abs(along - expected) < mp.mpf(10) ** -15
            assert expected < 0


def test_rows_are_independent_beyond_the_dimensions_of_the_paper() -> None:
    """For d = 2, n = 4 and T = 2, n(T − 1) = d² and some W separates every choice of tokens, though the paper's
    condition d ≥ max(T − 1, n) fails.
    """
    rng = np.random.default_rng(1)
    X, Z = rng.normal(size=(4, 2, 2)), rng.normal(size=(4, 2))
    rows = np.array([np.outer(x[0] - x[1], z).ravel() for x, z in zip(X, Z, strict=True)])
    assert np.linalg.svd(rows, compute_uv=False)[-1] > 1e-2
    W = np.linalg.solve(rows, np.ones(4))
    assert rows @ W == pytest.approx(np.ones(4))


def test_the_rank_is_at_most_the_number_of_inputs_with_a_dual() -> None:
    """The constraint of the first of two inputs implies that of the second, whose dual is 0, so W^mm has rank one."""
    given = case([[[1, 0], [0, 0]], [[9, 1], [0, 0]]], [[1, 0], [1, 1]], [1, 1], [1, 0])
    svm = max_margin(given.problem.exact_keys, given.problem.optimal)
    assert isinstance(svm, MaxMargin)
    assert (svm.duals.sum(axis=1) > 0).sum() == 1
    assert np.linalg.matrix_rank(svm.p.reshape(2, 2)) == 1


def gradient_and_margin(keys, scores, p, slope=lambda u: 1.0):  # type: ignore[no-untyped-def]
    """Return ∇L and the least margin of the optimal tokens, by their definitions, for the loss with ℓ' = −slope."""
    total, margins = np.zeros(keys.shape[2]), []
    for k, s in zip(keys, scores, strict=True):
        weights = np.exp(k @ p - np.max(k @ p))
        weights /= weights.sum()
        out = weights @ s
        total -= slope(out) * ((weights * (s - out)) @ k)
        margins.extend((k[np.argmax(s)] - np.delete(k, np.argmax(s), axis=0)) @ p)
    return total / len(keys), min(margins)


def test_descent_keeps_its_margin_without_a_cone_where_inputs_and_scores_differ() -> None:
    """For n = 2, unequal scores and the logistic loss, descent from a margin of κ + log(2(T − 1)A), with the constants
    κ and A of the statement on descent from a margin, never loses more than κ.

    Theorem 2 of the first paper assumes n = 1 and equal non-optimal scores.
    """
    keys = np.array([[[1, 0.2], [0, 0.1], [-0.3, 1]], [[0.7, 0.9], [0, 0], [0.1, 0.3]]])
    scores = np.array([[1, 0.5, 0.25], [2, 0, 1]])
    rows = np.array([keys[i, 0] - keys[i, t] for i in (0, 1) for t in (1, 2)])
    svm = max_margin(keys, np.array([0, 0]))
    assert isinstance(svm, MaxMargin)

    def slope(u: float) -> float:
        return float(1 / (1 + np.exp(u)))

    kappa = np.log(2 * 2 * 2 * slope(0.0) * 2 / (slope(2.0) * 0.5))
    p = (kappa + np.log(4 * (rows @ svm.p).max())) * svm.p
    first = gradient_and_margin(keys, scores, p, slope)[1]
    least = first
    for _ in range(2000):
        gradient, margin = gradient_and_margin(keys, scores, p, slope)
        least, p = min(least, margin), p - gradient / 2
    assert first - kappa < least <= first


def test_a_long_normalized_step_loses_the_margin() -> None:
    """For differences of keys (1, ±10) and the correlation loss, one normalized step of length 5 over the largest of
    their norms, from margin 2.58, ends at margin −1.15 or less.
    """
    keys, scores = np.array([[[0.0, 0], [-1, -10], [-1, 10]]]), np.array([[1.0, 0, 0]])
    worst, longest = np.inf, np.sqrt(101.0)
    for beside in np.linspace(-0.5, 0.5, 201):
        p = np.array([2.58 + 10 * abs(beside), beside])
        gradient, margin = gradient_and_margin(keys, scores, p)
        assert margin == pytest.approx(2.58)
        after = p - 5 / longest * gradient / np.linalg.norm(gradient)
        worst = min(worst, gradient_and_margin(keys, scores, after)[1])
    assert worst < -1.1


def test_an_average_of_margins_exceeds_the_least_by_lamberts_function() -> None:
    """For N margins h with coefficients c within a ratio r, the average Σ c h e^{−h}/Σ c e^{−h} exceeds min h by at
    most W((N − 1)r/e) < log N r, with Lambert's function W.
    """
    rng = np.random.default_rng(0)
    for N in (1, 2, 3, 10, 100):
        for r in (1.0, 2.0, 50.0):
            top = float(mp.lambertw(mp.mpf(N - 1) * r / mp.e).real)
            assert top <= np.log(N * r)
            h = np.concatenate([np.zeros((2000, 1)), rng.exponential(1 + top, size=(2000, N - 1))], axis=1)
            c = np.exp(np.log(r) * rng.random((2000, N)))
            weights = c * np.exp(-h)
            assert ((weights * h).sum(axis=1) / weights.sum(axis=1)).max() <= top + 1e-12
            h[:, 1:], c[:, 1:], c[:, 0] = 1 + top, r, 1.0
            weights = c * np.exp(-h)
            assert ((weights * h).sum(axis=1) / weights.sum(axis=1))[0] == pytest.approx(top, abs=1e-9)


FOUR = (4, 3, 2, 1)
"""The scores γ of four orthonormal tokens, with penalty λ = 1; the input's query is 1, so that W is the vector of
logits.
"""


def mixture_slope(w: list[mp.mpf]) -> list[mp.mpf]:
    """Return the gradient of L(w) = −γᵀs + ‖s‖² with s = softmax(w), by its definition."""
    odds = [mp.exp(a - max(w)) for a in w]
    s = [a / mp.fsum(odds) for a in odds]
    g = [2 * a - gamma for a, gamma in zip(s, FOUR, strict=True)]
    mean = mp.fdot(s, g)
    return [a * (b - mean) for a, b in zip(s, g, strict=True)]


def test_w_fin_is_not_all_that_stays_finite_where_attention_mixes() -> None:
    """The minimiser of norm R, without its component along W^mm, tends to (log 3)/2 (1, −1, 1, −1), but the paper's
    W_fin is
    (log 3)/2 (1, −1, 0, 0).

    The hypotheses are checked first: s⋆ = (3, 1, 0, 0)/4 is the best attention, the duals ν = (0, 0, 1, 3)/2 are
        positive
    on the tokens of weight 0, and W^mm = (1, 1, −1, −1)/2 solves Gen-SVM. Stationary points of norm R are found with
    300
    digits, from W_fin + R W^mm. The next test asks the same of gradient descent, since the paper speaks of training.
    """
    best, level = (mp.mpf(3) / 4, mp.mpf(1) / 4, 0, 0), mp.mpf(5) / 2
    nu = [level - gamma + 2 * s for gamma, s in zip(FOUR, best, strict=True)]
    assert nu == [0, 0, mp.mpf(1) / 2, mp.mpf(3) / 2]
    mm = (0.5, 0.5, -0.5, -0.5)
    rows = np.array([[1, -1, 0, 0], [1, 0, -1, 0], [1, 0, 0, -1]])
    assert (rows @ mm).tolist() == [0, 1, 1]
    assert (np.array([-0.5, 0.5, 0.5]) @ rows).tolist() == list(mm)
    finite = [mp.log(3) / 2, -mp.log(3) / 2, mp.mpf(0), mp.mpf(0)]
    errors = []
    with mp.workdps(300):
        for R in (40, 80, 160):
            start = [a + R * mp.mpf(b) for a, b in zip(finite, mm, strict=True)]

            def conditions(a, b, c, d, log_eta, R=R):  # type: ignore[no-untyped-def]
                w = [a, b, c, d]
                slopes = [x * mp.exp(R) + mp.exp(log_eta) * y for x, y in zip(mixture_slope(w), w, strict=True)]
                return [*slopes, mp.fdot(w, w) - mp.mpf(R) ** 2]

            result = list(mp.findroot(conditions, (*start, -mp.log(2 * R)), maxsteps=400))[:4]
            # Entries 0 and 1 differ by log 3, as those of W_fin do, and the direction is that of W^mm.
            assert abs(result[0] - result[1] - mp.log(3)) < mp.exp(-R / 2)
            assert mp.fdot(result, mm) / R > 1 - mp.mpf(2) / R**2
            # Entries 2 and 3 differ by log 3 in the limit, too, while those of W_fin are both 0.
            errors.append(result[2] - result[3] - mp.log(3))
    # The error decreases like 2 log 3/R.
    assert all(abs(error) < mp.mpf(2.3) / R for error, R in zip(errors, (40, 80, 160), strict=True))
    assert abs(errors[2]) < abs(errors[1]) / 1.8


def test_gradient_descent_has_the_same_finite_part() -> None:
    """Normalized descent in floats from 0 to norm 10 has w_0 − w_1 ≈ log 3, as W_fin has, but also w_2 − w_3 ≈
    log 3.
    """
    w, gamma = np.zeros(4), np.array(FOUR, dtype=float)
    for _ in range(5000):
        s = np.exp(w - w.max())
        s /= s.sum()
        g = s * (2 * s - gamma - s @ (2 * s - gamma))
        w = w - 0.005 * g / np.linalg.norm(g)
    assert np.linalg.norm(w) > 9
    assert abs(w[0] - w[1] - np.log(3)) < 0.02
    assert abs(w[2] - w[3] - np.log(3)) < 0.05


@pytest.mark.parametrize("b", ["-1", "-0.25", "0", "0.5", "1"])
def test_several_matrices_have_the_least_nuclear_norm(b: str) -> None:
    """W = ((1, b), (b, 1)) separates both inputs with singular values 1 ± b, whose sum 2 is least, as ‖W‖_⋆ ≥
    tr W ≥ 2.
    """
    W = mp.matrix([[1, mp.mpf(b)], [mp.mpf(b), 1]])
    singular = mp.svd(W, compute_uv=False)
    assert abs(mp.fsum(singular) - 2) < mp.mpf(10) ** -50
    assert (min(singular) < mp.mpf(10) ** -50) == (abs(mp.mpf(b)) == 1)
    data = QueryDataset([[[1.0, 0], [0, 0]], [[0, 1.0], [0, 0]]], np.eye(2), [1, 1], [1, 1])
    for i, (x, z) in enumerate(zip(data.X, data.queries, strict=True)):
        assert mp.fdot(x[0] - x[1], [mp.fdot(W[k, :], z) for k in range(2)]) == W[i, i] == 1
    frobenius = max_margin(data.keys, [0, 0])
    assert isinstance(frobenius, MaxMargin)
    assert frobenius.p.tolist() == [1, 0, 0, 1]
