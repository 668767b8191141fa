"""Exact solutions for the tokens: p_mm of the chosen ones, neighbours, and the plane through it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from theorems.explaining.selection import Chosen, chosen_tokens, locally_optimal_choices
from theorems.explaining.size import size_of
from theorems.explore.runs import RULES
from theorems.explore.state import State
from theorems.explore.view import View, view_of


@dataclass(frozen=True, eq=False)
class Solved:
    """Exact solutions for the tokens.

    Attributes:
        about: the tokens whose p_mm, margin band and neighbours are shown.
        choices: the optimal tokens, then the locally optimal ones, each once.
        listed: whether all locally optimal choices were tried.
        view: the plane.
    """

    about: Chosen
    choices: tuple[Chosen, ...]
    listed: bool
    view: View


def solve(state: State, plane: View | None = None) -> Solved:
    """Solve for p_mm of the optimal, locally optimal and shown tokens, exactly, and choose the plane through them."""
    problem = state.case.problem
    best = chosen_tokens(problem, "optimal", problem.optimal)
    local = locally_optimal_choices(problem)
    choices = [best, *(choice for choice in local or () if not np.array_equal(choice.alpha, best.alpha))]
    tokens = best.alpha if state.alpha is None else np.array(state.alpha, dtype=np.int64)
    about = next((choice for choice in choices if np.array_equal(choice.alpha, tokens)), None)
    if about is None:
        about = chosen_tokens(problem, "shown", tokens)
        choices.append(about)
    if plane is not None:
        return Solved(about, tuple(choices), local is not None, plane)
    norm = state.reach * size_of(state.case, best)
    toward = [] if about.solution is None else [about.solution.p]
    if state.tokens.shape[2] > 2:
        toward += [run.points[-1] for run in RULES["flow"](state.but(starts=state.starts[:1]), norm)]
    return Solved(about, tuple(choices), local is not None, view_of(state, norm, toward))
