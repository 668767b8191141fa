"""ATT-SVM over inputs with different numbers of tokens, exact: min ‖p‖ over the constraints of several problems.

References: *Transformers as Support Vector Machines*, (SAtt-SVM); the method of
:mod:`reference_attention.svm.max_margin`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import fmpq, fmpz_mat
from jaxtyping import Bool, Float64, Int64

from reference_attention.exact import times_power_of_two, to_float, to_floats
from reference_attention.outer_keys import OuterKeys
from reference_attention.svm.certificate import KeyRows
from reference_attention.svm.least_norm import least_norm

Place = tuple[int, int, int]
"""Three indices: of a problem, of one of its inputs, and of a token of this input."""

PartKeys = Float64[np.ndarray, "_n _t d"] | OuterKeys
"""The keys of one of several problems, as an array (n, T, d) or by their factors."""


class StackedRows:
    """The rows k_iα_i − k_it of several problems, scaled by one power of two.

    The class implements :class:`reference_attention.svm.least_norm.Rows`.

    Args:
        parts: the rows of each problem, all of the same length d.

    Attributes:
        floats: the scaled rows, shape (m, d).
        shift: the exponent with ``integers(…) = 2^shift · floats``, up to the rounding of ``floats``.
        unit: the exponent with ``integers(…) = 2^−unit (k_iα_i − k_it)``, for the keys as given.
        places: the problem, the input and the token of each row.
    """

    def __init__(self, parts: Sequence[KeyRows]) -> None:
        """Scale the rows of all problems by the same power of two and stack them."""
        self._parts = parts
        self.unit = min(part.unit for part in parts)
        scale = max(part.scale for part in parts)
        self.shift = scale - self.unit
        self.floats: Float64[np.ndarray, "m d"] = np.concatenate(
            [np.ldexp(part.floats, part.scale - scale) for part in parts]
        )
        self.places: list[Place] = [(q, *part.pair(j)) for q, part in enumerate(parts) for j in range(len(part.floats))]

    def integers(self, indices: Sequence[int]) -> fmpz_mat:
        """Return the rows with the given indices as exact integers in units of 2^unit, shape (len(indices), d)."""
        entries: list[int] = []
        for j in indices:
            q, i, t = self.places[j]
            part = self._parts[q]
            entries += [x << (part.unit - self.unit) for x in part.difference(i, t)]
        return fmpz_mat(len(indices), self.floats.shape[1], entries)

    def scaled_rows(self, indices: Sequence[int]) -> tuple[fmpz_mat, int]:
        """Return the rows of :meth:`integers`, and the exponent ``shift``."""
        return self.integers(indices), self.shift

    def twice(self, indices: Sequence[int]) -> None:
        """Return None: the rows are not available as sums of two floats."""

    def spread(self, values: Any, chosen: Any) -> tuple[Any, ...]:
        """Return a read-only array (n, T) per problem, the value of each row at its (i, t), and ``chosen`` at α."""
        ends = np.cumsum([len(part.floats) for part in self._parts])[:-1]
        split = np.split(np.asarray(values), ends)
        return tuple(part.spread(part_values, chosen) for part, part_values in zip(self._parts, split, strict=True))


@dataclass(frozen=True, eq=False)
class SequenceMaxMargin:
    """The solution W^mm of ATT-SVM over several problems, exact; p is vec(W^mm), or the prompt.

    Attributes:
        alpha: the chosen token α_i of each input, (n,) per problem.
        p: the solution, each entry the exact one rounded once, shape (d,).
        margins: (k_iα_i − k_it)·p, up to rounding, +inf at α; (n, T) per problem.
        neighbours: whether the margin is exactly 1, decided over the rationals; False at α; (n, T) per problem.
        duals: λ ≥ 0 with p = Σ λ_it (k_iα_i − k_it), zero where the margin exceeds 1; (n, T) per problem.
        exact_p: p, as d rationals.
        exact_duals: the positive λ, by the indices of problem, input and token.
    """

    alpha: tuple[Int64[np.ndarray, "_n"], ...]
    p: Float64[np.ndarray, "d"]
    margins: tuple[Float64[np.ndarray, "_n _t"], ...]
    neighbours: tuple[Bool[np.ndarray, "_n _t"], ...]
    duals: tuple[Float64[np.ndarray, "_n _t"], ...]
    exact_p: list[fmpq]
    exact_duals: dict[Place, fmpq]

    @cached_property
    def norm(self) -> float:
        """Return ‖W^mm‖_F."""
        return math.hypot(*self.p.tolist())

    @cached_property
    def direction(self) -> Float64[np.ndarray, "d"]:
        """Return p/‖p‖, shape (d,)."""
        return self.p / self.norm


@dataclass(frozen=True, eq=False)
class SequenceInfeasible:
    """A proof that no p satisfies the constraints of all problems: λ ≥ 0, not all 0, with Σ λ (k_iα_i − k_it) = 0.

    Attributes:
        alpha: the chosen tokens, (n,) per problem.
        exact: the positive λ, by the indices of problem, input and token.
    """

    alpha: tuple[Int64[np.ndarray, "_n"], ...]
    exact: dict[Place, fmpq]


def sequence_max_margin(
    keys: Sequence[PartKeys], alpha: Sequence[Int64[np.ndarray, "_n"]]
) -> SequenceMaxMargin | SequenceInfeasible:
    """Solve min ‖p‖ subject to (k_iα_i − k_it)·p ≥ 1 for every problem, i and t ≠ α_i; exact.

    Args:
        keys: the keys of each problem, (n, T, d) with the same d, or their factors.
        alpha: the chosen token of each input, (n,) per problem.

    Raises:
        InvalidInput: a solution beyond the range of float64.
    """
    chosen = tuple(alpha)
    rows = StackedRows([KeyRows(part_keys, tokens) for part_keys, tokens in zip(keys, chosen, strict=True)])
    outcome = least_norm(rows, np.ones(len(rows.floats), dtype=np.int64))
    places = [rows.places[j] for j in outcome.support]
    solution = outcome.exact
    if not outcome.feasible:
        weights = (fmpq(x, solution.over) for x in solution.u)
        return SequenceInfeasible(chosen, dict(zip(places, weights, strict=True)))
    exact_p = [times_power_of_two(fmpq(x, solution.rho), -rows.unit) for x in solution.point]
    weights = (times_power_of_two(fmpq(x, solution.rho), -2 * rows.unit) for x in solution.u)
    exact_duals = dict(zip(places, weights, strict=True))
    p, duals = to_floats(exact_p), np.zeros(len(rows.floats))
    duals[outcome.support] = [to_float(x) for x in exact_duals.values()]
    p.setflags(write=False)
    return SequenceMaxMargin(
        alpha=chosen,
        p=p,
        margins=rows.spread(outcome.margins, np.inf),
        neighbours=rows.spread(outcome.tight, False),
        duals=rows.spread(duals, 0.0),
        exact_p=exact_p,
        exact_duals=exact_duals,
    )
