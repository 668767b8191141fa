"""Random trials of Figure 9 whose flow ends at a finite point: a minimum of the risk, proven to exist there in ball
arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from flint import arb, arb_mat, ctx

from generators.random_trials import random_trial
from reference_attention.problem import Problem
from reference_attention.risk import softmax_weights
from reference_attention.training.batched_flow import Flows, gradient_flows
from reference_attention.training.descent import Stop
from theorems.benchmark.measurements import far
from theorems.figures.figure import Settings
from theorems.token_selection.figures.random_trials import SATURATED, TrialEnd, run_trials

BITS = 400
REST = [(2, 0, "not saturated"), (2, 34, "saturated, other"), (4, 9, "not saturated")]
"""Trials of seed 0 whose flow ends at a finite point: d, number, and the kind that the figure counts after its
steps.
"""


def flows_of(trials: Sequence[TrialEnd]) -> Flows:
    """Return the gradient flows from the last iterates of the trials."""
    starts = np.array([trial.p for trial in trials])
    norms = np.array([far(trial.problem, trial.p) for trial in trials])
    return gradient_flows([trial.problem for trial in trials], starts, norms=norms)


def slope_and_curvature(problem: Problem, p: arb_mat) -> tuple[arb_mat, arb_mat]:
    """Return ∇L and ∇²L at p, (d, 1), in balls, from L = (1/n) Σ log(1 + e^{−γᵀs}) with s the softmax weights."""
    d, n = problem.d, problem.n
    slope, curvature = arb_mat(d, 1), arb_mat(d, d)
    for keys, scores in zip(problem.keys, problem.scores, strict=True):
        # Take keys and scores relative to the token of largest logit, so that nothing cancels where this token has all
        # the weight.
        best = int(np.argmax(keys @ np.array([float(x) for x in p.entries()])))
        rows = [arb_mat(d, 1, row.tolist()) - arb_mat(d, 1, keys[best].tolist()) for row in keys]
        gaps = [arb(g) - arb(scores[best]) for g in scores.tolist()]
        logits = [(row.transpose() * p)[0, 0] for row in rows]
        total = sum((x.exp() for x in logits), arb(0))
        weights = [x.exp() / total for x in logits]
        output = sum((w * g for w, g in zip(weights, gaps, strict=True)), arb(0))
        mean, bent, h = arb_mat(d, 1), arb_mat(d, d), arb_mat(d, 1)
        for w, g, row in zip(weights, gaps, rows, strict=True):
            mean, h = mean + row * w, h + row * (w * (g - output))
            bent = bent + row * row.transpose() * (w * (g - output))
        bent = bent - h * mean.transpose() - mean * h.transpose()
        falls = -1 / (1 + (output + arb(scores[best])).exp())
        slope = slope + h * (falls / n)
        curvature = curvature + h * h.transpose() * (-falls * (1 + falls) / n) + bent * (falls / n)
    return slope, curvature


def has_minimum_near(problem: Problem, p: np.ndarray) -> bool:
    """Return whether Newton's method from p ends at a point c with a strict local minimum of L proven within 1e-20 ‖p‖.

    Krawczyk's test: let B be a box around c, and C ≈ ∇²L(c)⁻¹. If c − C∇L(c) + (1 − C∇²L(B))(B − c) lies inside B,
    there is exactly one zero of ∇L in B. It is a minimum if ∇²L is positive definite throughout B (Sylvester's
    criterion).
    """
    d = len(p)
    with ctx.workprec(BITS):
        centre = arb_mat(d, 1, p.tolist())
        for _ in range(8):
            slope, curvature = slope_and_curvature(problem, centre)
            centre = (centre - curvature.solve(slope)).mid()
        radius = float(np.linalg.norm(p)) * 1e-20
        spread = arb_mat(d, 1, [arb(0, radius)] * d)
        slope, curvature = slope_and_curvature(problem, centre)
        inverse = curvature.mid().inv().mid()
        _, throughout = slope_and_curvature(problem, centre + spread)
        eye = arb_mat(d, d, [float(i == j) for i in range(d) for j in range(d)])
        moved = (eye - inverse * throughout) * spread - inverse * slope
        inside = all(abs(x) < radius for x in moved.entries())
        table = throughout.tolist()
        minors = [arb_mat([row[:k] for row in table[:k]]).det() for k in range(1, d + 1)]
        return inside and all(x > 0 for x in minors)


@pytest.mark.parametrize(("d", "number", "kind"), REST)
def test_trials_that_rest_do_so_at_a_certified_minimum(d: int, number: int, kind: str) -> None:
    """More steps would not make these trials diverge: the flow, and descent with small steps, lead to the minimum."""
    (one,) = run_trials(Settings(number + 1, 0), (d, number, number + 1))
    assert one.kind == kind
    flows = flows_of([one])
    assert flows.stops == (Stop.STATIONARY,)
    assert has_minimum_near(one.problem, flows.points[0])
    # Attention at a finite minimum may count as saturated by the threshold of the figures.
    weights = softmax_weights(one.problem.keys, flows.points[0])
    assert (float(weights.max(axis=1).mean()) >= SATURATED) == kind.startswith("saturated")


def test_no_minimum_is_certified_where_there_is_none() -> None:
    problem = random_trial(0, 10, 0).problem
    assert not has_minimum_near(problem, np.ones(10))
    (one,) = run_trials(Settings(1, 0), (2, 0, 1))
    assert not has_minimum_near(Problem(one.problem.keys, -one.problem.scores), one.p)


def test_slope_and_curvature_in_balls_are_the_derivatives_of_the_risk() -> None:
    """Compare with central differences of a second implementation of the risk."""
    problem = random_trial(1, 3, 0).problem
    p, h = np.array([0.3, -0.7, 1.1]), 1e-4

    def risk(p: np.ndarray) -> float:
        weights = np.exp(problem.keys @ p)
        outputs = (weights / weights.sum(axis=1, keepdims=True) * problem.scores).sum(axis=1)
        return float(np.log1p(np.exp(-outputs)).mean())

    slope, curvature = slope_and_curvature(problem, arb_mat(3, 1, p.tolist()))
    for i, e in enumerate(h * np.eye(3)):
        assert float(slope[i, 0]) == pytest.approx((risk(p + e) - risk(p - e)) / (2 * h), abs=1e-8)
        for j, f in enumerate(h * np.eye(3)):
            mixed = risk(p + e + f) - risk(p + e - f) - risk(p - e + f) + risk(p - e - f)
            assert float(curvature[i, j]) == pytest.approx(mixed / (4 * h * h), abs=1e-6)
