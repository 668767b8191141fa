"""One call of an attention kernel: what the rows of the paper's problem look like to a library author."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from types import MappingProxyType
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
    FUSED = "fused"
    """Between others in rows of one storage, lengths before heads: one of the three that a single projection makes."""
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
    AFTER_ANOTHER = "after another"
    """A call of the same sizes before it, on other numbers, without gradients, and with a mask if it has none."""
    SECOND_BACKWARD = "second backward"
    """Another upstream gradient went back through the same graph before."""
    COMPILED = "compiled"
    """Through ``torch.compile``, whose graphs torch itself runs, after calls of other sizes."""
    MACHINE_CODE = "compiled to machine code"
    """Likewise, with graphs that a C++ compiler has made code of."""
    MANY = "thousands of times"
    """The same call over and over, with other tensors in memory in between: each time it is looked at."""


REPEATS = 3000
"""Of a call that is made over and over."""
COMPILED = (State.COMPILED, State.MACHINE_CODE)
LONG_STATES = (*COMPILED, State.MANY)
"""States that take long."""


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
        beyond: so many columns more the kernel is given of its mask, behind those of the keys; they say nothing.
        causal: whether later keys are hidden.
        window: at most so many keys to the left and to the right of the diagonal are seen; −1 is no limit.
        log_sum_exp: whether the kernel is asked for log Σ e^logit, too.
        softcap: c > 0 makes logits c·tanh(logit/c); 0 leaves them.
        memory: how query, key and value lie.
        placed: which of q, k and v lie so; the others are contiguous.
        upstream_memory, mask_memory: how the upstream gradient and the mask lie.
        state: what else happens around it.
        wants: whose gradients are asked for, of q, k and v; empty is inference without gradients.
        poison: whether hidden keys are to be exchanged for others.
        dropout: the share of weights that are dropped at random.
        sinks: (H,), the logit of one more key for each row of a head, whose value is 0.
        slopes: (B, H), of ALiBi: slope · |j − i| is subtracted from the logit of key j, i counted from the diagonal.
        lse_upstream: dLoss/d(log-sum-exp), (B, H, L), where that is differentiated, too.
        lengths: (B, 2), the queries and the keys that a batch entry has of its own; what lies behind is padding.
        parts: into so many the keys are cut, if the kernel merges parts; 0 leaves it to the interface.
        splits: into so many the kernel is asked to cut its keys itself; 0 leaves it to the kernel.
        page: keys to a page of a cache that lies in pages, in any order; 0 for a cache in one piece.
        score_mod: (H, 3), (a, b, c) of a head: a scaled product of query i and key j becomes a · it + b (j − i) + c.
        mask_mod: (B, H, 3), (a, b, c) of a head and entry: query i sees key j if a j + b i ≤ c.
        descales: (3, B, G), by which query, key and value of a group are multiplied, which are numbers of 8 bits.
        shared: whether values are the first columns of the keys, so that both have one gradient.
        alone: whether an entry of the batch is to be attended to alone, too.
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
    beyond: int = 0
    causal: bool = False
    window: tuple[int, int] | None = None
    softcap: float = 0.0
    log_sum_exp: bool = False
    memory: Memory = Memory.CONTIGUOUS
    placed: str = "qkv"
    upstream_memory: Memory = Memory.CONTIGUOUS
    mask_memory: Memory = Memory.CONTIGUOUS
    state: State = State.ONCE
    wants: str = "qkv"
    poison: bool = False
    dropout: float = 0.0
    sinks: Float64[np.ndarray, "H"] | None = None
    slopes: Float64[np.ndarray, "B H"] | None = None
    lse_upstream: Float64[np.ndarray, "B H L"] | None = None
    lengths: Int[np.ndarray, "B 2"] | None = None
    parts: int = 0
    splits: int = 0
    page: int = 0
    score_mod: Float64[np.ndarray, "H 3"] | None = None
    mask_mod: Int[np.ndarray, "B H 3"] | None = None
    descales: Float64[np.ndarray, "3 B G"] | None = None
    shared: bool = False
    alone: bool = False
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
        masks = (self.visible, self.bias, self.window, self.lengths, self.mask_mod)
        return self.causal or any(one is not None for one in masks)

    def visibility(self, alignment: Alignment) -> Bool[np.ndarray, "B H L T"]:
        """Which keys each query sees, by masks, causality and window together."""
        B, H, L, T = (self.sizes[axis] for axis in "BHLT")
        seen = np.ones((B, H, L, T), dtype=bool)
        if self.visible is not None:
            seen &= self.visible
        if self.bias is not None:
            seen &= ~np.isneginf(self.bias)
        if self.mask_mod is not None:
            seen &= self._let_through(np.arange(L))
        return seen & self._near(np.arange(L), alignment)

    def _let_through(self, rows: Int[np.ndarray, "L"]) -> Bool[np.ndarray, "B H L T"]:
        """Which keys these rows see by the mask mod."""
        assert self.mask_mod is not None
        a, b, c = np.moveaxis(self.mask_mod, -1, 0)[..., None, None]
        return np.asarray(a * np.arange(self.sizes["T"]) + b * rows[:, None] <= c)

    def ahead(self, rows: Int[np.ndarray, "L"], alignment: Alignment) -> Int[np.ndarray, "..."]:
        """j − i of key j and these rows, i counted so that the diagonal is at 0: (L, T), or (B, 1, L, T)."""
        L, T = self.sizes["L"], self.sizes["T"]
        diagonal: Any = alignment.diagonal(L, T)
        if self.lengths is not None:
            own = [alignment.diagonal(int(queries), int(keys)) for queries, keys in self.lengths]
            diagonal = np.array(own)[:, None, None, None]
        return np.asarray(np.arange(T) - (rows[:, None] + diagonal))

    def _near(self, rows: Int[np.ndarray, "L"], alignment: Alignment) -> Bool[np.ndarray, "..."]:
        """Which keys these rows see by causality, window and lengths: (L, T), or (B, 1, L, T) with lengths."""
        ahead = self.ahead(rows, alignment)
        seen = ahead <= 0 if self.causal else np.ones(ahead.shape, dtype=bool)
        if self.window is not None:
            left, right = self.window
            seen &= (ahead >= -left) | (left < 0)
            seen &= (ahead <= right) | (right < 0)
        if self.lengths is not None:
            queries, keys = (n[:, None, None, None] for n in self.lengths.T)
            seen = seen & (rows[:, None] < queries) & (np.arange(self.sizes["T"]) < keys)
        return np.asarray(seen)

    def part_of_key(self) -> Int[np.ndarray, "T"]:
        """To which part each key belongs: any partition, some parts may be empty; two halves if it is left open."""
        T = self.sizes["T"]
        if not self.parts:
            return (2 * np.arange(T) >= T + T % 2).astype(np.int64)
        return np.random.default_rng((self.seed, self.parts)).integers(0, self.parts, T)

    @property
    def absent(self) -> Bool[np.ndarray, "B 1 L"]:
        """Rows that are padding."""
        B, L = self.sizes["B"], self.sizes["L"]
        if self.lengths is None:
            return np.zeros((B, 1, L), dtype=bool)
        return np.asarray(np.arange(L) >= self.lengths[:, :1])[:, None]

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
        further = {
            "sinks": None if self.sinks is None else self.sinks[heads],
            "slopes": None if self.slopes is None else self.slopes[np.ix_(np.asarray(batch), heads)],
            "lse_upstream": None if self.lse_upstream is None else self.lse_upstream[ix],
            "score_mod": None if self.score_mod is None else self.score_mod[heads],
            "descales": None if self.descales is None else self.descales[:, batch][:, :, groups],
        }
        if self.mask_mod is not None:
            seen = seen & self._let_through(np.asarray(rows))[np.ix_(np.asarray(batch), heads)]
        return self.replace(
            query=self.query[ix],
            key=self.key[of_keys],
            value=self.value[of_keys],
            upstream=self.upstream[ix],
            visible=seen if self.visible is None else seen & cut(self.visible),
            bias=None if self.bias is None else cut(self.bias),
            causal=False,
            window=None,
            mask_mod=None,
            **further,
        )


ENTRIES = 1 << 16
"""B · H · L · T of which all rows are looked at."""
PLAIN = (
    *("scale", "causal", "window", "softcap", "log_sum_exp", "memory", "placed", "upstream_memory", "mask_memory"),
    *("state", "beyond", "wants", "poison", "dropout", "parts", "splits", "page", "shared", "alone", "exact"),
)
"""Fields that are no arrays."""
AXES: Mapping[str, str] = MappingProxyType(
    {"sinks": "H", "slopes": "BH", "lse_upstream": "BHL", "lengths": "B2"}
    | {"score_mod": "H3", "mask_mod": "BH3", "descales": "3BG"}
)
"""Of options that are arrays and no masks."""
