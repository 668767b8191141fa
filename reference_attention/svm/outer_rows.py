"""The constraints of ATT-SVM on keys vec(x zᵀ) by their factors: ⟨a_j z_jᵀ, W⟩ ≥ 1, a_j = x_iα − x_it, z_j = z_i.

The units are such that all factors have size one and the value of the problem is about one: a_j = 2^p_j a'_j, z_j =
2^q_j z'_j, W = 2^t W', so that ⟨a'_j z'_jᵀ, W'⟩ ≥ b_j = 2^(−p_j − q_j − t). M = Σ λ_j a_j z_jᵀ is the same in both
units.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from flint import arb, arb_mat
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from reference_attention.outer_keys import OuterKeys
from reference_attention.svm.ball_matrices import balls, precision


@dataclass(frozen=True, eq=False)
class OuterRows:
    """The rows (x_iα − x_it) z_iᵀ, t ≠ α_i, in the units that the module's docstring describes.

    Attributes:
        keys: the factors.
        alpha: the chosen tokens, shape (n,).
        inputs, tokens: the i and t of each row, shape (N,) with N = n (T − 1).
        a: a'_j, each entry of x_iα − x_it rounded once, shape (N, d).
        z: z'_j, shape (N, e).
        p, q: the exponents of a_j and z_j, shape (N,).
        unit: t, with W = 2^t W'.
    """

    keys: OuterKeys
    alpha: Int64[np.ndarray, "n"]
    inputs: Int64[np.ndarray, "N"]
    tokens: Int64[np.ndarray, "N"]
    a: Float64[np.ndarray, "N d"]
    z: Float64[np.ndarray, "N e"]
    p: Int64[np.ndarray, "N"]
    q: Int64[np.ndarray, "N"]
    unit: int = 0

    @classmethod
    def of(cls, keys: OuterKeys, alpha: Int64[np.ndarray, "n"]) -> OuterRows | None:
        """Return the rows for these tokens; None if a row is zero, which no W separates."""
        inputs, tokens = (x.astype(np.int64) for x in np.nonzero(np.arange(keys.shape[1]) != alpha[:, None]))
        a, z = keys.tokens[inputs, alpha[inputs]] - keys.tokens[inputs, tokens], keys.queries[inputs]
        largest = [np.abs(factor).max(axis=1) for factor in (a, z)]
        if not all(factor.all() for factor in largest):
            return None
        p, q = (np.frexp(factor)[1].astype(np.int64) for factor in largest)
        a, z = np.ldexp(a, -p[:, None]), np.ldexp(z, -q[:, None])
        return cls(keys, alpha, inputs, tokens, a, z, p, q, int(np.max(-p - q)))

    @property
    def exponents(self) -> Int64[np.ndarray, "N"]:
        """Return log₂ b_j."""
        return -self.p - self.q - self.unit

    @cached_property
    def b(self) -> Float64[np.ndarray, "N"]:
        """Return b_j."""
        return np.ldexp(1.0, self.exponents)

    def in_units_of(self, value: float) -> OuterRows:
        """Return the same rows in units in which ``value`` becomes a value of about 1."""
        return replace(self, unit=self.unit + int(np.frexp(value)[1]))

    @cached_property
    def a_balls(self) -> arb_mat:
        """Return the exact a'_j, (N, d)."""
        with precision():
            chosen, other = (
                x.ravel().tolist()
                for x in (
                    self.keys.tokens[self.inputs, self.alpha[self.inputs]],
                    self.keys.tokens[self.inputs, self.tokens],
                )
            )
            scale = [arb(2) ** int(-k) for k in self.p]
            d = self.a.shape[1]
            entries = [(arb(x) - arb(y)) * scale[k // d] for k, (x, y) in enumerate(zip(chosen, other, strict=True))]
            return arb_mat(len(self.a), d, entries)

    @cached_property
    def z_balls(self) -> arb_mat:
        """Return the exact z'_j, (N, e)."""
        with precision():
            return balls(self.z)

    @cached_property
    def b_balls(self) -> list[arb]:
        """Return the exact b_j."""
        return [arb(2) ** int(k) for k in self.exponents]

    def spread(self, values: Any, chosen: Any) -> NDArray[Any]:
        """Return row values as a read-only array of shape (n, T), with ``chosen`` at the tokens α."""
        values = np.asarray(values)
        out = np.full(self.keys.shape[:2], chosen, dtype=values.dtype)
        out[self.inputs, self.tokens] = values
        out.setflags(write=False)
        return out
