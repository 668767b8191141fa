"""Small calls of a callable, whose results show how the callable has to be called."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_conformance.calls.attention_call import Alignment, AttentionCall
from attention_conformance.calls.attention_rows import AttentionRows
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.interfaces.inferred_interface import interface_of
from attention_conformance.interfaces.interface import Request
from attention_conformance.interfaces.signature_reading import Reading
from attention_conformance.kernel.kernel_call import KernelError
from attention_conformance.kernel.memory_layout import float64_of
from attention_conformance.kernel.torch_import import torch
from attention_conformance.kernel_process.remote_kernel import RemoteKernel
from reference_attention.errors import InvalidInput
from theorems.bounded.formats import FORMATS

SIZES = (
    Sizes(B=2, H=4, G=4, L=3, T=5, E=8, M=8),
    Sizes(B=2, H=4, G=4, L=5, T=5, E=8, M=8),
    Sizes(B=2, H=4, G=4, L=16, T=16, E=64, M=64),
    Sizes(B=2, H=4, G=4, L=128, T=128, E=64, M=64),
)
"""Sizes at which a callable is tried in turn, until it returns an output."""
NEAR = 0.05
"""The error allowed for half precision, as a share of the largest output.

On random numbers a wrong reading gives an error that is about as large as the largest output.
"""


def record_results(call: Any, results: list[Any]) -> Any:
    """Return the callable, with its results also appended to a list."""
    if isinstance(call, RemoteKernel):
        return call.recording(results)

    def recorder(*args: Any, **options: Any) -> Any:
        results.append(call(*args, **options))
        return results[-1]

    return recorder


def try_reading(kernel: Any, reading: Reading, made: AttentionCall, **options: Any) -> tuple[Any, Any]:
    """Return the output (B, H, L, M) of a kernel called by a reading, and all of its results.

    Args:
        kernel: a :class:`attention_conformance.kernel.kernel.Kernel`.
        reading: the reading.
        made: the call; its scale is left to the kernel.
        options: further attributes of the request.

    Returns:
        The output and the list of results; None in place of a missing output or list.
    """
    results: list[Any] = []
    given = {name: kernel.tensor(getattr(made, name)) for name in ("query", "key", "value")}
    request = Request(**given, **{"scale": None, "causal": made.causal, **options})
    recorded = record_results(kernel.call, results)
    try:
        with torch.no_grad():
            returned = kernel.replace(call=recorded, interface=interface_of(reading), reading=reading).run(request)
    except KernelError:
        return None, None
    except InvalidInput:  # not an output
        return None, results[0]
    return float64_of(returned.output), results[0]


def distance(output: Any, small_call: AttentionCall, scale: float | None, alignment: Alignment) -> float:
    """Return the largest error of an output divided by the largest correct entry; infinite if the output is None."""
    if output is None:
        return math.inf
    expected = due_rows(small_call, scale, alignment).output.value
    off = np.max(np.abs(output - expected)) / np.max(np.abs(expected))
    return float(np.nan_to_num(off, nan=math.inf))


def due_rows(small_call: AttentionCall, scale: float | None, alignment: Alignment) -> Any:
    """Return the correct results of a call."""
    return AttentionRows(small_call.replace(scale=scale), FORMATS["float64"], alignment)


@dataclass(frozen=True)
class Found:
    """A reading of a callable, and the distance of its output from the formula's.

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


def random_mask(small_call: AttentionCall) -> Any:
    """Draw a boolean mask (B, H, L, T) that shows all rows the first key, which causality also shows them."""
    visible = np.random.default_rng(0).random(tuple(small_call.sizes[axis] for axis in "BHLT")) < 0.6
    visible[..., 0] = True
    return visible


def random_bias(small_call: AttentionCall) -> Any:
    """Draw a bias (B, H, L, T) of standard normal numbers."""
    return np.random.default_rng(1).standard_normal(tuple(small_call.sizes[axis] for axis in "BHLT"))


def square_call(*, causal: bool) -> AttentionCall:
    """Return a call with as many queries as keys."""
    return tensors(SIZES[1], Numbers.NORMAL, seed=0).replace(causal=causal)


def rightness(kernel: Any) -> float:
    """Return the share of small calls on which a kernel's output is near the formula's output.

    The calls are a plain call, a call with each kind of mask that the kernel takes, and a causal call.

    Args:
        kernel: a :class:`attention_conformance.kernel.kernel.Kernel`.
    """
    plain_call = tensors(SIZES[0], Numbers.NORMAL, seed=0)
    calls_by_capability = {
        "output": plain_call,
        "boolean-mask": plain_call.replace(visible=random_mask(plain_call)),
        "additive-mask": plain_call.replace(bias=random_bias(plain_call)),
        "causal": square_call(causal=True),
    }
    near = [_is_near(kernel, call) for name, call in calls_by_capability.items() if name in kernel.declares]
    return sum(near) / len(near)


def returns_more(kernel: Any) -> bool:
    """Return whether the kernel returns more than one tensor without being asked to."""
    results: list[Any] = []
    call = kernel.in_own_numbers(tensors(SIZES[0], Numbers.NORMAL, seed=0))
    kernel.replace(call=record_results(kernel.call, results)).output(call)
    return any(not isinstance(value, torch.Tensor) for value in results)


def _is_near(kernel: Any, call: AttentionCall) -> bool:
    call = kernel.in_own_numbers(call.replace(scale=None) if kernel.fixed_scale else call)
    return distance(kernel.output(call), call, call.scale, kernel.alignment) < NEAR
