"""Assumption B without a strict optimum: the scores of an input take two values, and two tokens may have the higher."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from generators.case import Case
from generators.finding import Finding
from generators.problems import cases
from generators.score_assumptions import strict_optimum
from theorems.without.small_cases import starts


def tied_optimum(case: Case) -> Finding:
    """Decide whether the optimum is strict; the answer is no only if a tie is the only violation of Assumption B.

    That is, α and another token tie for the highest score, and all other tokens have equal scores, as Assumption B
    requires.
    """
    strict = strict_optimum(case)
    if strict.holds is not False:
        return strict
    for i, row in enumerate(case.problem.scores):
        if row[case.chosen_tokens[i]] < row.max():
            return Finding(None, f"input {i}: the chosen token is not optimal")
        lower = np.unique(row[row < row.max()])
        if lower.size != 1:
            flaw = "no token that scores lower" if lower.size == 0 else "non-optimal scores that differ"
            return Finding(None, f"input {i} has {flaw}, so that the tie is not the only violation of Assumption B")
    return Finding(False, f"{strict.evidence}; all lower scores are equal within each input")


@st.composite
def tied_cases(draw: DrawFn, *, start: bool = False) -> Case:
    """Draw separable cases of one input in which two tokens have the higher of two different scores."""
    assumed = ("separable", "strict-optimum", "equal-non-optimal-scores")
    case = draw(cases(assumptions=assumed, n=1, tokens=3, d=1, start=starts if start else None, plain=True))
    problem = case.problem
    scores, alpha = problem.scores.copy(), problem.optimal
    twin = (alpha[0] + draw(st.integers(1, problem.T - 1))) % problem.T
    scores[0, twin] = scores[0, alpha[0]]
    # Keep as α the token that is separable by construction, even if the token that ties with it has the smaller index.
    return case.replace(problem=type(problem)(problem.keys, scores, problem.loss), alpha=alpha)
