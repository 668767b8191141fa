"""A call of many numbers with drawn ones in their place, which a seed makes again: mostly it fails by its size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attention_conformance.kernel.placing import memory_of
from attention_conformance.kernel.with_torch import torch
from attention_conformance.reproduction.text import DRAWN
from generators.attention_call import AttentionCall, Memory

MANY = 100
"""Numbers from which on they are drawn, if the call still fails."""
NAMES = ("query", "key", "value", "upstream")


def with_drawn_numbers(call: AttentionCall) -> tuple[AttentionCall, Mapping[str, str]]:
    """The call with drawn numbers, and the lines that make them, by name of a tensor; none where they have to be what
    they are.
    """
    lines = {} if call.exact or call.dropout else {name: _line(call, name, k) for k, name in enumerate(NAMES)}
    if call.shared:
        del lines["value"]
    namespace: dict[str, Any] = {"torch": torch}
    exec(DRAWN + "\n".join(lines.values()), namespace)
    held = {name: np.asarray(namespace[name]) for name in lines}
    if call.shared and lines:
        held["value"] = held["key"][..., : call.sizes["M"]]
    return call.replace(**held), lines


def _line(call: AttentionCall, name: str, seed: int) -> str:
    array = getattr(call, name)
    shape = list(array.shape)
    if name == "upstream":
        return _upstream(call, seed)
    memory = memory_of(name, call)
    axis = {Memory.BROADCAST: 0, Memory.HEADS: 1}.get(memory)
    if axis is None:
        return f"{name} = drawn({seed}, {', '.join(map(str, shape))})"
    own = [1 if k == axis else n for k, n in enumerate(shape)]
    return f"{name} = drawn({seed}, {', '.join(map(str, own))}).expand({', '.join(map(str, shape))})"


def _upstream(call: AttentionCall, seed: int) -> str:
    x = call.upstream
    shape = ", ".join(map(str, x.shape))
    if call.upstream_memory is Memory.SINGLE:
        return f"upstream = torch.full(({shape}), {float(x.flat[0])!r}, dtype=torch.float64)"
    rows = x.any(axis=-1)
    if rows.all() or not rows.any():
        return f"upstream = drawn({seed}, {shape})" if rows.any() else f"upstream = torch.zeros({shape}).double()"
    places = ", ".join(str(one.tolist()) for one in np.nonzero(rows))
    some = f"rows = torch.zeros({', '.join(map(str, x.shape[:3]))}).double()\nrows[{places}] = 1.0\n"
    return f"{some}upstream = drawn({seed}, {shape}) * rows[..., None]  # of some rows alone"
