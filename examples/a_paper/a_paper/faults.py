"""A planted fault that a test of the theorem has to catch: attention with softmin in place of softmax."""

from __future__ import annotations

from typing import Any

from reference_attention.risk import scaled_gradient
from theorems.api import REFERENCE, Fault, FaultKind, Implementation


def gradient_of_softmin(keys: Any, scores: Any, loss: Any, p: Any) -> Any:
    """Return the gradient of the risk for weights proportional to e^{−h}, largest for the smallest logit h = k·p."""
    return scaled_gradient(-keys, scores, loss, p)


def softmin(size: float) -> Implementation:
    """Return the faulty implementation; as its function is defined in a module, other processes can import it."""
    return REFERENCE.replace("", {scaled_gradient: gradient_of_softmin})


FAULTS = (Fault("softmin", FaultKind.GRADIENT, "weights of e^{−h}", "ordered-logits-descend", softmin),)
