"""Figure 5: logistic against correlation loss on two inputs whose optimal tokens have scores C and 1.

At finite norms the correlation loss favours the input of higher score, and the logistic loss the input of lower score;
both losses have the limit p̄_mm = (1, 0). The paths keep an offset from the ray of p̄_mm: their second coordinate tends
to ½ log(c_1/c_2) with c_i = |ℓ'(γ_i)| γ_i for the scores γ_1 = C and γ_2 = 1 of the optimal tokens (the limit of the
offset that ``theorem-1`` claims).

Source: *Max-Margin Token Selection in Attention Mechanism*, Figure 5, Section 5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from generators.datasets import FIGURE_5_SCORES, figure_5
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.training.flow import gradient_flow
from theorems.figures import style
from theorems.figures.figure import Figure, Numbers, Settings

FAR = 1e4
"""The norm to which a flow is followed."""
RECORD = np.geomspace(0.05, FAR, 90)
LABELLED = {"correlation": (2, 3, 4, 10, 100), "logistic": (4, 5, 6, 7, 8, 10, 100)}
"""The values of the score C whose lines are labelled, by loss."""


def numbers(settings: Settings) -> Numbers:
    """Return norm and angle to p̄_mm along the flow from 0, and the predicted offset from its ray, by loss and C."""
    result: Numbers = {"limit": [1.0, 0.0], "norm": FAR}
    for loss in ("correlation", "logistic"):
        result[loss] = [_flow(figure_5(c, loss).problem, c, settings) for c in FIGURE_5_SCORES]
    return result


def _flow(problem: Problem, c: int, settings: Settings) -> Numbers:
    """Return norm, angle to p̄_mm and offset from its ray along the flow for one loss and one score C."""
    flow = gradient_flow(problem, np.zeros(2), norm=FAR, record=RECORD, gradient=settings.under_test[scaled_gradient])
    x, y = flow.points.T
    slopes = problem.loss.log_slope(problem.scores[:, 0]) + np.log(problem.scores[:, 0])
    nonzero = flow.norms > 0
    return {
        "C": c,
        "norms": flow.norms[nonzero].tolist(),
        "degrees": np.degrees(np.arctan2(y, x))[nonzero].tolist(),
        "offset": float(y[-1]),
        "predicted_offset": float(slopes[0] - slopes[1]) / 2,
        "one_minus_cosine": float(flow.one_minus_cosine(np.array([1.0, 0.0]))[-1]),
        "stop": flow.stop.value,
    }


def draw(figure: Any, numbers: Numbers) -> None:
    """Draw the angle between p and p̄_mm over ‖p‖, a panel per loss and a line per score C."""
    panels = figure.subplots(1, 2, sharey=True)
    ramp = ("#9ecae1", "#08306b")
    for axes, loss in zip(panels, ("correlation", "logistic"), strict=True):
        axes.axhline(0, color=style.RED, linestyle="--", linewidth=1.8, zorder=4)
        for curve in numbers[loss]:
            share = np.log(curve["C"]) / np.log(100)
            axes.plot(curve["norms"], curve["degrees"], color=_mix_colours(*ramp, float(share)), linewidth=1.2)
        axes.set_xscale("log")
        axes.set_xlim(0.05, 1e4)
        axes.set_ylim(-56, 56)
        axes.set_yticks([-45, -30, -15, 0, 15, 30, 45])
        axes.set_xlabel(r"$\|p\|$")
        axes.set_title(f"{loss} loss")
        for curve in numbers[loss]:
            if curve["C"] in LABELLED[loss]:
                text = "$C$ = 2, 3, 4" if curve["C"] == 4 and loss == "logistic" else f"$C$ = {curve['C']}"
                at = int(np.searchsorted(curve["norms"], 0.1))
                style.name(axes, 0.08, curve["degrees"][at], text, ha="left", va="center", fontsize=7)
    panels[0].set_ylabel(r"angle from $\bar p_{\rm mm}$, degrees")
    style.name(panels[0], 0.08, -6.0, r"$\bar p_{\rm mm}$, and $C = 1$", style.RED)
    style.name(panels[0], 0.08, 52.0, r"towards the token of score $C$", style.GREY, va="center")
    style.name(panels[0], 0.08, -52.0, "towards the token of score 1", style.GREY, va="center")


def _mix_colours(low: str, high: str, share: float) -> str:
    parts = [(int(low[k : k + 2], 16), int(high[k : k + 2], 16)) for k in (1, 3, 5)]
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in parts)


FIGURES = [Figure("5", "correlation against logistic loss: different ways, one limit", (7.6, 3.8), numbers, draw)]
