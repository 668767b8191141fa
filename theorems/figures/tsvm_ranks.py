"""Figure tsvm-ranks: ranks of the Frobenius solutions of ATT-SVM, which are at most min(n, d); exact.

Tokens and queries on the unit sphere, tokens α at random. W^mm is rational, and so is its rank: no singular value is
compared with a tolerance.

Source: *Transformers as Support Vector Machines*, figure of SVM ranks; Lemma 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from flint import fmpq_mat

from generators.query_trials import query_trial
from reference_attention.svm.max_margin import MaxMargin
from theorems.figures import style
from theorems.figures.figure import Figure, Numbers, Settings

SIZES = (5, 10, 15)
"""n and T."""
DIMENSIONS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 20)
MOST_TRIALS = 3
"""Per n, T and d."""
BITS = 10
"""Of tokens and queries, behind the point."""
COLORS = dict(zip(SIZES, (style.BLUE, style.ORANGE, style.GREEN), strict=True))


def numbers(settings: Settings) -> Numbers:
    """Per n, T and d: the ranks of W^mm in those trials that are feasible."""
    trials = min(settings.trials, MOST_TRIALS)
    return {
        "trials": trials,
        "seed": settings.seed,
        "dimensions": list(DIMENSIONS),
        "curves": [
            {"n": n, "T": T, "ranks": [_ranks(n, T, d, trials, settings) for d in DIMENSIONS]}
            for n in SIZES
            for T in SIZES
        ],
    }


def _ranks(n: int, T: int, d: int, trials: int, settings: Settings) -> list[int]:
    found = []
    for k in range(trials):
        problem = query_trial(settings.seed, n, T, d, k, bits=BITS).problem
        alpha = np.random.default_rng([settings.seed, n, T, d, k, 1]).integers(T, size=n).astype(np.int64)
        svm = settings.under_test.max_margin(problem.exact_keys, alpha)
        if isinstance(svm, MaxMargin):
            found.append(int(fmpq_mat(d, d, list(svm.exact.p)).rank()))
    return found


def draw(figure: Any, numbers: Numbers) -> None:
    """A panel per T, a line per n: the mean rank where trials are feasible, and the bound min(n, d)."""
    panels = figure.subplots(1, len(SIZES), sharey=True)
    d = numbers["dimensions"]
    for axes, T in zip(panels, SIZES, strict=True):
        for n in SIZES:
            axes.plot(d, np.minimum(n, d), color=style.LIGHT, linewidth=3.0, zorder=1)
            (one,) = [curve for curve in numbers["curves"] if (curve["n"], curve["T"]) == (n, T)]
            known = [(x, float(np.mean(ranks))) for x, ranks in zip(d, one["ranks"], strict=True) if ranks]
            if known:
                axes.plot(*zip(*known, strict=True), "o", color=COLORS[n], markersize=4, zorder=3)
            style.name(axes, float(d[-1]), n + 0.4, f"$n$ = {n}", COLORS[n], ha="right", va="bottom")
        axes.set_title(f"$T$ = {T}")
        axes.set_xlabel("dimension $d$")
        axes.set_ylim(0, SIZES[-1] + 3)
    panels[0].set_ylabel(r"rank of $W^{\rm mm}$")
    style.name(panels[0], 0.7, SIZES[-1] + 2.2, "grey: min($n$, $d$)", style.GREY)


FIGURES = [Figure("tsvm-ranks", "ranks of max-margin weights $W^{\\mathrm{mm}}$", (7.6, 3.4), numbers, draw)]
