"""Figure 2: the cone around an LMM direction which gradient descent does not leave, with proven constants.

The paper's figure is a sketch. Here the cone has the opening μ and the radius R that
:mod:`theorems.token_selection.local_paths.invariant_cone` proves for Theorem 3 on the data of Figure 8, and the
gradient flow begins in the smaller cone of starts for which the theorem is proven.

Source: *Max-Margin Token Selection in Attention Mechanism*, Figure 2, Theorem 3.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from generators.datasets import dataset_named
from reference_attention.errors import InvalidInput
from reference_attention.problem import log_smoothness
from reference_attention.risk import scaled_gradient
from reference_attention.training.flow import gradient_flow
from theorems.figures import style
from theorems.figures.directions import optima, optima_numbers
from theorems.figures.figure import Figure, Numbers, Settings
from theorems.token_selection.local_paths.invariant_cone import invariant_cone
from theorems.token_selection.local_paths.local_constants import local_constants

SIDES = (-0.95, -0.4, 0.4, 0.95)
"""The angles between the starts and the axis, in units of the half-angle of the cone of starts."""
REACH = 4.0
"""The norm up to which the flow is drawn, in units of R; directions are compared at a thousand times this norm."""


def numbers(settings: Settings) -> Numbers:
    """Return the cone's opening μ and radius R, the max-margin directions and the flow from each start."""
    problem = dataset_named("figure-8").problem
    svms = optima(problem, settings.under_test)
    local = next(svm for kind, svm in svms if kind == "LMM")
    constants = local_constants(problem, local)
    cone = None if constants is None else invariant_cone(constants, -settings.under_test[log_smoothness](problem))
    if cone is None:
        raise InvalidInput(
            "figure 2: the data have no invariant cone, so the ATT-SVM solution of this implementation is wrong."
        )
    q, radius = local.direction, cone.radius
    side = np.array([-q[1], q[0]])
    opening = math.acos(1 - cone.start_mu)
    record = radius * np.linspace(1.0, REACH, 25)[1:]
    paths = []
    for share in SIDES:
        start = radius * (math.cos(share * opening) * q + math.sin(share * opening) * side)
        flow = gradient_flow(
            problem, start, norm=1e3 * REACH * radius, record=record, gradient=settings.under_test[scaled_gradient]
        )
        deviations = flow.one_minus_cosine(q)
        visible = flow.norms <= REACH * radius * (1 + 1e-9)
        paths.append(
            {
                "start": start.tolist(),
                "points": flow.points[visible].tolist(),
                "largest_one_minus_cosine": float(deviations.max()),
                "one_minus_cosine": float(deviations[-1]),
                "norm": float(flow.norms[-1]),
                "stop": flow.stop.value,
            }
        )
    return {
        "data": "figure-8",
        "optima": optima_numbers(svms),
        "direction": q.tolist(),
        "mu": cone.constants.mu,
        "start_mu": cone.start_mu,
        "radius": radius,
        "paths": paths,
    }


def draw(figure: Any, numbers: Numbers) -> None:
    """Shade the cone, and in it the part of the cone of starts with ‖p‖ ≥ R; angles are not distorted."""
    axes = figure.add_subplot()
    q, R = np.array(numbers["direction"]), numbers["radius"]
    far = REACH * R
    wide, narrow = (math.acos(1 - numbers[key]) for key in ("mu", "start_mu"))
    style.plane(axes, -0.03 * far, 1.2 * far, -0.22 * far, 0.22 * far)
    _sector(axes, q, 0.0, 1.04 * far, wide, style.SKY, 0.25)
    _sector(axes, q, R, 1.04 * far, narrow, style.BLUE, 0.3)
    style.ray(axes, q.tolist(), 1.15 * far, style.RED)
    for path in numbers["paths"]:
        axes.plot(*zip(*path["points"], strict=True), color=style.BLACK, linewidth=0.9, zorder=4)
        axes.plot(*path["start"], "o", color=style.BLACK, markersize=3, zorder=5)
        style.arrow(axes, path["points"], len(path["points"]) // 2, style.BLACK)
    degrees = [math.degrees(angle) for angle in (wide, narrow)]
    style.name(
        axes, 0.42 * far, 0.115 * far, rf"cone$_\mu$, $\mu$ = {numbers['mu']:.3g} ({degrees[0]:.1f}°)", style.BLUE
    )
    style.name(
        axes,
        0.27 * far,
        -0.15 * far,
        rf"starts: cone$_{{\mu/4}}$ ({degrees[1]:.1f}°), $\|p\| \geq R$ = {R:.3g}",
        style.BLUE,
    )
    style.name(axes, 1.07 * far, 0.025 * far, r"$\bar p_{\rm mm}(\alpha)$", style.RED)


def _sector(axes: Any, q: np.ndarray, low: float, high: float, opening: float, color: str, alpha: float) -> None:
    """Fill the sector of half-angle ``opening`` around q between the radii ``low`` and ``high``."""
    middle = math.atan2(q[1], q[0])
    angles = np.linspace(middle - opening, middle + opening, 41)
    rim = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    outline = np.concatenate([low * rim, high * rim[::-1]])
    axes.fill(outline[:, 0], outline[:, 1], color=color, alpha=alpha, linewidth=0, zorder=1)


FIGURES = [
    Figure(
        "2",
        "the cone around an LMM direction that descent does not leave, with proven constants",
        (7.2, 3.2),
        numbers,
        draw,
    )
]
