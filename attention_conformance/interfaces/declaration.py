"""The decorator ``attention_kernel``, by which a kernel says how it is called where its parameters' names do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import EllipsisType, MappingProxyType
from typing import Any, TypeVar

from attention_conformance.interfaces.parameter_names import roles_of
from reference_attention.errors import InvalidInput

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
ATTRIBUTE = "__attention_kernel__"
"""The attribute in which a kernel keeps what the decorator says."""
ROOT = "1/sqrt(E)"
LAYOUTS: Mapping[str, str] = MappingProxyType({"bhld": "BHLE", "blhd": "BLHE"})
CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"layout": tuple(LAYOUTS), "alignment": ("top-left", "bottom-right"), "lengths": ("any", "equal")}
)
OPTIONS: Mapping[str, str] = MappingProxyType(
    {"mask": "mask", "key_padding_mask": "mask", "window": "window", "softcap": "softcap", "dropout": "dropout"}
    | {"deterministic": "deterministic", "enable_gqa": "grouped", "log_sum_exp": "lse"}
)
"""The names of further options, each with the role that a parameter of the kernel then has.

``mask`` is boolean, True where a key is seen, or is added to the logits; ``key_padding_mask``, (B, T), is True where a
key is padding; ``log_sum_exp`` is a flag by which a kernel returns (output, log-sum-exp).
"""


def attention_kernel(
    *,
    layout: str,
    causal: str,
    scale: str | float,
    lengths: str = "any",
    alignment: str = "",
    **names: str,
) -> Callable[[Kernel], Kernel]:
    """Say how an attention kernel is called; its first three parameters are query, key and value.

    Args:
        layout: "bhld" for tensors (batch, heads, length, width), "blhd" for (batch, length, heads, width).
        causal: the name of the parameter that makes a call causal, or "always" or "never".
        scale: the name of the parameter that scales logits, or the number by which they are always scaled, or
            "1/sqrt(E)" if it is always one over the root of the queries' width.
        lengths: "equal" if the kernel takes only as many queries as keys.
        alignment: where causality starts if the lengths differ, "top-left" or "bottom-right"; found by calls if left
            out.
        names: the kernel's names of further options: ``mask``, ``key_padding_mask``, ``window``, ``softcap``,
            ``dropout``, ``deterministic``, ``enable_gqa``, ``log_sum_exp``.

    Returns:
        A decorator of functions, of classes with ``__call__`` and of torch modules, which it returns unchanged.

    Raises:
        InvalidInput: a field has no such value, or is no field.
    """
    told = {"layout": layout, "causal": causal, "scale": scale, "lengths": lengths, "alignment": alignment, **names}
    check_fields(told)

    def decorate(kernel: Kernel) -> Kernel:
        setattr(kernel, ATTRIBUTE, told)
        return kernel

    return decorate


def check_fields(told: Mapping[str, Any]) -> None:
    """Check the fields of a decorator by themselves.

    Raises:
        InvalidInput: a field has no such value, or is no field.
    """
    for name, value in told.items():
        known = CHOICES.get(name)
        if isinstance(value, EllipsisType):
            raise InvalidInput(f"attention_kernel: {name} is still '...'; say {_what(name)}.")
        if known and value not in (*known, *([""] if name == "alignment" else [])):
            raise InvalidInput(f"attention_kernel: {name}={value!r} is not one of {', '.join(known)}.")
        if name not in (*CHOICES, *OPTIONS, "causal", "scale"):
            raise InvalidInput(f"attention_kernel: {name!r} is no option; the options are {', '.join(OPTIONS)}.")
        number = name == "scale" and isinstance(value, int | float) and math.isfinite(value) and value > 0
        if not number and not isinstance(value, str):
            raise InvalidInput(f"attention_kernel: {name}={value!r} is not {_what(name)}.")


def check_names(told: Mapping[str, Any], parameters: Mapping[str, Any], kernel: str) -> None:
    """Check that the parameters that a decorator names are parameters of the kernel.

    Raises:
        InvalidInput: the kernel has no such parameter.
    """
    for name, value in told.items():
        fixed = name in CHOICES or isinstance(value, int | float) or value in ("always", "never", ROOT)
        if not fixed and value not in parameters and "**" not in parameters:
            has = ", ".join(parameters)
            raise InvalidInput(f"attention_kernel: {name}={value!r} is no parameter of {kernel}, which has ({has}).")


def decorator_to_paste(parameters: Mapping[str, Any], lengths: str) -> str:
    """Return the source of a decorator with what the parameters' names tell, and ``...`` where the user must say."""
    roles = roles_of([*parameters][3:])
    fields = {"layout": "...", "causal": "...", "scale": "..."}
    fields |= {name: f'"{roles[name][0]}"' for name in ("causal", "scale") if roles[name]}
    fields["lengths"] = f'"{lengths}"'
    for option, role in OPTIONS.items():
        given = [name for name in roles[role] if (role != "mask") or (option == "mask") == ("key" not in name)]
        if given and f'"{given[0]}"' not in fields.values():
            fields[option] = f'"{given[0]}"'
    inner = ", ".join(f"{name}={text}" for name, text in fields.items())
    return f"from attention_conformance import attention_kernel\n\n\n@attention_kernel({inner})\n"


def _what(name: str) -> str:
    """Return the values that a field may have, in words."""
    if name in CHOICES:
        return " or ".join(CHOICES[name])
    fixed = {"causal": ", 'always' or 'never'", "scale": f", a positive number or '{ROOT}'"}
    return "the name of a parameter" + fixed.get(name, "")
