"""A planted fault that the theorem has to catch: attention with softmin in place of softmax."""

from __future__ import annotations

from typing import Any

from reference_attention.risk import scaled_gradient
from theorems.api import REFERENCE, Fault, FaultKind, Implementation


def gradient_of_softmin(keys: Any, scores: Any, loss: Any, p: Any) -> Any:
    """Return ∇L of attention with weights e^{−h}, which prefer the token of the smallest logit h."""
    return scaled_gradient(-keys, scores, loss, p)


def softmin(size: float) -> Implementation:
    """Return the faulty implementation; its functions stand in a module, so it can be sent to other processes."""
    return REFERENCE.replace("", {scaled_gradient: gradient_of_softmin})


FAULTS = (Fault("softmin", FaultKind.GRADIENT, "weights of e^{−h}", "ordered-logits-descend", softmin),)
