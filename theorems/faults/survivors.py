"""The first paper's reasons why statements are upheld although a fault is planted in a function that they call."""

from __future__ import annotations

SEARCH_ONLY = "the gradient only steers the search for a better point; the claim is about the risk at the point found"
POINTS_ONLY = "the wrong object only places the points at which the claim is checked"
ROOM = "the claim is an inequality with more room than the fault uses"
NO_SQUARE = "these cases have no W, or a W that is not square"
RATE = "the claim is a rate of decay up to a factor; on these cases the fault moves the limit by too little to show"
NO_NEIGHBOUR = "if the lost neighbour was the only one, the sharp form cannot be evaluated"
CLAIMS_LOST = (
    "sharp forms that need the flag are not claimed; a verification reports the missing claims as inconclusive"
)
OWN_SOLVER = "the limit is p_relax, which has its own solver; p_mm only places the points at which the claim is checked"
VALUES = "risks are only compared with each other, with room or with a common factor; Lemma 3 checks their values"
RIGHT_HERE = "on these cases, with small integers and no near ties, the wrong result is right, or hardly differs"
ANY_STEP = "any step up to the bound will do, and even somewhat longer ones; Lemma 6 checks the bound"
SAME_FLOW_END = (
    "the wrong flow has the same limit, within the same bound; Theorem 2 notices that it is not the flow of this risk"
)

IN_A_CONE = {
    **dict.fromkeys(("one-coordinate-off", "key-off", "score-off"), ROOM),
    **dict.fromkeys(("flow-of-another-loss", "flow-of-other-scores"), SAME_FLOW_END),
    "step": ANY_STEP,
    "gradient-too-long": "the longer gradient amounts to another step size, which is still short in the cone",
    "descent-stops-far-out": "the iterates stop only where no step changes a float any more",
    "descent-clips-steps": "steps are clipped only where no step changes a float any more",
    "flow-interpolates": "chords keep the bound on the distance from the ray; Theorem 2 notices that they are chords",
    "step-above-bound": "in this cone a step is e^−1000 times p, and a thousand times as much is still negligible",
}
"""Reasons, by name or kind of the fault, for the theorems on descents that start in a cone around p_mm or W^mm."""

SURVIVORS: dict[str, dict[str, str]] = {
    "lemma-1": {
        **dict.fromkeys(("keys-of-transposed-weights", "keys-are-tokens", "scores-of-keys"), NO_SQUARE),
        "no-maximum-subtracted": "the logits of its cases stay below 710",
        "descent-stops-far-out": "its run stays nearer",
        "descent-skips-a-step": "runs have ten steps each, so there is no eleventh step",
        "cancelling-gradient": "the textbook gradient is compared with back-propagation, which rounds in the same way",
    },
    "lemma-4": {
        "gradient-too-long": "twice the gradient gives twice the descent, and the claim bounds the descent from below",
        "surrogate-loss": "log(1 + e^−u) is steeper than σ(−u) at every u, so it descends more",
        "svm-scaled": "a longer p_mm gives more descent, and the claim bounds the descent from below",
    },
    "lemma-5": {
        "wrong-loss-derivative": "with one input ℓ' is a positive factor, and only the direction enters",
        "loss-derivative-dropped": "with one input ℓ' is a positive factor, and only the direction enters",
        "surrogate-loss": "with one input ℓ' is a positive factor, and only the direction enters",
        **dict.fromkeys(("sparsemax", "tokens-after-the-eighth-forgotten", "running-maximum-never-rescaled"), ROOM),
        **dict.fromkeys(("scaled-by-root-d", "svm-of-float32-keys", "float32-gradient", "score-off"), ROOM),
        "temperature": "a softmax with larger logits satisfies the same bound with a smaller R_π",
        "gradient-too-long": "only the direction of the gradient enters",
        "svm-scaled": "a longer p_mm makes R_π larger, and the bound holds there, too",
    },
    "lemma-6": {
        **dict.fromkeys(("keys-of-transposed-weights", "keys-are-tokens", "scores-of-keys"), NO_SQUARE),
        "risk": ROOM,
        "descent-stops-far-out": "its run stays nearer",
    },
    "lemma-7": {
        "key-off": ROOM,
        "score-off": ROOM,
    },
    "lemma-8": {
        "risk": VALUES,
    },
    "lemma-9": {
        "risk": VALUES,
        "direction-not-normalised": "the claim compares two margins of one q, so a factor does not change the sign",
    },
    "lemma-12": {
        "epsilon-in-denominator": "odds are ratios of weights, in which the denominator cancels",
        "svm": POINTS_ONLY,
        "labels": POINTS_ONLY,
    },
    "lemma-13": {
        "svm": OWN_SOLVER,
        "top-2": ROOM,
    },
    "lemma-14": {
        **dict.fromkeys(("score-off", "ragged-tail-forgotten", "ragged-tail-padded"), ROOM),
        "risk": VALUES,
        "svm": POINTS_ONLY,
        "sets": POINTS_ONLY,
    },
    "theorem-1": {
        "risk": VALUES,
    },
    "theorem-2": {
        "svm-of-rounded-products": RIGHT_HERE,
        "step": ANY_STEP,
        "risk": VALUES,
    },
    "theorem-3": {
        "svm-of-rounded-products": RIGHT_HERE,
        **IN_A_CONE,
    },
    "theorem-4": {
        **dict.fromkeys(("score-off", "tokens-after-the-eighth-forgotten", "ragged-tail-forgotten"), ROOM),
        "ragged-tail-padded": ROOM,
        "risk": VALUES,
        "direction-saturates": "the claim is an inequality with room around q, which a rounded q satisfies",
        "svm-with-bias": "p_mm is only a better direction to tilt to, and on these cases the wrong one is better, too",
        "svm-of-float32-keys": (
            "p_mm is only a better direction to tilt to, and on these cases the wrong one is better, too"
        ),
        "gradient": SEARCH_ONLY,
    },
    "theorem-5": {
        "top-2": "less weight off the selected token: the bounds on it hold all the more",
        "neighbours-by-tolerance": "if a neighbour has the dual 0, the sharp form is not claimed",
        "neighbour-lost": NO_NEIGHBOUR,
    },
    "theorem-6": {
        "top-2": "less weight off the selected token: the bounds on it hold all the more",
        "svm": OWN_SOLVER,
    },
    "theorem-8": {
        "risk": VALUES,
        "gradient-too-long": "a constant factor does not move a minimiser",
        "loss-derivative-dropped": "the gradient is only used with the correlation loss, for which ℓ' = −1",
        "surrogate-loss": "unless the head is linear, the gradient is only used with the correlation loss",
        "neighbour-lost": NO_NEIGHBOUR,
        "never-independent": CLAIMS_LOST,
        "never-complementary": CLAIMS_LOST,
    },
    "conjecture-joint-descent": {
        **dict.fromkeys(("softmax", "gradient", "data", "labels"), RATE),
        "svm": "the limit is p(c), which is computed without p_mm; p_mm only sets the unit of the steps",
        "joint": "on such short runs, a wrong p(c) below c* changes logits by less than one",
    },
    "descent-from-a-margin": {
        **dict.fromkeys(("svm-of-rounded-products", "called-complementary", "always-complementary"), RIGHT_HERE),
        "step": ANY_STEP,
        "score-off": ROOM,
    },
}
"""The reasons by statement, then by name or kind of the fault; other papers list theirs in modules of their faults."""
