"""Exact solutions for the tokens: p_mm of the chosen tokens, their neighbours, and the plane of the picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from theorems.explanations.prompt_scale import prompt_scale
from theorems.explanations.selection import Chosen, chosen_tokens, locally_optimal_choices
from theorems.explore.plane_view import View, view_of
from theorems.explore.runs import RULES
from theorems.explore.state import State


@dataclass(frozen=True, eq=False)
class Solved:
    """Exact solutions for the tokens.

    Attributes:
        about: the choice of tokens whose p_mm, margin band and neighbours are shown.
        choices: the optimal tokens, then the locally optimal choices, without duplicates.
        listed: whether ``choices`` has all locally optimal choices; false if there are too many to try.
        view: the plane of the picture.
    """

    about: Chosen
    choices: tuple[Chosen, ...]
    listed: bool
    view: View


def round_norm(norm: float) -> float:
    """Round a norm up to 1, 2 or 5 times a power of ten, so that moving a token seldom changes the scale of prompts."""
    if not (np.isfinite(norm) and norm > 0):
        return norm
    power = 10.0 ** np.floor(np.log10(norm))
    return float(next((k * power for k in (1, 2, 5) if norm <= k * power * (1 + 1e-9)), 10 * power))


def solve(state: State, plane: View | None = None) -> Solved:
    """Solve exactly for p_mm of the optimal, locally optimal and shown tokens, and choose the plane of the picture.

    Args:
        state: the state of the page.
        plane: the plane to keep, during a drag; a new one by default.
    """
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
    norm = round_norm(state.reach * prompt_scale(state.case, best))
    name = "p_mm" if state.case.queried is None else "W^mm z"
    toward = {} if about.solution is None else {f"along {name}": about.solution.p}
    if state.tokens.shape[2] > 2:
        (run,) = RULES["flow"](state.but(starts=state.starts[:1]), norm)
        toward["across it, toward the flow's end" if toward else "along the flow's end"] = run.points[-1]
    return Solved(about, tuple(choices), local is not None, view_of(state, norm, toward))
