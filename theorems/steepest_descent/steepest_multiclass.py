"""On separable classification data, normalized steepest descent in any norm turns to the largest margin in this norm.

Main result: a bound of the margin gap at every iterate, with explicit constants, from any start and for any norm. The
bound holds from the first iteration on, and the only condition on the steps is b_t ≥ 0 (see below).

References: Fan, Schmidt, Thrampoulidis, *Implicit Bias of Spectral Descent and Muon on Multiclass Separable Data*,
arXiv 2502.04664, Lemmas 1 and 3, Theorem 1. Constants and derivation are our own; we have not seen the appendix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float64

from generators.labelled_features import SEPARABLE_LABELS, LabelledFeatures
from generators.steepest_descent.embeddings import label_or_embedded_cases
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.rounding.attention_at import Numbers
from theorems.steepest_descent.label_loss import (
    FALLS_FURTHER,
    POINT_CLAIMS,
    RUN_CLAIMS,
    LabelGeometry,
    certify_labels,
    follow_labels,
    norms_tried,
    point_claims,
    run_claims,
)
from theorems.steepest_descent.margin_claim import NORM_MARGIN
from theorems.steepest_descent.steepest_run import RUN_PREMISES, StepSchedule

STEPS = 150
POINTS = 40
LONGEST = 4.0
"""The largest step length, in units of 1/D, with D the largest dual norm of a row."""
NEEDS = {SEPARABLE_LABELS.id: "the largest margin is positive only if the classes are separable"}


@statement(
    "steepest-multiclass",
    "Steepest descent in any norm, multiclass data",
    source="arXiv 2502.04664, Lemmas 1 and 3, Theorem 1; constants are our own",
    claims=(NORM_MARGIN, *POINT_CLAIMS, *RUN_PREMISES, *RUN_CLAIMS, FALLS_FURTHER),
    assumptions=(SEPARABLE_LABELS,),
    about=LabelledFeatures,
    cases=label_or_embedded_cases,
    kernel=SVM_ONLY,
)
def steepest_multiclass(case: LabelledFeatures, under_test: Implementation) -> Iterator[Claim]:
    """Let features h_i have class y_i and weight π_i > 0, Σπ = 1, and let some W separate the classes.

    This means g_iv·W > 0 for all i and v ≠ y_i, where g_iv = (e_{y_i} − e_v)h_iᵀ. Let L(W) = Σ π_i log(1 + x_i) with
    x_i = Σ_v e^{−g_iv·W}, the logistic loss; ‖·‖ any norm of matrices, here of entries, singular values or blocks (rows
    or columns normalised), and ‖·‖_* its dual; m(W) = min g_iv·W, γ = max m(W) over ‖W‖ ≤ 1, D = max ‖g_iv‖_*; G = Σ
    π_i x_i/(1 + x_i), u = L/π_min and Y = log(e^u − 1). At every W

        γG ≤ ‖∇L‖_* ≤ DG,    G ≥ π_min(1 − e^{−u}),

    so that G/L ≥ (1 − e^{−u})/u ≥ 1 − u/2, which is the paper's 1 − nL/2 if weights are equal. From any W(0) let W(t+1)
    = W(t) + η_tΔ_t with Δ_t = argmax ⟨−∇L, Δ⟩ over ‖Δ‖ ≤ 1. As long as b_t = η_tγ − (e^{Dη_t} − 1 − Dη_t) ≥ 0, which
    holds for η_t up to about 2γ/D²,

        Y(W(t+1)) ≤ Y(W(t)) − b_t,    m(W(t)) ≥ −Y(W(0)) + Σ_{s<t} b_s,    L(W(t)) ≤ π_min log(1 + e^{Y(W(0)) − Σb}),
        m(W(t))/‖W(t)‖ ≥ (−Y(W(0)) + Σb)/(‖W(0)‖ + Ση) once this bound is positive.

    So γ − m/‖W‖ ≤ (γ‖W(0)‖ + Y(W(0)) + Σ(e^{Dη} − 1 − Dη))/(‖W(0)‖ + Ση): O((log t + n log k)/√t) for η_t = η_0/√t and
    W(0) = 0, where Y = log(k^n − 1) if weights are equal. This is the rate of Theorem 1, but from the first iteration
    on and without Assumption 2.

    **Gradient.** −∇L = Σ π_i s_iv g_iv with s_iv = e^{−g_iv·W}/(1 + x_i) and Σπ_i s_iv = G, so γG ≤ ⟨−∇L, W_γ⟩ ≤ ‖∇L‖_*
    ≤ DG. With ℓ_i = log(1 + x_i) ≤ u, as π_min ℓ_i ≤ π_iℓ_i ≤ L, and 1 − e^{−ℓ} concave, G = Σ π_i(1 − e^{−ℓ_i}) ≥ L(1
    − e^{−u})/u.

    **Step.** L''[Δ, Δ] is the mean over i of the variance of the numbers 0 and g_iv·Δ under the probabilities 1/(1+x_i)
    and s_iv, which is at most their second moment; so L'' ≤ D²G. And G(W + τΔ) ≤ e^{Dτ}G(W), as log(x/(1+x)) grows by
    at most D per unit of length. So L falls by at least ηγG less the double integral of D²e^{Dτ}G, which is Gb. Hence u
    falls by at least b(1 − e^{−u}), and Y, which is increasing and concave in u with slope 1/(1 − e^{−u}), by at least
    b. Last, e^u − 1 ≥ max x_i ≥ e^{−m}.

    **Equal weights.** Then e^Y = Π(1 + x_i) − 1 = Σ e^{−g_S·W} over all S that take one wrong class in each of a
    nonempty set of inputs, g_S the sum of their rows: Y is a log-sum-exp, convex, and −∇Y = E g_S for P(S) ∝ e^{−g_S·W}
    is a positive multiple of −∇L. As g_S·W_γ ≥ γ, ‖∇Y‖_* ≥ γ at once. Y''[Δ, Δ] is the variance of g_S·Δ. Without the
    condition S ≠ ∅ inputs are independent, input i takes v with probability s_iv, and S ≠ ∅ with probability r = 1 −
    e^{−u}. Let Z = g_S·Δ, 0 for S = ∅. The variance of Z given S ≠ ∅ is Var Z/r − (1 − r)(E Z/r)², at most Σ_i E Z_i²/r
    ≤ D²nG/r. Let K = |S|, and let c be the middle of the numbers g·Δ over all rows, whose range is at most D'. Then the
    variance is also at most E(Z − c)² ≤ E(D'/2 + (K − 1)D)², with E K = nG/r, E(K − 1)² ≤ E K(K − 1) ≤ (1 −
    1/n)(nG)²/r. As 1 − e^{−ℓ} is concave, nG ≤ n(1 − e^{−u/n}) = a. So with h = a/(1 − e^{−u}), which rises from 1 to n
    as u rises from 0 to ∞,

        Y''[Δ, Δ] ≤ V(u) = min(D²h, D'²/4 + D'D(h − 1) + D²(1 − 1/n)a h),

    where V increases in u, from D'²/4; for n = 1 it is D'²/4. From any W(0), as long as η_t ≤ 2γ/V(u_t), which tends to
    8γ/D'² where the condition above has 2γ/D², all of the above holds with

        b_t = η_tγ − η_t²V(u_t)/2:

    as long as Y has not risen along a step, V is at most V(u_t), so that after a part 0 < τ < η_t of the step Y ≤
    Y(W(t)) − τγ + τ²V(u_t)/2 < Y(W(t)); hence Y does not rise at all. The next steps may be as long, because u falls
    with Y.

    Computed steps are steepest for the computed gradient; their errors change Y by at most D G/(π_min(1 − e^{−u})) per
    unit of length.
    """
    rng = case.rng()
    for norm in norms_tried(case, rng):
        geometry = yield from certify_labels(case, norm, under_test)
        yield from point_claims(geometry, under_test, probe_labels(geometry, rng))
        schedule, lag = short_steps(geometry, rng)
        run = yield from follow_labels(geometry, under_test, starts_of(geometry, rng), schedule)
        yield from run_claims(geometry, run, geometry.gain(exact(schedule.lengths), lag)[:, None])
        if geometry.has_equal_weights:
            starts, schedule = curved_run(geometry, rng)
            run = yield from follow_labels(geometry, under_test, starts, schedule)
            gain = geometry.curved_gain(exact(schedule.lengths)[:, None], run.p[:-1])
            if steps := steps_that_gain(gain):
                yield from run_claims(geometry, run.first(steps), gain[:steps], FALLS_FURTHER)


def probe_labels(geometry: LabelGeometry, rng: np.random.Generator) -> Float64[np.ndarray, "m D"]:
    """Return points W with logits of about 1e-2 to 30, about half of them near the max-margin direction."""
    sizes = np.exp(rng.uniform(math.log(1e-2), math.log(30.0), (POINTS, 1)))
    p = geometry.solution.p
    along = np.where(rng.random((POINTS, 1)) < 0.5, p / np.abs(p).max(), 0.0)
    return np.asarray(sizes * (along + rng.normal(size=(POINTS, len(p))) * rng.choice([0.1, 1.0], (POINTS, 1))))


def curved_run(geometry: LabelGeometry, rng: np.random.Generator) -> tuple[Float64[np.ndarray, "b D"], StepSchedule]:
    """Return starts along the max-margin direction, where the loss is small, and step lengths of up to 2γ/V(u).

    V(u) is the bound :meth:`LabelGeometry.curvature` of the second derivative of Y.
    """
    p = geometry.solution.p
    near = rng.choice([0.0, 1e-3, 0.1], (2, 1)) * np.abs(p).max() * rng.normal(size=(2, len(p)))
    starts = np.asarray(rng.choice([1.0, 5.0, 12.0]) * (p + near))
    u = geometry.loss(exact(starts)) / geometry.least_weight
    margin, reach = float(value_of(geometry.margin)), float(value_of(geometry.reach))
    curvature = float(value_of(geometry.curvature(u)).max())
    # If the bound V of the curvature of Y is 0, the step may have any length.
    longest = min(2 * margin / max(curvature, 1e-300), LONGEST / reach) * (1 - 1e-6)
    shape = 1 / np.sqrt(np.arange(1.0, STEPS + 1)) if rng.random() < 0.5 else np.ones(STEPS)
    return starts, StepSchedule(longest * float(rng.choice([0.1, 0.5, 1.0])) * shape, 0.0)


def steps_that_gain(gain: Numbers) -> int:
    """Return the number of steps before the first whose proven fall of Y (``gain``) may be negative from some start."""
    gains: Bool[np.ndarray, "t"] = np.all(gain.value - gain.error >= 0, axis=1)
    return len(gains) if gains.all() else int(np.argmin(gains))


def starts_of(geometry: LabelGeometry, rng: np.random.Generator) -> Float64[np.ndarray, "b D"]:
    """Return the starts: 0, a point near 0, a point with margin −3, and the case's start if it has one."""
    p = geometry.solution.p
    starts = [0 * p, rng.normal(size=len(p)), -3 * p]
    return np.array(starts if geometry.case.start is None else [*starts, geometry.case.start])


def short_steps(geometry: LabelGeometry, rng: np.random.Generator) -> tuple[StepSchedule, Numbers]:
    """Return step lengths η_0/√(t+1) or η_0 with b_t ≥ 0, and the lag τ = 0 of descent without momentum."""
    margin, reach = float(value_of(geometry.margin)), float(value_of(geometry.reach))
    size = margin / reach**2 * math.exp(rng.uniform(math.log(0.05), math.log(2.0)))
    shape = 1 / np.sqrt(np.arange(1.0, STEPS + 1)) if rng.random() < 0.7 else np.ones(STEPS)
    lag = exact(np.zeros(STEPS))
    while not (geometry.gain(exact(size * shape), lag) >= 0).all():
        size /= 2
    return StepSchedule(size * shape, 0.0), lag
