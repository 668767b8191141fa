"""Softmax attention on bounded arrays: bounds contain true values and results of kernels, and are not absurdly wide."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from reference_attention.risk import ScaledGradient, scaled_gradient, softmax_weights
from tests.theorems import oracle
from tests.theorems.bounded.balls import escaped, used
from tests.theorems.rounding.hard_problems import PROBLEMS, points_of
from tests.theorems.token_selection.faults import FAULTS
from theorems.bounded import Bounded, exact, in_floats, spacing, with_rounding
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.equality import equal
from theorems.core.implementation import REFERENCE
from theorems.core.points import probe_points
from theorems.rounding.attention_at import EXPONENTIAL, AttentionAt, textbook_gradient, textbook_weights
from theorems.rounding.softmax import softmax
from theorems.rounding.weights_under_test import total_of, weights_of
from theorems.run.registry.lookup import statement_named

FLOAT32 = 2.0**-23


def truths(problem: Problem, at: AttentionAt) -> dict[str, list[Any]]:
    """Return weights, outputs, risk and scaled gradient in ball arithmetic."""
    result: dict[str, list[Any]] = {"log_weights": [], "weights": [], "outputs": [], "risk": [], "gradient": []}
    for p, scale in zip(at.points, at.log_scale.tolist(), strict=True):
        with oracle.precision(oracle.bits_for(problem, p)):
            s = oracle.weights(problem, p)
            result["weights"].append(s)
            result["log_weights"].append([[x.log() for x in row] for row in s])
            result["outputs"].append(oracle.outputs(problem, p))
        result["risk"].append(oracle.risk(problem, p))
        factor = (-oracle.arb(oracle.rational(scale))).exp()
        with oracle.precision(oracle.bits_for(problem, p)):
            result["gradient"].append([x * factor for x in oracle.gradient(problem, p)])
    return result


def test_bounds_contain_the_true_weights_outputs_risk_and_gradient() -> None:
    with oracle.precision(1000):
        for problem in PROBLEMS:
            at = AttentionAt(problem, points_of(problem))
            for name, truth in truths(problem, at).items():
                assert escaped(np.array(truth, dtype=object), getattr(at, name))[:3] == [], name


def test_bounds_of_weights_outputs_and_gradient_are_not_absurdly_wide() -> None:
    """Some error uses at least a five-hundredth of its bound, since wider bounds would hide faults."""
    share: dict[str, list[float]] = {"log_weights": [], "outputs": [], "gradient": []}
    with oracle.precision(1000):
        for problem in PROBLEMS:
            at = AttentionAt(problem, points_of(problem))
            result = truths(problem, at)
            for name, shares in share.items():
                shares.append(float(np.max(used(np.array(result[name], dtype=object), getattr(at, name)))))
    print({name: f"{max(shares):.3g}" for name, shares in share.items()})
    assert all(1 / 500 < max(shares) <= 1 for shares in share.values())


def test_right_gradients_are_within_their_rounding_bound() -> None:
    """The reference is within the bound; the textbook formula is only within the bound for its own spacing."""
    used: dict[str, list[float]] = {"reference": [], "textbook": [], "without": []}
    textbook = FAULTS["cancelling-gradient"]
    for problem in PROBLEMS:
        points = points_of(problem)
        for name, under_test, eps in (
            ("reference", REFERENCE, 0.0),
            ("textbook", textbook, EPS),
            ("without", textbook, 0.0),
        ):
            at = AttentionAt(problem, points, eps)
            result = at.gradient_of(under_test, "x")
            truth = np.array(truths(problem, at)["gradient"], dtype=object)
            off = np.array([float(abs(x)) for x in (truth - result.value).ravel()])
            known = np.isfinite(result.error.ravel()) & (off > 0)
            used[name] += (off[known] / result.error.ravel()[known]).tolist()
    print({name: max(values) for name, values in used.items()})
    assert 1 / 500 < max(used["reference"]) <= 1
    assert 1 / 5000 < max(used["textbook"]) <= 1
    assert max(used["without"]) > 1e6


@pytest.mark.parametrize(("dtype", "eps"), [(None, 0.0), (torch.float64, EPS), (torch.float32, FLOAT32)])
def test_right_softmax_weights_are_within_their_rounding_bounds(dtype: torch.dtype | None, eps: float) -> None:
    """Bounds hold for each weight and for the sum of weights; slightly wrong logits violate the former, lost weight the
    latter.
    """

    def weights(keys: np.ndarray, p: np.ndarray) -> np.ndarray:
        if dtype is None:
            return np.asarray(softmax_weights(keys, p))
        k, q = torch.tensor(keys).to(dtype), torch.tensor(p).to(dtype)
        return torch.softmax(torch.einsum("ntd,bd->bnt", k, q), dim=-1).double().numpy()

    size = max(eps, EPS)
    used, totals, result = [], [], {"warm": False, "leaking": False}
    for problem in PROBLEMS:
        at = AttentionAt(problem, points_of(problem), eps)
        theirs = weights_of(at, REFERENCE.replace("x", {softmax_weights: weights}), "x")
        truth = np.array(truths(problem, at)["weights"], dtype=object)
        off = np.array([abs(float(x.mid())) for x in (truth - theirs.value).ravel()]).reshape(theirs.shape)
        assert (off <= theirs.error).all()
        used.append(float(np.max(off[off > 0] / theirs.error[off > 0], initial=0.0)))
        total = total_of(at, theirs)
        assert (np.abs(total.value - 1) <= total.error).all()
        assert (total.error <= (4 * problem.T + 40) * size).all()
        totals.append(float(np.max(np.abs(total.value - 1) / total.error)))
        warm, leaking = weights(problem.keys, at.points * (1 + 1e3 * size)), theirs.value * (1 - 64 * size)
        result["warm"] |= bool((np.abs(warm - at.weights.value) > at.weights.error + theirs.error).any())
        total = total_of(at, leaking)
        result["leaking"] |= bool((np.abs(total.value - 1) > total.error).any())
    print(f"used {max(used):.3g}, of the sum's {max(totals):.3g}")
    assert max(used) > 1 / 500
    assert max(totals) > 1 / 100
    assert all(result.values()), result


def test_nan_weights_are_falsified() -> None:
    problem = Problem(np.array([[[1.0], [0.0]]]), np.array([[1.0, 0.0]]))
    nan = REFERENCE.replace("nan", {softmax_weights: lambda keys, p: np.full((len(p), *keys.shape[:2]), np.nan)})
    outcome = check(statement_named("lemma-3"), Case(problem), nan)
    assert outcome.verdict is Verdict.FALSIFIED
    assert "not finite" in outcome.reason


@pytest.mark.parametrize(
    ("keys", "scores", "point", "log_scale"),
    [
        # Data of Figure 1(a) at a prompt far from the optimal token: the other tokens have equal scores, so the whole
        # gradient comes from the optimal token of negligible weight.
        ([[-0.1, 1.0], [1.0, 0.0], [0.0, 0.0]], [1.0, 0.9, 0.9], [-3e-5, -4927.0], None),
        # Two equal keys share the weight, so the gradient's scale is the tiny weight of the third token.
        ([[1.0], [1.0], [0.0]], [1.0, 0.0, -1.0], [2000.0], -2000.0),
    ],
)
def test_a_gradient_that_comes_from_a_token_of_negligible_weight_has_its_digits(
    keys: Any, scores: Any, point: Any, log_scale: float | None
) -> None:
    problem = Problem(np.array([keys]), np.array([scores]))
    at = AttentionAt(problem, np.array([point]))
    assert log_scale is None or at.log_scale[0] == pytest.approx(log_scale, abs=5)
    truth = np.array(truths(problem, at)["gradient"], dtype=object)
    for found in (at.gradient, at.gradient_of(REFERENCE, "x")):
        assert escaped(truth, found)[:3] == []
        assert np.abs(found.value).max() > 0.1
        assert (found.error <= 1e-10 * np.abs(found.value).max()).all()


def test_a_gradient_over_many_tokens_and_points_needs_little_memory() -> None:
    """With 200 tokens, 100 points and 4 inputs, an array over pairs of tokens, points and inputs would take 128 MB."""
    rng = np.random.default_rng(8)
    problem, points = Problem(rng.normal(size=(4, 200, 2)), rng.normal(size=(4, 200))), rng.normal(size=(100, 2))
    tracemalloc.start()
    assert np.isfinite(AttentionAt(problem, points).gradient.error).all()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 200 * 200 * 100 * 8


def test_a_nan_gradient_is_falsified_and_stops_a_search() -> None:
    def broken(*arguments: Any) -> Any:
        right = scaled_gradient(*arguments)
        return replace(right, direction=np.where(arguments[3] > 2, np.nan, right.direction))

    problem = Problem(np.array([[[1.0], [0.0]]]), np.array([[1.0, 0.0]]))
    outcome = check(statement_named("lemma-4"), Case(problem), REFERENCE.replace("broken", {scaled_gradient: broken}))
    assert outcome.verdict is Verdict.FALSIFIED
    assert "descent" in outcome.reason
    assert "not finite" in outcome.reason


def kernel_gradient(problem: Problem, p: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Return the gradient of the textbook formula by torch's autograd, in the given type."""
    keys, scores = (torch.tensor(x, dtype=dtype) for x in (problem.keys, problem.scores))
    prompt = torch.tensor(p, dtype=dtype, requires_grad=True)
    u = (torch.softmax(keys @ prompt, dim=-1) * scores).sum(-1)
    losses = {"logistic": torch.nn.functional.softplus(-u), "exponential": torch.exp(-u), "correlation": -u}
    losses["sigmoid"] = torch.exp(-torch.nn.functional.softplus(u))
    losses[problem.loss.name].mean().backward()
    assert prompt.grad is not None
    return prompt.grad.to(torch.float64).numpy()


@pytest.mark.parametrize(("dtype", "eps"), [(torch.float64, EPS), (torch.float32, FLOAT32), (torch.bfloat16, 2.0**-7)])
def test_a_kernel_is_inside_the_bound_of_the_textbook_formula(dtype: torch.dtype, eps: float) -> None:
    used = []
    for problem in PROBLEMS:
        points = points_of(problem)
        ball = textbook_gradient(problem, textbook_weights(problem, points, eps), eps)
        truth = AttentionAt(problem, points).gradient.value * np.exp(AttentionAt(problem, points).log_scale)[:, None]
        for k, p in enumerate(points):
            theirs = kernel_gradient(problem, p, dtype)
            known = np.isfinite(ball.error[k])
            assert (np.abs(theirs - ball.value[k]) <= ball.error[k])[known].all()
            assert (np.abs(truth[k] - ball.value[k]) <= ball.error[k] * (1 + 1e-6))[known].all()
            used += (np.abs(theirs - truth[k]) / ball.error[k])[known & (truth[k] != 0)].tolist()
    print(f"{dtype}: {len(used)} entries, used {max(used):.3g}, median {np.median(used):.3g}")
    if dtype != torch.bfloat16:  # for bfloat16 torch adds in float32, so errors are smaller
        assert max(used) > 1 / 500


def test_bounds_contain_the_weights_of_three_kinds_of_softmax_kernels() -> None:
    """Kernels compute softmax directly, block by block, or from a stored log-sum-exp, in float32, for logits of all
    sizes.
    """
    rng = np.random.default_rng(11)
    used = []
    for _ in range(400):
        tokens = int(rng.integers(2, 9))
        logits = (rng.normal(size=tokens) * 10.0 ** rng.uniform(-2, 1.5)).astype(np.float32)
        logits += np.float32(rng.choice([0.0, 1000.0, -3e5]) * rng.normal())
        with spacing(FLOAT32):
            ball = softmax(exact(logits), updates=tokens - 1)
            plain = softmax(exact(logits))
        low = np.exp(logits - logits.max())
        stored = logits.max() + np.log(low.sum(dtype=np.float32))
        blocks, top, total = np.zeros(tokens, np.float32), np.float32(-np.inf), np.float32(0)
        for t, x in enumerate(logits):
            new = np.maximum(top, x)
            scale = np.exp(top - new, dtype=np.float32)
            blocks[:t] *= scale
            blocks[t] = np.exp(x - new)
            total, top = total * scale + blocks[t], new
        for kernel in (low / low.sum(dtype=np.float32), blocks / total, np.exp(logits - stored)):
            assert kernel.dtype == np.float32
            assert (np.abs(kernel.astype(float) - ball.value) <= ball.error).all()
            used.append(float(np.max(np.abs(kernel - ball.value) / ball.error)))
        assert (np.abs(low / low.sum(dtype=np.float32) - plain.value) <= plain.error).all()
        assert (np.abs(np.exp(logits - stored) - plain.value) <= plain.error).all()
    print(f"used {max(used):.3g}, median {np.median(used):.3g}")
    assert max(used) > 0.1


def test_bounds_contain_the_weights_of_flash_attention_s_backward_pass() -> None:
    """Differentiate PyTorch's flash attention for two logits l of some thousands.

    Its weights P = exp(l − L) use the stored log-sum-exp L, which is rounded to units of 2e-4, so the weights add up to
    1 only up to this amount, not up to a few eps.
    """
    rng = np.random.default_rng(0)
    mine, off = [], []
    for _ in range(300):
        key = float(np.float32(rng.uniform(100, 5000)))
        keys = np.array([[key], [float(np.float32(key - rng.uniform(2, 14)))]])
        k, v = (torch.tensor(x, dtype=torch.float32).reshape(1, 1, 2, 1) for x in (keys, [1.0, 0.0]))
        v.requires_grad_()
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = torch.nn.functional.scaled_dot_product_attention(torch.ones(1, 1, 1, 1), k, v, scale=1.0)
        out.sum().backward()
        assert v.grad is not None
        theirs = v.grad.reshape(2).double().numpy()  # the gradient of Σ P v with respect to v is P
        with spacing(FLOAT32, EXPONENTIAL):
            ball = softmax(np.vecdot(with_rounding(keys), with_rounding(np.ones(1))))
        assert (np.abs(theirs - ball.value) <= ball.error).all()
        mine.append(float(np.max(np.abs(theirs - ball.value) / ball.error)))
        off.append(abs(float(theirs.sum()) - 1) / FLOAT32)
    print(f"used of the ball {max(mine):.3g}, the sum is off by up to {max(off):.3g} eps")
    assert max(mine) > 0.5
    assert max(off) > 100


def test_saturated_weights_have_tiny_error_bounds() -> None:
    """Two logits known only up to ±1 but 50 apart give weights known up to e^{−48}, since the weights add up to 1."""
    ball = softmax(Bounded([100.0, 50.0], [1.0, 1.0]))
    assert (ball.error < 4e-15).all()
    assert (softmax(Bounded([1e6, -np.inf], [1e3, 0.0])).error < 4e-15).all()


def test_lemma_5_agrees_with_its_formula() -> None:
    """Compute both sides of ⟨∇L, p/‖p‖⟩ ≥ (1 + π)⟨∇L, p̄_mm⟩, π = ‖p_mm‖ log(T − 1)/‖p‖, from the statement alone; a
    wrong factor is noticed.
    """
    problem = Problem(
        np.array([[[1.0, 0.0], [-1.0, 0.5], [0.3, -1.0]]]), np.array([[1.0, 0.0, 0.0]]), LOSSES["logistic"]
    )
    best = problem.keys[0, 0] - problem.keys[0, 1:]
    p_mm = with_rounding(np.linalg.solve(best, np.ones(2)))  # both constraints are tight
    points = np.random.default_rng(1).normal(size=(50, 2)) * 10.0
    gradient, p = AttentionAt(problem, points).gradient, exact(points)
    pi = np.linalg.norm(p_mm) * np.log(exact(problem.T - 1)) / np.linalg.norm(p, axis=-1)
    left = np.vecdot(gradient, p) / np.linalg.norm(p, axis=-1)
    right = (1 + pi) * (gradient @ p_mm) / np.linalg.norm(p_mm)
    assert (left >= right).all()
    assert (left.value - right.value > 1e3 * (left.error + right.error)).all()
    assert not (left >= right * -1.5).all()


def test_masked_tokens_have_weight_exactly_zero() -> None:
    logits = np.where([True, False, True], exact([1.0, 2.0, 3.0]), -np.inf)
    s = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
    assert s.value[1] == 0
    assert s.error[1] == 0
    assert math.isclose(s.value[2], 1 / (1 + math.exp(-2)))


def test_the_oracle_agrees_with_a_closed_form() -> None:
    # Two tokens with keys and scores ±1/2 give f = tanh(p/2)/2, so for the correlation loss L = −f, L' = −1/(4
    # cosh²(p/2)).
    problem = Problem(np.array([[[0.5], [-0.5]]]), np.array([[0.5, -0.5]]), LOSSES["correlation"])
    p = np.array([1.5])
    assert float(oracle.risk(problem, p).mid()) == pytest.approx(-math.tanh(0.75) / 2, rel=4 * EPS)
    (slope,) = oracle.gradient(problem, p)
    assert float(slope.mid()) == pytest.approx(-1 / (4 * math.cosh(0.75) ** 2), rel=4 * EPS)
    assert float(oracle.excess_risk(problem, p, np.array([0])).mid()) == pytest.approx(
        0.5 - math.tanh(0.75) / 2, rel=8 * EPS
    )


def test_a_gradient_under_test_is_converted_from_its_scale_to_ours() -> None:
    """A gradient with another log scale and direction, but the same product, counts as equal, also in plain floats."""
    rng = np.random.default_rng(0)
    problem = Problem(rng.standard_normal((2, 3, 2)), rng.standard_normal((2, 3)))

    def in_other_units(*arguments: Any) -> ScaledGradient:
        gradient = scaled_gradient(*arguments)
        return ScaledGradient(gradient.log_scale - 1, math.e * gradient.direction)

    with in_floats():
        at = AttentionAt(problem, rng.standard_normal((4, 2)))
        mine = at.gradient_of(REFERENCE, "claim")
        theirs = at.gradient_of(REFERENCE.replace("units", {scaled_gradient: in_other_units}), "claim")
    assert theirs == pytest.approx(mine, rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_reference_is_upheld_at_scores_of_any_size(loss: str) -> None:
    """At scores of 10⁶, log |ℓ'| is as large, and adding it to log s_t (s_t a softmax weight) costs as many
    roundings.
    """
    for size in 2.0 ** np.arange(0, 21, 5):
        rng = np.random.default_rng(int(size))
        problem = Problem(rng.standard_normal((2, 3, 2)), size * rng.standard_normal((2, 3)), LOSSES[loss])
        at = AttentionAt(problem, probe_points(rng, problem, m=150))
        assert equal("gradient", at.gradient_of(REFERENCE, "gradient"), at.gradient).verdict is Verdict.UPHELD
        # A gradient that differs by more than this number of roundings is falsified.
        off = np.abs(at.gradient.value) * 2**14 * EPS * max(1.0, size)
        wrong = equal("gradient", at.gradient_of(REFERENCE, "gradient") + off, at.gradient)
        assert wrong.verdict is Verdict.FALSIFIED


def test_exactly_zero_terms_do_not_overflow_in_the_unit_of_tiny_terms() -> None:
    """Input 0 contributes nothing, since its scores are equal; input 1, with slope e⁻⁴⁰⁹⁶ of ℓ, is the whole
    gradient.
    """
    problem = Problem(
        np.array([[[3.0, -3.0], [-2.5, 0.0]], [[0.0, -1.0], [-2.5, 2.5]]]), np.array([[0.0, 0], [4096, 8192]])
    )
    at = AttentionAt(problem, np.array([[0.1, 0.2]]))
    assert np.isfinite(at.gradient.error).all()
    claim = equal("gradient", at.gradient_of(REFERENCE, "gradient"), at.gradient)
    assert claim.verdict is Verdict.UPHELD
    assert math.isfinite(claim.tolerance)


def test_bounds_of_many_points_agree_with_those_of_each_point() -> None:
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(3, 3, 300))
    keys[1, 2] = keys[1, 0]
    keys[2, 1] = keys[2, 0] * (1 + 1e-13)
    problem = Problem(keys, rng.normal(size=(3, 3)))
    points = rng.normal(size=(8, 300)) * np.array([1e-6, 1e-3, 0.1, 1.0, 3.0, 10.0, 100.0, 1e4])[:, None]
    together = AttentionAt(problem, points)
    assert together._pairs is not None
    for k, p in enumerate(points):
        alone = AttentionAt(problem, p[None])
        assert alone._pairs is None
        assert (together.distinct_keys[k] == alone.distinct_keys[0]).all()
        scale = np.exp(together.log_scale[k] - alone.log_scale[0])
        for name, factor in (("log_weights", 1.0), ("weights", 1.0), ("risk", 1.0), ("gradient", scale)):
            mine, theirs = getattr(together, name)[k], getattr(alone, name)[0]
            apart = np.abs(mine.value * factor - theirs.value)
            assert (apart <= mine.error * factor + theirs.error).all(), name
            assert (mine.error * factor <= 2 * theirs.error + 1e-300).all(), name
        step = rng.normal(size=(8, 300))
        apart = np.abs(
            together.products(step)[k].value - np.vecdot(alone.key_differences, step[k][None, None, None])[0].value
        )
        assert (apart <= 1e-10).all()
