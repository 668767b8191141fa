"""Adam on one sample per step turns to the largest ℓ2, not ℓ∞, margin if each sample's entries have one modulus.

Main result: for any order of samples and any β1² < β2, with or without bias correction, each step is a multiple of the
step of gradient descent with momentum, and an inequality at every step bounds the cosine with the ℓ2 solution from
below.

References: derived here; Baek, Song, Yun, arXiv 2510.26303, Theorem 3.3 (the limit, cyclic order, β1 ≤ β2; we have not
read the text).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float64

from generators.adaptive_methods import EQUAL_MODULI, equal_modulus_cases
from generators.labelled_features import SEPARABLE_LABELS, LabelledFeatures
from theorems.adaptive_methods.adam_bounds import ADAM_PREMISES, AdamBounds, follow_adam
from theorems.adaptive_methods.adam_max_margin import adam_steps
from theorems.adaptive_methods.batches import (
    SCHEDULE,
    BatchSchedule,
    batch_gradient,
    label_batch_gradient,
    label_samples,
    schedule_tried,
)
from theorems.bounded import exact, value_of, with_rounding
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import sharper
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.rounding.attention_at import Numbers
from theorems.steepest_descent.label_loss import LabelGeometry, certify_labels, softplus
from theorems.steepest_descent.margin_claim import NORM_MARGIN
from theorems.steepest_descent.steepest_multiclass import NEEDS
from theorems.steepest_descent.steepest_run import RUN_IS_ASKED_FOR, STEEPEST_ROUNDING

STEPS = 120
MOVES_ALONG = sharper("step-is-along-momentum")
TURNS = sharper("step-turns-to-the-euclidean-solution")
ALONG = sharper("run-turns-to-the-euclidean-solution")


@statement(
    "incremental-adam-equal-moduli",
    "Adam on single samples of equal moduli: the ℓ2 margin",
    source="own; arXiv 2510.26303, Theorem 3.3",
    claims=(NORM_MARGIN, SCHEDULE, RUN_IS_ASKED_FOR, *ADAM_PREMISES, MOVES_ALONG, TURNS, ALONG),
    assumptions=(SEPARABLE_LABELS, EQUAL_MODULI),
    about=LabelledFeatures,
    cases=equal_modulus_cases,
    kernel=SVM_ONLY,
    needs=NEEDS,
)
def incremental_adam_equal_moduli(case: LabelledFeatures, under_test: Implementation) -> Iterator[Claim]:
    """Let separable samples x_i of two classes have |x_ij| = α_i > 0 for all j; step t uses a sample i_t, in any order.

    Adam without ε on ∇ℓ_{i_t}, with any β1² < β2, with or without bias correction, has a V_t whose entries are equal:
    W(t+1) = W(t) + δ_t with δ_t = sΣ_i ω_i x_i, s ≥ 0 a number and ω_i = (1−β1)Σ_s β1^s 1[i_{t−s} = i]/(1 +
    e^{x_i·W(t−s)}). Let w be the solution of least ‖w‖_2 with x_i·w ≥ 1, w̄ = w/‖w‖, r_t = ‖W(t)‖/‖w‖, K_t = Σω_i
    x_i·W(t)/Σω − m(W(t)) ≥ 0. From any W(0) ≠ 0

        ‖W(t+1)‖ − ‖W(t)‖ − ‖δ_t‖²/(2‖W(t)‖) ≤ (1 + K_t/r_t)⟨δ_t, w̄⟩,
        ⟨W(t), w̄⟩ ≥ ⟨W(0), w̄⟩ + Σ_{s<t} (‖W(s+1)‖ − ‖W(s)‖ − ‖δ_s‖²/(2‖W(s)‖))/(1 + K_s/r_s),

    which bounds cos(W(t), w) from below. As K is bounded for β1 > 0, the cosine tends to 1 if ‖W‖ → ∞.

    **Derivation.** For every sample the entries of g² are equal, so the entries of V are equal, and M/√V is a multiple
    of M. With margins of w of at least 1, ⟨δ, w⟩ ≥ sΣω; ⟨δ, W⟩ = sΣω(m + K) and m ≤ r, the largest margin of ‖W‖ being
    1/‖w‖. So ⟨δ, W/‖W‖⟩ ≤ (1 + K/r)⟨δ, w̄⟩, and ‖W + δ‖ ≤ ‖W‖ + ⟨δ, W/‖W‖⟩ + ‖δ‖²/(2‖W‖).

    With several samples in a batch the entries of V differ, and so does the limit (adam-max-margin for full batches).
    """
    rng = case.rng()
    geometry = yield from certify_labels(case, 2.0, under_test)
    bounds = adam_steps(geometry, rng, STEPS)
    n, p = len(case.features), geometry.solution.p
    batches = yield from schedule_tried(np.full(n, 1 / n), STEPS, rng, under_test, single=True)
    starts = np.array([rng.normal(size=len(p)) * np.abs(p).max(), -3 * p, 0.1 * p])
    batch_shares, problem = iter(batches.shares), case.problem

    def field(W: Float64[np.ndarray, "b D"]) -> tuple[Any, Any]:
        slope = under_test[batch_gradient](under_test[label_samples](problem, W), next(batch_shares))
        return slope.log_scale, slope.direction

    run = yield from follow_adam(
        bounds, under_test, field, starts, lambda W: label_batch_gradient(geometry, W, batches.shares)
    )
    step_error = np.sqrt((run.entries**2).sum(axis=-1)) * (1 + 1e-12)
    moved: Any = run.points[1:] - run.points[:-1]
    momentum, weights = euclidean_momentum(geometry, bounds, run.points[:-1], batches)
    size, long = np.linalg.norm(momentum, axis=-1), np.linalg.norm(moved, axis=-1)
    aside = np.abs(moved * size[..., None] - momentum * long[..., None]).widen(
        2 * step_error[..., None] * value_of(size)[..., None]
    )
    scale = (np.maximum(value_of(size * long), 1e-300))[..., None]
    yield at_least(MOVES_ALONG, Form.EXACT, 0.0, aside, why=STEEPEST_ROUNDING, scale=scale, points="entry of a step")
    yield from turning_claims(geometry, run.points, weights, step_error)


def euclidean_momentum(
    geometry: LabelGeometry, bounds: AdamBounds, W: Numbers, batches: BatchSchedule
) -> tuple[Numbers, Numbers]:
    """Return Σ_i ω_i x_i and the statement's weights ω_i in a common unit for each step, (t, b, D) and (t, b, n)."""
    logits, odds = geometry.log_odds(W)
    logs = (logits[..., 0] - softplus(odds)) + 0.0
    with np.errstate(divide="ignore"):
        logs = np.where(batches.shares[:, None, :] > 0, logs, -np.inf)
        memory: Any = np.log(bounds.memory(bounds.betas.first).value)
    # The logarithms of momentum's weights, at most 745 in size, are rounded to 1e-13, less than the 1e-12 added below.
    every = memory[:, :, None, None] + logs[None]
    top = np.max(value_of(every), axis=(1, 3), keepdims=True)
    weights: Any = np.sum(np.exp(every - top), axis=1).widen(0.0)
    weights = weights.widen(1e-12 * weights.value)
    return weights @ geometry.rows, weights


def turning_claims(
    geometry: LabelGeometry, points: Numbers, weights: Numbers, step_error: Float64[np.ndarray, "t b"]
) -> Iterator[Claim]:
    """Claim the statement's inequality for every step, and its sum over steps, up to the errors of the steps."""
    p = with_rounding(geometry.solution.p)
    solution = p / np.linalg.norm(p)
    lengths: Any = np.linalg.norm(points, axis=-1)
    moved: Any = points[1:] - points[:-1]
    margins = points[:-1] @ geometry.rows.T
    spread = np.sum(weights * margins, axis=-1) / np.sum(weights, axis=-1) - np.min(margins, axis=-1)
    # The statement's r is γ‖W‖, where γ = 1/‖w‖ is replaced by its lower bound.
    factor = 1 + spread / (geometry.margin * lengths[:-1])
    risen = lengths[1:] - lengths[:-1] - np.vecdot(moved, moved) / (2 * lengths[:-1])
    lost = step_error * (1 + value_of(factor)) * (1 + 1e-9)
    gained = np.vecdot(moved, solution)
    options: dict[str, Any] = {"why": STEEPEST_ROUNDING, "points": "step"}
    yield at_least(TURNS, Form.EFFECTIVE, factor * gained + lost, risen, **options)
    share = np.cumsum(risen / factor, axis=0) - np.cumsum(exact(lost), axis=0)
    yield at_least(ALONG, Form.EFFECTIVE, points[1:] @ solution, (points[:1] @ solution) + share, **options)
