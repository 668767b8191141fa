"""The float solution of a least-norm problem, the start of the exact :mod:`reference_attention.svm.least_norm`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import daqp
import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.span import span_of_rows
from reference_attention.svm.nonnegative_least_squares import nonnegative_least_squares

TOLERANCE = 1e-11
"""Largest violation of a constraint that daqp accepts, for rows of size one; the exact method distinguishes margins
that are closer."""
UNBOUNDED = 1e30
"""The value that stands for an infinite upper bound in daqp."""


@dataclass(frozen=True, eq=False)
class FloatSolution:
    """The solution u ≥ 0 of least squares min ‖E u − f‖ with E = [Gᵀ; hᵀ] and f = (0, …, 0, 1).

    The duals of min ‖p‖ subject to g_j·p ≥ h_j are u divided by the last entry of the residual; see :mod:`.least_norm`.

    Attributes:
        u: the solution, positive on the constraints that are guessed to be active; zeros if the solver failed; shape
            (m,).
        design: E with its columns and h scaled by powers of two, shape (e, m) with e = d + 1.
        residual: r = f − E u, shape (e,).
    """

    u: Float64[np.ndarray, "m"]
    design: Float64[np.ndarray, "e m"] = field(repr=False)
    residual: Float64[np.ndarray, "e"] = field(repr=False)

    @cached_property
    def kkt_residual(self) -> float:
        """Return the largest violation of stationarity, feasibility and complementarity, relative to 1 + ‖p‖².

        The residual is measured in the units of the scaled rows; it is inf if the float solver returned no point.
        """
        rho = float(self.residual[-1])
        if not rho > 0:
            return math.inf
        p, duals, columns = -self.residual[:-1] / rho, self.u / rho, self.design[:-1]
        excess = p @ columns - self.design[-1]
        worst = (np.abs(p - columns @ duals).max(), -excess.min(), np.abs(duals * excess).max())
        return float(max(worst) / (1 + p @ p))


def float_solution(rows: Float64[np.ndarray, "m d"], bounds: Int64[np.ndarray, "m"]) -> FloatSolution:
    """Solve min ‖p‖ subject to g_j·p ≥ h_j by daqp, or by NNLS where daqp returns no point.

    Rows are scaled to the same size, since otherwise floats resolve only the largest of them. If there is no feasible
    point, the residual of scipy's NNLS (Lawson–Hanson) is zero, and its u proves the infeasibility. Both solvers use
    only inner products of rows. If the rows span fewer than d dimensions, the solvers get the rows' coordinates in this
    span.

    Args:
        rows: the rows g_j.
        bounds: the right sides h_j.
    """
    sizes = np.abs(rows).max(axis=1)
    exponents = np.frexp(sizes)[1]
    smallest = int(exponents[sizes > 0].min()) if (sizes > 0).any() else 0
    design = np.vstack([np.ldexp(rows.T, -exponents), np.ldexp(bounds.astype(np.float64), smallest - exponents)])
    span = span_of_rows(design[:-1].T)
    narrow = design if span is None else np.vstack([span.coordinates(design[:-1].T).T, design[-1:]])
    target = np.zeros(len(design))
    target[-1] = 1.0
    u = _by_dual_active_set(narrow)
    if u is None:
        # Where NNLS fails, u = 0: the exact method then starts from an empty support.
        u, _ = nonnegative_least_squares(narrow, target[-len(narrow) :])
    return FloatSolution(u, design, target - design @ u)


def _by_dual_active_set(design: Float64[np.ndarray, "e m"]) -> Float64[np.ndarray, "m"] | None:
    """Return u = λ/(1 + hᵀλ) from daqp's duals λ; None where daqp returns no point."""
    d, m = len(design) - 1, design.shape[1]
    _, _, status, report = daqp.solve(
        np.eye(d),
        np.zeros(d),
        np.ascontiguousarray(design[:-1].T),
        np.full(m, UNBOUNDED),
        np.ascontiguousarray(design[-1]),
        np.zeros(m, dtype=np.int32),
        primal_tol=TOLERANCE,
    )
    if status != 1:
        return None
    duals = np.maximum(-report["lam"], 0.0)
    return np.asarray(duals / (1.0 + design[-1] @ duals))
