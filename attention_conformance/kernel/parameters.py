"""The treatment of every parameter of a kernel: tested, left at a value without effect, not tested, or ignored.

A parameter that no capability tests is tried in a repeated call with other values. If its name suggests that the values
should change the output, such as "mask", and none does, the kernel ignores the parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.interfaces.interface import UNTESTED, Mark
from attention_conformance.kernel.torch_import import torch
from attention_conformance.kernel_process.remote_kernel import RemoteKernel


class Account(StrEnum):
    """The treatment of a parameter of a kernel in the kernel's tests."""

    TESTED = "tested"
    NEUTRAL = "set to a value without effect"
    NOT_TESTED = "not tested"
    IGNORED = "ignored"
    """The kernel accepts values of the parameter that should change the output, but the output stays the same."""


SAID_BY_NAME = re.compile(
    r"^(?!return_|use_|gen_|dropout_mask)"
    r".*(mask|bias|slopes?|window(_size)?|cap|scale|scaling|temperature|dropout(_p|_rate)?)$"
)
"""The pattern of the names of parameters that should change the output.

Parameters that may rightly have no effect do not match: flags that return a further result or choose a method, or the
mask of a dropout that is switched off.
"""


def call_to_exercise() -> AttentionCall:
    """Return the call that is repeated with other values of a kernel's parameters."""
    return tensors(Sizes(B=2, H=2, G=2, L=3, T=5, E=8, M=8), Numbers.INTEGERS, seed=0)


def accounts(kernel: Any, call: AttentionCall) -> dict[str, str]:
    """Return how the tests treat each parameter of a kernel, by the parameter's name.

    Args:
        kernel: a :class:`attention_conformance.kernel.kernel.Kernel` with its capabilities.
        call: the call that is repeated with other values of a parameter.
    """
    treatments: dict[str, str] = {}
    for place, name in enumerate(kernel.parameters):
        option = kernel.interface.options.get(name, UNTESTED)
        is_tested = any(capability in kernel.declares or capability == "same-bits" for capability in option.declares)
        if place < kernel.interface.by_place or option.given or is_tested:
            treatments[name] = Account.TESTED
        elif name != "**":
            # A parameter that the interface knows is tried only if its default None switches it off. Any other such
            # parameter may depend on a further parameter that is switched off.
            exercised = name not in kernel.interface.options or option.neutral is None is kernel.parameters[name]
            ignored = exercised and SAID_BY_NAME.search(name) and _is_ignored(kernel, name, call)
            default_account = Account.NOT_TESTED if option.neutral is Mark.LEFT else Account.NEUTRAL
            treatments[name] = Account.IGNORED if ignored else default_account
    return treatments


def of_kind(treatments: Mapping[str, str], kind: Account) -> Sequence[str]:
    """Return the names of the parameters whose treatment in ``treatments`` is ``kind``."""
    return [name for name, treatment in treatments.items() if treatment == kind]


def _is_ignored(kernel: Any, name: str, call: AttentionCall) -> bool:
    """Return whether the kernel accepts values of the parameter ``name``, but none of them changes the output."""
    if kernel.source.startswith(("jax:", "numpy:")):
        return False  # the values to try are torch tensors, which such a kernel does not take
    before = kernel.output(call)
    if before is None:
        return False
    accepts_some = False
    for value in values_of(name, kernel.parameters[name], call, kernel):
        is_here = not isinstance(kernel.call, RemoteKernel)
        with_value = partial(kernel.call, **{name: value}) if is_here else kernel.call.with_constants(**{name: value})
        after = kernel.replace(call=with_value).output(call)
        if after is None:
            continue
        if not np.array_equal(after, before):
            return False
        accepts_some = True
    return accepts_some


def values_of(name: str, default: Any, call: AttentionCall, kernel: Any) -> Iterator[Any]:
    """Yield values to try for the parameter ``name``, each of which should change the output of a call."""
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
