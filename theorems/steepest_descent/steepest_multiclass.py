"""On separable classification data, normalized steepest descent in any norm turns to the largest margin in that norm.

Main result: the gap of the margin at every iterate, with every constant, from any start and for any norm; no first
iteration from which it holds, and no condition on the steps but b_t ≥ 0.

References: Fan, Schmidt, Thrampoulidis, *Implicit Bias of Spectral Descent and Muon on Multiclass Separable Data*,
arXiv 2502.04664, Lemmas 1 and 3, Theorem 1, of whose appendix we know nothing; constants and derivation are our own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64

from generators.embeddings import label_or_embedded_cases
from generators.labelled import SEPARABLE_LABELS, Labelled
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import SVM_ONLY
from theorems.core.statement import statement
from theorems.rounding.attention_at import Numbers
from theorems.steepest_descent.followed import RUN_PREMISES, Asked
from theorems.steepest_descent.label_loss import (
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

STEPS = 150
POINTS = 40
NEEDS = {SEPARABLE_LABELS.id: "there is a largest margin, and it is positive, only if labels can be told apart"}


@statement(
    "steepest-multiclass",
    "Steepest descent in any norm, multiclass data",
    source="arXiv 2502.04664, Lemmas 1 and 3, Theorem 1; constants are our own",
    claims=(NORM_MARGIN, *POINT_CLAIMS, *RUN_PREMISES, *RUN_CLAIMS),
    assumptions=(SEPARABLE_LABELS,),
    about=Labelled,
    cases=label_or_embedded_cases,
    kernel=SVM_ONLY,
)
def steepest_multiclass(case: Labelled, under_test: Implementation) -> Iterator[Claim]:
    """Features h_i of class y_i and weight π_i > 0, Σπ = 1, such that g_iv·W > 0, g_iv = (e_{y_i} − e_v)h_iᵀ, for all i
    and v ≠ y_i and some W. L(W) = Σ π_i log(1 + x_i), x_i = Σ_v e^{−g_iv·W}, the logistic loss; ‖·‖ any norm of
    matrices, here of entries or singular values, ‖·‖_* its dual; m(W) = min g_iv·W, γ = max m(W) over ‖W‖ ≤ 1, D = max
    ‖g_iv‖_*; G = Σ π_i x_i/(1 + x_i), u = L/π_min and Y = log(e^u − 1). At every W

        γG ≤ ‖∇L‖_* ≤ DG,    G ≥ π_min(1 − e^{−u}),

    so that G/L ≥ (1 − e^{−u})/u ≥ 1 − u/2, the printed 1 − nL/2 where weights are equal. From any W(0), W(t+1) = W(t) +
    η_tΔ_t with Δ_t = argmax ⟨−∇L, Δ⟩ over ‖Δ‖ ≤ 1 has, as long as b_t = η_tγ − (e^{Dη_t} − 1 − Dη_t) ≥ 0, that is
    η_t up to about 2γ/D²,

        Y(W(t+1)) ≤ Y(W(t)) − b_t,    m(W(t)) ≥ −Y(W(0)) + Σ_{s<t} b_s,    L(W(t)) ≤ π_min log(1 + e^{Y(W(0)) − Σb}),
        m(W(t))/‖W(t)‖ ≥ (−Y(W(0)) + Σb)/(‖W(0)‖ + Ση) once that is positive.

    So γ − m/‖W‖ ≤ (γ‖W(0)‖ + Y(W(0)) + Σ(e^{Dη} − 1 − Dη))/(‖W(0)‖ + Ση): O((log t + n log k)/√t) for η_0/√t from 0,
    where Y = log(k^n − 1) if weights are equal. That is Theorem 1's rate, without its first iteration and Assumption 2.

    **Gradient.** −∇L = Σ π_i s_iv g_iv with s_iv = e^{−g_iv·W}/(1 + x_i) of sum G: ‖∇L‖_* ≥ ⟨−∇L, W_γ⟩ ≥ γG, and ≤ DG.
    With ℓ_i = log(1 + x_i) ≤ u, as π_min ℓ_i ≤ π_iℓ_i ≤ L, and 1 − e^{−ℓ} concave, G = Σ π_i(1 − e^{−ℓ_i}) ≥ L(1 −
    e^{−u})/u.

    **Step.** L''[Δ, Δ] is the mean of the variances under (1/(1+x_i), s_i) of the numbers 0, g_iv·Δ, at most their
    second moment: at most D²G. And G(W + τΔ) ≤ e^{Dτ}G(W), as x/(1+x) grows by at most D per length in logarithms. So L
    falls by at least ηγG less the double integral of D²e^{Dτ}G, which is Gb; hence u by at least b(1 − e^{−u}), and Y,
    which is increasing and concave in u with slope 1/(1 − e^{−u}), by b. Last, e^u − 1 ≥ max x_i ≥ e^{−m}.

    Computed steps are steepest for the gradient as computed; Y changes by at most D G/(π_min(1 − e^{−u})) per length,
    by which their errors enter.
    """
    rng = case.rng()
    for norm in norms_tried(case, rng):
        geometry = yield from certify_labels(case, norm, under_test)
        yield from point_claims(geometry, under_test, probe_labels(geometry, rng))
        asked, lag = short_steps(geometry, rng)
        run = yield from follow_labels(geometry, under_test, starts_of(geometry, rng), asked)
        yield from run_claims(geometry, run, lag)


def probe_labels(geometry: LabelGeometry, rng: np.random.Generator) -> Float64[np.ndarray, "m D"]:
    """Weights of sizes from 1e-2 to 30, half of them near the largest margin's."""
    sizes = np.exp(rng.uniform(math.log(1e-2), math.log(30.0), (POINTS, 1)))
    p = geometry.solution.p
    along = np.where(rng.random((POINTS, 1)) < 0.5, p / np.abs(p).max(), 0.0)
    return np.asarray(sizes * (along + rng.normal(size=(POINTS, len(p))) * rng.choice([0.1, 1.0], (POINTS, 1))))


def starts_of(geometry: LabelGeometry, rng: np.random.Generator) -> Float64[np.ndarray, "b D"]:
    """0, near it, and with a margin of −3; the case's own."""
    p = geometry.solution.p
    starts = [0 * p, rng.normal(size=len(p)), -3 * p]
    return np.array(starts if geometry.case.start is None else [*starts, geometry.case.start])


def short_steps(geometry: LabelGeometry, rng: np.random.Generator) -> tuple[Asked, Numbers]:
    """η_0/√(t+1) or constant, with b_t ≥ 0; no momentum, hence τ = 0."""
    margin, reach = float(value_of(geometry.margin)), float(value_of(geometry.reach))
    size = margin / reach**2 * math.exp(rng.uniform(math.log(0.05), math.log(2.0)))
    shape = 1 / np.sqrt(np.arange(1.0, STEPS + 1)) if rng.random() < 0.7 else np.ones(STEPS)
    lag = exact(np.zeros(STEPS))
    while not (geometry.gain(exact(size * shape), lag) >= 0).all():
        size /= 2
    return Asked(size * shape, 0.0), lag
