"""The interfaces of libraries whose functions take padded tensors: parameter names and special arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from attention_conformance.interfaces.interface import (
    UNTESTED,
    Interface,
    Option,
    Parameters,
    Request,
    Returned,
    option_of,
)
from attention_conformance.interfaces.parameter_names import FURTHER, LSE, MEANINGS, roles_of, usual
from attention_conformance.interfaces.reading import ADDED, FOUR_AXES, SHOWS, Mask, Reading, put

Own = Callable[[Request, dict[str, Any]], Request]
"""A function (request, arguments) that adds a library's own arguments; it returns the request still to be passed."""


def library(
    name: str,
    signature: str,
    known_by: tuple[str, ...],
    options: dict[str, Option],
    reading: Reading,
    own: Own = lambda request, given: request,
    **further: Any,
) -> Interface:
    """Return the interface of a library's attention function.

    Args:
        name: the name for ``--interface``.
        signature: the signature as reports print it.
        known_by: strings of parameter names, separated by spaces; a kernel with all names of one string has this
            interface.
        options: the purpose of each parameter by name.
        reading: the order of the tensors' axes, the masks, and the names of options that are not in :data:`.ROLES`.
        own: a function that adds the library's special arguments.
        further: further attributes of :class:`.interface.Interface`.
    """

    def put_request(kernel: Callable[..., Any], request: Request, has: Parameters, given: dict[str, Any]) -> Returned:
        names = names_in(options, has) | {**reading.names}
        return put(replace(reading, names=names), kernel, own(request, given), has, given)

    sets = tuple(frozenset(names.split()) for names in known_by)
    return Interface(name, signature, sets, MappingProxyType(options), put_request, **further)


def names_in(options: Mapping[str, Option], has: Parameters) -> dict[str, str]:
    """Return, for each role such as "causal" or "scale", the name of the kernel's tested parameter in that role."""
    tested = roles_of([name for name in has if options.get(name, UNTESTED).declares])
    return {role: tested[role][0] for role in MEANINGS if tested[role]}


PLAIN = library(
    "plain",
    "(query (…, L, d), keys (…, T, d), values (…, T, m)) → (…, L, m)",
    (),
    {"scale": option_of("scale")},
    Reading(),
)
"""The interface of a function of three tensors, and possibly a scale."""

SDPA = library(
    "sdpa",
    "(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False) on (B, H, L, E)",
    ("attn_mask", "is_causal", "enable_gqa", "sm_scale"),
    usual("is_causal causal scale sm_scale enable_gqa softcap dropout_p warp_specialize")
    | usual(" ".join(LSE))
    | {"attn_mask": option_of("boolean-mask", "additive-mask"), **FURTHER},
    Reading(mask=Mask("attn_mask", SHOWS), bias=Mask("attn_mask", ADDED)),
)
"""The interface of PyTorch's ``scaled_dot_product_attention``, which also fits paddle's, tinygrad's and Triton's."""

MASK_AND_BIAS = Reading(axes="BLHE", mask=Mask("mask", SHOWS, FOUR_AXES), bias=Mask("bias", ADDED, FOUR_AXES))
BOTH = {"mask": option_of("boolean-mask"), "bias": option_of("additive-mask")}


def _window_of_jax(request: Request, given: dict[str, Any]) -> Request:
    if request.window is None:
        return request
    # In jax a window's side of −1 is a number of keys (one less than 0); in other libraries it means no limit.
    longest = request.query.shape[2] + request.key.shape[2]
    left, right = (longest if side < 0 else side for side in request.window)
    return replace(request, window=(left, right))


JAX = library(
    "jax",
    "(query, key, value, bias, mask, *, scale, is_causal, local_window_size, return_residual) on (B, L, H, E)",
    ("local_window_size", "query_seq_lengths", "bias mask is_causal implementation"),
    usual("scale is_causal query_seq_lengths key_value_seq_lengths implementation")
    | BOTH
    | {"local_window_size": MEANINGS["window"], "return_residual": MEANINGS["lse"]},
    replace(MASK_AND_BIAS, names={"window": "local_window_size", "lse": "return_residual"}, lse_axes="BLH"),
    _window_of_jax,
    found_out=("grouped-heads",),
)
"""The interface of ``jax.nn.dot_product_attention``."""
