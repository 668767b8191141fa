"""Why a statement survives a fault that it touches: by the statement, the kind of the fault, or the fault itself."""

from __future__ import annotations

from theorems.faults.fault import Fault, Kind

SEARCH_ONLY = "the gradient steers the search for a better point; what is claimed is the risk at what was found"
POINTS_ONLY = "it only places the points at which the claim is tried"
ROOM = "an inequality with room, in which the fault stays"
RATE = "a rate of decay up to a factor: on these cases the fault moves the limit by less than it shows"
NO_SOLUTION = "without a solution there is nothing to compare with"
NO_NEIGHBOUR = "where it was the only neighbour the sharp form breaks down"
MISREAD = "for the tokens as misread the objects of the statement do not exist, and it says so"

BY_FAULT: dict[tuple[str, str], str] = {
    ("epsilon-in-denominator", "lemma-12"): "odds are ratios of weights, in which the denominator cancels",
    ("no-maximum-subtracted", "lemma-1"): "its logits stay below 710",
    (
        "cancelling-gradient",
        "lemma-1",
    ): "the other of its two runs is textbook autograd, whose rounding the tolerance allows",
    ("sparsemax", "lemma-5"): ROOM,
    ("temperature", "lemma-5"): "a colder softmax obeys the same bound, with a smaller R_π",
    ("scaled-by-root-d", "lemma-5"): ROOM,
    ("top-2", "theorem-5"): "less weight off the selected token: the bounds on it hold all the more",
    ("top-2", "theorem-6"): "less weight off the selected token: the bounds on it hold all the more",
    ("gradient-too-long", "lemma-4"): "twice the gradient descends twice as much",
    ("gradient-too-long", "lemma-5"): "only the direction of the gradient enters",
    ("gradient-too-long", "theorem-3"): "another step size, still short in the cone",
    ("gradient-too-long", "theorem-8"): "a factor moves no minimiser",
    ("one-coordinate-off", "theorem-3"): ROOM,
    ("wrong-loss-derivative", "lemma-5"): "with one input ℓ' is a positive factor, and only the direction enters",
    ("loss-derivative-dropped", "lemma-5"): "with one input ℓ' is a positive factor, and only the direction enters",
    (
        "loss-derivative-dropped",
        "theorem-8",
    ): "the gradient is asked for with the correlation loss, whose ℓ' is −1 anyway",
    (
        "step-above-bound",
        "theorem-3",
    ): "at the norms of its cone a step is e^−1000 of p; a thousand times that is as nothing",
    ("score-off", "lemma-14"): ROOM,
    ("score-off", "theorem-4"): ROOM,
    ("svm-scaled", "lemma-4"): "a longer p_mm descends all the more",
    ("svm-scaled", "lemma-5"): "a longer p_mm makes R_π larger, where the bound holds as well",
    ("svm-of-float32-keys", "lemma-5"): ROOM,
    (
        "svm-with-bias",
        "theorem-4",
    ): "p_mm is only a better direction to tilt to, and on these cases the wrong one is better, too",
    (
        "neighbours-by-tolerance",
        "theorem-5",
    ): "with a token of zero dual among the neighbours the sharp form makes no claim",
    ("neighbour-lost", "theorem-5"): NO_NEIGHBOUR,
    ("neighbour-lost", "theorem-8"): NO_NEIGHBOUR,
    (
        "direction-not-normalised",
        "lemma-9",
    ): "both margins that it compares are those of one q: a factor changes no sign",
}
"""(fault, statement) → why."""

BY_KIND: dict[tuple[Kind, str], str] = {
    (Kind.GRADIENT, "theorem-4"): SEARCH_ONLY,
    (Kind.SVM, "lemma-12"): POINTS_ONLY,
    (Kind.SVM, "lemma-13"): "the limit is p_relax, which has its own solver; p_mm " + POINTS_ONLY[3:],
    (Kind.SVM, "lemma-14"): POINTS_ONLY,
    (Kind.SVM, "theorem-6"): "the limit is p_relax, which has its own solver; p_mm " + POINTS_ONLY[3:],
    (Kind.SETS, "lemma-14"): POINTS_ONLY,
    (Kind.LABELS, "lemma-12"): POINTS_ONLY,
    (Kind.SOFTMAX, "conjecture-joint-descent"): RATE,
    (Kind.GRADIENT, "conjecture-joint-descent"): RATE,
    (Kind.DATA, "conjecture-joint-descent"): RATE,
    (
        Kind.SVM,
        "conjecture-joint-descent",
    ): "the limit is p(c), which is found without p_mm; p_mm sets the unit of the steps",
    (Kind.LABELS, "conjecture-joint-descent"): RATE,
}
"""(kind of the fault, statement) → why, where nothing more particular is known."""


def why_spared(fault: Fault, id: str, undecided: bool = False) -> str:
    """Why the statement survives the fault; empty when nobody has said.

    Args:
        undecided: the statement itself said why it could not decide; only a more particular reason counts then.
    """
    if fault.name == "svm-always-infeasible":
        return NO_SOLUTION
    if fault.spoil is not None:
        return MISREAD
    return BY_FAULT.get((fault.name, id)) or ("" if undecided else BY_KIND.get((fault.kind, id), ""))
