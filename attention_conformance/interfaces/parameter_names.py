"""Names of parameters, the role that each name suggests, and the arguments that a request gives to each role.

A role is the meaning of a parameter, such as "causal". The interfaces of known libraries take parameter names from the
tables of this module; for other functions the same tables fill in the decorator to paste.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from attention_conformance.interfaces.interface import UNTESTED, Mark, Option, Parameters, Request, option_of
from attention_conformance.kernel.torch_import import torch

ROLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "query": ("query", "q", "queries", "xq", "query_states", "query_layer"),
        "key": ("key", "k", "keys", "xk", "key_states", "key_layer"),
        "value": ("value", "v", "values", "xv", "value_states", "value_layer"),
        "mask": (
            *("attn_mask", "mask", "attention_mask", "atten_mask", "attn_bias", "bias", "ab", "pse", "b"),
            *("attention_bias", "key_padding_mask", "padding_mask", "key_mask"),
        ),
        "causal": ("is_causal", "causal", "use_causal_mask", "use_causal"),
        "scale": ("scale", "sm_scale", "softmax_scale", "scaling", "scale_value"),
        "grouped": ("enable_gqa",),
        "dropout": ("dropout_p", "dropout", "dropout_rate", "p_dropout", "drop_rate", "attn_drop"),
        "window": ("window_size",),
        "softcap": ("softcap", "logits_soft_cap", "attn_logits_soft_cap", "logit_cap", "soft_cap"),
        "lse": (
            *("return_lse", "return_softmax_lse", "compute_log_sumexp", "return_residuals", "need_lse", "output_lse"),
            "return_attn_probs",
        ),
        "deterministic": ("deterministic",),
    }
)
"""The parameter names that suggest each role; the surest name comes first."""
MEANINGS: Mapping[str, Option] = MappingProxyType(
    {
        "scale": option_of("scale", "default-scale"),
        "causal": option_of("causal", "causal-rectangle", neutral=False),
        "window": option_of("window"),
        "softcap": option_of("softcap"),
        "dropout": option_of("dropout", neutral=0.0),
        "deterministic": option_of("same-bits"),
        "grouped": option_of("grouped-heads"),
        "lse": option_of("log-sum-exp"),
    }
)
"""For each role, the capabilities that a parameter in the role declares, and the value that switches it off."""
LSE = ("return_lse", "return_softmax_lse", "return_attn_probs")
"""Flags among the names of :data:`ROLES` that make a library's kernel return (output, log-sum-exp, …)."""
SINKS = ("learnable_sink", "sinks", "sink", "s_aux")
SLOPES = "alibi_slopes"
SPLITS = "num_splits"
DESCALES = ("q_descale", "k_descale", "v_descale")
"""Parameters for the factors by which query, key and value in 8 bits are multiplied; the output then has 16 bits.

Each tensor of factors has shape (batch entries, heads of keys and values).
"""
LARGEST = 448.0
"""The largest number in 8 bits (e4m3); larger numbers, which only unused entries of a cache hold, are cut to it."""
ALONE = "batch_invariant"
FURTHER: Mapping[str, Option] = MappingProxyType(
    dict.fromkeys(SINKS, option_of("sinks", neutral=None))
    | {SLOPES: option_of("alibi", neutral=None), SPLITS: option_of("splits")}
    | dict.fromkeys(DESCALES, option_of("fp8-descale"))
    | {ALONE: option_of("batch-invariance", neutral=False)}
)
"""The options of further parameters, outside :data:`ROLES`, whose names mean the same in every library."""
PYTORCH_SAYS = frozenset({"dropout_p", "is_causal", "scale", "enable_gqa"})
"""Parameters of PyTorch's function; with two of them, a function's ``attn_mask`` means what PyTorch documents."""


def is_pytorchs(parameters: Collection[str]) -> bool:
    """Return whether at least two of these names are parameters of PyTorch's ``scaled_dot_product_attention``."""
    return len(PYTORCH_SAYS & {*parameters}) > 1


def roles_of(names: Collection[str]) -> dict[str, list[str]]:
    """Return, for each role, the names that suggest it, the surest first; upper and lower case do not matter."""
    lower = {name.lower(): name for name in names}
    return {role: [lower[name] for name in known if name in lower] for role, known in ROLES.items()}


def usual(names: str) -> dict[str, Option]:
    """Return the option of each name in ``names``, separated by spaces; the option of an unknown name is UNTESTED."""
    by_name = {name: option for role, option in MEANINGS.items() for name in ROLES[role]} | dict(FURTHER)
    return {name: by_name.get(name, UNTESTED) for name in names.split()}


def first_in(names: Collection[str], has: Collection[str]) -> str:
    """Return the first of ``names`` that is a parameter of the kernel, whose parameters are ``has``."""
    return next(name for name in names if name in has)


def arguments(names: Mapping[str, str], request: Request, has: Parameters) -> dict[str, Any]:
    """Return the keyword arguments by which a kernel computes a request, except query, key, value and masks.

    An option that the request does not use is left out, unless the kernel has no default for it.

    Args:
        names: the name of the kernel's parameter in each role.
        request: the request.
        has: the kernel's parameters with their defaults.
    """
    values = {
        "scale": request.scale,
        "causal": request.causal,
        "window": None if request.window is None else _window(request.window, has.get(names.get("window", ""))),
        "softcap": request.softcap,
        "dropout": request.dropout,
        "deterministic": request.deterministic,
        "grouped": request.groups > 1,
        "lse": request.log_sum_exp,
    }
    given: dict[str, Any] = {}
    for role, value in values.items():
        name = names.get(role)
        if name is None:
            continue
        required = has.get(name) is Mark.REQUIRED
        if role == "scale" and value is None and required:
            value = request.query.shape[-1] ** -0.5
        if value or (role == "scale" and value is not None) or (required and role in _TOLD):
            given[name] = 1 if value is True and type(has.get(name)) is int else value  # some flags are 0 or 1
    return given | _further_arguments(request, has)


_TOLD = ("scale", "causal", "softcap", "dropout", "lse")
"""Roles whose parameters are passed if the kernel has no default for them, even when the request does not use them."""


def _window(window: tuple[int, int], default: Any) -> tuple[Any, ...]:
    """Return a window (left, right), where −1 means no limit, in the form that the kernel's default has."""
    if default == (None, None):
        # In flash-attn 4 None means no limit, while −1 is a number of keys unless both sides are negative.
        return tuple(None if side < 0 else side for side in window)
    # Some kernels' windows have a third number, which counts keys that all queries see; it keeps its default.
    return window + (default[2:] if isinstance(default, tuple) else ())


def _further_arguments(request: Request, has: Parameters) -> dict[str, Any]:
    """Return the arguments of a request for the parameters of :data:`FURTHER`."""
    given: dict[str, Any] = {}
    if request.sinks is not None:
        given[first_in(SINKS, has)] = request.sinks
    if request.slopes is not None:
        same = bool((request.slopes == request.slopes[:1]).all())
        given[SLOPES] = request.slopes[0] if same else request.slopes
    if request.splits:
        given[SPLITS] = request.splits
    if request.alone and ALONE in has:
        given[ALONE] = True
    if request.descales is not None:
        given |= dict(zip(DESCALES, request.descales, strict=True))
    return given


def in_8_bits(request: Request, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensors, converted to 8 bits if the request has descale factors; then the numbers need no rounding."""
    if request.descales is None:
        return tensors
    return tuple(x.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn) for x in tensors)


def in_own_dtype(request: Request, output: Any) -> Any:
    """Return the output, converted to the query's dtype if the request's tensors were passed in 8 bits."""
    converts = request.descales is not None and isinstance(output, torch.Tensor)
    return output.to(request.query.dtype) if converts else output
