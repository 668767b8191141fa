"""Figures 9(a), 9(b), 10: random trials of normalized gradient descent, and what they select.

Step 1, 1000 iterations from p(0) = 0, as in the paper. Its n, T, values of d and threshold of saturation are lost from
our text of it; those here are ours. Its trials ran in float32, where a saturated softmax has no gradient left; here the
gradient keeps its digits.

Source: *Max-Margin Token Selection in Attention Mechanism*, Figures 9 and 10, Appendix E.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from generators.random_trials import INPUTS, TOKENS, random_trial
from reference_attention.angles import one_minus_cosine
from reference_attention.svm.max_margin import MaxMargin
from reference_attention.training.descent import descend
from theorems.figures import style
from theorems.figures.figure import Figure, Numbers, Settings

DIMENSIONS = (2, 4, 6, 10, 30, 100)
ITERATIONS, STEP = 1000, 1.0
SATURATED = 1 - 1e-5
"""From this mean softmax weight of the selected tokens on the softmax counts as saturated."""
BINS = np.arange(-10, 31) / 20
"""Edges; what lies beyond them counts in the outermost bins."""
KINDS = ("not saturated", "saturated, other", "LMM, not GMM", "GMM")
COLORS = dict(zip(KINDS, (style.RED, style.ORANGE, style.BLUE, style.GREEN), strict=True))


@cache
def numbers(settings: Settings) -> Numbers:
    """Per d: the fraction of each kind, the median 1 − cos to p_mm of the selected tokens, and the score gaps.

    A score gap is min over i and the SVM-neighbours t of α_i of γ_iα_i − γ_it, of the saturated trials whose selected
    tokens have a p_mm with neighbours; α is locally optimal exactly where it is positive.
    """
    per_d = [_dimension(d, settings) for d in DIMENSIONS]
    gaps = [gap for one in per_d for gap in one["score_gaps"]]
    return {
        "trials": settings.trials,
        "seed": settings.seed,
        "n": INPUTS,
        "T": TOKENS,
        "iterations": ITERATIONS,
        "saturated_from": SATURATED,
        "dimensions": per_d,
        "negative_gaps": float(np.mean(np.array(gaps) <= 0)) if gaps else None,
        "bins": BINS.tolist(),
    }


def _dimension(d: int, settings: Settings) -> Numbers:
    problems = [random_trial(settings.seed, d, k).problem for k in range(settings.trials)]
    run = descend(
        np.stack([problem.keys for problem in problems]),
        np.stack([problem.scores for problem in problems]),
        problems[0].loss,
        np.zeros(d),
        steps=ITERATIONS,
        log_step=float(np.log(STEP)),
        normalized=True,
        gradient=settings.under_test.scaled_gradient,
        record_every=ITERATIONS,
    )
    counts = dict.fromkeys(KINDS, 0)
    gaps: list[float] = []
    apart: list[float] = []
    for problem, p in zip(problems, run.final, strict=True):
        weights = np.asarray(settings.under_test.weights(problem.keys, p))
        alpha = weights.argmax(axis=1)
        if float(weights.max(axis=1).mean()) < SATURATED:
            counts["not saturated"] += 1
            continue
        svm = settings.under_test.max_margin(problem.keys, alpha)
        if not isinstance(svm, MaxMargin):
            counts["saturated, other"] += 1
            continue
        gap = float(problem.gaps(alpha)[svm.neighbours].min())
        gaps.append(gap)
        apart.append(one_minus_cosine(p, svm.direction))
        kind = "saturated, other" if gap <= 0 else "GMM" if np.array_equal(alpha, problem.optimal) else "LMM, not GMM"
        counts[kind] += 1
    return {
        "d": d,
        "fractions": {kind: count / settings.trials for kind, count in counts.items()},
        "median_one_minus_cosine": float(np.median(apart)) if apart else None,
        "score_gaps": sorted(gaps),
    }


def draw_fractions(figure: Any, numbers: Numbers) -> None:
    """Stacked bars, labelled on the right."""
    axes = figure.add_subplot()
    places = np.arange(len(numbers["dimensions"]))
    below = np.zeros(len(places))
    for kind in reversed(KINDS):
        heights = np.array([one["fractions"][kind] for one in numbers["dimensions"]])
        axes.bar(places, heights, 0.72, bottom=below, color=COLORS[kind], edgecolor="white", linewidth=0.6)
        for x, low, height in zip(places, below, heights, strict=True):
            if height >= 0.06:
                axes.text(x, low + height / 2, f"{height:.2f}", ha="center", va="center", color="white", fontsize=7.5)
        below = below + heights
    axes.set_xticks(places, [str(one["d"]) for one in numbers["dimensions"]])
    axes.set_xlabel("dimension $d$")
    axes.set_ylabel("fraction of the trials")
    axes.set_ylim(0, 1)
    axes.set_xlim(-0.5, len(places) - 0.5)
    for k, kind in enumerate(KINDS):
        axes.text(
            len(places) - 0.4, 0.93 - 0.09 * k, kind, color=COLORS[kind], fontweight="bold", fontsize=8.5, va="center"
        )
    axes.text(len(places) - 0.4, 0.42, _said(numbers), color=style.GREY, fontsize=7.5, va="top")


def _said(numbers: Numbers) -> str:
    return (
        f"{numbers['trials']} trials per $d$\n$n$ = {numbers['n']}, $T$ = {numbers['T']}\n"
        f"{numbers['iterations']} normalized steps"
    )


def all_gaps(numbers: Numbers) -> list[float]:
    """The score gaps of all dimensions together."""
    return [gap for one in numbers["dimensions"] for gap in one["score_gaps"]]


def _negative(numbers: Numbers) -> str:
    gaps: Sequence[float] = all_gaps(numbers)
    count = sum(gap <= 0 for gap in gaps)
    return f"{count} of {len(gaps)} saturated trials\nhave a gap ≤ 0"


def draw_histogram(figure: Any, numbers: Numbers) -> None:
    """Relative frequencies."""
    axes = figure.add_subplot()
    gaps = np.clip(all_gaps(numbers), BINS[0], BINS[-1])
    counts, edges = np.histogram(gaps, bins=numbers["bins"])
    shares = counts / max(1, len(gaps))
    colors = [style.RED if left < 0 else style.BLUE for left in edges[:-1]]
    axes.bar(edges[:-1], shares, np.diff(edges), align="edge", color=colors, edgecolor="white", linewidth=0.5)
    axes.axvline(0, color=style.GREY, linestyle="--", linewidth=1.0)
    _gap_axis(axes, numbers, 0.95)
    axes.set_ylabel(f"fraction of the trials, bins of {edges[1] - edges[0]:.2g}")


def draw_cumulative(figure: Any, numbers: Numbers) -> None:
    """The distribution function."""
    axes = figure.add_subplot()
    gaps = np.sort(all_gaps(numbers))
    shares = np.arange(1, len(gaps) + 1) / max(1, len(gaps))
    axes.step([BINS[0], *gaps, BINS[-1]], [0, *shares, 1], where="post", color=style.BLUE)
    axes.axvline(0, color=style.GREY, linestyle="--", linewidth=1.0)
    _gap_axis(axes, numbers, 0.5)
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("cumulative fraction of the trials")


def _gap_axis(axes: Any, numbers: Numbers, height: float) -> None:
    axes.set_xlim(BINS[0], BINS[-1])
    axes.set_xlabel(r"smallest score gap to an SVM-neighbour, $\min\, \gamma_{i\alpha_i} - \gamma_{it}$")
    text = f"{_negative(numbers)}\n\n{_said(numbers)}"
    text = f"{text}\n$d$ = {', '.join(str(one['d']) for one in numbers['dimensions'])}"
    axes.text(0.55, height, text, transform=axes.transAxes, color=style.GREY, fontsize=7.5, va="top")


FIGURES = [
    Figure("9a", "random trials by dimension $d$: not saturated, LMM, GMM", (6.4, 3.7), numbers, draw_fractions),
    Figure("9b", "random trials: histogram of the smallest score gap", (6.0, 3.7), numbers, draw_histogram),
    Figure(
        "10", "random trials: distribution function of the smallest score gap", (6.0, 3.7), numbers, draw_cumulative
    ),
]
