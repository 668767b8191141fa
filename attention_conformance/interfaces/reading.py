"""The knowledge of a signature: from the names of its parameters, and from small calls.

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
"""The names of parameters in each role, the best name first."""
AXES = ("BHLE", "BLHE", "LBHE", "NLE", "BLHE joined")
"""Orders of the axes of tensors; N is B·H, and joined heads are one axis, H·E."""
DECODED = ("BHLE, no L", "BLHE, no L")
"""Orders of the axes of keys and values whose query, and output, has no axis of queries: it is (B, H, E)."""
SAID = MappingProxyType(
    {
        "BHLE, no L": "(B, H, T, E) with queries (B, H, E)",
        "BLHE, no L": "(B, T, H, E) with queries (B, H, E)",
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
"""The shapes of masks, the richest first: of MASK_SHAPES, or of FOLDED if heads are folded into the batch."""


@dataclass(frozen=True)
class Mask:
    """A parameter for masks.

    Attributes:
        name: the name of the parameter.
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
        parameters: the names of all its parameters.
        tensors: the names of query, key and value, or of those that hold several of them; empty: by place.
        by_keyword: whether the tensors are given by name.
        axes, returned_axes: elements of AXES, for the tensors that are given and returned.
        names: role → the parameter that has it, of :data:`ROLES`.
        constants: arguments that are given in every call.
        mask, key_mask, bias: parameters for booleans, for booleans of keys alone, and for numbers that are added.
        always_causal: whether every call is causal.
        fixed_scale: whether the scale is 1/√E, and no parameter changes it.
        output, log_sum_exp, weights: their paths in the returned value; None: nowhere.
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
        """Yield the lines of a report about the reading."""
        readings = [f"tensors are {SAID[self.axes]}"]
        if self.returned_axes != self.axes:
            readings.append(f"its output is {SAID[self.returned_axes]}")
        masks = [mask for mask in (self.mask, self.key_mask, self.bias) if mask is not None]
        words = dict.fromkeys(
            f"{mask.name}: {mask.sense}{f', of shape ({mask.shape})' * bool(mask.shape)}" for mask in masks
        )
        readings += [*words, *(["every call is causal"] if self.always_causal else [])]
        yield f"found out by small calls: {'; '.join(readings)}"
        of_masks = {mask.name for mask in masks}
        given = [f"{name}={value!r}" for name, value in self.constants.items() if name not in of_masks]
        if given:
            yield f"given in every call: {', '.join(given)}"


PYTORCH_SAYS = frozenset({"dropout_p", "is_causal", "scale", "enable_gqa"})
"""A function with two of these parameters has PyTorch's signature, whose documentation defines ``attn_mask``."""


def is_pytorchs(parameters: Collection[str]) -> bool:
    """Return whether these are the names of PyTorch's function."""
    return len(PYTORCH_SAYS & {*parameters}) > 1


def roles_of(names: Collection[str]) -> dict[str, list[str]]:
    """Return the parameters of a callable by role, the best name first; an upper-case Q counts as q."""
    lower = {name.lower(): name for name in names}
    return {role: [lower[name] for name in known if name in lower] for role, known in ROLES.items()}


def flatten(returned: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield every value in a result of tuples and mappings, with the path to it."""
    if isinstance(returned, Mapping):
        for name, part in returned.items():
            yield from flatten(part, (*path, name))
    elif isinstance(returned, tuple | list):
        for place, part in enumerate(returned):
            yield from flatten(part, (*path, place))
    else:
        yield path, returned


def look_up(returned: Any, path: tuple[Any, ...]) -> Any:
    """Return the value at the end of the path, or a tensor before its end; None if there is none."""
    for step in path:
        if not isinstance(returned, Mapping | tuple | list):
            return returned
        try:
            returned = returned[step]
        except (KeyError, IndexError, TypeError):
            return None
    return returned
