"""Calls of kernels: sizes at and around those of blocks, every option reached, exact calls exact."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from generators.attention_call import Alignment, AttentionCall, Memory
from generators.attention_calls import (
    ENTRIES,
    LONG,
    additive_mask_calls,
    boolean_mask_calls,
    causal_calls,
    default_scale_calls,
    exact_calls,
    grouped_calls,
    laid_out_calls,
    rounded_calls,
    scaled_calls,
    sizes,
    softcapped_calls,
    windowed_calls,
)

MANY = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[*HealthCheck],
)
FEW = settings(MANY, max_examples=60)
SMALLEST = settings(max_examples=200, deadline=None, derandomize=True, database=None)


def drawn(calls: st.SearchStrategy[Any], wanted: settings = FEW) -> list[Any]:
    """What a strategy draws."""
    found: list[Any] = []

    @wanted
    @given(calls)
    def draw(call: Any) -> None:
        found.append(call)

    draw()
    return found


def test_sizes_reach_each_length_around_blocks_and_stay_affordable() -> None:
    found = drawn(sizes(), settings(MANY, max_examples=1500))
    for length in LONG:
        assert any(length == of.T for of in found), length
    assert {8, 16, 32, 33, 64, 65, 128, 256} <= {of.E for of in found}
    assert {1, 2, 3} <= {of.B for of in found}
    assert {1, 2, 3} <= {of.H for of in found}
    assert any(max(of.L, of.T) <= 5 >= of.E for of in found)
    assert any(of.L > of.T for of in found)
    assert any(of.M > of.E for of in found)
    assert any(of.M < of.E for of in found)
    assert max(of.cost for of in found) <= ENTRIES
    assert {of.H // of.G for of in drawn(sizes(grouped=True))} == {2, 3, 4}
    assert all(of.L == of.T for of in drawn(sizes(square=True)))
    assert all(of.L != of.T for of in drawn(sizes(square=None)))


def test_a_call_shrinks_to_one_of_everything() -> None:
    assert set(find(rounded_calls(), lambda call: True, settings=SMALLEST).sizes.values()) == {1}


OPTIONS: dict[str, tuple[Callable[[], st.SearchStrategy[AttentionCall]], tuple[Callable[[AttentionCall], bool], ...]]]
OPTIONS = {
    "scale": (scaled_calls, (lambda call: call.scale == 0.3, lambda call: call.scale == 2.0, lambda call: call.exact)),
    "default scale": (default_scale_calls, (lambda call: call.scale is None,)),
    "softcap": (softcapped_calls, tuple(lambda call, c=c: call.softcap == c for c in (0.5, 2.0, 30.0))),
    "causal": (causal_calls, (lambda call: call.causal and call.exact, lambda call: call.causal and not call.exact)),
    "rectangle": (
        lambda: causal_calls(square=None),
        (
            lambda call: call.query.shape[2] < call.key.shape[2],
            lambda call: call.query.shape[2] > call.key.shape[2],
            lambda call: call.exact,
        ),
    ),
    "boolean mask": (
        boolean_mask_calls,
        (
            lambda call: call.visible is not None and call.visible.shape == (*call.query.shape[:3], call.key.shape[2]),
            lambda call: call.visible is not None and call.visible.shape[1:3] == (1, 1) and call.query.shape[1] > 1,
        ),
    ),
    "additive mask": (
        additive_mask_calls,
        (
            lambda call: bool(np.isneginf(call.bias).any() and (np.abs(call.bias) < 4).any()),
            lambda call: bool(((call.bias != 0) & np.isfinite(call.bias)).any()),
        ),
    ),
    "window": (
        windowed_calls,
        (
            lambda call: call.window is not None and call.window[1] == 0,
            lambda call: call.window is not None and call.window[0] == -1,
            lambda call: call.window is not None and call.window[1] == -1,
            lambda call: call.causal,
        ),
    ),
    "grouped": (grouped_calls, (lambda call: call.query.shape[1] >= 2 * call.key.shape[1] >= 4,)),
    "memory": (laid_out_calls, tuple(lambda call, k=k: call.memory is k for k in list(Memory)[1:])),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_reached_and_each_row_sees_a_key(name: str) -> None:
    calls, reached = OPTIONS[name]
    found = drawn(calls())
    for k, is_reached in enumerate(reached):
        assert any(map(is_reached, found)), f"{name}, {k}"
    for call in found:
        assert call.visibility(Alignment.TOP_LEFT).any(axis=-1).all()
        if name == "rectangle":
            L, T = call.query.shape[2], call.key.shape[2]
            assert L != T
            # Aligned at the bottom right the first L − T queries see nothing, the others a key.
            assert (call.visibility(Alignment.BOTTOM_RIGHT).any(axis=-1) == (np.arange(L) >= L - T)).all()


def test_a_broadcast_call_repeats_its_first_batch_entry() -> None:
    for call in drawn(laid_out_calls()):
        if call.memory is Memory.BROADCAST:
            for x in (call.query, call.key, call.value):
                assert (x == x[:1]).all()


def bits(x: float) -> int:
    """The length of the significand."""
    numerator = abs(Fraction(x).numerator)
    return (numerator // (numerator & -numerator)).bit_length() if numerator else 0


MASKED = st.one_of(
    exact_calls(),
    exact_calls(grouped=True),
    *(calls().filter(lambda call: call.exact) for calls in (causal_calls, boolean_mask_calls, windowed_calls)),
)


def test_nothing_is_rounded_in_an_exact_call() -> None:
    """Over the integers: every partial sum, in any order, is within the sum of magnitudes, a number of few bits; the
    logits that are not the largest lie so far below that their exponential is zero even in float64.
    """
    reached = set()
    for call in drawn(MASKED):
        assert call.exact
        group = call.query.shape[1] // call.key.shape[1]
        key, value = (np.repeat(x, group, axis=1) for x in (call.key, call.value))
        assert call.scale is not None
        assert bits(call.scale**0.5) == 1  # a power of four: its root is exact, too
        for x in (call.query, key, value, call.upstream):
            assert all(bits(entry) <= 3 for entry in np.unique(x) if abs(entry) < 8)
        # Logits: two coordinates of the query are not zero, and the sum of their products is exact.
        terms = call.query[..., :, None, :] * key[..., None, :, :] * call.scale
        assert np.count_nonzero(call.query, axis=-1).max() <= 2
        logits = np.where(call.visibility(Alignment.TOP_LEFT), terms.sum(axis=-1), -np.inf)
        assert (terms.astype(np.float32) == terms).all()
        top = logits.max(axis=-1, keepdims=True)
        tied = (logits == top).sum(axis=-1)
        reached |= set(np.unique(tied).tolist())
        assert set(np.unique(tied)) <= {1, 2}
        below = logits[(logits < top) & np.isfinite(logits)]
        assert (np.broadcast_to(top, logits.shape)[(logits < top) & np.isfinite(logits)] - below >= 1000).all()
        weights = np.where(logits == top, 1 / tied[..., None], 0.0)
        # |terms| of output, of dV, of the logits' gradients, of dQ and dK: multiples of 1/8 below 2⁸ · 1/8 · 8.
        scores = call.upstream @ np.swapaxes(value, -1, -2)
        dz = weights * (scores - (weights * scores).sum(axis=-1, keepdims=True)) * call.scale
        for products in (
            weights[..., None] * value[..., None, :, :],
            np.swapaxes(weights, -1, -2)[..., None] * call.upstream[..., None, :, :],
        ):
            assert (products * 4 == np.round(products * 4)).all()
            assert np.abs(products).sum(axis=-2).max(initial=0.0) <= 2**8
        content = np.abs(dz[..., None] * key[..., None, :, 2:]).sum(axis=-2)
        assert (dz * 16 == np.round(dz * 16)).all()
        assert content.max(initial=0.0) <= 2**8
    assert reached == {1, 2}
