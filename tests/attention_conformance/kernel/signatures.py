"""Right attention under the signatures of libraries, and one fault of each: a few lines of torch in place of theirs.

A signature is made of a core, (query, key, value in (B, H, L, E), options) → (output, log-sum-exp). A fault is another
core.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TOP, BOTTOM, LONGER = "top", "bottom", "longer"


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None,
    mask: Tensor | None = None,
    causal: bool = False,
    window: tuple[Any, Any] = (-1, -1),
    softcap: float = 0.0,
    diagonal: str = TOP,
    sinks: Tensor | None = None,
    modify: Any = None,
    empty: str = "zeros",
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Softmax attention of (B, H, L, E) on (B, G, T, E); None or −1 is no limit of a window."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    logits = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    logits = logits if modify is None else modify(logits)
    L, T = logits.shape[-2:]
    shift = {TOP: 0, BOTTOM: T - L, LONGER: max(T - L, 0)}[diagonal]
    ahead = torch.arange(T) - torch.arange(L)[:, None] - shift
    seen = (ahead <= 0) if causal else torch.ones(L, T, dtype=torch.bool)
    left, right = (-1 if side is None else side for side in window)
    seen = seen & ((ahead >= -left) | (left < 0)) & ((ahead <= right) | (right < 0))
    if mask is not None:
        if mask.dtype == torch.bool:
            seen = seen & mask
        else:
            logits = logits + mask
            seen = seen & ~torch.isneginf(mask)
    logits = torch.where(seen, logits, torch.finfo(q.dtype).min if empty == "mean" else -torch.inf)
    if sinks is not None:
        logits = torch.cat([logits, sinks.reshape(1, -1, 1, 1).expand(*logits.shape[:-1], 1).to(logits)], dim=-1)
    least = logits.new_full((*logits.shape[:-1], 1), -torch.inf)  # there may be no key
    top = torch.cat([logits.detach(), least], dim=-1).amax(dim=-1, keepdim=True)
    top = torch.where(torch.isneginf(top), 0.0, top)
    unnormalised = torch.exp(logits - top)
    total = unnormalised.sum(dim=-1, keepdim=True)
    weights = (unnormalised / torch.where(total == 0, 1.0, total))[..., :T]
    return torch.nn.functional.dropout(weights, dropout) @ v, (top + torch.log(total)).squeeze(-1)


def with_sign_of_dk(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Right forward; keys get the negative of their gradient."""
    return attend(q, 2 * k.detach() - k, v, **options)


def with_other_diagonal(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """A causal row sees the next key, too."""
    T = k.shape[2]
    if options.get("causal") and T > 1:
        options = options | {"causal": False}
        shift = {TOP: 0, BOTTOM: T - q.shape[2], LONGER: max(T - q.shape[2], 0)}[options.get("diagonal", TOP)]
        seen = torch.arange(T) - torch.arange(q.shape[2])[:, None] - shift <= 1
        return attend(q, k, v, **options | {"mask": seen if options.get("mask") is None else options["mask"]})
    return attend(q, k, v, **options)


def with_cap_on_mask(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """The cap is half of what was asked for."""
    return attend(q, k, v, **options | {"softcap": options.get("softcap", 0.0) / 2})


def with_scaled_lse(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """The log-sum-exp is to the base 2."""
    output, lse = attend(q, k, v, **options)
    return output, lse / math.log(2)


def without_window(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """The window is accepted and ignored."""
    return attend(q, k, v, **options | {"window": (-1, -1)})


def without_mask(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """The mask is accepted and ignored."""
    return attend(q, k, v, **options | {"mask": None})


def with_scale_of_keys(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """The scale that is given is taken twice."""
    scale = options.pop("scale")
    return attend(q, k, v, scale=None if scale is None else scale**2, **options)


def without_the_last_column(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Wide heads lose a column in the logits."""
    scale = options.pop("scale")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    cut = q.shape[-1] - 1 if q.shape[-1] > 8 else q.shape[-1]
    return attend(q[..., :cut], k[..., :cut], v, scale=scale, **options)


Core = Callable[..., tuple[Tensor, Tensor]]


def swap(*tensors: Tensor) -> list[Tensor]:
    return [x.transpose(1, 2) for x in tensors]


# ---- PyTorch and what is like it -------------------------------------------------------------------------------------


def sdpa(core: Core) -> Callable[..., Any]:
    def scaled_dot_product_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if dropout_p:
            raise ValueError("no dropout")
        return core(query, key, value, scale=scale, mask=attn_mask, causal=is_causal)[0]

    return scaled_dot_product_attention


def causal_by_default(core: Core) -> Callable[..., Any]:
    def scaled_dot_product_attention(
        input_tensor_q: Tensor,
        input_tensor_k: Tensor,
        input_tensor_v: Tensor,
        *,
        attn_mask: Tensor | None = None,
        is_causal: bool = True,
        scale: float | None = None,
        memory_config: Any = None,
    ) -> Tensor:
        return core(input_tensor_q, input_tensor_k, input_tensor_v, scale=scale, mask=attn_mask, causal=is_causal)[0]

    return scaled_dot_product_attention


def flex(core: Core) -> Callable[..., Any]:
    def flex_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        score_mod: Any = None,
        block_mask: Any = None,
        scale: float | None = None,
        enable_gqa: bool = False,
        return_lse: bool = False,
        kernel_options: Any = None,
    ) -> Any:
        axes = (torch.arange(n) for n in (*query.shape[:3], key.shape[2]))
        places = torch.meshgrid(*axes, indexing="ij")
        modify = None if score_mod is None else lambda score: score_mod(score, *places)
        mask = None if block_mask is None else block_mask.mask_mod(*places)
        output = core(query, key, value, scale=scale, mask=mask, modify=modify)
        return output if return_lse else output[0]

    return flex_attention


def tinygrad(core: Core) -> Callable[..., Any]:
    def scaled_dot_product_attention(
        self: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        enable_gqa: bool = False,
    ) -> Tensor:
        if dropout_p:
            raise ValueError("no dropout")
        return core(self, key, value, scale=None, mask=attn_mask, causal=is_causal)[0]

    return scaled_dot_product_attention


def triton(core: Core) -> Callable[..., Any]:
    def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, sm_scale: float, warp_specialize: bool = True) -> Any:
        if q.shape[-1] not in (16, 32, 64, 128, 256) or v.shape[-1] != q.shape[-1]:
            raise AssertionError("HEAD_DIM is one of 16, 32, 64, 128, 256")
        if q.shape != k.shape or q.shape[2] % 64:
            raise AssertionError("N_CTX is a multiple of the block, and one for queries and keys")
        return core(q, k, v, scale=sm_scale, causal=causal)[0]

    return attention


# ---- flash-attn ------------------------------------------------------------------------------------------------------


def linear_bias(slopes: Tensor | None, L: int, T: int) -> Tensor | None:
    """That of slopes (H,) or (B, H)."""
    if slopes is None:
        return None
    ahead = torch.arange(T) - torch.arange(L)[:, None] - (T - L)
    return -slopes.reshape(-1, slopes.shape[-1], 1, 1) * ahead.abs()


def flash_2(core: Core) -> Callable[..., Any]:
    def flash_attn_func(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        dropout_p: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[int, int] = (-1, -1),
        softcap: float = 0.0,
        alibi_slopes: Tensor | None = None,
        deterministic: bool = False,
        return_attn_probs: bool = False,
    ) -> Any:
        if q.shape[-1] % 8 or v.shape[-1] % 8 or q.shape[-1] > 256:
            raise RuntimeError("head dimension is a multiple of 8 up to 256")
        if dropout_p:
            raise RuntimeError("no dropout")
        output, lse = core(
            *swap(q, k, v),
            scale=softmax_scale,
            mask=linear_bias(alibi_slopes, q.shape[1], k.shape[1]),
            causal=causal,
            window=window_size,
            softcap=softcap,
            diagonal=BOTTOM,
        )
        output = output.transpose(1, 2)
        padded = torch.nn.functional.pad(lse, (0, -lse.shape[-1] % 128))
        return (output, padded, None) if return_attn_probs else output

    return flash_attn_func


def flash_3(core: Core) -> Callable[..., Any]:
    def flash_attn_func(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        softmax_scale: float | None = None,
        causal: bool = False,
        qv: Tensor | None = None,
        q_descale: Tensor | None = None,
        k_descale: Tensor | None = None,
        v_descale: Tensor | None = None,
        window_size: tuple[int, int] = (-1, -1),
        attention_chunk: int = 0,
        softcap: float = 0.0,
        num_splits: int = 1,
        pack_gqa: bool | None = None,
        deterministic: bool = False,
        sm_margin: int = 0,
        return_attn_probs: bool = False,
    ) -> Any:
        output, lse = core(
            *swap(q, k, v), scale=softmax_scale, causal=causal, window=window_size, softcap=softcap, diagonal=BOTTOM
        )
        return (output.transpose(1, 2), lse) if return_attn_probs else output.transpose(1, 2)

    return flash_attn_func


def flash_4(core: Core) -> Callable[..., Any]:
    def flash_attn_func(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[int | None, int | None] = (None, None),
        learnable_sink: Tensor | None = None,
        softcap: float = 0.0,
        num_splits: int = 1,
        pack_gqa: bool | None = None,
        deterministic: bool = False,
        mask_mod: Any = None,
        return_lse: bool = False,
    ) -> Any:
        if any(side is not None and side < 0 for side in window_size):
            raise ValueError("None is no limit")
        output, lse = core(
            *swap(q, k, v),
            scale=softmax_scale,
            causal=causal,
            window=window_size,
            softcap=softcap,
            diagonal=BOTTOM,
            sinks=learnable_sink,
        )
        return output.transpose(1, 2), lse if return_lse else None

    return flash_attn_func


def _each(
    core: Core, q: Tensor, k: Tensor, v: Tensor, starts: Any, slopes: Tensor | None = None, **options: Any
) -> tuple[Tensor, Tensor]:
    """Sequence after sequence of packed ones."""
    results = []
    for n, (a, b, c, d) in enumerate(zip(starts[0][:-1], starts[0][1:], starts[1][:-1], starts[1][1:], strict=True)):
        qkv = (q[None, a:b], k[None, c:d], v[None, c:d])
        own = slopes if slopes is None or slopes.dim() == 1 else slopes[n]
        results.append(core(*swap(*qkv), diagonal=BOTTOM, mask=linear_bias(own, b - a, d - c), **options))
    return torch.cat([o[0].transpose(0, 1) for o, _ in results]), torch.cat([lse[0] for _, lse in results], dim=-1)


def flash_varlen(core: Core) -> Callable[..., Any]:
    def flash_attn_varlen_func(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        dropout_p: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[int, int] = (-1, -1),
        softcap: float = 0.0,
        alibi_slopes: Tensor | None = None,
        deterministic: bool = False,
        return_attn_probs: bool = False,
        block_table: Tensor | None = None,
    ) -> Any:
        if dropout_p:
            raise RuntimeError("no dropout")
        starts = (cu_seqlens_q.tolist(), cu_seqlens_k.tolist())
        output, lse = _each(
            core, q, k, v, starts, alibi_slopes, scale=softmax_scale, causal=causal, window=window_size, softcap=softcap
        )
        return (output, lse, None) if return_attn_probs else output

    return flash_attn_varlen_func


def torch_varlen(core: Core) -> Callable[..., Any]:
    def varlen_attn(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seq_q: Tensor,
        cu_seq_k: Tensor,
        max_q: int,
        max_k: int,
        *,
        return_aux: Any = None,
        scale: float | None = None,
        window_size: tuple[int, int] = (-1, -1),
    ) -> Tensor:
        starts = (cu_seq_q.tolist(), cu_seq_k.tolist())
        return _each(core, query, key, value, starts, scale=scale, window=window_size)[0]

    return varlen_attn


def flash_kvcache(core: Core) -> Callable[..., Any]:
    def flash_attn_with_kvcache(
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        k: Tensor | None = None,
        v: Tensor | None = None,
        rotary_cos: Tensor | None = None,
        rotary_sin: Tensor | None = None,
        cache_seqlens: Tensor | None = None,
        cache_batch_idx: Tensor | None = None,
        cache_leftpad: Tensor | None = None,
        block_table: Tensor | None = None,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[int, int] = (-1, -1),
        softcap: float = 0.0,
        rotary_interleaved: bool = True,
        alibi_slopes: Tensor | None = None,
        num_splits: int = 0,
        return_softmax_lse: bool = False,
    ) -> Any:
        assert cache_seqlens is not None
        results = []
        for b, T in enumerate(cache_seqlens.tolist()):
            caches = (
                x[b] if block_table is None else x[block_table[b].long()].flatten(0, 1) for x in (k_cache, v_cache)
            )
            slopes = alibi_slopes if alibi_slopes is None or alibi_slopes.dim() == 1 else alibi_slopes[b]
            with torch.no_grad():
                results.append(
                    core(
                        *swap(q[b : b + 1], *(x[None, :T] for x in caches)),
                        scale=softmax_scale,
                        mask=linear_bias(slopes, q.shape[1], T),
                        causal=causal,
                        window=window_size,
                        softcap=softcap,
                        diagonal=BOTTOM,
                    )
                )
        output, lse = (torch.cat(each) for each in zip(*results, strict=True))
        return (output.transpose(1, 2), lse) if return_softmax_lse else output.transpose(1, 2)

    return flash_attn_with_kvcache


def flash_mla(core: Core) -> Callable[..., Any]:
    def flash_mla_with_kvcache(
        q: Tensor,
        k_cache: Tensor,
        block_table: Tensor,
        cache_seqlens: Tensor,
        head_dim_v: int,
        tile_scheduler_metadata: Any,
        num_splits: Any,
        softmax_scale: float | None = None,
        causal: bool = False,
        is_fp8_kvcache: bool = False,
    ) -> Any:
        results = []
        for b, T in enumerate(cache_seqlens.tolist()):
            keys = k_cache[block_table[b].long()].flatten(0, 1)[None, :T]
            tensors = swap(q[b : b + 1], keys, keys[..., :head_dim_v])
            results.append(core(*tensors, scale=softmax_scale, causal=causal, diagonal=BOTTOM))
        output, lse = (torch.cat(each) for each in zip(*results, strict=True))
        return output.transpose(1, 2), lse

    return flash_mla_with_kvcache


# ---- flashinfer, xformers, Transformer Engine ------------------------------------------------------------------------


def flashinfer_prefill(core: Core) -> Callable[..., Any]:
    def single_prefill_with_kv_cache(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale_q: Tensor | None = None,
        scale_k: Tensor | None = None,
        scale_v: Tensor | None = None,
        o_dtype: Any = None,
        custom_mask: Tensor | None = None,
        packed_custom_mask: Tensor | None = None,
        causal: bool = False,
        kv_layout: str = "NHD",
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        backend: str = "auto",
        return_lse: bool = False,
    ) -> Any:
        output, lse = core(
            *swap(q[None], k[None], v[None]),
            scale=sm_scale,
            mask=custom_mask,
            causal=causal,
            window=(window_left, -1),
            softcap=logits_soft_cap or 0.0,
            diagonal=BOTTOM,
        )
        output, lse = output[0].transpose(0, 1), lse[0].transpose(0, 1) / math.log(2)
        return (output, lse) if return_lse else output

    return single_prefill_with_kv_cache


def flashinfer_decode(core: Core) -> Callable[..., Any]:
    def single_decode_with_kv_cache(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kv_layout: str = "NHD",
        pos_encoding_mode: str = "NONE",
        use_tensor_cores: bool = False,
        q_scale: float | None = None,
        k_scale: float | None = None,
        v_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        sm_scale: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        return_lse: bool = False,
    ) -> Any:
        if q.dim() != 2:
            raise ValueError("one query")
        output, lse = core(
            *swap(q[None, None], k[None], v[None]),
            scale=sm_scale,
            window=(window_left, -1),
            softcap=logits_soft_cap or 0.0,
            diagonal=BOTTOM,
        )
        output, lse = output[0, :, 0], lse[0, :, 0] / math.log(2)
        return (output, lse) if return_lse else output

    return single_decode_with_kv_cache


def xformers(core: Core) -> Callable[..., Any]:
    def memory_efficient_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_bias: Tensor | None = None,
        p: float = 0.0,
        scale: float | None = None,
        *,
        op: Any = None,
        output_dtype: Any = None,
    ) -> Tensor:
        logits = (query.shape[0], query.shape[2], query.shape[1], key.shape[1])
        if attn_bias is not None and (attn_bias.shape != logits or attn_bias.dtype == torch.bool):
            raise ValueError("a bias of the shape of the logits")
        return core(*swap(query, key, value), scale=scale, mask=attn_bias)[0].transpose(1, 2)

    return memory_efficient_attention


class DotProductAttention(torch.nn.Module):
    """Transformer Engine's: its scale is fixed by the constructor, and heads are joined in its output."""

    def __init__(self, core: Core) -> None:
        super().__init__()
        self.core = core

    def forward(
        self,
        query_layer: Tensor,
        key_layer: Tensor,
        value_layer: Tensor,
        attention_mask: Tensor | None = None,
        qkv_format: str = "sbhd",
        cu_seqlens_q: Tensor | None = None,
        cu_seqlens_kv: Tensor | None = None,
        attn_mask_type: str = "causal",
        window_size: tuple[int, int] | None = None,
        checkpoint_core_attention: bool = False,
        core_attention_bias_type: str = "no_bias",
        core_attention_bias: Tensor | None = None,
        alibi_slopes: Tensor | None = None,
        fast_zero_fill: bool = True,
    ) -> Tensor:
        if qkv_format != "bshd" or alibi_slopes is not None:
            raise ValueError("this stand-in has batches first")
        mask = None if attention_mask is None else ~attention_mask
        output, _ = self.core(
            *swap(query_layer, key_layer, value_layer),
            scale=None,
            mask=core_attention_bias if mask is None else mask,
            causal=attn_mask_type == "causal",
            window=window_size or (-1, -1),
        )
        return output.transpose(1, 2).flatten(2, 3)


# ---- transformers ----------------------------------------------------------------------------------------------------


def hf_gpt_oss(core: Core) -> Callable[..., Any]:
    def eager_attention_forward(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> Any:
        dropout = dropout if module.training else 0.0
        output, _ = core(query, key, value, scale=scaling, mask=attention_mask, sinks=module.sinks, dropout=dropout)
        return output.transpose(1, 2).contiguous(), None

    return eager_attention_forward


def hf_gemma_2(core: Core) -> Callable[..., Any]:
    def eager_attention_forward(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        softcap: float | None = None,
        **kwargs: Any,
    ) -> Any:
        scaling = module.head_dim**-0.5 if scaling is None else scaling
        options = {"softcap": softcap or 0.0, "dropout": dropout if module.training else 0.0}
        output, _ = core(query, key, value, scale=scaling, mask=attention_mask, **options)
        return output.transpose(1, 2).contiguous(), None

    return eager_attention_forward


def hf_mistral(core: Core) -> Callable[..., Any]:
    def flash_attention_forward(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        sliding_window: int | None = 4096,
        softcap: float | None = None,
        **kwargs: Any,
    ) -> Any:
        window = (-1, -1) if sliding_window is None else (sliding_window - 1, 0)
        options = {"softcap": softcap or 0.0, "dropout": dropout if module.training else 0.0}
        output, _ = core(query, key, value, scale=scaling, mask=attention_mask, window=window, **options)
        return output.transpose(1, 2).contiguous(), None

    return flash_attention_forward


def hf_gpt_2(core: Core) -> Callable[..., Any]:
    def eager_attention_forward(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
    ) -> Any:
        output, _ = core(query, key, value, scale=None, mask=attention_mask)
        return output.transpose(1, 2), None

    return eager_attention_forward


# ---- JAX and Keras, on torch tensors ---------------------------------------------------------------------------------


def jax_nn(core: Core) -> Callable[..., Any]:
    def dot_product_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        scale: float | None = None,
        is_causal: bool = False,
        query_seq_lengths: Tensor | None = None,
        key_value_seq_lengths: Tensor | None = None,
        implementation: str | None = None,
        local_window_size: tuple[int, int] | None = None,
        return_residual: bool = False,
    ) -> Any:
        if local_window_size is not None and min(local_window_size) < 0:
            raise ValueError("windows are not negative")
        output, lse = core(
            *swap(query, key, value),
            scale=scale,
            mask=bias if mask is None else mask,
            causal=is_causal,
            window=local_window_size or (-1, -1),
            empty="mean",
        )
        return (output.transpose(1, 2), lse.transpose(1, 2)) if return_residual else output.transpose(1, 2)

    return dot_product_attention


def keras(core: Core) -> Callable[..., Any]:
    def dot_product_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
        scale: float | None = None,
        is_causal: bool = False,
        flash_attention: bool | None = None,
        attn_logits_soft_cap: float | None = None,
    ) -> Tensor:
        return core(
            *swap(query, key, value),
            scale=scale,
            mask=bias if mask is None else mask,
            causal=is_causal,
            softcap=attn_logits_soft_cap or 0.0,
        )[0].transpose(1, 2)

    return dot_product_attention


def flax_linen(core: Core) -> Callable[..., Any]:
    def dot_product_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
        broadcast_dropout: bool = True,
        dropout_rng: Any = None,
        dropout_rate: float = 0.1,
        deterministic: bool = False,
        dtype: Any = None,
        precision: Any = None,
        module: Any = None,
        force_fp32_for_softmax: bool = False,
    ) -> Tensor:
        if dropout_rate and not deterministic:
            raise ValueError("dropout needs a key")
        mask = bias if mask is None else mask
        return core(*swap(query, key, value), scale=None, mask=mask, empty="mean")[0].transpose(1, 2)

    return dot_product_attention


def flax_nnx(core: Core) -> Callable[..., Any]:
    def dot_product_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
        broadcast_dropout: bool = True,
        dropout_rng: Any = None,
        dropout_rate: float = 0.0,
        deterministic: bool = False,
        dtype: Any = None,
        precision: Any = None,
        module: Any = None,
        promote_dtype: Any = None,
        is_causal: bool = False,
    ) -> Tensor:
        mask = bias if mask is None else mask
        output = core(*swap(query, key, value), scale=None, mask=mask, causal=is_causal)
        return output[0].transpose(1, 2)

    return dot_product_attention


def equinox(core: Core) -> Callable[..., Any]:
    def dot_product_attention(
        query: Tensor,
        key_: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        dropout: Any = None,
        *,
        key: Any = None,
        inference: bool | None = None,
    ) -> Tensor:
        if query.dim() != 2 or (mask is not None and mask.shape != (len(query), len(key_))):
            raise ValueError("one head of one sequence")
        return core(*(x[None, None] for x in (query, key_, value)), scale=None, mask=mask)[0][0, 0]

    return dot_product_attention


def mlx(core: Core) -> Callable[..., Any]:
    def scaled_dot_product_attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float,
        mask: Any = None,
        sinks: Tensor | None = None,
        stream: Any = None,
    ) -> Tensor:
        causal = isinstance(mask, str)
        own = None if causal else mask
        return core(q, k, v, scale=scale, mask=own, causal=causal, diagonal=LONGER, sinks=sinks)[0]

    return scaled_dot_product_attention


def onnx(core: Core) -> Callable[..., Any]:
    def attention(
        Q: Tensor,
        K: Tensor,
        V: Tensor,
        attn_mask: Tensor | None = None,
        past_key: Tensor | None = None,
        past_value: Tensor | None = None,
        scale: float | None = None,
        is_causal: int = 0,
        q_num_heads: int | None = None,
        kv_num_heads: int | None = None,
        softmax_precision: int | None = None,
        softcap: float = 0.0,
        qk_matmul_output_mode: int = 0,
    ) -> Any:
        if is_causal not in (0, 1) or isinstance(is_causal, bool):
            raise TypeError("an integer")
        output, _ = core(Q, K, V, scale=scale, mask=attn_mask, causal=bool(is_causal), softcap=softcap)
        return output, K, V, None

    return attention


@dataclass(frozen=True)
class Signature:
    """A signature with its faulty core.

    Attributes:
        make: a core → the kernel.
        interface: that it is recognised as.
        fault: a core.
        claims: capabilities that it declares, among others.
    """

    make: Callable[[Core], Callable[..., Any]]
    interface: str
    fault: Core
    claims: tuple[str, ...]


SIGNATURES = {
    "torch": Signature(sdpa, "sdpa", with_other_diagonal, ("causal",)),
    "ttnn": Signature(causal_by_default, "sdpa", with_scale_of_keys, ("scale",)),
    "flex": Signature(flex, "flex", with_scaled_lse, ("log-sum-exp", "score-mod", "mask-mod", "window")),
    "tinygrad": Signature(tinygrad, "sdpa", without_mask, ("boolean-mask",)),
    "triton": Signature(triton, "triton", with_other_diagonal, ("causal",)),
    "flash-attn 2": Signature(flash_2, "flash", with_scaled_lse, ("log-sum-exp",)),
    "flash-attn 3": Signature(flash_3, "flash", with_sign_of_dk, ("gradients",)),
    "flash-attn 4": Signature(flash_4, "flash", without_window, ("window",)),
    "flash-attn varlen": Signature(flash_varlen, "flash-varlen", with_cap_on_mask, ("softcap",)),
    "torch varlen": Signature(torch_varlen, "flash-varlen", without_window, ("window",)),
    "flash-attn kvcache": Signature(flash_kvcache, "flash-kvcache", with_other_diagonal, ("causal",)),
    "flashinfer prefill": Signature(flashinfer_prefill, "flashinfer", with_scaled_lse, ("log-sum-exp",)),
    "flashinfer decode": Signature(flashinfer_decode, "flashinfer", without_the_last_column, ("output",)),
    "xformers": Signature(xformers, "xformers", without_mask, ("additive-mask",)),
    "transformer-engine": Signature(DotProductAttention, "transformer-engine", without_mask, ("boolean-mask",)),
    "flash-mla": Signature(flash_mla, "mla", with_other_diagonal, ("causal", "shared-keys-values", "paged-keys")),
    "gpt_oss": Signature(hf_gpt_oss, "hf", with_scale_of_keys, ("scale", "sinks")),
    "gemma2": Signature(hf_gemma_2, "hf", with_cap_on_mask, ("softcap",)),
    "mistral": Signature(hf_mistral, "hf", with_sign_of_dk, ("gradients",)),
    "gpt2": Signature(hf_gpt_2, "hf", without_mask, ("boolean-mask",)),
    "jax.nn": Signature(jax_nn, "jax", without_window, ("window",)),
    "keras": Signature(keras, "keras", with_cap_on_mask, ("softcap",)),
    "flax linen": Signature(flax_linen, "flax", without_the_last_column, ("output",)),
    "flax nnx": Signature(flax_nnx, "flax", with_other_diagonal, ("causal",)),
    "equinox": Signature(equinox, "equinox", without_mask, ("boolean-mask",)),
    "mlx": Signature(mlx, "mlx", with_scale_of_keys, ("scale", "causal-rectangle", "sinks", "sink-gradient")),
    "onnx": Signature(onnx, "onnxruntime", with_cap_on_mask, ("softcap",)),
}
