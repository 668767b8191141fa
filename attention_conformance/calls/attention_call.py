"""A call of an attention kernel: batched queries, keys and values, the usual options, and an upstream gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float64, Int

from generators.subject import Subject, shown_array

Places = Sequence[int]
"""Indices of batch entries, of groups of heads or of rows."""


class Memory(StrEnum):
    """Memory layout of a call's tensors; no correct result depends on it (sizes: see :class:`AttentionCall`)."""

    CONTIGUOUS = "contiguous"
    TRANSPOSED = "transposed"
    """Allocated with lengths before heads, (B, L, H, E), and viewed as (B, H, L, E)."""
    SLICED = "sliced"
    """Every second row of a tensor that is twice as long and whose other rows are NaN."""
    BROADCAST = "broadcast"
    """One batch entry, expanded along the batch with stride 0."""
    HEADS = "expanded heads"
    """One head, expanded along the heads with stride 0."""
    LAST_STRIDE = "last stride 2"
    """Every second number of rows that are twice as wide; the other numbers are NaN."""
    OFFSET = "offset"
    """Begins at the second number of its storage."""
    FUSED = "fused"
    """The middle third of the heads of a (B, L, 3 H, E) tensor, as if one projection had computed q, k and v."""
    SINGLE = "single number"
    """One number, expanded with stride 0 along all axes, as is the upstream gradient of ``output.sum().backward()``."""


class State(StrEnum):
    """Events before, during or after a call; a correct result does not depend on them."""

    ONCE = "once"
    TWICE = "twice"
    """An equal call comes before the call."""
    OVERWRITTEN = "overwritten"
    """An earlier call used the same tensors with other numbers in them."""
    INTERLEAVED = "interleaved"
    """A call on other numbers comes between the call and the reading of its output, and before its backward pass."""
    AFTER_ANOTHER = "after another"
    """An earlier call has the same sizes, other numbers, no gradients, and a mask if the call itself has none."""
    SECOND_BACKWARD = "second backward"
    """A backward pass with another upstream gradient through the same graph comes before the call's backward pass."""
    SELF = "query is key"
    """Query and key are one tensor; if they have gradients, they are two leaves in the same memory."""
    INFERENCE = "in inference mode"
    """Within ``torch.inference_mode``."""
    AUTOCAST = "under autocast"
    """Within ``torch.autocast`` to bfloat16, on tensors that autocast does not convert: float64 or bfloat16."""
    CREATE_GRAPH = "create graph"
    """The backward pass creates a graph, so that gradients could be differentiated again."""
    REPLAYED = "after two hundred others"
    """Two hundred calls on the same tensors, filled with other numbers, come before; half have a backward pass."""
    COMPILED = "compiled"
    """Compiled by ``torch.compile``, after calls of other sizes; PyTorch runs the graphs without machine code."""
    MACHINE_CODE = "compiled to machine code"
    """Compiled by ``torch.compile``, after calls of other sizes; a C++ compiler makes machine code of the graphs."""
    MANY = "thousands of times"
    """Many equal calls follow each other, with other tensors in memory in between; each answer is checked."""


REPEATS = 3000
"""The number of repetitions of a call in the state MANY."""
BEFORE = 200
"""The number of calls that come before a call in the state REPLAYED."""
CONTEXTS = (State.SELF, State.INFERENCE, State.AUTOCAST, State.CREATE_GRAPH, State.REPLAYED)
"""States that are tried only in a few calls without options, since they do not change how kernels treat options."""
COMPILED = (State.COMPILED, State.MACHINE_CODE)
LONG_STATES = (*COMPILED, State.MANY)
"""States in which a call takes long, because it is compiled or repeated thousands of times."""


class Alignment(StrEnum):
    """Position of the causal diagonal if the numbers of queries, L, and of keys, T, differ."""

    TOP_LEFT = "top-left"
    """Query i sees keys up to i, as with PyTorch's ``is_causal``."""
    BOTTOM_RIGHT = "bottom-right"
    """Query i sees keys up to i + T − L, as in flash attention since 2.1: the last query sees all keys."""

    def diagonal(self, L: int, T: int) -> int:
        """Return the index of the key at which the causal diagonal meets the row of the first query."""
        return 0 if self is Alignment.TOP_LEFT else T - L


@dataclass(frozen=True, eq=False)
class AttentionCall(Subject):
    """Tensors and options of one call, and the upstream gradient of its backward pass.

    The sizes are B batch entries, H query heads, G groups of heads that share keys and values, L queries (a row is one
    query of one head), T keys, and the widths E of queries and keys and M of values.

    Attributes:
        query: shape (B, H, L, E).
        key, value: shapes (B, G, T, E) and (B, G, T, M), where H is a multiple of G; head h belongs to group h // (H //
            G).
        upstream: dLoss/dOutput, shape (B, H, L, M).
        scale: factor of the products q·k; None for the kernel's default.
        visible: a boolean mask, broadcastable to (B, H, L, T); a key is seen where it is True.
        bias: added to the logits, broadcastable to (B, H, L, T); −∞ hides a key.
        mask_format: the number format of the bias; empty for the query's format.
        beyond: number of additional columns, after those of the keys, in the mask that the kernel gets; they have no
            effect.
        causal: whether later keys are hidden.
        window: the numbers of keys to the left and to the right of the diagonal that are seen; −1 is no limit.
        log_sum_exp: whether the kernel should also return log Σ e^logit.
        softcap: c > 0 replaces each logit by c·tanh(logit/c); 0 does not change logits.
        memory: the memory layout of query, key and value.
        placed: which of q, k and v ``memory`` applies to; the others are contiguous.
        upstream_memory, mask_memory: the memory layouts of the upstream gradient and of the mask.
        state: what happens before, during or after the call.
        wants: which of q, k and v need a gradient, as letters; if empty, the call is inference without gradients.
        poison: whether to repeat the call with other numbers in hidden keys, which must change no result.
        dropout: the share of weights that are dropped at random.
        sinks: (H,), for each head the logit of an additional key with value 0 in every row.
        slopes: (B, H), slopes of ALiBi: slope · |j − i| is subtracted from the logit of key j, where i is the key on
            the row's diagonal.
        lse_upstream: dLoss/d(log-sum-exp), (B, H, L), if the log-sum-exp is differentiated, too.
        lengths: (B, 2), the numbers of queries and of keys of each batch entry; rows and keys after them are padding.
        splits: number of splits into which the kernel itself should cut the keys; 0 lets the kernel choose.
        page: number of keys in a page of a cache whose pages lie in any order; 0 for a cache in one piece.
        descales: (3, B, G), factors by which the 8-bit numbers of query, key and value of each group are multiplied.
        alone: whether to call the kernel also on a single batch entry.
        exact: whether the numbers are such that a correct kernel, in any format, rounds nothing but the returned
            results.
        dtype: the format of tensors that were captured from a model; empty for generated calls.
        seed: seed of the random numbers that claims about the call draw.
        name: the plan of a generated call, or the file of a user's call.
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
    mask_format: str = ""
    state: State = State.ONCE
    wants: str = "qkv"
    poison: bool = False
    dropout: float = 0.0
    sinks: Float64[np.ndarray, "H"] | None = None
    slopes: Float64[np.ndarray, "B H"] | None = None
    lse_upstream: Float64[np.ndarray, "B H L"] | None = None
    lengths: Int[np.ndarray, "B 2"] | None = None
    splits: int = 0
    page: int = 0
    descales: Float64[np.ndarray, "3 B G"] | None = None
    alone: bool = False
    exact: bool = False
    dtype: str = ""
    seed: int = 0
    name: str = "generated"
    noun: ClassVar[str] = "a call of an attention kernel"

    @property
    def options(self) -> dict[str, object]:
        """The fields that are not tensors and differ from their defaults, as readable text."""
        usual = {field.name: field.default for field in fields(self)}
        return {name: getattr(self, name) for name in PLAIN if getattr(self, name) != usual[name]}

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes B, H, G, L, T, E, M by name."""
        (B, H, L, E), (_, G, T, _), M = self.query.shape, self.key.shape, self.value.shape[-1]
        return {"B": B, "H": H, "G": G, "L": L, "T": T, "E": E, "M": M}

    @property
    def number_format(self) -> str:
        """The number format of captured tensors; empty for float64 and generated calls: the kernel's finest format."""
        return "" if self.dtype == "float64" else self.dtype

    @property
    def too_large(self) -> str:
        """The reason why a captured call is too large to be judged; empty if it is not too large."""
        B, H, L, T = (self.sizes[axis] for axis in "BHLT")
        if not self.dtype or B * H * L * T <= MOST_WEIGHTS:
            return ""
        return (
            f"{self.name} has {B} · {H} · {L} · {T} weights (B · H · L · T); the limit is {MOST_WEIGHTS}:"
            " save fewer batch entries, heads or queries."
        )

    def lines(self) -> list[str]:
        """Return sizes, options and tensors as readable text, each on a line."""
        sizes = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
        tensors = {
            name: getattr(self, name) for name in ("query", "key", "value", "upstream", "visible", "bias", *AXES)
        }
        tensor_lines = [f"{name} {shown_array(x)}" for name, x in tensors.items() if x is not None]
        return [sizes, *(f"{name} {value}" for name, value in self.options.items()), *tensor_lines]

    @property
    def is_large(self) -> bool:
        """Return whether only some rows of the call are checked: the rows with an upstream gradient."""
        sizes = self.sizes
        return sizes["B"] * sizes["H"] * sizes["L"] * sizes["T"] > ENTRIES

    def hides(self) -> bool:
        """Return whether an option hides keys."""
        masks = (self.visible, self.bias, self.window, self.lengths)
        return self.causal or any(mask is not None for mask in masks)

    def visibility(self, alignment: Alignment) -> Bool[np.ndarray, "B H L T"]:
        """Return the mask of the keys that each query sees: those that masks, causality, window and lengths allow."""
        B, H, L, T = (self.sizes[axis] for axis in "BHLT")
        visible = np.ones((B, H, L, T), dtype=bool)
        if self.visible is not None:
            visible &= self.visible
        if self.bias is not None:
            visible &= ~np.isneginf(self.bias)
        return visible & self._near(np.arange(L), alignment)

    def ahead(self, rows: Int[np.ndarray, "L"], alignment: Alignment) -> Int[np.ndarray, "..."]:
        """Return each key's index minus the row's diagonal index: (rows, T), or (B, 1, rows, T) with ``lengths``."""
        L, T = self.sizes["L"], self.sizes["T"]
        diagonal: Any = alignment.diagonal(L, T)
        if self.lengths is not None:
            diagonals = [alignment.diagonal(int(queries), int(keys)) for queries, keys in self.lengths]
            diagonal = np.array(diagonals)[:, None, None, None]
        return np.asarray(np.arange(T) - (rows[:, None] + diagonal))

    def _near(self, rows: Int[np.ndarray, "L"], alignment: Alignment) -> Bool[np.ndarray, "..."]:
        """Return the mask of the keys that causality, window and lengths let the rows see, shaped as by ``ahead``."""
        ahead = self.ahead(rows, alignment)
        visible = ahead <= 0 if self.causal else np.ones(ahead.shape, dtype=bool)
        if self.window is not None:
            left, right = self.window
            visible &= (ahead >= -left) | (left < 0)
            visible &= (ahead <= right) | (right < 0)
        if self.lengths is not None:
            queries, keys = (n[:, None, None, None] for n in self.lengths.T)
            visible = visible & (rows[:, None] < queries) & (np.arange(self.sizes["T"]) < keys)
        return np.asarray(visible)

    @property
    def absent(self) -> Bool[np.ndarray, "B 1 L"]:
        """A mask of the rows that are padding."""
        B, L = self.sizes["B"], self.sizes["L"]
        if self.lengths is None:
            return np.zeros((B, 1, L), dtype=bool)
        return np.asarray(np.arange(L) >= self.lengths[:, :1])[:, None]

    def part(self, alignment: Alignment, batch: Places, groups: Places, rows: Places) -> AttentionCall:
        """Return a call with only some batch entries, groups and rows; a mask replaces causality and window.

        If the omitted rows have no upstream gradient, the results of the returned call are part of the whole call's
        results.
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
        visible = self._near(np.asarray(rows), alignment)[None, None]
        further = {
            "sinks": None if self.sinks is None else self.sinks[heads],
            "slopes": None if self.slopes is None else self.slopes[np.ix_(np.asarray(batch), heads)],
            "lse_upstream": None if self.lse_upstream is None else self.lse_upstream[ix],
            "descales": None if self.descales is None else self.descales[:, batch][:, :, groups],
        }
        return self.replace(
            query=self.query[ix],
            key=self.key[of_keys],
            value=self.value[of_keys],
            upstream=self.upstream[ix],
            visible=visible if self.visible is None else visible & cut(self.visible),
            bias=None if self.bias is None else cut(self.bias),
            causal=False,
            window=None,
            **further,
        )


ENTRIES = 1 << 16
"""The largest number of weights, B · H · L · T, of a call of which all rows are checked."""
MOST_WEIGHTS = 1 << 22
"""The largest number of weights, B · H · L · T, of a captured call; so many weights with bounds take a gigabyte."""
PLAIN = (
    *("scale", "causal", "window", "softcap", "log_sum_exp", "memory", "placed", "upstream_memory", "mask_memory"),
    "mask_format",
    *("state", "beyond", "wants", "poison", "dropout", "splits", "page", "alone", "exact", "dtype"),
)
"""The options that are not arrays."""
AXES: Mapping[str, str] = MappingProxyType(
    {"sinks": "H", "slopes": "BH", "lse_upstream": "BHL", "lengths": "B2"} | {"descales": "3BG"}
)
"""The axes of each option that is an array, except masks: sizes of the call as letters, and numbers."""
