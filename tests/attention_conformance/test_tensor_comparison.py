"""``assert_attention_close`` and ``attention_tolerance`` in every number format: right results pass,
wrong ones do not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attention_conformance import assert_attention_close, attention_tolerance
from reference_attention.errors import InvalidInput

SDPA = torch.nn.functional.scaled_dot_product_attention
FORMATS = ("float64", "float32", "bfloat16", "float16")


def tensors(dtype: str, H: int = 4, G: int = 2, L: int = 6, T: int = 6, E: int = 8, size: float = 1.0) -> Any:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, H, L, E), (2, G, T, E), (2, G, T, E), (2, H, L, E))
    drawn = (torch.randn(shape, generator=generator, dtype=torch.float64) * size for shape in shapes)
    return tuple(x.to(getattr(torch, dtype)) for x in drawn)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("size", [1e-3, 1.0, 8.0])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"scale": 0.3}])
def test_results_of_pytorch_pass(dtype: str, size: float, options: dict[str, Any]) -> None:
    query, key, value, upstream = tensors(dtype, size=size)
    leaves = [x.requires_grad_() for x in (query, key, value)]
    out = SDPA(query, key, value, is_causal=bool(options.get("causal")), scale=options.get("scale"), enable_gqa=True)
    grads = torch.autograd.grad(out, leaves, upstream)
    assert_attention_close(out, query, key, value, grads=(upstream, *grads), **options)


def test_masks_mean_the_same_as_in_pytorch() -> None:
    query, key, value, _ = tensors("float32", H=2)
    visible = torch.rand(6, 6) < 0.6
    visible[:, 0] = True
    bias = torch.randn(2, 1, 6, 6).masked_fill(torch.rand(2, 1, 6, 6) < 0.2, -torch.inf)
    for mask in (visible, bias):
        out = SDPA(query, key, value, attn_mask=mask)
        assert_attention_close(out, query, key, value, mask=mask)
        with pytest.raises(AssertionError, match=r"^output at \(b, h, l, m\) = \("):
            assert_attention_close(out, query, key, value)


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_message_names_the_wrong_numbers(dtype: str) -> None:
    query, key, value, upstream = tensors(dtype)
    out = SDPA(query, key, value, enable_gqa=True)
    wrong = out.clone()
    wrong[1, 2, 3, 4] += 16
    with pytest.raises(AssertionError, match=rf"= \(1, 2, 3, 4\) .* rounding in {dtype} allows; 1 of 384 entries"):
        assert_attention_close(wrong, query, key, value)
    wrong[1, 2, 3, 4] = torch.nan
    with pytest.raises(AssertionError, match="is nan where"):
        assert_attention_close(wrong, query, key, value)
    grads = upstream, torch.full_like(query, 64), None, torch.full_like(value, 64)
    with pytest.raises(AssertionError, match=r"^dQ at .*; dV at "):
        assert_attention_close(out, query, key, value, grads=grads)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_results_may_be_compared_within_float32_rounding(dtype: str) -> None:
    query, key, value, _ = tensors(dtype)
    out = SDPA(query.float(), key.float(), value.float(), enable_gqa=True).to(query.dtype)
    assert_attention_close(out, query, key, value, dtype="float32")
    with pytest.raises(AssertionError, match="rounding in float32 allows"):
        assert_attention_close(out * 1.02, query, key, value, dtype="float32")
    assert_attention_close(out * 1.02, query, key, value)


def test_a_scale_that_is_off_by_half_a_percent_is_caught_in_float32() -> None:
    query, key, value, _ = tensors("float32")
    out = SDPA(query, key, value, scale=1.005 / 8**0.5, enable_gqa=True)
    with pytest.raises(AssertionError):
        assert_attention_close(out, query, key, value)


def test_arrays_of_two_axes_and_nan_in_rows_without_visible_keys_are_accepted() -> None:
    rng = np.random.default_rng(0)
    query, key, value = rng.standard_normal((3, 5, 4))
    weights = np.exp(query @ key.T / 2)
    out = weights / weights.sum(axis=1, keepdims=True) @ value
    assert_attention_close(out, query, key, value)
    visible = np.ones((5, 5), dtype=bool)
    visible[2] = False
    out[2] = np.nan
    assert_attention_close(out, query, key, value, mask=visible)


@pytest.mark.parametrize("dtype", FORMATS)
def test_results_pass_within_the_tolerance_and_fail_beyond_twice_the_tolerance(dtype: str) -> None:
    query, key, value, _ = tensors(dtype)
    atol, rtol, reason = attention_tolerance(query, key, value, causal=True)
    assert 0 < atol < {"float64": 1e-12, "float32": 1e-3, "bfloat16": 10, "float16": 1}[dtype]
    assert rtol == 0
    assert f"in {dtype}" in reason
    out = SDPA(query.double(), key.double(), value.double(), is_causal=True, enable_gqa=True)
    torch.testing.assert_close(
        SDPA(query, key, value, is_causal=True, enable_gqa=True).double(), out, atol=atol, rtol=rtol
    )
    with pytest.raises(AssertionError):
        assert_attention_close(out + 2 * atol, query, key, value, causal=True, dtype=dtype)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"key": torch.zeros(2, 3, 6, 8)}, "H a multiple of G"),
        ({"query": torch.zeros(8)}, "query: 1 axes"),
        ({"mask": torch.ones(5, 5, dtype=torch.bool)}, "mask: shape"),
        ({"dtype": "float8"}, "dtype: 'float8' is not one of"),
        ({"out": torch.zeros(2, 4, 6, 7)}, "output: shape"),
        ({"grads": (None, None)}, "grads: 2 tensors"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(change: dict[str, Any], says: str) -> None:
    query, key, value, _ = tensors("float32")
    given = {"out": SDPA(query, key, value, enable_gqa=True), "query": query, "key": key, "value": value} | change
    with pytest.raises(InvalidInput, match=says):
        assert_attention_close(**given)
