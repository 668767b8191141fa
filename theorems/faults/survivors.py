"""The reasons why each statement stays true under planted faults that it touches, by name or kind of the fault."""

from __future__ import annotations

SEARCH_ONLY = "the gradient steers the search for a better point; what is claimed is the risk at what was found"
POINTS_ONLY = "it only places the points at which the claim is tried"
ROOM = "an inequality with room, in which the fault stays"
NO_SQUARE = "its W, where there is one, is not square"
RATE = "a rate of decay up to a factor: on these cases the fault moves the limit by less than it shows"
NO_NEIGHBOUR = "where it was the only neighbour the sharp form breaks down"
CLAIMS_LOST = "sharp forms that need the flag are not claimed; a verification notices that they are lost: inconclusive"
OWN_SOLVER = "the limit is p_relax, which has its own solver; p_mm only places the points at which the claim is tried"
VALUES = "risks enter as bounds of each other, with room or with a common factor; their values are claimed by Lemma 3"
RIGHT_HERE = "on these cases it is so, or nothing is lost: small integers, and no near ties"
ANY_STEP = "any step up to the bound will do, and there is room beyond it; its value is claimed by Lemma 6"
SAME_FLOW_END = (
    "its flow has the same limit, within the same bound; that it is no flow of this risk is seen by Theorem 2"
)

IN_A_CONE = {
    **dict.fromkeys(("one-coordinate-off", "key-off", "score-off"), ROOM),
    **dict.fromkeys(("flow-of-another-loss", "flow-of-other-scores"), SAME_FLOW_END),
    "step": ANY_STEP,
    "gradient-too-long": "another step size, still short in the cone",
    "descent-stops-far-out": "where no step changes a coordinate any more, nor does stopping",
    "descent-clips-steps": "where no step changes a coordinate any more, nor does a clipped one",
    "flow-interpolates": "the bound is on the distance from the ray, which a chord keeps; Theorem 2 sees the chord",
    "step-above-bound": "at the norms of its cone a step is e^−1000 of p; a thousand times that is as nothing",
}
"""Reasons of the theorems on descents that start in a cone around p_mm or W^mm, by name or kind of the fault."""

SURVIVORS: dict[str, dict[str, str]] = {
    "lemma-1": {
        **dict.fromkeys(("keys-of-transposed-weights", "keys-are-tokens", "scores-of-keys"), NO_SQUARE),
        "no-maximum-subtracted": "its logits stay below 710",
        "descent-stops-far-out": "its run stays nearer",
        "descent-skips-a-step": "ten steps are asked for at a time; the eleventh is the first of another run",
        "cancelling-gradient": "the other of its two paths is textbook back-propagation, which is known no better",
    },
    "lemma-4": {
        "gradient-too-long": "twice the gradient descends twice as much",
        "surrogate-loss": "log(1 + e^−u) is steeper than σ(−u) at every u, and descends more",
        "svm-scaled": "a longer p_mm descends all the more",
    },
    "lemma-5": {
        "wrong-loss-derivative": "with one input ℓ' is a positive factor, and only the direction enters",
        "loss-derivative-dropped": "with one input ℓ' is a positive factor, and only the direction enters",
        "surrogate-loss": "with one input ℓ' is a positive factor, and only the direction enters",
        **dict.fromkeys(("sparsemax", "tokens-after-the-eighth-forgotten", "running-maximum-never-rescaled"), ROOM),
        **dict.fromkeys(("scaled-by-root-d", "svm-of-float32-keys", "float32-gradient", "score-off"), ROOM),
        "temperature": "a colder softmax obeys the same bound, with a smaller R_π",
        "gradient-too-long": "only the direction of the gradient enters",
        "svm-scaled": "a longer p_mm makes R_π larger, where the bound holds as well",
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
        "direction-not-normalised": "both margins that it compares are those of one q: a factor changes no sign",
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
        "direction-saturates": "an inequality with room around q, in which a rounded q stays",
        "svm-with-bias": "p_mm is only a better direction to tilt to, and on these cases the wrong one is better, too",
        "svm-of-float32-keys": (
            "p_mm is only a better direction to tilt to, and on these cases the wrong one is better, too"
        ),
        "gradient": SEARCH_ONLY,
    },
    "theorem-5": {
        "top-2": "less weight off the selected token: the bounds on it hold all the more",
        "neighbours-by-tolerance": "with a token of zero dual among the neighbours the sharp form makes no claim",
        "neighbour-lost": NO_NEIGHBOUR,
    },
    "theorem-6": {
        "top-2": "less weight off the selected token: the bounds on it hold all the more",
        "svm": OWN_SOLVER,
    },
    "theorem-8": {
        "risk": VALUES,
        "gradient-too-long": "a factor moves no minimiser",
        "loss-derivative-dropped": "the gradient is asked for with the correlation loss, whose ℓ' is −1 anyway",
        "surrogate-loss": "the gradient is asked for with the correlation loss, unless the head is linear",
        "neighbour-lost": NO_NEIGHBOUR,
        "never-independent": CLAIMS_LOST,
        "never-complementary": CLAIMS_LOST,
    },
    "conjecture-joint-descent": {
        **dict.fromkeys(("softmax", "gradient", "data", "labels"), RATE),
        "svm": "the limit is p(c), which is found without p_mm; p_mm sets the unit of the steps",
        "joint": "p(c) below c* lies within a logit of its neighbours on such short runs",
    },
    "descent-from-a-margin": {
        **dict.fromkeys(("svm-of-rounded-products", "called-complementary", "always-complementary"), RIGHT_HERE),
        "step": ANY_STEP,
        "score-off": ROOM,
    },
}
"""Reasons by the id of the statement, for the first paper; other papers list theirs in modules of their own faults."""
