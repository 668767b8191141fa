"""The norms of steepest descent: ‖·‖_q of the entries, norms of singular values (nuclear, spectral), norms of blocks.

The norms apply to a matrix W given as the vector vec(W), in row-major order. The Frobenius norm is ‖·‖_2 of the
entries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.errors import InvalidInput


@dataclass(frozen=True)
class Schatten:
    """The norm ‖·‖_q of the singular values of a matrix W, given as vec(W).

    Attributes:
        power: q: 1 for the nuclear norm, ∞ for the spectral norm.
        shape: (d, e), the shape of W.

    Raises:
        InvalidInput: the power is neither 1 nor ∞.
    """

    power: float
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        """Refuse powers other than 1 and ∞."""
        if self.power not in (1.0, math.inf):
            raise InvalidInput(f"norm: q = {self.power} of singular values; give 1 (nuclear) or ∞ (spectral).")

    def __str__(self) -> str:
        """Return the name of the norm: nuclear or spectral."""
        return "nuclear" if self.power == 1 else "spectral"

    def matrices(self, x: Any) -> Any:
        """Return the matrices W, (*b, d, e), of vectors vec(W)."""
        return x.reshape(*x.shape[:-1], *self.shape)


@dataclass(frozen=True)
class Blocks:
    """The norm of a matrix W that is the largest ‖·‖_2 of a block of its entries, or the sum of ‖·‖_2 over all blocks.

    Attributes:
        power: ∞ for the largest block, 1 for the sum over blocks.
        kind: the blocks: ``rows``, ``columns``, or ``first`` for two blocks, the first entry and all others.
        shape: (d, e), the shape of W, which is given as vec(W).

    Raises:
        InvalidInput: the power is neither 1 nor ∞, or the kind is unknown.
    """

    power: float
    kind: str
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        """Refuse powers other than 1 and ∞, and unknown kinds of blocks."""
        if self.power not in (1.0, math.inf) or self.kind not in KINDS:
            raise InvalidInput(
                f"norm: power {self.power}, kind {self.kind!r}; give power 1 or ∞ and kind {' or '.join(KINDS)}."
            )

    def __str__(self) -> str:
        """Return the name of the norm: largest of rows, sum of columns, …."""
        return f"{'sum of' if self.power == 1 else 'largest of'} {KINDS[self.kind]}"

    @property
    def members(self) -> Float64[np.ndarray, "k m"]:
        """Return the matrix whose entry (j, b) is 1 if entry j of vec(W) lies in block b, otherwise 0."""
        e, k = self.shape[1], math.prod(self.shape)
        block = {"rows": np.arange(k) // e, "columns": np.arange(k) % e, "first": np.minimum(np.arange(k), 1)}
        block_of_entry = block[self.kind]
        return np.asarray(block_of_entry[:, None] == np.arange(int(block_of_entry.max()) + 1), dtype=np.float64)

    def sizes(self, x: Float64[np.ndarray, "*b k"]) -> Float64[np.ndarray, "*b m"]:
        """Return ‖·‖_2 of every block of W, given as vec(W), in floats."""
        largest = np.abs(x).max(axis=-1, keepdims=True)
        scaled = x / np.where(largest > 0, largest, 1.0)
        return np.asarray(np.sqrt((scaled * scaled) @ self.members) * largest)


KINDS = {"rows": "rows", "columns": "columns", "first": "first entry and rest"}
"""The kinds of blocks, and the words for them in the names of norms."""
Norm = float | Schatten | Blocks
"""A norm: the power q of the norm ‖·‖_q of entries, or a norm of matrices."""


def conjugate(norm: Norm) -> Norm:
    """Return the dual norm; for ‖·‖_q it is ‖·‖_q' with 1/q + 1/q' = 1."""
    if isinstance(norm, Schatten):
        return Schatten(conjugate_power(norm.power), norm.shape)
    if isinstance(norm, Blocks):
        return Blocks(conjugate_power(norm.power), norm.kind, norm.shape)
    return conjugate_power(norm)


def conjugate_power(power: float) -> float:
    """Return the q' with 1/q + 1/q' = 1, for q = ``power``."""
    return 1.0 if math.isinf(power) else math.inf if power == 1 else power / (power - 1)


def length(x: Float64[np.ndarray, "d"], norm: Norm) -> float:
    """Return ‖x‖ in the given norm, computed in floats."""
    if isinstance(norm, Schatten):
        return float(np.linalg.norm(norm.matrices(x), ord="nuc" if norm.power == 1 else 2))
    if isinstance(norm, Blocks):
        return float(np.sum(norm.sizes(x)) if norm.power == 1 else np.max(norm.sizes(x)))
    return float(np.linalg.norm(x, ord=norm))


def name_of(norm: Norm) -> str:
    """Return the name of a norm: ℓ2, ℓ1.5, …, ℓ∞, nuclear or spectral, largest of rows, …."""
    if isinstance(norm, Schatten | Blocks):
        return str(norm)
    return "ℓ∞" if norm == math.inf else f"ℓ{norm:g}"
