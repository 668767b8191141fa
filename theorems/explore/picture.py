"""The numbers that the page draws, as columns by name, in the order in which they are ready.

Everything is computed by the reference or by ``theorems explain``'s own functions: p_mm, neighbours and duals over the
rationals, runs of the reference's rules. What is drawn here are projections of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from theorems.explore.exact import Solved, solve
from theorems.explore.plane_columns import Columns, band, contours, rays, run_columns, starts, tokens
from theorems.explore.runs import RULES, Run
from theorems.explore.state import State
from theorems.explore.time_columns import frames, matrices
from theorems.explore.view import View


@dataclass(frozen=True)
class Part:
    """Some of the picture.

    Attributes:
        name: of the part.
        columns: by the name of what they are drawn as.
        words: sentences by the name of where they stand.
    """

    name: str
    columns: dict[str, Columns] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)


def parts_of(state: State, held: View | None = None) -> Iterator[tuple[Part, Solved]]:
    """The picture in parts, each as soon as it is ready: the exact solution and tokens first, the contours last.

    Args:
        held: the plane to stay in, while something is dragged in it.
    """
    with np.errstate(all="ignore"):  # the far ends of runs; what overflows is not drawn
        solved = solve(state, held)
        yield Part("tokens", _solved_columns(state, solved), {"plane": say_plane(state, solved)}), solved
        drawn: Columns = {}
        chosen: Run | None = None
        for rule in RULES:
            runs = RULES[rule](state, solved.view.norm)
            for name, column in run_columns(runs, solved.view).items():
                drawn[name] = [*drawn.get(name, []), *column]
            if rule == state.rule:
                chosen = runs[state.start]
        assert chosen is not None
        yield (
            Part(
                "runs",
                {"runs": drawn, "frames": frames(state, solved, chosen)},
                {"run": say_run(chosen, "‖p‖" if solved.view.query is None else "‖W‖_F")},
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
        "rays": rays(solved),
        "band": band(state, solved),
    }


def say_plane(state: State, solved: Solved) -> str:
    """What the picture shows, in two sentences."""
    about, is_prompt = solved.about, solved.view.query is None
    what, name, norm = ("‖p‖", "p_mm", "‖p_mm‖") if is_prompt else ("‖W‖_F", "W^mm", "‖W^mm‖_F")
    tokens_of = f"α = {about.alpha.tolist()}" + (", the optimal tokens" if about.name == "optimal" else "")
    scale = f"Tokens are drawn in their own unit, prompts so that {what} = {solved.view.norm:.3g} is at the edge."
    if about.solution is None:
        return f"No {what[1]} separates {tokens_of} from the others (Farkas, exact), so there is no {name}. {scale}"
    svm = about.solution
    near = int(svm.neighbours.sum())
    said = f"{name} of {tokens_of}: {norm} = {svm.norm:.6g}, margin {svm.margin:.6g}, {near} SVM-neighbours (exact)"
    return f"{said}{', locally optimal' if about.locally_optimal else ', not locally optimal'}. {scale}"


def say_run(run: Run, what: str) -> str:
    """What the slider goes through."""
    return f"{run.rule} from start {run.start}: {run.how}; {what} = {run.norms[-1]:.3g} at its end"
