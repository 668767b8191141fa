"""The strategy behind :func:`generators.problems.cases`, which first checks that the assumptions can be combined.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorems 1–8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from jaxtyping import Bool, Float64, Int64

from generators.case import Case
from generators.directions import prompts
from generators.keys import arbitrary_keys, nudge_to_general_position, rescaled_keys, separable_keys
from generators.numbers import Frame, one_in
from generators.realistic_keys import realistic_keys
from generators.realistic_numbers import is_realistic, repeated_inputs
from generators.scores import free_scores, locally_optimal_scores, optimal_scores
from generators.tokens import datasets_with_head_in_key_range, datasets_with_optimal_tokens, realisations
from reference_attention.losses import loss_named
from reference_attention.problem import Dataset, Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin

Start = Literal["anywhere"] | Callable[[Problem], SearchStrategy[Float64[np.ndarray, "d"]]] | None
Data = tuple[Float64[np.ndarray, "n T d"], Float64[np.ndarray, "n T"], Int64[np.ndarray, "n"] | None]

PLAIN = "plain"
"""A marker among the ids of required assumptions that restricts keys to small readable numbers."""

JOINT = frozenset({"optimal-tokens", "optimal-support-tokens"})
"""Assumptions on joint training, for which the dataset is drawn first and the problem computed from the dataset."""


@st.composite
def built_cases(
    draw: DrawFn,
    required: frozenset[str],
    frames: SearchStrategy[Frame],
    losses: tuple[str, ...],
    *,
    any_alpha: bool,
    start: Start,
    dataset: bool,
    plain: bool = False,
) -> Case:
    """Draw a case with the required assumptions; see :func:`generators.problems.cases` for the arguments."""
    required = required | {PLAIN} if plain else required
    users = _as_users_have_them(draw, required)
    frame = draw(frames)
    loss = draw(st.sampled_from(losses))
    positive = "positive-labels" in required
    data: Dataset | None = None
    alpha: Int64[np.ndarray, "n"] | None = None
    if required & JOINT:
        relaxed = "optimal-tokens" not in required
        data = draw(datasets_with_optimal_tokens(frame, loss, positive=positive, relaxed=relaxed))
    elif "head-in-key-range" in required:
        equal = "equal-non-optimal-scores" in required
        data = draw(datasets_with_head_in_key_range(frame, loss, positive=positive, equal=equal, users=users))
    if data is not None:
        problem = data.problem
        alpha = problem.optimal if "locally-optimal" in required else None
    else:
        make = _locally_optimal if "locally-optimal" in required else _scores_first
        keys, scores, alpha = make(draw, frame, required, any_alpha=any_alpha, users=users)
        problem = Problem(keys, scores, loss_named(loss))
        if dataset:
            data = draw(realisations(frame, problem, positive=positive))
    first = None
    if start is not None:
        first = draw(prompts(problem.d) if start == "anywhere" else start(problem))
    return Case(problem, dataset=data, alpha=alpha, start=first, seed=draw(st.integers(0, 2**32 - 1)))


def _as_users_have_them(draw: DrawFn, required: frozenset[str]) -> bool:
    """Draw whether the case has numbers as users have them: one case in five, none with general position or PLAIN."""
    return not required & {"general-position", PLAIN} and draw(is_realistic())


def _locally_optimal(draw: DrawFn, frame: Frame, required: frozenset[str], *, any_alpha: bool, users: bool) -> Data:
    """Draw keys, compute the SVM-neighbours of α exactly, and draw scores that make α locally optimal."""
    alpha = draw(frame.integers("n", 0, frame.tokens - 1))
    every = np.ones((frame.n, frame.tokens), dtype=bool)
    if users:
        repeats = draw(repeated_inputs(frame.n))
        alpha = alpha[repeats]
        keys = draw(realistic_keys(frame, alpha, every, repeats))
    else:
        keys = _separated_keys(draw, frame, required, alpha, every)
    solution = max_margin(keys, alpha)
    assert isinstance(solution, MaxMargin), "keys are separable by construction"
    scores = locally_optimal_scores(
        frame,
        alpha,
        solution.neighbours,
        strict="strict-optimum" in required,
        equal="equal-non-optimal-scores" in required,
        distinct="distinct-scores" in required,
        few=users and draw(st.booleans()),
    )
    return keys, draw(scores), alpha


def _scores_first(draw: DrawFn, frame: Frame, required: frozenset[str], *, any_alpha: bool, users: bool) -> Data:
    """Draw scores, then keys that separate the optimal or chosen tokens if an assumption requires separation."""
    equal, distinct = "equal-non-optimal-scores" in required, "distinct-scores" in required
    strict = equal or distinct or "strict-optimum" in required
    by_sets = "separable-optimal-sets" in required
    few = users and draw(st.booleans())
    if strict or by_sets or "mixing-hurts" in required:
        scores = draw(optimal_scores(frame, equal=equal, distinct=distinct, ties=not strict, few=few))
    else:
        scores = draw(free_scores(frame, few=few))
    repeats = draw(repeated_inputs(frame.n)) if users else np.arange(frame.n)
    scores = scores[repeats]
    best = scores == scores.max(axis=1, keepdims=True)
    alpha = draw(frame.integers("n", 0, frame.tokens - 1))[repeats] if any_alpha else None
    around: Int64[np.ndarray, "n"] = np.argmax(scores, axis=1) if alpha is None else alpha
    apart: Bool[np.ndarray, "n T"] = np.ones_like(best)
    if "separable" not in required and by_sets:
        # Separate one choice of optimal tokens from the non-optimal tokens only.
        nth = draw(frame.integers("n", 0, frame.tokens - 1)) % best.sum(axis=1)
        around = np.argmax(np.cumsum(best, axis=1) > nth[:, None], axis=1)[repeats]
        apart = ~best
    elif "separable" not in required and draw(st.booleans()):
        if users:
            return draw(realistic_keys(frame, around, np.zeros_like(best), repeats)), scores, alpha
        return _finish_keys(draw, required, draw(arbitrary_keys(frame))), scores, alpha
    if users:
        return draw(realistic_keys(frame, around, apart, repeats)), scores, alpha
    return _separated_keys(draw, frame, required, around, apart), scores, alpha


def _separated_keys(
    draw: DrawFn,
    frame: Frame,
    required: frozenset[str],
    alpha: Int64[np.ndarray, "n"],
    apart: Bool[np.ndarray, "n T"],
) -> Float64[np.ndarray, "n T d"]:
    wide = not required & {"general-position", PLAIN} and draw(one_in(5))
    return _finish_keys(draw, required, draw(separable_keys(frame, alpha, apart, wide=wide)))


def _finish_keys(
    draw: DrawFn, required: frozenset[str], keys: Float64[np.ndarray, "n T d"]
) -> Float64[np.ndarray, "n T d"]:
    """Move keys into general position if that is required; otherwise sometimes multiply keys by factors."""
    if "general-position" in required:
        return nudge_to_general_position(keys)
    return keys if PLAIN in required else draw(rescaled_keys(keys))
