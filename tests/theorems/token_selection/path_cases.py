"""Corner cases for Theorems 1 and 2: degenerate duals, duplicates, margins near 1, extreme scales.

A row is a difference k_opt − k_t.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from generators.case import Case
from reference_attention.losses import loss_named
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.core.check import check
from theorems.core.claim import Claim, Verdict
from theorems.core.statement import Statement
from theorems.run.registry.lookup import statement_named


def statement(id: str) -> Statement:
    return statement_named(id)


def case(keys: Any, scores: Any, loss: str = "logistic", **further: Any) -> Case:
    """Return a normalised case with the given keys (n, T, d) and scores (n, T)."""
    problem = Problem(np.array(keys, dtype=np.float64), np.array(scores, dtype=np.float64), loss_named(loss))
    return Case(problem, **further).normalise()


def claims_of(id: str, given: Case, under_test: Any) -> dict[str, Claim]:
    """Return the claims of a statement by name, whatever its verdict."""
    return {claim.name: claim for claim in check(statement(id), given, under_test).claims}


def figure_1a(start: float = 1.0) -> Case:
    """Return Figure 1a: tokens (−0.1, 1), (1, 0), (0, 0) with scores 1, 0.9, 0.9, from p(0) = (0, start)."""
    return case([[[-0.1, 1], [1, 0], [0, 0]]], [[1, 0.9, 0.9]], start=np.array([0.0, start]))


# The optimal key is 0 in these cases, so rows are the negated other keys.
CORNERS: dict[str, Case] = {
    # For the rows (1, 0) and (1, 1), p_mm is (1, 0), and the second token is an SVM-neighbour of dual 0, so that the
    # offset from the ray grows.
    "zero-dual": case([[[0, 0], [-1, 0], [-1, -1]]], [[1, 0, 0]]),
    # Of the rows (1, 0, 0), (1, ±1, 0) and (1, 0, 2), the first three are dependent; the last has dual 0 in all
    # solutions.
    "zero-dual-of-dependent": case([[[0, 0, 0], [-1, 0, 0], [-1, -1, 0], [-1, 1, 0], [-1, 0, -2]]], [[1, 0, 0, 0, 0]]),
    "duplicate-tokens": case([[[0, 0], [-1, 0.5], [-1, 0.5], [-1, -1]]], [[1, 0, 0, 0]]),
    "more-neighbours-than-dimensions": case([[[0, 0], [-1, 1], [-1, 0], [-1, -1], [-1, -0.5]]], [[2, 0, 0, 0, 0]]),
    # The third token, of margin 1 + 3e-9, is no neighbour, but matters at every radius up to 1e8.
    "margin-1+3e-9": case([[[0, 0], [-1, 0], [-(1 + 3e-9), -1]]], [[1, 0, 0]]),
    "margin-1+1e-5": case([[[0, 0], [-1, 0], [-(1 + 1e-5), -1]]], [[1, 0, 0]]),
    # The rows of two inputs differ by a thousandth, so the limit of the offset is so far away that the Hessian of the
    # reduced program underflows near it.
    "nearly-one-row": case([[[0, 0], [-1, -1]], [[0, 0], [-0.999, -1.001]]], [[0, -1], [0, -1]]),
    # Two opposite rows are 1e5 long: steps as long as the first allows once led to a point of the same risk beyond the
    # second.
    "opposite-long-rows": case(
        [
            [[-16, -0.052734375, 896, 0.25], [64, -0.0078125, 256, -0.0625]],
            [[-48, 0.001953125, -384, 0.375], [32, 0.0546875, -1024, 0.0625]],
        ],
        [[-(2**-20), 0], [3, 2.9]],
        "correlation",
    ),
    # At norm 10⁶‖p_mm‖ the logits of the longest row are too large for weights to have digits; at 10⁵ they are not.
    "rows-a-hundred-thousandfold-apart": case(
        [
            [
                [1594.3679961853027, -0.012578125014551914],
                [-2204.672, 0.0019140625],
                [-750.592, -0.0036328125],
                [-453.632, 0.003046875],
            ]
        ],
        [[-1.1, -1.1, -1.1, -1]],
        "exponential",
    ),
    # The second row's weight of 1e-17 balances the curvature of the sphere, which no value of the risk in floats shows.
    "zero-dual-on-a-long-row": case([[[0, 0], [-1, 0], [-1, -(2**20)]]], [[1, 0, 0]]),
    # A weight of 4e-7 is on a row a million times longer than the other: rounding along one once hid the other's
    # valley.
    "rows-a-millionfold-apart": case(
        [
            [[0, 0, 0], [-(2**-10), -(2**-9), 0], [-(2**-10), 3 * 2**-10, 0], [-(2**-10), 0, 0]],
            [[0, 0, 0], [-512, 0, 0], [-512, 0, 0], [512, 0, -1024]],
        ],
        [[0, -1, -1, -1]] * 2,
    ),
    "one-dimension": case([[[0.0], [-1.0], [-2.0]]], [[1, 0, 0]]),
    "two-tokens": case([[[0.5, 0.25], [-1, 1]]], [[1, 0]], "exponential"),
    "several-inputs": case(
        [[[1, 0.2], [0, 0.1], [-0.3, 1]], [[0.7, 0.9], [0, 0], [0.1, 0.3]]], [[1, 0.5, 0.5], [2, 0, 0]], "correlation"
    ),
    "scores-of-50": case([[[1, 0.2], [0, 0.1], [-0.3, 1]]], [[50, -50, -50]]),
    "scores-of-50-exponential": case([[[1, 0.2], [0, 0.1], [-0.3, 1]]], [[50, -50, -50]], "exponential"),
    "scores-of-1e-120": case([[[1, 0.2], [0, 0.1], [-0.3, 1]]], [[1e-120, 0, 0]], "exponential"),
    "scores-of-1e120-correlation": case([[[1, 0.2], [0, 0.1], [-0.3, 1]]], [[1e120, 0, 0]], "correlation"),
    "keys-of-1e-120": case([[[1e-120, 2e-121], [0, 1e-121], [-3e-121, 1e-120]]], [[1, 0, 0]]),
    "long-p_mm": case([[[0, 0], [-1, 1 - 1e-2], [1, -1]]], [[1, 0, 0]], "correlation"),
    "far-start": case([[[0, 0, 0], [-1, 0, 0], [-1, -1, 0]]], [[1, 0, 0]], start=np.array([-5.0, 40.0, 7.0])),
}
"""Cases on which Theorems 1 and 2 must be upheld."""

BEYOND_FLOAT: dict[str, Case] = {
    # At the optimal score |ℓ'| is e^{−10¹²⁰}, so κ is 10¹²⁰.
    "scores-of-1e120": case([[[1, 0.2], [0, 0.1], [-0.3, 1]]], [[1e120, 0, 0]])
}
"""Cases that are inconclusive, with a reason, because the limit shows only at norms beyond floats."""


def random_cases(count: int, *, equal: bool) -> list[Case]:
    """Return separable cases with unique optimal tokens, drawn from a fixed seed; every other one has one input."""
    cases: list[Case] = []
    seed = 0
    while len(cases) < count:
        seed += 1
        rng = np.random.default_rng(seed)
        n, tokens, d = (1, 3)[len(cases) % 2], int(rng.integers(2, 6)), int(rng.integers(3, 7))
        scores = np.where(np.arange(tokens) == 0, 1.2 + rng.random((n, 1)), 0.0 if equal else rng.random((n, tokens)))
        loss = ("logistic", "exponential", "correlation", "sigmoid")[len(cases) // 2 % 4]
        keys = rng.normal(size=(n, tokens, d))
        keys[:, 0, 0] += 2
        example = case(keys, np.broadcast_to(scores, (n, tokens)), loss, seed=seed)
        if isinstance(max_margin(example.problem.keys, example.problem.optimal), MaxMargin):
            cases.append(example)
    return cases


def falsified(id: str, given: Case, under_test: Any) -> set[str]:
    """Return the names of the falsified claims."""
    return {name for name, claim in claims_of(id, given, under_test).items() if claim.verdict is Verdict.FALSIFIED}
