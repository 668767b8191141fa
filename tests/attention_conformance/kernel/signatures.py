"""Attention under the signatures of other libraries: short torch functions in place of the libraries.

A kernel is made from a signature and a core: a function that takes query (B, H, L, E), key and value (B, G, T, E) and
options, and returns output and log-sum-exp. :func:`attend` is the right core; each other core has one fault. Sizes: B
batch entries, H query heads, G key heads, L queries, T keys, E columns.
"""

from __future__ import annotations

import inspect
import math
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TOP, BOTTOM = "top", "bottom"


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
    """Return output and log-sum-exp of right attention; None or −1 as a side of the window means no limit."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    logits = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    logits = logits if modify is None else modify(logits)
    L, T = logits.shape[-2:]
    shift = {TOP: 0, BOTTOM: T - L}[diagonal]
    ahead = torch.arange(T) - torch.arange(L)[:, None] - shift
    visible = (ahead <= 0) if causal else torch.ones(L, T, dtype=torch.bool)
    left, right = (-1 if side is None else side for side in window)
    visible = visible & ((ahead >= -left) | (left < 0)) & ((ahead <= right) | (right < 0))
    if mask is not None:
        if mask.dtype == torch.bool:
            visible = visible & mask
        else:
            logits = logits + mask
            visible = visible & ~torch.isneginf(mask)
    logits = torch.where(visible, logits, torch.finfo(q.dtype).min if empty == "mean" else -torch.inf)
    if sinks is not None:
        logits = torch.cat([logits, sinks.reshape(1, -1, 1, 1).expand(*logits.shape[:-1], 1).to(logits)], dim=-1)
    least = logits.new_full((*logits.shape[:-1], 1), -torch.inf)  # so that a row without any key has a maximum
    top = torch.cat([logits.detach(), least], dim=-1).amax(dim=-1, keepdim=True)
    top = torch.where(torch.isneginf(top), 0.0, top)
    unnormalised = torch.exp(logits - top)
    total = unnormalised.sum(dim=-1, keepdim=True)
    weights = (unnormalised / torch.where(total == 0, 1.0, total))[..., :T]
    return torch.nn.functional.dropout(weights, dropout) @ v, (top + torch.log(total)).squeeze(-1)


def with_sign_of_dk(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Return a right output whose dK has the wrong sign."""
    return attend(q, 2 * k.detach() - k, v, **options)


def with_other_diagonal(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Let each causal row see the next key, too."""
    T = k.shape[2]
    if options.get("causal") and T > 1:
        options = options | {"causal": False}
        shift = {TOP: 0, BOTTOM: T - q.shape[2]}[options.get("diagonal", TOP)]
        visible = torch.arange(T) - torch.arange(q.shape[2])[:, None] - shift <= 1
        return attend(q, k, v, **options | {"mask": visible if options.get("mask") is None else options["mask"]})
    return attend(q, k, v, **options)


def with_cap_on_mask(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Use half of the requested soft cap."""
    return attend(q, k, v, **options | {"softcap": options.get("softcap", 0.0) / 2})


def with_scaled_lse(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Return the log-sum-exp to the base 2 instead of e."""
    output, lse = attend(q, k, v, **options)
    return output, lse / math.log(2)


def without_window(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Accept a window and ignore it."""
    return attend(q, k, v, **options | {"window": (-1, -1)})


def without_mask(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Accept a mask and ignore it."""
    return attend(q, k, v, **options | {"mask": None})


def with_scale_of_keys(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Apply a given scale twice."""
    scale = options.pop("scale")
    return attend(q, k, v, scale=None if scale is None else scale**2, **options)


def without_the_last_column(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Ignore the last column of queries and keys if they have more than 8 columns."""
    scale = options.pop("scale")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    cut = q.shape[-1] - 1 if q.shape[-1] > 8 else q.shape[-1]
    return attend(q[..., :cut], k[..., :cut], v, scale=scale, **options)


Core = Callable[..., tuple[Tensor, Tensor]]


def signature(parameters: str) -> Callable[[Callable[[Core, Any], Any]], Callable[[Core], Callable[..., Any]]]:
    """Return a decorator for a function of a core and a call's arguments: the decorated function makes a kernel with
    these parameters from a core.
    """

    def of(body: Callable[[Core, Any], Any]) -> Callable[[Core], Callable[..., Any]]:
        space: dict[str, Any] = {"torch": torch}
        exec(f"def kernel({parameters}): ...", space)
        names = [*inspect.signature(space["kernel"]).parameters]
        space["given"] = namedtuple("given", names)

        def make(core: Core) -> Callable[..., Any]:
            own: dict[str, Any] = {**space, "body": body, "core": core}
            exec(f"def kernel({parameters}): return body(core, given({', '.join(names)}))", own)
            kernel: Callable[..., Any] = own["kernel"]
            kernel.__name__ = kernel.__qualname__ = body.__name__
            kernel.__module__ = body.__module__
            return kernel

        return make

    return of


def swap(*tensors: Tensor) -> list[Tensor]:
    return [x.transpose(1, 2) for x in tensors]


# ---- PyTorch and similar signatures ----------------------------------------------------------------------------------


@signature("query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False")
def sdpa(core: Core, a: Any) -> Tensor:
    if a.dropout_p:
        raise ValueError("no dropout")
    return core(a.query, a.key, a.value, scale=a.scale, mask=a.attn_mask, causal=a.is_causal)[0]


@signature(
    "input_tensor_q, input_tensor_k, input_tensor_v, *, attn_mask=None, is_causal=True, scale=None, memory_config=None"
)
def causal_by_default(core: Core, a: Any) -> Tensor:
    return core(
        a.input_tensor_q, a.input_tensor_k, a.input_tensor_v, scale=a.scale, mask=a.attn_mask, causal=a.is_causal
    )[0]


@signature("self, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, enable_gqa=False")
def tinygrad(core: Core, a: Any) -> Tensor:
    if a.dropout_p:
        raise ValueError("no dropout")
    return core(a.self, a.key, a.value, scale=None, mask=a.attn_mask, causal=a.is_causal)[0]


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
    """Return the bias −slope · |row − key| for slopes (H,) or (B, H), the last row aligned with the last key."""
    if slopes is None:
        return None
    ahead = torch.arange(T) - torch.arange(L)[:, None] - (T - L)
    return -slopes.reshape(-1, slopes.shape[-1], 1, 1) * ahead.abs()


@signature(
    "q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
    "alibi_slopes=None, deterministic=False, return_attn_probs=False"
)
def flash_2(core: Core, a: Any) -> Any:
    if a.q.shape[-1] % 8 or a.v.shape[-1] % 8 or a.q.shape[-1] > 256:
        raise RuntimeError("head dimension is a multiple of 8 up to 256")
    if a.dropout_p:
        raise RuntimeError("no dropout")
    output, lse = core(
        *swap(a.q, a.k, a.v),
        scale=a.softmax_scale,
        mask=linear_bias(a.alibi_slopes, a.q.shape[1], a.k.shape[1]),
        causal=a.causal,
        window=a.window_size,
        softcap=a.softcap,
        diagonal=BOTTOM,
    )
    output = output.transpose(1, 2)
    padded = torch.nn.functional.pad(lse, (0, -lse.shape[-1] % 128))
    return (output, padded, None) if a.return_attn_probs else output


@signature(
    "q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None, "
    "window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False, "
    "sm_margin=0, return_attn_probs=False"
)
def flash_3(core: Core, a: Any) -> Any:
    output, lse = core(
        *swap(a.q, a.k, a.v),
        scale=a.softmax_scale,
        causal=a.causal,
        window=a.window_size,
        softcap=a.softcap,
        diagonal=BOTTOM,
    )
    return (output.transpose(1, 2), lse) if a.return_attn_probs else output.transpose(1, 2)


@signature(
    "q, k, v, softmax_scale=None, causal=False, window_size=(None, None), learnable_sink=None, softcap=0.0, "
    "num_splits=1, pack_gqa=None, deterministic=False, mask_mod=None, return_lse=False"
)
def flash_4(core: Core, a: Any) -> Any:
    if any(side is not None and side < 0 for side in a.window_size):
        raise ValueError("None is no limit")
    output, lse = core(
        *swap(a.q, a.k, a.v),
        scale=a.softmax_scale,
        causal=a.causal,
        window=a.window_size,
        softcap=a.softcap,
        diagonal=BOTTOM,
        sinks=a.learnable_sink,
    )
    return (output.transpose(1, 2), lse if a.return_lse else None)


def _each(
    core: Core, q: Tensor, k: Tensor, v: Tensor, starts: Any, slopes: Tensor | None = None, **options: Any
) -> tuple[Tensor, Tensor]:
    """Return attention on packed sequences; ``starts`` holds where each sequence of queries and of keys begins."""
    results = []
    for n, (a, b, c, d) in enumerate(zip(starts[0][:-1], starts[0][1:], starts[1][:-1], starts[1][1:], strict=True)):
        qkv = (q[None, a:b], k[None, c:d], v[None, c:d])
        own = slopes if slopes is None or slopes.dim() == 1 else slopes[n]
        results.append(core(*swap(*qkv), diagonal=BOTTOM, mask=linear_bias(own, b - a, d - c), **options))
    return torch.cat([o[0].transpose(0, 1) for o, _ in results]), torch.cat([lse[0] for _, lse in results], dim=-1)


@signature(
    "q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, "
    "causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, "
    "return_attn_probs=False, block_table=None"
)
def flash_varlen(core: Core, a: Any) -> Any:
    if a.dropout_p:
        raise RuntimeError("no dropout")
    starts = (a.cu_seqlens_q.tolist(), a.cu_seqlens_k.tolist())
    output, lse = _each(
        core,
        a.q,
        a.k,
        a.v,
        starts,
        a.alibi_slopes,
        scale=a.softmax_scale,
        causal=a.causal,
        window=a.window_size,
        softcap=a.softcap,
    )
    return (output, lse, None) if a.return_attn_probs else output


@signature("query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, return_aux=None, scale=None, window_size=(-1, -1)")
def torch_varlen(core: Core, a: Any) -> Tensor:
    starts = (a.cu_seq_q.tolist(), a.cu_seq_k.tolist())
    return _each(core, a.query, a.key, a.value, starts, scale=a.scale, window=a.window_size)[0]


@signature(
    "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
    "cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, "
    "window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0, "
    "return_softmax_lse=False"
)
def flash_kvcache(core: Core, a: Any) -> Any:
    assert a.cache_seqlens is not None
    results = []
    for b, T in enumerate(a.cache_seqlens.tolist()):
        caches = (
            x[b] if a.block_table is None else x[a.block_table[b].long()].flatten(0, 1) for x in (a.k_cache, a.v_cache)
        )
        slopes = a.alibi_slopes if a.alibi_slopes is None or a.alibi_slopes.dim() == 1 else a.alibi_slopes[b]
        with torch.no_grad():
            results.append(
                core(
                    *swap(a.q[b : b + 1], *(x[None, :T] for x in caches)),
                    scale=a.softmax_scale,
                    mask=linear_bias(slopes, a.q.shape[1], T),
                    causal=a.causal,
                    window=a.window_size,
                    softcap=a.softcap,
                    diagonal=BOTTOM,
                )
            )
    output, lse = (torch.cat(each) for each in zip(*results, strict=True))
    return (output.transpose(1, 2), lse) if a.return_softmax_lse else output.transpose(1, 2)


# ---- transformers ----------------------------------------------------------------------------------------------------


@signature("module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs")
def hf_gpt_oss(core: Core, a: Any) -> Any:
    dropout = a.dropout if a.module.training else 0.0
    output, _ = core(
        a.query, a.key, a.value, scale=a.scaling, mask=a.attention_mask, sinks=a.module.sinks, dropout=dropout
    )
    return (output.transpose(1, 2).contiguous(), None)


@signature("module, query, key, value, attention_mask, dropout=0.0, scaling=None, softcap=None, **kwargs")
def hf_gemma_2(core: Core, a: Any) -> Any:
    scaling = a.module.head_dim ** (-0.5) if a.scaling is None else a.scaling
    options = {"softcap": a.softcap or 0.0, "dropout": a.dropout if a.module.training else 0.0}
    output, _ = core(a.query, a.key, a.value, scale=scaling, mask=a.attention_mask, **options)
    return (output.transpose(1, 2).contiguous(), None)


@signature(
    "module, query, key, value, attention_mask, dropout=0.0, scaling=None, sliding_window=4096, softcap=None, **kwargs"
)
def hf_mistral(core: Core, a: Any) -> Any:
    window = (-1, -1) if a.sliding_window is None else (a.sliding_window - 1, 0)
    options = {"softcap": a.softcap or 0.0, "dropout": a.dropout if a.module.training else 0.0}
    output, _ = core(a.query, a.key, a.value, scale=a.scaling, mask=a.attention_mask, window=window, **options)
    return (output.transpose(1, 2).contiguous(), None)


def hf_gpt_2(core: Core) -> Callable[..., Any]:
    def eager_attention_forward(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
    ) -> Any:
        output, _ = core(query, key, value, scale=None, mask=attention_mask)
        return output.transpose(1, 2), None

    return eager_attention_forward


# ---- JAX, on torch tensors -------------------------------------------------------------------------------------------


@signature(
    "query, key, value, bias=None, mask=None, *, scale=None, is_causal=False, query_seq_lengths=None, "
    "key_value_seq_lengths=None, implementation=None, local_window_size=None, return_residual=False"
)
def jax_nn(core: Core, a: Any) -> Any:
    if a.local_window_size is not None and min(a.local_window_size) < 0:
        raise ValueError("windows are not negative")
    output, lse = core(
        *swap(a.query, a.key, a.value),
        scale=a.scale,
        mask=a.bias if a.mask is None else a.mask,
        causal=a.is_causal,
        window=a.local_window_size or (-1, -1),
        empty="mean",
    )
    return (output.transpose(1, 2), lse.transpose(1, 2)) if a.return_residual else output.transpose(1, 2)


@dataclass(frozen=True)
class Signature:
    """A signature of a library, with a faulty core.

    Attributes:
        make: makes a kernel with this signature from a core.
        interface: the name of the interface as which the suite must recognise the signature.
        fault: a core with a fault that the suite must find.
        claims: some of the capabilities that the kernel must be found to have.
    """

    make: Callable[[Core], Callable[..., Any]]
    interface: str
    fault: Core
    claims: tuple[str, ...]


SIGNATURES = {
    "torch": Signature(sdpa, "sdpa", with_other_diagonal, ("causal",)),
    "ttnn": Signature(causal_by_default, "sdpa", with_scale_of_keys, ("scale",)),
    "tinygrad": Signature(tinygrad, "sdpa", without_mask, ("boolean-mask",)),
    "triton": Signature(triton, "sdpa", with_other_diagonal, ("causal",)),
    "flash-attn 2": Signature(flash_2, "flash", with_scaled_lse, ("log-sum-exp",)),
    "flash-attn 3": Signature(flash_3, "flash", with_sign_of_dk, ("gradients",)),
    "flash-attn 4": Signature(flash_4, "flash", without_window, ("window",)),
    "flash-attn varlen": Signature(flash_varlen, "flash-varlen", with_cap_on_mask, ("softcap",)),
    "torch varlen": Signature(torch_varlen, "flash-varlen", without_window, ("window",)),
    "flash-attn kvcache": Signature(flash_kvcache, "flash-kvcache", with_other_diagonal, ("causal",)),
    "gpt_oss": Signature(hf_gpt_oss, "hf", with_scale_of_keys, ("scale", "sinks")),
    "gemma2": Signature(hf_gemma_2, "hf", with_cap_on_mask, ("softcap",)),
    "mistral": Signature(hf_mistral, "hf", with_sign_of_dk, ("gradients",)),
    "gpt2": Signature(hf_gpt_2, "hf", without_mask, ("boolean-mask",)),
    "jax.nn": Signature(jax_nn, "jax", without_window, ("window",)),
}
