"""Figures 9(a), 9(b): random trials of normalized gradient descent, and the tokens that they select.

As in the paper, each trial has 1000 iterations of step length 1 from p(0) = 0. We chose n, T, the values of d and the
threshold of saturation, which our copy of the paper does not state. The paper's trials ran in float32, where the
gradient of a saturated softmax is lost to rounding; here the gradient is computed without cancellation.

Source: *Max-Margin Token Selection in Attention Mechanism*, Figures 9 and 10, Appendix E.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from generators.random_trials import INPUTS, TOKENS
from theorems.figures import style
from theorems.figures.figure import Cut, Figure, Numbers, Settings
from theorems.token_selection.figures.random_trials import DIMENSIONS, ITERATIONS, KINDS, SATURATED, pieces, run_trials

BINS = np.arange(-10, 31) / 20
"""The edges of the histogram's bins; score gaps beyond the last edges count in the outermost bins."""
COLORS = dict(zip(KINDS, (style.RED, style.ORANGE, style.BLUE, style.GREEN), strict=True))


@cache
def numbers(settings: Settings) -> Numbers:
    """Return, by dimension d, the fraction of each kind of trial, the median 1 − cos(p, p_mm), and the score gaps.

    p_mm is that of the tokens α that a trial selects. A trial's score gap is the minimum of γ_iα_i − γ_it over i and
    the SVM-neighbours t of α_i; α is locally optimal if and only if the gap is positive. Only saturated trials whose
    p_mm exists and has neighbours have a gap.
    """
    return combine_blocks(settings, [trials_of(settings, piece) for piece in pieces(settings)])


def combine_blocks(settings: Settings, trial_blocks: Sequence[Numbers]) -> Numbers:
    """Return the numbers of the figures from the numbers of all blocks of trials."""
    per_d = [_dimension(settings, d, [block for block in trial_blocks if block["d"] == d]) for d in DIMENSIONS]
    gaps = [gap for dimension in per_d for gap in dimension["score_gaps"]]
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


def trials_of(settings: Settings, piece: tuple[int, ...]) -> Numbers:
    """Return, for a block of trials, the number of each kind, the score gaps, and 1 − cos(p, p_mm) of each trial."""
    trials = list(run_trials(settings, piece))
    return {
        "d": piece[0],
        "counts": {kind: sum(trial.kind == kind for trial in trials) for kind in KINDS},
        "score_gaps": [trial.gap for trial in trials if trial.gap is not None],
        "one_minus_cosine": [trial.apart for trial in trials if trial.apart is not None],
    }


def _dimension(settings: Settings, d: int, blocks: Sequence[Numbers]) -> Numbers:
    """Return the numbers of one dimension d from the numbers of its blocks."""
    deviations = [value for block in blocks for value in block["one_minus_cosine"]]
    return {
        "d": d,
        "fractions": {kind: sum(block["counts"][kind] for block in blocks) / settings.trials for kind in KINDS},
        "median_one_minus_cosine": float(np.median(deviations)) if deviations else None,
        "score_gaps": sorted(gap for block in blocks for gap in block["score_gaps"]),
    }


def draw_fractions(figure: Any, numbers: Numbers) -> None:
    """Draw the fractions of the kinds of trials as a stacked bar per dimension, with labels on the right."""
    axes = figure.add_subplot()
    places = np.arange(len(numbers["dimensions"]))
    below = np.zeros(len(places))
    for kind in reversed(KINDS):
        heights = np.array([dimension["fractions"][kind] for dimension in numbers["dimensions"]])
        axes.bar(places, heights, 0.72, bottom=below, color=COLORS[kind], edgecolor="white", linewidth=0.6)
        for x, low, height in zip(places, below, heights, strict=True):
            if height >= 0.06:
                axes.text(x, low + height / 2, f"{height:.2f}", ha="center", va="center", color="white", fontsize=7.5)
        below = below + heights
    axes.set_xticks(places, [str(dimension["d"]) for dimension in numbers["dimensions"]])
    axes.set_xlabel("dimension $d$")
    axes.set_ylabel("fraction of the trials")
    axes.set_ylim(0, 1)
    axes.set_xlim(-0.5, len(places) - 0.5)
    for k, kind in enumerate(KINDS):
        axes.text(
            len(places) - 0.4, 0.93 - 0.09 * k, kind, color=COLORS[kind], fontweight="bold", fontsize=8.5, va="center"
        )
    axes.text(len(places) - 0.4, 0.42, _caption(numbers), color=style.GREY, fontsize=7.5, va="top")


def _caption(numbers: Numbers) -> str:
    """Return a text that states the number of trials and their n, T and iterations."""
    return (
        f"{numbers['trials']} trials per $d$\n$n$ = {numbers['n']}, $T$ = {numbers['T']}\n"
        f"{numbers['iterations']} normalized steps"
    )


def all_gaps(numbers: Numbers) -> list[float]:
    """Return the score gaps of all dimensions together."""
    return [gap for dimension in numbers["dimensions"] for gap in dimension["score_gaps"]]


def _negative(numbers: Numbers) -> str:
    """Return a text that states how many score gaps are not positive."""
    gaps: Sequence[float] = all_gaps(numbers)
    count = sum(gap <= 0 for gap in gaps)
    return f"{count} of {len(gaps)} saturated trials\nhave a gap ≤ 0"


def draw_histogram(figure: Any, numbers: Numbers) -> None:
    """Draw the histogram of the score gaps, as fractions of the trials."""
    axes = figure.add_subplot()
    gaps = np.clip(all_gaps(numbers), BINS[0], BINS[-1])
    counts, edges = np.histogram(gaps, bins=numbers["bins"])
    shares = counts / max(1, len(gaps))
    colors = [style.RED if edge < 0 else style.BLUE for edge in edges[:-1]]
    axes.bar(edges[:-1], shares, np.diff(edges), align="edge", color=colors, edgecolor="white", linewidth=0.5)
    axes.axvline(0, color=style.GREY, linestyle="--", linewidth=1.0)
    _gap_axis(axes, numbers, 0.95)
    axes.set_ylabel(f"fraction of the trials, bins of {edges[1] - edges[0]:.2g}")


def _gap_axis(axes: Any, numbers: Numbers, height: float) -> None:
    """Label the axis of score gaps, and write the caption beneath at the height ``height``."""
    axes.set_xlim(BINS[0], BINS[-1])
    axes.set_xlabel(r"smallest score gap to an SVM-neighbour, $\min\, \gamma_{i\alpha_i} - \gamma_{it}$")
    text = f"{_negative(numbers)}\n\n{_caption(numbers)}"
    text = f"{text}\n$d$ = {', '.join(str(dimension['d']) for dimension in numbers['dimensions'])}"
    axes.text(0.55, height, text, transform=axes.transAxes, color=style.GREY, fontsize=7.5, va="top")


_CUT = Cut(pieces, trials_of, combine_blocks)
FIGURES = [
    Figure(
        "9a",
        "random trials by dimension $d$: not saturated, LMM, GMM",
        (6.4, 3.7),
        numbers,
        draw_fractions,
        cut=_CUT,
    ),
    Figure(
        "9b",
        "random trials: histogram of the smallest score gap",
        (6.0, 3.7),
        numbers,
        draw_histogram,
        cut=_CUT,
    ),
]
