"""Small calls of a callable, whose results show how it is to be called."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_conformance.calls.attention_call import Alignment, AttentionCall
from attention_conformance.calls.attention_calls import Numbers, Sizes, tensors
from attention_conformance.calls.attention_rows import AttentionRows
from attention_conformance.interfaces.by_name import interface_of
from attention_conformance.interfaces.interface import Parameters, Request
from attention_conformance.interfaces.reading import Reading
from attention_conformance.kernel.global_state import restore_settings
from attention_conformance.kernel.with_torch import torch
from attention_conformance.kernel_process.remote_kernel import RemoteKernel
from reference_attention.errors import InvalidInput
from theorems.bounded.formats import FORMATS
from theorems.core.under_test import Refused

SIZES = (
    Sizes(B=2, H=4, G=4, L=3, T=5, E=8, M=8),
    Sizes(B=2, H=4, G=4, L=5, T=5, E=8, M=8),
    Sizes(B=2, H=4, G=4, L=16, T=16, E=64, M=64),
    Sizes(B=2, H=4, G=4, L=128, T=128, E=64, M=64),
)
"""Sizes at which a callable is tried, until it returns an output."""
NEAR = 0.05
"""The error that is allowed to half precision, as a share of the largest output.

With random numbers, the output under another reading is off by about the largest output itself.
"""


@dataclass(frozen=True)
class Try:
    """A callable on tensors of one dtype.

    Attributes:
        call: the callable.
        has: its parameters.
        dtype: the dtype of the tensors.
        device: the device of the tensors.
    """

    call: Callable[..., Any]
    has: Parameters
    dtype: torch.dtype
    device: str

    def of(self, reading: Reading, made: AttentionCall, **options: Any) -> tuple[Any, Any]:
        """Return its output (B, H, L, M) in float64 and all that it returned; None if it raises, or for no output."""
        given: dict[str, Any] = {name: self.tensor(getattr(made, name)) for name in ("query", "key", "value")}
        seen: list[Any] = []

        def recorder(*args: Any, **named: Any) -> Any:
            seen.append(self.call(*args, **named))
            return seen[-1]

        try:
            with torch.no_grad(), nullcontext() if isinstance(self.call, RemoteKernel) else restore_settings([]):
                interface = interface_of(reading)
                request = Request(**given, **{"scale": None, "causal": made.causal, **options})
                if isinstance(self.call, RemoteKernel):
                    output = self.call.recording(seen).run(interface, reading, request).output
                else:
                    output = interface.call(recorder, request, self.has).output
        except (Exception, SystemExit):
            return None, None
        due = (*made.query.shape[:3], made.value.shape[-1])
        if not isinstance(output, torch.Tensor) or tuple(output.shape) != due or not output.is_floating_point():
            return None, seen[0]
        return output.to("cpu", torch.float64).numpy(), seen[0]

    def tensor(self, x: Any) -> torch.Tensor:
        """Return a tensor in the dtype and on the device of the callable; booleans remain booleans."""
        return torch.tensor(np.asarray(x)).to(self.device, torch.bool if np.asarray(x).dtype == bool else self.dtype)


def distance(output: Any, made: AttentionCall, scale: float | None, alignment: Alignment) -> float:
    """Return the distance of an output from the formula's, over the largest of the latter; infinite if it is None."""
    if output is None:
        return math.inf
    due = due_rows(made, scale, alignment).output.value
    off = np.max(np.abs(output - due)) / np.max(np.abs(due))
    return float(np.nan_to_num(off, nan=math.inf))


def due_rows(made: AttentionCall, scale: float | None, alignment: Alignment) -> Any:
    """Return the correct results of a call."""
    return AttentionRows(made.replace(scale=scale), FORMATS["float64"], alignment)


@dataclass(frozen=True)
class Found:
    """A reading and its distance from attention.

    Attributes:
        off: distance of its output from the formula's.
        reading: the reading.
        scale: the scale of the callable, None for 1/√E.
        alignment: the alignment of every call, if all are causal.
        made: the call by which the reading was found.
    """

    off: float
    reading: Reading
    scale: float | None
    alignment: Alignment
    made: AttentionCall


def random_mask(made: AttentionCall) -> Any:
    """Draw booleans (B, H, L, T) that show the first key, so that a row sees a key even under a causal mask."""
    visible = np.random.default_rng(0).random(tuple(made.sizes[axis] for axis in "BHLT")) < 0.6
    visible[..., 0] = True
    return visible


def random_bias(made: AttentionCall) -> Any:
    """Draw standard normal numbers (B, H, L, T)."""
    return np.random.default_rng(1).standard_normal(tuple(made.sizes[axis] for axis in "BHLT"))


def square_call(*, causal: bool) -> AttentionCall:
    """Return a call with as many queries as keys."""
    return tensors(SIZES[1], Numbers.NORMAL, seed=0).replace(causal=causal)


def rightness(kernel: Any) -> float:
    """Return the share of small calls in which a kernel is near to attention.

    There is a plain call, one with each of the kernel's masks, and a causal one.

    Args:
        kernel: a :class:`attention_conformance.kernel.kernel.Kernel`.
    """
    made = tensors(SIZES[0], Numbers.NORMAL, seed=0)
    asked = {
        "output": made,
        "boolean-mask": made.replace(visible=random_mask(made)),
        "additive-mask": made.replace(bias=random_bias(made)),
        "causal": square_call(causal=True),
    }
    near = [_is_near(kernel, call) for name, call in asked.items() if name in kernel.declares]
    return sum(near) / len(near)


def returns_more(kernel: Any) -> bool:
    """Return whether the kernel returns more than a tensor, without being asked for more."""
    seen: list[Any] = []

    def recorder(*args: Any, **options: Any) -> Any:
        seen.append(kernel.call(*args, **options))
        return seen[-1]

    call = kernel.in_own_numbers(tensors(SIZES[0], Numbers.NORMAL, seed=0))
    with suppress(Refused, InvalidInput):
        is_here = not isinstance(kernel.call, RemoteKernel)
        recorded = recorder if is_here else kernel.call.recording(seen)
        kernel.replace(call=recorded, differentiable=False).answer(call)
    return any(not isinstance(value, torch.Tensor) for value in seen)


def _is_near(kernel: Any, call: AttentionCall) -> bool:
    call = kernel.in_own_numbers(call.replace(scale=None) if kernel.fixed_scale else call)
    try:
        output = kernel.replace(differentiable=False).answer(call).output
    except (Refused, InvalidInput):
        return False
    return distance(output, call, call.scale, kernel.alignment) < NEAR
