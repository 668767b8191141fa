"""The results that a kernel returns for a call, and an implementation that calls a kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from attention_conformance.calls.attention_call import AttentionCall
from reference_attention.loss import Array
from theorems.core.implementation import Implementation
from theorems.core.under_test import Refused


@dataclass(frozen=True)
class Answer:
    """The results that a kernel returned for a call, in float64 (sizes B, H, …: see :class:`AttentionCall`).

    Attributes:
        output: shape (B, H, L, M).
        query_gradient, key_gradient, value_gradient: gradients of the sum of (upstream gradient · output), in the
            shapes of query, key and value; None for a kernel without a backward pass, and for a gradient that the call
            does not request.
        log_sum_exp: shape (B, H, L), if the kernel returns it and the call requests it.
        weights: shape (B, H, L, T), if the kernel returns them.
        sink_gradient, bias_gradient: gradients of sinks and bias, if the kernel differentiates them.
        changed: the names of the arguments that the kernel changed, or next to which the kernel wrote in memory.
        changed_settings: the settings of PyTorch and of the process that the kernel changed.
        failed: the error that the compiled kernel raised, although the kernel returns a result without compilation.
        others: for a call that is repeated many times, the later answers that differ from the first in any bit, each
            with its number of occurrences.
    """

    output: Array
    query_gradient: Array | None = None
    key_gradient: Array | None = None
    value_gradient: Array | None = None
    log_sum_exp: Array | None = None
    weights: Array | None = None
    sink_gradient: Array | None = None
    bias_gradient: Array | None = None
    changed: tuple[str, ...] = ()
    changed_settings: tuple[str, ...] = ()
    failed: str = ""
    others: tuple[tuple[Answer, int], ...] = ()


class BackwardRefused(Refused):
    """Exception for a kernel that raised an error in its backward pass."""


class NotCompiled(Refused):
    """Exception for a kernel that PyTorch cannot compile."""


def attend(call: AttentionCall) -> Answer:
    """Raise Refused, as there is no kernel to answer the call; a kernel under test replaces this function."""
    raise Refused("nothing to call")


@dataclass(frozen=True)
class OnKernel(Implementation):
    """An implementation whose softmax, risk and gradient are computed by a kernel.

    Attributes:
        kernel: the :class:`attention_conformance.kernel.kernel.Kernel`.
        fail_fast: whether to stop trying all other capabilities (options, each checked as a statement) once a failing
            call falsifies one capability.
    """

    kernel: Any = None
    fail_fast: bool = False

    def in_format(self, name: str) -> OnKernel:
        """Return the implementation for tensors of the number format ``name``; an empty name changes nothing."""
        if not name or self.kernel.dtype == name:
            return self
        implementation: OnKernel = self.kernel.in_format(name).as_implementation()
        return replace(implementation, fail_fast=self.fail_fast)
