"""The constraints of ATT-SVM over the rationals, and its exact solution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from flint import fmpq, fmpz, fmpz_mat
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from reference_attention.exact import LIMB, Dyadic, from_limbs, inner, ratio, times_power_of_two
from reference_attention.outer_keys import Keys, OuterKeys
from reference_attention.svm.least_norm import Outcome
from reference_attention.svm.ozaki_products import Twice, two_sum

MOST_LIMBS = 8
"""Largest number of limbs (pieces of 50 bits of an integer) with which rows are built limb by limb; keys drawn from a
normal distribution need two or three."""


class KeyRows:
    """The rows k_iα_i − k_it, t ≠ α_i, of ATT-SVM(α), exactly and as floats.

    The class implements :class:`reference_attention.svm.least_norm.Rows`. The exact integers are computed on demand.

    Args:
        keys: the keys, shape (n, T, d), or their factors.
        alpha: the chosen tokens α_i, shape (n,).

    Attributes:
        inputs, tokens: the indices i and t of each row, shape (m,) with m = n (T − 1).
        floats: the rows, divided by a power of two that brings the largest key near 1; each entry is within one
            rounding of the exact one; shape (m, d).
        scale: the exponent of that power: ``floats`` are 2^−scale (k_iα_i − k_it), rounded.
    """

    def __init__(self, keys: Keys, alpha: Int64[np.ndarray, "n"]) -> None:
        """Scale the keys by a power of two and compute the rows in floats."""
        n, tokens, _ = keys.shape
        others = np.arange(tokens) != alpha[:, None]
        inputs, positions = np.nonzero(others)
        self.inputs: Int64[np.ndarray, "m"] = inputs.astype(np.int64)
        self.tokens: Int64[np.ndarray, "m"] = positions.astype(np.int64)
        self._alpha = alpha
        self._shape = (n, tokens)
        self._keys = keys
        self._chosen: dict[int, list[int]] = {}
        largest = float(np.abs(keys.floats if isinstance(keys, OuterKeys) else keys).max())
        self.scale = math.frexp(largest)[1] - 1 if largest > 0 else 0
        self.floats: Float64[np.ndarray, "m d"]
        if isinstance(keys, OuterKeys):
            # The difference of two rounded products would have an error of more than one rounding.
            denominator, rows = (
                fmpz(1),
                [self.difference(*pair) for pair in zip(inputs.tolist(), positions.tolist(), strict=True)],
            )
            self.floats = np.array([[ratio(fmpz(x), denominator, -self.shift) for x in row] for row in rows])
        else:
            normal = np.ldexp(keys, -self.scale)
            self.floats = (normal[np.arange(n), alpha][:, None] - normal)[others]

    @cached_property
    def _exact(self) -> Dyadic | OuterKeys:
        """Return the keys in exact form: as factors, or as integers times a power of two."""
        return self._keys if isinstance(self._keys, OuterKeys) else Dyadic.of(self._keys)

    @property
    def unit(self) -> int:
        """Return the exponent ``unit`` with ``integers(…) = 2^−unit (k_iα_i − k_it)``, for the keys as given."""
        return self._exact.exponent

    @property
    def shift(self) -> int:
        """Return the exponent ``shift`` with ``integers(…) = 2^shift · floats``, up to the rounding of ``floats``."""
        return self.scale - self.unit

    def difference(self, i: int, t: int) -> list[int]:
        """Return the d integers (k_iα_i − k_it) / 2^unit."""
        if i not in self._chosen:
            self._chosen[i] = self._exact.integers((i, int(self._alpha[i])))
        return [a - b for a, b in zip(self._chosen[i], self._exact.integers((i, t)), strict=True)]

    def integers(self, indices: Sequence[int]) -> fmpz_mat:
        """Return the rows with the given indices as exact integers in units of 2^unit, shape (len(indices), d)."""
        rows, shift = self.scaled_rows(indices)
        # ``shift`` can be smaller only if the rows are zero, and zeros are integers in any unit.
        return rows * (fmpz(1) << max(0, self.shift - shift))

    def scaled_rows(self, indices: Sequence[int]) -> tuple[fmpz_mat, int]:
        """Return the rows with the given indices as exact integers, and the exponent s: integers = 2^s · ``floats``.

        ``floats`` means the rows before rounding. The exponent s may depend on the indices, as only the keys of these
        rows are read.
        """
        if len(indices) and not isinstance(self._keys, OuterKeys):
            i, t = self.inputs[indices], self.tokens[indices]
            pairs = Dyadic.of(np.stack([self._keys[i, self._alpha[i]], self._keys[i, t]]))
            if pairs.shifts.max() <= MOST_LIMBS * LIMB:
                limbs = pairs.limbs()
                return from_limbs(limbs[:, 0] - limbs[:, 1]), self.scale - pairs.exponent
        entries = [x for j in indices for x in self.difference(*self.pair(j))]
        return fmpz_mat(len(indices), self.floats.shape[1], entries), self.shift

    def twice(self, indices: Sequence[int]) -> Twice | None:
        """Return rows as exact sums of two floats, the second a rounding error; None for keys given by factors."""
        if isinstance(self._keys, OuterKeys):
            return None
        i, t = self.inputs[indices], self.tokens[indices]
        chosen, others = self._keys[i, self._alpha[i]], self._keys[i, t]
        return Twice(*two_sum(np.ldexp(chosen, -self.scale), -np.ldexp(others, -self.scale)))

    def pair(self, j: int) -> tuple[int, int]:
        """Return the input i and the token t of row j."""
        return int(self.inputs[j]), int(self.tokens[j])

    def spread(self, values: Any, chosen: Any) -> NDArray[Any]:
        """Return a read-only array (n, T) with the value of each row at its (i, t), and ``chosen`` at the tokens α."""
        values = np.asarray(values)
        out = np.full(self._shape, chosen, dtype=values.dtype)
        out[self.inputs, self.tokens] = values
        out.setflags(write=False)
        return out


class Certificate:
    """The exact solution of ATT-SVM, which satisfies the KKT conditions over the rationals.

    p = Σ λ_it (k_iα_i − k_it) with λ ≥ 0; every margin is at least the required one, and equal to it where λ > 0.
    """

    def __init__(self, rows: KeyRows, outcome: Outcome) -> None:
        """Keep the constraints, and the result of the least-norm problem on them."""
        self._rows = rows
        self._outcome = outcome

    @cached_property
    def p(self) -> list[fmpq]:
        """Return p_mm(α), as d rationals."""
        solution, unit = self._outcome.exact, self._rows.unit
        return [times_power_of_two(fmpq(x, solution.rho), -unit) for x in solution.point]

    @cached_property
    def duals(self) -> dict[tuple[int, int], fmpq]:
        """Return the positive duals λ_it by (i, t); the rows with λ_it > 0 are linearly independent."""
        solution, unit = self._outcome.exact, self._rows.unit
        values = (times_power_of_two(fmpq(x, solution.rho), -2 * unit) for x in solution.u)
        return dict(zip(map(self._rows.pair, self._outcome.support), values, strict=True))

    @cached_property
    def norm_squared(self) -> fmpq:
        """Return ‖p_mm‖²."""
        return inner(self.p, self.p)

    def row(self, i: int, t: int) -> list[fmpq]:
        """Return the row k_iα_i − k_it, as d rationals."""
        return [times_power_of_two(fmpq(x), self._rows.unit) for x in self._rows.difference(i, t)]

    def margin(self, i: int, t: int) -> fmpq:
        """Return (k_iα_i − k_it)·p_mm, exactly (0 at t = α_i)."""
        return inner(self.row(i, t), self.p)
