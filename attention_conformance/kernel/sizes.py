"""The limits of the shapes and sizes that a kernel takes, and functions that resize calls to these limits.

Axes: B batch entries, H heads, L queries, T keys, E columns of queries and keys (the width), M columns of values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall, Memory
from attention_conformance.calls.common_calls import MULTIPLES

WIDTHS = tuple(sorted((1, 2, 3, 4, 5, 6, 33, 65, *MULTIPLES)))
"""The numbers of columns at which a kernel is tried if it refuses some numbers of columns."""
MOST = 512
"""The most queries and keys of a call that is changed to L = T, for kernels that require as many queries as keys."""
LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Numbers of which a kernel may require L and T to be multiples."""


@dataclass(frozen=True)
class Layout:
    """The number of axes and the width of values that a kernel requires.

    Attributes:
        rank: the number of axes of tensors: 4 with a batch axis and an axis of heads, 3 if these two are joined.
        square: whether values must have as many columns d as keys; other values are padded with zeros or cut into
            pieces.
    """

    rank: int = 4
    square: bool = False

    def __str__(self) -> str:
        """Return a text on the required shape of tensors, and how values are adapted to the shape."""
        shape = "(B, n, T, d)" if self.rank == 4 else "(B·n, T, d)"
        return f"{shape}, values {'padded to d columns' if self.square else 'of any width'}"


LAYOUTS = (Layout(4, False), Layout(4, True), Layout(3, False), Layout(3, True))
"""The layouts in the order in which a kernel is tried with them."""


@dataclass(frozen=True)
class Taken:
    """The sizes and tensors that a kernel takes.

    Attributes:
        widths: the numbers of columns among WIDTHS that the kernel takes; empty if it takes all.
        queries, keys: the kernel takes L and T only if they are multiples of these two numbers, respectively.
        equal: whether the kernel takes only L = T.
        single: whether the kernel takes only L = 1.
        contiguous: whether the kernel takes only contiguous tensors.
    """

    widths: tuple[int, ...] = ()
    queries: int = 1
    keys: int = 1
    equal: bool = False
    single: bool = False
    contiguous: bool = False

    def __str__(self) -> str:
        """Return the limits in words, separated by commas; empty if there are none."""
        return ", ".join(self._limits())

    def _limits(self) -> Iterator[str]:
        if self.widths:
            yield f"widths {describe_widths(self.widths)}"
        for name, multiple in (("L", self.queries), ("T", self.keys)):
            if multiple > 1:
                yield f"{name} in multiples of {multiple}"
        if self.equal:
            yield "L = T"
        if self.single:
            yield "L = 1"
        if self.contiguous:
            yield "contiguous tensors"

    may_be_huge: ClassVar[bool] = True
    """True if calls may have more keys than a 16-bit index can count."""

    def width(self, size: int, *, quartic: bool = False) -> int:
        """Return the smallest width of at least ``size`` that the kernel takes, or its largest if all are smaller.

        Args:
            size: the width of the call's queries and keys.
            quartic: whether to prefer a power of four, whose square root is a power of two.
        """
        if not self.widths:
            return 4 ** math.ceil(math.log(size, 4)) if quartic else size
        among = [width for width in self.widths if is_power_of_four(width)] if quartic else []
        among = among or list(self.widths)
        return next((width for width in among if width >= size), among[-1])

    def lengths(self, L: int, T: int, *, less: bool = False) -> tuple[int, int]:
        """Return the numbers of queries and keys, rounded up to numbers that the kernel takes.

        Args:
            L: the number of queries of the call.
            T: the number of keys of the call.
            less: whether to round the number of keys down instead of up, if the kernel takes so few keys.
        """
        down = less and self.keys <= T and not self.equal
        T = T // self.keys * self.keys if down else -(-T // self.keys) * self.keys
        L = 1 if self.single else -(-L // self.queries) * self.queries
        if self.equal:
            both = math.lcm(self.queries, self.keys)
            L = T = -(-min(max(L, T), MOST) // both) * both
        return L, T

    def fit(self, call: AttentionCall, *, quartic: bool = False) -> AttentionCall:
        """Return the call, resized to sizes that the kernel takes.

        Queries and keys are repeated or cut; the upstream gradient is 0 in added rows. Columns of keys and values are
        repeated or cut; added columns of queries are 0, so that the logits do not change.
        """
        sizes = call.sizes
        square = sizes["L"] == sizes["T"]
        L, T = self.lengths(sizes["L"], sizes["T"], less=call.exact and not square)
        if square and not self.equal and not self.single:
            L = T = -(-sizes["T"] // math.lcm(self.queries, self.keys)) * math.lcm(self.queries, self.keys)
        E, M = self.width(sizes["E"], quartic=quartic), self.width(sizes["M"])
        if tuple(sizes[axis] for axis in "LTEM") == (L, T, E, M):
            return call
        single = call.upstream_memory is Memory.SINGLE  # a single expanded number cannot be 0 in added rows only
        return call.replace(
            upstream_memory=Memory.CONTIGUOUS if single else call.upstream_memory,
            query=_without(_resize(call.query, {2: L, 3: E}), 3, sizes["E"]),
            key=_resize(call.key, {2: T, 3: E}),
            value=_resize(call.value, {2: T, 3: M}),
            upstream=_without(_without(_resize(call.upstream, {2: L, 3: M}), 2, sizes["L"]), 3, sizes["M"]),
            visible=_resize_mask(call.visible, L, T, True),
            bias=_resize_mask(call.bias, L, T, 0.0),
            lse_upstream=_resize_lse_upstream(call.lse_upstream, L),
            lengths=None if call.lengths is None else np.minimum(call.lengths, (L, T)),
            # Kernels no longer compute the call without rounding if keys are repeated, so that weights are not powers
            # of two, or if columns are cut.
            exact=call.exact and sizes["T"] >= T and sizes["E"] <= E,
        )


def is_power_of_four(size: int) -> bool:
    """Return whether ``size`` is a power of four, so that its square root is a power of two."""
    return size & (size - 1) == 0 and size.bit_length() % 2 == 1


def describe_widths(widths: tuple[int, ...]) -> str:
    """Return a text on the widths that a kernel takes: as multiples of a number, as a range, or as a list."""
    for multiple in reversed(LENGTHS):
        if multiple > 1 and widths == tuple(width for width in WIDTHS if width % multiple == 0 and width <= widths[-1]):
            limit = "" if widths[-1] == WIDTHS[-1] else f" up to {widths[-1]}"
            return f"in multiples of {multiple}{limit}"
    least, most = widths[0], widths[-1]
    if widths == tuple(width for width in WIDTHS if least <= width <= most):
        limits = (f"from {least}" if least > 1 else "", f"up to {most}" if most < WIDTHS[-1] else "")
        return " ".join(filter(None, limits))
    return "of " + ", ".join(map(str, widths))


def _resize(x: Any, sizes: dict[int, int]) -> Any:
    for axis, size in sizes.items():
        if size != x.shape[axis]:
            x = np.take(x, np.arange(size) % x.shape[axis], axis=axis)
    return x


def _without(x: Any, axis: int, size: int) -> Any:
    """Return ``x`` with zeros in place of all entries whose index along ``axis`` is at least ``size``."""
    if x.shape[axis] <= size:
        return x
    x = x.copy()
    x[(slice(None),) * axis + (slice(size, None),)] = 0.0
    return x


def _resize_lse_upstream(x: Any, L: int) -> Any:
    """Return the upstream gradient of the log-sum-exp resized to L rows, with zeros in added rows."""
    return None if x is None else _without(_resize(x, {2: L}), 2, x.shape[2])


def _resize_mask(mask: Any, L: int, T: int, visible_value: Any) -> Any:
    """Return the mask resized to L rows and T columns; each row that saw a key still sees a key."""
    if mask is None:
        return None
    last = mask.ndim - 1
    axes: dict[int, int] = {k: n for k, n in ((last - 1, L), (last, T)) if k >= 0 and mask.shape[k] > 1}
    resized = _resize(mask, axes)
    if resized.shape[-1] < mask.shape[-1]:
        rows = _resize(mask, {k: n for k, n in axes.items() if k != last})
        sees = [np.any(part if part.dtype == bool else ~np.isneginf(part), axis=-1) for part in (rows, resized)]
        resized = resized.copy()
        resized[sees[0] & ~sees[1], 0] = visible_value
    return resized
