"""Reasons why statements of the paper stay true under planted faults that they do not detect."""

from __future__ import annotations

from theorems.faults.survivors import ANY_STEP, IN_A_CONE, RATE, RIGHT_HERE, ROOM, SEARCH_ONLY, VALUES

START_ONLY = "p_mm only says where a run with enough margin starts; its margin is claimed"
SAME_END = "another curve with the same end; that it is no flow of this risk is seen by Theorem 2"
LONGER = "it descends along any feasible W', also a longer one"

SURVIVORS: dict[str, dict[str, str]] = {
    "tsvm-risk-floor": {
        "excess-linearised": "|ℓ'(γ_i,opt)| δ_i lies between both bounds at every δ_i; its value is claimed by Lemma 3",
    },
    "tsvm-frobenius-path": {
        "risk": VALUES,
    },
    "tsvm-nuclear-path": {
        "key-off": ROOM,
        "nuclear-gap-of-one": ROOM,
        "risk": VALUES,
    },
    "tsvm-factored-flow": {
        "nuclear-gap-of-one": ROOM,
        "gradient-too-long": "a gradient twice as long has the same direction; its length is only bounded from below",
    },
    "tsvm-factored-descent": {
        **dict.fromkeys(("called-complementary", "neighbours-by-tolerance", "always-independent"), START_ONLY),
        "always-complementary": START_ONLY,
        "svm-of-rounded-products": RIGHT_HERE,
        "queries-of-the-next-input": "the fifth case is the first that tells",
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
        "epsilon-in-denominator": "ratios of weights, in which the denominator cancels; the rest is bounded from above",
        "no-maximum-subtracted": "its logits stay below 710",
        "top-2": "no weight on masked tokens: the bound on it holds all the more",
    },
    "conjecture-independent-rows": {
        **dict.fromkeys(("flow-jumps-sideways", "flow-on-the-ray", "flow-interpolates"), SAME_END),
        **dict.fromkeys(("flow-of-another-loss", "flow-of-other-scores", "flow-of-other-keys"), SAME_END),
        **dict.fromkeys(("softmax", "gradient", "key-off", "score-off"), RATE),
        **dict.fromkeys(("called-complementary", "always-independent", "always-complementary"), RIGHT_HERE),
        "risk": VALUES,
    },
}
"""Statement id → fault id → reason."""
