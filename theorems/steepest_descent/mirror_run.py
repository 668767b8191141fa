"""Runs of mirror descent with ψ = ‖p‖_q^q/q: the dual points z = ∇ψ(p), and bounds of their rounding errors.

γ is the largest margin in ‖·‖_q, p̄ the point that attains it at ‖p̄‖_q = 1, and ‖·‖_* the dual norm. The derivation is
in :mod:`.mirror_one_input`.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.exact import to_float
from reference_attention.floats import EPS
from reference_attention.norms import Blocks, Schatten, conjugate_power
from reference_attention.risk import scaled_gradient
from reference_attention.training.steepest_descent import mirror_descent, primal_point
from theorems.bounded import exact, value_of, with_rounding
from theorems.core.claim import Claim, Ended, Form, NotANumber, Verdict, at_least
from theorems.core.claim_name import premise, sharper
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.rounding.descent_steps import starts_claim, steps_claim
from theorems.steepest_descent.geometry import Geometry
from theorems.steepest_descent.norms import norm_of

MIRROR_ROUNDING = tolerance(
    "mirror-rounding",
    "the error bounds of both sides, where the error of z is the sum over steps of"
    " η|δ∇L| + eps (|z(t+1)| + (8 + d + 2|log η∇L|)|Δz|) by coordinate, and that of p is (4 + 2|log|z||/(q−1)) eps |p|",
    "gradients have the error of AttentionAt.gradient_of, at the p that a power computes from z; z is rounded once per"
    " step",
)
FARTHEST = 1e3
"""The approximate largest ‖p‖_q at the end of a run, in units of ‖p(0)‖_q."""
SMALLEST = 1e-300
"""A number that replaces 0 in logarithms, smaller than all positive numbers in this module."""
RUN_IS_ASKED_FOR = premise("mirror-run-is-the-one-asked-for")
IS_A_STEP = premise("iterate-is-a-mirror-step")
MIRROR_PREMISES = (RUN_IS_ASKED_FOR, IS_A_STEP)
CLIMBS, NORM_GROWS = sharper("dual-climbs"), sharper("dual-norm-grows")
POSITIVE = "the bound on the cosine becomes positive"
TURNS, CLOSE = (sharper(name, when=POSITIVE) for name in ("dual-turns", "direction-is-close"))
MIRROR_CLAIMS = (CLIMBS, NORM_GROWS, TURNS, CLOSE)


@dataclass(frozen=True, eq=False)
class MirrorRun:
    """A run of mirror descent, its gradients and its errors, with the notation of the module.

    Attributes:
        geometry: rows and γ in ‖·‖_q.
        z: the dual points ∇ψ(p), floats, (t + 1, b, d).
        at: attention evaluated at p(0) … p(t−1) of all b runs, as t·b points.
        gradient: ∇L e^{−log_scale} under test at these points, (t, b, d).
        log_step: log η of each step, less log‖∇L‖_* if steps are normalized, (t, b).
        step_error: bounds of the error of each step of z, (t, b, d).
    """

    geometry: Geometry
    z: Numbers
    at: AttentionAt
    gradient: Numbers
    log_step: Numbers
    step_error: Float64[np.ndarray, "t b d"]

    @property
    def power(self) -> float:
        """The power q of ψ and of ‖·‖_q."""
        return power_of(self.geometry)

    @cached_property
    def p(self) -> Numbers:
        """The primal points p, (t + 1, b, d), with the rounding error of the power that computes them from z."""
        z = value_of(self.z)
        p = primal_point(z, self.power)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(z == 0, 0.0, np.abs(np.log(np.abs(z))))
        return exact(p).widen((4 + 2 * logs / (self.power - 1)) * EPS * np.abs(p))

    @cached_property
    def size(self) -> Numbers:
        """The dual norms N = ‖z‖_*, (t + 1, b)."""
        return self.geometry.dual_length(self.z)

    @cached_property
    def norms(self) -> Numbers:
        """The norms ‖p‖_q, (t + 1, b)."""
        return self.geometry.length(self.p)

    @cached_property
    def best(self) -> Numbers:
        """The max-margin point p̄: the solution divided by its norm, of margin γ up to the solver's error, (d,)."""
        p = with_rounding(self.geometry.solution.p)
        return p / self.geometry.length(p)

    @cached_property
    def largest(self) -> Numbers:
        """The upper bound ‖Σλg‖_*/Σλ of γ, from the duals λ of the solution and the rows g."""
        solution = self.geometry.solution
        combined = with_rounding(np.array([to_float(x) for x in solution.row_combination]))
        return self.geometry.dual_length(combined) / with_rounding(
            to_float(sum(solution.exact_duals[1:], solution.exact_duals[0]))
        )

    @cached_property
    def step_lengths(self) -> Numbers:
        """The lengths ‖η∇L‖_* of the steps of z, (t, b)."""
        scale = self.at.log_scale.reshape(self.log_step.shape)
        return np.exp(np.minimum(self.log_step + scale, 700.0)) * self.geometry.dual_length(self.gradient)

    @cached_property
    def remainder(self) -> Numbers:
        """The upper bound B, (t, b), of the rise of ψ*, the conjugate of ψ, in a step beyond the first-order term."""
        r = conjugate_power(self.power)
        step = self.step_lengths + norm_of(exact(self.step_error), r)
        if r <= 2:
            factor = 2 ** (2 - r) / r * (1 + 4 * EPS)
            return np.exp(np.log(np.maximum(step, SMALLEST)) * r) * factor
        total = self.size[:-1] + step
        return step * step * np.exp(np.log(total) * (r - 2)) * ((r - 1) / 2 * (1 + 4 * EPS))

    def claims(self, climbed: Numbers, outward: Numbers, inside: np.ndarray) -> Iterator[Claim]:
        """Yield claims on ⟨z, p̄⟩, on ‖z‖_*, on their quotient and on the direction of p, at the steps ``inside``.

        Args:
            climbed: the proven rise of ⟨z, p̄⟩ at each step, (t, b).
            outward: an upper bound of ⟨−η∇L, p⟩ at each step, (t, b).
            inside: a mask, (t, b), of the steps at which, as at all earlier steps, the bounds are proven.
        """
        options: dict[str, Any] = {"why": MIRROR_ROUNDING, "points": "iterate"}
        step_error = np.cumsum(
            value_of(np.sum(exact(self.step_error) * np.abs(value_of(self.best)), axis=-1)) * (1 + 8 * EPS), axis=0
        )
        along, least = self.z @ self.best, np.cumsum(climbed, axis=0)
        advance = (along[1:] - along[:1]).widen(step_error)
        yield at_least(CLIMBS, Form.EFFECTIVE, advance[inside], least[inside], **options)
        # The error of a step also changes the product of the step and p.
        lost = value_of(np.sum(exact(self.step_error) * np.abs(value_of(self.p[:-1])), axis=-1)) * (1 + 8 * EPS)
        each = (outward + lost + self.remainder) / self.norms[:-1]
        grown = self.size[1:] - self.size[:-1]
        yield at_least(NORM_GROWS, Form.EFFECTIVE, each[inside], grown[inside], **options)
        most, least = self.size[:1] + np.cumsum(each, axis=0), along[:1] + least - step_error
        # A negative lower bound, divided by an upper bound of the norm, is no lower bound of the quotient.
        informative = inside & np.asarray(least > 0)
        if not informative.any():
            return
        cosine = along[1:] / self.size[1:]
        yield at_least(TURNS, Form.EFFECTIVE, cosine[informative], least[informative] / most[informative], **options)
        apart = self.geometry.length(self.p[1:] / self.norms[1:][..., None] - self.best)
        yield at_least(CLOSE, Form.EFFECTIVE, distance(cosine, self.power)[informative], apart[informative], **options)


def distance(cosine: Numbers, power: float) -> Numbers:
    """Return a bound of ‖u − v‖_q for ‖u‖_q = ‖v‖_q = 1, where ``cosine`` is ⟨u*, v⟩ with the dual vector u* of u.

    The dual vector has ⟨u*, u⟩ = ‖u*‖_* = 1. The bound is 2(1 − (1−d/2)^q)^{1/q} for q ≥ 2 and 2((1 −
    (1−d/2)²)/(q−1))^{1/2} for q ≤ 2, where d = 1 − cosine.
    """
    # Take the root of the upper bound of d: near 0 the value of d is only a rounding error.
    half_d = (1 - cosine) / 2
    half = exact(np.clip(half_d.value + half_d.error, 0.0, 1.0))
    if power <= 2:
        return 2 * np.sqrt(half * (2 - half) / (power - 1))
    missed = -np.expm1(power * np.log1p(-half))
    above = exact((missed.value + missed.error) * (1 + 4 * EPS) + SMALLEST)
    return 2 * np.exp(np.log(above) / power)


def follow_mirrored(
    geometry: Geometry,
    under_test: Implementation,
    starts: Float64[np.ndarray, "b d"],
    steps: int,
    log_step: float,
    normalized: bool,
) -> Generator[Claim, None, MirrorRun]:
    """Yield the claims that the run under test is mirror descent, and return the run.

    Args:
        geometry: rows and γ in ‖·‖_q.
        under_test: the implementation under test.
        starts: p(0), (b, d).
        steps: the number of steps.
        log_step: log η of plain steps; of normalized steps, the logarithm of their length ‖η∇L‖_*.
        normalized: True if steps are normalized.

    Raises:
        Ended: the start or the number of points is not as requested, or a step is not a step of mirror descent.
        NotANumber: a dual point is not finite.
    """
    problem, power = geometry.problem, power_of(geometry)
    z = under_test[mirror_descent](
        problem,
        starts,
        steps=steps,
        log_step=log_step,
        norm=power,
        normalized=normalized,
        gradient=under_test[scaled_gradient],
    )
    begin = np.sign(starts) * np.abs(starts) ** (power - 1)
    claim = starts_claim(RUN_IS_ASKED_FOR, z, begin, steps)
    yield claim
    if claim.verdict is Verdict.FALSIFIED:
        raise Ended(claim.name)
    if not np.isfinite(z).all():
        raise NotANumber(IS_A_STEP, "a dual point is not finite")
    before, after = z[:-1], z[1:]
    at = AttentionAt(problem, primal_point(before, power).reshape(-1, problem.d))
    gradient = at.gradient_of(under_test, IS_A_STEP).reshape(before.shape)
    log_scale = at.log_scale.reshape(before.shape[:-1])
    logs: Any = exact(np.full(log_scale.shape, log_step))
    if normalized:
        logs = logs - log_scale - np.log(geometry.dual_length(gradient))
    # The error of log η is added to the error of the gradient.
    with np.errstate(over="ignore", invalid="ignore"):
        relative = np.expm1(2 * logs.error)[..., None]
        unknown = gradient.widen(np.where(value_of(gradient) == 0, 0.0, np.abs(value_of(gradient)) * relative))
    yield steps_claim(IS_A_STEP, before, after, unknown, log_scale, logs.value)
    exponent = np.minimum(logs.value + log_scale, 700.0)
    rounding = 8 + problem.d + 2 * np.abs(logs.value) + 2 * np.abs(log_scale)
    step_error = np.exp(exponent)[..., None] * unknown.error * (1 + 16 * EPS)
    step_error = step_error + EPS * (np.abs(after) + rounding[..., None] * np.abs(after - before))
    return MirrorRun(geometry, exact(z), at, gradient, logs, step_error)


def power_of(geometry: Geometry) -> float:
    """Return the q of ‖·‖_q."""
    assert not isinstance(geometry.norm, Schatten | Blocks), (
        "mirror descent is only defined here for norms ‖·‖_q of the entries, not for norms of matrices"
    )
    return geometry.norm


def first_length(geometry: Geometry, starts: Float64[np.ndarray, "b d"], share: float, steps: int) -> float:
    """Return the logarithm of the first step's length ‖z(1) − z(0)‖_*.

    The length is ``share`` times the larger of ‖z(0)‖_* and ‖z‖_* at ‖p‖ = 1/``Problem.key_scale``. It is reduced if
    ``steps`` steps of this length would take ‖p‖ beyond :data:`FARTHEST` times its first value.
    """
    power = power_of(geometry)
    share = min(share, FARTHEST ** (power - 1) / steps)
    sizes = np.asarray(value_of(geometry.length(exact(np.abs(starts)))))
    unit = max(float(sizes.max()), 1 / geometry.problem.key_scale) ** (power - 1)
    return math.log(share * unit)
