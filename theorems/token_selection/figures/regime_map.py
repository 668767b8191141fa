"""Figure regime-map: where the joint regularization path of Theorem 6 ends, for several growth rates of its radii.

The data are those of Figure 3(b) and three generated sets like it. docs/regime_map.md lists the questions that the
theorem leaves open; :mod:`theorems.token_selection.joint_paths.regime_map` follows the paths.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from generators.datasets import DATASETS
from theorems.figures import style
from theorems.figures.figure import Figure, Numbers, Settings
from theorems.token_selection.joint_paths.regime_map import generate_case, regimes

GENERATED = 3
"""The number of generated data sets."""
CURVES = (
    ("from_predicted", "from $p(r/R)$", style.GREY, "x:"),
    ("from_mm", r"from $\bar{p}_\mathrm{mm}$", style.BLUE, "o-"),
    ("from_relax", r"from $\bar{p}_\mathrm{relax}$", style.RED, "s-"),
)
"""The curves: each has the name of a distance in :class:`.Regime`, a label, a colour and a marker."""
LEAST = 1e-9
"""The value as which all smaller distances are drawn; distances of about 1e-15 are only rounding errors."""


def numbers(settings: Settings) -> Numbers:
    """Return, for every data set and schedule r(R), the limit of r/R and the end of the joint path."""
    cases = [DATASETS["figure-3b"](), *map(generate_case, range(GENERATED))]
    with np.errstate(over="ignore"):  # the line search rejects steps that overflow
        rows = [row for case in cases for row in regimes(case, settings.under_test)]
    return {"schedules": [{**asdict(row), "ends_at": row.ends_at} for row in rows]}


def draw(figure: Any, numbers: Numbers) -> None:
    """Draw a panel per data set that shows the distances of the path's end from possible limits, by schedule."""
    names = list(dict.fromkeys(row["data"] for row in numbers["schedules"]))
    panels = figure.subplots(2, -(-len(names) // 2), sharex=True, sharey=True, squeeze=False).ravel()
    for axes, name in zip(panels, names, strict=False):
        rows = [row for row in numbers["schedules"] if row["data"] == name]
        for key, label, color, marks in CURVES:
            distances = [max(row[key], LEAST) for row in rows]
            axes.plot(range(len(rows)), distances, marks, color=color, label=label, markersize=4)
        axes.set_yscale("log")
        axes.set_title(name)
        axes.set_xticks(range(len(rows)), [row["schedule"].removeprefix("r = ") for row in rows], rotation=90)
    for axes in panels[::2]:
        axes.set_ylabel("distance of $p/R$")
    for axes in panels[-2:]:
        axes.set_xlabel("radius $r$ of the head")
    panels[0].legend(frameon=False, fontsize=8)


FIGURES = [
    Figure(
        "regime-map",
        r"where the joint path ends, $\bar{p}_\mathrm{mm}$ or $\bar{p}_\mathrm{relax}$, by the radius $r$ of the head",
        (7.6, 6.0),
        numbers,
        draw,
    )
]
