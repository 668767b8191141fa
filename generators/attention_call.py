"""One call of an attention kernel: what the rows of the paper's problem look like to a library author."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float64

from generators.subject import Subject


class Memory(StrEnum):
    """How the tensors of a call lie in memory; the numbers are the same."""

    CONTIGUOUS = "contiguous"
    TRANSPOSED = "transposed"
    """Made with lengths before heads, (B, L, H, E), and seen as (B, H, L, E)."""
    SLICED = "sliced"
    """Every other row of something twice as long, its other rows another number."""
    BROADCAST = "broadcast"
    """Of one batch entry, expanded with stride 0."""


class Alignment(StrEnum):
    """Which key the last query may look at last, where there are other numbers of queries and keys."""

    TOP_LEFT = "top-left"
    """Query i sees keys up to i, as PyTorch's ``is_causal`` has it."""
    BOTTOM_RIGHT = "bottom-right"
    """Query i sees keys up to i + T − L, as flash attention has it since 2.1: the last query is the last token."""


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
        memory: how the tensors lie.
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
    exact: bool = False
    seed: int = 0
    name: str = "generated"
    noun: ClassVar[str] = "a call of an attention kernel"

    @property
    def options(self) -> dict[str, object]:
        """What is not a tensor and not its default, for a reader."""
        usual = {one.name: one.default for one in fields(self)}
        plain = ("scale", "causal", "window", "softcap", "log_sum_exp", "memory", "exact")
        return {name: getattr(self, name) for name in plain if getattr(self, name) != usual[name]}

    @property
    def sizes(self) -> dict[str, int]:
        """B, H, G, L, T, E, M."""
        (B, H, L, E), (_, G, T, _), M = self.query.shape, self.key.shape, self.value.shape[-1]
        return {"B": B, "H": H, "G": G, "L": L, "T": T, "E": E, "M": M}

    def visibility(self, alignment: Alignment) -> Bool[np.ndarray, "B H L T"]:
        """Which keys each query sees, by masks, causality and window together."""
        sizes = self.sizes
        B, H, L, T = (sizes[axis] for axis in "BHLT")
        seen = np.ones((B, H, L, T), dtype=bool)
        if self.visible is not None:
            seen &= self.visible
        if self.bias is not None:
            seen &= ~np.isneginf(self.bias)
        # j − i, with i counted so that the diagonal is at 0.
        offset = T - L if alignment is Alignment.BOTTOM_RIGHT else 0
        ahead = np.arange(T) - (np.arange(L)[:, None] + offset)
        if self.causal:
            seen &= ahead <= 0
        if self.window is not None:
            left, right = self.window
            seen &= (ahead >= -left) | (left < 0)
            seen &= (ahead <= right) | (right < 0)
        return seen
