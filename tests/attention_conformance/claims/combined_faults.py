"""Attention kernels, each with one fault that shows only for some options, sizes, memory layouts, earlier calls or
formats.

Each is a right kernel with one fault of a kind that public bug reports describe; a docstring names one of the reports.
Tensors are (B, H, L, E): B batch entries, H heads, L queries (or T keys) and E columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def textbook(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float = 1.0,
    softcap: float = 0.0,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return right attention (half precision in float32) and log-sum-exp; rows without visible keys are 0 and −∞."""
    dtype = query.dtype
    wide = torch.promote_types(dtype, torch.float32)
    group = query.shape[1] // key.shape[1]
    k, v = (x.to(wide).repeat_interleave(group, dim=1) for x in (key, value))
    logits = query.to(wide) @ k.mT * scale
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    if bias is not None:
        logits = logits + bias.to(wide)
    seen = logits > -math.inf
    if visible is not None:
        seen = seen & visible
    empty = ~seen.any(dim=-1, keepdim=True)
    logits = logits.masked_fill(~(seen | empty), -math.inf)
    weights = torch.softmax(logits, dim=-1).masked_fill(~seen, 0.0)
    lse = torch.logsumexp(logits, dim=-1).masked_fill(empty[..., 0], -math.inf)
    return (torch.dropout(weights, dropout, train=True) @ v).to(dtype), lse.detach()


def near(L: int, T: int, *, causal: bool, window: tuple[int, int] = (-1, -1), corner: bool = False) -> Tensor:
    """Return a mask (L, T) of the keys that each row sees; with ``corner`` the last row is aligned with the last key,
    otherwise the first row with the first key.
    """
    ahead = torch.arange(T) - torch.arange(L)[:, None] - (T - L if corner else 0)
    left, right = window
    visible = ahead <= 0 if causal else torch.ones(L, T, dtype=torch.bool)
    visible = visible & (ahead >= -left) if left >= 0 else visible
    return visible & (ahead <= right) if right >= 0 else visible


Kernel = Callable[..., Any]
FAULTS: dict[str, Kernel] = {}
"""Faulty kernels by name."""


def sdpa(body: Callable[..., Tensor]) -> Kernel:
    """Add to :data:`FAULTS` a kernel with PyTorch's signature, made from ``body``."""
    FAULTS[body.__name__] = as_sdpa(body)
    return FAULTS[body.__name__]


def as_sdpa(body: Callable[..., Tensor]) -> Kernel:
    """Return a kernel with PyTorch's signature that passes all arguments to ``body``, the default scale filled in."""

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        chosen = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        return body(query, key, value, attn_mask, is_causal, chosen, dropout_p)

    attention.__name__ = attention.__qualname__ = body.__name__
    return attention


def right_sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float, p: float) -> Tensor:
    """Return right attention, in which a row sees a key if both mask and causality allow it."""
    L, T = q.shape[-2], k.shape[-2]
    visible = near(L, T, causal=True) if causal else None
    if mask is not None and mask.dtype == torch.bool:
        return textbook(q, k, v, visible=mask if visible is None else mask & visible, scale=scale, dropout=p)[0]
    return textbook(q, k, v, visible=visible, bias=mask, scale=scale, dropout=p)[0]


def flash(body: Callable[..., Any]) -> Kernel:
    """Add to :data:`FAULTS` a kernel with flash-attention's signature, made from ``body``."""
    FAULTS[body.__name__] = as_flash(body)
    return FAULTS[body.__name__]


def as_flash(body: Callable[..., Any]) -> Kernel:
    """Return a kernel with flash-attention's signature that passes all arguments, tensors as (B, H, L,
    E), to ``body``.
    """

    def attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[int, int] = (-1, -1),
        softcap: float = 0.0,
        return_lse: bool = False,
    ) -> Any:
        chosen = 1 / math.sqrt(q.shape[-1]) if softmax_scale is None else softmax_scale
        given = (x.transpose(1, 2) for x in (q, k, v))
        out, lse = body(*given, causal, window_size, softcap, chosen)
        return (out.transpose(1, 2), lse) if return_lse else out.transpose(1, 2)

    attention.__name__ = attention.__qualname__ = body.__name__
    return attention


def right_flash(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, window: tuple[int, int], softcap: float, scale: float
) -> tuple[Tensor, Tensor]:
    """Return output and log-sum-exp of right attention; the last row is aligned with the last key."""
    visible = near(q.shape[-2], k.shape[-2], causal=causal, window=window, corner=True)
    return textbook(q, k, v, visible=visible, scale=scale, softcap=softcap)


RIGHT: dict[str, Kernel] = {"sdpa": as_sdpa(right_sdpa), "flash": as_flash(right_flash)}
"""Right kernels with PyTorch's signature (``sdpa``) and flash-attention's (``flash``)."""


# ---- options together ----------------------------------------------------------------------------------------------


@sdpa
def causality_dropped_with_a_mask(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Ignore causality if there is a mask, as tinygrad and gomlx did."""
    return right_sdpa(q, k, v, mask, causal and mask is None, scale, p)


@sdpa
def scaled_twice_when_causal(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Apply the scale twice in causal calls, as Megatron-LM did."""
    return right_sdpa(q, k, v, mask, causal, scale**2 if causal else scale, p)


@sdpa
def mask_dropped_in_groups(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    return right_sdpa(q, k, v, mask if q.shape[1] == k.shape[1] else None, causal, scale, p)


@sdpa
def causality_dropped_in_groups(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    return right_sdpa(q, k, v, mask, causal and q.shape[1] == k.shape[1], scale, p)


@sdpa
def causality_dropped_under_dropout(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    return right_sdpa(q, k, v, mask, causal and p == 0, scale, p)


@sdpa
def bias_scaled(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Multiply the additive mask by the scale, too, as if the mask were added before scaling."""
    if mask is not None and mask.dtype != torch.bool:
        mask = mask * scale
    return right_sdpa(q, k, v, mask, causal, scale, p)


@sdpa
def dropout_not_made_up_for(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    return right_sdpa(q, k, v, mask, causal, scale, p) * (1 - p)


@sdpa
def dropout_ignored(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    return right_sdpa(q, k, v, mask, causal, scale, 0.0)


class KeyGradient(torch.autograd.Function):
    """The identity function, whose backward pass multiplies the gradient by a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return upstream[0] * ctx.factor, None


@sdpa
def scale_of_keys_forgotten_under_a_mask(
    q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float
) -> Tensor:
    if mask is not None:
        k = KeyGradient.apply(k, 1 / scale)  # type: ignore[no-untyped-call]
    return right_sdpa(q, k, v, mask, causal, scale, p)


@flash
def cap_after_the_mask(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
    """Cap logits after hiding keys, so that hidden keys get finite logits and weight again (onnx #7865)."""
    if softcap and causal:
        visible = near(q.shape[-2], k.shape[-2], causal=causal, window=window, corner=True)
        hidden = torch.zeros(visible.shape, dtype=q.dtype).masked_fill(~visible, -2 * softcap)
        return textbook(q, k, v, bias=hidden, scale=scale, softcap=softcap)
    return right_flash(q, k, v, causal, window, softcap, scale)


@flash
def window_from_the_top_left(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
    L, T = q.shape[-2], k.shape[-2]
    visible = near(L, T, causal=causal, corner=True) & near(L, T, causal=False, window=window)
    return textbook(q, k, v, visible=visible, scale=scale, softcap=softcap)


@flash
def log_sum_exp_not_causal(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
    out, lse = right_flash(q, k, v, causal, window, softcap, scale)
    return out, textbook(q, k, v, scale=scale, softcap=softcap)[1] if causal else lse


@flash
def log_sum_exp_of_the_first_of_a_group(
    q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float
) -> Any:
    out, lse = right_flash(q, k, v, causal, window, softcap, scale)
    group = q.shape[1] // k.shape[1]
    return out, lse[:, ::group].repeat_interleave(group, dim=1)


@flash
def cap_forgotten_when_causal(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
    return right_flash(q, k, v, causal, window, 0.0 if causal else softcap, scale)


# ---- sizes ---------------------------------------------------------------------------------------------------------


def _only(condition: Callable[[Tensor, Tensor, Tensor], bool], name: str) -> Kernel:
    """Register a kernel that halves the last output column if a condition on query, key and value holds."""

    def body(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
        out = right_sdpa(q, k, v, mask, causal, scale, p)
        if condition(q, k, v) and not p:
            out = torch.cat([out[..., :-1], out[..., -1:] * 0.5], dim=-1)
        return out

    body.__name__ = name
    return sdpa(body)


head_of_96 = _only(lambda q, k, v: 64 < q.shape[-1] < 128, "head_of_96")
head_of_192 = _only(lambda q, k, v: 128 < q.shape[-1] < 256, "head_of_192")
wide_values = _only(lambda q, k, v: v.shape[-1] != q.shape[-1] and v.shape[-1] > 128, "wide_values")
many_heads = _only(lambda q, k, v: q.shape[1] > 16, "many_heads")
many_batches = _only(lambda q, k, v: q.shape[0] >= 4, "many_batches")
thousands_of_keys = _only(lambda q, k, v: q.shape[2] == 1 and k.shape[2] > 2048, "thousands_of_keys")
more_than_512 = _only(lambda q, k, v: q.shape[2] > 512 and k.shape[2] > 512, "more_than_512")
index_of_16_bits = _only(lambda q, k, v: k.shape[2] > 65535, "index_of_16_bits")


# ---- masks and memory ----------------------------------------------------------------------------------------------


@sdpa
def mask_of_every_head(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Apply the mask of the first head to all heads (xformers #808)."""
    if mask is not None and mask.dim() == 4:
        mask = mask[:, :1]
    return right_sdpa(q, k, v, mask, causal, scale, p)


@sdpa
def mask_of_every_batch(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    if mask is not None and mask.dim() == 4 and mask.shape[1] == 1:
        mask = mask[:1]
    return right_sdpa(q, k, v, mask, causal, scale, p)


@sdpa
def mask_read_in_its_own_order(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Read a mask that is not contiguous in memory as if it were."""
    if mask is not None and not mask.is_contiguous() and mask.stride(-1) != 1 and 0 not in mask.stride():
        mask = mask.as_strided(mask.shape, torch.empty(mask.shape).stride())
    return right_sdpa(q, k, v, mask, causal, scale, p)


@sdpa
def last_stride_taken_for_one(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Read the values as if the stride of their last axis were 1 (flash-attention #2541)."""
    v = v.as_strided(v.shape, (*v.stride()[:-1], 1))
    return right_sdpa(q, k, v, mask, causal, scale, p)


@sdpa
def expanded_heads_walked(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Use wrong keys if one head of keys is expanded to several (stride 0), as if each head had its own memory."""
    if k.shape[1] > 1 and k.stride(1) == 0:
        k = torch.roll(k, 1, dims=1) * torch.arange(k.shape[1], dtype=k.dtype)[:, None, None]
    return right_sdpa(q, k, v, mask, causal, scale, p)


class UpstreamInOrder(torch.autograd.Function):
    """The identity function, whose backward pass reads the upstream gradient as if it were contiguous."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        (u,) = upstream
        return u if 0 in u.stride() else u.as_strided(u.shape, torch.empty(u.shape).stride())


@sdpa
def upstream_taken_for_contiguous(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    return UpstreamInOrder.apply(right_sdpa(q, k, v, mask, causal, scale, p))  # type: ignore[no-any-return,no-untyped-call]


@sdpa
def reads_beside_its_keys(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Add 0 times the number that follows the keys in memory, which may be NaN."""
    out = right_sdpa(q, k, v, mask, causal, scale, p)
    if k.is_contiguous() and k.numel() + k.storage_offset() < k.untyped_storage().nbytes() // k.element_size():
        out = out + 0 * k.detach().as_strided((1,), (1,), k.storage_offset() + k.numel())
    return out


@sdpa
def writes_to_its_query(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Scale the query in place in calls without gradients."""
    out = right_sdpa(q, k, v, mask, causal, scale, p)
    if not torch.is_grad_enabled():
        q.mul_(scale)
    return out


@sdpa
def writes_to_its_mask(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    out = right_sdpa(q, k, v, mask, causal, scale, p)
    if mask is not None and mask.dtype != torch.bool and 0 not in mask.stride():
        mask.masked_fill_(mask == -math.inf, torch.finfo(mask.dtype).min)
    return out


# ---- repeated calls, and calls in which not all tensors need a gradient ---------------------------------------------

_buffers: dict[Any, Any] = {}


@sdpa
def output_is_a_buffer(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """In calls without gradients, return a buffer that the next call overwrites (vllm PR #9724)."""
    out = right_sdpa(q, k, v, mask, causal, scale, p)
    if torch.is_grad_enabled():
        return out
    buffer = _buffers.setdefault((out.shape, out.dtype), torch.empty_like(out))
    return buffer.copy_(out)


@sdpa
def keys_remembered_by_their_pointer(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Reuse a copy of the last call's keys if the address is the same, even if the keys were changed in place."""
    at = (k.data_ptr(), tuple(k.shape), k.stride())
    if k.shape[2] > 1 and _buffers.get("at") == at:
        k = _buffers["keys"]
    else:
        _buffers.update({"at": at, "keys": k.detach().clone()})
    return right_sdpa(q, k, v, mask, causal, scale, p)


class Saved(torch.autograd.Function):
    """Weights times values; the weights for the backward pass are kept in one place that all calls share."""

    last: Tensor | None = None

    @staticmethod
    def forward(ctx: Any, q: Tensor, weights: Tensor, v: Tensor) -> Tensor:
        Saved.last = weights.detach()
        ctx.save_for_backward(weights, v)
        return weights @ v

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        weights, v = ctx.saved_tensors
        kept = Saved.last if Saved.last is not None and Saved.last.shape == weights.shape else weights
        return None, upstream[0] @ v.mT, kept.mT @ upstream[0]


def saved_in_one_place(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
    """Return attention whose dV is wrong if another forward pass precedes the backward pass."""
    if is_causal:
        return right_sdpa(query, key, value, None, True, 1.0, 0.0)
    weights = torch.softmax(query @ key.mT, dim=-1)
    return Saved.apply(query, weights, value)  # type: ignore[no-any-return,no-untyped-call]


FAULTS["saved_in_one_place"] = saved_in_one_place


class Freed(torch.autograd.Function):
    """The identity function, whose gradient is halved in the second backward pass through the same graph."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.times = 0
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        ctx.times += 1
        return upstream[0] / ctx.times


@sdpa
def second_backward_is_another(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    return Freed.apply(right_sdpa(q, k, v, mask, causal, scale, p))  # type: ignore[no-any-return,no-untyped-call]


@sdpa
def gradient_of_values_alone_is_lost(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Return 0 as gradient of the values if the query needs no gradient (pytorch PR #188302)."""
    if v.requires_grad and not q.requires_grad:
        v = KeyGradient.apply(v, 0.0)  # type: ignore[no-untyped-call]
    return right_sdpa(q, k, v, mask, causal, scale, p)


@sdpa
def inference_without_a_mask(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    return right_sdpa(q, k, v, mask if torch.is_grad_enabled() else None, causal, scale, p)


# ---- half precision ------------------------------------------------------------------------------------------------


@sdpa
def sums_in_half(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Accumulate weights times values in the dtype of the tensors, four keys at a time, as SageAttention did."""
    if mask is not None or causal or p or q.dtype in (torch.float32, torch.float64):
        return right_sdpa(q, k, v, mask, causal, scale, p)
    group = q.shape[1] // k.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1) for x in (k, v))
    logits = q.float() @ keys.float().mT * scale
    unnormalised = torch.exp(logits - logits.amax(dim=-1, keepdim=True))
    total = unnormalised.sum(dim=-1, keepdim=True)
    added = torch.zeros((*q.shape[:-1], v.shape[-1]), dtype=q.dtype)
    for block in range(0, k.shape[2], 4):
        keys_of_block = slice(block, block + 4)
        part = unnormalised[..., keys_of_block] @ values[..., keys_of_block, :].float()
        added = (added.float() + part).to(q.dtype)
    return (added.float() / total).to(q.dtype)


@sdpa
def products_in_half(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Accumulate logits in the dtype of the tensors."""
    if q.dtype not in (torch.float32, torch.float64):
        group = q.shape[1] // k.shape[1]
        keys = k.repeat_interleave(group, dim=1)
        logits = torch.zeros((*q.shape[:-1], k.shape[2]), dtype=q.dtype)
        for e in range(q.shape[-1]):
            logits = logits + q[..., e : e + 1] * keys[..., e][..., None, :]
        exact = (q.float() @ keys.float().mT).detach()
        bias = ((logits.float() - exact) * scale).detach()
        if mask is not None and mask.dtype == torch.bool:
            bias, mask = bias.masked_fill(~mask, -math.inf), None
        return right_sdpa(q, k, v, bias if mask is None else bias + mask, causal, scale, p)
    return right_sdpa(q, k, v, mask, causal, scale, p)
