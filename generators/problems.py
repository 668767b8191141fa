"""Strategies for problems and cases that satisfy given assumptions by construction.

``cases(assumptions=("separable", "strict-optimum"))`` draws data for which both assumptions hold; nothing is filtered.
For a combination that no data can satisfy, or that no construction here covers, the call raises InvalidInput.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorems 1–8; Hypothesis, *API style guide*.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from itertools import product
from typing import Literal

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from generators.assumptions import assumption_named
from generators.case import Case
from generators.general_position import MOST_MATRICES, matrices
from generators.numbers import MOST_DRAWN, Frame, Large, Size, length, one_in
from generators.problem_cases import JOINT, Start, built_cases
from reference_attention.errors import InvalidInput
from reference_attention.losses import DRAWN_LOSSES, loss_named
from reference_attention.problem import Problem

__all__ = ["cases", "problems"]

MOST_IN_STRATEGY = min(MOST_MATRICES, 2_000)
"""The largest number of matrices that the check of general position may have to examine, since it runs in each draw."""

NOT_COMBINED = {
    "optimal-tokens": {"equal-non-optimal-scores", "distinct-scores", "general-position"},
    "optimal-support-tokens": {"equal-non-optimal-scores", "distinct-scores", "general-position"},
    "head-in-key-range": {"distinct-scores", "general-position"},
    "locally-optimal": {"separable-optimal-sets"},
}
"""For some assumptions, the assumptions with which no construction here combines them."""


def problems(
    *,
    assumptions: Collection[str] = (),
    n: Size | None = None,
    tokens: Size | None = None,
    d: Size | None = None,
    losses: Collection[str] = DRAWN_LOSSES,
) -> SearchStrategy[Problem]:
    """Return a strategy for problems that satisfy the assumptions; see :func:`cases`.

    Raises:
        InvalidInput: whenever :func:`cases` raises it, or if an assumption is about more than keys and scores.
    """
    beyond = sorted({*assumptions} & {"locally-optimal", "in-cone", "positive-labels", "head-in-key-range", *JOINT})
    if beyond:
        raise InvalidInput(f"assumptions: {', '.join(beyond)} concern more than keys and scores; use cases().")
    strategy = cases(assumptions=assumptions, n=n, tokens=tokens, d=d, losses=losses)
    return strategy.map(lambda case: case.problem)


def cases(
    *,
    assumptions: Collection[str] = (),
    n: Size | None = None,
    tokens: Size | None = None,
    d: Size | None = None,
    losses: Collection[str] = DRAWN_LOSSES,
    alpha: Literal["optimal", "any"] = "optimal",
    start: Start = None,
    dataset: bool = False,
    plain: bool = False,
    large: Large | None = None,
) -> SearchStrategy[Case]:
    """Return a strategy for cases (data of single checks) that satisfy all the assumptions.

    Args:
        assumptions: ids of :data:`generators.assumptions.ASSUMPTIONS`.
        n: the number of inputs, or its range (smallest, largest); 1–4 by default.
        tokens: the number of tokens, or its range; 2–5 by default.
        d: the dimension of the keys, or its range; 1–5 by default.
        losses: names of the losses to draw from.
        alpha: with ``"any"``, chosen tokens are drawn as ``Case.alpha``, and the assumption ``separable`` is about
            these tokens. The assumption ``locally-optimal`` implies ``"any"``.
        start: ``"anywhere"``, or a function from the problem to a strategy for p(0); by default there is no start.
        dataset: whether tokens, labels and head that give the problem are drawn, too, as they are for assumptions on
            them.
        plain: whether keys are small readable numbers without a change of units, as hunts for counterexamples need.
        large: the ranges of sizes of one case in five, in which ``n`` sets the least number of inputs; to be given
            without ``tokens`` and ``d``.

    Unless ``start`` is given, a case without a start satisfies ``in-cone``: the statement knows the constants of the
    cone and draws a start in the cone.

    Raises:
        InvalidInput: unknown ids or losses; lengths out of range; assumptions that contradict each other
            or the lengths, or that no construction here combines.
    """
    required = {assumption_named(id).id for id in assumptions}
    names = [loss_named(name).name for name in losses]
    if not names:
        raise InvalidInput("losses: none given; name at least one.")
    if alpha not in ("optimal", "any"):
        raise InvalidInput(f"alpha: {alpha!r} is unknown; give 'optimal' or 'any'.")
    frames = _frames(required, n, tokens, d, large)
    for id, others in NOT_COMBINED.items():
        if id in required and required & others:
            refused = ", ".join(sorted(required & others))
            raise InvalidInput(f"assumptions: {refused} cannot be combined with {id} here; leave one out.")
    separated = required & {"separable", "separable-optimal-sets", "locally-optimal"}
    fixed = required & {*JOINT, "head-in-key-range"}
    if "head-in-key-range" in required and separated and not required & {*JOINT, "positive-labels"}:
        raise InvalidInput(
            f"assumptions: {', '.join(sorted(separated))} with head-in-key-range needs positive-labels"
            " (Lemma 2); add it."
        )
    if alpha == "any" and (fixed or "separable-optimal-sets" in required):
        conflicting = ", ".join(sorted(fixed)) or "separable-optimal-sets"
        raise InvalidInput(f"alpha: {conflicting} is about the optimal tokens; give alpha='optimal'.")
    return built_cases(
        frozenset(required),
        frames,
        tuple(names),
        any_alpha=alpha == "any",
        start=start,
        dataset=dataset or bool(required & {"positive-labels", "radius-schedule"}),
        plain=plain,
    )


def _frames(
    required: set[str], n: Size | None, tokens: Size | None, d: Size | None, large: Large | None
) -> SearchStrategy[Frame]:
    """Return a strategy for sizes (n, T, d) in the ranges that the assumptions allow, which shrinks to small sizes."""
    if large is not None and (tokens, d) != (None, None):
        raise InvalidInput("large: tokens or d already gives the sizes; leave out large, or tokens and d.")
    inputs = length("n", n, (1, 4), smallest=1)
    counts = length("tokens", tokens, (2, 5), smallest=2)
    dims = length("d", d, (1, 5), smallest=1)
    if "single-input" in required:
        if inputs[0] > 1:
            raise InvalidInput(f"n: single-input needs n = 1, but n is at least {inputs[0]}; leave out n.")
        inputs = (1, 1)
    if {"equal-non-optimal-scores", "distinct-scores"} <= required:
        if counts[0] > 2:
            raise InvalidInput("tokens: equal-non-optimal-scores and distinct-scores together need T = 2.")
        counts = (2, 2)
    shapes: SearchStrategy[tuple[int, int, int]]
    if "general-position" not in required:
        shapes = st.tuples(st.integers(*inputs), st.integers(*counts), st.integers(*dims))
    else:
        every = product(*(range(low, high + 1) for low, high in (inputs, counts, dims)))
        allowed = [(a, b, c) for a, b, c in every if matrices(a, b, c) <= MOST_IN_STRATEGY]
        if not allowed:
            raise InvalidInput(
                f"n, tokens, d: general-position has more than {MOST_IN_STRATEGY} matrices at these"
                " lengths; take smaller ones."
            )
        shapes = st.sampled_from(allowed)
    most = (inputs[1], counts[1], dims[1])
    fits = math.prod(most) <= MOST_DRAWN
    small = shapes.map(lambda shape: Frame(shape[0], shape[1], shape[2], most if fits else shape))
    if large is None:
        return small
    if "general-position" in required or {"equal-non-optimal-scores", "distinct-scores"} <= required:
        raise InvalidInput(
            "large: general-position, and Assumption B with distinct scores, need small sizes; leave out large."
        )
    large = replace(large, n=(max(large.n[0], inputs[0]), large.n[1]))
    others = large.shapes(single_input="single-input" in required).map(lambda shape: Frame(*shape, shape))
    return one_in(5).flatmap(lambda wide: others if wide else small)
