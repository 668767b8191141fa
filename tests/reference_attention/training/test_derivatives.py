"""Gradients as fast functions of p: where raw logits cancel, where scores tie, and for many problems at once."""

from __future__ import annotations

import numpy as np
import pytest

from reference_attention.losses import LOSSES
from reference_attention.training.derivatives import Selected, batch_gradient_field, gradient_field

EPS = float(np.finfo(float).eps)
LOGISTIC = LOSSES["logistic"]


@pytest.mark.parametrize("seed", range(5))
def test_where_raw_logits_cancel_the_selected_token_is_the_one_of_the_differences(seed: int) -> None:
    # Logits of 2⁶⁷ whose differences, below 2¹⁴, are less than their last digit: raw ones select the first token.
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
def test_a_batch_of_problems_has_the_gradient_of_each(b: int, ties: bool) -> None:
    rng = np.random.default_rng(b)
    keys, scores = rng.normal(size=(b, 2, 3, 4)), rng.normal(size=(b, 2, 3))
    low = np.argsort(scores, axis=-1)[..., :2]
    if ties:
        np.put_along_axis(scores, low, scores.min(axis=-1, keepdims=True), axis=-1)
    field = batch_gradient_field(keys, scores, LOGISTIC)
    one, other = np.moveaxis(np.take_along_axis(keys, low[..., None], axis=-2)[:, 0], 1, 0)
    # Beside the boundary of the two lowest tokens of the first input: where they tie, the mean gap alone tells them
    # apart, and it underflows, but its logarithm does not.
    apart, middle = one - other, one + other
    middle -= np.vecdot(middle, apart)[:, None] / np.vecdot(apart, apart)[:, None] * apart
    for p in (*rng.normal(size=(4, b, 4)), 1e4 * one, -1e4 * one, 1e4 * one[::-1], 1e4 * middle):
        log_scale, direction = field(p)
        for k in range(b):
            single = gradient_field(keys[k], scores[k], LOGISTIC)(p[k])
            assert log_scale[k] == pytest.approx(single[0], rel=8 * EPS, abs=8 * EPS)
            assert direction[k] == pytest.approx(single[1], rel=1e-12, abs=1e-12)
