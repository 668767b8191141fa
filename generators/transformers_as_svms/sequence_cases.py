"""Strategy for data with several queries per input, causal or with any mask; separable by construction.

The head v is the first axis, so that the first entry of a token x is its value vᵀx, as in
:mod:`generators.query_cases`. The values of an input's tokens are distinct, so that every query has one optimal token
among those it sees, whatever its label. In one case in three two tokens have equal values instead, and queries that see
both also see a better token.

Either the queries z_ik separate the labels, Y_ik qᵀz_ik ≥ 1 for some q, and a multiple of W = v qᵀ separates the
optimal tokens, however many tokens there are; or the rows (x_iα − x_it) z_ikᵀ of all queries are linearly independent.

One case in five is realistic: tokens and queries are numbers as users have them, of few bits, and an input may occur
twice. One in four of the other cases has decimals, whose products x z are rounded in float64.

References: *Transformers as Support Vector Machines*, sequence outputs (appendix).
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from flint import fmpq_mat
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Bool, Float64

from generators.case import Case
from generators.numbers import Frame, Style, entries, integers, one_in
from generators.realistic_keys import realistic_tokens
from generators.realistic_numbers import SHORT, is_realistic, repeated_inputs
from generators.scores import GAPS, LEVELS, STEP
from generators.sequence_assumptions import optimal_tokens_of, sequence_rows
from reference_attention.losses import DRAWN_LOSSES, loss_named
from reference_attention.sequence_dataset import SequenceDataset

MOST = (2, 4, 4)
"""The largest number of inputs n, of tokens T and queries L, and of dimensions d of tokens and e of queries."""
GRID = 2.0**-22
"""Values are rounded to multiples of this number."""

Tokens = Float64[np.ndarray, "n T d"]
Queries = Float64[np.ndarray, "n L e"]


class Visibility(StrEnum):
    """The kinds of masks of the tokens that queries see."""

    CAUSAL = "causal"
    MASKED = "masked"
    EVERY = "every"


@st.composite
def sequence_cases(draw: DrawFn) -> Case:
    """Draw a case with several queries per input whose ATT-SVM over all queries is feasible."""
    inputs, tokens, dims = MOST
    sees = draw(
        st.sampled_from((Visibility.CAUSAL, Visibility.MASKED, Visibility.EVERY, Visibility.MASKED, Visibility.CAUSAL))
    )
    self_attention = draw(st.booleans())
    # Unless queries see every token, take T ≥ 3: of two causal queries only the second sees several tokens.
    n, T = draw(st.integers(1, inputs)), draw(st.integers(2 if sees is Visibility.EVERY else 3, tokens))
    L = T if self_attention or sees is Visibility.CAUSAL else draw(st.integers(1, tokens))
    d = draw(st.integers(2 if self_attention else 1, dims))
    e = d if self_attention else draw(st.integers(1, dims))
    style = draw(st.sampled_from((Style.INTEGERS, Style.INTEGERS, Style.HALVES, Style.DECIMALS)))
    users = draw(is_realistic())
    few = users and draw(st.booleans())
    if users:
        X = draw(realistic_tokens(Frame(n, T, d, MOST), SHORT, scaled=False))
    else:
        X = draw(entries((n, T, d), style, most=(inputs, tokens, dims)))
    order = np.argsort(draw(integers((n, T), 0, 9, most=(inputs, tokens))), axis=1, kind="stable")
    steps = STEP if few else GAPS
    gaps = np.array(steps)[draw(integers((n, T), 0, len(steps) - 1, most=(inputs, tokens)))]
    values = np.take_along_axis(np.cumsum(gaps, axis=1), order, axis=1)
    if not few:
        values += draw(integers((n,), -LEVELS, 0, most=(inputs,)))[:, None]
    mask = _mask(draw, sees, (n, L, T))
    Y = 1.0 - 2.0 * draw(integers((n, L), 0, 1, most=(inputs, tokens)))
    if T > 2 and draw(one_in(3)):
        values, Y, mask = _with_a_tie(values, Y, mask)
    X[:, :, 0] = np.round(values / GRID) * GRID
    if self_attention:
        z = X
    elif users:
        z = draw(realistic_tokens(Frame(n, L, e, MOST), SHORT, scaled=False))
    else:
        z = draw(entries((n, L, e), style, most=(inputs, tokens, dims)))
    loss = loss_named(draw(st.sampled_from(DRAWN_LOSSES)))
    data = SequenceDataset(X, z, Y, np.eye(d)[0], loss, mask)
    if not (draw(st.booleans()) and independent_sequence_rows(data)):
        z = _label_separating(draw, z, Y, first=int(self_attention))
        data = SequenceDataset(z if self_attention else X, z, Y, np.eye(d)[0], loss, mask)
    if users:
        same = draw(repeated_inputs(n))
        data = SequenceDataset(data.X[same], data.queries[same], Y[same], data.v, loss, mask[same])
    if draw(one_in(6)):
        data = data.with_queries_scaled(2.0 ** draw(st.integers(-20, 20)))
    return Case(data.problem, sequence=data, seed=draw(st.integers(0, 2**32 - 1)))


def _mask(draw: DrawFn, sees: Visibility, shape: tuple[int, int, int]) -> Bool[np.ndarray, "n L T"]:
    """Draw a mask in which every query sees at least one token, and some query at least two."""
    n, L, T = shape
    inputs, tokens, _ = MOST
    visible = np.ones(shape, dtype=np.bool_)
    if sees is Visibility.CAUSAL:
        return visible & np.tri(T, dtype=np.bool_)
    if sees is Visibility.MASKED:
        visible = draw(integers(shape, 0, 2, most=(inputs, tokens, tokens))) < 2
        every = draw(integers((n, L), 0, tokens - 1, most=(inputs, tokens))) % T
        np.put_along_axis(visible, every[:, :, None], True, axis=2)
        visible[0, 0, :2] = True
    return visible


def _with_a_tie(
    values: Float64[np.ndarray, "n T"], Y: Float64[np.ndarray, "n L"], mask: Bool[np.ndarray, "n L T"]
) -> tuple[Float64[np.ndarray, "n T"], Float64[np.ndarray, "n L"], Bool[np.ndarray, "n L T"]]:
    """Give the last token of each input the value of another token, so that both tie, but are best for no query.

    A query that sees only the two tied tokens gets to see a third; a query for which both would be best gets the other
    label.
    """
    values, Y, mask = values.copy(), Y.copy(), mask.copy()
    last = values.shape[1] - 1
    for i in range(len(values)):
        other = int(np.argmin(np.abs(values[i, :last] - values[i, last])))
        untied = np.setdiff1d(np.arange(last), other)
        values[i, last] = values[i, other]
        for k in np.flatnonzero(mask[i, :, other] & mask[i, :, last]).tolist():
            if not mask[i, k, untied].any():
                mask[i, k, untied[0]] = True
            visible = values[i, untied[mask[i, k, untied]]]
            if not (Y[i, k] * (visible - values[i, last]) > 0).any():
                Y[i, k] = -Y[i, k]
    return values, Y, mask


def _label_separating(draw: DrawFn, z: Queries, Y: Float64[np.ndarray, "n L"], first: int) -> Queries:
    """Shift queries along an axis not below ``first``, so that some q has q·z_ik = Y_ik c_ik with c_ik ≥ 1."""
    inputs, tokens, dims = MOST
    e = z.shape[2]
    q = draw(integers((e,), -2, 2, most=(dims,))).astype(np.float64)
    pivot = draw(st.integers(first, e - 1))
    q[pivot] = draw(st.sampled_from((1.0, -1.0)))
    sizes = np.array((1.0, 2.0, 1.5, 4.0))[draw(integers(Y.shape, 0, 3, most=(inputs, tokens)))]
    moved = z.copy()
    moved[:, :, pivot] += q[pivot] * (Y * sizes - z @ q)
    return moved


def independent_sequence_rows(data: SequenceDataset) -> bool:
    """Return whether the rows (x_iα − x_it) z_ikᵀ of all queries are linearly independent.

    Independence is decided exactly, and does not depend on the chosen tokens α.
    """
    rows = list(sequence_rows(data, data.parts, optimal_tokens_of(data.parts)).values())
    return len(rows) <= data.problem.d and fmpq_mat(rows).rank() == len(rows)
