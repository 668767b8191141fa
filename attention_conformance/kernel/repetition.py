"""Repetition of a call thousands of times, to show rare faults such as races or memory that is not cleared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from attention_conformance.calls.answer import Answer
from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.claims.long_states import RESULTS
from attention_conformance.kernel.torch_import import torch
from attention_conformance.kernel_process.remote_kernel import RemoteKernel

THREADS = (2, 4, 0)
"""The numbers of threads that PyTorch gets in turn within each thousand calls; 0 stands for the usual number."""
CALLS_PER_NUMBER = 20
"""The number of calls with each unusual number of threads; small, since threads that wait for cores are slow."""
PLACES = 8
"""The number of slots for tensors of NaN that occupy memory while calls are made."""


Fill = Callable[[int, int], None]
"""A function (place, size) that puts a float64 tensor of ``size`` NaN into slot ``place`` and frees the former one."""


def fill_of(kernel: Any) -> Fill:
    """Return the function that fills memory with NaN in the process where ``kernel`` is called."""
    if isinstance(kernel.call, RemoteKernel):
        return kernel.call.fill
    memory: dict[int, torch.Tensor] = {}

    def fill(place: int, size: int) -> None:
        memory[place] = torch.full((size,), torch.nan, dtype=torch.float64)

    return fill


def answer_repeatedly(once: Callable[[], Answer], times: int, call: AttentionCall, fill: Fill) -> Answer:
    """Repeat a call; return the first answer, with each different later answer and its frequency in ``others``.

    Between calls, tensors of about the sizes of the call's tensors are filled with NaN, kept for a while and freed.
    So a result is likely to be NaN wherever the kernel returns memory that it did not write.

    Args:
        once: a function that makes the call and returns its answer.
        times: the number of calls.
        call: the call.
        fill: the function that fills memory, see :data:`Fill`.
    """
    rng, sizes = np.random.default_rng(call.seed), call.sizes
    rows = sizes["B"] * sizes["H"] * sizes["L"]
    shapes = [call.query.size, call.key.size, call.value.size, call.upstream.size, rows, rows * sizes["T"]]
    others: dict[bytes, tuple[Answer, int]] = {}
    before = torch.get_num_threads()
    first = _copy(once())
    first_bits = _bits(first)
    try:
        for number in range(1, times):
            if number % 1000 in (0, CALLS_PER_NUMBER, 2 * CALLS_PER_NUMBER):
                torch.set_num_threads(THREADS[number % 1000 // CALLS_PER_NUMBER] or before)
            fill(int(rng.integers(PLACES)), shapes[number % len(shapes)])
            answer = once()
            bits = _bits(answer)
            if bits != first_bits:
                other_answer, often = others.get(bits) or (_copy(answer), 0)
                others[bits] = other_answer, often + 1
    finally:
        torch.set_num_threads(before)
    return replace(first, others=tuple(others.values()))


def _bits(answer: Answer) -> bytes:
    return b"".join(x.tobytes() for name in RESULTS if (x := getattr(answer, name)) is not None)


def _copy(answer: Answer) -> Answer:
    """Return a copy of the answer, since a kernel may write to its earlier results in the next call."""
    return replace(answer, **{name: x.copy() for name in RESULTS if (x := getattr(answer, name)) is not None})
