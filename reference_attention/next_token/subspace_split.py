"""The parameters θ split in two: P_Fθ decides within extended supports, θ_⊥ rules out all other alternatives.

The notation is that of :mod:`.master_problem`, and Ŝ_j are the extended supports of :mod:`.extended_supports`. F is the
span of the differences a_jv − a_jz of v, z ∈ Ŝ_j, over all contexts j; P_Fθ and θ_⊥ are the projections of θ on F and
on its orthogonal complement F^⊥, P_⊥ the projection on F^⊥. Both parts are stored separately, in orthonormal
coordinates of F and F^⊥: a single vector θ would resolve P_Fθ only to the rounding of its length, which grows without
bound in training. The bases come from Gram and Schmidt's method over the rationals. Every coordinate of a vector a_jv −
a_jz is the exact coordinate, rounded once.

Reference: derived here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import arb, arb_mat, ctx, fmpq
from jaxtyping import Bool, Float64

from reference_attention.exact import products
from reference_attention.next_token.extended_supports import Pair
from reference_attention.next_token.master_problem import MasterProblem, Vector

BITS = 512
"""Precision in bits of ball arithmetic (numbers with error radii), in which coordinates, minimisers and derived
quantities are computed before they are rounded to floats."""


@dataclass(frozen=True, eq=False)
class Split:
    """The subspaces F and F^⊥ of a problem with extended supports (symbols: see the module).

    Attributes:
        problem: the contexts, their alternatives and counts.
        sets: a mask of the alternatives in Ŝ_j, (m, K).
        spanning: a rational orthogonal basis of F, not normalized, r vectors.
    """

    problem: MasterProblem
    sets: Bool[np.ndarray, "m K"]
    spanning: list[Vector]

    @classmethod
    def of(cls, problem: MasterProblem, sets: Bool[np.ndarray, "m K"]) -> Split:
        """Return the split whose F is spanned by differences within ``sets``."""
        return cls(problem, sets, orthogonalize([row for pair, row in problem.differences.items() if sets[pair]], []))

    @property
    def dimension(self) -> int:
        """Return r, the dimension of F."""
        return len(self.spanning)

    @cached_property
    def orthogonal(self) -> list[Vector]:
        """Return a rational orthogonal basis of R^D, not normalized, that begins with the basis of F.

        It is a property of its own because the part in F^⊥ takes longer to compute, and the minimum of the loss on F
        does not need that part.
        """
        problem = self.problem
        others = [row for pair, row in problem.differences.items() if not self.sets[pair]]
        units = [[fmpq(int(i == k)) for i in range(problem.dimension)] for k in range(problem.dimension)]
        return orthogonalize([*others, *units], self.spanning)

    @cached_property
    def squares(self) -> Vector:
        """Return the squared lengths of the vectors of :attr:`orthogonal`."""
        return _squares(self.orthogonal)

    @cached_property
    def spanning_squares(self) -> Vector:
        """Return the squared lengths of the vectors of :attr:`spanning`."""
        return _squares(self.spanning)

    @cached_property
    def basis(self) -> Float64[np.ndarray, "D D"]:
        """Return :attr:`orthogonal` normalized, as columns, each entry rounded once, (D, D)."""
        with ctx.workprec(BITS):
            scales = [arb(x).rsqrt() for x in self.squares]
            rows = [[float((arb(x) * s).mid()) for x in row] for row, s in zip(self.orthogonal, scales, strict=True)]
        return np.array(rows).T

    @cached_property
    def coordinates(self) -> Float64[np.ndarray, "m K D"]:
        """Return the coordinates of a_jv − a_jz, z = z_j, in :attr:`basis`, each rounded once, (m, K, D).

        The coordinates are 0 at z_j and where there is no alternative.
        """
        return self.spread({pair: [float(x.mid()) for x in row] for pair, row in self.in_balls.items()})

    @cached_property
    def inside(self) -> Float64[np.ndarray, "m K r"]:
        """Return the coordinates of P_F(a_jv − a_jz), z = z_j, in F."""
        return self.coordinates[..., : self.dimension]

    @cached_property
    def outside(self) -> Float64[np.ndarray, "m K s"]:
        """Return the coordinates of g_jv = P_⊥(a_jz − a_jv), z = z_j, in F^⊥; 0 for v ∈ Ŝ_j."""
        return -self.coordinates[..., self.dimension :]

    @cached_property
    def in_balls(self) -> dict[Pair, list[arb]]:
        """Return the coordinates of a_jv − a_jz, z = z_j, as balls, by pair (j, v); those that are 0 exactly."""
        return _in_balls(self.problem.differences, self.orthogonal, self.squares)

    @cached_property
    def spanned(self) -> dict[Pair, list[arb]]:
        """Return the coordinates in F of a_jv − a_jz, z = z_j, for v ∈ Ŝ_j, as balls, by pair (j, v)."""
        rows = {pair: row for pair, row in self.problem.differences.items() if self.sets[pair]}
        return _in_balls(rows, self.spanning, self.spanning_squares)

    @cached_property
    def others(self) -> Bool[np.ndarray, "m K"]:
        """Return V_j∖Ŝ_j, the alternatives to be ruled out, as a mask, (m, K)."""
        return np.asarray(self.problem.alternatives & ~self.sets)

    def spread(self, values: dict[Pair, list[float]], width: int = 0) -> Float64[np.ndarray, "m K s"]:
        """Return an array with the vector of each pair (j, v) in ``values`` at the index (j, v), and 0 elsewhere.

        The last axis of the array has length ``width``; the default is the length of the vectors, or D if there are no
        vectors.
        """
        width = width or (len(next(iter(values.values()))) if values else self.problem.dimension)
        out = np.zeros((*self.problem.counts.shape, width))
        for pair, value in values.items():
            out[pair] = value
        return out

    def vector(self, x: list[arb], y: list[arb] | None = None) -> arb_mat:
        """Return the point of R^D with the coordinates x in F and y (by default 0) in F^⊥, in balls, (D, 1)."""
        with ctx.workprec(BITS):
            at = [*x, *(y or [arb(0)] * (self.problem.dimension - self.dimension))]
            scaled = [c * arb(s).rsqrt() for c, s in zip(at, self.squares, strict=True)]
            rows = arb_mat(len(at), len(at), [arb(x) for row in self.orthogonal for x in row])
            return rows.transpose() * arb_mat(len(at), 1, scaled)

    def coordinates_of_exact(self, point: Vector) -> Float64[np.ndarray, "D"]:
        """Return the coordinates of a rational point in :attr:`basis`, each the exact coordinate rounded once."""
        along = products(self.orthogonal, point)
        with ctx.workprec(BITS):
            scaled = [float((arb(x) * arb(s).rsqrt()).mid()) for x, s in zip(along, self.squares, strict=True)]
        return np.array(scaled)

    def coordinates_of(self, theta: Float64[np.ndarray, "*b D"]) -> Float64[np.ndarray, "*b D"]:
        """Return the coordinates in :attr:`basis` of points given in floats."""
        return np.asarray(theta @ self.basis)


def _squares(basis: list[Vector]) -> Vector:
    return [sum((x * x for x in row), fmpq(0)) for row in basis]


def _in_balls(rows: dict[Pair, Vector], basis: list[Vector], squares: Vector) -> dict[Pair, list[arb]]:
    """Return for each row the coordinates of −row in the basis, normalized by its squared lengths, as balls."""
    coordinates = {}
    with ctx.workprec(BITS):
        scales = [arb(x).rsqrt() for x in squares]
        for pair, row in rows.items():
            along = products(basis, row) if basis else []
            coordinates[pair] = [-arb(x) * s if x != 0 else arb(0) for x, s in zip(along, scales, strict=True)]
    return coordinates


def orthogonalize(rows: list[Vector], basis: list[Vector]) -> list[Vector]:
    """Return an orthogonal basis extended, by Gram and Schmidt's method over the rationals, to span the rows, too."""
    extended, squares = list(basis), [sum((x * x for x in row), fmpq(0)) for row in basis]
    for row in rows:
        if extended and len(extended) == len(row):
            break
        remainder = list(row)
        shares = [x / square for x, square in zip(products(extended, row), squares, strict=True)]
        for share, along in zip(shares, extended, strict=True):
            remainder = [x - share * y for x, y in zip(remainder, along, strict=True)] if share != 0 else remainder
        square = sum((x * x for x in remainder), fmpq(0))
        if square != 0:
            extended.append(remainder)
            squares.append(square)
    return extended
