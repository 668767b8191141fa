"""Risk and gradient against 80-digit arithmetic, at norms up to 1e6, with ties, duplicates and huge scores.

Notation: s is the softmax of an input's logits, γ are its scores, and δγ and δk the differences of scores and keys from
those of the selected token, whose means under s are E[δγ] and E[δk].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import mpmath
import numpy as np
import pytest
import torch

from reference_attention import risk
from reference_attention.loss import Loss
from reference_attention.losses import DRAWN_LOSSES, LOSSES
from reference_attention.risk import ScaledGradient
from reference_attention.training.batched_gradient import BatchedGradient
from reference_attention.training.derivatives import differences_to, gradient_field, newton_field, terms
from theorems.core.implementation import REFERENCE

EPS = float(np.finfo(float).eps)
LOGISTIC = LOSSES["logistic"]
PAPER_LOSSES = [LOSSES[name] for name in DRAWN_LOSSES]


pytestmark = pytest.mark.filterwarnings("error")


@dataclass
class Data:
    """One problem with the points at which it is evaluated."""

    keys: np.ndarray
    scores: np.ndarray
    points: np.ndarray


def generic(seed: int, n: int = 3, T: int = 4, d: int = 3) -> Data:
    rng = np.random.default_rng(seed)
    unit = rng.normal(size=(4, d))
    return Data(
        rng.normal(size=(n, T, d)),
        rng.normal(size=(n, T)),
        unit / np.linalg.norm(unit, axis=1, keepdims=True) * np.array([[0.0], [1.0], [300.0], [1e6]]),
    )


def duplicates(seed: int) -> Data:
    """Return a problem in which the tokens that are mostly selected come twice, with different scores."""
    data = generic(seed, T=5)
    data.keys[:, 1] = data.keys[:, 0] = data.keys[:, 0] * 3
    return data


def equal_others(seed: int) -> Data:
    """Return a problem in which all scores but one per input are equal: where such a token is selected, only −E[δγ] is
    left.
    """
    data = generic(seed, T=5)
    data.scores[:, 1:] = -0.5
    return data


def offset(seed: int) -> Data:
    """Return keys with a common offset of 1e6 that differ by powers of two: raw logits cancel, their differences do
    not.
    """
    data = generic(seed)
    data.keys = np.round(data.keys * 2**20) / 2**20 + 2.0**20
    return data


def far_offset(seed: int) -> Data:
    """Return integer keys with a common offset of 2⁵²: rounded logits select tokens whose logits are far from the
    largest.
    """
    data = generic(seed, T=6, d=8)
    data.keys = np.round(data.keys) + 2.0**52
    return data


def balanced_ties(seed: int) -> Data:
    """Return tokens of equal, low score that are selected half each: only −E[δγ], which underflows, moves p along their
    boundary.
    """
    side, gap = np.random.default_rng(seed).uniform(0.5, 0.9, size=2)
    keys = np.array([[[side, 0.2], [0.1, 1.0], [-side, 0.2]]])
    return Data(keys, np.array([[0.0, gap, 0.0]]), np.array([[0.0, -1.0], [0.0, -1e3], [0.0, -1e6], [2.0, 1e3]]))


def scaled_keys(factor: float) -> Callable[[int], Data]:
    def make(seed: int) -> Data:
        data = generic(seed)
        return Data(data.keys * factor, data.scores, data.points / factor)

    return make


CASES: dict[str, Callable[[int], Data]] = {
    "generic": generic,
    "far-offset": far_offset,
    "single": lambda seed: generic(seed, n=1, T=2, d=1),
    "duplicates": duplicates,
    "equal-others": equal_others,
    "offset": offset,
    "balanced-ties": balanced_ties,
    "tiny-keys": scaled_keys(2.0**-398),
    "huge-keys": scaled_keys(2.0**398),
}


def exact_slope(name: str, u: mpmath.mpf) -> mpmath.mpf:
    slopes = {
        "logistic": lambda: 1 / (1 + mpmath.exp(u)),
        "exponential": lambda: mpmath.exp(-u),
        "sigmoid": lambda: 1 / ((1 + mpmath.exp(u)) * (1 + mpmath.exp(-u))),
    }
    return slopes.get(name, lambda: 1)()


def exact_gradient(data: Data, name: str, p: np.ndarray) -> tuple[list[Any], Any]:
    """Return ∇L and Σ|terms|, from differences to the selected token, in 80 digits; the naive formula would
    need 10⁶.
    """
    n, T, d = data.keys.shape
    total, size = [mpmath.mpf(0)] * d, mpmath.mpf(0)
    for keys, scores in zip(data.keys, data.scores, strict=True):
        k = [[mpmath.mpf(x) for x in row] for row in keys]
        g = [mpmath.mpf(x) for x in scores]
        logits = [mpmath.fdot(row, map(mpmath.mpf, p)) for row in k]
        top = max(range(T), key=lambda t: logits[t])
        weights = [mpmath.exp(x - logits[top]) for x in logits]
        normaliser = mpmath.fsum(weights)
        weights = [w / normaliser for w in weights]
        mean = mpmath.fsum(w * (x - g[top]) for w, x in zip(weights, g, strict=True))
        slope = exact_slope(name, g[top] + mean) / n
        for t in range(T):
            delta = [a - b for a, b in zip(k[t], k[top], strict=True)]
            coefficient = -slope * weights[t] * (g[t] - g[top] - mean)
            total = [a + coefficient * b for a, b in zip(total, delta, strict=True)]
            size += abs(coefficient) * mpmath.sqrt(mpmath.fsum(x * x for x in delta))
    return total, size


def naive_gradient(data: Data, name: str, p: np.ndarray) -> list[Any]:
    """Return the gradient by the textbook formula Σ s_t (γ_t − γᵀs) k_t, in as many digits as it needs."""
    n, T, d = data.keys.shape
    total = [mpmath.mpf(0)] * d
    for keys, scores in zip(data.keys, data.scores, strict=True):
        weights = [mpmath.exp(mpmath.fdot(map(mpmath.mpf, row), map(mpmath.mpf, p))) for row in keys]
        normaliser = mpmath.fsum(weights)
        f = mpmath.fsum(w * mpmath.mpf(x) for w, x in zip(weights, scores, strict=True)) / normaliser
        for t in range(T):
            c = -exact_slope(name, f) / n * weights[t] / normaliser * (mpmath.mpf(scores[t]) - f)
            total = [a + c * mpmath.mpf(x) for a, x in zip(total, keys[t], strict=True)]
    return total


def error_in_roundings(data: Data, loss: Loss, p: np.ndarray, found: ScaledGradient) -> float:
    """Return the error of ∇L in units of the allowed rounding, where a weight's relative error is that of its logit."""
    n, T, d = data.keys.shape
    with mpmath.workdps(80):
        expected, size = exact_gradient(data, loss.name, p)
        if size == 0:
            return 0.0 if found.log_scale == -np.inf and not found.direction.any() else np.inf
        scale = mpmath.exp(mpmath.mpf(float(found.log_scale)))
        got = [scale * mpmath.mpf(float(x)) for x in found.direction]
        error = float(mpmath.sqrt(mpmath.fsum((a - b) ** 2 for a, b in zip(got, expected, strict=True))) / size)
    logits = np.abs((data.keys[:, :, None] - data.keys[:, None]) * p).sum(axis=-1).max()
    return error / (8 * EPS * (T + d + n) * (1 + float(logits)))


def worst(gradient: Callable[..., ScaledGradient], loss: Loss, make: Callable[[int], Data]) -> float:
    errors = []
    for seed in range(2):
        data = make(seed)
        for p in data.points:
            errors.append(error_in_roundings(data, loss, p, gradient(data.keys, data.scores, loss, p)))
    return max(e if e == e else np.inf for e in errors)


def by_field(keys: Any, scores: Any, loss: Loss, p: Any) -> ScaledGradient:
    log_scale, direction = gradient_field(keys, scores, loss)(p)
    return ScaledGradient(np.float64(log_scale), direction)


def by_batch_field(keys: Any, scores: Any, loss: Loss, p: Any) -> ScaledGradient:
    field = BatchedGradient(np.stack([keys, keys]), np.stack([scores, scores]), loss)
    field(np.stack([p, -p]))  # the field then keeps the selection of −p for the second problem
    log_scale, direction = field(np.stack([-p, p]))
    return ScaledGradient(log_scale[1], direction[1])


def by_torch(keys: Any, scores: Any, loss: Loss, p: Any) -> ScaledGradient:
    gradient = risk.scaled_gradient(torch.tensor(keys), torch.tensor(scores), loss, torch.tensor(p))
    return ScaledGradient(gradient.log_scale.numpy(), gradient.direction.numpy())


GRADIENTS = {"generic": risk.scaled_gradient, "field": by_field, "batch-field": by_batch_field, "torch": by_torch}


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
@pytest.mark.parametrize("gradient", GRADIENTS.values(), ids=GRADIENTS)
def test_gradients_of_the_risk_agree_with_exact_arithmetic(gradient: Any, make: Callable[[int], Data]) -> None:
    for loss in PAPER_LOSSES:
        assert worst(gradient, loss, make) <= 1, loss


def test_the_gradient_in_80_digits_is_that_of_the_textbook_formula() -> None:
    data = generic(3)
    for p in data.points[:3]:
        with mpmath.workdps(2000):
            naive = naive_gradient(data, "logistic", p)
        with mpmath.workdps(80):
            expected, size = exact_gradient(data, "logistic", p)
            assert all(abs(a - b) <= mpmath.mpf(10) ** -70 * size for a, b in zip(naive, expected, strict=True))


def _wrong_temperature(keys: Any, scores: Any, loss: Loss, p: Any) -> ScaledGradient:
    return risk.scaled_gradient(keys, scores, loss, p * (1 + 1e-6))


def negated(keys: Any, scores: Any, loss: Loss, p: Any) -> ScaledGradient:
    gradient = risk.scaled_gradient(keys, scores, loss, p)
    return ScaledGradient(gradient.log_scale, -gradient.direction)


def without_cross_term(keys: Any, scores: Any, loss: Loss, p: Any) -> ScaledGradient:
    """Return the gradient from E[δγ δk] without − E[δγ] E[δk]."""
    chosen = risk.select(keys, p)
    gaps = scores - np.take_along_axis(scores, chosen.token[..., None], axis=-1)
    slope = loss.derivative(risk.predictions(keys, scores, p)) / keys.shape[-3]
    c = slope[..., None] * np.exp(chosen.log_weights) * gaps
    return ScaledGradient(np.float64(0), (c[..., None] * chosen.key_differences).sum(axis=(-3, -2)))


def _wrong_loss(keys: Any, scores: Any, loss: Loss, p: Any) -> ScaledGradient:
    other = LOSSES["exponential" if loss.name != "exponential" else "logistic"]
    return risk.scaled_gradient(keys, scores, other, p)


def _saturated_cancellation(keys: Any, scores: Any, loss: Loss, p: Any) -> ScaledGradient:
    """Return the gradient by the textbook formula in float64, which is right at moderate norms but has no digits once
    the softmax saturates.
    """
    s = risk.softmax_weights(keys, p)
    f = (s * scores).sum(axis=-1)
    c = loss.derivative(f)[..., None] * s * (scores - f[..., None]) / keys.shape[-3]
    return ScaledGradient(np.float64(0), (c[..., None] * keys).sum(axis=(-3, -2)))


@pytest.mark.parametrize(
    "fault", [_wrong_temperature, negated, without_cross_term, _wrong_loss, _saturated_cancellation]
)
def test_gradients_with_planted_faults_fail_the_comparison(fault: Any) -> None:
    assert worst(fault, LOGISTIC, generic) > 1


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_excess_risk_agrees_with_exact_arithmetic(make: Callable[[int], Data]) -> None:
    # The tokens α are drawn at random and need not be optimal, so that the terms differ in sign.
    for loss in PAPER_LOSSES:
        data = make(5)
        n, T, d = data.keys.shape
        alpha = np.random.default_rng(0).integers(0, T, size=n)
        for p in data.points:
            sign, log_size = risk.log_excess_risk(data.keys, data.scores, loss, p, alpha)
            with mpmath.workdps(60 if np.abs(p).max() * np.abs(data.keys).max() < 1e3 else 100):
                expected, size = exact_excess(data, loss.name, p, alpha)
                got = sign * mpmath.exp(mpmath.mpf(float(log_size)))
                error = float(abs(got - expected) / size) if size else float(got != 0)
            logits = np.abs((data.keys[:, :, None] - data.keys[:, None]) * p).sum(axis=-1).max()
            assert error <= 8 * EPS * (T + d + n) * (1 + logits)


def exact_excess(data: Data, name: str, p: np.ndarray, alpha: np.ndarray) -> tuple[Any, Any]:
    """Return L(p) − L_α and the sum of its absolute terms from δ = Σ s_t (γ_α − γ_t), which does not cancel."""
    total, size = mpmath.mpf(0), mpmath.mpf(0)
    for keys, scores, a in zip(data.keys, data.scores, alpha, strict=True):
        logits = [mpmath.fdot(map(mpmath.mpf, row), map(mpmath.mpf, p)) for row in keys]
        top = max(logits)
        weights = [mpmath.exp(x - top) for x in logits]
        normaliser = mpmath.fsum(weights)
        parts = [w / normaliser * (mpmath.mpf(scores[a]) - mpmath.mpf(g)) for w, g in zip(weights, scores, strict=True)]
        delta, spread = mpmath.fsum(parts), mpmath.fsum(map(abs, parts))
        u = mpmath.mpf(scores[a])
        excess = {
            "logistic": lambda u=u, delta=delta: mpmath.log1p(mpmath.expm1(delta) / (1 + mpmath.exp(u))),
            "exponential": lambda u=u, delta=delta: mpmath.exp(-u) * mpmath.expm1(delta),
            "sigmoid": lambda u=u, delta=delta: (
                -mpmath.expm1(-delta) / ((1 + mpmath.exp(-u)) * (1 + mpmath.exp(u - delta)))
            ),
        }.get(name, lambda delta=delta: delta)()
        total += excess / len(alpha)
        # The loss multiplies the error of δ by its slope between u − |δ| and u.
        steepest = max(exact_slope(name, x) for x in (u, u - abs(delta), max(min(u, 0), u - abs(delta))))
        size += steepest * spread / len(alpha)
    return total, size


@pytest.mark.parametrize("gradient", GRADIENTS.values(), ids=GRADIENTS)
def test_the_gradient_for_equal_scores_is_zero(gradient: Any) -> None:
    data = generic(0)
    for value in (0.0, 0.1, -1e120):
        for p in data.points:
            result = gradient(data.keys, np.full((3, 4), value), LOGISTIC, p)
            assert result.log_scale == -np.inf
            assert not result.direction.any()
            assert ScaledGradient(np.float64(result.log_scale), result.direction).log_norm == -np.inf


@pytest.mark.parametrize("gradient", GRADIENTS.values(), ids=GRADIENTS)
@pytest.mark.parametrize("loss", PAPER_LOSSES, ids=str)
def test_huge_scores_neither_overflow_nor_warn(gradient: Any, loss: Loss) -> None:
    rng = np.random.default_rng(1)
    keys, scores = rng.normal(size=(2, 4, 3)), rng.choice([-1e120, 1e120, 1.0], size=(2, 4))
    for norm in (0.0, 1.0, 1e6):
        p = norm * rng.normal(size=3)
        result = gradient(keys, scores, loss, p)
        assert not np.isnan(result.log_scale)
        assert np.isfinite(result.direction).all()
        sign, size = risk.log_excess_risk(keys, scores, loss, p, scores.argmax(axis=1))
        assert sign >= 0
        assert not np.isnan(size)


@pytest.mark.parametrize("loss", PAPER_LOSSES, ids=str)
def test_the_gradient_agrees_with_torch_autograd_at_moderate_norms(loss: Loss) -> None:
    data = generic(2, n=4, T=6, d=10)
    keys, scores = torch.tensor(data.keys), torch.tensor(data.scores)
    p = torch.tensor(data.points[1], requires_grad=True)
    risk.risk(keys, scores, loss, p).backward()
    gradient = risk.scaled_gradient(keys, scores, loss, p.detach())
    ours = torch.exp(gradient.log_scale) * gradient.direction
    # Autograd sums the terms s_t γ_t k_t, which cancel: its error is relative to the terms.
    terms = float(torch.abs(keys).max() * torch.abs(scores).max() * torch.exp(loss.log_slope(scores.min())))
    assert torch.linalg.vector_norm(ours - p.grad) <= 8 * EPS * (6 + 10 + 4) * (1 + 30) * terms
    assert torch.linalg.vector_norm(-ours - p.grad) > 1e-3 * torch.linalg.vector_norm(ours)


@pytest.mark.parametrize("batch_of_problems", [False, True])
def test_gradients_and_risks_of_batches_agree_with_those_of_single_calls(batch_of_problems: bool) -> None:
    rng = np.random.default_rng(4)
    keys, scores, points = rng.normal(size=(2, 5, 3, 4, 6)), rng.normal(size=(2, 5, 3, 4)), rng.normal(size=(2, 5, 6))
    if not batch_of_problems:
        keys, scores = keys[0, 0], scores[0, 0]
    gradient = risk.scaled_gradient(keys, scores, LOGISTIC, points)
    tensor = risk.scaled_gradient(torch.tensor(keys), torch.tensor(scores), LOGISTIC, torch.tensor(points))
    value = risk.risk(keys, scores, LOGISTIC, points)
    weights = risk.softmax_weights(keys, points)
    assert weights.shape == (2, 5, 3, 4)
    for i in range(2):
        for j in range(5):
            k, g = (keys[i, j], scores[i, j]) if batch_of_problems else (keys, scores)
            one = risk.scaled_gradient(k, g, LOGISTIC, points[i, j])
            # Gradients of batches follow the same formula, but may be summed in another order.
            for log_scale, direction in (
                (gradient.log_scale, gradient.direction),
                (tensor.log_scale, tensor.direction),
            ):
                assert abs(float(log_scale[i, j]) - float(one.log_scale)) <= 64 * EPS * (1 + abs(float(one.log_scale)))
                assert np.abs(np.asarray(direction[i, j]) - one.direction).max() <= 256 * EPS
            assert abs(value[i, j] - risk.risk(k, g, LOGISTIC, points[i, j])) <= 16 * EPS


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_gradients_on_cuda_agree_with_those_of_numpy() -> None:
    data = generic(6, n=4, T=6, d=10)
    for p in data.points:
        there = [torch.tensor(x, device="cuda") for x in (data.keys, data.scores, p)]
        gradient = risk.scaled_gradient(there[0], there[1], LOGISTIC, there[2])
        log_excess = risk.log_excess_risk(
            there[0], there[1], LOGISTIC, there[2], torch.tensor(data.scores.argmax(axis=1), device="cuda")
        )
        moved = ScaledGradient(gradient.log_scale.cpu().numpy(), gradient.direction.cpu().numpy())
        assert error_in_roundings(data, LOGISTIC, p, moved) <= 1
        here = risk.log_excess_risk(data.keys, data.scores, LOGISTIC, p, data.scores.argmax(axis=1))
        assert abs(float(log_excess[1]) - here[1]) <= 8 * EPS * 20 * (1 + np.abs(data.keys @ p).max())


@pytest.mark.parametrize("loss", PAPER_LOSSES, ids=str)
def test_hessian_is_the_derivative_of_the_gradient(loss: Loss) -> None:
    data = generic(7, n=3, T=4, d=4)
    field = newton_field(data.keys, data.scores, loss)
    for p in data.points[:3]:
        log_scale, _, curvature = field(p)
        h = 1e-5
        rows = []
        for axis in np.eye(4):
            ahead, behind = field(p + h * axis), field(p - h * axis)
            rows.append((np.exp(ahead[0] - log_scale) * ahead[1] - np.exp(behind[0] - log_scale) * behind[1]) / (2 * h))
        # Central differences err by h²/6 times third derivatives, and by the rounding of a logit divided by h.
        span = float(np.abs(data.keys).max() * 2)
        allowed = span**2 * 12 * (span**2 * h**2 + 64 * EPS * (1 + span * np.linalg.norm(p)) / (span * h))
        assert np.abs(np.array(rows) - curvature).max() <= allowed
        assert np.abs(np.array(rows) + curvature).max() > allowed


def test_the_norm_of_a_scaled_gradient_has_one_entry_per_point() -> None:
    result = ScaledGradient(np.array([-1000.0, 2.0]), np.array([[3.0, 4.0], [0.0, 1.0]]))
    assert result.log_norm.tolist() == [-1000.0 + float(np.log(5.0)), 2.0]


def test_a_shift_common_to_all_logits_changes_only_the_logarithmic_scales() -> None:
    data = generic(8)
    differences = differences_to(data.keys, data.scores, np.zeros(3, dtype=np.int64))
    relative = (differences.rows @ data.points[1]).reshape(differences.gaps.shape)
    whole, apart = terms(differences, LOGISTIC, relative), terms(differences, LOGISTIC, relative + 3.0, -3.0)
    for name in ("weights", "outputs", "coefficients"):
        assert getattr(apart, name) == pytest.approx(getattr(whole, name), rel=64 * EPS), name
    assert apart.log_weights - 3.0 == pytest.approx(whole.log_weights, abs=64 * EPS)
    assert apart.log_scale - 3.0 == pytest.approx(whole.log_scale, abs=64 * EPS)


def test_the_log_scale_is_the_size_of_the_largest_term_of_the_gradient() -> None:
    data = generic(9)
    token = np.array([1, 0, 3])
    differences = differences_to(data.keys, data.scores, token)
    sizes = np.linalg.norm(data.keys - data.keys[np.arange(3), token][:, None], axis=-1)[np.arange(4) != token[:, None]]
    assert np.exp(differences.log_sizes).ravel() == pytest.approx(sizes, rel=16 * EPS)
    result = terms(differences, LOGISTIC, (differences.rows @ data.points[1]).reshape(3, 3))
    assert (np.abs(result.coefficients.ravel()) * sizes).max() == pytest.approx(1, rel=64 * EPS)


def test_a_replaced_kernel_differs_from_the_reference_only_in_name_and_precision() -> None:
    other = REFERENCE.replace("textbook", textbook_eps=EPS)
    assert (REFERENCE.name, REFERENCE.textbook_eps) == ("reference", 0.0)
    assert (other.name, other.textbook_eps) == ("textbook", EPS)
    assert replace(other, name=REFERENCE.name, textbook_eps=0.0) == REFERENCE


def test_weights_are_right_where_rounded_logits_select_another_token() -> None:
    """Logits 2⁵⁴ and 2⁵⁴ + 2 round to one float. Test a prompt with these logits alone, and in a batch with a prompt
    whose rounded logits select the right token.
    """
    keys = np.array([[[2.0**54, 0.0], [2.0**54, 2.0]]])
    log_weights = np.array([[-2.0, 0.0]]) - np.log1p(np.exp(-2.0))
    result = risk.select(keys, np.ones(2))
    assert result.token.tolist() == [1]
    assert result.log_weights == pytest.approx(log_weights, rel=1e-15)
    both = risk.select(keys, np.array([[1.0, 1.0], [0.0, -1.0]]))
    assert both.token.tolist() == [[1], [0]]
    assert both.log_weights[0] == pytest.approx(log_weights, rel=1e-15)
    assert both.log_weights[1] == pytest.approx(log_weights[:, ::-1], rel=1e-15)


@pytest.mark.parametrize("size", [2.0**-300, 0.5, 3.0, 2.0**300])
def test_the_only_term_of_a_gradient_has_unit_length(size: float) -> None:
    """Only one of the two other tokens differs from the selected one: its term is the largest and is divided by its own
    size.
    """
    keys = np.array([[[0.0, 0.0], [0.6 * size, -0.8 * size]]])
    gradient = risk.scaled_gradient(keys, np.array([[1.0, 0.0]]), LOGISTIC, np.array([-1.0, 0.5]) / size)
    assert float(np.linalg.norm(gradient.direction)) == pytest.approx(1.0, rel=8 * EPS)
