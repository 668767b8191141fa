"""Detection, by small calls, of the sizes that a kernel takes: widths, multiples of lengths, equal lengths."""

from __future__ import annotations

from dataclasses import replace

from attention_conformance.calls.attention_call import Memory
from attention_conformance.kernel.contract import returns, small_call
from attention_conformance.kernel.kernel import Kernel
from attention_conformance.kernel.sizes import LENGTHS, WIDTHS, Taken

WIDE = ((33, 33), (256, 257))
"""Pairs of a width and a number of keys at which a kernel that accepts the first call is tried next."""
LADDER = tuple((width, length) for length in (3, 16, 64, 128) for width in (8, 16, 32, 64, 128))
"""Widths and lengths to try if a kernel refuses the first call."""


def with_taken_sizes(kernel: Kernel) -> Kernel | None:
    """Return the kernel with the limits of its sizes; None if it takes none of the sizes that are tried."""
    for sizes in kernel.interface.sizes:
        if _takes(kernel, sizes, 1, 5, 8):
            return _without_limits(kernel.replace(taken=sizes))
    for contiguous in (False, True):
        for width, length in LADDER:
            for queries in (1, length):
                sizes = Taken(contiguous=contiguous)
                if _takes(kernel, sizes, queries, length, width):
                    return _with_limits(kernel, sizes, queries, length, width)
    return None


def with_wide_sizes(kernel: Kernel) -> Kernel:
    """Return a kernel that takes small sizes, with limits for the larger sizes that it refuses."""
    sizes = Taken()
    small = small_call(L=2)
    laid = (small.replace(memory=memory) for memory in (Memory.TRANSPOSED, Memory.SLICED))
    if not all(returns(kernel, call) for call in laid) and returns(kernel, small):
        sizes = Taken(contiguous=True)
    if all(_takes(kernel, sizes, 3, length, width) for width, length in WIDE):
        return kernel.replace(taken=sizes)
    width, length = next(
        ((E, T) for E, T in ((8, 5), (4, 5), (8, 8), (16, 16)) if _takes(kernel, sizes, 1, T, E)), (0, 0)
    )
    return _with_limits(kernel, sizes, 1, length, width) if width else kernel.replace(taken=sizes)


def _without_limits(kernel: Kernel) -> Kernel:
    """Return a kernel that was tried only at one model's sizes, without the limits that further small calls refute."""
    for free in ({"one_head": False}, {"page": 0}):
        other = kernel.replace(taken=replace(kernel.taken, **free))
        if returns(other, small_call().replace(page=16)):
            kernel = other
    return kernel


def _takes(kernel: Kernel, sizes: Taken, L: int, T: int, E: int) -> bool:
    return returns(kernel.replace(taken=sizes), small_call(L=L, T=T, E=E))


def _with_limits(kernel: Kernel, sizes: Taken, L: int, T: int, E: int) -> Kernel:
    """Return the kernel with its limits; from a call that it takes, each size is varied separately to find them."""
    equal = L == T and not any(_takes(kernel, sizes, *pair, E) for pair in ((L, 2 * T), (2 * L, T)))

    def multiple(of_keys: bool) -> int:
        """Return the common divisor of the numbers of keys, or of queries, that the kernel takes.

        If the kernel requires L = T, both numbers are varied together.
        """
        for n in LENGTHS:
            pairs = [(k * n, k * n) if equal else (L, k * n) if of_keys else (k * n, T) for k in (1, 3)]
            if all(_takes(kernel, sizes, *pair, E) for pair in pairs):
                return n
        return T if of_keys else L

    keys, queries = multiple(True), multiple(False)
    widths = tuple(width for width in WIDTHS if _takes(kernel, sizes, L, T, width))
    restricted = replace(sizes, widths=() if widths == WIDTHS else widths, keys=keys, queries=queries, equal=equal)
    sized = kernel.replace(taken=restricted)
    # Try whether values may have another width than keys.
    call = small_call(L=L, T=T, E=widths[-1])
    narrow = call.replace(value=call.value[..., : widths[0]], upstream=call.upstream[..., : widths[0]])
    return sized if returns(sized, narrow) else sized.replace(layout=replace(kernel.layout, square=True))
