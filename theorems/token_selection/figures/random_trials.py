"""Random trials as in the paper: the prompt and the selected tokens after 1000 normalized steps.

Source: *Max-Margin Token Selection in Attention Mechanism*, Figures 9 and 10, Appendix E.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from generators.random_trials import random_trial
from reference_attention.angles import one_minus_cosine
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient, softmax_weights
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.descent import descend
from theorems.figures.figure import Settings

DIMENSIONS = (2, 4, 6, 10, 30, 100)
ITERATIONS, STEP = 1000, 1.0
BLOCK = 50
"""The number of trials in a block; blocks may be computed by different processes."""
SATURATED = 1 - 1e-5
"""The smallest mean over inputs of the largest softmax weight at which the softmax counts as saturated."""
KINDS = ("not saturated", "saturated, other", "LMM, not GMM", "GMM")


@dataclass(frozen=True, eq=False)
class TrialEnd:
    """The end of one random trial.

    Attributes:
        problem: keys, scores, loss.
        p: the prompt after the last step, (d,).
        kind: whether the softmax is saturated and, if so, which tokens are selected: one of :data:`KINDS`.
        gap: the minimum of γ_iα_i − γ_it over i and the SVM-neighbours t of the selected token α_i; None where the
            softmax is not saturated, or the selected tokens have no p_mm.
        apart: 1 − cos(p, p_mm) for the p_mm of the selected tokens; None where ``gap`` is None.
    """

    problem: Problem
    p: Float64[np.ndarray, "d"]
    kind: str
    gap: float | None = None
    apart: float | None = None


def pieces(settings: Settings) -> list[tuple[int, ...]]:
    """Return (d, b, e) for each block of at most :data:`BLOCK` trials: the trials number b, …, e − 1 of dimension d."""
    begins = range(0, settings.trials, BLOCK)
    return [(d, begin, min(begin + BLOCK, settings.trials)) for d in DIMENSIONS for begin in begins]


def run_trials(settings: Settings, piece: tuple[int, ...]) -> Iterator[TrialEnd]:
    """Yield the ends of the trials of a block (d, b, e), see :func:`pieces`."""
    d, begin, end = piece
    problems = [random_trial(settings.seed, d, k).problem for k in range(begin, end)]
    run = descend(
        np.stack([problem.keys for problem in problems]),
        np.stack([problem.scores for problem in problems]),
        problems[0].loss,
        np.zeros(d),
        steps=ITERATIONS,
        log_step=float(np.log(STEP)),
        normalized=True,
        gradient=settings.under_test[scaled_gradient],
        record_every=ITERATIONS,
    )
    for problem, p in zip(problems, run.final, strict=True):
        weights = np.asarray(settings.under_test[softmax_weights](problem.keys, p))
        alpha = weights.argmax(axis=1)
        if float(weights.max(axis=1).mean()) < SATURATED:
            yield TrialEnd(problem, p, "not saturated")
            continue
        svm = settings.under_test[max_margin](problem.keys, alpha)
        if not isinstance(svm, MaxMargin):
            yield TrialEnd(problem, p, "saturated, other")
            continue
        gap = float(problem.gaps(alpha)[svm.neighbours].min())
        kind = "saturated, other" if gap <= 0 else "GMM" if np.array_equal(alpha, problem.optimal) else "LMM, not GMM"
        yield TrialEnd(problem, p, kind, gap, one_minus_cosine(p, svm.direction))
