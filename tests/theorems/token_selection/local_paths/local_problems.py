"""Hand-made problems around locally optimal tokens, each for a corner case.

A row is a difference k_α − k_t, and row·p_mm the margin of token t.
"""

from __future__ import annotations

import numpy as np

from generators.case import Case
from reference_attention.losses import loss_named
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.token_selection.local_paths.local_constants import LocalConstants, local_constants


def case(keys: object, scores: object, alpha: list[int], loss: str = "logistic", seed: int = 7) -> Case:
    problem = Problem(np.array(keys, dtype=float), np.array(scores, dtype=float), loss_named(loss))
    return Case(problem, alpha=np.array(alpha, dtype=np.int64), seed=seed)


def nearly_neighbour(excess: float, gap: float = -1.0) -> Case:
    """Return a case with p_mm = (1, 0), in which token 2 has margin 1 + excess, and scores ``gap`` less than α."""
    return case([[[1.0, 0.0], [0.0, 0.0], [-excess, 1.0]]], [[0.0, -1.0, -gap]], [0])


HAND_MADE: dict[str, Case] = {
    # With a single row, the gradient is parallel to p_mm.
    "two-tokens": case([[[1.0, 0.5], [-0.5, 0.0]]], [[1.0, 0.0]], [0]),
    "one-dimension": case([[[1.0], [0.0], [-1.0]], [[2.0], [0.5], [-3.0]]], [[1.0, 0.0, 2.0], [0.5, 0.0, 3.0]], [0, 0]),
    # Input 1 has no SVM-neighbour and its other tokens score above α, so its part of the gradient has the wrong sign.
    "wrong-sign-input": case(
        [[[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]], [[4.0, 0.0], [0.0, 1.0], [1.0, -1.0]]],
        [[1.0, 0.0, 0.5], [0.0, 2.0, 1.0]],
        [0, 0],
    ),
    "three-nano": nearly_neighbour(3e-9),
    "three-nano-but-good": nearly_neighbour(3e-9, gap=1.0),
    "nearly-neighbour": nearly_neighbour(0.05),
    # Two equal neighbours with different scores share one dual.
    "duplicate-neighbours": case(
        [[[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]], [[1.0, 0.0, 0.75, -2.0]], [0], "exponential"
    ),
    # (0, 0), (0, 1) and (0, −1) are neighbours for p_mm = (1, 0); a positive dual of (0, 0) alone suffices.
    "zero-dual-neighbours": case(
        [[[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, -1.0]]], [[1.0, 0.0, 0.5, -4.0]], [0], "correlation"
    ),
    # The dual of the neighbour (0, 1) is zero in every dual solution.
    "not-complementary": case([[[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]], [[1.0, 0.0, 0.5]], [0]),
    # The cone is 2e-10 wide and begins at norm 1e10, so the flow must be known up to 1e-10 of its norm.
    "narrow-cone": case(
        [[[1.0, -2.0], [-3.0, 2.0 - 2.0**-28], [0.0, 0.0], [-1.0, 0.0]]], [[-1.0, 1.0, 0.0, -1.0]], [2]
    ),
    # Scores make softmax weights very different from the duals, so the offset from the ray of p_mm is long.
    "long-offset": case(
        [[[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 2.0, 0.0]], [[0.0, 0.0, 1.0], [0.5, 0.0, 0.0], [0.0, 0.5, 0.25]]],
        [[1.0, 0.0, 0.999], [5.0, -100.0, 1.0]],
        [0, 0],
        "correlation",
    ),
}


def constants_of(example: Case) -> LocalConstants:
    solution = max_margin(example.problem.keys, example.chosen_tokens)
    assert isinstance(solution, MaxMargin)
    constants = local_constants(example.problem, solution)
    assert constants is not None
    return constants


def random_case(rng: np.random.Generator) -> Case | None:
    """Return a case with Gaussian keys and scores and random α, or None if α is not locally optimal."""
    n, tokens, d = int(rng.integers(1, 5)), int(rng.integers(2, 6)), int(rng.integers(1, 8))
    keys, scores = rng.normal(size=(n, tokens, d)), rng.normal(size=(n, tokens))
    loss = ("logistic", "exponential", "correlation", "sigmoid")[int(rng.integers(4))]
    problem = Problem(keys, scores, loss_named(loss))
    alpha = rng.integers(tokens, size=n) if rng.random() < 0.5 else problem.optimal
    solution = max_margin(keys, alpha)
    if not isinstance(solution, MaxMargin) or local_constants(problem, solution) is None:
        return None
    return Case(problem, alpha=alpha, seed=int(rng.integers(2**31)))


def random_cases(count: int, seed: int) -> list[Case]:
    rng = np.random.default_rng(seed)
    cases: list[Case] = []
    while len(cases) < count:
        example = random_case(rng)
        if example is not None:
            cases.append(example)
    return cases
