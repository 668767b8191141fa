"""Figure tsvm-convergence: random trials of normalized gradient descent on W, and the directions in which they end.

n = 6, T = 8, step 0.1, W(0) = 0; tokens, queries and head are on the unit sphere. The notebook has d = 10, here d
varies. A run counts as converged if the tokens α that it selects are locally optimal and 1 − cos(W, W^mm_α) is below
a hundredth.

Source: *Transformers as Support Vector Machines*, figure of local convergence, notebook local_converge.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from generators.transformers_as_svms.query_trials import query_trial
from reference_attention.angles import one_minus_cosine
from reference_attention.risk import scaled_gradient
from reference_attention.svm.max_margin import MaxMargin, max_margin, offending_neighbours
from reference_attention.training.descent import descend
from theorems.figures import style
from theorems.figures.figure import Figure, Numbers, Settings

INPUTS, TOKENS = 6, 8
DIMENSIONS = (2, 4, 6, 8, 10)
ITERATIONS, STEP = 1000, 0.1
MOST_TRIALS = 100
"""The largest number of trials per dimension, as in the notebook."""
NEAR = 1e-2
"""The bound of 1 − cos(W, W^mm) below which a run counts as converged; ‖W‖ is then about 50 ‖W^mm‖."""
KINDS = ("elsewhere", "local", "global")
COLORS = dict(zip(KINDS, (style.ORANGE, style.BLUE, style.GREEN), strict=True))
SAID = {"elsewhere": "not there", "local": "LMM, not global", "global": r"global $W^{\rm mm}$"}


def numbers(settings: Settings) -> Numbers:
    """Return, for each d, how many trials end where, and the median cosines of W with two W^mm.

    Trials converge to W^mm of the optimal tokens, to W^mm of other locally optimal tokens, or to neither. One of the
    two W^mm is for the tokens that the run selects, the other for the optimal tokens.
    """
    trials = min(settings.trials, MOST_TRIALS)
    return {
        "trials": trials,
        "seed": settings.seed,
        "n": INPUTS,
        "T": TOKENS,
        "iterations": ITERATIONS,
        "near": NEAR,
        "dimensions": [_dimension(d, trials, settings) for d in DIMENSIONS],
    }


def _dimension(d: int, trials: int, settings: Settings) -> Numbers:
    problems = [query_trial(settings.seed, INPUTS, TOKENS, d, k).problem for k in range(trials)]
    run = descend(
        np.stack([problem.keys for problem in problems]),
        np.stack([problem.scores for problem in problems]),
        problems[0].loss,
        np.zeros(d * d),
        steps=ITERATIONS,
        log_step=float(np.log(STEP)),
        normalized=True,
        gradient=settings.under_test[scaled_gradient],
        record_every=ITERATIONS,
    )
    counts, chosen, globally = dict.fromkeys(KINDS, 0), [], []
    locally_optimal = 0
    for problem, W in zip(problems, run.final, strict=True):
        alpha = problem.selection_at(W)
        att_svm = settings.under_test[max_margin](problem.exact_keys, alpha)
        best = settings.under_test[max_margin](problem.exact_keys, problem.optimal)
        kind = "elsewhere"
        if isinstance(att_svm, MaxMargin):
            apart = one_minus_cosine(W, att_svm.direction)
            local = not offending_neighbours(att_svm, problem.scores)
            locally_optimal += local
            chosen.append(1 - apart)
            if local and apart < NEAR:
                kind = "global" if np.array_equal(alpha, problem.optimal) else "local"
        if isinstance(best, MaxMargin):
            globally.append(1 - one_minus_cosine(W, best.direction))
        counts[kind] += 1
    return {
        "d": d,
        "fractions": {kind: count / trials for kind, count in counts.items()},
        "separable": len(globally) / trials,
        "locally_optimal": locally_optimal / trials,
        "median_cosine_selected": float(np.median(chosen)) if chosen else None,
        "median_cosine_global": float(np.median(globally)) if globally else None,
    }


def draw(figure: Any, numbers: Numbers) -> None:
    """Draw stacked bars of the shares of trials by where they end, and the two median cosines."""
    bars, lines = figure.subplots(1, 2)
    places = np.arange(len(numbers["dimensions"]))
    below = np.zeros(len(places))
    for kind in reversed(KINDS):
        heights = np.array([dimension["fractions"][kind] for dimension in numbers["dimensions"]])
        bars.bar(places, heights, 0.72, bottom=below, color=COLORS[kind], edgecolor="white", linewidth=0.6)
        below = below + heights
    for k, kind in enumerate(KINDS):
        style.name(bars, float(len(places)) - 0.45, 0.95 - 0.08 * k, SAID[kind], COLORS[kind], va="center")
    bars.set_xlim(-0.5, len(places) + 2.2)
    bars.set_ylabel(f"fraction of {numbers['trials']} trials per $d$")
    bars.set_ylim(0, 1)
    curves = (
        ("median_cosine_selected", style.BLUE, "the tokens selected"),
        ("median_cosine_global", style.GREEN, "the optimal tokens"),
    )
    for k, (key, color, limit) in enumerate(curves):
        points = [
            (x, dimension[key])
            for x, dimension in zip(places, numbers["dimensions"], strict=True)
            if dimension[key] is not None
        ]
        if points:
            lines.plot(*zip(*points, strict=True), "o-", color=color, markersize=4)
        style.name(lines, 0.0, 0.2 - 0.08 * k, rf"to $W^{{\rm mm}}$ of {limit}", color, va="center")
    lines.set_ylabel("median cosine")
    lines.set_ylim(0, 1.1)
    for axes in (bars, lines):
        axes.set_xticks(places, [str(dimension["d"]) for dimension in numbers["dimensions"]])
        axes.set_xlabel("dimension $d$")


FIGURES = [
    Figure(
        "tsvm-convergence",
        "random trials: the direction of $W$ under normalized gradient descent",
        (7.6, 3.6),
        numbers,
        draw,
    )
]
