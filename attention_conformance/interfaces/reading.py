"""What is known of a signature by the names of its parameters, and what was found out of it by small calls.

A reading is plain data: :func:`attention_conformance.interfaces.by_name.interface_of` makes an interface of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

ROLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "query": ("query", "q", "queries", "xq", "query_states", "query_layer"),
        "key": ("key", "k", "keys", "xk", "key_states", "key_layer"),
        "value": ("value", "v", "values", "xv", "value_states", "value_layer"),
        "packed": ("qkv", "kv"),
        "mask": (
            *("attn_mask", "mask", "attention_mask", "atten_mask", "attn_bias", "bias", "ab", "pse", "b"),
            *("attention_bias", "key_padding_mask", "padding_mask", "key_mask"),
        ),
        "causal": ("is_causal", "causal", "use_causal_mask", "use_causal"),
        "scale": ("scale", "sm_scale", "softmax_scale", "scaling", "scale_value"),
        "layout": ("layout", "tensor_layout", "input_layout", "qkv_format", "qkv_layout", "tensor_format"),
        "heads": ("head_num", "num_heads", "n_heads", "heads", "nheads", "n_head"),
        "groups": ("kv_n_heads", "num_key_value_heads", "num_kv_heads", "n_kv_heads"),
        "dropout": ("dropout_p", "dropout", "dropout_rate", "p_dropout", "drop_rate", "attn_drop"),
        "training": ("training",),
        "window": ("window_size",),
        "softcap": ("softcap", "logits_soft_cap", "attn_logits_soft_cap", "logit_cap", "soft_cap"),
        "lse": (
            *("return_lse", "return_softmax_lse", "compute_log_sumexp", "return_residuals", "need_lse", "output_lse"),
            "return_attn_probs",
        ),
        "weights": (
            *("need_weights", "needs_weights", "return_weights", "return_softmax", "output_attentions"),
            "return_attn_probs",
        ),
        "out": ("out", "o", "output"),
        "upcast": ("upcast", "upcast_attention"),
        "dtype": ("dtype", "compute_dtype"),
        "deterministic": ("deterministic",),
        "module": ("module",),
    }
)
"""What parameters are called, the best name first."""
AXES = ("BHLE", "BLHE", "LBHE", "NLE", "BLHE joined")
"""Orders of the axes of tensors; N is B·H, and joined heads are one axis, H·E."""
SAID = MappingProxyType(
    {
        "BHLE": "(B, H, L, E)",
        "BLHE": "(B, L, H, E)",
        "LBHE": "(L, B, H, E)",
        "NLE": "(B·H, L, E)",
        "BLHE joined": "(B, L, H·E)",
    }
)
SHOWS, HIDES, ADDED, ONES_HIDE = "True shows a key", "True hides a key", "is added to the logits", "1 hides a key"
MASK_SHAPES = ("B, H, L, T", "B, 1, L, T", "1, 1, L, T", "L, T", "B, 1, 1, T", "B, T")
FOLDED = ("B·H, L, T", "L, T")
"""In which a mask is given, the richest first; where heads are folded into the batch, in one of FOLDED."""


@dataclass(frozen=True)
class Mask:
    """A parameter for masks.

    Attributes:
        name: of the parameter.
        sense: SHOWS, HIDES, ADDED or ONES_HIDE.
        shape: one of MASK_SHAPES or FOLDED; "" for any that can be broadcast to (B, H, L, T).
    """

    name: str
    sense: str
    shape: str = ""


@dataclass(frozen=True)
class Reading:
    """How a callable is called.

    Attributes:
        parameters: all that it names.
        tensors: the names of query, key and value, or of those that hold several of them; empty: by place.
        by_keyword: whether they are given by name.
        axes, returned_axes: of AXES, of what is given and of what is returned.
        names: role → the parameter that has it, of :data:`ROLES`.
        constants: what is given in every call.
        mask, key_mask, bias: for booleans, for booleans of keys alone, and for what is added.
        always_causal: whether every call is causal.
        fixed_scale: whether the scale is 1/√E, and nobody can say otherwise.
        output, log_sum_exp, weights: where they are in what is returned; None: nowhere.
    """

    parameters: frozenset[str] = frozenset()
    tensors: tuple[str, ...] = ()
    by_keyword: bool = False
    axes: str = "BHLE"
    returned_axes: str = "BHLE"
    names: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    mask: Mask | None = None
    key_mask: Mask | None = None
    bias: Mask | None = None
    always_causal: bool = False
    fixed_scale: bool = False
    output: tuple[Any, ...] | None = ()
    log_sum_exp: tuple[Any, ...] | None = None
    weights: tuple[Any, ...] | None = None

    def lines(self) -> Iterator[str]:
        """What a report says of it."""
        found = [f"tensors are {SAID[self.axes]}"]
        if self.returned_axes != self.axes:
            found.append(f"its output is {SAID[self.returned_axes]}")
        masks = [one for one in (self.mask, self.key_mask, self.bias) if one is not None]
        said = dict.fromkeys(f"{one.name}: {one.sense}{f', of shape ({one.shape})' * bool(one.shape)}" for one in masks)
        found += [*said, *(["every call is causal"] if self.always_causal else [])]
        yield f"found out by small calls: {'; '.join(found)}"
        of_masks = {one.name for one in masks}
        given = [f"{name}={value!r}" for name, value in self.constants.items() if name not in of_masks]
        if given:
            yield f"given in every call: {', '.join(given)}"


PYTORCH_SAYS = frozenset({"dropout_p", "is_causal", "scale", "enable_gqa"})
"""With two of these a function has PyTorch's signature, whose documentation says what ``attn_mask`` means."""


def is_pytorchs(parameters: Collection[str]) -> bool:
    """Whether these are the names of PyTorch's function."""
    return len(PYTORCH_SAYS & {*parameters}) > 1


def roles_of(names: Collection[str]) -> dict[str, list[str]]:
    """The parameters of a callable by role, the best name first; an upper-case Q is a q."""
    lower = {name.lower(): name for name in names}
    return {role: [lower[name] for name in known if name in lower] for role, known in ROLES.items()}


def flatten(found: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """All that is in what was returned, with the path to it: tuples, mappings and what has ``_asdict``."""
    if isinstance(found, Mapping):
        for name, one in found.items():
            yield from flatten(one, (*path, name))
    elif isinstance(found, tuple | list):
        for place, one in enumerate(found):
            yield from flatten(one, (*path, place))
    else:
        yield path, found


def look_up(found: Any, path: tuple[Any, ...]) -> Any:
    """What is at the end of the path, or before it where that is a tensor; None where there is nothing."""
    for step in path:
        if not isinstance(found, Mapping | tuple | list):
            return found
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            return None
    return found
