"""Figure tsvm-mixing: the number of tokens that optimal attention selects, and ‖W_fin‖/‖o‖ for the path's offset o.

The regularization path tends to a ray plus o. W_fin is the W of least norm that gives the selected tokens their optimal
ratios of weights.

Tokens are orthonormal and in general position, the head is vᵀx − λ‖x‖², v and queries are on the unit sphere. With
larger d the scores are closer and more tokens are selected. Selections are decided over the rationals, and offsets
have 70 correct digits.

Source: *Transformers as Support Vector Machines*, Section 6, figure of several tokens per input.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from flint import arb, ctx, fmpq

from generators.mixing_assumptions import exact_scores
from generators.transformers_as_svms.mixing_trials import mixing_trial
from reference_attention.optimal_attention import optimal_attention
from reference_attention.svm.finite_part import finite_part, mixing_offset
from reference_attention.svm.general_svm import GeneralSvm, general_svm
from theorems.figures import style
from theorems.figures.figure import Figure, Numbers, Settings
from theorems.transformers_as_svms.mixing_numbers import Mixing, inner
from theorems.transformers_as_svms.mixing_path_numbers import has_closed_form

INPUTS, TOKENS = 3, 4
DIMENSIONS = (4, 6, 8, 10)
PENALTY = fmpq(1, 4)
MOST_TRIALS = 100
"""The largest number of trials per dimension."""
COLORS = (style.BLUE, style.SKY, style.ORANGE, style.RED)


def numbers(settings: Settings) -> Numbers:
    """Return for each d the numbers of selected tokens, and ‖W_fin‖/‖o‖ of trials with o ≠ 0 in closed form."""
    trials = min(settings.trials, MOST_TRIALS)
    results = [_trials(d, trials, settings) for d in DIMENSIONS]
    return {
        "trials": trials,
        "seed": settings.seed,
        "n": INPUTS,
        "T": TOKENS,
        "penalty": "1/4",
        "dimensions": [{"d": d, **result} for d, result in zip(DIMENSIONS, results, strict=True)],
    }


def _trials(d: int, trials: int, settings: Settings) -> Numbers:
    sizes, shares = [0] * TOKENS, []
    for k in range(trials):
        data = mixing_trial(settings.seed, INPUTS, TOKENS, d, k)
        attention = settings.under_test[optimal_attention](exact_scores(data), PENALTY)
        for size in attention.sets.sum(axis=1).tolist():
            sizes[size - 1] += 1
        if attention.sets.all():
            continue
        svm = settings.under_test[general_svm](data.keys, attention.sets, attention.first)
        if not isinstance(svm, GeneralSvm):
            continue
        finite = settings.under_test[finite_part](svm, attention)
        if not has_closed_form(Mixing(data, PENALTY, attention, svm, finite)):
            continue
        with ctx.workprec(256):
            offset = settings.under_test[mixing_offset](svm, attention)
            whole = inner(offset, offset)
            if whole > arb(2) ** -100:
                shares.append(float((inner(finite, finite) / whole).abs_upper().sqrt()))
    return {"sizes": sizes, "shares": shares}


def draw(figure: Any, numbers: Numbers) -> None:
    """Draw the shares of inputs by number of selected tokens on the left, ‖W_fin‖/‖o‖ of each trial on the right."""
    left, right = figure.subplots(1, 2)
    d = [dimension["d"] for dimension in numbers["dimensions"]]
    below = np.zeros(len(d))
    for size in range(numbers["T"]):
        part = np.array([dimension["sizes"][size] / sum(dimension["sizes"]) for dimension in numbers["dimensions"]])
        left.bar(d, part, 1.2, bottom=below, color=COLORS[size])
        if part[-1] > 0.06:
            style.name(left, d[-1], float(below[-1] + part[-1] / 2), f"{size + 1}", ha="center", va="center")
        below += part
    left.set_ylabel("share of inputs, by tokens with weight in $s^\\star$")
    for dimension in numbers["dimensions"]:
        shares = np.array(dimension["shares"])
        place = dimension["d"] + 0.7 * (np.argsort(np.argsort(shares)) / max(len(shares), 1) - 0.5)
        right.plot(place, shares, ".", color=style.LIGHT, markersize=3)
        if len(shares):
            right.plot(dimension["d"], float(np.median(shares)), "o", color=style.BLUE, markersize=5)
    right.axhline(1, color=style.GREY, linewidth=0.8, linestyle="--")
    right.set_ylim(0, 1.08)
    right.set_ylabel(r"$\|W_{\rm fin}\|\,/\,\|o\|$, with offset $o$")
    for axes in (left, right):
        axes.set_xlabel("dimension $d$")
        axes.set_xticks(d)
    left.set_title(f"$n$ = {numbers['n']}, $T$ = {numbers['T']}, λ = {numbers['penalty']}, {numbers['trials']} trials")
    right.set_title("blue: median; dashed: as if $o = W_{\\rm fin}$")


FIGURES = [Figure("tsvm-mixing", "attention that mixes, against $d$", (7.6, 3.4), numbers, draw)]
