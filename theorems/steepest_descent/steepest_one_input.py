"""For one input and any start, normalized steepest descent in any norm turns to the largest margin in this norm.

Main result: a bound of the margin gap at every iterate, with explicit constants, with or without momentum. The
statement covers sign descent and coordinate descent on attention.

References: Gunasekar, Lee, Soudry, Srebro, *Characterizing Implicit Bias in Terms of Optimization Geometry*, ICML 2018
(linear data); Fan, Schmidt, Thrampoulidis, *Implicit Bias of Spectral Descent and Muon on Multiclass Separable Data*,
2025; *Max-Margin Token Selection in Attention Mechanism*, Assumption B, Lemma 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64

from generators.case import Case
from generators.problems import cases
from generators.query_cases import query_cases
from generators.steepest_descent.embeddings import embedded_cases, embedded_query_cases, or_embedded
from reference_attention.norms import Norm, Schatten
from reference_attention.problem import Problem
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import sharper
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.points import affordable, probe_points
from theorems.core.statement import statement
from theorems.rounding.approximations import approximate
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.steepest_descent.geometry import Geometry, certify_margin, norms_tried
from theorems.steepest_descent.margin_claim import ENCLOSED, MARGIN_WIDTH, NORM_MARGIN
from theorems.steepest_descent.potential import POTENTIAL_CLAIMS, Potential
from theorems.steepest_descent.steepest_run import RUN_PREMISES, StepSchedule, follow, momentum_lag

LONG = sharper("gradient-is-long")
ONE_QUERY = sharper("one-query-has-one-margin", when="W is trained, in two norms of singular values")

ASSUMPTIONS = ("well-behaved-loss", "equal-non-optimal-scores", "separable", "single-input")
STEPS = 150
MOMENTA = (0.0, 0.0, 0.5, 0.9)
POINTS = 60
EVALUATIONS = 300_000
"""The approximate limit of (number of key entries)·(number of iterates); large problems get shorter runs."""


def one_input_cases() -> SearchStrategy[Case]:
    """Return a strategy for cases that train a prompt p, some of them embedded in more dimensions."""
    return or_embedded(cases(assumptions=ASSUMPTIONS), embedded_cases(single=True, equal=True))


def _cases() -> SearchStrategy[Case]:
    """Return a strategy for cases; in a third of them W is trained, in the others a prompt p."""
    trained = or_embedded(query_cases(single=True, equal=True), embedded_query_cases(single=True, equal=True))
    return st.one_of(one_input_cases(), one_input_cases(), trained)


@statement(
    "steepest-one-input",
    "Steepest descent in any norm, one input",
    source="own",
    claims=(NORM_MARGIN, LONG, ONE_QUERY, *RUN_PREMISES, *POTENTIAL_CLAIMS),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    kernel=SATURATED,
    needs={"separable": "there is a largest margin, and it is positive, only if ATT-SVM is feasible"},
)
def steepest_one_input(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let n = 1, Assumptions A and B hold and ATT-SVM be feasible; let ‖·‖ be any norm.

    We test ‖·‖_q, 1 ≤ q ≤ ∞, and if W is trained, where p = vec(W), also the spectral (Muon) and the nuclear norm. Let
    ‖·‖_* be the dual norm, g_t = k_opt − k_t for t ≠ opt, m(p) = min g_t·p, γ = max m(p) over ‖p‖ ≤ 1, D = max ‖g_t‖_*,
    D' = max ‖k_t − k_u‖_* over non-optimal t, u. Let p(t+1) = p(t) + η_t Δ_t from any p(0), with any η_t > 0, Δ_t =
    argmax ⟨−M_t, Δ⟩ over ‖Δ‖ ≤ 1 and M_t = β M_{t−1} + (1−β)∇L(p(t)). Let Φ = log Σ_t e^{−g_t·p}, and let τ_t, derived
    under *Momentum*, bound the total variation between the weights of rows in M_t and in ∇Φ(p(t)). Then at every t

        Φ(p(t+1)) ≤ Φ(p(t)) − b_t,   b_t = η_t(γ − D'τ_t) − D'²η_t²/8,
        m(p(t)) ≥ −Φ(p(0)) + Σ_{s<t} b_s,
        m(p(t))/‖p(t)‖ ≥ (−Φ(p(0)) + Σ b_s)/(‖p(0)‖ + Σ η_s) once this bound is positive.

    Without momentum τ = 0, so γ − m/‖p‖ ≤ (γ‖p(0)‖ + Φ(p(0)) + D'²Ση²/8)/(‖p(0)‖ + Ση): O(log t/√t) for η_t = η_0/√t,
    and O(1/Ση) for T = 2, where D' = 0. Steps of constant length may leave a gap, in the limit of at most D'²η/8, and
    in some cases they do (two rows and a cycle of two points:
    `theorems/steepest_descent/without/steepest_one_input.py`).

    **Gradient.** −⟨∇L, w⟩ = |ℓ'| gap s_opt Σ_{t≠opt} s_t g_t·w (as in lemma-5), gap the difference of the two scores,
    so that −∇L is the positive number |ℓ'| gap s_opt(1 − s_opt) times −∇Φ, the convex combination of rows with weights
    ω_t ∝ e^{−g_t·p}.
    Let p_γ have ‖p_γ‖ = 1 and margin γ. Then ‖Σωg‖_* ≥ Σω g·p_γ ≥ γ: ‖∇L‖_* ≥ γ|ℓ'| gap s_opt(1 − s_opt) everywhere.

    **Step.** ⟨∇Φ, Δ⟩ = −‖∇Φ‖_* ≤ −γ, and Φ''[Δ, Δ] is the variance of g·Δ under ω, at most (range/2)² ≤ D'²/4 for ‖Δ‖
    ≤ 1; so Φ(p + ηΔ) ≤ Φ(p) − ηγ + D'²η²/8 for any η. And e^Φ ≥ e^{−m}; ‖p(t)‖ ≤ ‖p(0)‖ + Ση.

    **Momentum.** −M_t is a positive number times Σ_s a_s Σ_t ω_t(p(s)) g_t, a_s ∝ β^{t−s}|ℓ'|s_opt(1 − s_opt) at p(s).
    With δ = Σ_{s≤r<t} η_r, the log-ratio of two rows' weights changes by at most D'δ from p(s) to p(t), so the weights'
    total variation is at most tanh(D'δ/4); log s_opt(1 − s_opt) changes by at most Dδ, and log|ℓ'| by at most Λ = log
    max|ℓ'|/min|ℓ'| between the two scores. So the weights in −M_t are within τ_t = Σ_s β^{t−s}e^{Dδ+Λ}tanh(D'δ/4)/Σ_s
    β^{t−s}e^{−(Dδ+Λ)} (without Λ for s = t) of ω(p(t)), and the range of g·Δ is at most D'. As the combination with
    these weights has ‖·‖_* ≥ γ, too, ⟨−∇Φ, Δ⟩ ≥ γ − D'τ_t.

    **W.** With one query z the rows are g_t zᵀ, of rank one. In ‖·‖_F, the spectral and the nuclear norm they are
    equally long, so γ is the same in these norms: ‖z‖ times the γ of a prompt in ‖·‖_2. A step on W also changes p = Wz
    in the same way, as M = m zᵀ: by normalized descent with steps η‖z‖. So Muon on W is this rule on p.

    Computed steps are steepest for the computed M. Their errors enter multiplied by D, as Φ is D-Lipschitz.
    """
    problem, rng = case.problem, case.rng()
    margins: dict[Norm, Numbers] = {}
    for norm in norms_tried(case, rng):
        geometry = yield from certify_margin(problem, norm, under_test, case.queried.keys if case.queried else None)
        margins[norm] = geometry.margin
        yield gradient_is_long(geometry, under_test, probe_points(rng, problem, m=affordable(problem, POINTS)))
        schedule = asked_steps(geometry, rng, affordable_steps(problem))
        run = yield from follow(geometry, under_test, starts_against(case, geometry, rng), schedule)
        log_c = exact(np.zeros(len(geometry.rows)))
        yield from Potential(geometry, run, log_c, one_input_lag(geometry, schedule)[:, None]).claims()
    alike = np.array([float(value_of(x)) for norm, x in margins.items() if norm == 2 or isinstance(norm, Schatten)])
    if len(alike) > 1:
        wide = ENCLOSED * alike
        yield at_least(ONE_QUERY, Form.EXACT, alike, alike[::-1], rounding=wide, why=MARGIN_WIDTH, points="norm")


def gradient_is_long(geometry: Geometry, under_test: Implementation, points: Float64[np.ndarray, "m d"]) -> Claim:
    """Claim ‖∇L‖_* ≥ γ|ℓ'| Σ_t s_t (γ_opt − γ_t) s_opt at every point, with γ the largest margin and γ_t the scores."""
    problem = geometry.problem
    at = AttentionAt(problem, points)
    gradient = at.gradient_of(under_test, LONG)
    # For several inputs the bound is the mean over inputs; for unequal scores each token has its own gap to the best
    # token.
    others = np.asarray(np.arange(problem.T) != problem.optimal[:, None])
    gaps: Any = exact(problem.scores.max(axis=1))[:, None] - problem.scores
    slopes: Any = at.log_slopes
    logs = at.log_weights + (slopes + at.log_weight_of(problem.optimal) - at.log_scale[:, None])[..., None]
    mixed = np.sum(np.where(others, np.exp(logs) * gaps, 0.0), axis=(1, 2)) / problem.n
    return at_least(LONG, Form.EFFECTIVE, geometry.dual_length(gradient), geometry.margin * mixed)


def one_input_lag(geometry: Geometry, schedule: StepSchedule) -> Numbers:
    """Return the lag τ_t of the statement, (t,)."""
    if not schedule.momentum:
        return exact(np.zeros(len(schedule.lengths)))
    loss, (low, high) = geometry.problem.loss, geometry.problem.score_range
    bounds = np.array([loss.log_bound(low, high), loss.log_floor(low, high)])
    ends: Any = approximate(bounds, 8 * np.finfo(np.float64).eps * (1 + np.abs(bounds)))
    zero = exact(0.0)
    return momentum_lag(schedule, geometry.reach, geometry.diameter, zero, ends[0] - ends[1], zero)


def asked_steps(geometry: Geometry, rng: np.random.Generator, steps: int) -> StepSchedule:
    """Return step lengths η_0/√(t+1) or η_0, with or without momentum.

    η_0 is of the order of the largest length for which the bound is informative, sometimes larger.
    """
    momentum = float(rng.choice(MOMENTA))
    apart, reach = float(value_of(geometry.diameter)), float(value_of(geometry.reach))
    # Without momentum b is positive for η below 8γ/D'²; with momentum D'τ is about D'Dη/(1 − β).
    first = float(value_of(geometry.margin)) * 8 / max(apart * apart, 1e-2 * reach * reach)
    size = first * math.exp(rng.uniform(math.log(0.02), math.log(1.5)))
    if momentum:
        size = min(size, float(rng.choice([0.02, 0.2, 2.0])) * (1 - momentum) / reach)
    return StepSchedule(
        size / np.sqrt(np.arange(1.0, steps + 1)) if rng.random() < 0.7 else np.full(steps, size), momentum
    )


def starts_against(case: Case, geometry: Geometry, rng: np.random.Generator) -> Float64[np.ndarray, "b d"]:
    """Return the starts: 0, a point near 0, a point with margin −3, and the case's start if it has one."""
    scale = 1 / case.problem.key_scale
    against = -3 * geometry.solution.p
    starts = [np.zeros(case.problem.d), scale * rng.normal(size=case.problem.d), against]
    return np.array(starts if case.start is None else [*starts, case.start])


def affordable_steps(problem: Problem) -> int:
    """Return the number of steps, from 10 to :data:`STEPS`, for which evaluations stay within :data:`EVALUATIONS`."""
    return max(10, min(STEPS, EVALUATIONS // problem.keys.size))
