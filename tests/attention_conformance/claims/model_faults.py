"""Kernels that are wrong only in calls as models make them: shapes, masks, scales, PyTorch contexts, repeated calls."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.attention_conformance.claims.combined_faults import (
    FAULTS,
    Kernel,
    as_sdpa,
    flash,
    right_flash,
    right_sdpa,
    sdpa,
)

MODEL_FAULTS: dict[str, Kernel] = {}
"""Faulty kernels by name. Each is wrong in every number format, except those that :data:`IN_HALF_ALONE` names."""
IN_HALF_ALONE = {
    "product_in_float16": "float16",
    "logits_half_as_large_again": "bfloat16",
    "logits_half_as_large_again_forward": "bfloat16",
    "mask_of_another_dtype_ignored": "bfloat16",
}
"""Names of the faults that show only in half precision, each with a number format in which it shows."""


def _of_models(kernel: Kernel) -> Kernel:
    MODEL_FAULTS[kernel.__name__] = FAULTS.pop(kernel.__name__)
    return kernel


def _spoilt(out: Tensor) -> Tensor:
    """Return the output with its last column halved."""
    return torch.cat([out[..., :-1], out[..., -1:] * 0.5], dim=-1)


def _where(name: str, condition: Callable[..., bool]) -> None:
    """Register a kernel that halves the last output column where ``condition(query, key, value, mask,
    causal)`` holds.
    """

    def body(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
        out = right_sdpa(q, k, v, mask, causal, scale, p)
        return _spoilt(out) if condition(q, k, v, mask, causal) and not p else out

    body.__name__ = name
    _of_models(sdpa(body))


# ---- shapes of models ----------------------------------------------------------------------------------------------

for heads in (5, 16):
    _where(f"groups_of_{heads}", lambda q, k, v, m, c, n=heads: q.shape[1] == n * k.shape[1] > n)
_where("latent_192_128", lambda q, k, v, m, c: (q.shape[-1], v.shape[-1]) == (192, 128))
_where("latent_576_512", lambda q, k, v, m, c: (q.shape[-1], v.shape[-1]) == (576, 512))
_where("heads_of_512", lambda q, k, v, m, c: q.shape[-1] == v.shape[-1] == 512)
_where("a_hundred_heads", lambda q, k, v, m, c: q.shape[1] > 96)
_where("sixty_four_entries", lambda q, k, v, m, c: q.shape[0] > 48)
_where("chunk_of_a_long_prompt", lambda q, k, v, m, c: q.shape[2] > 1 and k.shape[2] > 2049)
_where(
    "grouped_decoding_of_a_long_cache",
    lambda q, k, v, m, c: q.shape[2] == 1 < k.shape[1] < q.shape[1] and k.shape[2] >= 1024,
)
for size in (16, 128, 512):
    for causal in (False, True):
        _where(
            f"{'causal_' * causal}tail_beyond_{size}",
            lambda q, k, v, m, c, n=size, causal=causal: (
                min(q.shape[2], k.shape[2]) > n and q.shape[2] % n > 0 and c is causal and m is None
            ),
        )
_where(
    "training_at_64", lambda q, k, v, m, c: c and q.shape[-1] >= 64 and min(q.shape[2], k.shape[2]) >= 128 and m is None
)


def _window(name: str, least: int, most: int) -> None:
    def body(q: Any, k: Any, v: Any, causal: bool, window: Any, softcap: float, scale: float) -> Any:
        left, right = window
        if least <= left <= most:
            left += 1
        return right_flash(q, k, v, causal, (left, right), softcap, scale)

    body.__name__ = name
    _of_models(flash(body))


_window("window_of_40_to_100", 40, 100)
_window("window_of_127", 120, 128)
_window("window_of_hundreds", 200, 1023)
_window("window_of_4095", 1024, 4096)


# ---- masks ---------------------------------------------------------------------------------------------------------


def _masked(name: str, change: Callable[[Tensor, Tensor, Tensor], Tensor | None]) -> None:
    """Register a kernel that replaces its mask by ``change(mask, query, key)``; None stands for no mask."""

    def body(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
        return right_sdpa(q, k, v, mask if mask is None else change(mask, q, k), causal, scale, p)

    body.__name__ = name
    _of_models(sdpa(body))


def _repeat_groups(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    B, H, G = *q.shape[:2], k.shape[1]
    if mask.ndim < 4 or mask.shape[0] != B or mask.shape[1] > 1 or H == G:
        return mask
    return mask[(torch.arange(B * H) // G % B).reshape(B, H)][:, :, 0]


_masked("mask_of_another_dtype_ignored", lambda m, q, k: m if m.dtype in (torch.bool, q.dtype) else None)
_masked(
    "ten_thousand_is_seen",
    lambda m, q, k: m if m.dtype == torch.bool else torch.where((m < -9e3) & (m > -1e5), torch.zeros_like(m), m),
)
_masked(
    "smallest_number_wraps",
    lambda m, q, k: m if m.dtype == torch.bool else torch.where(m == torch.finfo(m.dtype).min, -m / 1e4 * 0 + 1.0, m),
)
_masked("rank_3_is_of_entries", lambda m, q, k: m[:, None] if m.ndim == 3 and m.shape[0] == len(q) else m)
_masked("rank_3_first_head", lambda m, q, k: m[:1] if m.ndim == 3 else m)
_masked(
    "column_is_padded",
    lambda m, q, k: torch.nn.functional.pad(m, (0, k.shape[2] - 1)) if m.shape[-1] == 1 < k.shape[2] else m,
)
_masked("entries_of_groups", _repeat_groups)


# ---- scales; query and key in one tensor ---------------------------------------------------------------------------


def _scaled(name: str, change: Callable[[float, int], float]) -> None:
    def body(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
        return right_sdpa(q, k, v, mask, causal, change(scale, q.shape[-1]), p)

    body.__name__ = name
    _of_models(sdpa(body))


_scaled("zero_is_no_scale", lambda c, E: c or 1 / math.sqrt(E))
_scaled("scale_is_positive", lambda c, E: abs(c))


@_of_models
@sdpa
def key_is_query(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Halve the last output column if query and key are one tensor."""
    out = right_sdpa(q, k, v, mask, causal, scale, p)
    return _spoilt(out) if q.data_ptr() == k.data_ptr() else out


# ---- contexts ------------------------------------------------------------------------------------------------------

_where("in_inference_mode", lambda q, k, v, m, c: torch.is_inference_mode_enabled())
_where("under_autocast", lambda q, k, v, m, c: torch.is_autocast_enabled("cpu"))


class _FirstOrder(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return upstream[0] * (0.5 if torch.is_grad_enabled() else 1.0)


@_of_models
@sdpa
def with_create_graph(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Halve dQ if it is computed with ``create_graph=True``."""
    own: Any = _FirstOrder.apply(q)  # type: ignore[no-untyped-call]
    return right_sdpa(own, k, v, mask, causal, scale, p)


# ---- no keys -------------------------------------------------------------------------------------------------------


@_of_models
@sdpa
def ones_without_keys(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Return 1 instead of 0 if there are no keys."""
    out = right_sdpa(q, k, v, mask, causal, scale, p)
    return out if k.shape[2] else out + 1.0


# ---- repeated calls ------------------------------------------------------------------------------------------------

ANSWERS: dict[Any, list[Tensor]] = {}


def first_answer_again_after(n: int) -> Kernel:
    """Return a kernel that answers n calls of each shape rightly, and all later calls with the first answer."""

    def body(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
        out = right_sdpa(q, k, v, mask, causal, scale, p)
        at = (n, q.shape, k.shape, v.shape, q.dtype, causal, scale, mask is None, p)
        kept = ANSWERS.setdefault(at, [])
        if len(kept) < n:
            kept.append(out.detach().clone())
            return out
        return out + (kept[0] - out.detach())

    body.__name__ = f"first_answer_again_after_{n}"
    return as_sdpa(body)


for number in (1, 11, 100, 200):
    MODEL_FAULTS[f"first_answer_again_after_{number}"] = first_answer_again_after(number)


# ---- dropout -------------------------------------------------------------------------------------------------------


def _dropped(q: Tensor, k: Tensor, v: Tensor, mask: Any, causal: bool, scale: float, p: float, kept: Tensor) -> Tensor:
    """Return attention whose weights are multiplied by ``kept``, the dropout factors 0 and 1/(1 − p)."""
    eye = torch.eye(k.shape[2], dtype=k.dtype).expand(*k.shape[:2], -1, -1)
    s = right_sdpa(q, k, eye, mask, causal, scale, 0.0)
    return (s * kept) @ v.repeat_interleave(q.shape[1] // k.shape[1], dim=1)


@_of_models
@sdpa
def one_dropout_mask_for_all_heads(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    if not p:
        return right_sdpa(q, k, v, mask, causal, scale, p)
    kept = torch.dropout(torch.ones(q.shape[0], 1, q.shape[2], k.shape[2], dtype=q.dtype), p, train=True)
    return _dropped(q, k, v, mask, causal, scale, p, kept)


@_of_models
@sdpa
def one_dropout_mask_for_all_entries(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    if not p:
        return right_sdpa(q, k, v, mask, causal, scale, p)
    kept = torch.dropout(torch.ones(1, *q.shape[1:3], k.shape[2], dtype=q.dtype), p, train=True)
    return _dropped(q, k, v, mask, causal, scale, p, kept)


@_of_models
@sdpa
def dropout_drawn_again_backward(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    out = right_sdpa(q, k, v, mask, causal, scale, p)
    if not p:
        return out
    other = right_sdpa(q, k, v, mask, causal, scale, p)
    return other + (out - other).detach()


# ---- half precision ------------------------------------------------------------------------------------------------


@_of_models
@sdpa
def product_in_float16(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    """Store q·k in float16 before it is scaled: products beyond 65504 are infinite (metal-flash-attention #8)."""
    if q.dtype != torch.float16 or mask is not None or causal or p or q.shape[1] != k.shape[1]:
        return right_sdpa(q, k, v, mask, causal, scale, p)
    z = q.float() @ k.float().mT
    z = torch.where(z.abs() > 65504, z.sign() * math.inf, z) * scale
    return (torch.softmax(z, dim=-1) @ v.float()).to(q.dtype)


@_of_models
@sdpa
def logits_half_as_large_again(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float) -> Tensor:
    return right_sdpa(q, k, v, mask, causal, scale * (1.5 if q.dtype == torch.bfloat16 else 1.0), p)


@_of_models
@sdpa
def logits_half_as_large_again_forward(
    q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, p: float
) -> Tensor:
    """Multiply logits by 1.5 in bfloat16; the output is detached, so that no gradient shows the factor."""
    return right_sdpa(q, k, v, mask, causal, scale * (1.5 if q.dtype == torch.bfloat16 else 1.0), p).detach()
