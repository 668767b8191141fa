"""Search for the cause of a failure: an option, a size or large logits, without which the kernel is right.

Axes: H heads, G heads of keys and values, L queries, T keys, E columns of queries and keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from attention_conformance.calls.answer import OnKernel
from attention_conformance.calls.attention_call import REPEATS, AttentionCall, Memory, State
from attention_conformance.claims.agreement import GRADIENTS
from attention_conformance.claims.call_claims import examine
from attention_conformance.claims.call_shrinker import cut_call
from attention_conformance.claims.capabilities import options_on
from attention_conformance.claims.long_states import EACH_TIME
from attention_conformance.kernel.trace import Trace
from theorems.core.claim import Verdict

UNEXPLAINED = "no single option explains it"
LARGE = 30.0
"""The absolute value beyond which a logit counts as large, since its exponential is tiny or huge."""
BLOCKS = (8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Change:
    """A variant of the failing call, from which one property, such as an option, is removed.

    Attributes:
        name: the property that is removed.
        call: the failing call without the property.
        guess: a fault by which kernels are wrong only in calls with the property; empty if none is known.
    """

    name: str
    call: AttentionCall
    guess: str = ""


def cause_of(trace: Trace, under_test: OnKernel) -> str:
    """Return a phrase on the cause of a failure: the properties of the call without which the kernel is right.

    Args:
        trace: the failing call and the claims that it falsifies.
        under_test: the kernel, in the number format in which it fails.
    """
    if trace.falsified == ("log-sum-exp",) and _is_of_base_two(trace):
        return "perhaps the logarithm is to the base 2"
    options, others = [*_without_options(trace)], [*_shorter(trace.call), *_with_small_logits(trace)]
    necessary = [change for change in options if _passes(change.call, trace, under_test)]
    if len(necessary) > 1:
        return f"only where {' and '.join(change.name for change in necessary)} meet, as far as the search shows"
    further = [change for change in others if _passes(change.call, trace, under_test)]
    for change in (*further, *necessary):
        if change.guess:
            return f"perhaps {change.guess}"
    if necessary or further:
        return f"without {(*necessary, *further)[0].name} the kernel is right"
    return UNEXPLAINED if options or others else ""


def _passes(call: AttentionCall, trace: Trace, under_test: OnKernel) -> bool:
    """Return whether the kernel takes ``call`` and satisfies the claims that the failing call falsifies."""
    try:
        claims = [claim for _, claim in examine(call, under_test)]
    except Exception:  # the kernel refuses the call or raises an error: nothing is known about its results
        return False
    return not any(claim.name in trace.falsified and claim.verdict is Verdict.FALSIFIED for claim in claims)


def _squared(call: AttentionCall) -> AttentionCall:
    """Return the call cut to as many queries as keys, L = T."""
    fewest = min(call.sizes["L"], call.sizes["T"])
    return cut_call(cut_call(call, "L", slice(0, fewest)), "T", slice(0, fewest))


def _of_single_heads(call: AttentionCall) -> AttentionCall:
    """Return the call in which each query head has its own copy of the keys and values of its group."""
    group = call.sizes["H"] // call.sizes["G"]
    return call.replace(key=np.repeat(call.key, group, axis=1), value=np.repeat(call.value, group, axis=1))


def _seeing(call: AttentionCall) -> AttentionCall:
    """Return the call with its mask changed: each row that sees no key now sees the first key."""
    visible = np.array(call.visible)
    visible[..., :1] |= ~visible.any(axis=-1, keepdims=True)
    return call.replace(visible=visible)


def _lying_contiguously(call: AttentionCall) -> AttentionCall:
    usual = Memory.CONTIGUOUS
    return call.replace(memory=usual, placed="qkv", upstream_memory=usual, mask_memory=usual)


def _off(**fields: Any) -> Callable[[AttentionCall], AttentionCall]:
    return lambda call: call.replace(**fields)


WITHOUT: Mapping[str, Callable[[AttentionCall], AttentionCall]] = MappingProxyType(
    {
        "scale": _off(scale=1.0),
        "default-scale": lambda call: call.replace(scale=1 / math.sqrt(call.sizes["E"])),
        "softcap": _off(softcap=0.0),
        "log-sum-exp": _off(log_sum_exp=False, lse_upstream=None),
        "causal": _off(causal=False),
        "causal-rectangle": _squared,
        "boolean-mask": _off(visible=None, beyond=0),
        "additive-mask": _off(bias=None, mask_format="", beyond=0),
        "longer-masks": _off(beyond=0),
        "window": _off(window=None),
        "empty-rows": _seeing,
        "grouped-heads": _of_single_heads,
        "alibi": _off(slopes=None),
        "sinks": _off(sinks=None),
        "log-sum-exp-gradient": _off(lse_upstream=None),
        "ragged-batch": _off(lengths=None),
        "fp8-descale": _off(descales=None),
        "splits": _off(splits=0),
        "paged-keys": _off(page=0),
        "memory": _lying_contiguously,
        "repeated-calls": _off(state=State.ONCE),
        "compiled": _off(state=State.ONCE),
    }
)
"""For each capability, a function that returns the call without using the capability."""
HIDING = ("causal", "boolean-mask", "additive-mask", "window", "ragged-batch", "empty-rows")
OF_CLAIMS: Mapping[str, str] = MappingProxyType(
    {
        "rows-that-see-nothing": "hidden logits are a large finite number in place of −∞, or the backward pass follows"
        " another convention than the forward pass",
        "hidden-keys-change-no-output": "a maximum, a scale or a sum is taken over all keys, also over hidden keys,"
        " or hidden logits are finite",
        "same-bits": "the order of a sum depends on scheduling, as with atomic additions",
        EACH_TIME: f"a race, memory that is not cleared, or a counter of calls ({REPEATS} calls)",
    }
)
OF_CAPABILITIES: Mapping[str, str] = MappingProxyType(
    {
        "grouped-heads": "heads belong to other groups than h // (H/G)",
        "memory": "strides are taken for those of a contiguous tensor",
        "causal-rectangle": "the diagonal for L ≠ T is where it would be for L = T",
        "default-scale": "the kernel's default scale is neither 1/√E nor 1",
        "compiled": "a traced number is taken for a constant, an operator declares a wrong shape, strides or effect,"
        " or there is a branch for compiled code",
        "repeated-calls": "the first call leaves something behind, such as a buffer that is not cleared",
        "causal": "the causal mask hides wrong keys",
        "window": "the window hides wrong keys",
        "boolean-mask": "the mask hides wrong keys",
        "additive-mask": "the bias is added wrongly",
        "softcap": "the cap is applied in the wrong place",
        "log-sum-exp": "the scale enters the log-sum-exp twice, or not at all",
    }
)
"""For each capability, the likely fault of a kernel that is wrong only in calls that use the capability."""


def _without_options(trace: Trace) -> Iterator[Change]:
    """Yield, for each capability that the call uses, the call without that capability."""
    call = trace.call
    options = [*options_on(call)]
    if "empty-rows" in options and "boolean-mask" in options:
        options.remove("boolean-mask")  # the mask is why some rows see no key, so both would be removed together
    for name in options:
        if name in WITHOUT and not (name == "default-scale" and trace.kernel.fixed_scale):
            yield Change(name, WITHOUT[name](call), _guess(name, trace))


def _guess(name: str, trace: Trace) -> str:
    """Return a fault by which kernels are wrong only in calls with the capability ``name``; empty if none is known."""
    first, claims = trace.falsified[0], frozenset(trace.falsified)
    hides = name in HIDING
    if first in OF_CLAIMS and (hides or name == "repeated-calls"):
        return OF_CLAIMS[first]
    if hides and name != "causal-rectangle" and (claims <= {*GRADIENTS} or trace.capability == "hidden-keys"):
        return "the backward pass does not mask"
    if name == "scale" and claims <= {*GRADIENTS}:
        return "the backward pass lacks the factor scale, or has it twice"
    return OF_CAPABILITIES.get(name, "")


def _shorter(call: AttentionCall) -> Iterator[Change]:
    """Yield, for each axis whose size is within 1 of a usual block size, the call shortened by 1 along it."""
    for axis, object_of_axis in (("T", "keys"), ("L", "queries"), ("E", "a width of"), ("M", "a width of values of")):
        size = call.sizes[axis]
        block = next((block for block in BLOCKS if size in (block - 1, block, block + 1)), 0)
        if block and size > 5 and not call.exact and not call.dropout:
            guess = (
                f"a block of {block}: no smaller failing call than one with {object_of_axis} {axis} = {size} was found"
            )
            yield Change(f"{axis} = {size}", cut_call(call, axis, slice(0, size - 1)), guess)


def _with_small_logits(trace: Trace) -> Iterator[Change]:
    """Yield the call with queries scaled down to logits of absolute value at most 1, if some logit is large."""
    call = trace.call
    key = np.repeat(call.key, call.sizes["H"] // call.sizes["G"], axis=1)
    logits = call.query @ np.swapaxes(key, -1, -2) * (1.0 if call.scale is None else call.scale)
    largest = float(np.max(np.abs(logits), initial=0.0))
    if not LARGE < largest < math.inf:
        return
    guess = ""
    if trace.entries and not np.isfinite(trace.entries[0].theirs).all():
        guess = "an exponential overflows: the maximum is not subtracted, or is −∞ − (−∞)"
    elif call.exact or float(np.max(logits)) < -LARGE:
        guess = "logits that are large, or all far below 0: a running maximum that does not start at −∞"
    small = call.query * 2.0 ** -math.ceil(math.log2(largest))
    yield Change(f"logits of up to {largest:.3g}", call.replace(query=small, exact=False), guess)


def _is_of_base_two(trace: Trace) -> bool:
    """Return whether the kernel's log-sum-exps are the correct ones divided by log 2, that is, logarithms to base 2."""
    entry = trace.entries[0]
    usable = np.isfinite(entry.theirs) & (np.abs(entry.due) > 1e-3)
    ratio = entry.theirs[usable] / entry.due[usable]
    return bool(ratio.size and np.allclose(ratio, 1 / math.log(2), rtol=1e-3))
