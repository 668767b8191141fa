"""The tiled kernel is right: output, gradients and log-sum-exp agree with PyTorch's, for every option and precision."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from examples.real_faults.attention import Tiled, tiled, tiled_sdpa, with_flash, with_plain, with_sdpa

NAMES = ("out", "dq", "dk", "dv")
SIZES = [(1, 1, 1, 1), (5, 33, 4, 3), (33, 64, 3, 5), (40, 31, 8, 8)]
"""Numbers of queries and keys and widths of keys and values (L, T, E, m): one of each, ragged blocks, whole blocks with
wider values, more queries than keys.
"""


class ByAutograd(Tiled):
    """The tiled kernel without its own backward pass."""

    by_autograd = True


def gaussian(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def inputs(l: int, t: int, e: int, m: int, key_heads: int = 4, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Return query, key and value in PyTorch's layout, and an upstream gradient."""
    shapes = (4, l, e), (key_heads, t, e), (key_heads, t, m), (4, l, m)
    return [gaussian(2, *shape, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes)]


def numbers(attention: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, upstream: Tensor) -> dict[str, Tensor]:
    leaves = [x.detach().clone(memory_format=torch.preserve_format).requires_grad_() for x in (q, k, v)]
    out = attention(*leaves)
    return dict(zip(NAMES, (out.detach(), *torch.autograd.grad(out, leaves, upstream)), strict=True))


def assert_close(found: dict[str, Tensor], right: dict[str, Tensor], terms: int) -> None:
    """Assert that results are equal up to rounding. A sum of N terms of size s errs by at most N·eps·s; logits and
    weights are of size 4, each number is a sum of at most ``terms`` products of these, and two numbers are compared.
    Numbers that are rounded to half precision at the end are computed in float32.
    """
    for name in NAMES:
        own = torch.finfo(found[name].dtype).eps
        computed = min(own, torch.finfo(torch.float32).eps)
        tolerance = 2 * terms * computed * 4 * max(1.0, float(right[name].abs().max()))
        assert tolerance < 1e-3
        ends = {"rtol": own / 2 if own > computed else 0.0, "atol": tolerance, "msg": name}
        torch.testing.assert_close(found[name].to(right[name].dtype), right[name], **ends)


def as_sdpa(**options: Any) -> Callable[..., Tensor]:
    """Return the flash interface for tensors in PyTorch's layout."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return tiled(*(x.transpose(1, 2) for x in (q, k, v)), **options).transpose(1, 2)

    return attention


def torch_with(**options: Any) -> Callable[..., Tensor]:
    return lambda *qkv: scaled_dot_product_attention(*qkv, enable_gqa=True, **options)


def ours_with(**options: Any) -> Callable[..., Tensor]:
    return lambda *qkv: tiled_sdpa(*qkv, enable_gqa=True, **options)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("key_heads", [4, 2, 1])
@pytest.mark.parametrize("option", ["none", "causal", "scale", "mask", "mask per head", "hidden row", "additive"])
def test_sdpa_agrees_with_pytorch(option: str, key_heads: int, sizes: tuple[int, int, int, int]) -> None:
    l, t, *_ = sizes
    mask = gaussian(l, t, seed=7) < 0.5
    options: dict[str, Any] = {
        "none": {},
        "causal": {"is_causal": True},
        "scale": {"scale": 0.3},
        "mask": {"attn_mask": mask},
        "mask per head": {"attn_mask": gaussian(2, 4, l, t, seed=8) < 0.5},
        "hidden row": {"attn_mask": mask & (torch.arange(l) > 0)[:, None]},
        "additive": {"attn_mask": gaussian(2, 1, l, t, seed=8).masked_fill(~mask, -math.inf)},
    }[option]
    given = inputs(*sizes, key_heads=key_heads)
    assert_close(numbers(ours_with(**options), *given), numbers(torch_with(**options), *given), sum(sizes))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("key_heads", [4, 2])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [(-1, -1), (3, -1), (-1, 2), (3, 0), (0, 40)])
def test_flash_agrees_with_pytorch_under_the_same_mask(
    window: tuple[int, int], causal: bool, key_heads: int, sizes: tuple[int, int, int, int]
) -> None:
    l, t, *_ = sizes
    before, after = window[0] if window[0] >= 0 else t + l, 0 if causal else window[1] if window[1] >= 0 else t + l
    ends = torch.ones(l, t, dtype=torch.bool)
    mask = ends.triu(t - l - before) & ends.tril(t - l + after)
    given = inputs(*sizes, key_heads=key_heads)
    result = numbers(as_sdpa(causal=causal, window_size=window), *given)
    assert_close(result, numbers(torch_with(attn_mask=mask), *given), sum(sizes))


@pytest.mark.parametrize("causal", [False, True])
def test_softcap_and_log_sum_exp_agree_with_the_textbook(causal: bool) -> None:
    l, t, e, m = 33, 40, 4, 3
    given = inputs(l, t, e, m)

    def logits(q: Tensor, k: Tensor) -> Tensor:
        capped = 1.5 * torch.tanh(q @ k.mT * 0.7 / 1.5)
        return capped.masked_fill(torch.ones(l, t, dtype=torch.bool).triu(t - l + 1), -math.inf) if causal else capped

    options = {"causal": causal, "softcap": 1.5, "softmax_scale": 0.7}
    right = numbers(lambda q, k, v: logits(q, k).softmax(dim=-1) @ v, *given)
    assert_close(numbers(as_sdpa(**options), *given), right, l + t + e)
    _, lse = tiled(*(x.transpose(1, 2) for x in given[:3]), **options, return_lse=True)
    assert not lse.requires_grad
    torch.testing.assert_close(lse, logits(*given[:2]).logsumexp(dim=-1), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("option", [{}, {"causal": True}, {"window_size": (5, 2)}, {"softcap": 2.0}], ids=str)
def test_the_backward_pass_is_the_gradient_of_the_forward_pass(option: dict[str, Any]) -> None:
    given = [x.transpose(1, 2) for x in inputs(37, 33, 4, 4, key_heads=2)]
    passes = [numbers(lambda *qkv, to=to: with_flash(to)(*qkv, **option), *given) for to in (Tiled, ByAutograd)]
    assert_close(*passes, 37 + 33 + 4)


def test_the_plain_interface_has_scale_one_and_any_number_of_axes() -> None:
    q, k, v, upstream = inputs(5, 33, 4, 3)
    for cut in (lambda x: x, lambda x: x[0], lambda x: x[0, 0]):
        given = [cut(x) for x in (q, k, v, upstream)]
        right = numbers(lambda *qkv: scaled_dot_product_attention(*qkv, scale=1.0), *given)
        assert_close(numbers(with_plain(Tiled), *given), right, 45)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_results_in_other_precisions_agree_with_float64_up_to_rounding(dtype: torch.dtype) -> None:
    given = inputs(9, 70, 8, 8, key_heads=2, dtype=dtype)
    result = numbers(ours_with(is_causal=True), *given)
    assert {x.dtype for x in result.values()} == {dtype}
    right = numbers(ours_with(is_causal=True), *(x.double() for x in given))
    assert_close(result, right, 87)
    _, lse = tiled(*(x.transpose(1, 2) for x in given[:3]), return_lse=True)
    assert lse.dtype == torch.float32


@pytest.mark.parametrize("size", [1e30, -1e30])
def test_numbers_of_masked_keys_do_not_change_results(size: float) -> None:
    q, k, v, upstream = inputs(5, 40, 4, 4)
    mask = torch.arange(40) % 3 > 0
    poisoned = [x.clone() for x in (k, v)]
    for x in poisoned:
        x[..., ~mask, :] = size
    options = {"attn_mask": mask[None, :]}
    clean, dirty = (numbers(ours_with(**options), q, *kv, upstream) for kv in ((k, v), poisoned))
    assert all(torch.equal(clean[name], dirty[name]) for name in NAMES)
    assert not dirty["dk"][..., ~mask, :].any()
    assert not dirty["dv"][..., ~mask, :].any()


def test_results_in_both_layouts_are_the_same() -> None:
    q, k, v, upstream = inputs(7, 40, 4, 4)
    right = numbers(tiled_sdpa, q, k, v, upstream)
    transposed = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    sliced = [torch.stack([x, x], dim=-1)[..., 0] for x in (q, k, v)]
    for given in (transposed, sliced):
        assert not given[0].is_contiguous()
        assert_close(numbers(tiled_sdpa, *given, upstream), right, 51)


def test_the_interfaces_have_the_signatures_of_the_libraries() -> None:
    sdpa = "(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False)"
    flash = "(q, k, v, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, return_lse=False)"
    for kernel, expected in {tiled_sdpa: sdpa, tiled: flash, with_plain(Tiled): "(query, keys, values)"}.items():
        parameters = inspect.signature(kernel).parameters.values()
        bare = inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in parameters])
        assert str(bare) == expected
    assert pickle.loads(pickle.dumps(tiled)) is tiled
    assert pickle.loads(pickle.dumps(tiled_sdpa)) is tiled_sdpa


def test_unsupported_options_are_refused_in_one_sentence() -> None:
    q, k, v, _ = inputs(3, 3, 2, 2, key_heads=2)
    with pytest.raises(ValueError, match="leave dropout_p at 0"):
        tiled_sdpa(q, q, q, dropout_p=0.5)
    with pytest.raises(
        ValueError, match=r"heads of query \(2, 4, 3, 2\) and key \(2, 2, 3, 2\) differ: give enable_gqa=True"
    ):
        with_sdpa(Tiled)(q, k, v)
