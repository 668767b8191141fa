"""A call over and over: what is wrong once in a thousand times, a race or memory that nobody cleared, shows then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from attention_conformance.claims.long_states import RESULTS
from attention_conformance.kernel.with_torch import torch
from generators.attention_call import AttentionCall
from theorems.core.on_kernel import Answer

THREADS = (2, 4, 0)
"""Of PyTorch, for some calls of each thousand; 0 for as many as there were."""
SOME = 20
"""Calls on each number of threads: threads that wait for cores take their time."""
HELD = 8
"""Other tensors that are in memory at a time."""


def answer_repeatedly(once: Callable[[], Answer], times: int, call: AttentionCall) -> Answer:
    """The first answer, and those that are not the same, bit for bit, with how often each came.

    In between tensors of about the sizes of the call are made of NaN, kept for a while and freed, so that memory that
    is not written to holds something else than in the call before.

    Args:
        once: makes the call.
        times: how often.
        call: which one.
    """
    rng, sizes = np.random.default_rng(call.seed), call.sizes
    rows = sizes["B"] * sizes["H"] * sizes["L"]
    shapes = [call.query.size, call.key.size, call.value.size, call.upstream.size, rows, rows * sizes["T"]]
    held = [torch.empty(0)] * HELD
    others: dict[bytes, tuple[Answer, int]] = {}
    before = torch.get_num_threads()
    first = _copy(once())
    own = _bits(first)
    try:
        for number in range(1, times):
            if number % 1000 in (0, SOME, 2 * SOME):
                torch.set_num_threads(THREADS[number % 1000 // SOME] or before)
            held[rng.integers(HELD)] = torch.full((shapes[number % len(shapes)],), torch.nan, dtype=torch.float64)
            answer = once()
            bits = _bits(answer)
            if bits != own:
                known, often = others.get(bits) or (_copy(answer), 0)
                others[bits] = known, often + 1
    finally:
        torch.set_num_threads(before)
    return replace(first, others=tuple(others.values()))


def _bits(answer: Answer) -> bytes:
    return b"".join(x.tobytes() for name in RESULTS if (x := getattr(answer, name)) is not None)


def _copy(answer: Answer) -> Answer:
    """A kernel may return what it writes to in the next call."""
    return replace(answer, **{name: x.copy() for name in RESULTS if (x := getattr(answer, name)) is not None})
