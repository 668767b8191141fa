"""Signatures that fit no library's interface, each with a fault; small calls have to find out how to call the kernels.

As in ``signatures``, a kernel is made from a signature and a core: a function that takes query, key and value (B, H, L,
E) and options, and returns output and log-sum-exp. The name of a function says which library the signature imitates, or
what is unusual about it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tests.attention_conformance.kernel.signatures import (
    BOTTOM,
    Core,
    Signature,
    signature,
    swap,
    with_other_diagonal,
    with_scale_of_keys,
    with_scaled_lse,
    with_sign_of_dk,
    without_mask,
    without_the_last_column,
)

Mask = Tensor | None
Kernel = Callable[..., Any]


def _weights(core: Core, q: Tensor, k: Tensor, **options: Any) -> Tensor:
    """Return the weights of a core: its output if the values are the identity matrix."""
    identity = torch.eye(k.shape[2], dtype=q.dtype).expand(*k.shape[:2], -1, -1)
    return core(q, k, identity, **options)[0]


def _both(first: Mask, second: Mask) -> Mask:
    if first is None or second is None:
        return second if first is None else first
    return first & second


# ---- another order of axes -------------------------------------------------------------------------------------------


@signature("query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, training=True, name=None")
def paddle(core: Core, a: Any) -> Tensor:
    if a.dropout_p and a.training:
        raise ValueError("no dropout")
    return core(*swap(a.query, a.key, a.value), scale=None, mask=a.attn_mask, causal=a.is_causal)[0].transpose(1, 2)


@signature(
    "query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, *, backend=None"
)
def diffusers(core: Core, a: Any) -> Tensor:
    if a.dropout_p:
        raise ValueError("no dropout")
    return core(*swap(a.query, a.key, a.value), scale=a.scale, mask=a.attn_mask, causal=a.is_causal)[0].transpose(1, 2)


def einops(core: Core) -> Kernel:
    return lambda q, k, v: core(*swap(q, k, v), scale=None)[0].transpose(1, 2)


def heads_first(core: Core) -> Kernel:
    return lambda q, k, v, softmax_scale=None, causal=False: core(q, k, v, scale=softmax_scale, causal=causal)[0]


def lengths_first(core: Core) -> Kernel:
    def attention(q: Tensor, k: Tensor, v: Tensor, qkv_format: str = "sbhd", causal: bool = False) -> Tensor:
        q, k, v = (x.permute(1, 2, 0, 3) for x in (q, k, v))
        return core(q, k, v, scale=None, causal=causal, diagonal=BOTTOM)[0].permute(2, 0, 1, 3)

    return attention


class Megatron(torch.nn.Module):
    """A module on tensors (L, B, H, E) that joins heads in its output; a mask hides keys where it is True."""

    def __init__(self, core: Core) -> None:
        super().__init__()
        self.core = core

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Mask, attn_mask_type: Any = None
    ) -> Tensor:
        q, k, v = (x.permute(1, 2, 0, 3) for x in (query, key, value))
        mask = None if attention_mask is None else ~attention_mask
        return self.core(q, k, v, scale=None, mask=mask)[0].permute(2, 0, 1, 3).flatten(2)


@signature(
    "query, key, value, n_heads, kv_n_heads, softmax_scale=None, attn_bias=None, is_causal=False, needs_weights=False"
)
def llm_foundry(core: Core, a: Any) -> Any:
    q = a.query.unflatten(2, (a.n_heads, -1)).transpose(1, 2)
    k, v = (x.unflatten(2, (a.kv_n_heads, -1)).transpose(1, 2) for x in (a.key, a.value))
    options = {"scale": a.softmax_scale, "mask": a.attn_bias, "causal": a.is_causal}
    weights = _weights(core, q, k, **options) if a.needs_weights else None
    return (core(q, k, v, **options)[0].transpose(1, 2).flatten(2), weights)


def torch_1(core: Core) -> Kernel:
    def _scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Mask = None) -> Any:
        q, k, v = (x[:, None] for x in (q, k, v))
        mask = attn_mask[:, None] if attn_mask is not None and attn_mask.dim() == 3 else attn_mask
        options = {"scale": None, "mask": mask}
        return core(q, k, v, **options)[0][:, 0], _weights(core, q, k, **options)[:, 0]

    return _scaled_dot_product_attention


@signature(
    "query, key, value, head_num, input_layout, *, pse=None, atten_mask=None, scale=1.0, keep_prob=1.0, "
    "gen_mask_parallel=True"
)
def npu(core: Core, a: Any) -> Any:
    if a.input_layout not in ("BSND", "SBH") or a.head_num != a.query.shape[2]:
        raise RuntimeError("of other layouts this stand-in knows none")
    mask = a.pse if a.atten_mask is None else ~a.atten_mask
    output, lse = core(*swap(a.query, a.key, a.value), scale=a.scale, mask=mask)
    return (output.transpose(1, 2), lse, lse, None)


# ---- other names, and further required arguments ---------------------------------------------------------------------


def sage(core: Core, layout: str = "HND") -> Kernel:
    def sageattn(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        tensor_layout: str = layout,
        is_causal: bool = False,
        sm_scale: float | None = None,
        return_lse: bool = False,
        **kwargs: Any,
    ) -> Any:
        q, k, v = (q, k, v) if tensor_layout == "HND" else swap(q, k, v)
        output, lse = core(q, k, v, scale=sm_scale, causal=is_causal)
        output = output if tensor_layout == "HND" else output.transpose(1, 2)
        return (output, lse) if return_lse else output

    return sageattn


def sage_lengths_first(core: Core) -> Kernel:
    return sage(core, "NHD")


@signature("query, key, value, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None")
def aten_efficient(core: Core, a: Any) -> Any:
    if a.dropout_p:
        raise RuntimeError("no dropout")
    output, lse = core(a.query, a.key, a.value, scale=a.scale, mask=a.attn_bias, causal=a.is_causal)
    return (output, lse if a.compute_log_sumexp else lse.new_empty(0), 0, 0)


@signature("query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None")
def aten_flash(core: Core, a: Any) -> Any:
    if a.dropout_p:
        raise RuntimeError("no dropout")
    return (*core(a.query, a.key, a.value, scale=a.scale, causal=a.is_causal), None, None)


@signature("q, k, v, segment_ids, sm_scale=1.0, causal=False, return_residuals=False")
def pallas(core: Core, a: Any) -> Any:
    output, lse = core(*swap(a.q, a.k, a.v), scale=a.sm_scale, causal=a.causal)
    return (output.transpose(1, 2), (lse,)) if a.return_residuals else output.transpose(1, 2)


def thunder_kittens(core: Core) -> Kernel:
    def mha_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Any:
        return core(q, k, v, scale=None, causal=causal)

    return mha_forward


@signature(
    "q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1, 0), bias=None, "
    "deterministic=True, return_lse=False, cu_seqlens_q=None"
)
def aiter(core: Core, a: Any) -> Any:
    left, right, always_seen = a.window_size
    if a.dropout_p or always_seen:
        raise RuntimeError("no dropout, and no sinks")
    options = {"causal": a.causal, "window": (left, right), "diagonal": BOTTOM}
    output, lse = core(*swap(a.q, a.k, a.v), scale=a.softmax_scale, mask=a.bias, **options)
    return (output.transpose(1, 2), lse) if a.return_lse else output.transpose(1, 2)


@signature("q, k, v, softmax_scale=None, causal=False, dtype=torch.bfloat16, version=None")
def wan(core: Core, a: Any) -> Tensor:
    q, k, v = (x.to(a.dtype) for x in swap(a.q, a.k, a.v))
    return core(q, k, v, scale=a.softmax_scale, causal=a.causal, diagonal=BOTTOM)[0].transpose(1, 2)


def by_keyword(core: Core) -> Kernel:
    def attention(*, q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None) -> Tensor:
        return core(q, k, v, scale=scale, causal=causal)[0]

    return attention


def keys_first(core: Core) -> Kernel:
    return lambda k, v, q, causal=False: core(q, k, v, scale=None, causal=causal)[0]


def passing_on(core: Core) -> Kernel:
    def own(q: Tensor, k: Tensor, v: Tensor, attn_mask: Mask = None, is_causal: bool = False, scale: Any = None) -> Any:
        return core(q, k, v, scale=scale, mask=attn_mask, causal=is_causal)[0]

    return lambda *args, **kwargs: own(*args, **kwargs)


def packed(core: Core) -> Kernel:
    def flash_attn_kvpacked_func(
        q: Tensor, kv: Tensor, softmax_scale: float | None = None, causal: bool = False, return_attn_probs: bool = False
    ) -> Any:
        output, lse = core(*swap(q, *kv.unbind(2)), scale=softmax_scale, causal=causal, diagonal=BOTTOM)
        return (output.transpose(1, 2), lse, None) if return_attn_probs else output.transpose(1, 2)

    return flash_attn_kvpacked_func


# ---- what masks mean -------------------------------------------------------------------------------------------------


def true_hides(core: Core) -> Kernel:
    def attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Mask = None, is_causal: bool = False) -> Tensor:
        mask = None if attn_mask is None else ~attn_mask
        return core(query, key, value, scale=None, mask=mask, causal=is_causal)[0]

    return attention


def zero_hides(core: Core) -> Kernel:
    """Return a kernel whose mask hides keys where it is 0. The parameters are those of MLX, where the mask may also be
    the word "causal".
    """

    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Any = None, scale: float | None = None) -> Tensor:
        return core(q, k, v, scale=scale, mask=None if mask is None else torch.as_tensor(mask != 0))[0]

    return attention


def of_tensorflow(core: Core) -> Kernel:
    """Return a kernel that adds −10⁹ times its mask to the logits (1 hides a key), and returns output and weights."""

    def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Any:
        added = None if mask is None else mask * -1e9
        hidden = None if added is None else torch.where(added < -1e8, -torch.inf, added).to(q)
        return core(q, k, v, scale=None, mask=hidden)[0], _weights(core, q, k, scale=None, mask=hidden)

    return scaled_dot_product_attention


def of_multihead_attention(core: Core) -> Kernel:
    def attention(q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Mask = None, attn_mask: Mask = None) -> Tensor:
        of_keys = None if key_padding_mask is None else ~key_padding_mask[:, None, None]
        return core(q, k, v, scale=None, mask=_both(of_keys, None if attn_mask is None else ~attn_mask))[0]

    return attention


def of_keys_alone(core: Core) -> Kernel:
    return lambda q, k, v, mask=None: core(q, k, v, scale=None, mask=None if mask is None else mask[:, None, None])[0]


def llama(core: Core) -> Kernel:
    return lambda xq, xk, xv, mask: core(*swap(xq, xk, xv), scale=None, mask=mask)[0].transpose(1, 2)


def bias_and_mask(core: Core) -> Kernel:
    def attention(query: Tensor, key: Tensor, value: Tensor, bias: Mask = None, mask: Mask = None) -> Tensor:
        return core(*swap(query, key, value), scale=None, mask=bias if mask is None else mask)[0].transpose(1, 2)

    return attention


@signature("module, query, key, value, attention_mask, scaling=None, is_causal=None, **kwargs")
def hf_flash(core: Core, a: Any) -> Any:
    if a.attention_mask is not None and a.attention_mask.dim() != 2:
        raise ValueError("a mask of keys")
    mask = None if a.attention_mask is None else a.attention_mask.bool()[:, None, None]
    causal = a.module.is_causal if a.is_causal is None else a.is_causal
    output = core(a.query, a.key, a.value, scale=a.scaling, mask=mask, causal=causal, diagonal=BOTTOM)[0]
    return (output.transpose(1, 2), None)


def nano_gpt(core: Core) -> Kernel:
    return lambda q, k, v: core(q, k, v, scale=None, causal=True)[0]


# ---- what is returned ------------------------------------------------------------------------------------------------


def annotated(core: Core) -> Kernel:
    def attention(query: Tensor, key: Tensor, value: Tensor, mask: Mask = None, dropout: Any = None) -> Any:
        options = {"scale": None, "mask": None if mask is None else mask != 0}
        weights = _weights(core, query, key, **options)
        weights = weights if dropout is None else dropout(weights)
        return core(query, key, value, **options)[0], weights

    return attention


class Returned(NamedTuple):
    lse: Tensor
    output: Tensor


def log_sum_exp_first(core: Core) -> Kernel:
    def attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Returned:
        return Returned(*core(q, k, v, scale=None, causal=is_causal)[::-1])

    return attention


def log_sum_exp_of_lengths(core: Core) -> Kernel:
    """Return a kernel whose log-sum-exp is (B, L, H) instead of (B, H, L), which its shape does not show if L = H."""

    def attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, return_lse: bool = False) -> Any:
        output, lse = core(*swap(q, k, v), scale=scale)
        return (output.transpose(1, 2), lse.transpose(1, 2)) if return_lse else output.transpose(1, 2)

    return attention


def mapping(core: Core) -> Kernel:
    def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, return_lse: bool = False) -> dict[str, Any]:
        output, lse = core(q, k, v, scale=None, causal=causal)
        return {"out": output, "stats": {"lse": lse}} if return_lse else {"out": output}

    return attention


def into(core: Core) -> Kernel:
    def attention(q: Tensor, k: Tensor, v: Tensor, o: Tensor, sm_scale: float, is_causal: bool) -> None:
        o.copy_(core(q, k, v, scale=sm_scale, causal=is_causal)[0])

    return attention


NAME = "by-name"
READ = {
    "paddle": Signature(paddle, NAME, with_sign_of_dk, ("boolean-mask", "additive-mask", "causal")),
    "diffusers": Signature(diffusers, NAME, with_scale_of_keys, ("scale", "additive-mask", "causal")),
    "einops": Signature(einops, NAME, without_the_last_column, ("default-scale",)),
    "heads first": Signature(heads_first, NAME, with_other_diagonal, ("scale", "causal-rectangle")),
    "lengths first": Signature(lengths_first, NAME, with_other_diagonal, ("causal-rectangle",)),
    "Megatron": Signature(Megatron, NAME, without_mask, ("boolean-mask",)),
    "llm-foundry": Signature(llm_foundry, NAME, without_mask, ("additive-mask", "grouped-heads")),
    "torch 1": Signature(torch_1, NAME, without_mask, ("additive-mask",)),
    "npu": Signature(npu, NAME, without_mask, ("boolean-mask", "additive-mask", "scale")),
    "sage": Signature(sage, NAME, with_scaled_lse, ("scale", "causal", "log-sum-exp")),
    "sage, lengths first": Signature(sage_lengths_first, NAME, with_scale_of_keys, ("scale", "log-sum-exp")),
    "aten efficient": Signature(aten_efficient, NAME, with_scaled_lse, ("additive-mask", "log-sum-exp")),
    "aten flash": Signature(aten_flash, NAME, with_other_diagonal, ("log-sum-exp", "causal")),
    "pallas": Signature(pallas, NAME, with_scaled_lse, ("scale", "causal", "log-sum-exp")),
    "ThunderKittens": Signature(thunder_kittens, NAME, with_other_diagonal, ("causal", "log-sum-exp")),
    "aiter": Signature(aiter, NAME, without_mask, ("additive-mask", "window", "log-sum-exp", "same-bits")),
    "wan": Signature(wan, NAME, with_other_diagonal, ("scale", "causal")),
    "by keyword": Signature(by_keyword, NAME, with_other_diagonal, ("scale", "causal")),
    "keys first": Signature(keys_first, NAME, with_other_diagonal, ("causal",)),
    "passing on": Signature(passing_on, NAME, with_scale_of_keys, ("scale", "causal", "boolean-mask")),
    "packed": Signature(packed, NAME, with_scaled_lse, ("scale", "causal", "log-sum-exp")),
    "true hides": Signature(true_hides, NAME, with_other_diagonal, ("boolean-mask", "causal")),
    "zero hides": Signature(zero_hides, NAME, without_mask, ("boolean-mask", "scale")),
    "TensorFlow": Signature(of_tensorflow, NAME, without_mask, ("boolean-mask",)),
    "MultiheadAttention": Signature(of_multihead_attention, NAME, without_mask, ("boolean-mask",)),
    "of keys alone": Signature(of_keys_alone, NAME, without_mask, ("boolean-mask",)),
    "LLaMA": Signature(llama, NAME, without_mask, ("additive-mask", "boolean-mask")),
    "bias and mask": Signature(bias_and_mask, NAME, without_mask, ("additive-mask", "boolean-mask")),
    "hf flash": Signature(hf_flash, NAME, with_scale_of_keys, ("boolean-mask", "scale", "causal")),
    "nanoGPT": Signature(nano_gpt, NAME, with_sign_of_dk, ("causal", "causal-rectangle")),
    "annotated": Signature(annotated, NAME, without_the_last_column, ("boolean-mask",)),
    "log-sum-exp first": Signature(log_sum_exp_first, NAME, with_other_diagonal, ("log-sum-exp", "causal")),
    "log-sum-exp of lengths": Signature(log_sum_exp_of_lengths, NAME, with_scaled_lse, ("log-sum-exp", "scale")),
    "mapping": Signature(mapping, NAME, with_scaled_lse, ("log-sum-exp", "causal")),
    "into": Signature(into, NAME, with_scale_of_keys, ("scale", "causal")),
}
"""Signatures by the library that each imitates, or by what is unusual about it. Some faults are in the scale, and show
only if the signature has a scale.
"""
