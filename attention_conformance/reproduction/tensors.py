"""The tensors of a call as lines of a test: the numbers or a seed to draw them, and the memory layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall, Memory
from attention_conformance.calls.further_tensors import with_columns_beyond
from attention_conformance.kernel.answers import masks_of
from attention_conformance.kernel.memory_layout import GUARD, memory_of, place_tensor
from attention_conformance.kernel.trace import Trace
from attention_conformance.reproduction.printed_functions import drawn
from attention_conformance.reproduction.python_text import array_text, wrap

MANY = 100
"""If a call has more entries than this, a test draws the entries at random, provided that the call then fails, too."""
TENSORS = ("query", "key", "value", "upstream")
OPTIONS = ("visible", "bias", "sinks", "slopes", "lse_upstream", "lengths", "score_mod", "mask_mod", "descales")
"""The names of the arrays, besides TENSORS, that a call may have."""


def with_drawn_numbers(call: AttentionCall) -> tuple[AttentionCall, Mapping[str, str]]:
    """Return the call with random numbers in its tensors, and the source lines that draw them, by the tensor's name.

    A call whose results must be exact, or that has dropout, needs its own numbers: it is returned unchanged, without
    lines.
    """
    if call.exact or call.dropout:
        return call, {}
    arrays, lines = {}, {}
    for seed, name in enumerate(TENSORS):
        x, memory = getattr(call, name), call.upstream_memory if name == "upstream" else memory_of(name, call)
        expanded = {Memory.BROADCAST: (0,), Memory.HEADS: (1,), Memory.SINGLE: range(x.ndim)}.get(memory, ())
        shape = [1 if axis in expanded else n for axis, n in enumerate(x.shape)]
        lines[name] = f"{name} = drawn({', '.join(map(str, (seed, *shape)))})"
        arrays[name] = np.asarray(drawn(seed, *shape).expand(x.shape))
        if expanded:
            lines[name] += f".expand({', '.join(map(str, x.shape))})"
        rows = x.any(axis=-1) if name == "upstream" else np.array(True)
        if not rows.all():  # in some rows the upstream gradient is 0, and stays 0
            arrays[name] = arrays[name] * rows[..., None]
            indices = ", ".join(str(places.tolist()) for places in np.nonzero(rows))
            lines[name] = (
                f"rows = torch.zeros({rows.shape}).double()\nrows[{indices}] = 1\n{lines[name]} * rows[..., None]"
            )
    if call.shared:
        arrays["value"] = arrays["key"][..., : call.sizes["M"]]
        del lines["value"]
    return call.replace(**arrays), lines


def tensor_lines(trace: Trace, call: AttentionCall, guards: bool, renamed: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that create the arrays of a call in the kernel's format and memory layout.

    Args:
        trace: the failing call, with the source lines that draw some of its tensors.
        call: the call whose arrays are created, the failing one or one that the test compares with it; tensors are
            rounded to the kernel's number format.
        guards: whether to surround each array in memory by NaN.
        renamed: for a second call in a test, the expression that stands for each array, by the array's name. An array
            is created only if the expression is a name other than its own; earlier lines create the others.
    """
    kernel, arrays = trace.kernel, {name: x for name in (*TENSORS, *OPTIONS) if (x := getattr(call, name)) is not None}
    memories = {name: memory_of(name, call) for name in TENSORS[:3]} | {"upstream": call.upstream_memory}
    placed = {name: place_tensor(kernel.tensor(arrays[name]), memory) for name, memory in memories.items()}
    placed |= masks_of(kernel, call)
    device = "" if kernel.device == "cpu" else f'"{kernel.device}"'
    for name, x in arrays.items():
        own_name = renamed.get(name, name)
        if not own_name.isidentifier() or (renamed and own_name == name):
            continue  # an earlier line created it
        yield from drawn_lines[:-1] if (drawn_lines := trace.drawn.get(name, "").splitlines()) else ()
        x = with_columns_beyond(call, x) if name in ("visible", "bias") else x
        text = drawn_lines[-1].partition(" = ")[2] if drawn_lines else array_text(x)
        if name == "value" and call.shared:
            text = f"{renamed.get('key', 'key')}[..., :{call.sizes['M']}]"
        format_name = call.mask_format if name == "bias" else "float32" if name == "descales" else ""
        dtype = format_name or (kernel.dtype if x.dtype == float else "float64")
        to = ", ".join(filter(None, [device, f"torch.{dtype}" if dtype != "float64" else ""]))
        text += f".to({to})" if to else ""
        placed_tensor, memory = placed[name].tensor if name in placed else None, memories.get(name, call.mask_memory)
        if placed_tensor is None or not (
            guards or not placed_tensor.is_contiguous() or placed_tensor.storage_offset() != GUARD
        ):
            yield wrap(f"{own_name} = {text}")
            continue
        offset = f", offset={placed_tensor.storage_offset() - GUARD}" if placed_tensor.storage_offset() != GUARD else ""
        text += f".expand{tuple(placed_tensor.shape)}" if placed_tensor.shape != x.shape else ""
        yield (
            wrap(f"{own_name} = strided({text}, {', '.join(map(str, placed_tensor.stride()))}{offset})")
            + f"  # {memory}"
        )
