"""The planted faults on which the tests of the joint statements are pinned."""

from __future__ import annotations

from tests.theorems.token_selection.faults import ATTENTION_FAULTS, planted
from theorems.core.implementation import Implementation

LABEL_FAULTS = planted(
    "label-svm-misses-a-constraint",
    "label-svm-with-intercept",
    "label-margin-wide",
    "all-inputs-supports",
    "support-lost",
)
RELAXED_FAULTS = planted("relaxed-is-not-relaxed", "relaxed-without-quadrant")
JOINT_FAULTS: dict[str, Implementation] = {
    **LABEL_FAULTS,
    **RELAXED_FAULTS,
    **ATTENTION_FAULTS,
    **planted(
        "svm-scaled",
        "svm-misses-a-constraint",
        "svm-with-bias",
        "negated-gradient",
        "rolled-coordinates",
        "weight-decay",
    ),
}
"""What the joint statements are tried on."""
