"""A test of attention kernels as it is common in practice: Gaussian tensors of a regular size, tolerance 1e-2.

The following command prints the test's results for every fault of the tiled kernel and for the correct kernels:

    python -m examples.real_faults.common_test
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Container, Mapping
from typing import Any

import torch
from torch import Tensor

from examples.real_faults.attention import tiled, tiled_sdpa
from examples.real_faults.gallery import TILED_FAULTS

BATCH, HEADS, LENGTH, WIDTH = 2, 4, 128, 64
ATOL = 1e-2
RTOL = {torch.float32: 0.0, torch.bfloat16: 1e-2, torch.float16: 1e-3}
"""The relative tolerance, added to ATOL, by dtype: bfloat16 rounds even a correct number near 8 by more than 1e-2."""

Kernel = Callable[..., Any]
Call = Mapping[str, Any]
CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
MASK = torch.rand(LENGTH, LENGTH, generator=torch.Generator().manual_seed(1)) < 0.5
CALLS: Mapping[str, Mapping[str, tuple[Call, Call]]] = {
    "plain": {"": ({}, {})},
    "sdpa": {
        "": ({}, {}),
        "causal": ({"is_causal": True}, {"visible": CAUSAL}),
        "mask": ({"attn_mask": MASK}, {"visible": MASK}),
        "grouped heads": ({"enable_gqa": True}, {"key_heads": 2}),
    },
    "flash": {
        "": ({}, {}),
        "causal": ({"causal": True}, {"visible": CAUSAL}),
        "window": ({"window_size": (32, 0)}, {"visible": CAUSAL.triu(-32)}),
        "grouped heads": ({}, {"key_heads": 2}),
        "log-sum-exp": ({"return_lse": True}, {}),
    },
}
"""For each interface and option, the kernel's arguments, and the same option as arguments of the textbook formula."""


def interface_of(kernel: Kernel) -> str:
    """Return the kernel's interface, ``plain``, ``sdpa`` or ``flash``, as the names of its parameters show it."""
    names = inspect.signature(kernel).parameters
    return "flash" if "q" in names else "sdpa" if "key" in names else "plain"


def gaussian_check(kernel: Kernel, dtype: torch.dtype = torch.float32) -> bool:
    """Return whether output and gradients for Gaussian tensors are right to 1e-2, without and with a causal mask.

    Args:
        kernel: a kernel with one of the interfaces of :func:`interface_of`; a ``plain`` kernel, which does not scale
            logits, gets queries that are divided by the root of their number of columns.
        dtype: the dtype of the tensors.
    """
    return not failures(kernel, dtype, ("", "causal"))


def failures(kernel: Kernel, dtype: torch.dtype = torch.float32, options: Container[str] | None = None) -> list[str]:
    """Return the options with which an error exceeds the tolerance; ``""`` stands for a call without options.

    Only options in ``options`` are tried, by default all that the kernel has.
    """
    parameters = inspect.signature(kernel).parameters
    return [
        name
        for name, (arguments, facts) in CALLS[interface_of(kernel)].items()
        if (options is None or name in options) and arguments.keys() <= parameters.keys()
        if not _close(kernel, dtype, arguments, facts)
    ]


def _close(kernel: Kernel, dtype: torch.dtype, arguments: Call, facts: Call) -> bool:
    interface = interface_of(kernel)
    generator = torch.Generator().manual_seed(0)
    heads = (HEADS, facts.get("key_heads", HEADS), facts.get("key_heads", HEADS), HEADS)
    q, k, v, upstream = (torch.randn(BATCH, h, LENGTH, WIDTH, generator=generator).to(dtype) for h in heads)
    if interface == "plain":
        q = q / math.sqrt(WIDTH)

    def in_its_layout(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        if interface != "flash":
            return (kernel(q, k, v, **arguments),)
        returned = kernel(*(x.transpose(1, 2).contiguous() for x in (q, k, v)), **arguments)
        out, *lse = returned if isinstance(returned, tuple) else (returned,)
        return (out.transpose(1, 2), *lse)

    def textbook(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        k, v = (x.repeat_interleave(HEADS // x.shape[1], dim=1) for x in (k, v))
        logits = q @ k.mT / (1 if interface == "plain" else math.sqrt(WIDTH))
        logits = logits.masked_fill(~facts.get("visible", torch.tensor(True)), -math.inf)
        return logits.softmax(dim=-1) @ v, logits.logsumexp(dim=-1)

    def numbers(attention: Kernel, to: torch.dtype) -> list[Tensor]:
        inputs = [x.to(to).requires_grad_() for x in (q, k, v)]
        out, *lse = attention(*inputs)
        return [*torch.autograd.grad(out, inputs, upstream.to(to)), out, *lse]

    pairs = zip(numbers(in_its_layout, dtype), numbers(textbook, torch.float32), strict=False)
    return all(torch.allclose(returned.float(), right, rtol=RTOL[dtype], atol=ATOL) for returned, right in pairs)


def table() -> str:
    """Return a Markdown table that says which checks each faulty and each correct kernel passes."""
    kernels = {fault.name: fault.kernel for fault in TILED_FAULTS} | {"tiled": tiled, "tiled_sdpa": tiled_sdpa}
    lines = ["| kernel | float32 | bfloat16 | float32, every option |", "|---|---|---|---|"]
    for name, kernel in kernels.items():
        usual = [gaussian_check(kernel, dtype) for dtype in (torch.float32, torch.bfloat16)]
        failed = failures(kernel)
        words = ["passes" if passed else "fails" for passed in usual]
        every = f"fails: {', '.join(name or 'no option' for name in failed)}" if failed else "passes"
        lines.append(f"| {name} | {' | '.join(words)} | {every} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
