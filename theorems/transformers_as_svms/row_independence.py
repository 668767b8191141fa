"""Certified lower bounds of the singular values of the rows (x_iα − x_it) z_iᵀ.

All eigenvalues of a matrix M in a metric B exceed λ if all pivots of the LDLᵀ factorisation of M − λB are positive,
which is decided over the rationals. The first guess of λ is the least eigenvalue computed in floats.

References: *Transformers as Support Vector Machines*, Theorem 4 (made sharper here).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Float64, Int64

from generators.query_assumptions import independent_rows
from reference_attention.exact import rational, to_floats
from reference_attention.outer_keys import rational_keys
from reference_attention.problem import Problem
from theorems.core.claim import Form, Undecided
from theorems.core.claim_name import stated_claim
from theorems.core.parts import Condition

INDEPENDENT = Condition("the rows are independent", lambda case: independent_rows(case).holds is not False)
GRADIENT_NORM = stated_claim("gradient-norm", when=INDEPENDENT)
"""The claim on the norm of the gradient; it is undecided if the rows are nearly dependent."""

BELOW = 2.0**-20
"""The relative amount by which the guess is lowered at first; the amount grows fourfold with each further attempt."""
HALVINGS = 40
"""The number of times that λ is lowered before the search is given up."""


@dataclass(frozen=True)
class Independence:
    """Certified lower bounds of singular values, with floats taken as exact.

    Attributes:
        rows_squared: the lower bound of σ_min² of the rows G_it, t ≠ opt_i.
        zero_sum_squared: the lower bound of σ_min² of c ↦ Σ_it c_it k_it on {c : Σ_t c_it = 0 for each i}.
    """

    rows_squared: float
    zero_sum_squared: float

    @classmethod
    def of(cls, problem: Problem) -> Independence:
        """Return the bounds for the keys of a problem.

        Raises:
            Undecided: a bound could not be proven to be positive.
        """
        gram = difference_gram(problem, problem.optimal)
        rows = certified_eigenvalue(gram, identity(gram.nrows()))
        zero_sum = certified_eigenvalue(gram, zero_sum_metric(problem.n, problem.T))
        if not rows > 0 or not zero_sum > 0:
            why = "no positive lower bound of the singular values could be proven: the rows are nearly dependent"
            raise Undecided(GRADIENT_NORM, why, Form.EFFECTIVE)
        return cls(rows, zero_sum)


def difference_gram(problem: Problem, alpha: Int64[np.ndarray, "n"]) -> fmpq_mat:
    """Return the exact G Gᵀ, (n(T−1), n(T−1)), of the rows G_it = k_iα_i − k_it, t ≠ α_i, in the order of (i, t)."""
    keys, T = rational_keys(problem.exact_keys).tolist(), problem.T
    rows = [
        [a - b for a, b in zip(keys[i * T + int(chosen)], keys[i * T + t], strict=True)]
        for i, chosen in enumerate(alpha)
        for t in range(T)
        if t != chosen
    ]
    G = fmpq_mat(rows)
    return G * G.transpose()


def zero_sum_metric(n: int, T: int) -> fmpq_mat:
    """Return the metric B with cᵀBc = Σ_it c_it² over all t, for c_it given at t ≠ α_i and c_iα_i = −Σ_{t≠α_i} c_it.

    B has the block I + 11ᵀ for each input.
    """
    m = n * (T - 1)
    return fmpq_mat(m, m, [int(j // (T - 1) == k // (T - 1)) + int(j == k) for j in range(m) for k in range(m)])


def identity(m: int) -> fmpq_mat:
    """Return the m × m identity matrix, the metric for singular values of the rows G."""
    return fmpq_mat(m, m, [int(j == k) for j in range(m) for k in range(m)])


def certified_eigenvalue(matrix: fmpq_mat, metric: fmpq_mat) -> float:
    """Return a float λ > 0 that is proven to satisfy cᵀMc ≥ λ cᵀBc for all c; 0 if no λ could be proven.

    Args:
        matrix: the symmetric matrix M.
        metric: the symmetric positive definite matrix B.
    """
    guess = _guess(matrix, metric)
    below = BELOW
    for _ in range(HALVINGS):
        value = guess * (1 - below) if below < 1 else guess / (2 * below)
        if 0 < value < np.inf and positive_definite(matrix - metric * rational(value)):
            return value
        below *= 4
    return 0.0


def positive_definite(matrix: fmpq_mat) -> bool:
    """Return whether a symmetric matrix is positive definite, from the exact pivots of its LDLᵀ factorisation."""
    rows = [list(row) for row in matrix.tolist()]
    for k, row in enumerate(rows):
        if not row[k] > 0:
            return False
        for below in rows[k + 1 :]:
            factor: fmpq = below[k] / row[k]
            if factor != 0:
                for j in range(k, len(row)):
                    below[j] -= factor * row[j]
    return True


def _guess(matrix: fmpq_mat, metric: fmpq_mat) -> float:
    m = matrix.nrows()
    scale = max(abs(x) for x in matrix.entries())
    M: Float64[np.ndarray, "m m"] = to_floats([x / scale for x in matrix.entries()]).reshape(m, m)
    root = np.linalg.inv(np.linalg.cholesky(to_floats(metric.entries()).reshape(m, m)))
    least = float(np.linalg.eigvalsh(root @ M @ root.T)[0])
    # Eigenvalues below 2⁻⁵² are smaller than the rounding error.
    return float(to_floats([scale])[0]) * max(least, 2.0**-52)
