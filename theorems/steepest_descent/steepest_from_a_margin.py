"""Steepest descent in any norm keeps the margin of a start if this margin exceeds a number computed from the data.

Main result: for any number of inputs and any scores, normalized steepest descent in ‖·‖_q, with or without momentum,
raises the least margin by about γη at every step, and m(p)/‖p‖ tends to the largest margin in this norm.

References: derived here; :mod:`theorems.token_selection.global_paths.descent_from_a_margin`, in ‖·‖_2; Fan, Schmidt,
Thrampoulidis, *Implicit Bias of Spectral Descent and Muon on Multiclass Separable Data*, 2025 (linear data).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64

from generators.case import Case
from generators.problems import cases
from generators.query_cases import query_cases
from generators.steepest_descent.embeddings import embedded_cases, embedded_query_cases, or_embedded
from reference_attention.floats import EPS
from theorems.bounded import exact, value_of
from theorems.core.att_svm import certify
from theorems.core.claim import Claim, Form, Undecided
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.statement import statement
from theorems.core.svm_certificate import SVM_IS_OPTIMAL
from theorems.curves.margin_points import starts_with_margin
from theorems.rounding.attention_at import Numbers
from theorems.steepest_descent.geometry import Geometry, certify_margin, norms_tried
from theorems.steepest_descent.margin_claim import NORM_MARGIN
from theorems.steepest_descent.potential import FALLS, POTENTIAL_CLAIMS, Potential, step_gain
from theorems.steepest_descent.steepest_one_input import MOMENTA, affordable_steps
from theorems.steepest_descent.steepest_run import RUN_PREMISES, StepSchedule, follow, momentum_lag
from theorems.token_selection.global_paths.margin_constants import LARGEST, MarginConstants

ASSUMPTIONS = ("well-behaved-loss", "strict-optimum", "separable")
HALVED = 12
"""The largest number of times that step lengths are halved until the lag that momentum causes is small enough."""
RESOLVED = 1e-6
"""The excess of a start's margin over the required one, in units of 1 + m_1; it covers rounding at the start.

m_1 is the property ``enough`` of :class:`SteepestConstants`.
"""


@dataclass(frozen=True, eq=False)
class SteepestConstants(MarginConstants):
    """The margin that a start needs in one norm, and bounds that depend on the margin.

    Attributes:
        geometry: γ, D and D' in the norm.
        turned: the largest allowed value of D' tanh(χ/4)/γ, where χ is the result of :meth:`change`; at most ¼, and
            smaller with momentum.
    """

    geometry: Geometry
    turned: float

    @cached_property
    def log_c(self) -> Numbers:
        """The logarithms of c_it = |ℓ'(γ_i,opt)|(γ_i,opt − γ_it)/n, (N,)."""
        slopes: Any = self.problem.loss.log_slope(exact(self.problem.scores.max(axis=1)))
        log_slopes: Any = np.broadcast_to(slopes[:, None], self.others.shape)
        return log_slopes[self.others] + self.log_gaps - np.log(exact(float(self.problem.n)))

    def change(self, margin: float) -> float:
        """Return χ(m), the range of log-ratios of the rows' weights in −∇L to c_j e^{−g_j·p} at margins of at least m.

        Any two of these log-ratios, one for each row g_j, differ by at most χ; χ = ∞ where a weight may be negative.
        """
        problem, q = self.problem, (self.problem.T - 1) * math.exp(-margin)
        gaps = problem.gaps()
        widest, least = gaps.max(axis=1), np.where(self.others, gaps, np.inf).min(axis=1)
        share = q * float(np.max(widest / least))
        if not share < 1:
            return math.inf
        low, high = 0.0, 0.0
        for best, wide in zip(problem.scores.max(axis=1).tolist(), widest.tolist(), strict=True):
            ends = best - min(q, 1.0) * wide, best
            at = float(np.asarray(problem.loss.log_slope(np.array(best))))
            low = min(low, problem.loss.log_floor(*ends) - at)
            high = max(high, problem.loss.log_bound(*ends) - at)
        rounding = 32 * EPS * (1 + abs(low) + abs(high))
        return (high - low - math.log1p(-share) + math.log1p(q)) * (1 + 64 * EPS) + (rounding if high > low else 0.0)

    @cached_property
    def enough(self) -> float:
        """The sufficient start margin m_1, above which χ is finite and D' tanh(χ/4) ≤ γ · turned, rounded up.

        Raises:
            Undecided: m_1 is so large that floats do not resolve a step.
        """
        apart, margin = float(value_of(self.geometry.diameter)), float(value_of(self.geometry.margin))

        def short(m: float) -> bool:
            return math.isinf(self.change(m)) or not apart * math.tanh(self.change(m) / 4) <= self.turned * margin

        low, high = 0.0, 1.0
        while short(high):
            low, high = high, 2 * high
            if high > LARGEST:
                raise Undecided(FALLS, "a start needs a margin at which float64 does not resolve steps", Form.EFFECTIVE)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if short(middle) else (low, middle)
        return high * (1 + 1e-9) + 1e-9

    @cached_property
    def needed(self) -> Numbers:
        """The margin m_1 + log(Σc/c_min) that a start needs, raised a little because Φ_c is rounded.

        As Φ_c ≤ log Σc − m, this margin implies log c_min − Φ_c ≥ m_1.
        """
        return self.enough + RESOLVED * (1 + self.enough) + np.logaddexp.reduce(self.log_c) - np.min(self.log_c)


def margin_cases() -> SearchStrategy[Case]:
    """Return a strategy for cases, at least half of which have d ≥ 2, since in one dimension all norms agree."""
    ordinary = st.one_of(cases(assumptions=ASSUMPTIONS, d=(2, 5)), cases(assumptions=ASSUMPTIONS))
    return or_embedded(ordinary, embedded_cases())


def _cases() -> SearchStrategy[Case]:
    """Return a strategy for cases; in a third of them W is trained, in the others a prompt p."""
    return st.one_of(margin_cases(), or_embedded(query_cases(), embedded_query_cases()))


@statement(
    "steepest-from-a-margin",
    "Steepest descent in any norm, from a start of sufficient margin",
    source="own",
    claims=(SVM_IS_OPTIMAL, NORM_MARGIN, *RUN_PREMISES, *POTENTIAL_CLAIMS),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    kernel=SATURATED,
    needs={
        "separable": "there is a largest margin, and it is positive, only if ATT-SVM is feasible",
        "well-behaved-loss": "the margin required of a start is computed from bounds of |ℓ'| > 0",
        "strict-optimum": "the margin required of a start is computed from the gaps to a single best token",
    },
)
def steepest_from_a_margin(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold, opt be unique and ATT-SVM feasible, for any n, scores and norm.

    With the notation of steepest-one-input, rows g_it of all inputs, D' = max ‖g − h‖_* over all rows,
    δγ_it = γ_i,opt − γ_it, c_it = |ℓ'(γ_i,opt)|δγ_it/n, Φ_c = log Σ c_it e^{−g_it·p}, N = n(T−1), q = (T−1)e^{−m} and

        χ(m) = Λ(q) − log(1 − qΓ_max/Γ_min) + log(1 + q)

    (Λ(q) the range of log|ℓ'(γ_i,opt − x)|/|ℓ'(γ_i,opt)| over 0 ≤ x ≤ qΓ_i,max and i; Γ_max/Γ_min the largest ratio of
    two gaps of one input), let m_1 be such that D' tanh(χ(m_1)/4) ≤ γ/4. From every p(0) with log c_min − Φ_c(p(0)) ≥
    m_1, for which m(p(0)) ≥ m_1 + log(Σc/c_min) is enough, normalized steepest descent with step lengths η_t ≤ 2γ/D'²,
    and with momentum such that D'τ_t ≤ γ/4, has at every t

        Φ_c(p(t+1)) ≤ Φ_c(p(t)) − b_t,   b_t = η_t(γ − D'τ_t) − D'²η_t²/8 ≥ η_tγ/2,
        m(p(t)) ≥ log c_min − Φ_c(p(0)) + Σ_{s<t} b_s ≥ m_1,   ‖p(t)‖ ≤ ‖p(0)‖ + Ση,

    where, without momentum, τ_t = tanh(χ/4) with χ at the lower bound of m(p(t)) in the second inequality. As χ falls
    like e^{−m}, Σηχ converges, and the margin's gap γ − m/‖p‖ is O((1 + Ση²)/Ση).

    **Gradient.** −⟨∇L, w⟩ = (1/n)Σ|ℓ'_i|Σ_t s_t(δγ_t − δ_i) g_t·w with δ_i = Σ s_tδγ_t ≤ qΓ_i,max
    (descent-from-a-margin), and s_t = e^{−g_t·p}/(1 + x_i), x_i ≤ q. So −∇L = Σ c e^{ε − g·p} g, ε =
    log|ℓ'_i|/|ℓ'(γ_i,opt)| + log(1 − δ_i/δγ_it) − log(1 + x_i), and at margins of at least m all values of ε lie within
    an interval of length χ(m). −∇Φ_c has the weights ω ∝ c e^{−g·p}, −∇L the weights ω̃ ∝ c e^{ε − g·p}, so the total
    variation between ω and ω̃ is at most tanh(χ/4); and ‖Σω̃g‖_* ≥ γ for any weights ω̃.

    **Step.** As in steepest-one-input, where the range of g·Δ is at most D', Φ_c falls by at least b_t. Each of the two
    subtracted terms is at most ηγ/4, so Φ_c falls as long as margins are at least m_1; and margins stay so large, as
    e^{Φ_c} ≥ c_min e^{−m}.

    **Momentum.** Let λ_s = Σ_{s≤r<t} η_r and χ = χ(m_1). From p(s) to p(t) the log-ratio of two rows' weights changes
    by at most D'λ_s + χ, and the size Σ c e^{ε−g·p} of the gradient by a factor within e^{±(Dλ_s + χ)}. So τ_t = Σ_s
    β^{t−s}e^{Dλ_s+χ}tanh((D'λ_s+χ)/4)/Σ_s β^{t−s}e^{−(Dλ_s+χ)}.
    """
    problem, rng = case.problem, case.rng()
    svm = yield from certify(problem, problem.optimal, under_test)
    for norm in norms_tried(case, rng):
        geometry = yield from certify_margin(problem, norm, under_test, case.queried.keys if case.queried else None)
        momentum = float(rng.choice(MOMENTA))
        constants = SteepestConstants(problem, svm, geometry, 1 / 16 if momentum else 1 / 4)
        schedule = short_steps(constants, rng, affordable_steps(problem), momentum)
        starts = resolved_starts(constants, schedule, starts_with_margin(case, constants, rng))
        run = yield from follow(geometry, under_test, starts, schedule)
        lag = kept_lag(constants, schedule, run.p[0], run.step_error)
        yield from Potential(geometry, run.first(len(lag)), constants.log_c, lag).claims()


def short_steps(constants: SteepestConstants, rng: np.random.Generator, steps: int, momentum: float) -> StepSchedule:
    """Return step lengths η_0/√(t+1) or η_0, at most 2γ/D'², with or without momentum.

    With momentum, η_0 is halved until D'τ_t ≤ γ/4; if :data:`HALVED` halvings do not suffice, momentum is dropped.
    """
    geometry = constants.geometry
    margin, apart, reach = (float(value_of(x)) for x in (geometry.margin, geometry.diameter, geometry.reach))
    size = min(2 * margin / max(apart * apart, 1e-300), 4 / reach) * (1 - 1e-9) * float(rng.choice([0.05, 0.3, 1.0]))
    shape = 1 / np.sqrt(np.arange(1.0, steps + 1)) if rng.random() < 0.7 else np.ones(steps)
    if not momentum:
        return StepSchedule(size * shape, 0.0)
    for _ in range(HALVED):
        schedule = StepSchedule(size * shape, momentum)
        lag = float(value_of(remembered_lag(constants, schedule)).max())
        if apart * lag <= margin / 4 * (1 - 1e-9):
            return schedule
        size /= 2
    return StepSchedule(size * shape, 0.0)


def resolved_starts(
    constants: SteepestConstants, schedule: StepSchedule, starts: Float64[np.ndarray, "b d"]
) -> Float64[np.ndarray, "k d"]:
    """Return the first start, and all others where rounding p changes margins by ≤ γη/16, η the least step length."""
    geometry = constants.geometry
    lost = EPS * value_of(geometry.reach * geometry.length(exact(np.abs(starts))))
    gained = float(value_of(geometry.margin)) * float(schedule.lengths.min())
    return starts[(16 * lost <= gained) | (np.arange(len(starts)) == 0)]


def remembered_lag(constants: SteepestConstants, schedule: StepSchedule) -> Numbers:
    """Return the lag τ_t of the statement for a run with momentum, (t,)."""
    change = exact(constants.change(constants.enough))
    geometry = constants.geometry
    return momentum_lag(schedule, geometry.reach, geometry.diameter, change, change, change * 0)


def kept_lag(
    constants: SteepestConstants, schedule: StepSchedule, start: Numbers, step_error: Float64[np.ndarray, "t b"]
) -> Numbers:
    """Return the lag τ_t of the statement, computed from a lower bound of an earlier iterate's margin, (t, b).

    The earlier iterate is p(s) with s the largest power of two up to t. The result ends at the first step at which
    errors of steps may have lowered the margin below m_1.

    Raises:
        Undecided: the margin of the start may be below m_1.
    """
    geometry = constants.geometry
    rows, reach = geometry.rows, value_of(geometry.reach) * (1 + 16 * EPS)
    first = np.min(constants.log_c) - np.logaddexp.reduce(constants.log_c - start @ rows.T, axis=-1)
    margins = first.value - first.error
    lag = np.tile(value_of(remembered_lag(constants, schedule))[:, None], (1, step_error.shape[1]))
    lag = lag + np.asarray(remembered_lag(constants, schedule).error)[:, None]
    steps, t = len(schedule.lengths), 0
    while t < steps:
        if not (margins >= constants.enough).all():
            if t == 0:
                raise Undecided(
                    FALLS, "rounding may lower the margin of a start below the margin that it needs", Form.EFFECTIVE
                )
            return exact(lag[:t])
        until = min(steps, max(1, 2 * t))
        if not schedule.momentum:
            lag[t:until] = [math.tanh(constants.change(m) / 4) * (1 + 4 * EPS) for m in margins.tolist()]
        gain: Any = step_gain(geometry, exact(schedule.lengths[t:until])[:, None], exact(lag[t:until]))
        margins = margins + np.sum(gain.value - gain.error, axis=0) - reach * np.sum(step_error[t:until], axis=0)
        margins = margins - 64 * EPS * (1 + np.abs(margins))
        t = until
    return exact(lag)
