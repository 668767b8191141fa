"""Reasons why statements of *Transformers as SVMs* do not detect some planted faults."""

from __future__ import annotations

from theorems.faults.survivors import ANY_STEP, IN_A_CONE, RIGHT_HERE, ROOM, SEARCH_ONLY, VALUES

START_ONLY = "p_mm only decides where a run starts; the claims check the margin of the start"
LONGER = "the claims hold along any feasible W', also a longer one"

SURVIVORS: dict[str, dict[str, str]] = {
    "tsvm-risk-floor": {
        "excess-linearised": "|ℓ'(γ_i,opt)| δ_i is within both bounds at every δ_i; Lemma 3 checks the excess itself",
    },
    "tsvm-frobenius-path": {
        "risk": VALUES,
    },
    "tsvm-nuclear-path": {
        "key-off": ROOM,
        "nuclear-gap-of-one": ROOM,
        "risk": VALUES,
    },
    "tsvm-factored-descent": {
        **dict.fromkeys(("called-complementary", "neighbours-by-tolerance", "always-independent"), START_ONLY),
        "always-complementary": START_ONLY,
        "svm-of-rounded-products": RIGHT_HERE,
        "queries-of-the-next-input": "the fifth case is the first that detects the fault",
        "clipped-gradient": "the nineteenth case is the first whose gradients are long enough",
        "svm-of-float32-keys": RIGHT_HERE,
    },
    "tsvm-first-step": {
        **dict.fromkeys(("svm-of-rounded-products", "always-complementary", "svm-of-float32-keys"), RIGHT_HERE),
        **dict.fromkeys(("neighbours-by-tolerance", "always-independent"), RIGHT_HERE),
        "step": ANY_STEP,
        "score-off": ROOM,
    },
    "tsvm-no-stationary-point": {
        "svm-of-rounded-products": RIGHT_HERE,
        "called-complementary": RIGHT_HERE,
        "step": ANY_STEP,
        "risk": VALUES,
        "svm-scaled": LONGER,
        "svm-coordinate-off": LONGER,
    },
    "tsvm-local-descent": {
        **IN_A_CONE,
        **dict.fromkeys(("called-complementary", "always-independent", "always-complementary"), RIGHT_HERE),
        "flow-on-the-ray": ROOM,
    },
    "tsvm-local-path": {
        **dict.fromkeys(("nuclear-gap-of-one", "float32-softmax", "sparsemax", "score-off"), ROOM),
        "risk": VALUES,
        "gradient": SEARCH_ONLY,
    },
    "tsvm-sequence": {
        "risk": VALUES,
    },
    "tsvm-mixing": {
        "epsilon-in-denominator": "the denominator cancels in ratios of weights; other claims bound weights from above",
        "no-maximum-subtracted": "the logits of this statement stay below 710",
        "top-2": "masked tokens get no weight, so that the upper bound on their weight holds",
    },
}
"""The reasons, by statement id and then by fault id."""
