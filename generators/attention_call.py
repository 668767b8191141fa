"""One call of an attention kernel: what the rows of the paper's problem look like to a library author."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float64, Int

from generators.subject import Subject

Places = Sequence[int]
"""Indices along an axis."""


class Memory(StrEnum):
    """How the tensors of a call lie in memory; the numbers are the same."""

    CONTIGUOUS = "contiguous"
    TRANSPOSED = "transposed"
    """Made with lengths before heads, (B, L, H, E), and seen as (B, H, L, E)."""
    SLICED = "sliced"
    """Every other row of something twice as long, its other rows NaN."""
    BROADCAST = "broadcast"
    """Of one batch entry, expanded with stride 0."""
    HEADS = "expanded heads"
    """Of one head, expanded with stride 0."""
    LAST_STRIDE = "last stride 2"
    """Every other number of rows twice as wide, the others NaN."""
    OFFSET = "offset"
    """One number behind the beginning of its storage."""
    SINGLE = "single number"
    """One number, expanded with stride 0 along all axes: what ``output.sum().backward()`` hands back."""


class State(StrEnum):
    """What else happens around a call; its numbers are the same."""

    ONCE = "once"
    TWICE = "twice"
    """The same call before it."""
    OVERWRITTEN = "overwritten"
    """The same tensors held other numbers in a call before it."""
    INTERLEAVED = "interleaved"
    """A call on other numbers lies between it and the look at its output, and before its backward pass."""
    SECOND_BACKWARD = "second backward"
    """Another upstream gradient went back through the same graph before."""


class Alignment(StrEnum):
    """Which key the last query may look at last, where there are other numbers of queries and keys."""

    TOP_LEFT = "top-left"
    """Query i sees keys up to i, as PyTorch's ``is_causal`` has it."""
    BOTTOM_RIGHT = "bottom-right"
    """Query i sees keys up to i + T − L, as flash attention has it since 2.1: the last query is the last token."""
    BY_LONGER = "bottom-right, with more queries than keys at the top-left"
    """As the bottom right with L ≤ T, as the top left with L > T, as MLX has it: no row is without a key."""

    def diagonal(self, L: int, T: int) -> int:
        """The key at which the first query stands."""
        return {Alignment.TOP_LEFT: 0, Alignment.BOTTOM_RIGHT: T - L, Alignment.BY_LONGER: max(T - L, 0)}[self]


@dataclass(frozen=True, eq=False)
class AttentionCall(Subject):
    """Tensors and options of one call, and the upstream gradient of its backward pass.

    Attributes:
        query: shape (B, H, L, E).
        key, value: shapes (B, G, T, E) and (B, G, T, M), H a multiple of G: head h belongs to group h // (H/G).
        upstream: dLoss/dOutput, shape (B, H, L, M).
        scale: factor of the logits; None leaves it to the kernel.
        visible: a boolean mask, broadcastable to (B, H, L, T); True is seen.
        bias: added to the logits, broadcastable to (B, H, L, T); −∞ hides.
        causal: whether later keys are hidden.
        window: at most so many keys to the left and to the right of the diagonal are seen; −1 is no limit.
        log_sum_exp: whether the kernel is asked for log Σ e^logit, too.
        softcap: c > 0 makes logits c·tanh(logit/c); 0 leaves them.
        memory: how query, key and value lie.
        upstream_memory, mask_memory: how the upstream gradient and the mask lie.
        state: what else happens around it.
        wants: whose gradients are asked for, of q, k and v; empty is inference without gradients.
        poison: whether hidden keys are to be exchanged for others.
        dropout: the share of weights that are dropped at random.
        exact: whether nothing that is computed of it is rounded in any format, but for what is returned.
        seed: drives what a conclusion draws further.
        name: where it comes from.
    """

    query: Float64[np.ndarray, "B H L E"]
    key: Float64[np.ndarray, "B G T E"]
    value: Float64[np.ndarray, "B G T M"]
    upstream: Float64[np.ndarray, "B H L M"]
    scale: float | None = 1.0
    visible: Bool[np.ndarray, "..."] | None = None
    bias: Float64[np.ndarray, "..."] | None = None
    causal: bool = False
    window: tuple[int, int] | None = None
    softcap: float = 0.0
    log_sum_exp: bool = False
    memory: Memory = Memory.CONTIGUOUS
    upstream_memory: Memory = Memory.CONTIGUOUS
    mask_memory: Memory = Memory.CONTIGUOUS
    state: State = State.ONCE
    wants: str = "qkv"
    poison: bool = False
    dropout: float = 0.0
    exact: bool = False
    seed: int = 0
    name: str = "generated"
    noun: ClassVar[str] = "a call of an attention kernel"

    @property
    def options(self) -> dict[str, object]:
        """What is not a tensor and not its default, for a reader."""
        usual = {one.name: one.default for one in fields(self)}
        return {name: getattr(self, name) for name in PLAIN if getattr(self, name) != usual[name]}

    @property
    def sizes(self) -> dict[str, int]:
        """B, H, G, L, T, E, M."""
        (B, H, L, E), (_, G, T, _), M = self.query.shape, self.key.shape, self.value.shape[-1]
        return {"B": B, "H": H, "G": G, "L": L, "T": T, "E": E, "M": M}

    @property
    def is_large(self) -> bool:
        """Whether a check looks at some of its rows only, those with an upstream gradient."""
        sizes = self.sizes
        return sizes["B"] * sizes["H"] * sizes["L"] * sizes["T"] > ENTRIES

    def hides(self) -> bool:
        """Whether an option hides keys."""
        return self.visible is not None or self.bias is not None or self.causal or self.window is not None

    def visibility(self, alignment: Alignment) -> Bool[np.ndarray, "B H L T"]:
        """Which keys each query sees, by masks, causality and window together."""
        B, H, L, T = (self.sizes[axis] for axis in "BHLT")
        seen = np.ones((B, H, L, T), dtype=bool)
        if self.visible is not None:
            seen &= self.visible
        if self.bias is not None:
            seen &= ~np.isneginf(self.bias)
        return seen & self._near(np.arange(L), alignment)

    def _near(self, rows: Int[np.ndarray, "L"], alignment: Alignment) -> Bool[np.ndarray, "L T"]:
        """Which keys these rows see by causality and window."""
        L, T = self.sizes["L"], self.sizes["T"]
        # j − i, with i counted so that the diagonal is at 0.
        ahead = np.arange(T) - (rows[:, None] + alignment.diagonal(L, T))
        seen = ahead <= 0 if self.causal else np.ones(ahead.shape, dtype=bool)
        if self.window is not None:
            left, right = self.window
            seen &= (ahead >= -left) | (left < 0)
            seen &= (ahead <= right) | (right < 0)
        return np.asarray(seen)

    def part(self, alignment: Alignment, batch: Places, groups: Places, rows: Places) -> AttentionCall:
        """Some batch entries, groups of heads and rows as a call of their own; a mask hides what causality hid.

        Its numbers are those of the whole call, where the rows that are left out have no upstream gradient.
        """
        size = self.sizes["H"] // self.sizes["G"]
        heads = (np.asarray(groups)[:, None] * size + np.arange(size)).ravel()

        def cut(mask: Any) -> Any:
            mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
            for axis, places in enumerate((batch, heads, rows)):
                mask = mask if mask.shape[axis] == 1 else np.take(mask, np.asarray(places), axis)
            return mask

        ix: Any = np.ix_(np.asarray(batch), heads, np.asarray(rows))
        of_keys: Any = np.ix_(np.asarray(batch), np.asarray(groups))
        seen = self._near(np.asarray(rows), alignment)[None, None]
        return self.replace(
            query=self.query[ix],
            key=self.key[of_keys],
            value=self.value[of_keys],
            upstream=self.upstream[ix],
            visible=seen if self.visible is None else seen & cut(self.visible),
            bias=None if self.bias is None else cut(self.bias),
            causal=False,
            window=None,
        )


ENTRIES = 1 << 16
"""B · H · L · T of which all rows are looked at."""
PLAIN = (
    *("scale", "causal", "window", "softcap", "log_sum_exp", "memory", "upstream_memory", "mask_memory", "state"),
    *("wants", "poison", "dropout", "exact"),
)
"""Fields that are no arrays."""
