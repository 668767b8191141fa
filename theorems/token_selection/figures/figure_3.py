"""Figures 3(a), 3(b), 3(c): joint descent on head v and prompt p, and the limits of v and p.

Source: *Max-Margin Token Selection in Attention Mechanism*, Figure 3, Section 3.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from generators.case import Case
from generators.datasets import dataset_named
from reference_attention.angles import one_minus_cosine
from reference_attention.errors import InvalidInput
from reference_attention.risk import scaled_gradient, softmax_weights
from reference_attention.svm.label_svm import label_svm, relaxed_max_margin
from reference_attention.svm.max_margin import Infeasible, max_margin
from reference_attention.training.joint_descent import JointTrajectory, joint_descent
from theorems.figures import style
from theorems.figures.figure import Figure, Numbers, Settings

STEP, STEPS, DRAWN = 0.1, 4000, 150
"""The length of a step, the iteration at which directions are compared, and the number of iterations drawn."""
SHOWN = 200
"""The number of iterations that Figure 3(c) shows."""


def run_of(case: Case, settings: Settings, steps: int) -> JointTrajectory:
    """Run normalized joint descent from the start that the case of the figure contains."""
    data = case.dataset
    assert data is not None
    under_test = settings.under_test
    return joint_descent(
        data.signed_tokens,
        case.problem.keys,
        np.array(case.arrays["start_head"]),
        np.array(case.arrays["start_prompts"][0]),
        steps=steps,
        head_step=STEP,
        prompt_step=STEP,
        weights=under_test[softmax_weights],
        gradient=under_test[scaled_gradient],
    )


def numbers(name: str, settings: Settings) -> Numbers:
    """Return tokens, v_mm, p_mm, p_relax, the paths of head and prompt, and 1 − cos to each direction at the end."""
    case = dataset_named(name)
    data, alpha = case.dataset, case.chosen_tokens
    assert data is not None
    under_test = settings.under_test
    optimal = data.signed_tokens[np.arange(len(alpha)), alpha]
    head = under_test[label_svm](optimal)
    prompt = under_test[max_margin](case.problem.keys, alpha)
    if isinstance(head, Infeasible) or isinstance(prompt, Infeasible):
        raise InvalidInput(
            "figure 3: v_mm or p_mm is reported not to exist, so an SVM solver of this implementation is wrong."
        )
    relaxed = under_test[relaxed_max_margin](case.problem.keys, alpha, head.support)
    if isinstance(relaxed, Infeasible):
        raise InvalidInput("figure 3: p_relax is reported not to exist, so the SVM of this implementation is wrong.")
    run = run_of(case, settings, STEPS)
    directions = {"v_mm": head.direction, "p_mm": prompt.direction, "p_relax": relaxed.direction}
    ends = {"v_mm": run.heads[-1], "p_mm": run.prompts[-1], "p_relax": run.prompts[-1]}
    return {
        "data": name,
        "tokens": data.X.tolist(),
        "labels": data.Y.tolist(),
        "optimal": alpha.tolist(),
        "supports": head.support.tolist(),
        "directions": {key: value.tolist() for key, value in directions.items()},
        "one_minus_cosine": {key: one_minus_cosine(ends[key], directions[key]) for key in directions},
        "iterations": STEPS,
        "norms": {"v": float(np.linalg.norm(run.heads[-1])), "p": float(np.linalg.norm(run.prompts[-1]))},
        "heads": run.heads[: DRAWN + 1].tolist(),
        "prompts": run.prompts[: DRAWN + 1].tolist(),
    }


def draw(figure: Any, numbers: Numbers) -> None:
    """Draw the path of the head in blue and the path of the prompt in red, in one plane."""
    axes = figure.add_subplot()
    style.plane(axes, -1.9, 5.3, -2.6, 4.2, label="x")
    axes.set_xlabel("first coordinate")
    axes.set_ylabel("second coordinate")
    directions = numbers["directions"]
    same = np.allclose(directions["p_mm"], directions["p_relax"], rtol=0, atol=1e-12)
    style.ray(axes, directions["v_mm"], 9.0, style.BLUE)
    if not same:
        style.ray(axes, directions["p_mm"], 9.0, style.GREY)
    style.ray(axes, directions["p_relax"], 9.0, style.RED)
    for key, color, start in (("heads", style.BLUE, "$v(0)$"), ("prompts", style.RED, "$p(0)$")):
        points = numbers[key]
        axes.plot(*zip(*points, strict=True), color=color, linewidth=1.6, zorder=4)
        axes.plot(*points[0], "o", color=color, markersize=4, zorder=5)
        style.name(axes, points[0][0] - 0.12, points[0][1] + 0.0, start, color, ha="right", va="center")
        style.arrow(axes, points, 16, color)
    places = [(0.16, 0.0, "left"), (-0.16, 0.0, "right"), (0.0, 0.3, "center")]
    for i, (tokens, label) in enumerate(zip(numbers["tokens"], numbers["labels"], strict=True)):
        key = tokens[numbers["optimal"][i]]
        color = (style.GREEN, style.PINK, style.ORANGE)[i]
        axes.plot(*key, "*", color=color, markersize=13, markeredgecolor="white", zorder=5)
        role = "" if numbers["supports"][i] else ", no support"
        x, y, side = places[i] if role == "" else (0.16, 0.0, "left")
        where = (key[0] + x, key[1] + y)
        style.name(axes, *where, f"$Y={label:+.0f}${role}", color, ha=side, va="center")
    axes.plot(0, 0, "s", color=style.BLACK, markersize=6, zorder=5)
    style.name(axes, -0.12, -0.1, "other tokens", style.BLACK, ha="right", va="top")
    style.name(axes, 0.12, 3.7, r"$\bar v_{\rm mm}$", style.BLUE)
    for key, color in (("p_relax", style.RED), *([] if same else [("p_mm", style.GREY)])):
        q = np.array(directions[key])
        x, y = q * 4.6 / max(q)
        text = r"$\bar p_{\rm mm}$" if same or key == "p_mm" else r"$\bar p_{\rm relax}$"
        above = same or key == "p_mm"
        style.name(axes, x, y + (0.12 if above else -0.12), text, color, ha="right", va="bottom" if above else "top")


def probabilities(settings: Settings) -> Numbers:
    """Return the mean softmax weight of optimal tokens, and the mean probability of labels, at each iteration."""
    case = dataset_named("figure-3a")
    data = case.dataset
    assert data is not None
    run = run_of(case, settings, SHOWN)
    weights = np.array([settings.under_test[softmax_weights](case.problem.keys, p) for p in run.prompts])
    tokens = data.signed_tokens
    outputs = np.einsum("snt,ntd,sd->sn", weights, tokens, run.heads)
    return {
        "data": "figure-3a",
        "softmax": weights[:, np.arange(len(tokens)), case.chosen_tokens].mean(axis=1).tolist(),
        "logistic": (1 / (1 + np.exp(-outputs))).mean(axis=1).tolist(),
    }


def draw_probabilities(figure: Any, numbers: Numbers) -> None:
    """Draw the softmax weight of optimal tokens and the logistic probability of labels over the iterations."""
    axes = figure.add_subplot()
    for key, color, text in (
        ("softmax", style.RED, r"softmax weight of the optimal tokens, $\frac{1}{n}\sum_i s_{i\alpha_i}$"),
        ("logistic", style.BLUE, r"logistic probability of the labels, $\frac{1}{n}\sum_i \sigma(Y_i f(X_i))$"),
    ):
        axes.plot(numbers[key], color=color)
        at = 38 if key == "softmax" else 60
        style.name(axes, at + 4.0, numbers[key][at] - 0.035, text, color, va="top")
    axes.axhline(1, color=style.LIGHT, linewidth=0.8, zorder=0)
    axes.set_xlim(0, len(numbers["softmax"]) - 1)
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("iteration")
    axes.set_ylabel("probability, mean over inputs")


FIGURES = [
    Figure(
        "3a",
        r"joint descent, every input a support: $v$ goes to $\bar{v}_\mathrm{mm}$, $p$ to $\bar{p}_\mathrm{mm}$",
        (5.4, 5.4),
        partial(numbers, "figure-3a"),
        draw,
    ),
    Figure(
        "3b",
        r"joint descent, one input no support: $v$ goes to $\bar{v}_\mathrm{mm}$,"
        r" $p$ to $\bar{p}_\mathrm{relax}$ instead of $\bar{p}_\mathrm{mm}$",
        (5.4, 5.4),
        partial(numbers, "figure-3b"),
        draw,
    ),
    Figure(
        "3c",
        "softmax and logistic probabilities of Figure 3(a)",
        (5.6, 3.4),
        probabilities,
        draw_probabilities,
    ),
]
