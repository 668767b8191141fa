"""Figure tsvm-ranks: ranks, at most min(n, d), of the solutions of ATT-SVM of least Frobenius and nuclear norm.

Tokens and queries are on the unit sphere, and the tokens α are random. W^mm is rational, so that its rank is exact. W_⋆
is counted only if its rank is proven in ball arithmetic; no singular value is compared with a tolerance.

Source: *Transformers as Support Vector Machines*, figure of SVM ranks; Lemma 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from flint import fmpq_mat

from generators.transformers_as_svms.query_trials import query_trial
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from theorems.figures import style
from theorems.figures.figure import Figure, Numbers, Settings

SIZES = (5, 10, 15)
"""The values of n and of T; every pair (n, T) of these values is drawn."""
DIMENSIONS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 20)
MOST_TRIALS = 3
"""The largest number of trials per n, T and d."""
BITS = 10
"""The number of bits after the binary point to which tokens and queries are rounded."""
COLORS = dict(zip(SIZES, (style.BLUE, style.ORANGE, style.GREEN), strict=True))


def numbers(settings: Settings) -> Numbers:
    """Return for each n, T and d the ranks of W^mm over feasible trials, and of W_⋆ over trials that prove its rank."""
    trials = min(settings.trials, MOST_TRIALS)
    curves = []
    for n in SIZES:
        for T in SIZES:
            pairs = [_ranks(n, T, d, trials, settings) for d in DIMENSIONS]
            ranks, nuclear = ([pair[k] for pair in pairs] for k in (0, 1))
            curves.append({"n": n, "T": T, "ranks": ranks, "nuclear_ranks": nuclear})
    return {"trials": trials, "seed": settings.seed, "dimensions": list(DIMENSIONS), "curves": curves}


def _ranks(n: int, T: int, d: int, trials: int, settings: Settings) -> tuple[list[int], list[int]]:
    """Return the ranks of W^mm and of W_⋆ over the trials."""
    ranks, nuclear = [], []
    for k in range(trials):
        data = query_trial(settings.seed, n, T, d, k, bits=BITS)
        alpha = np.random.default_rng([settings.seed, n, T, d, k, 1]).integers(T, size=n).astype(np.int64)
        svm = settings.under_test[max_margin](data.problem.exact_keys, alpha)
        if not isinstance(svm, MaxMargin):
            continue
        ranks.append(int(fmpq_mat(d, d, list(svm.exact.p)).rank()))
        least = settings.under_test[nuclear_max_margin](data.keys, alpha)
        if isinstance(least, NuclearMaxMargin) and least.rank is not None:
            nuclear.append(least.rank)
    return ranks, nuclear


def draw(figure: Any, numbers: Numbers) -> None:
    """Draw a panel per T with a color per n: mean ranks over trials, and the bound min(n, d)."""
    panels = figure.subplots(1, len(SIZES), sharey=True)
    d = numbers["dimensions"]
    for axes, T in zip(panels, SIZES, strict=True):
        for n in SIZES:
            axes.plot(d, np.minimum(n, d), color=style.LIGHT, linewidth=3.0, zorder=1)
            (curve_of_pair,) = [curve for curve in numbers["curves"] if (curve["n"], curve["T"]) == (n, T)]
            for key, face in (("ranks", COLORS[n]), ("nuclear_ranks", "white")):
                points = [(x, float(np.mean(ranks))) for x, ranks in zip(d, curve_of_pair[key], strict=True) if ranks]
                if points:
                    marks = {"color": COLORS[n], "markerfacecolor": face, "markersize": 4}
                    axes.plot(*zip(*points, strict=True), "o", zorder=3, **marks)
            style.name(axes, float(d[-1]), n + 0.4, f"$n$ = {n}", COLORS[n], ha="right", va="bottom")
        axes.set_title(f"$T$ = {T}")
        axes.set_xlabel("dimension $d$")
        axes.set_ylim(0, SIZES[-1] + 3)
    panels[0].set_ylabel("rank")
    style.name(panels[0], 0.7, SIZES[-1] + 2.2, "grey: min($n$, $d$)", style.GREY)
    style.name(panels[1], 0.7, SIZES[-1] + 2.2, "full: least $\\|W\\|_F$; open: least nuclear norm", style.GREY)


FIGURES = [
    Figure(
        "tsvm-ranks",
        "ranks of max-margin weights, of least Frobenius and of least nuclear norm",
        (7.6, 3.4),
        numbers,
        draw,
    )
]
