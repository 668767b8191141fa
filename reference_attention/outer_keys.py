"""Keys vec(x_it z_iᵀ), stored as factors: the keys for which the prompt is vec(W), when W is trained.

x_itᵀ W z_i = ⟨vec(x_it z_iᵀ), vec W⟩, so training W is training a prompt of dimension d·e on these keys. The product of
two floats is in general not a float; every exact decision is therefore made on the factors.

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
"""Total number of mantissa bits of two floats up to which their product is certainly a float."""


@dataclass(frozen=True, eq=False)
class OuterKeys:
    """The keys vec(x_it z_iᵀ), whose entry a·e + b is the a-th entry of x_it times the b-th entry of z_i.

    Attributes:
        tokens: x, shape (n, T, d).
        queries: z, shape (n, e).
    """

    tokens: Float64[np.ndarray, "n T d"]
    queries: Float64[np.ndarray, "n e"]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return (n, T, d·e)."""
        n, T, d = self.tokens.shape
        return n, T, d * self.queries.shape[1]

    @cached_property
    def floats(self) -> Float64[np.ndarray, "n T k"]:
        """Return the keys, each entry rounded once."""
        return _outer(self.tokens, self.queries)

    @cached_property
    def short(self) -> bool:
        """Return whether all factors have so few bits that all their products are floats."""
        return _bits(self.tokens) + _bits(self.queries) <= SHORT

    def scale_by(self, factor: float) -> OuterKeys:
        """Return the keys times a power of two."""
        return replace(self, queries=self.queries * factor)

    @cached_property
    def _dyadic(self) -> tuple[Dyadic, Dyadic]:
        return Dyadic.of(self.tokens), Dyadic.of(self.queries)

    @property
    def exponent(self) -> int:
        """Return an exponent such that every entry is an integer multiple of 2^exponent."""
        x, z = self._dyadic
        return x.exponent + z.exponent

    def integers(self, index: tuple[int, int]) -> list[int]:
        """Return the key of token ``index`` = (i, t) divided by 2^exponent, exactly."""
        x, z = self._dyadic
        query = z.integers((index[0],))
        return [a * b for a in x.integers(index) for b in query]


Keys = Float64[np.ndarray, "_ _ _"] | OuterKeys
"""Keys, given as an array or by their factors."""


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
    """Return vec(x_it z_iᵀ) in floats, (n, T, d·e)."""
    n, T, _ = x.shape
    return np.asarray((x[:, :, :, None] * z[:, None, None, :]).reshape(n, T, -1))


def _bits(array: Float64[np.ndarray, "..."]) -> int:
    """Return the number of mantissa bits of the entry that needs most."""
    return int(np.abs(Dyadic.of(array).mantissas).max()).bit_length()
