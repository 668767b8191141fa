"""Assumptions that cannot be left out because the statement's own words need them."""

from __future__ import annotations

NEEDED_TO_STATE: dict[tuple[str, str], str] = {
    ("lemma-10", "direction-given"): "the lemma counts the directional neighbours of q, and 0 is no direction",
    ("theorem-3", "separable"): (
        "the cone, local optimality and the limit are defined by p_mm(α), which exists only if ATT-SVM(α) is feasible"
    ),
    ("theorem-4", "direction-given"): "the theorem speaks of a direction q; without one it says nothing",
}
"""By statement and assumption: why there is nothing to hunt."""
