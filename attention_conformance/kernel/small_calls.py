"""Small calls of a callable, whose values tell how it is to be called."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_conformance.interfaces.by_name import interface_of
from attention_conformance.interfaces.interface import Parameters, Request
from attention_conformance.interfaces.reading import Reading
from attention_conformance.kernel.with_torch import torch
from generators.attention_call import Alignment, AttentionCall
from generators.attention_calls import Numbers, Sizes, tensors
from reference_attention.errors import InvalidInput
from theorems.bounded.formats import FORMATS
from theorems.core.on_kernel import Refused
from theorems.rounding.attention_rows import AttentionRows

SIZES = (
    Sizes(B=2, H=4, G=4, L=3, T=5, E=8, M=8),
    Sizes(B=2, H=4, G=4, L=5, T=5, E=8, M=8),
    Sizes(B=2, H=4, G=4, L=16, T=16, E=64, M=64),
    Sizes(B=2, H=4, G=4, L=128, T=128, E=64, M=64),
)
"""At which a callable is tried, until it returns something."""
NEAR = 0.05
"""Of the largest output, by which half precision may be off; another reading of random numbers is off by as much as
there is."""


@dataclass(frozen=True)
class Try:
    """A callable on tensors of one dtype.

    Attributes:
        call: the callable.
        has: its parameters.
        dtype: of the tensors.
        device: where they are.
    """

    call: Callable[..., Any]
    has: Parameters
    dtype: torch.dtype
    device: str

    def of(self, reading: Reading, made: AttentionCall, **options: Any) -> tuple[Any, Any]:
        """Its output (B, H, L, M) in float64 and all that it returned; None where it raises, or returns none."""
        given: dict[str, Any] = {name: self.tensor(getattr(made, name)) for name in ("query", "key", "value")}
        seen: list[Any] = []

        def recorder(*args: Any, **named: Any) -> Any:
            seen.append(self.call(*args, **named))
            return seen[-1]

        try:
            with torch.no_grad():
                interface = interface_of(reading)
                request = Request(**given, **{"scale": None, "causal": made.causal, **options})
                output = interface.call(recorder, request, self.has).output
        except (Exception, SystemExit):
            return None, None
        due = (*made.query.shape[:3], made.value.shape[-1])
        if not isinstance(output, torch.Tensor) or tuple(output.shape) != due or not output.is_floating_point():
            return None, seen[0]
        return output.to("cpu", torch.float64).numpy(), seen[0]

    def tensor(self, x: Any) -> torch.Tensor:
        """A tensor as the callable wants it."""
        return torch.tensor(np.asarray(x)).to(self.device, torch.bool if np.asarray(x).dtype == bool else self.dtype)


def distance(found: Any, made: AttentionCall, scale: float | None, alignment: Alignment) -> float:
    """How far an output is from the formula's, over the largest of these; infinite for none."""
    if found is None:
        return math.inf
    due = due_rows(made, scale, alignment).output.value
    off = np.max(np.abs(found - due)) / np.max(np.abs(due))
    return float(np.nan_to_num(off, nan=math.inf))


def due_rows(made: AttentionCall, scale: float | None, alignment: Alignment) -> Any:
    """The formula's numbers."""
    return AttentionRows(made.replace(scale=scale), FORMATS["float64"], alignment)


@dataclass(frozen=True)
class Found:
    """A reading and how good it is.

    Attributes:
        off: distance of its output from the formula's.
        reading: it.
        scale: its own, None for 1/√E.
        alignment: of every call, if all are causal.
        made: the call that it was found by.
    """

    off: float
    reading: Reading
    scale: float | None
    alignment: Alignment
    made: AttentionCall


def random_mask(made: AttentionCall) -> Any:
    """Booleans (B, H, L, T) that show the first key: whatever else is hidden, a causal row sees a key."""
    visible = np.random.default_rng(0).random(tuple(made.sizes[axis] for axis in "BHLT")) < 0.6
    visible[..., 0] = True
    return visible


def random_bias(made: AttentionCall) -> Any:
    """Standard normal numbers (B, H, L, T)."""
    return np.random.default_rng(1).standard_normal(tuple(made.sizes[axis] for axis in "BHLT"))


def square_call(*, causal: bool) -> AttentionCall:
    """Of as many queries as keys."""
    return tensors(SIZES[1], Numbers.NORMAL, seed=0).replace(causal=causal)


def rightness(kernel: Any) -> float:
    """The share of small calls, one for each of its masks and a causal one, in which a
    :class:`attention_conformance.kernel.kernel.Kernel` is near to attention."""
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
    """Whether it returns more than a tensor, without being asked for it."""
    seen: list[Any] = []

    def recorder(*args: Any, **options: Any) -> Any:
        seen.append(kernel.call(*args, **options))
        return seen[-1]

    call = kernel.in_own_numbers(tensors(SIZES[0], Numbers.NORMAL, seed=0))
    with suppress(Refused, InvalidInput):
        kernel.replace(call=recorder, differentiable=False).answer(call)
    return any(not isinstance(found, torch.Tensor) for found in seen)


def _is_near(kernel: Any, call: AttentionCall) -> bool:
    call = kernel.in_own_numbers(call.replace(scale=None) if kernel.fixed_scale else call)
    try:
        found = kernel.replace(differentiable=False).answer(call).output
    except (Refused, InvalidInput):
        return False
    return distance(found, call, call.scale, kernel.alignment) < NEAR
