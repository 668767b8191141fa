"""Numbers that the page draws, as columns by name, in the order in which they are ready.

Everything is computed by the reference or by ``theorems explain``'s own functions: p_mm, neighbours and duals over the
rationals, runs of the reference's rules. The page draws projections of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from reference_attention.training.descent import Stop
from theorems.explore.exact import Solved, solve
from theorems.explore.plane_columns import Columns, band, contours, rays, run_columns, starts, tokens
from theorems.explore.runs import RULES, Run
from theorems.explore.state import State
from theorems.explore.time_columns import frames, matrices
from theorems.explore.view import View


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
    """Describe the picture in two sentences."""
    about, is_prompt = solved.about, solved.view.query is None
    what, name, norm = ("‖p‖", "p_mm", "‖p_mm‖") if is_prompt else ("‖W‖_F", "W^mm", "‖W^mm‖_F")
    tokens_of = f"α = {about.alpha.tolist()}" + (", the optimal tokens" if about.name == "optimal" else "")
    scale = f"Prompts are scaled so that {what} = {solved.view.norm:.3g} reaches the edge; tokens are not."
    if about.solution is None:
        return f"No {what[1]} separates {tokens_of} from the others (Farkas, exact), so there is no {name}. {scale}"
    svm = about.solution
    near = int(svm.neighbours.sum())
    sentence = f"{name} of {tokens_of}: {norm} = {svm.norm:.6g}, margin {svm.margin:.6g}, {near} SVM-neighbours (exact)"
    return f"{sentence}{', locally optimal' if about.locally_optimal else ', not locally optimal'}. {scale}"


def say_run(run: Run, what: str) -> str:
    """Describe the run whose path the slider shows."""
    name = "gradient flow" if run.rule == "flow" else run.rule
    how = "" if run.how == Stop.NORM else f"{run.how}, "
    return f"{name} from start {run.start}, {how}followed to {what} = {run.norms[-1]:.3g}"
