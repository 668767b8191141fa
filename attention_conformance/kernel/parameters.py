"""The treatment of every parameter of a kernel: tested, left at a value without effect, not tested, or ignored.

If no capability tests a parameter, one call is repeated with other values of the parameter. A parameter is ignored
if it should change the output, judged by its name, but no value does.
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
    """The treatment of a parameter in the tests of a kernel."""

    TESTED = "tested"
    NEUTRAL = "set to a value without effect"
    NOT_TESTED = "not tested"
    IGNORED = "ignored"
    """The kernel accepts values of the parameter that should change the output, but no bit of the output changes."""


SAID_BY_NAME = re.compile(
    r"^(?!return_|use_|gen_|dropout_mask)"
    r".*(mask|bias|slopes?|window(_size)?|cap|scale|scaling|temperature|dropout(_p|_rate)?)$"
)
"""The pattern of names of parameters that should change the output.

Names of parameters that may have no effect do not match, such as flags to return a result or to use a method, or the
seed of a dropout that is off.
"""


def call_to_exercise() -> AttentionCall:
    """Return the call that is repeated with other values of parameters."""
    return tensors(Sizes(B=2, H=2, G=2, L=3, T=5, E=8, M=8), Numbers.INTEGERS, seed=0)


def accounts(kernel: Any, call: AttentionCall) -> dict[str, str]:
    """Return, by name, how each parameter of a :class:`attention_conformance.kernel.kernel.Kernel` is treated.

    Args:
        kernel: the kernel with its capabilities.
        call: the call that is repeated with other values of a parameter.
    """
    treatments: dict[str, str] = {}
    for place, name in enumerate(kernel.parameters):
        option = kernel.interface.options.get(name, UNTESTED)
        is_tested = any(capability in kernel.declares or capability == "same-bits" for capability in option.declares)
        if place < kernel.interface.by_place or option.given or is_tested:
            treatments[name] = Account.TESTED
        elif name != "**":
            # A parameter that the interface knows may have no effect while another parameter is off.
            exercised = name not in kernel.interface.options or option.neutral is None is kernel.parameters[name]
            ignored = exercised and SAID_BY_NAME.search(name) and _is_ignored(kernel, name, call)
            default_account = Account.NOT_TESTED if option.neutral is Mark.LEFT else Account.NEUTRAL
            treatments[name] = Account.IGNORED if ignored else default_account
    return treatments


def of_kind(treatments: Mapping[str, str], kind: Account) -> Sequence[str]:
    """Return the names of the parameters whose treatment is ``kind``."""
    return [name for name, treatment in treatments.items() if treatment == kind]


def _is_ignored(kernel: Any, name: str, call: AttentionCall) -> bool:
    """Return whether the kernel accepts at least one value of a parameter, and no accepted value changes the output."""
    if kernel.source.startswith(("jax:", "numpy:")):
        return False  # do not try tensors as values
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
    """Yield values of the parameter ``name`` that should change the output of a call."""
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
