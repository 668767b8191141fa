"""The norms of descent: ‖·‖_q of entries, and of matrices ‖·‖_q of singular values, for q = 1 (nuclear), ∞ (spectral).

Of vec(W) in row-major order, as everywhere; the Frobenius norm is ‖·‖_2 of entries.
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
    """‖·‖_q of the singular values of matrices of a shape.

    Attributes:
        power: q, 1 or ∞.
        shape: (d, e), of the W whose vec is measured.

    Raises:
        InvalidInput: another power.
    """

    power: float
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        if self.power not in (1.0, math.inf):
            raise InvalidInput(f"norm: q = {self.power} of singular values; give 1 (nuclear) or ∞ (spectral).")

    def __str__(self) -> str:
        return "nuclear" if self.power == 1 else "spectral"

    def matrices(self, x: Any) -> Any:
        """vec(W) as W, (*b, d, e)."""
        return x.reshape(*x.shape[:-1], *self.shape)


Norm = float | Schatten
"""q of entries, or a norm of matrices."""


def conjugate(norm: Norm) -> Norm:
    """The dual norm: of q the q' with 1/q + 1/q' = 1."""
    if isinstance(norm, Schatten):
        return Schatten(conjugate_power(norm.power), norm.shape)
    return conjugate_power(norm)


def conjugate_power(power: float) -> float:
    """q' with 1/q + 1/q' = 1."""
    return 1.0 if math.isinf(power) else math.inf if power == 1 else power / (power - 1)


def length(x: Float64[np.ndarray, "d"], norm: Norm) -> float:
    """‖x‖, in floats."""
    if isinstance(norm, Schatten):
        return float(np.linalg.norm(norm.matrices(x), ord="nuc" if norm.power == 1 else 2))
    return float(np.linalg.norm(x, ord=norm))


def name_of(norm: Norm) -> str:
    """ℓ2, ℓ1.5, …, ℓ∞, nuclear, spectral"""
    if isinstance(norm, Schatten):
        return str(norm)
    return "ℓ∞" if norm == math.inf else f"ℓ{norm:g}"
