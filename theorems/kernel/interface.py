"""How kernels want to be called: the signatures that attention has in PyTorch, flash-attn, transformers and JAX.

One interface turns a :class:`Request` into arguments, and what the kernel returns into (output, log-sum-exp). Each
keyword that a kernel has is a capability that it declares thereby.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

from theorems.kernel.with_torch import torch


class Returned(NamedTuple):
    """What a kernel returned, in our order.

    Attributes:
        output: (B, H, L, M).
        log_sum_exp: (B, H, L), where it was asked for.
        weights: (B, H, L, T), where it returns them.
    """

    output: Any
    log_sum_exp: Any = None
    weights: Any = None


@dataclass(frozen=True)
class Request:
    """A call in tensors.

    Attributes:
        query, key, value: shapes (B, H, L, E), (B, G, T, E), (B, G, T, M).
        scale: None leaves it to the kernel.
        visible: boolean, broadcastable to (B, H, L, T); True is seen.
        bias: likewise, added to the logits.
        causal, window, softcap: as in :class:`generators.attention_call.AttentionCall`.
        log_sum_exp: whether it is asked for.
        dropout: the share of weights that are dropped.
        sinks: (H,), the logit of one more key of value 0.
        slopes: (B, H), of ALiBi.
        lengths: (B, 2), the queries and keys that a batch entry has; the rest is padding.
        parts: (T,), to which of the parts to merge a key belongs; two halves if it is left out.
        number_of_parts: that there are, some may have no key.
        splits, page: into so many the kernel is to cut the keys, keys to a page; 0 for as it likes, and none.
        seed: for the order of pages.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scale: float | None = 1.0
    visible: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    causal: bool = False
    window: tuple[int, int] | None = None
    softcap: float = 0.0
    log_sum_exp: bool = False
    dropout: float = 0.0
    sinks: torch.Tensor | None = None
    slopes: torch.Tensor | None = None
    lengths: torch.Tensor | None = None
    parts: torch.Tensor | None = None
    number_of_parts: int = 2
    splits: int = 0
    page: int = 0
    seed: int = 0

    @property
    def groups(self) -> int:
        """Heads to a group of keys and values."""
        return int(self.query.shape[1] // self.key.shape[1])


@dataclass(frozen=True)
class Interface:
    """A signature.

    Attributes:
        name: as ``--interface`` has it.
        signature: for a reader.
        known_by: parameters of which a kernel of this interface has one at least.
        capabilities: what a parameter declares: its name → names of capabilities.
        call: (kernel, request, its parameters) → what it returned, in our order.
    """

    name: str
    signature: str
    known_by: tuple[str, ...]
    capabilities: Mapping[str, tuple[str, ...]]
    call: Callable[[Callable[..., Any], Request, Collection[str]], Returned]


def _plain(kernel: Callable[..., Any], request: Request, has: Collection[str]) -> Returned:
    options = {"scale": request.scale} if "scale" in has and request.scale is not None else {}
    return Returned(kernel(request.query, request.key, request.value, **options))


def _sdpa(kernel: Callable[..., Any], request: Request, has: Collection[str]) -> Returned:
    options: dict[str, Any] = {}
    if request.scale is not None and "scale" in has:
        options["scale"] = request.scale
    mask = request.visible if request.visible is not None else request.bias
    if mask is not None:
        options["attn_mask"] = mask
    if request.causal:
        options["is_causal"] = True
    if request.groups > 1:
        options["enable_gqa"] = True
    if request.softcap:
        options["softcap"] = request.softcap
    if request.dropout:
        options["dropout_p"] = request.dropout
    return Returned(kernel(request.query, request.key, request.value, **options))


LSE = ("return_lse", "return_softmax_lse", "return_attn_probs")
"""Flags of kernels in the way of flash attention with which they return (output, log-sum-exp, …)."""


def _flash(kernel: Callable[..., Any], request: Request, has: Collection[str]) -> Returned:
    options: dict[str, Any] = {}
    if request.scale is not None:
        options["softmax_scale"] = request.scale
    if request.causal:
        options["causal"] = True
    if request.window is not None:
        # In the newest flash attention no limit is None, and −1 a number unless both are.
        none = default_of(kernel, "window_size") == (None, None)
        options["window_size"] = tuple(None if none and side < 0 else side for side in request.window)
    if request.softcap:
        options["softcap"] = request.softcap
    flag = next((name for name in LSE if name in has), None)
    if request.log_sum_exp and flag:
        options[flag] = True
    if request.dropout:
        options["dropout_p"] = request.dropout
    given = (x.transpose(1, 2) for x in (request.query, request.key, request.value))
    found = kernel(*given, **options)
    output, lse = (found[0], found[1]) if isinstance(found, tuple | list) else (found, None)
    return Returned(_swap_axes(output), lse if request.log_sum_exp else None)


class _Module(torch.nn.Module):
    """What transformers hands to an attention function as ``module``."""

    def __init__(self, groups: int, causal: bool) -> None:
        super().__init__()
        self.num_key_value_groups = groups
        self.is_causal = causal
        self.layer_idx = 0
        self.config = SimpleNamespace(_attn_implementation="eager")
        self.eval()


def _hf(kernel: Callable[..., Any], request: Request, has: Collection[str]) -> Returned:
    options: dict[str, Any] = {"dropout": 0.0} if "dropout" in has or "**" in has else {}
    # Left to itself an attention function of transformers takes 1/√E or what its module says; that is the model's.
    options["scaling"] = request.scale if request.scale is not None else 1 / math.sqrt(request.query.shape[-1])
    if request.softcap:
        options["softcap"] = request.softcap
    bias = _of_rank_four(request.bias)
    if request.visible is not None:
        hidden = torch.tensor(torch.finfo(request.query.dtype).min, dtype=request.query.dtype)
        seen = _of_rank_four(request.visible)
        bias = torch.where(seen, torch.zeros((), dtype=request.query.dtype), hidden.to(request.query))
    module = _Module(request.groups, request.causal)
    found = kernel(module, request.query, request.key, request.value, bias, **options)
    output, *rest = found if isinstance(found, tuple | list) else (found,)
    weights = rest[0] if rest and isinstance(rest[0], torch.Tensor) and rest[0].dim() == 4 else None
    return Returned(_swap_axes(output), weights=weights)


def _jax(kernel: Callable[..., Any], request: Request, has: Collection[str]) -> Returned:
    options: dict[str, Any] = {"scale": request.scale}
    if request.visible is not None:
        options["mask"] = _of_rank_four(request.visible)
    if request.bias is not None:
        options["bias"] = _of_rank_four(request.bias)
    if request.causal:
        options["is_causal"] = True
    if request.window is not None:
        # Of −1 it means one key less than none, where others mean no limit.
        options["local_window_size"] = tuple(request.key.shape[2] if side < 0 else side for side in request.window)
    if request.log_sum_exp:
        options["return_residual"] = True
    given = (x.transpose(1, 2) for x in (request.query, request.key, request.value))
    found = kernel(*given, **options)
    output, lse = found if isinstance(found, tuple) else (found, None)
    return Returned(
        _swap_axes(output), lse.transpose(1, 2) if isinstance(lse, torch.Tensor) and lse.dim() == 3 else lse
    )


def _of_rank_four(mask: torch.Tensor | None) -> Any:
    """The mask with the axes that it broadcasts along: not everybody takes one of (L, T)."""
    return mask if mask is None else mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape))


def _swap_axes(found: Any) -> Any:
    """(B, L, H, M) to (B, H, L, M); what is no such tensor is for the caller to refuse."""
    return found.transpose(1, 2) if isinstance(found, torch.Tensor) and found.dim() == 4 else found


MASKS = ("boolean-mask", "additive-mask")
INTERFACES: Mapping[str, Interface] = MappingProxyType(
    {
        one.name: one
        for one in (
            Interface(
                "hf",
                "(module, query, key, value, attention_mask, scaling=None, …) → (out (B, L, H, E), weights)",
                ("attention_mask", "scaling"),
                MappingProxyType(
                    {
                        "attention_mask": MASKS,
                        "scaling": ("scale",),
                        # A single query sees all keys there, as the last of many: L = T alone is claimed.
                        "is_causal": ("causal",),
                        "module": ("grouped-heads",),
                        "softcap": ("softcap",),
                    }
                ),
                _hf,
            ),
            Interface(
                "jax",
                "(query, key, value, bias, mask, *, scale, is_causal, local_window_size) on (B, L, H, E)",
                ("local_window_size", "query_seq_lengths"),
                MappingProxyType(
                    {
                        "bias": ("additive-mask",),
                        "mask": ("boolean-mask",),
                        "scale": ("scale", "default-scale"),
                        "is_causal": ("causal", "causal-rectangle"),
                        "local_window_size": ("window",),
                        "return_residual": ("log-sum-exp",),
                        "key": ("grouped-heads",),
                    }
                ),
                _jax,
            ),
            Interface(
                "sdpa",
                "(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False)"
                " on (B, H, L, E)",
                ("attn_mask", "is_causal", "enable_gqa"),
                MappingProxyType(
                    {
                        "attn_mask": MASKS,
                        "is_causal": ("causal", "causal-rectangle"),
                        "scale": ("scale", "default-scale"),
                        "enable_gqa": ("grouped-heads",),
                        "softcap": ("softcap",),
                        "dropout_p": ("dropout",),
                    }
                ),
                _sdpa,
            ),
            Interface(
                "flash",
                "(q, k, v, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, return_lse=False)"
                " on (B, L, H, E)",
                ("softmax_scale", "window_size", "causal", *LSE),
                MappingProxyType(
                    {
                        "softmax_scale": ("scale", "default-scale"),
                        "causal": ("causal", "causal-rectangle"),
                        "window_size": ("window",),
                        "softcap": ("softcap",),
                        "deterministic": ("same-bits",),
                        "dropout_p": ("dropout",),
                    }
                    | dict.fromkeys(LSE, ("log-sum-exp",))
                ),
                _flash,
            ),
            Interface(
                "plain",
                "(query (…, L, d), keys (…, T, d), values (…, T, m)) → (…, L, m)",
                (),
                MappingProxyType({"scale": ("scale",)}),
                _plain,
            ),
        )
    }
)
"""By name; in the order in which they are recognised, the last takes what no other does."""

ALWAYS = ("output", "gradients", "exact-weights", "memory", "repeated-calls")
"""Capabilities that every kernel has; of gradients where it has a backward pass."""


def parameters_of(kernel: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a kernel's parameters; ``**`` where it takes further ones. Builtins of PyTorch have none."""
    if kernel is torch.nn.functional.scaled_dot_product_attention:
        return ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    try:
        found = inspect.signature(kernel).parameters.values()
    except (ValueError, TypeError):
        return ()
    return tuple(
        "**" if one.kind is one.VAR_KEYWORD else one.name for one in found if one.kind is not one.VAR_POSITIONAL
    )


def default_of(kernel: Callable[..., Any], parameter: str) -> Any:
    """The default of a parameter; None where it has none, or nobody knows."""
    try:
        found = inspect.signature(kernel).parameters[parameter].default
    except (ValueError, TypeError, KeyError):
        return None
    return None if found is inspect.Parameter.empty else found


def recognise(parameters: Collection[str]) -> Interface:
    """The interface of a kernel with those parameters."""
    return next(one for one in INTERFACES.values() if not one.known_by or {*one.known_by} & {*parameters})


def declared_capabilities(interface: Interface, parameters: Collection[str]) -> frozenset[str]:
    """The capabilities that a kernel with those parameters has."""
    return frozenset(name for one, names in interface.capabilities.items() if one in parameters for name in names)
