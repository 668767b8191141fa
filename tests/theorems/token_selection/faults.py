"""The planted faults used by tests of single statements; :mod:`theorems.faults` has all faults."""

from __future__ import annotations

from theorems.core.implementation import Implementation
from theorems.faults import FAULTS as PLANTED


def planted(*names: str) -> dict[str, Implementation]:
    """Return the implementations with the given faults, by name."""
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
"""Faults in the gradient alone; ``cancelling-gradient``, the textbook formula, is wrong only by rounding."""

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
"""Faults of softmax, gradient and SVM, by name."""
