"""Steepest descent with momentum in any norm on batches in any order: Signum and Muon with mini-batches.

Main result: a lower bound of the margin at every step, computed from the batches drawn. The gap between this bound and
the largest margin vanishes as β → 1, but for fixed β not as t → ∞.

References: derived here; Baek, Song, Yun, arXiv 2510.26303, Theorem 5.1 (Signum, any batch size, β near 1); Kim, Song,
Yun, *Why Row Normalization Can Beat Adam and Muon*, 2026, Theorems B.11 and B.12 (reshuffling).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from generators.labelled_features import SEPARABLE_LABELS, LabelledFeatures
from generators.steepest_descent.embeddings import label_or_embedded_cases
from theorems.adaptive_methods.batches import SCHEDULE, follow_label_batches, misplaced, schedule_tried
from theorems.adaptive_methods.inexact_steps import STEP_CLAIMS, InexactSteps, label_gain, log_excess_error
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.steepest_descent.geometry import RowGeometry
from theorems.steepest_descent.label_loss import certify_labels, norms_tried
from theorems.steepest_descent.margin_claim import NORM_MARGIN
from theorems.steepest_descent.steepest_multiclass import NEEDS, starts_of
from theorems.steepest_descent.steepest_run import RUN_PREMISES, StepSchedule

STEPS = 100
MOMENTA = (0.0, 0.5, 0.9, 0.97, 0.995)


@statement(
    "minibatch-momentum",
    "Steepest descent with momentum on batches in any order, any norm",
    source="own; arXiv 2510.26303, Theorem 5.1; Kim, Song, Yun 2026, Theorems B.11, B.12",
    claims=(NORM_MARGIN, SCHEDULE, *RUN_PREMISES, *STEP_CLAIMS),
    assumptions=(SEPARABLE_LABELS,),
    about=LabelledFeatures,
    cases=label_or_embedded_cases,
    kernel=SVM_ONLY,
    needs=NEEDS,
)
def minibatch_momentum(case: LabelledFeatures, under_test: Implementation) -> Iterator[Claim]:
    """In the setting of steepest-multiclass let batches have shares c_i(t) ≥ 0 of the samples, Σ_i c_i(t) = 1.

    That setting also has the rows g_iv, the log-excess Y of the loss, the largest margin γ, the largest length D of a
    row and the weights π_i; D' is the largest distance of two rows. Batches may be cyclic, reshuffled, drawn with
    replacement or chosen in any other way. Let M_t = βM_{t−1} + (1 − β)Σ_i c_i(t)∇ℓ_i(W(t)), M_{−1} = 0 and W(t+1) =
    W(t) + η_tΔ_t with Δ_t = argmax ⟨−M_t, Δ⟩ over ‖Δ‖ ≤ 1. With ℓ_s = Σ_{t−s≤r<t} η_r and

        a_i^± = Σ_{s≤t} β^s c_i(t−s) e^{±Dℓ_s}/π_i,  χ_t = log(max_i a_i^+/min_i a_i^−),  κ_t = γ − D' tanh(χ_t/4)

    (tanh = 1 until every sample has been in a batch) and b_t = η_tκ_t − (e^{Dη_t} − 1 − Dη_t), at every t

        Y(W(t+1)) ≤ Y(W(t)) − min(b_t, b_t/π_min),    m(W(t)) ≥ −Y(W(0)) + Σ_{s<t} min(b_s, b_s/π_min),
        m(W(t))/‖W(t)‖ ≥ (the bound of m(W(t)))/(‖W(0)‖ + Ση) once this bound is positive.

    As η → 0 with Ση = ∞, liminf m/‖W‖ ≥ γ − D' tanh(χ/4) where this is positive. For full batches χ = 0; for b of n
    equally weighted samples χ = (n/b − 1) log(1/β) if batches are cyclic, and χ ≤ (2n/b − 1) log(1/β) if they are
    reshuffled. To first order in 1 − β the gap D' tanh(χ/4) is D'(n/b − 1)(1 − β)/4 for cyclic batches; arXiv
    2510.26303 proves that Signum has no gap for β close to 1, and measured gaps agree. With β = 0 and single samples a
    gap of any size is possible.

    **Derivation.** −M_t is a positive number times Σ ω̄_iv g_iv with ω̄_iv ∝ Σ_s β^s c_i(t−s) s_iv(W(t−s)): a convex
    combination, so ⟨Σω̄g, Δ_t⟩ ≥ γ. Per unit of length log s_iv changes by at most D (steepest-momentum), so that
    ω̄_iv/ω_iv, ω = π_i s_iv/G at W(t), lies between a constant times a_i^− and the same constant times a_i^+. A
    log-ratio that oscillates by χ moves at most tanh(χ/4) of the mass, and g·Δ differs by at most D' between two rows:
    ⟨−∇L, Δ_t⟩ ≥ κ_tG. The claims follow by Lemma 0 (`theorems/adaptive_methods/inexact_steps.py`) with ρ = 1.

    Computed steps are steepest for the computed M; their errors enter as in steepest-multiclass.
    """
    rng = case.rng()
    for norm in norms_tried(case, rng):
        geometry = yield from certify_labels(case, norm, under_test)
        batches = yield from schedule_tried(value_of(geometry.weights), STEPS, rng, under_test)
        schedule = batch_steps(geometry, rng, STEPS)
        run = yield from follow_label_batches(geometry, under_test, starts_of(geometry, rng), schedule, batches)
        step = exact(schedule.lengths)[:, None]
        share = misplaced(geometry.reach, schedule, batches.shares, geometry.weights)[:, None]
        gain = label_gain(geometry, step, geometry.margin - geometry.diameter * share, exact(1.0))
        excess, step_error = geometry.log_excess(run.p), log_excess_error(geometry, run.step_error)
        yield from InexactSteps(geometry, run.p, excess, exact(0.0), gain, step_error, schedule.time[:, None]).claims()


def batch_steps(geometry: RowGeometry, rng: np.random.Generator, steps: int) -> StepSchedule:
    """Return step lengths η_0/√(t+1) or η_0, near the lengths at which b_t changes its sign, and a momentum.

    b_t is the statement's lower bound of the fall of Y.
    """
    margin, reach = float(value_of(geometry.margin)), float(value_of(geometry.reach))
    momentum = float(rng.choice(MOMENTA))
    size = margin / reach**2 * math.exp(rng.uniform(math.log(0.02), math.log(2.0)))
    size *= float(rng.choice([1.0, 1 - momentum]))
    return StepSchedule(
        size / np.sqrt(np.arange(1.0, steps + 1)) if rng.random() < 0.7 else np.full(steps, size), momentum
    )
