"""Steepest descent with momentum on separable classification data: a bound of the margin gap without a factor d.

Main result: with an exponential average of gradients in place of the gradient, the margin gap at every iterate has the
bound of :mod:`.steepest_multiclass`. The paper's bound has the dimension d as a factor, and the paper leaves open
whether this factor can be removed.

References: derived here; Fan, Schmidt, Thrampoulidis, *Implicit Bias of Spectral Descent and Muon on Multiclass
Separable Data*, arXiv 2502.04664, Theorem 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from generators.labelled_features import SEPARABLE_LABELS, LabelledFeatures
from generators.steepest_descent.embeddings import label_or_embedded_cases
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.rounding.attention_at import Numbers
from theorems.steepest_descent.label_loss import (
    RUN_CLAIMS,
    LabelGeometry,
    certify_labels,
    follow_labels,
    norms_tried,
    run_claims,
)
from theorems.steepest_descent.margin_claim import NORM_MARGIN
from theorems.steepest_descent.steepest_multiclass import STEPS, starts_of
from theorems.steepest_descent.steepest_run import RUN_PREMISES, StepSchedule, momentum_lag

MOMENTA = (0.5, 0.9, 0.95)


@statement(
    "steepest-momentum",
    "Steepest descent with momentum in any norm, multiclass data",
    source="arXiv 2502.04664, Theorem 2; the bound is our own",
    claims=(NORM_MARGIN, *RUN_PREMISES, *RUN_CLAIMS),
    assumptions=(SEPARABLE_LABELS,),
    about=LabelledFeatures,
    cases=label_or_embedded_cases,
    kernel=SVM_ONLY,
)
def steepest_momentum(case: LabelledFeatures, under_test: Implementation) -> Iterator[Claim]:
    """In the setting of steepest-multiclass let Δ_t = argmax ⟨−M_t, Δ⟩ over ‖Δ‖ ≤ 1.

    Let M_t = β M_{t−1} + (1 − β)∇L(W(t)), M_{−1} = 0, D' = max ‖g − h‖_* over two rows, ℓ_s = Σ_{s≤r<t} η_r and

        τ_t = Σ_{s≤t} β^{t−s} e^{Dℓ_s} tanh(Dℓ_s/2) / Σ_{s≤t} β^{t−s} e^{−Dℓ_s},    of order η_t/(1 − β).

    As long as b_t = η_t(γ − D'τ_t) − (e^{Dη_t} − 1 − Dη_t) ≥ 0, which holds for η up to about γ(1 − β)/D², the bounds
    of steepest-multiclass hold with this b_t. For η_t = η_0/√t the gap is O((log t + n log k)/√t), without a factor d,
    without Assumption 3, and from the first iteration on.

    **Derivation.** −M_t is a positive number times Σ ω̄_iv g_iv, ω̄ the mean of ω(s) = π_i s_iv/G at W(s) with weights
    ∝ β^{t−s}G(W(s)); so it is a convex combination of rows, with ‖·‖_* ≥ γ. log G changes by at most Dℓ. log s_iv
    changes by −g_iv·(W(s) − W(t)) less a mean of such numbers and 0. Rows of one input and 0 are at most D apart in
    ‖·‖_*, because differences (e_u − e_v)h_iᵀ of two rows are as long as rows; so each log s_iv changes by at most Dℓ,
    and the changes of two differ by at most 2Dℓ. If the log-ratio of two distributions oscillates by χ, they differ by
    at most tanh(χ/4) in total variation: ω̄ is within τ_t of ω(t), so ⟨−∇L, Δ_t⟩ ≥ G(γ − D'τ_t), and the rest is as in
    steepest-multiclass.

    The statement covers exact averages and exact steepest directions. It covers neither Nesterov's correction nor the
    Newton–Schulz iteration for the orthogonal factor.
    """
    rng = case.rng()
    for norm in norms_tried(case, rng):
        geometry = yield from certify_labels(case, norm, under_test)
        schedule, lag = remembering_steps(geometry, rng)
        run = yield from follow_labels(geometry, under_test, starts_of(geometry, rng), schedule)
        yield from run_claims(geometry, run, geometry.gain(exact(schedule.lengths), lag)[:, None])


def remembering_steps(geometry: LabelGeometry, rng: np.random.Generator) -> tuple[StepSchedule, Numbers]:
    """Return step lengths η_0/√(t+1) or η_0, with η_0 halved until the statement's b_t are ≥ 0, and the lags τ_t."""
    margin, reach = float(value_of(geometry.margin)), float(value_of(geometry.reach))
    momentum = float(rng.choice(MOMENTA))
    size = margin * (1 - momentum) / reach**2 * math.exp(rng.uniform(math.log(0.1), math.log(4.0)))
    shape = 1 / np.sqrt(np.arange(1.0, STEPS + 1)) if rng.random() < 0.7 else np.ones(STEPS)
    zero = exact(0.0)
    while True:
        schedule = StepSchedule(size * shape, momentum)
        lag = momentum_lag(schedule, geometry.reach, 2 * geometry.reach, zero, zero, zero)
        if (geometry.gain(exact(schedule.lengths), lag) >= 0).all():
            return schedule, lag
        size /= 2
