"""Claims that the steps of a run are Adam's, and the bounds κ_t and ρ_t of the steps, which Lemma 0 needs.

The inner product of step A_t and gradient is at least κ_tG, and no entry of a step is larger than ρ_t in modulus. G,
called Z for attention, is a sum of probabilities that is comparable to the gradient's norm. The derivations are in
:mod:`.adam_max_margin`, Lemma 0 in :mod:`.inexact_steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from reference_attention.floats import EPS
from reference_attention.training.derivatives import BatchField
from theorems.adaptive_methods.adam import Betas, adam_descent, adam_direction, next_moments
from theorems.adaptive_methods.inexact_steps import LARGEST_EXPONENT
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import premise, sharper
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance
from theorems.rounding.attention_at import Numbers
from theorems.steepest_descent.steepest_run import STEEPEST_ROUNDING, StepSchedule, claim_start

ADAM_ROUNDING = tolerance(
    "adam-rounding",
    "error bounds of M_t/√V_t, summed over all gradients so far,"
    " and eps (20 + (6 + 4 |log scale|) t) ρ η + eps |W(t+1)|",
    "at every step a loop adds a gradient to both moments and rescales them, with a few roundings and one exponential"
    " each; where V_t is not resolved, because terms of a gradient cancel, an entry is only claimed to be at most ρ_t",
)
IS_ADAM = premise("iterate-is-a-step-of-adam")
IS_SHORT = premise("step-is-within-cauchy-schwarz")
DIRECTION = sharper("step-follows-gradient")
ADAM_PREMISES = (IS_ADAM, IS_SHORT)


@dataclass(frozen=True, eq=False)
class AdamBounds:
    """The constants of the statements on Adam for lengths η_t and rates β1² < β2 (symbols: :mod:`.adam_max_margin`).

    Attributes:
        schedule: the lengths η_t; its momentum is not used.
        betas: β1, β2.
        reach: D, the largest dual norm of a row.
        margin: γ, the largest margin.
        moves: a bound of the change of a row's log-weight per unit of length in ‖·‖_∞; at least D.
        further: χ_{t,s}: how much a row's log-weight may change between steps t−s and t in addition to the change that
            the length moved causes; a number, or an array (t, t) with χ_{t,s} at (t, t−s).
        excess: the relative amount by which computed steps may be longer than η_tρ_t.
    """

    schedule: StepSchedule
    betas: Betas
    reach: Numbers
    margin: Numbers
    moves: Numbers
    further: Any = 0.0
    excess: float = 0.0

    @property
    def first(self) -> Numbers:
        """The decay rate β1, taken as exact."""
        return exact(self.betas.first)

    @property
    def second(self) -> Numbers:
        """The decay rate β2."""
        return exact(self.betas.second)

    def memory(self, beta: float) -> Numbers:
        """Return the weights (1 − β)β^{t−s} of gradients s ≤ t in a moment at step t, and 0 for s > t, (t, t)."""
        return np.exp(StepSchedule(self.schedule.lengths, beta).log_memory) * (1 - exact(beta))

    @cached_property
    def most(self) -> Numbers:
        """The bound c = (1 − β1)/√((1 − β2)(1 − β1²/β2)) of |M_t|/√V_t for Adam's moments M_t, V_t; 1 where β1 = β2."""
        if self.betas.first == self.betas.second:
            return exact(1.0)
        return (1 - self.first) / np.sqrt((1 - self.second) * (1 - self.first * self.first / self.second))

    @cached_property
    def shares(self) -> tuple[Numbers, Numbers]:
        """The sum of M_t's weights, a_t = 1 − β1^{t+1}, and the root b_t of the sum of V_t's weights, each (t,)."""
        a: Any = np.sum(self.memory(self.betas.first), axis=1)
        b: Any = np.sqrt(np.sum(self.memory(self.betas.second), axis=1))
        return a, b

    @cached_property
    def correction(self) -> Numbers:
        """The bias correction of M/√V: the factor b_t/a_t of :attr:`shares`, or 1 without bias correction, (t,)."""
        a, b = self.shares
        return b / a if self.betas.corrected else exact(np.ones(len(self.schedule.lengths)))

    @cached_property
    def rho(self) -> Numbers:
        """The bounds ρ_t, (t,), of the moduli of the entries of A_t, which is Adam's step for η_t = 1."""
        return self.most * self.correction

    @cached_property
    def moved(self) -> Numbers:
        """The bounds η_tρ_t of the lengths of the steps, rounding included, (t,)."""
        return exact(self.schedule.lengths) * self.rho * (1 + self.excess)

    @cached_property
    def time(self) -> Numbers:
        """The bounds Σ_{s≤t} η_sρ_s of the length moved up to and including step t, (t,)."""
        return np.cumsum(self.moved)

    @cached_property
    def since(self) -> Numbers:
        """The bound Σ_{s≤r<t} η_rρ_r of the length moved between steps s and t, at position (t, s); 0 for s ≥ t."""
        before = self.time - self.moved
        return np.maximum(before[:, None] - before[None], 0.0)

    @cached_property
    def change(self) -> Numbers:
        """The bounds e^{Dℓ_s + χ_{t,s}} − 1 of the relative change of a row's weight in s steps before t, at (t, t−s).

        D is ``moves`` and ℓ_s a bound of the length of these s steps. Entries for s ≤ 0 are 0.
        """
        exponent: Any = np.minimum(self.moves * self.since + self.further, LARGEST_EXPONENT)
        steps = np.arange(len(self.schedule.lengths))
        return np.where(steps[:, None] > steps[None], np.expm1(exponent), 0.0)

    @cached_property
    def kappa(self) -> Numbers:
        """The lower bounds κ_t, (t,), of ⟨∇L, A_t⟩/G, where A_t is Adam's step for η_t = 1.

        κ = (a/b)γ − D(τ/b + max(aσ/b², cτ/a)), multiplied by b/a with bias correction; :mod:`.adam_max_margin` defines
        the symbols.
        """
        a, b = self.shares
        tau: Any = np.sum(self.memory(self.betas.first) * self.change, axis=1)
        squares: Any = np.sum(self.memory(self.betas.second) * self.change * self.change, axis=1)
        moved = np.asarray(squares > 0)
        sigma: Any = np.where(moved, np.sqrt(np.where(moved, squares, 1.0)), 0.0)
        lost = tau / b + np.maximum(a * sigma / (b * b), self.most * tau / a)
        return self.correction * (a / b * self.margin - self.reach * lost)


@dataclass(frozen=True, eq=False)
class AdamRun:
    """A run of Adam with bounds of its rounding errors.

    Attributes:
        points: W(0) … W(t), (t + 1, b, d).
        gradient: ∇L at W(0) … W(t−1) in units of its largest term, (t, b, d).
        log_scale: the logarithm of the gradient's unit, (t, b).
        along: ⟨−∇L, W(t+1) − W(t)⟩ in the gradient's unit, (t, b).
        lost: bounds of the difference between ``along`` and its value for an exact step, (t, b).
        entries: bounds of the error of each entry of a step, (t, b, d).
        bounds: the constants for these steps, with an ``excess`` that covers rounding.
    """

    points: Numbers
    gradient: Numbers
    log_scale: Float64[np.ndarray, "t b"]
    along: Numbers
    lost: Float64[np.ndarray, "t b"]
    entries: Float64[np.ndarray, "t b d"]
    bounds: AdamBounds

    def step_error(self, proxy: Numbers) -> Float64[np.ndarray, "t b"]:
        """Return bounds of how much less a potential falls because steps are inexact: ``lost``/``proxy``, (t, b)."""
        return self.lost / np.maximum(proxy.value - proxy.error, 1e-300) * (1 + 1e-9)

    def direction_claim(self, bounds: AdamBounds, proxy: Numbers) -> Claim:
        """Claim ⟨∇L, A_t⟩ ≥ κ_t G (attention: κ_t Z) for Adam's steps A_t that the bounds cover, up to rounding.

        Args:
            bounds: κ_t for the first steps or for all.
            proxy: G or Z (see the module) at the iterates, in units of the gradients, (t, b).
        """
        steps = len(bounds.schedule.lengths)
        expected = (exact(bounds.schedule.lengths) * bounds.kappa)[:, None] * proxy[:steps]
        along = self.along[:steps] + self.lost[:steps]
        return at_least(DIRECTION, Form.EFFECTIVE, along, expected, why=STEEPEST_ROUNDING, points="step")


def follow_adam(
    bounds: AdamBounds,
    under_test: Implementation,
    field: BatchField,
    starts: Float64[np.ndarray, "b d"],
    gradient_at: Callable[[Float64[np.ndarray, "t b d"]], tuple[Numbers, Float64[np.ndarray, "t b"]]],
) -> Generator[Claim, None, AdamRun]:
    """Yield the claims that the steps of the run under test are Adam's and at most ρ_t η_t long, and return the run.

    Args:
        bounds: step lengths, decay rates and bounds.
        under_test: the implementation under test.
        field: points → log scales and directions of the gradients that the run uses.
        starts: W(0), (b, d).
        gradient_at: points → ∇L in some unit, with the error that a correct gradient may have, and the unit's
            logarithm.
    """
    schedule = bounds.schedule
    points = run_adam(under_test, field, starts, schedule.lengths, bounds.betas)
    yield from claim_start(points, starts, schedule)
    before, after = points[:-1], points[1:]
    gradient, log_scale = gradient_at(before)
    expected, resolved = expected_steps(gradient, log_scale, bounds)
    step, rho = exact(schedule.lengths)[:, None, None], bounds.rho[:, None, None]
    loops = 20 + (6 + 4 * np.abs(log_scale).max()) * np.arange(1.0, len(schedule.lengths) + 1)[:, None, None]
    room = EPS * (loops * value_of(step * rho) + np.abs(after))
    moved: Any = exact(after) - before
    step_error = np.abs(moved + step * expected).widen(room)
    most = 2 * value_of(step * rho) * (1 + 1e-9) + 2 * room
    off_or_unknown = np.where(resolved, step_error, 0.0)
    yield at_least(
        IS_ADAM,
        Form.EXACT,
        0.0,
        off_or_unknown,
        why=ADAM_ROUNDING,
        scale=value_of(step * rho),
        points="entry of a step",
    )
    yield at_least(
        IS_SHORT, Form.EXACT, step * rho, np.abs(moved).widen(room), why=ADAM_ROUNDING, points="entry of a step"
    )
    # A step that passes the first claim is off by at most twice its error bound, and no entry is off by more than 2ρη.
    entry = np.minimum(np.where(resolved, 2 * step_error.error, most), most)
    sizes = np.abs(gradient.value) + gradient.error
    lost = np.einsum("tbd,tbd->tb", sizes, entry) * (1 + 1e-12)
    longer = replace(bounds, excess=float(np.max(room / value_of(step * rho))) * (1 + 1e-9))
    return AdamRun(exact(points), gradient, log_scale, np.vecdot(-gradient, moved), lost, entry, longer)


def run_adam(
    under_test: Implementation,
    field: BatchField,
    starts: Float64[np.ndarray, "b d"],
    lengths: Float64[np.ndarray, "t"],
    betas: Betas,
) -> Float64[np.ndarray, "r b d"]:
    """Return the iterates of the run of Adam under test, which uses the functions under test for moments and steps."""
    return under_test[adam_descent](
        field,
        starts,
        lengths=lengths,
        betas=betas,
        following=under_test[next_moments],
        direction=under_test[adam_direction],
    )


def expected_steps(
    gradient: Numbers, log_scale: Float64[np.ndarray, "t b"], bounds: AdamBounds
) -> tuple[Numbers, Bool[np.ndarray, "t b d"]]:
    """Return Adam's steps A_t and a mask of the entries whose √V_t has a relative error below 1e-3, (t, b, d).

    Outside the mask A_t is 0. The moments are computed as weighted sums over all gradients, with the logarithms of the
    weights; Adam's recursion is not used.
    """
    logs = log_scale[None] + np.where(np.tri(len(log_scale)) > 0, 0.0, -np.inf)[:, :, None]
    ago = np.maximum(np.subtract.outer(np.arange(len(log_scale)), np.arange(len(log_scale))), 0)
    slowest = np.log(max(bounds.betas.first, bounds.betas.second / 2, 1e-300))
    top = np.max(logs + 0.5 * slowest * ago[:, :, None], axis=1)
    unit: Any = np.exp(
        np.where(np.isfinite(logs), exact(np.where(np.isfinite(logs), logs, 0.0)) - top[:, None], -np.inf)
    )
    mean: Any = np.einsum("tsb,sbd->tbd", bounds.memory(bounds.betas.first)[:, :, None] * unit, gradient)
    squares: Any = np.einsum(
        "tsb,sbd->tbd", bounds.memory(bounds.betas.second)[:, :, None] * unit * unit, gradient * gradient
    )
    resolved = np.asarray(squares.value > 0) & (squares.error <= 1e-3 * squares.value) & (squares.value > 1e-280)
    root: Any = np.sqrt(np.where(resolved, squares, 1.0))
    steps: Any = np.where(resolved, mean / np.where(resolved, root, 1.0), 0.0)
    return steps * bounds.correction[:, None, None], resolved
