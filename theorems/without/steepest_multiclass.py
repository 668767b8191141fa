"""Steepest descent on labels that no W tells apart: the loss has a floor, which momentum does not lower.

References: own; :mod:`theorems.steepest_descent.steepest_multiclass`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from generators.labelled import SEPARABLE_LABELS, Labelled, label_cases, separable_labels
from reference_attention.exact import to_float
from reference_attention.next_token.label_descent import label_descent, label_gradient, label_loss
from reference_attention.norms import Schatten
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT
from theorems.without.weakened import weaken

STEPS = 2000
LOSS = "loss-vanishes"


@st.composite
def seen_twice(draw: DrawFn) -> Labelled:
    """Of one feature another class is seen, too."""
    case = draw(label_cases())
    i, other = draw(st.integers(0, len(case.labels) - 1)), draw(st.integers(1, case.classes - 1))
    label = (case.labels[i] + other) % case.classes
    return case.replace(
        features=np.concatenate([case.features, case.features[i : i + 1]]),
        labels=np.append(case.labels, label),
        counts=np.append(case.counts, 1),
    )


@weaken(
    "steepest-multiclass",
    without=SEPARABLE_LABELS.id,
    refutes="L(W(t)) → 0 for steps of lengths like 1/√t, and is below π_min log 2 once Σb exceeds Y(W(0))",
    cases=seen_twice,
    fails=separable_labels,
)
def inseparable_labels(case: Labelled, under_test: Implementation) -> Iterator[Claim]:
    """One feature of two classes: whatever W, one of them has at most half of the probability, and L ≥ π_min log 2, in
    any norm. There is no positive margin, and the gradient vanishes at the minimiser, where γG with a γ > 0 would not.
    """
    yield from _vanishes(case, under_test, 0.0)


@weaken(
    "steepest-momentum",
    without=SEPARABLE_LABELS.id,
    refutes="L(W(t)) → 0 for steps of lengths like 1/√t, and is below π_min log 2 once Σb exceeds Y(W(0))",
    cases=seen_twice,
    fails=separable_labels,
)
def inseparable_with_momentum(case: Labelled, under_test: Implementation) -> Iterator[Claim]:
    """As without momentum: the loss has a floor that is that of no W."""
    yield from _vanishes(case, under_test, 0.5)


def _vanishes(case: Labelled, under_test: Implementation, momentum: float) -> Iterator[Claim]:
    """L ≤ π_min log 2 after two thousand steps from 0, in the spectral norm; in plain floats."""
    problem = case.problem
    run = under_test.in_place_of(label_descent)(
        problem,
        np.zeros((1, problem.dimension)),
        lengths=1 / (np.abs(case.features).max() * np.sqrt(np.arange(1.0, STEPS + 1))),
        norm=Schatten(math.inf, case.shape),
        momentum=momentum,
        gradient=under_test.in_place_of(label_gradient),
    )
    found = float(label_loss(problem, run[-1])[0])
    least = min(to_float(x) for x in problem.weights) * math.log(2)
    detail = f"L = {found:.6g}, π_min log 2 = {least:.6g}"
    yield Claim(LOSS, Form.LIMIT, least - found, 1e-6 * least, EXACT, detail)
