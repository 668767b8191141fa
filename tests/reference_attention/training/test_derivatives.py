"""Gradients as fast functions of p: where raw logits cancel, where tokens tie, and for batches of problems."""

from __future__ import annotations

import numpy as np
import pytest

from reference_attention.losses import LOSSES
from reference_attention.risk import scaled_gradient
from reference_attention.training.batched_gradient import BatchedGradient
from reference_attention.training.derivatives import (
    NORMAL,
    Selected,
    cancellation_threshold,
    gradient_field,
    newton_field,
)

EPS = float(np.finfo(float).eps)
LOGISTIC, CORRELATION = LOSSES["logistic"], LOSSES["correlation"]


@pytest.mark.parametrize("seed", range(5))
def test_where_rounded_logits_tie_differences_of_keys_select_the_token(seed: int) -> None:
    # The logits are about 2⁶⁷ and their differences, below 2¹⁴, are lost to rounding: rounded logits select the first
    # token.
    along = np.random.default_rng(seed).integers(0, 2**14, size=(3, 4)).astype(float)
    keys = np.stack([np.full((3, 4), 2.0**40), along], axis=-1)
    p = np.array([2.0**27, 1.0])
    at = Selected(keys, np.zeros((3, 4)))
    differences, relative = at(p)
    assert along[:, 0].tolist() != along.max(axis=1).tolist()
    assert at.token.tolist() == along.argmax(axis=1).tolist()
    ordered = np.sort(along, axis=1)
    assert np.sort(relative, axis=1) == pytest.approx(ordered[:, :-1] - ordered[:, -1:], abs=0)
    assert ((differences.rows @ p).reshape(3, 3) == relative).all()


@pytest.mark.parametrize("b", [1, 3])
@pytest.mark.parametrize("ties", [False, True])
def test_a_batch_of_problems_has_the_gradient_of_each_problem(b: int, ties: bool) -> None:
    rng = np.random.default_rng(b)
    keys, scores = rng.normal(size=(b, 2, 3, 4)), rng.normal(size=(b, 2, 3))
    low = np.argsort(scores, axis=-1)[..., :2]
    if ties:
        np.put_along_axis(scores, low, scores.min(axis=-1, keepdims=True), axis=-1)
    field = BatchedGradient(keys, scores, LOGISTIC)
    first, second = np.moveaxis(np.take_along_axis(keys, low[..., None], axis=-2)[:, 0], 1, 0)
    # At p the two lowest tokens of the first input nearly tie. Where they tie, the mean gap alone tells them apart, and
    # it underflows, but its logarithm does not.
    apart, middle = first - second, first + second
    middle -= np.vecdot(middle, apart)[:, None] / np.vecdot(apart, apart)[:, None] * apart
    for p in (*rng.normal(size=(4, b, 4)), 1e4 * first, -1e4 * first, 1e4 * first[::-1], 1e4 * middle):
        log_scale, direction = field(p)
        for k in range(b):
            single = gradient_field(keys[k], scores[k], LOGISTIC)(p[k])
            within = 8 * EPS * (1 + np.abs(keys[k]).max() * np.abs(p[k]).sum())  # sums of logits in another order
            assert direction[k] * np.exp(log_scale[k] - single[0]) == pytest.approx(single[1], rel=within, abs=within)
            by_logarithms = scaled_gradient(keys[k], scores[k], LOGISTIC, p[k])
            in_its_scale = direction[k] * np.exp(log_scale[k] - by_logarithms.log_scale)
            assert in_its_scale == pytest.approx(by_logarithms.direction, rel=within, abs=within)


def test_gradients_that_cancel_or_underflow_are_computed_in_logarithms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token of the largest weight has exactly the input's mean score, and the input's other token weighs e^−2000
    times as much.
    """
    keys = np.array([[[[0.0, 1.0], [1.0, 0.0], [-2000.0, 3.0]]], [[[0.0, 1.0], [1.0, 0.5], [0.5, 3.0]]]])
    scores = np.array([[[1.0, 1.0, 0.0]], [[1.0, 0.5, 0.0]]])
    requests: list[int] = []
    original = BatchedGradient._by_logarithms

    def counted(self: BatchedGradient, p: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        requests.extend(np.flatnonzero(which).tolist())
        return original(self, p, which)

    monkeypatch.setattr(BatchedGradient, "_by_logarithms", counted)
    p = np.array([[1.0, 0.0], [0.3, -0.2]])
    log_scale, direction = BatchedGradient(keys, scores, LOGISTIC)(p)
    assert requests == [0]
    for k in range(2):
        expected = gradient_field(keys[k], scores[k], LOGISTIC)(p[k])
        assert direction[k] * np.exp(log_scale[k] - expected[0]) == pytest.approx(expected[1], rel=1e-12, abs=1e-12)
    assert log_scale[0] < -1900


@pytest.mark.parametrize("tokens", [4, 60])
def test_gradients_in_both_layouts_of_arrays_follow_changes_of_the_selected_token(tokens: int) -> None:
    """Small problems are laid out with the batch last, large ones problem by problem."""
    rng = np.random.default_rng(0)
    keys, scores = rng.normal(size=(5, 3, tokens, 20)), rng.normal(size=(5, 3, tokens))
    field = BatchedGradient(keys, scores, LOGISTIC)
    assert field._by_blas == (tokens == 60)
    # The last points are near the origin, where logits differ by less than one.
    for p in (*(10 * rng.normal(size=(6, 5, 20))), *(0.01 * rng.normal(size=(3, 5, 20)))):
        log_scale, direction = field(p)
        assert (field._token == (keys @ p[:, None, :, None])[..., 0].argmax(axis=-1)).all()
        for k in range(5):
            expected = gradient_field(keys[k], scores[k], LOGISTIC)(p[k])
            assert direction[k] * np.exp(log_scale[k] - expected[0]) == pytest.approx(expected[1], rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("below", [650.0, 700.0, 1000.0])
def test_a_coordinate_that_only_a_tiny_weight_moves_is_accurate(below: float) -> None:
    """The coordinate's only term is accurate to the last digits down to the smallest normal number, and zero below."""
    keys = np.array([[[0.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [1.0, 0.0]]])
    scores, p = np.array([[0.0, -1.0], [0.0, -1.0]]), np.array([-1.0, -below])
    log_scale, direction = BatchedGradient(keys[None], scores[None], CORRELATION)(p[None])
    far = np.exp(-below) if below < 705 else 0.0
    near = np.exp(-1.0) / (1 + np.exp(-1.0)) ** 2
    for scale, found in ((log_scale[0], direction[0]), gradient_field(keys, scores, CORRELATION)(p)):
        assert np.exp(scale) * found == pytest.approx([near / 2, far / 2], rel=1e-12, abs=0)


def test_a_batch_has_no_subnormal_weights() -> None:
    """Subnormal weights would make arithmetic slow, and have lost digits."""
    keys = np.array([[[0.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [1.0, 0.0]]])
    scores = np.array([[0.0, -1.0], [0.0, -1.0]])
    for below, weighs in ((707.0, True), (709.5, False), (720.0, False)):
        _, direction = BatchedGradient(keys[None], scores[None], CORRELATION)(np.array([[-1.0, -below]]))
        assert (direction[0, 1] != 0) == weighs


def test_the_cancellation_threshold_is_the_one_computed_by_hand() -> None:
    """Scores of the second input differ by up to 7·10⁹; the longest key, (3, 4)·10⁵, is in the first."""
    keys = np.array([[[3e5, 4e5], [0.0, 1.0], [5e4, 0.0]], [[1.0, 1.0], [2.0, 0.0], [0.0, 3e5]]])
    scores = np.array([[1.0, 3.0, 2.0], [-4e9, 3e9, 0.0]])
    least = cancellation_threshold(keys, scores)
    assert least == pytest.approx((1e-150 * 5e5 * 7e9) ** 2, rel=1e-12, abs=0)
    assert cancellation_threshold(keys * 1e-5, scores * 1e-9) == NORMAL
    # Each problem of a batch has its own threshold.
    assert cancellation_threshold(np.array([keys, keys]), np.array([scores, np.ones((2, 3))])).tolist() == [
        least,
        NORMAL,
    ]


@pytest.mark.parametrize("gap", [0.0, 1e-300, 1e-151, 1e-12])
@pytest.mark.parametrize("third", [1.0, -1.0, 1e-9])
def test_gradients_are_accurate_where_another_token_ties_with_the_selected_one(gap: float, third: float) -> None:
    """The tie is one of logits and, if ``gap`` is small, of scores. Near the origin all tokens weigh the same; far away
    the third weighs 0.
    """
    keys = np.array(
        [[[1.0, 0.0, 0.3], [0.0, 1.0, 0.0], [-1.0, -0.5, 0.0]], [[0.0, 0.5, 0.1], [0.5, 0.0, 0], [0.0] * 3]]
    )
    scores = np.array([[gap, 0.0, third], [1.0, 0.5, 0.0]])
    along = np.array([[1.0, 1.0, 0.0], [3.0, 0.1, 0.0], [0.1, 3.0, 1.0], [1.0, 1.0 + 1e-9, 0.0]])
    for size in (0.0, 1e-3, 1.0, 30.0, 300.0, 460.0, 700.0, 3000.0):
        for n in (1, 2):
            field = BatchedGradient(
                np.repeat(keys[None, :n], 4, axis=0), np.repeat(scores[None, :n], 4, axis=0), LOGISTIC
            )
            log_scale, direction = field(size * along)
            for k, p in enumerate(size * along):
                expected = scaled_gradient(keys[:n], scores[:n], LOGISTIC, p)
                alone = gradient_field(keys[:n], scores[:n], LOGISTIC)(p)
                # Allowed is the rounding of logits and of the logarithm of the scale, which exceeds logits by that of a
                # score.
                within = 16 * EPS * (3 * size + 32) * float(np.linalg.norm(expected.direction))
                for log, found in ((log_scale[k], direction[k]), alone):
                    off = found * np.exp(log - expected.log_scale) - expected.direction
                    assert np.linalg.norm(off) <= within


def test_hessians_are_accurate_where_logarithms_are_needed_or_a_slope_is_negligible() -> None:
    """The first problem's gradient cancels; in the second, |ℓ'| of one input is e^−900 times that of the other."""
    keys = np.array([[[[0.0, 1.0], [1.0, 0.0], [-700.0, 3.0]]] * 2, [[[0.0, 1.0], [1.0, 0.5], [0.5, 3.0]]] * 2])
    scores = np.array([[[1.0, 1.0, 0.0]] * 2, [[1.0, 0.5, 0.0], [900.0, 899.0, 900.5]]])
    p = np.array([[1.0, 0.0], [0.3, -0.2]])
    log_scale, direction, curvature = BatchedGradient(keys, scores, LOGISTIC).newton(p)
    for k in range(2):
        log, slope, bent = newton_field(keys[k], scores[k], LOGISTIC)(p[k])
        factor = np.exp(log_scale[k] - log)
        np.testing.assert_allclose(direction[k] * factor, slope, rtol=1e-12, atol=1e-12 * np.abs(slope).max())
        np.testing.assert_allclose(curvature[k] * factor, bent, rtol=1e-12, atol=1e-12 * np.abs(bent).max())
