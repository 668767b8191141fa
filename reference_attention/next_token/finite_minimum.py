"""An enclosure of θ_⋆, the finite part of training's limit: on F, the minimiser of the loss on extended supports.

The notation is that of :mod:`.master_problem`, and F, Ŝ_j are the subspace and the extended supports of
:mod:`.subspace_split`. θ_⋆ is the limit of P_Fθ in training, and the unique minimiser on F of the restricted loss
L_fin(θ) = Σ_j π_j [log Σ_{v∈Ŝ_j} e^{ℓ_jv(θ)} − Σ_v p_jv ℓ_jv(θ)]. Newton's method computes a rational point θ̂ of F
near θ_⋆. Along a step h the term φ_j of each context satisfies |φ_j'''| ≤ R φ_j'', where R is the largest range of
a_jv·h over one Ŝ_j, so the damped step h log(1 + R)/R decreases L_fin. With D_F the largest diameter of a set {a_jv : v
∈ Ŝ_j}, λ the least eigenvalue of H = ∇²L_fin(θ̂) on F and f(s) = L_fin(θ̂ + s h) for a unit vector h ∈ F,
self-concordance |f'''| ≤ D_F f'' gives f'(s) ≥ −‖∇L_fin(θ̂)‖ + λ(1 − e^{−D_F s})/D_F. So

    ‖θ̂ − θ_⋆‖ ≤ −log(1 − D_F‖∇L_fin(θ̂)‖/λ)/D_F,

evaluated in ball arithmetic (numbers with error radii) of :data:`.subspace_split.BITS` bits.

References: Bach, *Self-concordant analysis for logistic regression*, 2010; F. Johansson, *Arb* (2017).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx, fmpq
from jaxtyping import Float64

from reference_attention.exact import products, rational, to_float
from reference_attention.next_token.master_problem import Vector
from reference_attention.next_token.subspace_split import BITS, Split
from reference_attention.svm.ball_matrices import above, below, least_eigenvalue, multiply

STEPS = 100
"""Largest number of steps of Newton's method in floats; it usually takes about ten damped steps."""
POLISHED = 40
"""Largest number of Newton steps in ball arithmetic, after those in floats; each roughly doubles the correct digits."""
UNDAMPED = 1e-3
"""A Newton step that changes no logit difference by more than this number is not damped."""
CLOSE = 2.0**-200
"""Largest accepted radius of the enclosure of θ_⋆, relative to 1 + ‖θ_⋆‖; so small that only rounding to floats limits
the quantities derived from θ_⋆."""
DOUBLED = 30
"""Largest number of times that the damping factor of a Newton step is doubled."""
ENOUGH = -250
"""The exponent e; Newton's method ends as soon as ‖θ̂ − θ_⋆‖ < 2^e is proven."""


@dataclass(frozen=True, eq=False)
class FiniteMinimum:
    """The minimiser θ_⋆ of the restricted loss, enclosed in a ball around a rational point (symbols: see the module).

    Attributes:
        split: the subspace F and the extended supports Ŝ_j.
        point: the center θ̂ ∈ F of the ball, D rationals.
        lost: the reason, with the remaining gradient, if Newton's method ended too early for a small enclosure;
            otherwise empty.
    """

    split: Split
    point: Vector
    lost: str = ""

    @cached_property
    def at(self) -> LossInBalls:
        """Return L_fin and its derivatives at θ̂, in ball arithmetic."""
        return LossInBalls.of(self.split, self.point)

    @cached_property
    def radius(self) -> arb:
        """Return an upper bound of ‖θ̂ − θ_⋆‖; it is not finite if nothing is proven."""
        with ctx.workprec(BITS):
            gradient = norm_of(self.at.gradient)
            if self.split.dimension == 0:
                return arb(0)
            span = diameter(self.split)
            share = span * gradient / arb(self.curvature_below)
            return -(1 - share).log() / span if share < 1 else arb.pos_inf()

    @cached_property
    def curvature_below(self) -> float:
        """Return a lower bound of the least eigenvalue of H = ∇²L_fin(θ̂) on F, 0 if nothing is proven, ∞ if F = {0}.

        The bound is computed as 1/λ_max(H⁻¹): H is a sum of squares, so the largest eigenvalue of its inverse is
        accurate however ill-conditioned H is.
        """
        if self.split.dimension == 0:
            return float("inf")
        with ctx.workprec(BITS):
            try:
                inverse = self.at.hessian.inv()
            except ZeroDivisionError:
                return 0.0
            if not all(x.is_finite() for x in inverse.entries()):
                return 0.0
            largest = -least_eigenvalue(multiply(inverse, arb(-1)))
            return max(below(1 / largest), 0.0) if largest > 0 else 0.0

    @cached_property
    def floats(self) -> Float64[np.ndarray, "D"]:
        """Return the rational point θ̂, each entry rounded once to a float."""
        return np.array([to_float(x) for x in self.point])

    @cached_property
    def norm(self) -> float:
        """Return an upper bound of ‖θ_⋆‖."""
        with ctx.workprec(BITS):
            return above(norm_of([arb(x) for x in self.point]) + self.radius)

    @cached_property
    def log_shares(self) -> Float64[np.ndarray, "m K"]:
        """Return ℓ_jv(θ_⋆) − log Σ_{z∈Ŝ_j} e^{ℓ_jz(θ_⋆)}, shape (m, K); −∞ where v is no alternative of context j.

        For v ∈ Ŝ_j the number is named log q⋆_jv: q⋆_j is the softmax over Ŝ_j at θ_⋆. For other alternatives it is
        named log w⋆_jv.
        """
        return self._round(lambda x: float(x.mid()), -np.inf)

    @cached_property
    def shares(self) -> Float64[np.ndarray, "m K"]:
        """Return the exponentials of :attr:`log_shares`: q⋆_jv for v ∈ Ŝ_j, and w⋆_jv for other alternatives."""
        return self._round(lambda x: float(x.exp().mid()), 0.0)

    @cached_property
    def value(self) -> arb:
        """Return the infimum L_⋆ of the loss L, as a ball; it equals L_fin(θ_⋆)."""
        return self.at.value

    def _round(self, number: object, missing: float) -> Float64[np.ndarray, "m K"]:
        """Return every log share, converted by ``number``, (m, K); ``missing`` where there is no alternative."""
        out = np.full(self.split.problem.counts.shape, missing)
        with ctx.workprec(BITS):
            for pair, log_share in self.at.log_shares.items():
                out[pair] = number(log_share)  # type: ignore[operator]
        return out


@dataclass(frozen=True, eq=False)
class LossInBalls:
    """The restricted loss L_fin and its derivatives at a point θ of F, in ball arithmetic (symbols: see the module).

    Attributes:
        log_shares: ℓ_jv(θ) − log Σ_{z∈Ŝ_j} e^{ℓ_jz(θ)} of all alternatives, by pairs (j, v).
        value: the value L_fin(θ).
        gradient: ∇L_fin in coordinates of F, r balls.
        hessian: ∇²L_fin in coordinates of F, (r, r) balls.
    """

    log_shares: dict[tuple[int, int], arb]
    value: arb
    gradient: list[arb]
    hessian: arb_mat

    @classmethod
    def of(cls, split: Split, point: Vector) -> LossInBalls:
        """Return L_fin and its derivatives at the point θ, given as D rationals."""
        problem, r = split.problem, split.dimension
        rows = problem.differences
        logits = dict(zip(rows, (-x for x in products(list(rows.values()), point)), strict=True))
        with ctx.workprec(BITS):
            shares: dict[tuple[int, int], arb] = {}
            value, roots, weights, residual = arb(0), [], [], []
            for j in range(problem.contexts):
                alternatives = np.flatnonzero(problem.alternatives[j]).tolist()
                level = [
                    arb(logits.get((j, v), fmpq(0))) + arb(int(problem.multiplicities[j, v])).log()
                    for v in alternatives
                ]
                inside = [v for v in alternatives if split.sets[j, v]]
                total = sum(
                    (x.exp() for v, x in zip(alternatives, level, strict=True) if split.sets[j, v]), arb(0)
                ).log()
                log_softmax = {v: x - total for v, x in zip(alternatives, level, strict=True)}
                shares.update({(j, v): x for v, x in log_softmax.items()})
                pi, target = problem.weights[j], problem.targets[j]
                value -= arb(pi) * sum((arb(target[v]) * log_softmax[v] for v in inside), arb(0))
                coordinates = [split.spanned[j, v] if (j, v) in rows else [arb(0)] * r for v in inside]
                mass = [log_softmax[v].exp() for v in inside]
                mean = [sum((q * row[k] for q, row in zip(mass, coordinates, strict=True)), arb(0)) for k in range(r)]
                for v, q, row in zip(inside, mass, coordinates, strict=True):
                    weights.append(arb(pi) * q)
                    residual.append(arb(pi) * (q - arb(target[v])))
                    roots.append([x - y for x, y in zip(row, mean, strict=True)])
            if r == 0:
                return cls(shares, value, [], arb_mat(0, 0))
            centred = arb_mat(roots)
            scaled = arb_mat([[x * w for x in row] for row, w in zip(roots, weights, strict=True)])
            gradient = (arb_mat(1, len(residual), residual) * centred).entries()
            return cls(shares, value, list(gradient), scaled.transpose() * centred)


def finite_minimum(split: Split) -> FiniteMinimum:
    """Return the minimiser θ_⋆ of the restricted loss L_fin, with a bound of its error, :attr:`FiniteMinimum.radius`.

    >>> from reference_attention.next_token.master_problem import MasterProblem
    >>> problem = MasterProblem.of_tokens([[1.0]], [[2, 1, 0]])
    >>> found = finite_minimum(Split.of(problem, problem.supports))
    >>> found.shares.round(3), found.floats.round(3)
    (array([[0.667, 0.333, 0.471]]), array([ 0.347, -0.347,  0.   ]))
    """
    r = split.dimension
    if r == 0:
        return FiniteMinimum(split, [fmpq(0)] * split.problem.dimension)
    x = _newton(split)
    basis = split.spanning
    # Convert coordinates in the orthonormal basis (floats) to weights of the rational basis, which is not normalized.
    lengths = [rational(to_float(s) ** 0.5) for s in split.spanning_squares]
    weights = [rational(c) / size for c, size in zip(x.tolist(), lengths, strict=True)]
    minimum = FiniteMinimum(split, _combine(basis, weights))
    radii: list[arb] = []
    for _ in range(POLISHED):
        radii.append(minimum.radius)
        if radii[-1] < arb(2) ** ENOUGH or _is_at_rest(radii):
            break
        step = _ball_step(minimum)
        if step is None:
            break
        weights = [w - c for w, c in zip(weights, step, strict=True)]
        minimum = FiniteMinimum(split, _combine(basis, weights))
    if minimum.radius < CLOSE * (1 + minimum.norm):
        return minimum
    gradient_norm = float(norm_of(minimum.at.gradient).mid())
    return replace(
        minimum, lost=f"Newton's method ended at a gradient of length {gradient_norm:.3g}, too long for an enclosure"
    )


def _is_at_rest(radii: list[arb]) -> bool:
    """Return whether the last step did not even halve a finite radius, so that only rounding errors of balls remain."""
    return len(radii) > 1 and radii[-1].is_finite() and bool(not radii[-1] < radii[-2] / 2)


def _ball_step(minimum: FiniteMinimum) -> list[fmpq] | None:
    """Return a damped Newton step in ball arithmetic, as weights of the rational basis; None if H may be singular."""
    split = minimum.split
    r, rows = split.dimension, split.spanned
    with ctx.workprec(BITS):
        try:
            step = minimum.at.hessian.solve(arb_mat(r, 1, minimum.at.gradient)).entries()
        except ZeroDivisionError:
            return None
        if not all(c.is_finite() for c in step):
            return None
        ranges = [0.0]
        for j in range(split.problem.contexts):
            inside = [rows[j, v] for v in np.flatnonzero(split.sets[j]).tolist() if (j, v) in rows]
            logit_changes = [sum((c * x for c, x in zip(step, row, strict=True)), arb(0)) for row in inside]
            ends = [0.0, *(float(x.mid()) for x in logit_changes)]
            ranges.append(max(ends) - min(ends))
        scale = arb(damping(max(ranges)))
        return [_dyadic(scale * c * arb(s).rsqrt()) for c, s in zip(step, split.spanning_squares, strict=True)]


def damping(moved: float, slope: Callable[[float], float] | None = None) -> float:
    """Return the damping factor log(1 + R)/R of a Newton step that moves logits of a context apart by up to R.

    Args:
        moved: the number R.
        slope: a function from a factor to the derivative of the loss along the step, at this factor times the step;
            while the derivative is negative at twice the factor, the factor is doubled.
    """
    if not moved > UNDAMPED:
        return 1.0
    share = float(np.log1p(moved)) / moved
    for _ in range(DOUBLED if slope else 0):
        assert slope is not None
        if not slope(2 * share) < 0:
            break
        share *= 2
    return share


def _newton(split: Split) -> Float64[np.ndarray, "r"]:
    """Return the point at which damped Newton steps in floats end, before the first step that is not finite."""
    problem, sets = split.problem, split.sets
    rows = split.spread({pair: [float(x.mid()) for x in row] for pair, row in split.spanned.items()}, split.dimension)
    with np.errstate(divide="ignore"):
        logs = np.where(sets, np.log(problem.multiplicities), -np.inf)
    total = problem.counts.sum()
    pi, p = problem.counts.sum(axis=1) / total, problem.counts / problem.counts.sum(axis=1, keepdims=True)
    x = np.zeros(split.dimension)

    def shares(at: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "m K"]:
        logits = rows @ at + logs
        q = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(q / q.sum(axis=1, keepdims=True))

    for _ in range(STEPS):
        q = shares(x)
        centred = rows - np.einsum("jv,jvr->jr", q, rows)[:, None]
        gradient = np.einsum("j,jv,jvr->r", pi, q - p, rows)
        hessian = np.einsum("j,jv,jvr,jvs->rs", pi, q, centred, centred)
        # Rescale the coordinates so that the diagonal of the Hessian is 1.
        unit = np.diag(hessian) ** -0.5
        if not np.isfinite(unit).all() or not np.isfinite(hessian).all():
            break
        step = unit * np.linalg.lstsq(hessian * unit[:, None] * unit, gradient * unit, rcond=None)[0]
        logit_changes = np.where(sets, rows @ step, 0.0)
        size = float((logit_changes.max(axis=1) - logit_changes.min(axis=1)).max())
        if not np.isfinite(size):
            break
        ahead = -logit_changes

        def slope(s: float, x: Any = x, step: Any = step, ahead: Any = ahead) -> float:
            return float(pi @ ((shares(x - s * step) - p) * ahead).sum(axis=1))

        x = x - step * damping(size, slope)
        if size < 1e-12:
            break
    return np.asarray(x)


def _dyadic(ball: arb) -> fmpq:
    """Return the midpoint of a ball, exactly."""
    mantissa, exponent = ball.mid().man_exp()
    return fmpq(mantissa) * fmpq(2) ** int(exponent)


def _combine(basis: list[Vector], weights: Vector) -> Vector:
    """Return Σ_j weights_j basis_j over the rationals."""
    return [sum((w * row[k] for w, row in zip(weights, basis, strict=True)), fmpq(0)) for k in range(len(basis[0]))]


def norm_of(vector: list[arb]) -> arb:
    """Return an upper bound of ‖x‖_2, without the squares of balls around 0, which contain negative numbers."""
    sizes = [x.abs_upper() for x in vector]
    return sum((x * x for x in sizes), arb(0)).sqrt()


def diameter(split: Split) -> arb:
    """Return D_F, the largest ‖a_jv − a_jz‖ over all contexts j and v, z ∈ Ŝ_j, as a ball."""
    problem, largest = split.problem, fmpq(0)
    for j in range(problem.contexts):
        rows = [problem.differences.get((j, v)) for v in np.flatnonzero(split.sets[j]).tolist()]
        ends = [row if row is not None else [fmpq(0)] * problem.dimension for row in rows]
        for k, end in enumerate(ends):
            for other in ends[:k]:
                largest = max(largest, sum(((x - y) ** 2 for x, y in zip(end, other, strict=True)), fmpq(0)))
    with ctx.workprec(BITS):
        return arb(largest).sqrt()
