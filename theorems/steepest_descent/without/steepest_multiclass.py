"""Steepest descent, with and without momentum, on labels that no W separates: the loss stays above a positive bound.

References: derived here; :mod:`theorems.steepest_descent.steepest_multiclass`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from generators.labelled_features import SEPARABLE_LABELS, LabelledFeatures, label_cases
from reference_attention.exact import to_float
from reference_attention.next_token.label_descent import label_descent, label_gradient, label_loss
from reference_attention.norms import Schatten
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT
from theorems.without.weakening import Weakening

STEPS = 2000
LOSS = "loss-vanishes"


@st.composite
def seen_twice(draw: DrawFn) -> LabelledFeatures:
    """Draw labelled features, one of which occurs in two classes."""
    case = draw(label_cases())
    i, other = draw(st.integers(0, len(case.labels) - 1)), draw(st.integers(1, case.classes - 1))
    label = (case.labels[i] + other) % case.classes
    return case.replace(
        features=np.concatenate([case.features, case.features[i : i + 1]]),
        labels=np.append(case.labels, label),
        counts=np.append(case.counts, 1),
    )


def _vanishes(momentum: float, case: LabelledFeatures, under_test: Implementation) -> Iterator[Claim]:
    """Claim that after 2000 steps from 0 in the spectral norm L ≤ π_min log 2, in floats; π_min is the least weight."""
    problem = case.problem
    run = under_test[label_descent](
        problem,
        np.zeros((1, problem.dimension)),
        lengths=1 / (np.abs(case.features).max() * np.sqrt(np.arange(1.0, STEPS + 1))),
        norm=Schatten(math.inf, case.shape),
        momentum=momentum,
        gradient=under_test[label_gradient],
    )
    loss = float(label_loss(problem, run[-1])[0])
    least = min(to_float(x) for x in problem.weights) * math.log(2)
    detail = f"L = {loss:.6g}, π_min log 2 = {least:.6g}"
    yield Claim(LOSS, Form.LIMIT, least - loss, 1e-6 * least, EXACT, detail)


REFUTED = "L(W(t)) → 0 for step lengths like 1/√t, and L(W(t)) ≤ π_min log 2 once Σb exceeds Y(W(0))"

inseparable_labels = Weakening("steepest-multiclass", partial(_vanishes, 0.0), REFUTED).without(
    SEPARABLE_LABELS.id,
    "Let one feature have two classes: one of them has a probability of at most ½, so L ≥ π_min log 2 for every W and"
    " in any norm. There is no positive margin, and the gradient vanishes at the minimiser, so that no bound ‖∇L‖_* ≥"
    " γG with γ > 0 holds.",
    cases=seen_twice,
)
inseparable_with_momentum = Weakening("steepest-momentum", partial(_vanishes, 0.5), REFUTED).without(
    SEPARABLE_LABELS.id,
    "Let one feature have two classes: L ≥ π_min log 2 for every W, also with momentum.",
    cases=seen_twice,
)
