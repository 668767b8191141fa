"""The constraints of ATT-SVM on keys vec(x zᵀ) by their factors: ⟨a_j z_jᵀ, W⟩ ≥ 1, a_j = x_iα − x_it, z_j = z_i.

To keep numbers near one, each factor is divided by a power of two, a_j = 2^p_j a'_j and z_j = 2^q_j z'_j, and W = 2^t
W', with t such that ‖W'‖ is about one at the solution. The constraints become ⟨a'_j z'_jᵀ, W'⟩ ≥ b_j = 2^(−p_j − q_j −
t). M = Σ λ_j a_j z_jᵀ, for the duals λ, is the same in both units.
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
    """The constraints ⟨a'_j z'_jᵀ, W'⟩ ≥ b_j in the units that the docstring of the module describes.

    Attributes:
        keys: the factors x and z of the keys.
        alpha: the chosen tokens, shape (n,).
        inputs, tokens: the i and t of each constraint, shape (N,) with N = n (T − 1).
        a: a'_j, each entry of x_iα − x_it rounded once, shape (N, d).
        z: z'_j, shape (N, e).
        p, q: the exponents p_j and q_j of the units of a_j and z_j, shape (N,).
        unit: the exponent t of the unit of W.
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
        """Return the constraints for the chosen tokens; None if some a_j z_jᵀ is zero, so that no W separates."""
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
        """Return log₂ b_j for every constraint, shape (N,)."""
        return -self.p - self.q - self.unit

    @cached_property
    def b(self) -> Float64[np.ndarray, "N"]:
        """Return the required margins b_j, shape (N,)."""
        return np.ldexp(1.0, self.exponents)

    def in_units_of(self, value: float) -> OuterRows:
        """Return the same constraints in units in which a norm ``value`` of W' becomes about 1."""
        return replace(self, unit=self.unit + int(np.frexp(value)[1]))

    @cached_property
    def a_balls(self) -> arb_mat:
        """Return the factors a'_j as balls, before rounding to float64, (N, d)."""
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
        """Return the factors z'_j as balls of radius 0, (N, e)."""
        with precision():
            return balls(self.z)

    @cached_property
    def b_balls(self) -> list[arb]:
        """Return the required margins b_j as balls of radius 0, N of them."""
        return [arb(2) ** int(k) for k in self.exponents]

    def spread(self, values: Any, chosen: Any) -> NDArray[Any]:
        """Return a read-only array (n, T) with the value of each constraint at its (i, t), and ``chosen`` at α."""
        values = np.asarray(values)
        out = np.full(self.keys.shape[:2], chosen, dtype=values.dtype)
        out[self.inputs, self.tokens] = values
        out.setflags(write=False)
        return out
