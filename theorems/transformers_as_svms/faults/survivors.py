"""The reasons why statements of the paper stay true under planted faults, by name or kind of the fault."""

from __future__ import annotations

from theorems.faults.survivors import ANY_STEP, RATE, RIGHT_HERE, ROOM, SAME_FLOW_END, SEARCH_ONLY, VALUES

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
        "gradient-too-long": "twice as long it has the same direction, and bounds of its length are from below",
    },
    "tsvm-factored-descent": {
        "svm-of-rounded-products": RIGHT_HERE,
        "called-complementary": START_ONLY,
        "queries-of-the-next-input": "the fifth case is the first that tells",
        "clipped-gradient": "the nineteenth case is the first whose gradients are long enough",
        "svm-of-float32-keys": RIGHT_HERE,
        "neighbours-by-tolerance": START_ONLY,
        "always-independent": START_ONLY,
        "always-complementary": START_ONLY,
    },
    "tsvm-first-step": {
        "svm-of-rounded-products": RIGHT_HERE,
        "step": ANY_STEP,
        "score-off": ROOM,
        "always-complementary": RIGHT_HERE,
        "svm-of-float32-keys": RIGHT_HERE,
        "neighbours-by-tolerance": RIGHT_HERE,
        "always-independent": RIGHT_HERE,
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
        "called-complementary": RIGHT_HERE,
        "step": ANY_STEP,
        "gradient-too-long": "another step size, still short in the cone",
        "one-coordinate-off": ROOM,
        "key-off": ROOM,
        "score-off": ROOM,
        "descent-stops-far-out": "where no step changes a coordinate any more, nor does stopping",
        "descent-clips-steps": "where no step changes a coordinate any more, nor does a clipped one",
        "flow-of-another-loss": SAME_FLOW_END,
        "flow-of-other-scores": SAME_FLOW_END,
        "flow-interpolates": "the bound is on the distance from the ray, which a chord keeps; Theorem 2 sees the chord",
        "step-above-bound": "at the norms of its cone a step is e^−1000 of p; a thousand times that is as nothing",
        "flow-on-the-ray": ROOM,
        "always-independent": RIGHT_HERE,
        "always-complementary": RIGHT_HERE,
    },
    "tsvm-local-path": {
        "nuclear-gap-of-one": ROOM,
        "risk": VALUES,
        "gradient": SEARCH_ONLY,
        "float32-softmax": ROOM,
        "sparsemax": ROOM,
        "score-off": ROOM,
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
        "called-complementary": RIGHT_HERE,
        "risk": VALUES,
        "softmax": RATE,
        "gradient": RATE,
        "key-off": RATE,
        "score-off": RATE,
        "flow-jumps-sideways": SAME_END,
        "flow-on-the-ray": SAME_END,
        "flow-interpolates": SAME_END,
        "flow-of-another-loss": SAME_END,
        "flow-of-other-scores": SAME_END,
        "flow-of-other-keys": SAME_END,
        "always-independent": RIGHT_HERE,
        "always-complementary": RIGHT_HERE,
    },
}
"""Reasons by the id of the statement."""
