"""The theorem without one of its assumptions: the cases that ``theorems hunt`` searches, and a claim that fails."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis.strategies import SearchStrategy

from a_paper.ordered_logits import order_scores, ordered_logits
from theorems.api import AttentionAt, Case, Claim, Form, Implementation, Problem, at_least, cases, weaken

FALLS = "L(Rp) does not increase with R"


def plain_cases() -> SearchStrategy[Case]:
    """Return a strategy for one input of two or three tokens, in at most two dimensions."""
    small = {"n": (1, 1), "tokens": (2, 3), "d": (1, 2), "losses": ("correlation",)}
    return cases(assumptions=("well-behaved-loss",), start="anywhere", plain=True, **small)


def increasing_cases() -> SearchStrategy[Case]:
    """Return a strategy for one input with ordered scores that are raised by 1.

    At an output u above 1 the squared loss (1 − u)²/2 increases.
    """
    small = {"n": (1, 1), "tokens": (2, 3), "d": (1, 2), "losses": ("squared",)}

    def with_higher_scores(case: Case) -> Case:
        problem = case.problem
        return order_scores(case.replace(problem=Problem(problem.keys, problem.scores + 1, problem.loss)))

    return cases(start="anywhere", plain=True, **small).map(with_higher_scores)


def falls(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Claim that the risk L(2p) is at most L(p); both are computed with bounds of their rounding errors."""
    assert case.start is not None
    risk = AttentionAt(case.problem, np.stack([case.start, 2 * case.start])).risk
    yield at_least("risk-falls", Form.EXACT, risk[0], risk[1])


@weaken(
    "ordered-logits-descend",
    without="ordered-logits",
    refutes=FALLS,
    cases=plain_cases,
    fails=ordered_logits,
)
def wrong_order(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let a prompt prefer the token of lower score: as the prompt grows, the token's weight and the risk rise."""
    yield from falls(case, under_test)


@weaken("ordered-logits-descend", without="well-behaved-loss", refutes=FALLS, cases=increasing_cases)
def increasing_loss(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the loss increase: a longer prompt has a higher output, and a higher output has a higher loss."""
    yield from falls(case, under_test)
