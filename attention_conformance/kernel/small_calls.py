"""Small calls of a callable, whose results show how the callable has to be called.

A reading (:class:`attention_conformance.interfaces.signature_reading.Reading`) is a possible meaning of a callable's
parameters and results. Axes: B batch entries, H heads, L queries, T keys, M columns of values.
"""

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
"""The sizes of calls that are tried in turn, until the callable returns an output."""
NEAR = 0.05
"""The allowed error of an output, as a share of the largest output; half precision needs so much.

On random numbers a callable that is called in a wrong way has an error about as large as the largest output.
"""


def record_results(call: Any, results: list[Any]) -> Any:
    """Return a callable that calls ``call`` and also appends each result to ``results``."""
    if isinstance(call, RemoteKernel):
        return call.recording(results)

    def recorder(*args: Any, **options: Any) -> Any:
        results.append(call(*args, **options))
        return results[-1]

    return recorder


def try_reading(kernel: Any, reading: Reading, made: AttentionCall, **options: Any) -> tuple[Any, Any]:
    """Return the output (B, H, L, M) of a kernel called by a reading, and everything that the kernel returned.

    Args:
        kernel: a :class:`attention_conformance.kernel.kernel.Kernel`.
        reading: the reading of the kernel's signature.
        made: the call, except that the kernel's default scale is used.
        options: further attributes of the request.

    Returns:
        The output and the returned value. The output is None if the returned value contains none; both are None if the
        kernel raises an error.
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
    except InvalidInput:  # the kernel returned a value that contains no output
        return None, results[0]
    return float64_of(returned.output), results[0]


def distance(output: Any, small_call: AttentionCall, scale: float | None, alignment: Alignment) -> float:
    """Return the largest error of an output, divided by the largest correct entry; infinite if the output is None."""
    if output is None:
        return math.inf
    expected = due_rows(small_call, scale, alignment).output.value
    off = np.max(np.abs(output - expected)) / np.max(np.abs(expected))
    return float(np.nan_to_num(off, nan=math.inf))


def due_rows(small_call: AttentionCall, scale: float | None, alignment: Alignment) -> Any:
    """Return the correct results of a call with the given scale (None for 1/√E) and position of the causal diagonal."""
    return AttentionRows(small_call.replace(scale=scale), FORMATS["float64"], alignment)


@dataclass(frozen=True)
class Found:
    """A reading of a callable's signature, and how near the callable's output then is to attention.

    Attributes:
        off: the :func:`distance` between the callable's output and the correct output.
        reading: the reading.
        scale: the scale that the callable uses by default; None for 1/√E, with E columns of queries.
        alignment: the position of the causal diagonal, if the callable is causal in every call.
        made: the call on which the callable was tried.
    """

    off: float
    reading: Reading
    scale: float | None
    alignment: Alignment
    made: AttentionCall


def random_mask(small_call: AttentionCall) -> Any:
    """Draw a boolean mask (B, H, L, T) under which all rows see the first key, as they also do in causal calls."""
    visible = np.random.default_rng(0).random(tuple(small_call.sizes[axis] for axis in "BHLT")) < 0.6
    visible[..., 0] = True
    return visible


def random_bias(small_call: AttentionCall) -> Any:
    """Draw an additive mask (B, H, L, T) of standard normal numbers."""
    return np.random.default_rng(1).standard_normal(tuple(small_call.sizes[axis] for axis in "BHLT"))


def square_call(*, causal: bool) -> AttentionCall:
    """Return a small call with as many queries as keys, causal or not."""
    return tensors(SIZES[1], Numbers.NORMAL, seed=0).replace(causal=causal)


def rightness(kernel: Any) -> float:
    """Return the share of small calls on which a kernel's output is correct up to the error NEAR.

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
    """Return whether the kernel returns something other than a single tensor in a call without options."""
    results: list[Any] = []
    call = kernel.in_own_numbers(tensors(SIZES[0], Numbers.NORMAL, seed=0))
    kernel.replace(call=record_results(kernel.call, results)).output(call)
    return any(not isinstance(value, torch.Tensor) for value in results)


def _is_near(kernel: Any, call: AttentionCall) -> bool:
    call = kernel.in_own_numbers(call.replace(scale=None) if kernel.fixed_scale else call)
    return distance(kernel.output(call), call, call.scale, kernel.alignment) < NEAR
