"""The norms of descent: ‖·‖_q of entries, and of matrices ‖·‖_q of singular values, for q = 1 (nuclear), ∞ (spectral).

As everywhere, the argument is vec(W) in row-major order; the Frobenius norm is ‖·‖_2 of entries.
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
    """The norm ‖·‖_q of the singular values of matrices of a given shape.

    Attributes:
        power: q, 1 or ∞.
        shape: (d, e), the shape of the W whose vec is measured.

    Raises:
        InvalidInput: another power.
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
        """Return vec(W) reshaped to W, (*b, d, e)."""
        return x.reshape(*x.shape[:-1], *self.shape)


Norm = float | Schatten
"""The power q of a norm of entries, or a norm of matrices."""


def conjugate(norm: Norm) -> Norm:
    """Return the dual norm; for ‖·‖_q it is ‖·‖_q' with 1/q + 1/q' = 1."""
    if isinstance(norm, Schatten):
        return Schatten(conjugate_power(norm.power), norm.shape)
    return conjugate_power(norm)


def conjugate_power(power: float) -> float:
    """Return the q' with 1/q + 1/q' = 1."""
    return 1.0 if math.isinf(power) else math.inf if power == 1 else power / (power - 1)


def length(x: Float64[np.ndarray, "d"], norm: Norm) -> float:
    """Return ‖x‖, in floats."""
    if isinstance(norm, Schatten):
        return float(np.linalg.norm(norm.matrices(x), ord="nuc" if norm.power == 1 else 2))
    return float(np.linalg.norm(x, ord=norm))


def name_of(norm: Norm) -> str:
    """Return the name of a norm: ℓ2, ℓ1.5, …, ℓ∞, nuclear or spectral."""
    if isinstance(norm, Schatten):
        return str(norm)
    return "ℓ∞" if norm == math.inf else f"ℓ{norm:g}"
