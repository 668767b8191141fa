"""Numbers that the page draws, as columns by name, in the order in which they are ready.

Everything is computed by the reference or by ``theorems explain``'s own functions: p_mm, neighbours and duals over the
rationals, runs of the reference's rules. The page draws projections of it.
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
"""Below this softmax weight of a selected token the others have more than a tenth."""


@dataclass(frozen=True)
class Part:
    """A part of the picture.

    Attributes:
        name: the name of the part.
        columns: by the name of what they are drawn as.
        words: sentences by the name of where they stand.
    """

    name: str
    columns: dict[str, Columns] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)


def parts_of(state: State, plane: View | None = None) -> Iterator[tuple[Part, Solved]]:
    """Yield the picture in parts, each as soon as it is ready: the exact solution and tokens first, the contours last.

    Args:
        state: the state of the page.
        plane: the plane to stay in, while something is dragged in it.
    """
    with np.errstate(all="ignore"):  # the far ends of runs; what overflows is not drawn
        solved = solve(state, plane)
        yield Part("tokens", _solved_columns(state, solved), {"plane": say_plane(state, solved)}), solved
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
                    "run": say_run(chosen, "‖p‖" if solved.view.query is None else "‖W‖_F"),
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


def say_plane(state: State, solved: Solved) -> str:
    """Describe the picture in two sentences."""
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
    """Say which tokens have the largest weights at the end of the run."""
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
            f"Now: the {say_name(run)} from start {run.start} selects no token of input {i}: none has a softmax weight"
            f" above 1/2, the largest is {least:.3g}."
        )
    choice = next((choice for choice in solved.choices if np.array_equal(choice.alpha, selected)), None)
    if np.array_equal(selected, problem.optimal):
        kind = "the optimal ones"
    elif choice is not None and choice.locally_optimal:
        kind = "locally optimal, not the optimal ones"
    else:
        kind = "neither the optimal ones nor locally optimal ones that are listed"
    some = selected[:MOST_SELECTED].tolist()
    listed = ", ".join(map(str, some)) + (", …" if problem.n > len(some) else "")
    sure = f"with softmax weights of at least {np.floor(1000 * least) / 1000:g}"
    if least < SURE:
        sure += ", so other tokens still count at this norm"
    tokens_are = f"tokens {listed} (one per input)" if problem.n > 1 else f"token {listed}"
    return f"Now: the {say_name(run)} from start {run.start} selects {tokens_are}, {kind}, {sure}."


def say_name(run: Run) -> str:
    """Return the name of the run's rule in a sentence."""
    return "gradient flow" if run.rule == "flow" else run.rule


def say_run(run: Run, norm_symbol: str) -> str:
    """Describe the run whose path the slider shows."""
    name = say_name(run)
    end = "" if run.how == Stop.NORM else f"{run.how}, "
    return f"{name} from start {run.start}, {end}followed to {norm_symbol} = {run.norms[-1]:.3g}"
