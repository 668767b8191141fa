"""Parts of the picture: numbers to draw, as columns by name, in the order in which they are computed.

All numbers come from the reference or from functions of ``theorems explain``: p_mm, neighbours and duals over the
rationals, and runs of the reference's rules. The page draws projections of these points to a plane.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from reference_attention.risk import softmax_weights
from reference_attention.training.descent import Stop
from theorems.explore.exact_solutions import Solved, solve
from theorems.explore.plane_columns import (
    MOST_SELECTED,
    Columns,
    band,
    contours,
    rays,
    run_columns,
    starts,
    tokens,
    trained,
)
from theorems.explore.plane_view import View
from theorems.explore.runs import RULES, Run
from theorems.explore.state import State
from theorems.explore.time_columns import frames, matrices

SURE = 0.9
"""If a selected token has less softmax weight than this, its sentence says that other tokens still have weight."""


@dataclass(frozen=True)
class Part:
    """A part of the picture.

    Attributes:
        name: the name of the part.
        columns: columns by the name of the object that they draw, such as ``tokens``.
        words: sentences by the name of the place where they are shown.
    """

    name: str
    columns: dict[str, Columns] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)


def parts_of(state: State, plane: View | None = None) -> Iterator[tuple[Part, Solved]]:
    """Yield the parts of the picture when they are computed: exact solution and tokens first, contours last.

    Args:
        state: the state of the page.
        plane: the plane to keep during a drag.
    """
    with np.errstate(all="ignore"):  # far ends of runs may overflow, and are then not drawn
        solved = solve(state, plane)
        yield Part("tokens", _solved_columns(state, solved), {"plane": plane_sentences(state, solved)}), solved
        columns_of_runs: Columns = {}
        chosen: Run | None = None
        for rule in RULES:
            runs = RULES[rule](state, solved.view.norm)
            for name, column in run_columns(runs, solved.view).items():
                columns_of_runs[name] = [*columns_of_runs.get(name, []), *column]
            if rule == state.rule:
                chosen = runs[state.start]
        assert chosen is not None
        yield (
            Part(
                "runs",
                {"runs": columns_of_runs, "frames": frames(state, solved, chosen)},
                {
                    "run": run_in_words(chosen, "‖p‖" if solved.view.query is None else "‖W‖_F"),
                    "now": say_selected(state, solved, chosen),
                },
            ),
            solved,
        )
        yield Part("contours", {"contours": contours(state, solved.view)}), solved
        if state.case.queried is not None:
            yield Part("matrices", matrices(state, solved, chosen)), solved


def _solved_columns(state: State, solved: Solved) -> dict[str, Columns]:
    return {
        "tokens": tokens(state, solved),
        "starts": starts(state, solved.view),
        "trained": trained(state, solved.view),
        "rays": rays(solved),
        "band": band(state, solved),
    }


def plane_sentences(state: State, solved: Solved) -> str:
    """Return two sentences on p_mm and on the scale of the picture."""
    about, is_prompt = solved.about, solved.view.query is None
    norm_symbol, name, norm = ("‖p‖", "p_mm", "‖p_mm‖") if is_prompt else ("‖W‖_F", "W^mm", "‖W^mm‖_F")
    tokens_of = f"α = {about.alpha.tolist()}" + (", the optimal tokens" if about.name == "optimal" else "")
    scale = f"Prompts are scaled so that {norm_symbol} = {solved.view.norm:.3g} reaches the edge; tokens are not."
    if about.solution is None:
        return (
            f"No {norm_symbol[1]} separates {tokens_of} from the others (Farkas, exact), so there is no {name}. {scale}"
        )
    svm = about.solution
    near = int(svm.neighbours.sum())
    sentence = f"{name} of {tokens_of}: {norm} = {svm.norm:.6g}, margin {svm.margin:.6g}, {near} SVM-neighbours (exact)"
    return f"{sentence}{', locally optimal' if about.locally_optimal else ', not locally optimal'}. {scale}"


def say_selected(state: State, solved: Solved, run: Run) -> str:
    """Return a sentence on the tokens of largest weight at the end of the run."""
    problem, finite = state.case.problem, np.isfinite(run.norms)
    p = run.points[finite][-1]
    if not p.any():
        return "Now: p = 0, so every token has the same weight."
    selected = problem.selection_at(p)
    weights = np.asarray(softmax_weights(problem.keys, p))
    of_selected = weights[np.arange(problem.n), selected]
    least = float(of_selected.min())
    if least <= 0.5:
        i = int(of_selected.argmin())
        return (
            f"Now: the {rule_in_words(run)} from start {run.start} selects no token of input {i}: none has a"
            f" softmax weight above 1/2, the largest is {least:.3g}."
        )
    choice = next((choice for choice in solved.choices if np.array_equal(choice.alpha, selected)), None)
    if np.array_equal(selected, problem.optimal):
        kind = "the optimal ones"
    elif choice is not None and choice.locally_optimal:
        kind = "locally optimal but not the optimal ones"
    else:
        kind = "neither optimal nor among the listed locally optimal tokens"
    some = selected[:MOST_SELECTED].tolist()
    listed = ", ".join(map(str, some)) + (", …" if problem.n > len(some) else "")
    sure = f"with softmax weights of at least {np.floor(1000 * least) / 1000:g}"
    if least < SURE:
        sure += ", so other tokens still count at this norm"
    tokens_are = f"tokens {listed} (one per input)" if problem.n > 1 else f"token {listed}"
    return f"Now: the {rule_in_words(run)} from start {run.start} selects {tokens_are}, {kind}, {sure}."


def rule_in_words(run: Run) -> str:
    """Return the name of the run's rule for use in a sentence."""
    return "gradient flow" if run.rule == "flow" else run.rule


def run_in_words(run: Run, norm_symbol: str) -> str:
    """Return a phrase on the run that the slider shows: rule, start, why it ended, last norm."""
    name = rule_in_words(run)
    end = "" if run.how == Stop.NORM else f"{run.how}, "
    return f"{name} from start {run.start}, {end}followed to {norm_symbol} = {run.norms[-1]:.3g}"
