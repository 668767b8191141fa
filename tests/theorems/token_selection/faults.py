"""The planted faults on which the tests of single statements are pinned; all of them are in :mod:`theorems.faults`."""

from __future__ import annotations

from theorems.core.implementation import Implementation
from theorems.faults import FAULTS as PLANTED


def planted(*names: str) -> dict[str, Implementation]:
    """Those faults' implementations by name."""
    return {name: PLANTED[name].implementation for name in names}


ATTENTION_FAULTS = planted("temperature", "masked-token", "epsilon-in-denominator", "float32-softmax", "clipped-logits")
"""Faults in the softmax: weights, risk and gradient agree with each other and are all wrong."""

GRADIENT_FAULTS = planted(
    "negated-gradient",
    "gradient-too-long",
    "one-coordinate-off",
    "rolled-coordinates",
    "weight-decay",
    "wrong-loss-derivative",
    "diagonal-jacobian",
    "detached-normaliser",
    "cancelling-gradient",
)
"""Faults in the gradient alone; ``cancelling-gradient`` is the textbook formula, wrong only by rounding."""

SVM_FAULTS = planted(
    "svm-scaled",
    "svm-misses-a-constraint",
    "svm-with-bias",
    "svm-for-another-token",
    "svm-always-infeasible",
    "neighbours-by-tolerance",
    "neighbour-lost",
)
"""Faults in the hard-margin SVM."""

FAULTS: dict[str, Implementation] = {**ATTENTION_FAULTS, **GRADIENT_FAULTS, **SVM_FAULTS}
"""Softmax, gradient and SVM by name."""
