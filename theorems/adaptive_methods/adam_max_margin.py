"""Full-batch Adam without ε on separable classification data turns to the largest margin in ‖·‖_∞.

Main result: a lower bound of the margin at every step, for every 0 ≤ β1² < β2 < 1, with or without bias correction; the
rate is O(log t/√t), without a factor d.

References: derived here; Zhang, Zou, Cao, *The Implicit Bias of Adam on Separable Data*, arXiv 2406.10650; Fan,
Schmidt, Thrampoulidis, arXiv 2502.04664; Kim, Song, Yun, *Why Row Normalization Can Beat Adam and Muon*, 2026, Theorem
B.7.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float64

from generators.labelled_features import SEPARABLE_LABELS, LabelledFeatures
from generators.steepest_descent.embeddings import label_or_embedded_cases
from reference_attention.next_token.label_descent import label_gradient
from theorems.adaptive_methods.adam import Betas
from theorems.adaptive_methods.adam_bounds import ADAM_PREMISES, DIRECTION, AdamBounds, follow_adam
from theorems.adaptive_methods.inexact_steps import STEP_CLAIMS, InexactSteps, label_gain
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.rounding.attention_at import Numbers
from theorems.steepest_descent.geometry import RowGeometry
from theorems.steepest_descent.label_loss import LabelGeometry, certify_labels
from theorems.steepest_descent.margin_claim import NORM_MARGIN
from theorems.steepest_descent.steepest_multiclass import NEEDS, starts_of
from theorems.steepest_descent.steepest_run import RUN_IS_ASKED_FOR, StepSchedule

STEPS = 100
BETAS = (
    (0.9, 0.999),
    (0.9, 0.99),
    (0.9, 0.95),
    (0.9, 0.9),
    (0.5, 0.9),
    (0.5, 0.5),
    (0.0, 0.9),
    (0.95, 0.93),
    (0.6, 0.4),
)
"""Pairs (β1, β2) with β1² < β2; the last two have β1 > β2."""


@statement(
    "adam-max-margin",
    "Adam without ε, all data in every step: the ℓ∞ margin",
    source="own; Kim, Song, Yun 2026, Theorem B.7; arXiv 2406.10650, arXiv 2502.04664",
    claims=(NORM_MARGIN, RUN_IS_ASKED_FOR, *ADAM_PREMISES, DIRECTION, *STEP_CLAIMS),
    assumptions=(SEPARABLE_LABELS,),
    about=LabelledFeatures,
    cases=label_or_embedded_cases,
    kernel=SVM_ONLY,
    needs=NEEDS,
)
def adam_max_margin(case: LabelledFeatures, under_test: Implementation) -> Iterator[Claim]:
    """In the setting of steepest-multiclass, in ‖·‖_∞ and with D = max ‖g_iv‖_1, let β1² < β2 and A_t = M_t/√V_t.

    That setting also has the rows g_iv, the log-excess Y of the loss, the sum G of the rows' weights in −∇L, the
    largest margin γ and the least weight π_min. Adam has the moments M_t = β1M_{t−1} + (1−β1)∇L(W(t)), V_t = β2V_{t−1}
    + (1−β2)∇L(W(t))², M_{−1} = V_{−1} = 0, and the steps W(t+1) = W(t) − η_t A_t entry by entry, with A = 0 where V =
    0; with bias correction A is multiplied by b_t/a_t, where a_t = 1 − β1^{t+1}, b_t = √(1 − β2^{t+1}). With

        c = (1−β1)/√((1−β2)(1−β1²/β2)),  ρ_t = c (c b_t/a_t where corrected),  ℓ_s = Σ_{t−s≤r<t} η_rρ_r,
        τ_t = (1−β1)Σ_{s≤t} β1^s (e^{Dℓ_s} − 1),  σ_t² = (1−β2)Σ_{s≤t} β2^s (e^{Dℓ_s} − 1)²,
        κ_t = (a/b)γ − D[τ/b + max(aσ/b², cτ/a)]  (times b_t/a_t where corrected),

    no entry of A_t exceeds ρ_t in modulus, ⟨∇L, A_t⟩ ≥ κ_tG, and with b = η_tκ_t − (e^{Dρη} − 1 − Dρη), at every t

        Y(W(t+1)) ≤ Y(W(t)) − min(b, b/π_min),    m(W(t)) ≥ −Y(W(0)) + Σ min(b, b/π_min),    ‖W(t)‖_∞ ≤ ‖W(0)‖_∞ + Σηρ.

    For β1 = β2, c = 1, and with η_t = η_0/√t the gap γ − m/‖W‖_∞ is O(log t/√t) once b ≥ 0, which holds for η up to
    about γ(1−β2)/D². For β = (0.9, 0.999) and usual step lengths the bound is vacuous.

    **Derivation.** |A| ≤ c is Cauchy and Schwarz's inequality. Let H_j = Σ π_i s_iv |g_iv,j|, ΣH_j ≤ DG. As log s_iv
    changes by at most D per unit of length, |∇_jL(W(t−s)) − ∇_jL(W(t))| ≤ (e^{Dℓ_s} − 1)H_j. Hence |M_j − a g_j| ≤ τH_j
    for g = ∇L, and |√V_j − b|g_j|| ≤ σH_j by the triangle inequality of the weighted ℓ2 norm over s; a bound of V −
    b²g² instead would only give the square root of this rate. For numbers with |m − ag| ≤ x, |v − b|g|| ≤ y and |m| ≤
    cv, gm/v ≥ (a/b)|g| − x/b − max(ay/b², cx/a): if a|g| ≥ x, gm/v ≥ |g|(a|g| − x)/(b|g| + y); otherwise gm/v ≥ −c|g|
    and |g| < x/a. Summed over entries, ⟨∇L, A⟩ ≥ (a/b)‖∇L‖_1 − D[…]G, ‖∇L‖_1 ≥ γG, and the claims follow by Lemma 0
    (`theorems/adaptive_methods/inexact_steps.py`).

    An entry of a computed step is compared with A_t where the error of V is small. Errors of entries enter the
    inequalities multiplied by |∇L|.
    """
    rng = case.rng()
    geometry = yield from certify_labels(case, math.inf, under_test)
    bounds = adam_steps(geometry, rng, STEPS)
    problem, gradient = case.problem, under_test[label_gradient]

    def field(W: Float64[np.ndarray, "b D"]) -> tuple[Any, Any]:
        slope = gradient(problem, W)
        return np.asarray(slope.log_scale), np.asarray(slope.direction)

    run = yield from follow_adam(
        bounds, under_test, field, starts_of(geometry, rng), lambda W: doubly_rounded(geometry, W)
    )
    step, kappa = exact(bounds.schedule.lengths)[:, None], run.bounds.kappa[:, None]
    unit = np.exp(-exact(run.log_scale)) * proxy(geometry, run.points[:-1])
    yield run.direction_claim(run.bounds, unit)
    step_error = run.step_error(unit) / float(value_of(geometry.least_weight))
    gain = label_gain(geometry, step, kappa, run.bounds.rho[:, None] * (1 + run.bounds.excess))
    excess = geometry.log_excess(run.points)
    yield from InexactSteps(
        geometry, run.points, excess, exact(0.0), gain, step_error, run.bounds.time[:, None]
    ).claims()


def proxy(geometry: LabelGeometry, W: Any) -> Numbers:
    """Return G = Σ π_i x_i/(1 + x_i), the sum of the weights of the rows in −∇L, (*b,)."""
    return np.sum(-np.expm1(-geometry.losses(W)) * geometry.weights, axis=-1)


def doubly_rounded(
    geometry: LabelGeometry, W: Float64[np.ndarray, "..."]
) -> tuple[Numbers, Float64[np.ndarray, "..."]]:
    """Return ∇L in some unit and this unit's logarithm, with doubled error bounds: a correct kernel rounds, too."""
    gradient, log_scale = geometry.gradient(exact(W))
    return gradient.widen(gradient.error), log_scale


def adam_steps(geometry: RowGeometry, rng: np.random.Generator, steps: int) -> AdamBounds:
    """Return decay rates and step lengths η_0/√(t+1) or η_0, near the lengths at which κ_t changes its sign.

    κ_t is the lower bound of ⟨∇L, A_t⟩/G that the statement proves for Adam's step A_t.
    """
    first, second = BETAS[int(rng.integers(len(BETAS)))]
    betas = Betas(first, second, corrected=bool(rng.random() < 0.5))
    margin, reach = float(value_of(geometry.margin)), float(value_of(geometry.reach))
    size = margin * (1 - second) / reach**2 * math.exp(rng.uniform(math.log(0.05), math.log(4.0)))
    shape = 1 / np.sqrt(np.arange(1.0, steps + 1)) if rng.random() < 0.7 else np.ones(steps)
    return AdamBounds(StepSchedule(size * shape, 0.0), betas, geometry.reach, geometry.margin, geometry.reach)
