"""Predicates of assumptions on directions q (or q1 and q2): the tokens that they select, and directional neighbours.

A direction q selects the tokens with the largest k_it·q of each input. The directional margin θ(q) is the least
(k_iα − k_it)·q/‖q‖ over the tokens t that q does not select, with a selected token α of the same input; the tokens t
that attain it are the directional neighbours (Definition 3). All predicates are decided over the rationals. The
directions are the arrays ``q``, or ``q1`` and ``q2``, of any length, in ``Case.arrays``.

References: *Max-Margin Token Selection in Attention Mechanism*, Definition 3, Lemmas 8 and 9, Theorem 7.
"""

from __future__ import annotations

import numpy as np

from generators.case import Case
from generators.finding import Finding, number
from generators.margin_assumptions import checked_margins
from reference_attention.directions import Direction, direction, margin_sign, not_below, parallel
from reference_attention.errors import InvalidInput


def _directions(case: Case, *names: str) -> list[Direction] | Finding:
    """Return the named directions of the case, or the finding that a direction is missing or invalid."""
    missing = [name for name in names if name not in case.arrays]
    if missing:
        return Finding(None, f"the direction {missing[0]} is not given")
    try:
        return [direction(case.problem.keys, case.arrays[name]) for name in names]
    except InvalidInput as error:
        return Finding(False, str(error))


def _tie(direction: Direction) -> str:
    """Describe an input of which the direction selects several tokens; return "" if there is no such input."""
    if direction.unique:
        return ""
    i = int(direction.tied_inputs[0])
    tokens = np.flatnonzero(direction.selected[i])
    return f"input {i}: tokens {', '.join(map(str, tokens))} are all selected"


def wider_direction(case: Case) -> Finding:
    """Check that q1 and q2 select the same single tokens, and that their directional margins are θ(q1) < θ(q2)."""
    directions = _directions(case, "q1", "q2")
    if isinstance(directions, Finding):
        return directions
    first, second = directions
    for name, q in (("q1", first), ("q2", second)):
        tie = _tie(q)
        if tie:
            return Finding(False, f"{name}, {tie}")
    differs = np.argwhere(first.selected != second.selected)
    if differs.size:
        return Finding(False, f"q1 and q2 select different tokens of input {differs[0, 0]}")
    a, b = first.margin, second.margin
    evidence = f"θ(q1) = {number(a, b)}, θ(q2) = {number(b, a)}"
    return Finding(margin_sign(first, second) < 0, evidence)


def decided_neighbours(case: Case) -> Finding:
    """Check that q1 and q2 are neighbour-optimal, or the only directional neighbour of q1 scores strictly higher.

    A direction is neighbour-optimal if all directional neighbours score lower than the selected tokens. Lemma 8 says
    "q1 is not neighbour-optimal (i.e. this neighbour has higher score)". But q1 is not neighbour-optimal either if the
    neighbour has an *equal* score, and then the lemma is false.
    """
    directions = _directions(case, "q1", "q2")
    if isinstance(directions, Finding):
        return directions
    scores = case.problem.scores
    offending = [not_below(direction, scores) for direction in directions]
    if not offending[0] and not offending[1]:
        return Finding(True, "q1 and q2 are neighbour-optimal")
    several = int(directions[0].neighbours.sum())
    if several == 1 and offending[0]:
        i, t = offending[0][0]
        chosen_score, other = scores[i, int(directions[0].best(scores)[i])], scores[i, t]
        neighbour = (
            f"token {t} of input {i} is the only directional neighbour of q1 and scores {number(other, chosen_score)}"
        )
        return Finding(bool(other > chosen_score), f"{neighbour}, the selected token {number(chosen_score, other)}")
    number_of_q, (i, t) = next((k, pairs[0]) for k, pairs in enumerate(offending, start=1) if pairs)
    return Finding(
        False,
        f"q{number_of_q} is not neighbour-optimal (token {t} of input {i}), q1 has {several} directional neighbours",
    )


def higher_neighbours(case: Case) -> Finding:
    """Check that q selects one token per input, and that all directional neighbours score strictly higher (Lemma 9)."""
    directions = _directions(case, "q")
    if isinstance(directions, Finding):
        return directions
    tie = _tie(directions[0])
    if tie:
        return Finding(False, tie)
    scores, neighbours = case.problem.scores, directions[0].neighbours
    chosen_scores = np.take_along_axis(scores, directions[0].best(scores)[:, None], axis=1)
    low = np.argwhere(neighbours & (scores <= chosen_scores))
    if low.size:
        i, t = (int(x) for x in low[0])
        return Finding(
            False,
            f"input {i}: the directional neighbour {t} scores {number(scores[i, t], chosen_scores[i, 0])},"
            f" not above the {number(chosen_scores[i, 0], scores[i, t])} of the selected token",
        )
    return Finding(True, f"all {int(neighbours.sum())} directional neighbours score higher")


def direction_given(case: Case) -> Finding:
    """Check that a direction q ≠ 0 is given."""
    directions = _directions(case, "q")
    if isinstance(directions, Finding):
        return directions
    direction = directions[0]
    return Finding(
        True, f"{int(direction.neighbours.sum())} directional neighbours, {direction.tied_inputs.size} inputs with ties"
    )


def not_locally_optimal_direction(case: Case) -> Finding:
    """Check that q is not a locally max-margin (LMM) direction: not parallel to p_mm(α) for a locally optimal α.

    p_mm(α) selects only α, so only the tokens that q selects need to be tried as α. If q is parallel to p_mm(α), the
    directional neighbours of q are the SVM-neighbours of α.
    """
    directions = _directions(case, "q")
    if isinstance(directions, Finding):
        return directions
    direction, scores = directions[0], case.problem.scores
    tie = _tie(direction)
    if tie:
        return Finding(True, f"{tie}, so q is no max-margin direction")
    checked = checked_margins(case.problem.keys, direction.best(scores))
    if not checked.proven or checked.p is None:
        return Finding(None, checked.evidence)
    if not parallel(direction.vector, checked.p):
        return Finding(True, "q is not parallel to the max-margin direction of the tokens that it selects")
    offending = not_below(direction, scores)
    if offending:
        i, t = offending[0]
        return Finding(True, f"q is max-margin, but its neighbour {t} of input {i} does not score lower")
    return Finding(False, "q is the max-margin direction of the locally optimal tokens that it selects")
