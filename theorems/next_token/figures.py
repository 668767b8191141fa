"""Figure next-tokens: in training W turns to W^mm; its part in F converges to W⋆ or oscillates near it.

The data are windows of two letters of a text with three letters. Left: 1 − cos(W_⊥, W^mm) under gradient descent with η
= 1/β and under normalized descent. Right: ‖P_FW − W⋆‖, and as a dashed line its first-order value ‖H⁻¹Σc f‖ under
gradient descent (see `ntp-finite-part`).

Source: arXiv 2402.18551, Figures 3 to 5; our own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from generators.next_tokens import NextTokens
from reference_attention.next_token.finite_minimum import diameter
from reference_attention.next_token.next_token_descent import next_token_descent, smoothness
from reference_attention.next_token.split_loss import SplitLoss
from theorems.core.implementation import REFERENCE
from theorems.figures import style
from theorems.figures.figure import Figure, Numbers, Settings
from theorems.next_token.limits import Limits, certify_limits

TEXT = "abab abba baab aab"
STEPS = 10_000
RECORDED = np.unique(np.round(np.logspace(0, 4, 60)).astype(int))
LENGTH = 0.1
"""The length of normalized steps, in units of 1/D_F, with D_F as in :mod:`.limits`."""


def limits_of() -> Limits:
    """Return the limits of training on the text: Ŝ, θ_mm and θ_⋆."""
    certificate = certify_limits(NextTokens.of_corpus(TEXT, 2).problem, REFERENCE)
    while True:
        try:
            next(certificate)
        except StopIteration as stop:
            limits: Limits = stop.value
            return limits


def numbers(settings: Settings) -> Numbers:
    """Return what the panels show, at recorded steps of plain and of normalized gradient descent from θ = 0.

    These are 1 − cos(θ_⊥, θ_mm), ‖P_Fθ − θ_⋆‖, and a first-order value of the second number.
    """
    limits = limits_of()
    minimum, split = limits.minimum, limits.split
    r, beta = split.dimension, smoothness(limits.problem)
    start = split.coordinates_of(-minimum.floats)[None]
    descend = settings.under_test[next_token_descent]
    long = LENGTH / float(diameter(split).mid())
    curves = []
    for name, step, normalized in (("gradient descent", 1 / beta, False), ("normalized", long, True)):
        run = descend(minimum, start[:, :r], start[:, r:], step=step, steps=STEPS, normalized=normalized)
        x, y = run.x[RECORDED, 0], run.y[RECORDED, 0]
        along = limits.ray.value / float(limits.ray_norm.value)
        curves.append(
            {
                "name": name,
                "turned": (1 - (y @ along) / np.linalg.norm(y, axis=1)).tolist(),
                "apart": np.linalg.norm(x, axis=1).tolist(),
                "follows": np.linalg.norm(pursuit(limits, y), axis=1).tolist(),
            }
        )
    return {"steps": RECORDED.tolist(), "chatter": long / 2, "curves": curves}


def pursuit(limits: Limits, y: np.ndarray) -> np.ndarray:
    """Return the first-order value −H⁻¹Σc_jv f_jv of P_Fθ − θ_⋆ at points with P_⊥θ = ``y``, (k, r).

    Here c_jv = π_j w⋆_jv e^{−g_jv·θ_⊥}; for the other symbols see :mod:`.limits`.
    """
    loss = SplitLoss(limits.minimum)
    logs = loss.outer - np.einsum("jvs,ks->kjv", limits.split.outside, y)
    cost = loss.weights[:, None] * np.exp(logs)
    return -np.einsum("kjv,jvr->kr", cost, loss.inside) @ limits.inverse_curvature.value


def draw(figure: Any, numbers: Numbers) -> None:
    """Draw both panels on doubly logarithmic axes."""
    left, right = figure.subplots(1, 2)
    for curve, color in zip(numbers["curves"], (style.BLUE, style.RED), strict=True):
        left.plot(numbers["steps"], curve["turned"], color=color, label=curve["name"])
        right.plot(numbers["steps"], curve["apart"], color=color, label=curve["name"])
    first = numbers["curves"][0]
    right.plot(numbers["steps"], first["follows"], "--", color=style.BLACK, label="first-order value")
    right.axhline(numbers["chatter"], color=style.GREY, linewidth=0.8, linestyle=":", label="half a normalized step")
    for axes, title in ((left, r"$1-\cos(W_\perp,W^{mm})$"), (right, r"$\|P_FW-W_\star\|$")):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("step k")
        axes.set_title(title)
        axes.legend(frameon=False, fontsize=8)


FIGURES = [Figure("next-tokens", "direction and finite part of next-token training", (7.6, 3.4), numbers, draw)]
