"""The limits of the random trials whose prompt after 1000 steps does not have a locally optimal direction.

The paper attributes these trials to the finite number of iterations. Here the gradient flow continues each of them from
its last iterate to a finite stationary point, or to a norm at which the limit of its direction is visible.

Source: *Max-Margin Token Selection in Attention Mechanism*, Figures 9 and 10, Appendix E.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float64
from scipy.stats import binomtest

from reference_attention.problem import Problem
from reference_attention.training.batched_flow import Flows, gradient_flows
from reference_attention.training.descent import Stop
from theorems.benchmark.measurements import Kind, far, limit_at
from theorems.figures import style
from theorems.figures.figure import Cut, Figure, Numbers, Settings
from theorems.token_selection.figures.random_trials import DIMENSIONS, KINDS, TrialEnd, pieces, run_trials

FATES = ("rests", "still turning", "LMM, not GMM", "GMM")
"""The possible ends of the flow that continues a trial, called its fates.

"rests": the flow ends at a finite stationary point. "still turning": at norm ρ‖p_mm‖ the direction of the flow is not
within √(1/ρ) of the p̄_mm of the selected tokens, or these tokens are not locally optimal. "LMM, not GMM": the flow has
the direction of locally optimal tokens. "GMM": the flow has the direction of the optimal tokens.
"""
LEFT = KINDS[:2]
"""The kinds of trials that the flow continues: those without a locally optimal direction."""
COLORS = dict(zip(FATES, (style.RED, style.ORANGE, style.BLUE, style.GREEN), strict=True))
CONFIDENCE = 0.95


@cache
def numbers(settings: Settings) -> Numbers:
    """Return, by dimension, the number of trials of each kind after 1000 steps, and the fates of continued trials."""
    return combine_blocks(settings, [follow_trials(settings, piece) for piece in pieces(settings)])


def follow_trials(settings: Settings, piece: tuple[int, ...]) -> Numbers:
    """Return how many trials of a block are of each kind after 1000 steps, and how many of each kind have each fate."""
    trials = list(run_trials(settings, piece))
    stopped = Counter(trial.kind for trial in trials)
    undecided = [trial for trial in trials if trial.kind in LEFT]
    became = Counter(f"{trial.kind}: {fate}" for trial, fate in zip(undecided, fates(undecided), strict=True))
    return {"d": piece[0], "stopped": dict(stopped), "became": dict(became)}


def fates(trials: Sequence[TrialEnd]) -> list[str]:
    """Return the fate of each trial, one of :data:`FATES`.

    Raises:
        RuntimeError: a flow could not be followed.
    """
    if not trials:
        return []
    flows = flows_of(trials)
    if Stop.FAILED in flows.stops:
        raise RuntimeError(f"the flow of a random trial failed: {max(flows.reasons)}")
    ends = zip(trials, flows.points, flows.stops, strict=True)
    return ["rests" if stop is Stop.STATIONARY else fate(trial.problem, p) for trial, p, stop in ends]


def flows_of(trials: Sequence[TrialEnd]) -> Flows:
    """Return the gradient flows from the last iterates of the trials."""
    starts = np.array([trial.p for trial in trials])
    norms = np.array([far(trial.problem, trial.p) for trial in trials])
    return gradient_flows([trial.problem for trial in trials], starts, norms=norms)


def fate(problem: Problem, p: Float64[np.ndarray, "d"]) -> str:
    """Return the fate of a flow whose last point, of large norm, is p."""
    limit = limit_at(problem, p)
    return "still turning" if isinstance(limit, str) else "GMM" if limit.kind is Kind.GLOBAL else "LMM, not GMM"


def combine_blocks(settings: Settings, trial_blocks: Sequence[Numbers]) -> Numbers:
    """Return the numbers of the figure from the numbers of all blocks of trials."""
    per_d = []
    for d in DIMENSIONS:
        blocks = [block for block in trial_blocks if block["d"] == d]
        stopped = {kind: sum(block["stopped"].get(kind, 0) for block in blocks) for kind in KINDS}
        became = {kind: {fate: _count(blocks, kind, fate) for fate in FATES} for kind in LEFT}
        ends = {fate: stopped.get(fate, 0) + sum(became[kind][fate] for kind in LEFT) for fate in FATES}
        shares = {fate: _share(count, settings.trials) for fate, count in ends.items()}
        per_d.append({"d": d, "stopped": stopped, "became": became, "ends": ends, "shares": shares})
    return {"trials": settings.trials, "seed": settings.seed, "confidence": CONFIDENCE, "dimensions": per_d}


def _count(blocks: Sequence[Numbers], kind: str, fate: str) -> int:
    """Return the number of trials of one kind that have one fate."""
    return sum(int(block["became"].get(f"{kind}: {fate}", 0)) for block in blocks)


def _share(count: int, trials: int) -> list[float]:
    """Return count/trials and the two ends of Wilson's confidence interval for this share."""
    interval = binomtest(count, trials).proportion_ci(CONFIDENCE, method="wilson")
    return [count / trials, float(interval.low), float(interval.high)]


def draw(figure: Any, numbers: Numbers) -> None:
    """Draw the share of trials with each fate by dimension, with its confidence interval."""
    axes = figure.add_subplot()
    places = np.arange(len(numbers["dimensions"]))
    for k, name in enumerate(FATES):
        shares = np.array([dimension["shares"][name] for dimension in numbers["dimensions"]])
        where = places + 0.2 * (k - 1.5)
        axes.bar(where, shares[:, 0], 0.18, color=COLORS[name])
        whiskers = np.abs(shares[:, 1:].T - shares[:, 0])
        axes.errorbar(where, shares[:, 0], yerr=whiskers, fmt="none", ecolor=style.GREY, elinewidth=0.8, capsize=1.5)
        axes.text(len(places) - 0.4, 0.93 - 0.09 * k, name, color=COLORS[name], fontweight="bold", fontsize=8.5)
    axes.set_xticks(places, [str(dimension["d"]) for dimension in numbers["dimensions"]])
    axes.set_xlabel("dimension $d$")
    axes.set_ylabel("fraction of the trials")
    axes.set_ylim(0, 1)
    axes.set_xlim(-0.5, len(places) - 0.5)
    note = f"{numbers['trials']} trials per $d$\n1000 normalized steps,\nthen the flow\n95% intervals (Wilson)"
    axes.text(len(places) - 0.4, 0.5, note, color=style.GREY, fontsize=7.5, va="top")


FIGURES = [
    Figure(
        "9-followed",
        "random trials by dimension $d$: what becomes of them when they are followed by the flow",
        (6.4, 3.7),
        numbers,
        draw,
        cut=Cut(pieces, follow_trials, combine_blocks),
    )
]
