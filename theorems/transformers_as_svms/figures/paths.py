"""Figure tsvm-paths: normalized gradient descent on W, drawn as the directions W z_i along which queries attend.

A query z_i selects the token with the largest x_itᵀ(W z_i); W is 2 × 2, so that W z_i lies in the plane. The paths of
W z_i are compared with W^mm_α z_i, where α are the locally optimal tokens that W selects.

Source: *Transformers as Support Vector Machines*, figure of gradient descent paths, notebook visualization1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from generators.datasets import dataset_named
from reference_attention.risk import scaled_gradient
from reference_attention.training.descent import descend
from theorems.figures import directions, style
from theorems.figures.directions import optima, optima_numbers, paths
from theorems.figures.figure import Figure, Numbers, Settings

DATA = "tsvm-paths-3"
STARTS = (
    ((0.0, 0.0), (0.0, 0.0)),
    ((1.0, 0.0), (0.0, 1.0)),
    ((-1.0, 0.0), (0.0, -1.0)),
    ((0.0, 1.0), (-1.0, 0.0)),
    ((0.0, -1.0), (1.0, 0.0)),
)
"""The starts W(0): zero, the identity, a half turn and two quarter turns; the notebook has only one start."""
RECORD_EVERY = 10
"""The number of iterations between drawn points."""
REACH = 60.0
"""The largest coordinate of W z_i that the axes show."""


def numbers(settings: Settings) -> Numbers:
    """Return tokens, queries, W^mm of every locally optimal choice, and for each start the paths of W and W z_i."""
    case = dataset_named(DATA)
    data, problem = case.queried, case.problem
    assert data is not None
    svms = optima(problem, settings.under_test)
    starts = np.array(STARTS).reshape(len(STARTS), -1)
    followed = paths(problem, starts, settings.under_test)
    run = descend(
        problem.keys,
        problem.scores,
        problem.loss,
        starts,
        steps=directions.STEPS,
        log_step=float(np.log(directions.STEP)),
        normalized=True,
        gradient=settings.under_test[scaled_gradient],
        record_every=RECORD_EVERY,
    )
    for b, path in enumerate(followed):
        W = run.points[:, b].reshape(-1, *data.shape)
        del path["points"]
        path["attended"] = np.einsum("tde,ne->ntd", W, data.queries).tolist()
    numbers_of_optima = optima_numbers(svms)
    for optimum, (_, svm) in zip(numbers_of_optima, svms, strict=True):
        optimum["attended"] = (data.queries @ svm.p.reshape(data.shape).T).tolist()
    return {
        "data": DATA,
        "X": data.X.tolist(),
        "queries": data.queries.tolist(),
        "scores": problem.scores.tolist(),
        "optimal": problem.optimal.tolist(),
        "optima": numbers_of_optima,
        "paths": followed,
    }


def draw(figure: Any, numbers: Numbers) -> None:
    """Draw a panel per input: paths of W z_i in grey, W^mm z_i dashed, and tokens, not to scale."""
    panels = figure.subplots(1, len(numbers["X"]))
    ended = {path["ends_at"] for path in numbers["paths"]}
    for i, axes in enumerate(panels):
        style.plane(axes, -REACH, REACH, -REACH, REACH, label=rf"(Wz_{i + 1})")
        for path in numbers["paths"]:
            points = path["attended"][i]
            axes.plot(*zip(*points, strict=True), color=style.GREY, linewidth=1.0, zorder=2)
            axes.plot(*points[0], "o", color=style.GREY, markersize=3.0, zorder=4)
        for k, optimum in enumerate(numbers["optima"]):
            if k in ended:
                color = style.BLUE if optimum["kind"] == "GMM" else style.RED
                way = np.array(optimum["attended"][i])
                style.ray(axes, (way / np.linalg.norm(way)).tolist(), 2 * REACH, color)
        axes.set_title(f"query {i + 1}")
        for t, token in enumerate(numbers["X"][i]):
            best = t == numbers["optimal"][i]
            place = np.array(token) * REACH / 2
            axes.plot(*place, "*" if best else "s", color=style.BLUE if best else style.ORANGE, zorder=5)
    note = r"dashed: $W^{\rm mm}z_i$; tokens not to scale"
    style.name(panels[1], -0.95 * REACH, 0.9 * REACH, note, style.GREY)


FIGURES = [
    Figure(
        "tsvm-paths",
        "gradient descent on $W$, seen as the directions $Wz_i$ along which two queries attend",
        (7.2, 3.9),
        numbers,
        draw,
    )
]
