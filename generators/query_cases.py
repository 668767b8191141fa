"""Strategies for data on which W is trained: tokens x, a query z per input, scores; separable by construction.

The head v is the first axis, and the first entry of a token is the token's score times the label. This is no
restriction, because scores may be arbitrary and all norms are invariant under rotations. Tokens and queries have few
bits, so that keys vec(x zᵀ) are exact. Three constructions make ATT-SVM feasible:

- label-separating: Y_i qᵀz_i ≥ 1 for some q. Then a multiple of W = v qᵀ separates the optimal tokens, however many
  tokens there are.
- independent: the rows (x_iα − x_it) z_iᵀ are linearly independent, so that some W gives all of them margin 1, for
  every α. This requires T − 1 ≤ d and n(T − 1) ≤ d e, where e is the dimension of queries; then almost all data have
  independent rows. The queries may be opposed: Σ c_i Y_i z_i = 0 with all c_i > 0, so that no q separates the labels.
- orthogonal: tokens of an input are orthogonal and of equal norm, and queries are orthogonal. Then the first step of
  gradient descent from W = 0 separates the optimal tokens.

One case in five of the constructions label-separating and independent is realistic: tokens and queries are numbers as
users have them, of few bits or, if tokens are not moved later, in float32. With label-separating queries inputs may be
repeated. In both constructions a support (token with a positive dual) may be copied, and the copy moved in a coordinate
that W^mm does not use.

Some other cases have decimals, whose products x z are rounded. With label-separating queries there may be up to 17
tokens, and a token may be the midpoint of two supports. In one case in three the dimension e of queries is not d.

References: *Transformers as Support Vector Machines*, Theorems 1 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Literal

import numpy as np
from flint import fmpq_mat
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64, Int64

from generators.case import Case
from generators.dependent_neighbours import with_dependent_neighbour
from generators.idle_neighbours import with_idle_neighbour
from generators.margin_assumptions import difference_rows
from generators.numbers import STYLES, Frame, Style, entries, one_in
from generators.realistic_keys import realistic_tokens
from generators.realistic_numbers import EVERY as EVERY_KIND
from generators.realistic_numbers import SHORT, is_realistic, repeated_inputs
from generators.scores import optimal_scores
from reference_attention.losses import DRAWN_LOSSES, loss_named
from reference_attention.outer_keys import Keys
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.max_margin import MaxMargin, max_margin, offending_neighbours

Tokens = Float64[np.ndarray, "n T d"]
Queries = Float64[np.ndarray, "n e"]

MOST = (4, 5, 4)
"""The largest number of inputs n, number of tokens T and dimension d of most cases."""
MANY = (9, 12, 17)
"""The numbers of tokens of cases with many tokens."""
MOST_MANY = (2, 17, 4)
"""The largest number of inputs n, number of tokens T and dimension d of cases with many tokens."""
FACTORS = (1.0, 2.0, 16.0)
"""The distances, as multiples of the least sufficient distance, by which tokens that score higher are moved from α."""
FARTHEST = 2.0**12
"""The largest distance by which tokens are moved; tokens that would have to move further are not moved."""
GRID = 2.0**-22
"""Scores are rounded to multiples of this number, so that they have few bits; the smallest gaps do not vanish."""
TRIES = 4
"""The number of perturbations that keep first tokens as queries; later perturbations move queries independently."""


class Family(StrEnum):
    """The constructions that make ATT-SVM feasible; a failing case shrinks to the first."""

    LABEL_SEPARATING = "label-separating"
    INDEPENDENT = "independent"
    ORTHOGONAL = "orthogonal"


EVERY = tuple(Family)


@st.composite
def query_cases(
    draw: DrawFn,
    *,
    families: Collection[Family] = EVERY,
    equal: bool = False,
    alpha: Literal["optimal", "any", "locally-optimal"] = "optimal",
    start: bool = False,
    single: bool = False,
    plain: bool = False,
    opposed: bool = False,
) -> Case:
    """Draw a case with tokens and queries whose ATT-SVM(α) is feasible, and with one optimal token per input.

    Args:
        draw: the function that Hypothesis passes.
        families: the constructions of the module's docstring to draw from.
        equal: whether all non-optimal scores of an input are equal (Assumption B of the first paper); the construction
            *orthogonal* then has only two tokens.
        alpha: the chosen tokens: ``"any"``, or ``"locally-optimal"`` ones, whose SVM-neighbours all score lower. Both
            apply only to the construction *independent*, which is drawn three times in five for "locally-optimal"; in
            the other constructions the chosen tokens are the optimal ones.
        start: whether a W(0) is drawn, as the ``start`` of the case.
        single: whether there is only one input.
        plain: whether queries have few bits and the dimension of tokens, and units are not changed.
        opposed: whether no q has Y_i qᵀz_i > 0 for all i; only for the construction *independent*, in which one case in
            four has this property by default.
    """
    local = alpha == "locally-optimal"
    again = [Family.INDEPENDENT] * (2 if local and Family.INDEPENDENT in families else 0)
    family = draw(st.sampled_from([family for family in Family if family in families] + again))
    users = family is not Family.ORTHOGONAL and not plain and draw(is_realistic())
    rough = family is not Family.ORTHOGONAL and not users and not plain and draw(one_in(4))
    opposed = opposed or (family is Family.INDEPENDENT and not (plain or single or rough) and draw(one_in(4)))
    many = family is Family.LABEL_SEPARATING and not (plain or users) and draw(one_in(5))
    idle = not plain and (users or (family is Family.LABEL_SEPARATING and draw(one_in(3))))
    other = not plain and draw(one_in(3))
    sizes = {"single": single, "equal": equal, "local": local, "roomy": idle, "many": many, "opposed": opposed}
    frame = draw(_frames(family, other=other, **sizes))
    e = draw(_query_dimension(family, frame, idle=idle, opposed=opposed)) if other else frame.d
    query_frame = Frame(frame.n, 1, e, (frame.most[0], 1, max(frame.most[2], e)))
    Y = np.asarray(draw(frame.choices("n", (1.0, -1.0))))
    unused = None
    if family is Family.ORTHOGONAL:
        X, queries, v = draw(_orthogonal(frame, query_frame, Y))
    else:
        # With gaps of scores of 2⁻²⁰, float64 could not resolve paths of data with decimals or idle SVM-neighbours.
        few = draw(st.booleans()) if users else idle or rough
        scores = np.round(draw(optimal_scores(frame, equal=equal, few=few)) / GRID) * GRID
        if idle and not (users and draw(one_in(3))):
            unused = draw(st.integers(1, frame.d - 1))
        any_kind = users and family is Family.LABEL_SEPARATING and draw(st.booleans())
        if any_kind:
            X = draw(realistic_tokens(frame, EVERY_KIND)).astype(np.float32).astype(np.float64)
        else:
            style = st.just(Style.DECIMALS) if rough else _SHORT
            X = draw(realistic_tokens(frame, SHORT, scaled=False) if users else frame.entries("nTd", draw(style)))
        X[:, :, 0] = Y[:, None] * scores
        if unused is not None:
            X[:, :, unused] = 0.0
        v = np.eye(frame.d)[0]
        self_attention = not any_kind and not opposed and e == frame.d > 1 and unused is None and draw(st.booleans())
        z = X[:, 0] if self_attention else _drawn_queries(draw, query_frame, users=users, rough=rough)
        if family is Family.LABEL_SEPARATING:
            X, queries = draw(_label_separating(query_frame, X, z, Y, self_attention=self_attention))
        else:
            X, queries = draw(
                _independent(frame, X, z, Y, self_attention=self_attention, unused=unused, opposed=opposed)
            )
    chosen: Int64[np.ndarray, "n"] | None = None
    if alpha != "optimal":
        chosen = np.argmax(Y[:, None] * (X @ v), axis=1).astype(np.int64)
        if family is Family.INDEPENDENT:
            chosen = draw(_tokens_by_rank(frame, Y[:, None] * (X @ v), local=local))
    if alpha == "locally-optimal" and chosen is not None:
        X, queries, chosen = _make_locally_optimal(X, queries, Y, v, chosen)
    alpha_now = np.argmax(Y[:, None] * (X @ v), axis=1).astype(np.int64) if chosen is None else chosen
    if unused is not None:
        solve = _solver(queries, Y, v, alpha_now)
        X = with_idle_neighbour(X, alpha_now, unused, draw(st.sampled_from((1.0, -1.0, 0.25))), solve, loose=False)
    elif family is Family.LABEL_SEPARATING and not plain and frame.tokens > 2 and draw(st.booleans()):
        X = with_dependent_neighbour(X, alpha_now, _solver(queries, Y, v, alpha_now))
    if users and family is Family.LABEL_SEPARATING:
        same = draw(repeated_inputs(frame.n))
        X, queries, Y, chosen = X[same], queries[same], Y[same], None if chosen is None else chosen[same]
    if not plain and draw(one_in(6)):
        queries = queries * 2.0 ** draw(st.integers(-20, 20))
    data = QueryDataset(X, queries, Y, v, loss_named(draw(st.sampled_from(DRAWN_LOSSES))))
    first = draw(entries((frame.d, e), Style.INTEGERS)).ravel() if start else None
    seed = draw(st.integers(0, 2**32 - 1))
    return Case(data.problem, queried=data, alpha=chosen, start=first, seed=seed)


_SHORT = STYLES.map(lambda style: Style.HALVES if style is Style.DECIMALS else style)
"""A strategy for the styles whose numbers have few bits."""


@st.composite
def _frames(
    draw: DrawFn,
    family: Family,
    *,
    single: bool,
    equal: bool,
    local: bool,
    roomy: bool,
    many: bool,
    opposed: bool,
    other: bool,
) -> Frame:
    """Draw the sizes n, T and d.

    If ``roomy``, T and d are large enough for a token that is a copy and for an unused coordinate; if ``other``, the
    dimension of queries may differ from d.
    """
    inputs, tokens, dims = MOST_MANY if many else MOST
    n = 1 if single else draw(st.integers(2 if opposed else 1, inputs))
    # With T ≥ 3 one token may score above the chosen token and another below.
    least = 3 if roomy or (family is Family.INDEPENDENT and local) else 2
    most = 2 if family is Family.ORTHOGONAL and equal else min(tokens, 4) if opposed else tokens
    T = draw(st.sampled_from(MANY) if many else st.integers(least, most))
    rows = n * (T - 1)
    lowest = {
        # With d = 1 tokens differ only in their scores, so that small gaps make tokens nearly equal.
        Family.LABEL_SEPARATING: 1 + other,
        # Opposed queries, with Σ c_i Y_i z_i = 0, span only n − 1 dimensions.
        Family.INDEPENDENT: max(T - 1, int(np.ceil(rows / (n - 1) if opposed else np.sqrt(rows)))),
        Family.ORTHOGONAL: max(T, n),
    }[family] + roomy
    d = draw(st.integers(lowest, max(lowest, dims)))
    return Frame(n, T, d, (inputs, tokens, 7 if opposed else dims if many else max(tokens, dims)))


@st.composite
def _query_dimension(draw: DrawFn, family: Family, frame: Frame, *, idle: bool, opposed: bool) -> int:
    """Draw the dimension e of queries, e ≠ d."""
    lowest = 1
    if family is Family.INDEPENDENT:
        lowest = frame.n - 1 if opposed else int(np.ceil(frame.n * (frame.tokens - 1) / (frame.d - idle)))
    elif family is Family.ORTHOGONAL:
        lowest = frame.n
    return draw(st.integers(lowest, max(lowest, MOST[2])).map(lambda e: e + 1 if e == frame.d else e))


def _solver(
    queries: Queries, Y: Float64[np.ndarray, "n"], v: Float64[np.ndarray, "d"], alpha: Int64[np.ndarray, "n"]
) -> Callable[[Tokens], MaxMargin | None]:
    """Return a function from tokens to the solution of ATT-SVM(α) with the given queries, or to None without one."""

    def solve(tokens: Tokens) -> MaxMargin | None:
        solution = max_margin(QueryDataset(tokens, queries, Y, v).keys, alpha)
        return solution if isinstance(solution, MaxMargin) else None

    return solve


@st.composite
def _label_separating(
    draw: DrawFn, query_frame: Frame, X: Tokens, z: Queries, Y: Float64[np.ndarray, "n"], *, self_attention: bool
) -> tuple[Tokens, Queries]:
    """Draw a vector q, and change the queries z in place so that q·z_i = Y_i c_i with c_i ≥ 1.

    In self-attention the queries are views of the first tokens, which therefore change, too.
    """
    q = draw(query_frame.integers("d", -2, 2)).astype(np.float64)
    # If queries are tokens, their first entries are scores, which must not change.
    pivot = draw(st.integers(1, query_frame.d - 1)) if self_attention else draw(st.integers(0, query_frame.d - 1))
    q[pivot] = draw(st.sampled_from((1.0, -1.0)))
    values = Y * draw(query_frame.choices("n", (1.0, 2.0, 1.5, 4.0)))
    z[:, pivot] += q[pivot] * (values - z @ q)
    return X, z.copy()


def _drawn_queries(draw: DrawFn, query_frame: Frame, *, users: bool, rough: bool) -> Queries:
    if not users:
        return draw(query_frame.entries("nd", Style.DECIMALS if rough else draw(_SHORT)))
    return draw(realistic_tokens(query_frame, SHORT, scaled=False))[:, 0]


@st.composite
def _independent(
    draw: DrawFn,
    frame: Frame,
    X: Tokens,
    z: Queries,
    Y: Float64[np.ndarray, "n"],
    *,
    self_attention: bool,
    unused: int | None,
    opposed: bool,
) -> tuple[Tokens, Queries]:
    """Change tokens and queries until rows are independent; in self-attention queries are the first tokens if possible.

    The coordinate ``unused`` of tokens remains 0.
    """
    opt = np.argmax(Y[:, None] * X[:, :, 0], axis=1).astype(np.int64)
    shares = draw(frame.choices("n", (1.0, 2.0)))

    def with_last(query: Queries) -> Queries:
        """Return the queries; if ``opposed``, replace the last query so that Σ c_i Y_i z_i = 0 for some c_i > 0."""
        if not opposed:
            return query
        return np.concatenate([query[:-1], -Y[-1] * ((shares * Y)[:-1] @ query[:-1])[None]])

    nudged, query, tries = X, with_last(z), 0
    while not independent(QueryDataset(nudged, query, Y, np.eye(frame.d)[0]).keys, opt):
        tries += 1
        rng = np.random.default_rng(tries)
        steps = rng.integers(-(4**tries), 4**tries + 1, size=X.shape) / 4.0**tries / 4
        steps[:, :, 0] = 0.0
        if unused is not None:
            steps[:, :, unused] = 0.0
        nudged = X + steps
        # First tokens cannot always be the queries, for example if their scores, which must not change, are 0.
        self_attention = self_attention and tries < TRIES
        moved = z + rng.integers(-(4**tries), 4**tries + 1, size=z.shape) / 4.0**tries / 4
        query = nudged[:, 0] if self_attention else with_last(moved)
    return nudged, query.copy()


@st.composite
def _orthogonal(
    draw: DrawFn, frame: Frame, query_frame: Frame, Y: Float64[np.ndarray, "n"]
) -> tuple[Tokens, Queries, Float64[np.ndarray, "d"]]:
    """Draw tokens ±c_i e_j and queries ±b_i e_j along axes e_j, and a head with entries of different sizes.

    The lengths c_i and b_i depend on the input i. Some data are rotated.
    """
    n, T, d = frame.shape
    axes = np.argsort(draw(frame.integers("nd", 0, 9)), axis=1, kind="stable")[:, :T]
    signs = draw(frame.choices("nT", (1.0, -1.0)))
    lengths = draw(frame.choices("n", (1.0, 2.0, 0.5)))
    X = (lengths[:, None] * signs)[:, :, None] * np.eye(d)[axes]
    order = np.argsort(draw(query_frame.integers("d", 0, 9)), kind="stable")[:n]
    queries = draw(frame.choices("n", (1.0, -1.0, 2.0, 0.5)))[:, None] * np.eye(query_frame.d)[order]
    ranks = 1.0 + np.argsort(draw(frame.integers("d", 0, 9)), kind="stable")
    v = draw(frame.choices("d", (1.0, -1.0))) * ranks
    if d % 2 == 0 and draw(st.booleans()):
        X, v = X @ _turn(d), v @ _turn(d)
        queries = queries @ _turn(query_frame.d) if query_frame.d % 2 == 0 else queries
    return X, queries, v


def _turn(d: int) -> Float64[np.ndarray, "d d"]:
    """Return √2 times an orthogonal matrix that mixes pairs of axes."""
    return np.kron(np.eye(d // 2), np.array([[1.0, 1.0], [1.0, -1.0]]))


def independent(keys: Keys, alpha: Int64[np.ndarray, "n"]) -> bool:
    """Return whether the rows k_iα_i − k_it, t ≠ α_i, are linearly independent, decided exactly."""
    rows = list(difference_rows(keys, alpha).values())
    return len(rows) <= keys.shape[2] and fmpq_mat(rows).rank() == len(rows)


@st.composite
def _tokens_by_rank(
    draw: DrawFn, frame: Frame, scores: Float64[np.ndarray, "n T"], *, local: bool
) -> Int64[np.ndarray, "n"]:
    """Draw the chosen tokens by the ranks of their scores; if ``local``, usually a middle rank for input 0."""
    ranks = draw(frame.integers("n", 0, frame.tokens - 1))
    if local and not draw(one_in(8)):
        ranks[0] = np.clip(ranks[0], 1, frame.tokens - 2)
    descending = np.argsort(-scores, axis=1, kind="stable")
    return np.asarray(np.take_along_axis(descending, ranks[:, None], axis=1)[:, 0], dtype=np.int64)


def _make_locally_optimal(
    X: Tokens, queries: Queries, Y: Float64[np.ndarray, "n"], v: Float64[np.ndarray, "d"], alpha: Int64[np.ndarray, "n"]
) -> tuple[Tokens, Queries, Int64[np.ndarray, "n"]]:
    """Make α locally optimal by moving other tokens that score at least as high as α away from α.

    Let W be the solution of ATT-SVM with the constraints of only the tokens that score lower. The tokens that score at
    least as high as α_i move by −c u, where u has first entry 0 and is otherwise roughly along W z_i, with the query
    z_i: their scores do not change, and their margins grow by c uᵀ W z_i. Once these margins exceed 1, W is the
    solution for all tokens. Queries do not change, even if they were equal to a token that moves. If α does not become
    locally optimal, the optimal tokens are returned as α, and the tokens are not moved.
    """
    scores = Y[:, None] * (X @ v)
    best, every = np.argmax(scores, axis=1).astype(np.int64), np.arange(len(Y))
    chosen_scores = scores[every, alpha][:, None]
    harmful, lower = (
        (scores >= chosen_scores) & (np.arange(X.shape[1]) != alpha[:, None]),
        (scores < chosen_scores).any(axis=1),
    )
    if not harmful.any() or not lower.any():
        return X, queries, best
    # Replace each token that scores at least as high as α_i by the input's token of lowest score, or by α_i if no token
    # of the input scores lower.
    stand_in = np.where(lower, np.argmin(scores, axis=1), alpha)
    alone = np.where(harmful[:, :, None], X[every, stand_in][:, None], X)
    decided = max_margin(QueryDataset(alone, queries, Y, v).keys, alpha, required=lower.astype(np.int64))
    if isinstance(decided, MaxMargin):
        pull = queries @ decided.p.reshape(X.shape[2], -1).T
        margins = np.vecdot(X[every, alpha][:, None] - X, pull[:, None])
        # The first entry of a token is its score, which must not change.
        pull[:, 0] = 0.0
        largest = np.abs(pull).max(axis=1, keepdims=True)
        away = np.round(2 * pull / np.where(largest > 0, largest, 1.0)) / 2
        gain = np.vecdot(away, pull)[:, None]
        least_step = float(np.max(np.where(harmful, (2 - margins) / np.where(gain > 0, gain, 1.0), 0.5)))
        least = 2.0 ** np.ceil(np.log2(least_step)) if (gain > 0)[harmful.any(axis=1)].all() else np.inf
        for factor in [least * multiple for multiple in FACTORS if least * multiple <= FARTHEST]:
            moved = np.where(harmful[:, :, None], X - factor * away[:, None], X)
            data = QueryDataset(moved, queries, Y, v)
            solution = max_margin(data.keys, alpha) if independent(data.keys, alpha) else None
            if isinstance(solution, MaxMargin) and not offending_neighbours(solution, data.problem.scores):
                return moved, queries, alpha
    return X, queries, best
