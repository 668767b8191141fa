"""Columns of the timeline of a run, and of the matrices with which W is compared."""

from __future__ import annotations

import numpy as np

from reference_attention.risk import softmax_weights
from theorems.explanations.matrix_solutions import matrix_solutions
from theorems.explore.exact_solutions import Solved
from theorems.explore.plane_columns import Columns
from theorems.explore.runs import Run
from theorems.explore.state import State


def frames(state: State, solved: Solved, run: Run) -> Columns:
    """Return the run that the slider shows: a row per record, with lists over the tokens of the selected input.

    ``weights`` are the softmax weights, ``margins`` are (k_α − k_t)·p/‖p‖, None at p = 0 and for t = α.
    """
    problem, i = state.case.problem, state.token[0]
    norms = run.norms
    finite = np.isfinite(norms)
    points, norms = run.points[finite], norms[finite]
    weights = np.asarray(softmax_weights(problem.keys, points))[:, i]
    a = int(solved.about.alpha[i])
    rows = problem.keys[i, a] - problem.keys[i]
    margins = points @ rows.T / np.where(norms > 0, norms, np.nan)[:, None]
    places = solved.view.place_prompts(points)
    return {
        "step": run.steps[finite].tolist(),
        "norm": norms.tolist(),
        "x": places[:, 0].tolist(),
        "y": places[:, 1].tolist(),
        "weights": weights.tolist(),
        "margins": [[None if t == a or np.isnan(m) else float(m) for t, m in enumerate(row)] for row in margins],
    }


def matrices(state: State, solved: Solved, run: Run) -> dict[str, Columns]:
    """Return the entries of W^mm of least Frobenius norm, W_⋆ of least nuclear norm, and the last W of the run.

    Each matrix is divided by its ‖W‖_F. Titles give norms and the exact ranks of both solutions; for W_⋆ "not decided"
    in place of the rank, unless W_⋆ is proven unique.
    """
    d, e = state.shape
    matrices = []
    for both in matrix_solutions(state.case, [solved.about]):
        frobenius, least = both.frobenius, both.nuclear
        matrices.append((f"W^mm: ‖W‖_F = {frobenius.norm:.4g}, rank {both.rank}", frobenius.p.reshape(d, e)))
        proven = f"rank {least.rank}" if least.exact is not None else f"not decided: {least.undecided}"
        matrices.append((f"W_⋆: ‖W‖_⋆ = {least.norm:.4g}, {proven}", least.W))
    end = run.points[-1].reshape(d, e)
    matrices.append((f"{run.rule}: ‖W‖_F = {float(run.norms[-1]):.4g}", end))
    entries: Columns = {name: [] for name in ("x", "y", "value", "shown", "what")}
    titles: Columns = {"x": [], "y": [], "text": []}
    gap = e + max(1.0, 0.15 * max(d, e))
    for k, (title, W) in enumerate(matrices):
        size = float(np.linalg.norm(W)) or 1.0
        for (row, column), value in np.ndenumerate(W):
            place = (
                k * gap + column,
                -float(row),
                float(value) / size,
                float(value),
                f"{title}; entry {row}, {column}",
            )
            for name, cell in zip(entries, place, strict=True):
                entries[name].append(cell)
        for name, cell in zip(titles, (k * gap - 0.5, 0.7 + 0.05 * d, title.replace(": ", "\n")), strict=True):
            titles[name].append(cell)
    return {"matrices": entries, "titles": titles}
