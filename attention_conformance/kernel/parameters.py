"""Every parameter of a kernel is accounted for: tested, left at what does nothing, or named as not tested.

What no capability tests is exercised once: one whose name says what it does to the numbers, and that takes a value and
does nothing, is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np

from attention_conformance.interfaces.interface import UNTESTED, Mark
from attention_conformance.kernel.with_torch import torch
from generators.attention_call import AttentionCall
from generators.attention_calls import Numbers, Sizes, tensors
from reference_attention.errors import InvalidInput
from theorems.core.on_kernel import Refused


class Account(StrEnum):
    """What became of a parameter."""

    TESTED = "tested"
    NEUTRAL = "set to what does nothing"
    NOT_TESTED = "not tested"
    IGNORED = "ignored"
    """It takes values that should change the output, and the output is the same, bit for bit."""


SAID_BY_NAME = re.compile(
    r"^(?!return_|use_|gen_|dropout_mask)"
    r".*(mask|bias|slopes?|window(_size)?|cap|scale|scaling|temperature|dropout(_p|_rate)?)$"
)
"""Names of parameters that change the output. What is to be returned or made use of, and which weights a dropout that
is off would drop, may do nothing."""


def call_to_exercise() -> AttentionCall:
    """The one that parameters are exercised on."""
    return tensors(Sizes(B=2, H=2, G=2, L=3, T=5, E=8, M=8), Numbers.INTEGERS, seed=0)


def accounts(kernel: Any, call: AttentionCall) -> dict[str, str]:
    """What becomes of each parameter of a :class:`attention_conformance.kernel.kernel.Kernel`, by name.

    Args:
        kernel: with what it declares.
        call: to exercise a parameter on.
    """
    found: dict[str, str] = {}
    for place, name in enumerate(kernel.parameters):
        option = kernel.interface.options.get(name, UNTESTED)
        is_tested = any(one in kernel.declares or one == "same-bits" for one in option.declares)
        if place < kernel.interface.by_place or option.given or is_tested:
            found[name] = Account.TESTED
        elif name != "**":
            # What an interface knows may be without an effect while something else is off.
            exercised = name not in kernel.interface.options or option.neutral is None is kernel.parameters[name]
            ignored = exercised and SAID_BY_NAME.search(name) and _is_ignored(kernel, name, call)
            left = Account.NOT_TESTED if option.neutral is Mark.LEFT else Account.NEUTRAL
            found[name] = Account.IGNORED if ignored else left
    return found


def of_kind(found: Mapping[str, str], kind: Account) -> Sequence[str]:
    """The parameters of which that became."""
    return [name for name, one in found.items() if one == kind]


def _is_ignored(kernel: Any, name: str, call: AttentionCall) -> bool:
    """Whether some value is taken, and none that is changes the output."""
    if kernel.source.startswith(("jax:", "numpy:")):
        return False  # it is given no tensors
    bare = kernel.replace(differentiable=False)
    try:
        before = bare.answer(call).output
    except (Refused, InvalidInput):
        return False
    taken = False
    for value in values_of(name, kernel.parameters[name], call, kernel):
        try:
            with_it = bare.replace(call=partial(kernel.call, **{name: value}))
            after = with_it.answer(call).output
        except (Refused, InvalidInput):
            continue
        if not np.array_equal(after, before):
            return False
        taken = True
    return taken


def values_of(name: str, default: Any, call: AttentionCall, kernel: Any) -> Iterator[Any]:
    """Values that should change the output of a call, by the name of the parameter."""
    B, H, L, T = (call.sizes[axis] for axis in "BHLT")
    shapes = ((B, H, L, T), (L, T), (B, T), (B, 1, 1, T))
    first = torch.arange(T) < max(1, T // 2)
    if isinstance(default, bool):
        yield not default
    elif "mask" in name:
        for shape in shapes:
            yield first.expand(shape)
        for shape in shapes:
            yield kernel.tensor(np.where(first.expand(shape).numpy(), 0.0, -np.inf))
    elif "bias" in name:
        for shape in shapes:
            yield kernel.tensor(np.broadcast_to(np.arange(T) / 2.0, shape))
    elif "slope" in name:
        yield kernel.tensor(np.linspace(0.5, 2.0, H))
        yield kernel.tensor(np.broadcast_to(np.linspace(0.5, 2.0, H), (B, H)))
    elif "window" in name:
        yield from (1, (1, 0), (0, 0))
    else:
        yield from (0.5, 2.0)
