"""Options of a call beyond masks, such as sinks, linear biases, lengths, caches and tensors of 8 bits.

Each option is a factor (property of a call) of :mod:`attention_conformance.calls.call_space`, drawn from a random
generator of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Float64

from attention_conformance.calls.attention_call import AttentionCall, Memory
from attention_conformance.calls.further_tensors import with_descales

Draw = Callable[[str], np.random.Generator]
APART = 4096.0
"""The least difference between different logits of calls without rounding, as a multiple of the scale."""


def with_further_options(call: AttentionCall, plan: Mapping[str, str], rng: Draw) -> AttentionCall:
    """Add the options of a plan to a call.

    Args:
        call: the call with all other options.
        plan: a level of each factor.
        rng: returns the random generator of a step, given the step's name.
    """
    if plan["descales"] != "none" and not call.dropout:
        call = with_descales(call, rng("descales"))
    if plan["entries"] != "whole" and not _is_with_masks(call):
        call = _with_lengths(call, plan, rng("entries"))
    if plan["sinks"] != "none":
        call = _with_sinks(call, plan["sinks"], rng("sinks"))
    if plan["slopes"] != "none":
        shape = (1 if plan["slopes"] == "of heads" else call.sizes["B"], call.sizes["H"])
        random_slopes = rng("slopes").choice((0.5, 0.0625, 0.3, 2.0), shape)
        slopes = np.broadcast_to(random_slopes, (call.sizes["B"], call.sizes["H"])).copy()
        # Kernels use two formulas for the linear bias. One of them shifts all logits of a row, and so the log-sum-exp.
        call = call.replace(slopes=slopes, exact=False, log_sum_exp=False)
    if plan["lse upstream"] != "none" and not _is_without_lse_gradient(call):
        call = _with_lse_upstream(call, rng("lse upstream"))
    return call.replace(
        splits=0 if plan["splits"] == "own" else int(plan["splits"]),
        page=0 if plan["pages"] == "none" else int(plan["pages"]),
        alone=plan["alone"] != "none" and call.sizes["B"] > 1 and not call.dropout,
    )


def _is_without_lse_gradient(call: AttentionCall) -> bool:
    """Return whether the log-sum-exp gets no upstream gradient: it is not checked, or no tensor needs a gradient."""
    return call.sinks is not None or call.slopes is not None or call.dropout > 0 or not call.wants


def _is_with_masks(call: AttentionCall) -> bool:
    masks = (call.visible, call.bias)
    return any(mask is not None for mask in masks) or call.dropout > 0 or call.is_large


def _with_lengths(call: AttentionCall, plan: Mapping[str, str], rng: np.random.Generator) -> AttentionCall:
    """Draw the numbers of queries and of keys of each batch entry; if the plan says so, some of the numbers are 0."""
    B, L, T = (call.sizes[axis] for axis in "BLT")
    lengths = np.stack([rng.integers(1, L + 1, B), rng.integers(1, T + 1, B)], axis=-1)
    lengths[rng.integers(B)] = (L, T)
    if L == T and rng.random() < 0.5:
        lengths[:, 1] = lengths[:, 0]
    if plan["entries"] == "some empty":
        axis = rng.integers(2) if "empty" not in plan else ("queries", "keys").index(plan["empty"])
        lengths[::2, axis] = 0
    call = call.replace(lengths=lengths)
    upstream = np.where(call.absent[..., None], 0.0, call.upstream)
    # An upstream gradient stored as a single expanded number cannot be zero only in the padding.
    single = call.upstream_memory is Memory.SINGLE
    memory = Memory.CONTIGUOUS if single else call.upstream_memory
    return call.replace(upstream=upstream, upstream_memory=memory, poison=plan["poison"] != "none" and T > 1)


def _with_sinks(call: AttentionCall, level: str, rng: np.random.Generator) -> AttentionCall:
    """Draw a sink (logit of a key without value) for each head, near the head's logits or above all of these.

    In a call without rounding, each sink is far from each logit.
    """
    z = _some_logits(call)
    top = np.max(z, axis=-1)
    if call.exact:
        steps = rng.integers(0, 1, len(z)) if level == "large" else rng.integers(-2, 0, len(z))
        sinks = top + (steps + 0.5) * APART * (call.scale or 1.0)
    elif level == "large":
        sinks = top + rng.uniform(3.0, 12.0, len(z))
    else:
        chosen = rng.integers(0, z.shape[-1], len(z))
        sinks = z[np.arange(len(z)), chosen] + rng.normal(0.0, 2.0, len(z))
    # Libraries do not agree on whether the log-sum-exp includes the sink.
    return call.replace(sinks=sinks, log_sum_exp=False)


def _some_logits(call: AttentionCall) -> Float64[np.ndarray, "H T"]:
    """Return the logits of the last query of the first batch entry, for each head and key."""
    sizes = call.sizes
    keys = np.repeat(call.key[0], sizes["H"] // sizes["G"], axis=0)
    scale = 1 / math.sqrt(sizes["E"]) if call.scale is None else call.scale
    z = np.einsum("he,hte->ht", call.query[0, :, -1], keys) * scale
    return np.asarray(call.softcap * np.tanh(z / call.softcap) if call.softcap else z)


def _with_lse_upstream(call: AttentionCall, rng: np.random.Generator) -> AttentionCall:
    """Draw upstream gradients of the log-sum-exp, in rows that have an upstream gradient of the output."""
    attended = call.upstream.any(axis=-1)
    upstream = rng.choice((-1.0, 1.0), attended.shape) if call.exact else rng.standard_normal(attended.shape)
    return call.replace(lse_upstream=np.where(attended, upstream, 0.0), log_sum_exp=True)
