"""Detection, by small calls, of the sizes that a kernel takes.

A kernel may take only some widths (numbers E of columns), only numbers L of queries and T of keys that are multiples of
a number, or only L = T.
"""

from __future__ import annotations

from dataclasses import replace

from attention_conformance.calls.attention_call import Memory
from attention_conformance.kernel.contract import returns, small_call
from attention_conformance.kernel.kernel import Kernel
from attention_conformance.kernel.sizes import LENGTHS, WIDTHS, Taken

WIDE = ((33, 33), (256, 257))
"""Pairs of a width and a number of keys at which a kernel that accepts the first, small call is tried next."""
LADDER = tuple((width, length) for length in (3, 16, 64, 128) for width in (8, 16, 32, 64, 128))
"""Pairs of a width and a number of keys to try if a kernel refuses the first, small call."""


def with_taken_sizes(kernel: Kernel) -> Kernel | None:
    """Return the kernel with the limits of the sizes that it takes; None if it refuses all sizes that are tried."""
    for contiguous in (False, True):
        for width, length in LADDER:
            for queries in (1, length):
                sizes = replace(kernel.taken, contiguous=contiguous)
                if _takes(kernel, sizes, queries, length, width):
                    return _with_limits(kernel, sizes, queries, length, width)
    return None


def with_wide_sizes(kernel: Kernel) -> Kernel:
    """Return ``kernel``, which takes a small call, with the limits of the sizes and memory layouts that it takes."""
    sizes = kernel.taken
    small = small_call(L=2)
    laid = (small.replace(memory=memory) for memory in (Memory.TRANSPOSED, Memory.SLICED))
    if not all(returns(kernel, call) for call in laid) and returns(kernel, small):
        sizes = replace(sizes, contiguous=True)
    if all(_takes(kernel, sizes, 3, length, width) for width, length in WIDE):
        return kernel.replace(taken=sizes)
    width, length = next(
        ((E, T) for E, T in ((8, 5), (4, 5), (8, 8), (16, 16)) if _takes(kernel, sizes, 1, T, E)), (0, 0)
    )
    return _with_limits(kernel, sizes, 1, length, width) if width else kernel.replace(taken=sizes)


def _takes(kernel: Kernel, sizes: Taken, L: int, T: int, E: int) -> bool:
    return returns(kernel.replace(taken=sizes), small_call(L=L, T=T, E=E))


def _with_limits(kernel: Kernel, sizes: Taken, L: int, T: int, E: int) -> Kernel:
    """Return the kernel with its limits, found by varying separately the sizes L, T and E of a call that it takes."""
    equal = L == T and not any(_takes(kernel, sizes, *pair, E) for pair in ((L, 2 * T), (2 * L, T)))

    def multiple(of_keys: bool) -> int:
        """Return the number whose multiples the kernel takes as numbers of keys, or of queries.

        If the kernel requires L = T, both numbers are varied together.
        """
        for n in LENGTHS:
            pairs = [(k * n, k * n) if equal else (L, k * n) if of_keys else (k * n, T) for k in (1, 3)]
            if all(_takes(kernel, sizes, *pair, E) for pair in pairs):
                return n
        return T if of_keys else L

    keys, queries = multiple(True), multiple(False)
    widths = tuple(width for width in WIDTHS if _takes(kernel, sizes, L, T, width))
    restricted = replace(
        sizes, widths=() if widths == WIDTHS else widths, keys=keys, queries=queries, equal=equal or sizes.equal
    )
    sized = kernel.replace(taken=restricted)
    # Try whether values may have another width than keys.
    call = small_call(L=L, T=T, E=widths[-1])
    narrow = call.replace(value=call.value[..., : widths[0]], upstream=call.upstream[..., : widths[0]])
    return sized if returns(sized, narrow) else sized.replace(layout=replace(kernel.layout, square=True))
