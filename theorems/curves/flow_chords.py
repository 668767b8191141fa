"""A check that a curve is a gradient flow also between its recorded points: pieces are integrated by another method.

A curve may be tangent to the gradient at its recorded points without being a flow between them. So *pieces* between two
successive recorded points are integrated again from their first point, with a solver of another family. A bound of how
far two flows from the same first point may differ because of their solvers' errors is computed, too. Gradient and
Hessian come from :class:`theorems.rounding.attention_at.AttentionAt`, not from the implementation under test, so that a
flow with wrong derivatives is detected, even a flow of the reference.

References: E. Hairer, G. Wanner, *Solving Ordinary Differential Equations II*, 1996 (Radau IIA, logarithmic norms).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float64
from scipy.integrate import Radau

from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.span import Span, differences_to_first, span_of_rows
from reference_attention.training.flow import Flow
from theorems.bounded import in_floats
from theorems.core.claim import Claim, Form, at_least, undecided_claim
from theorems.core.claim_name import premise
from theorems.core.tolerances import EXACT, tolerance
from theorems.rounding.attention_at import AttentionAt

CHORD = tolerance(
    "flow-chord",
    "A √d ((rtol N + max(10 rtol, 1e-9) N') ‖p‖ + (N + N') atol) + 8 d eps ‖p‖, N and"
    " N' the numbers of gradients computed for the flow and for the piece",
    "two curves of one flow from one point differ by their solvers' local errors, at most rtol‖p‖ + atol per coordinate"
    " and gradient; within the piece these errors grow by at most the factor A, which is integrated along the piece"
    " from the logarithmic norm of the flow and the turning of the curve",
)

FLOW_IS_ASKED_FOR = premise("flow-is-the-one-asked-for")
FLOW_CHORDS = premise("flow-chords")

LOOSER, RELATIVE = 10.0, 1e-9
"""The relative tolerance of a piece's integration as a multiple of the flow's tolerance, and its least value. The error
of the flow itself is N times its tolerance after N steps, so after ten steps it is as large as this multiple."""
PIECES = 3
"""The number of pieces that are checked besides the first piece: one in each third of the recorded points."""
MOST_PIECES = 12
"""The largest number of pieces that are integrated until one of them allows a check."""
VACUOUS = 1e-2
"""The bound of the solvers' errors, as a share of the length of a piece, above which the piece allows no check."""

MOST_STEPS = 200
"""The largest number of solver steps for a piece; a few suffice unless the curve turns sharply."""

FIRST = 4.0
"""The ratio of a piece's length (in the solver's variable u) to the solver's first step."""

Point = Float64[np.ndarray, "d"]


@dataclass(frozen=True, eq=False)
class Piece:
    """A piece of a flow, integrated again from its first point.

    Attributes:
        end: the last point of the piece, (d,).
        amplification: the factor ≥ 1 by which an error within the piece may grow until the end of the piece: e^{∫μ
            ds}(1 + φ), where μ is the logarithmic norm of the flow orthogonal to the curve, s the arc length, and φ the
            angle, in radians, by which the curve turns.
        evaluations: the number of gradients computed.
        failed: the reason why the piece was not integrated to its end; empty if the piece was.
    """

    end: Point
    amplification: float
    evaluations: int
    failed: str = ""


class ArcFlow:
    """The gradient flow dp/du = −(e^u/κ) ∇L/‖∇L‖ in u = log(1 + κ s), s the arc length, κ near max |key entry|."""

    def __init__(self, problem: Problem) -> None:
        """Store the problem, and as κ the largest power of two that is at most the largest |entry| of its keys."""
        self._kappa = problem.key_scale
        self._problem = problem

    def piece(self, p: Point, begin: float, end: float, relative: float, absolute: float) -> Piece:
        """Integrate the flow from p, at arc length ``begin``, to arc length ``end``, with tolerances per coordinate."""
        u, u_end = math.log1p(self._kappa * begin), math.log1p(self._kappa * end)
        span = self._span_at(p)
        y = p if span is None else span.coordinates(p)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first = (u_end - u) / FIRST
            solver = Radau(
                partial(self._velocity, span=span),
                u,
                y,
                u_end,
                rtol=relative,
                atol=absolute,
                jac=partial(self._jacobian, span=span),
                first_step=first,
            )
            growth, turn, steps = 0.0, 0.0, 0
            before = self._rates(y, span)
            while solver.status == "running" and steps < MOST_STEPS:
                steps += 1
                s_before = math.expm1(solver.t) / self._kappa
                solver.step()
                arc, after = math.expm1(solver.t) / self._kappa - s_before, self._rates(solver.y, span)
                growth, turn = growth + arc * max(before[0], after[0]), turn + arc * max(before[1], after[1])
                before = after
        finished = solver.status == "finished" and bool(np.isfinite(solver.y).all())
        failed = "" if finished else f"{solver.status} after {steps} steps at arc length {begin:.3g}"
        reached = solver.y if span is None else span.moved(p, solver.y)
        return Piece(reached, math.exp(min(growth, 700.0)) * (1 + turn), solver.nfev + steps, failed)

    def _span_at(self, p: Point) -> Span | None:
        """Return the space spanned by the key differences and p, computed without use of the flow under test."""
        return span_of_rows(np.concatenate([differences_to_first(self._problem.keys), p[None]]))

    def _unit(self, p: Point) -> Point:
        with in_floats():
            direction = AttentionAt(self._problem, p[None]).gradient[0]
        length = math.sqrt(direction @ direction)
        return -direction / length if length > 0 and math.isfinite(length) else np.zeros_like(p)

    def _velocity(self, u: float, p: Point, span: Span | None) -> Point:
        unit = self._unit(p) if span is None else span.coordinates(self._unit(span.points(p)))
        return (math.exp(u) / self._kappa) * unit

    def _jacobian(self, u: float, p: Point, span: Span | None) -> Float64[np.ndarray, "d d"]:
        unit, curvature = self._curvature(p, span)
        return (-math.exp(u) / self._kappa) * (curvature - np.outer(unit, unit @ curvature))

    def _curvature(self, p: Point, span: Span | None = None) -> tuple[Point, Float64[np.ndarray, "d d"]]:
        """Return ∇L/‖∇L‖ and ∇²L/‖∇L‖, in coordinates of ``span`` unless it is None.

        Let f_i = γ_iᵀs_i be the outputs, δk_t the keys minus the key of :attr:`.AttentionAt.token`, h_i = Σ_t s_t (γ_t
        − f_i) δk_t = ∇f_i and m_i = Σ_t s_t δk_t. Then ∇²f_i = Σ_t s_t (γ_t − f_i) δk_t δk_tᵀ − h_i m_iᵀ − m_i h_iᵀ,
        and ∇²L = (1/n) Σ_i (ℓ''_i h_i h_iᵀ − |ℓ'_i| ∇²f_i).
        """
        problem = self._problem
        with in_floats():
            at = AttentionAt(problem, (p if span is None else span.points(p))[None])
            direction, c, keys = at.gradient[0], at.coefficients[0], at.key_differences[0]
            if span is not None:
                direction, keys = span.coordinates(direction), span.coordinates(keys)
            steep = np.einsum("nt,ntd->nd", c, keys)
            means = np.einsum("nt,ntd->nd", at.weights[0], keys)
            slopes = np.exp(np.minimum(at.log_scale[0] - at.log_slopes[0], 700.0))
            bent = (problem.loss.relative_curvature(at.outputs[0]) * slopes)[:, None] * steep
            cross = steep.T @ means
            curvature = (steep.T @ bent + cross + cross.T - np.einsum("nt,ntd,nte->de", c, keys, keys)) / problem.n
        length = math.sqrt(direction @ direction)
        if length == 0 or not math.isfinite(length):
            return np.zeros_like(p), np.zeros_like(curvature)
        return direction / length, curvature / length

    def _rates(self, p: Point, span: Span | None) -> tuple[float, float]:
        """Return the logarithmic norm of the flow orthogonal to its curve at p, and the curvature of the curve.

        With P the projection orthogonal to ∇L, the logarithmic norm is the largest eigenvalue of −P∇²L P/‖∇L‖, or 0 if
        that is negative, and the curvature is ‖P∇²L ∇L‖/‖∇L‖².
        """
        unit, curvature = self._curvature(p, span)
        across = np.eye(len(p)) - np.outer(unit, unit)
        bent = across @ curvature
        return max(0.0, -float(np.linalg.eigvalsh(bent @ across)[0])), float(np.linalg.norm(bent @ unit))


def start_and_norms(flow: Flow, start: Point, norm: float) -> Claim:
    """Return the claim that a flow begins at the start, bit by bit, and that its reported norms are right.

    The claim also says that the last point has the requested norm if the flow reports that it reached this norm.
    """
    norms, wrong = np.linalg.norm(flow.points, axis=1), ""
    if not np.array_equal(flow.points[0], start):
        wrong = f"the flow begins {np.abs(flow.points[0] - start).max():.3g} away from the start"
    elif not np.allclose(norms, flow.norms, rtol=8 * len(start) * EPS, atol=0):
        wrong = "the reported norms are not those of the flow's points"
    elif flow.reached_norm and not math.isclose(norms[-1], norm, rel_tol=8 * len(start) * EPS):
        wrong = f"the flow ends at norm {norms[-1]:.6g}, not at {norm:.6g}"
    return Claim(FLOW_IS_ASKED_FOR, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, wrong)


def chords(problem: Problem, flow: Flow, rng: np.random.Generator) -> Claim:
    """Claim p_{k+1} − p_k = −∫ ∇L/‖∇L‖ ds along the curve between records p_k, for the first piece and some others."""
    again = ArcFlow(problem)
    points, last = flow.points, len(flow.points) - (1 if flow.reached_norm else 2)
    d = points.shape[1]
    looser = max(LOOSER * flow.relative, RELATIVE)
    # The last piece of a flow that ends at a stationary point is left out, because the solver does not follow the flow
    # to this point.
    thirds = np.array_split(np.arange(1, last), PIECES)
    sampled = [0, *(int(rng.choice(part)) for part in thirds if part.size)] if last > 0 else []
    others = [k for k in range(last) if k not in sampled]
    ends: list[tuple[float, float, float]] = []
    why = "the flow has fewer than two points"
    for count, k in enumerate((*sampled, *others)):
        if (count >= len(sampled) and ends) or count == MOST_PIECES:
            break
        begin, end = flow.arc_length[k], flow.arc_length[k + 1]
        piece = again.piece(points[k], begin, end, looser, flow.absolute)
        size = max(flow.norms[k], flow.norms[k + 1])
        relative = (flow.relative * flow.evaluations + looser * piece.evaluations) * size
        both = relative + (piece.evaluations + flow.evaluations) * flow.absolute
        rounding = piece.amplification * math.sqrt(d) * both + 8 * d * EPS * size
        if piece.failed or not rounding <= VACUOUS * (end - begin):
            why = piece.failed or f"the tolerance of a piece is {rounding:.3g} on an arc of {end - begin:.3g}"
            continue
        ends.append((float(np.linalg.norm(piece.end - points[k + 1])), rounding, end - begin))
    if not ends:
        why = f"no piece of the flow could be checked: {why}"
        return undecided_claim(FLOW_CHORDS, why, Form.LIMIT, not_found=True)
    apart, allowed, arc = np.array(ends).T
    return at_least(FLOW_CHORDS, Form.LIMIT, 0.0, apart, rounding=allowed, scale=arc, why=CHORD, points="piece")
