"""The answer of a kernel compiled by ``torch.compile``; calls of other sizes come before the call that is checked.

The first call compiles a graph for its own sizes, the second a graph for any sizes, which the checked call uses. This
order shows faults such as an integer taken for a constant, an operator that declares a wrong shape, or a graph that no
longer fits. PyTorch's compilations are cleared before and after, so that a call does not depend on earlier calls. No
file is written except in PyTorch's own cache.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from attention_conformance.calls.answer import Answer, NotCompiled
from attention_conformance.calls.attention_call import AttentionCall, State
from attention_conformance.calls.call_space import CAPABILITY_OF_STATE
from attention_conformance.claims.call_shrinker import cut_call
from attention_conformance.kernel.compiler import (
    BACKENDS,
    OTHERS,
    calls_other_library,
    compile_callable,
    number_of_graphs,
)
from attention_conformance.kernel.torch_import import torch
from attention_conformance.kernel_process.messages import RaisedElsewhere, type_name
from attention_conformance.kernel_process.remote_kernel import RemoteKernel
from reference_attention.errors import InvalidInput
from theorems.core.under_test import Refused

BY_COMPILER = tuple(CAPABILITY_OF_STATE[state] for state in BACKENDS)
"""The capabilities of a kernel that ``torch.compile`` can compile: with each of its backends."""
COMPILERS = ("c++", "g++", "clang++")
"""Commands of C++ compilers, one of which PyTorch's backend inductor needs to compile to machine code."""


def answer_compiled(kernel: Any, call: AttentionCall, *, other_sizes: bool = True) -> Answer:
    """Return the compiled kernel's results and gradients for a call.

    Args:
        kernel: a :class:`attention_conformance.kernel.kernel.Kernel`.
        call: the call, whose state is a key of :data:`BACKENDS` and decides the backend.
        other_sizes: whether calls of other sizes come first.

    Raises:
        NotCompiled: PyTorch cannot compile the kernel.
    """
    once = call.replace(state=State.ONCE)
    is_here = not isinstance(kernel.call, RemoteKernel)
    compiling = compile_callable(kernel.call, BACKENDS[call.state]) if is_here else kernel.call.compiled(call.state)
    with compiling as compiled:
        through = kernel.replace(call=compiled)
        for other in calls_of_other_sizes(once) if other_sizes else ():
            with suppress(Refused, InvalidInput):  # the kernel may refuse the other sizes
                through.answer(kernel.suit(other))
        try:
            answer: Answer = through.answer(once)
        except (Refused, InvalidInput) as error:
            cause, message = _first_cause(error)
            if _is_by_compiler(cause):
                raise NotCompiled(message) from None
            nothing = np.full((*call.query.shape[:3], call.value.shape[-1]), np.nan)
            return Answer(nothing, failed=f"the compiled kernel raises {message}")
    return answer


def calls_of_other_sizes(call: AttentionCall) -> Iterator[AttentionCall]:
    """Yield the call cut to half of its queries and keys, then the call without its last query, key and batch entry."""
    sizes = call.sizes
    for axes, halved in (("TL", True), ("TLB", False)):
        other = call
        for axis in axes:
            size = -(-sizes[axis] // 2) if halved else max(1, sizes[axis] - 1)
            other = cut_call(other, axis, slice(0, size))
        yield other


def _first_cause(error: BaseException) -> tuple[BaseException, str]:
    """Return the exception that first caused an error, and a text with the type and the first line of the exception."""
    cause = error
    while cause.__context__ is not None and isinstance(cause, Refused | InvalidInput):
        cause = cause.__context__
    message = next((line.strip() for line in str(cause).splitlines() if line.strip()), "nothing")
    return cause, f"{type_name(cause)}: {message[:160].rstrip('.')}"


def _is_by_compiler(error: BaseException) -> bool:
    """Return whether an exception was raised by PyTorch's compiler."""
    if isinstance(error, RaisedElsewhere):
        return error.by_compiler
    return isinstance(error, torch._dynamo.exc.TorchDynamoException)


def with_compiler(kernel: Any, call: AttentionCall, machine_code: bool = False) -> Any:
    """Return the kernel with the capabilities "compiled" and "machine-code" as far as they can be checked.

    Kernels that call other libraries, and kernels that are compiled already, get neither.

    Args:
        kernel: a :class:`attention_conformance.kernel.kernel.Kernel`.
        call: the call on which compilation is tried.
        machine_code: whether to compile to machine code, too, if there is a C++ compiler.
    """
    if not _is_torch_code(kernel):
        return kernel
    graphs = kernel.call.number_of_graphs if isinstance(kernel.call, RemoteKernel) else number_of_graphs
    before = graphs()
    try:
        answer_compiled(kernel, kernel.in_own_numbers(call).replace(state=State.COMPILED), other_sizes=False)
    except NotCompiled as error:
        return kernel.replace(not_compiled=str(error))
    except (Refused, InvalidInput):
        return kernel
    if graphs() == before:
        return kernel
    compiled, to_machine_code = BY_COMPILER
    declared = {compiled, to_machine_code} if machine_code and any(map(shutil.which, COMPILERS)) else {compiled}
    return kernel.replace(declares=kernel.declares | declared)


def _is_torch_code(kernel: Any) -> bool:
    """Return whether the kernel calls no library but PyTorch and is not compiled already."""
    if kernel.interface.name in OTHERS or kernel.source.split(":")[0] in (*OTHERS, "numpy"):
        return False
    call = kernel.call
    return call.compiles if isinstance(call, RemoteKernel) else not calls_other_library(call)
