"""Faults of kernels that were written without knowledge of the suite, and that its calls missed at first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attention_conformance.kernel.memory_layout import GUARD
from tests.attention_conformance.claims.combined_faults import (
    FAULTS,
    _only,
    flash,
    near,
    right_flash,
    right_sdpa,
    sdpa,
    textbook,
)

__all__ = ["FAULTS", "IN_BFLOAT16"]
IN_BFLOAT16 = ("sum_of_weights_in_half",)
"""Faults that show only in bfloat16: float16 has enough digits for sums of so many weights."""

# ---- sizes: each of them alone -------------------------------------------------------------------------------------

head_of_160 = _only(lambda q, k, v: q.shape[-1] == 160, "head_of_160")
head_of_48 = _only(lambda q, k, v: q.shape[-1] == 48, "head_of_48")
values_of_88 = _only(lambda q, k, v: v.shape[-1] == 88 != q.shape[-1], "values_of_88")
head_of_224 = _only(lambda q, k, v: q.shape[-1] == 224, "head_of_224")
forty_heads = _only(lambda q, k, v: q.shape[1] == 40, "forty_heads")


@sdpa
def keys_beyond_16_bits(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Keys beyond the first 65,536 are ignored, which shows where one of them matters (llama.cpp #7903)."""
    if mask is not None or p:
        return right_sdpa(q, k, v, mask, causal, scale, p)
    return right_sdpa(q, k[:, :, : 1 << 16], v[:, :, : 1 << 16], mask, causal, scale, p)


@sdpa
def last_row_of_groups(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """In groups of heads, with an odd number of queries, the last query gets the mask of the query before."""
    L, T = q.shape[2], k.shape[2]
    if not causal or mask is not None or q.shape[1] == k.shape[1] or L % 2 == 0 or L == 1:
        return right_sdpa(q, k, v, mask, causal, scale, p)
    visible = near(L, T, causal=True)
    visible[-1] = visible[-2]
    return right_sdpa(q, k, v, visible, False, scale, p)


def _of_heads_in_place_of_entries(lies: Callable[[Tensor], bool], name: str) -> None:
    """Register a kernel that exchanges the axes of entries and heads of such a mask if both have the same length."""

    def body(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
        if mask is not None and mask.ndim == 4 and q.shape[0] == q.shape[1] > 1 and lies(mask):
            mask = mask.transpose(0, 1)
        return right_sdpa(q, k, v, mask, causal, scale, p)

    body.__name__ = name
    sdpa(body)


_of_heads_in_place_of_entries(lambda x: x.shape[1] == 1 < x.shape[0] and x.dtype == torch.bool, "entries_as_heads")
_of_heads_in_place_of_entries(lambda x: x.shape[1] == 1 < x.shape[0] and x.dtype != torch.bool, "bias_of_entries")
_of_heads_in_place_of_entries(lambda x: x.shape[0] == 1 < x.shape[1] and x.dtype == torch.bool, "heads_as_entries")
_of_heads_in_place_of_entries(lambda x: x.shape[0] == 1 < x.shape[1] and x.dtype != torch.bool, "bias_of_heads")


# ---- sizes and options together ------------------------------------------------------------------------------------


@sdpa
def values_in_steps_of_their_width(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Decoding walks keys in blocks of their width, but values in blocks of theirs (ik_llama.cpp PR #2031)."""
    E, M, T = q.shape[-1], v.shape[-1], k.shape[2]
    if q.shape[2] == 1 and M < E < T:
        j = torch.arange(T)
        v = v[:, :, j // E * M + j % E]
    return right_sdpa(q, k, v, mask, causal, scale, p)


@flash
def window_of_a_single_query(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
    """With a window, a single query is aligned at the first key instead of the last (ROCm/flash-attention #158)."""
    if q.shape[2] > 1 or window[0] < 0:
        return right_flash(q, k, v, causal, window, softcap, scale)
    visible = near(1, k.shape[2], causal=causal, window=window)
    return textbook(q, k, v, visible=visible, scale=scale, softcap=softcap)


@flash
def late_heads_at_half_the_rate(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
    """The counter of causal rows wraps too late: heads from the ninth on see half as far (mlir-air PR #1428)."""
    H, L, T = q.shape[1], q.shape[2], k.shape[2]
    if not causal or H < 12 or max(window) >= 0:
        return right_flash(q, k, v, causal, window, softcap, scale)
    slow = torch.arange(T) <= torch.arange(L)[:, None] // 2 + T - L
    visible = near(L, T, causal=True, corner=True) & ((torch.arange(H) < 8)[:, None, None] | slow)
    return textbook(q, k, v, visible=visible, scale=scale, softcap=softcap)


@flash
def cap_of_padded_keys(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
    """Keys that pad a tile of 64 are hidden before the cap, which turns −∞ into −cap (llama.cpp PR #29034)."""
    pad = -k.shape[2] % 64
    if not softcap or causal or max(window) >= 0 or k.shape[2] < 64 or not pad:
        return right_flash(q, k, v, causal, window, softcap, scale)
    output, lse = textbook(q, k, v, scale=scale, softcap=softcap)
    more = torch.logaddexp(lse, torch.full_like(lse, -softcap + math.log(pad)))
    return output * torch.exp(lse - more)[..., None].to(output.dtype), more


@sdpa
def keys_of_the_first_entry(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """The number of keys is read from the mask of the first entry, in blocks of 32 (llama.cpp #24912)."""
    if mask is not None and mask.ndim == 4 and mask.shape[0] > 1 and mask.dtype == torch.bool:
        first = mask[0].flatten(0, -2).any(0).nonzero()
        last = int(first.max()) if len(first) else k.shape[2]
        mask = mask & (torch.arange(mask.shape[-1]) < (last // 32 + 1) * 32)
    return right_sdpa(q, k, v, mask, causal, scale, p)


# ---- gradients ------------------------------------------------------------------------------------------------------


def _with_hook(x: Tensor, hook: Any) -> Tensor:
    own = x.clone()
    if own.requires_grad:
        own.register_hook(hook)
    return own


@sdpa
def rows_of_the_head_before(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Queries padded to 64 are rows of the next head, and add to dV of its first keys (FlagGems PR #898)."""
    n = -q.shape[2] % 64

    def spoil(g: Tensor) -> Tensor:
        g = g.clone()
        g[:, 1:, :n] += g[:, :-1, -n:].clone()
        return g

    if q.shape[2] > 64 and n and 1 < q.shape[1] == k.shape[1] and k.shape[2] >= n:
        v = _with_hook(v, spoil)
    return right_sdpa(q, k, v, mask, causal, scale, p)


@sdpa
def upstream_in_the_outputs_strides(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """The output's layout is transposed, and a contiguous upstream gradient is read in that layout (pytorch
    #133671).
    """

    def read(g: Tensor) -> Tensor:
        _, H, L, M = g.shape
        lies = (L * H * M, M, H * M, 1)
        return g.as_strided(g.shape, lies, g.storage_offset()) if g.is_contiguous() else g

    return _with_hook(right_sdpa(q, k, v, mask, causal, scale, p), read)


# ---- memory --------------------------------------------------------------------------------------------------------


@flash
def keys_in_steps_of_values(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
    """Keys are read with the strides of the values, which equal their own in most tests (FlagAttention #45)."""
    if k.shape == v.shape:
        k = k.as_strided(k.shape, v.stride())
    return right_flash(q, k, v, causal, window, softcap, scale)


@flash
def projection_from_its_start(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
    """A slice of a fused projection is read from the projection's start (flash-attention #2541, TransformerEngine
    #1195).
    """
    if not k.is_contiguous() and k.storage_offset() > GUARD:
        k = k.as_strided(k.shape, k.stride(), GUARD)
    return right_flash(q, k, v, causal, window, softcap, scale)


@sdpa
def layout_by_strides(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """If there are as many heads as queries, a query with transposed strides is taken for (B, L, H, E)."""
    if q.shape[1] == q.shape[2] and 0 < q.stride(1) < q.stride(2):
        q = q.transpose(1, 2)
    return right_sdpa(q, k, v, mask, causal, scale, p)


# ---- states --------------------------------------------------------------------------------------------------------

_remembered: dict[Any, Any] = {}


@sdpa
def mask_remembered_by_its_pointer(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """A mask changed in place, as that of a static cache is, is replaced by the earlier one (ik_llama.cpp PR #2136)."""
    if mask is not None and not mask.requires_grad:
        mask = _remembered.setdefault((mask.data_ptr(), tuple(mask.shape), mask.dtype), mask.clone())
    return right_sdpa(q, k, v, mask, causal, scale, p)


@flash
def mask_of_the_last_length(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
    """The causal mask is cached by the number of keys, and cut to the queries (Model-Optimizer PR #1296)."""
    if not causal or max(window) >= 0:
        return right_flash(q, k, v, causal, window, softcap, scale)
    L, T = q.shape[2], k.shape[2]
    seen = _remembered.get(T)
    if seen is None or len(seen) < L:
        seen = _remembered[T] = near(L, T, causal=True, corner=True)
    return textbook(q, k, v, visible=seen[:L], scale=scale, softcap=softcap)


class ScaledByTheLast(torch.autograd.Function):
    """The identity, whose gradient is multiplied by the scale of the last call over its own."""

    last = 1.0

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = ScaledByTheLast.last = scale
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return upstream[0] * (ScaledByTheLast.last / ctx.scale), None


@sdpa
def scale_of_the_last_call(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """The scale is stored outside the graph: another call before the backward pass changes it."""
    own: Any = ScaledByTheLast.apply(q, scale)  # type: ignore[no-untyped-call]
    return right_sdpa(own, k, v, mask, causal, scale, p)


@sdpa
def dropout_of_one_seed(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Seed and offset are constants, so that every call drops the same weights (flash-attention #2088)."""
    with torch.random.fork_rng():
        torch.manual_seed(0x1BF58)
        return right_sdpa(q, k, v, mask, causal, scale, p)


@sdpa
def mask_of_the_call_before(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """A custom mask is kept for later calls of the same lengths without a mask (flashinfer PR #1028)."""
    at = (q.shape[2], k.shape[2])
    if mask is not None:
        MASKS[at] = mask.clone()
    elif not causal and at in MASKS and MASKS[at].ndim == 2:
        mask = MASKS[at]
    return right_sdpa(q, k, v, mask, causal, scale, p)


@sdpa
def sizes_of_inference(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Sizes first used without gradients have no log-sum-exp in later backward passes (pytorch #134050)."""
    trained = TRAINED.setdefault((*q.shape, k.shape[2]), torch.is_grad_enabled() and q.requires_grad)
    return right_sdpa(q if trained else _with_hook(q, lambda g: g / 2), k, v, mask, causal, scale, p)


MASKS: dict[tuple[int, ...], Tensor] = {}
TRAINED: dict[tuple[int, ...], bool] = {}


# ---- half precision ------------------------------------------------------------------------------------------------


@sdpa
def sum_of_weights_in_half(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """The sum that normalises the weights is accumulated in half precision, block by block of keys (SageAttention)."""
    if mask is not None or causal or p or q.shape[1] != k.shape[1]:
        return right_sdpa(q, k, v, mask, causal, scale, p)
    z = q.float() @ k.float().mT * scale
    e = torch.exp(z - z.detach().amax(dim=-1, keepdim=True))
    total = torch.zeros(*e.shape[:-1], 1, dtype=q.dtype)
    for block in e.split(8, dim=-1):
        total = total + block.sum(dim=-1, keepdim=True).to(q.dtype)
    return (e @ v.float() / total.float()).to(q.dtype)
