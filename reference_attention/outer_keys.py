"""Keys vec(x_it z_iᵀ), stored as their factors, tokens x_it and queries z_i: with these keys, a prompt is vec(W).

As x_itᵀ W z_i = ⟨vec(x_it z_iᵀ), vec W⟩, training key-query weights W (d, e) is training a prompt of dimension d·e on
these keys. The product of two floats is in general not a float; so every exact decision is made on the factors.

References: *Transformers as Support Vector Machines*, (W-ERM).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Float64

from reference_attention.exact import Dyadic, rational, rational_matrix

SHORT = 53
"""Total number of mantissa bits of two floats up to which their product needs no rounding."""


@dataclass(frozen=True, eq=False)
class OuterKeys:
    """The keys vec(x_it z_iᵀ), whose entry a·e + b is entry a of x_it times entry b of z_i.

    Attributes:
        tokens: the tokens x_it, shape (n, T, d).
        queries: the query z_i of each input, shape (n, e).
    """

    tokens: Float64[np.ndarray, "n T d"]
    queries: Float64[np.ndarray, "n e"]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return (n, T, d·e), the shape of the array of keys."""
        n, T, d = self.tokens.shape
        return n, T, d * self.queries.shape[1]

    @cached_property
    def floats(self) -> Float64[np.ndarray, "n T k"]:
        """Return the keys as an array of floats, each entry rounded once."""
        return _outer(self.tokens, self.queries)

    @cached_property
    def short(self) -> bool:
        """Return whether tokens and queries have so few bits that no product of two of their entries is rounded."""
        return _bits(self.tokens) + _bits(self.queries) <= SHORT

    def scale_by(self, factor: float) -> OuterKeys:
        """Return the keys times ``factor``, a power of two."""
        return replace(self, queries=self.queries * factor)

    @cached_property
    def _dyadic(self) -> tuple[Dyadic, Dyadic]:
        return Dyadic.of(self.tokens), Dyadic.of(self.queries)

    @property
    def exponent(self) -> int:
        """Return an exponent such that every entry of the keys is an integer multiple of 2^exponent."""
        x, z = self._dyadic
        return x.exponent + z.exponent

    def integers(self, index: tuple[int, int]) -> list[int]:
        """Return the key of token ``index`` = (i, t) divided by 2^exponent, exactly."""
        x, z = self._dyadic
        query = z.integers((index[0],))
        return [a * b for a in x.integers(index) for b in query]


Keys = Float64[np.ndarray, "_ _ _"] | OuterKeys
"""Keys, given as an array (n, T, d) or by their factors."""


def first_inputs(keys: Keys, m: int) -> Float64[np.ndarray, "m T d"] | OuterKeys:
    """Return the keys of the first m inputs."""
    return OuterKeys(keys.tokens[:m], keys.queries[:m]) if isinstance(keys, OuterKeys) else keys[:m]


def rational_keys(keys: Keys) -> fmpq_mat:
    """Return the keys over the rationals, shape (n·T, d)."""
    if not isinstance(keys, OuterKeys):
        return rational_matrix(keys.reshape(-1, keys.shape[2]))
    n, T, d = keys.shape
    entries: list[fmpq] = []
    for block, query in zip(keys.tokens, keys.queries, strict=True):
        z = [rational(b) for b in query.tolist()]
        entries += [rational(a) * b for a in block.ravel().tolist() for b in z]
    return fmpq_mat(n * T, d, entries)


def _outer(x: Float64[np.ndarray, "n T d"], z: Float64[np.ndarray, "n e"]) -> Float64[np.ndarray, "n T k"]:
    """Return the keys vec(x_it z_iᵀ) as floats, (n, T, d·e)."""
    n, T, _ = x.shape
    return np.asarray((x[:, :, :, None] * z[:, None, None, :]).reshape(n, T, -1))


def _bits(array: Float64[np.ndarray, "..."]) -> int:
    """Return the largest number of mantissa bits that an entry needs."""
    return int(np.abs(Dyadic.of(array).mantissas).max()).bit_length()
