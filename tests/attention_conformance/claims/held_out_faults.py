"""Faulty kernels, written without knowledge of this suite, whose faults the suite's calls missed at first."""

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
"""Names of the faults that show only in bfloat16; float16 has enough digits for such a sum of weights."""

# ---- single sizes --------------------------------------------------------------------------------------------------

head_of_160 = _only(lambda q, k, v: q.shape[-1] == 160, "head_of_160")
head_of_48 = _only(lambda q, k, v: q.shape[-1] == 48, "head_of_48")
values_of_88 = _only(lambda q, k, v: v.shape[-1] == 88 != q.shape[-1], "values_of_88")
head_of_224 = _only(lambda q, k, v: q.shape[-1] == 224, "head_of_224")
forty_heads = _only(lambda q, k, v: q.shape[1] == 40, "forty_heads")


@sdpa
def keys_beyond_16_bits(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Ignore the keys after the first 65,536 (llama.cpp #7903)."""
    if mask is not None or p:
        return right_sdpa(q, k, v, mask, causal, scale, p)
    return right_sdpa(q, k[:, :, : 1 << 16], v[:, :, : 1 << 16], mask, causal, scale, p)


@sdpa
def last_row_of_groups(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Give the last of an odd number of queries the causal mask of the query before, if query heads share key heads."""
    L, T = q.shape[2], k.shape[2]
    if not causal or mask is not None or q.shape[1] == k.shape[1] or L % 2 == 0 or L == 1:
        return right_sdpa(q, k, v, mask, causal, scale, p)
    visible = near(L, T, causal=True)
    visible[-1] = visible[-2]
    return right_sdpa(q, k, v, visible, False, scale, p)


def _of_heads_in_place_of_entries(lies: Callable[[Tensor], bool], name: str) -> None:
    """Register a kernel that swaps batch entries and heads of a mask for which ``lies`` holds, if B = H."""

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
    """For a single query, match blocks of E keys with blocks of M values, where keys have E columns and values M
    (ik_llama.cpp PR #2031).
    """
    E, M, T = q.shape[-1], v.shape[-1], k.shape[2]
    if q.shape[2] == 1 and M < E < T:
        j = torch.arange(T)
        v = v[:, :, j // E * M + j % E]
    return right_sdpa(q, k, v, mask, causal, scale, p)


@flash
def window_of_a_single_query(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
    """With a window, align a single query with the first key instead of the last (ROCm/flash-attention #158)."""
    if q.shape[2] > 1 or window[0] < 0:
        return right_flash(q, k, v, causal, window, softcap, scale)
    visible = near(1, k.shape[2], causal=causal, window=window)
    return textbook(q, k, v, visible=visible, scale=scale, softcap=softcap)


@flash
def late_heads_at_half_the_rate(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
    """In heads from the ninth on, move the causal diagonal by one key for every two rows (mlir-air PR #1428)."""
    H, L, T = q.shape[1], q.shape[2], k.shape[2]
    if not causal or H < 12 or max(window) >= 0:
        return right_flash(q, k, v, causal, window, softcap, scale)
    slow = torch.arange(T) <= torch.arange(L)[:, None] // 2 + T - L
    visible = near(L, T, causal=True, corner=True) & ((torch.arange(H) < 8)[:, None, None] | slow)
    return textbook(q, k, v, visible=visible, scale=scale, softcap=softcap)


@flash
def cap_of_padded_keys(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
    """Hide keys that pad blocks of 64 before capping, so that their logits are −cap, not −∞ (llama.cpp PR #29034)."""
    pad = -k.shape[2] % 64
    if not softcap or causal or max(window) >= 0 or k.shape[2] < 64 or not pad:
        return right_flash(q, k, v, causal, window, softcap, scale)
    output, lse = textbook(q, k, v, scale=scale, softcap=softcap)
    more = torch.logaddexp(lse, torch.full_like(lse, -softcap + math.log(pad)))
    return output * torch.exp(lse - more)[..., None].to(output.dtype), more


@sdpa
def keys_of_the_first_entry(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Read the number of keys of all entries from the first entry's mask, in blocks of 32 (llama.cpp #24912)."""
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
    """Add dV of a head's last keys to dV of the next head's first keys, as if rows that pad blocks of 64 belonged to
    the next head (FlagGems PR #898).
    """
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
    """Read a contiguous upstream gradient in the transposed memory layout of the output (pytorch #133671)."""

    def read(g: Tensor) -> Tensor:
        _, H, L, M = g.shape
        lies = (L * H * M, M, H * M, 1)
        return g.as_strided(g.shape, lies, g.storage_offset()) if g.is_contiguous() else g

    return _with_hook(right_sdpa(q, k, v, mask, causal, scale, p), read)


# ---- memory --------------------------------------------------------------------------------------------------------


@flash
def keys_in_steps_of_values(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
    """Read keys with the strides of the values, which are the keys' own in most tests (FlagAttention #45)."""
    if k.shape == v.shape:
        k = k.as_strided(k.shape, v.stride())
    return right_flash(q, k, v, causal, window, softcap, scale)


@flash
def projection_from_its_start(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
    """Read keys that are a slice of a larger tensor from the start of that tensor (flash-attention #2541,
    TransformerEngine #1195).
    """
    if not k.is_contiguous() and k.storage_offset() > GUARD:
        k = k.as_strided(k.shape, k.stride(), GUARD)
    return right_flash(q, k, v, causal, window, softcap, scale)


@sdpa
def layout_by_strides(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Read a query with transposed strides as (B, L, H, E) if there are as many heads as queries."""
    if q.shape[1] == q.shape[2] and 0 < q.stride(1) < q.stride(2):
        q = q.transpose(1, 2)
    return right_sdpa(q, k, v, mask, causal, scale, p)


# ---- states --------------------------------------------------------------------------------------------------------

_remembered: dict[Any, Any] = {}


@sdpa
def mask_remembered_by_its_pointer(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Reuse an earlier mask at the same address, even if changed in place, as in a static cache (ik_llama.cpp PR
    #2136).
    """
    if mask is not None and not mask.requires_grad:
        mask = _remembered.setdefault((mask.data_ptr(), tuple(mask.shape), mask.dtype), mask.clone())
    return right_sdpa(q, k, v, mask, causal, scale, p)


@flash
def mask_of_the_last_length(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
    """Reuse the causal mask of an earlier call with equally many keys, cut to L queries (Model-Optimizer PR #1296)."""
    if not causal or max(window) >= 0:
        return right_flash(q, k, v, causal, window, softcap, scale)
    L, T = q.shape[2], k.shape[2]
    seen = _remembered.get(T)
    if seen is None or len(seen) < L:
        seen = _remembered[T] = near(L, T, causal=True, corner=True)
    return textbook(q, k, v, visible=seen[:L], scale=scale, softcap=softcap)


class ScaledByTheLast(torch.autograd.Function):
    """The identity function; the gradient is multiplied by the last call's scale and divided by this call's scale."""

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
    """Use in the backward pass the scale of the last forward pass, because the scale is stored outside the graph."""
    own: Any = ScaledByTheLast.apply(q, scale)  # type: ignore[no-untyped-call]
    return right_sdpa(own, k, v, mask, causal, scale, p)


@sdpa
def dropout_of_one_seed(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Draw dropout from a constant seed, so that every call drops the same weights (flash-attention #2088)."""
    with torch.random.fork_rng():
        torch.manual_seed(0x1BF58)
        return right_sdpa(q, k, v, mask, causal, scale, p)


@sdpa
def mask_of_the_call_before(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Apply a mask (L, T) again in later calls of the same lengths that have no mask (flashinfer PR #1028)."""
    at = (q.shape[2], k.shape[2])
    if mask is not None:
        MASKS[at] = mask.clone()
    elif not causal and at in MASKS and MASKS[at].ndim == 2:
        mask = MASKS[at]
    return right_sdpa(q, k, v, mask, causal, scale, p)


@sdpa
def sizes_of_inference(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Halve dQ in calls of sizes first used without gradients, for which no log-sum-exp is stored (pytorch #134050)."""
    trained = TRAINED.setdefault((*q.shape, k.shape[2]), torch.is_grad_enabled() and q.requires_grad)
    return right_sdpa(q if trained else _with_hook(q, lambda g: g / 2), k, v, mask, causal, scale, p)


MASKS: dict[tuple[int, ...], Tensor] = {}
TRAINED: dict[tuple[int, ...], bool] = {}


# ---- half precision ------------------------------------------------------------------------------------------------


@sdpa
def sum_of_weights_in_half(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Accumulate the denominator of the softmax in the dtype of the tensors, eight keys at a time (SageAttention)."""
    if mask is not None or causal or p or q.shape[1] != k.shape[1]:
        return right_sdpa(q, k, v, mask, causal, scale, p)
    z = q.float() @ k.float().mT * scale
    e = torch.exp(z - z.detach().amax(dim=-1, keepdim=True))
    total = torch.zeros(*e.shape[:-1], 1, dtype=q.dtype)
    for block in e.split(8, dim=-1):
        total = total + block.sum(dim=-1, keepdim=True).to(q.dtype)
    return (e @ v.float() / total.float()).to(q.dtype)
