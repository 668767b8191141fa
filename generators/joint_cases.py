"""Strategies for joint (v, p) problems that satisfy Assumption C, over all inputs or over the supports of v_mm.

A support is an input of label margin exactly Γ, which supports v_mm; a non-support has a larger label margin. The
normalised head v̄_mm is the axis e_0, and a prompt along the axis e_1 selects α. Chosen tokens of supports are x_iα =
Y_i Γ e_0 + h_i e_1 + l_i with h_i ≥ 0 and l_i along the other axes. The vectors w_i Y_i (h_i, l_i) sum to zero for
positive weights w, so that λ = w/Σw is a dual solution of the SVM for v_mm. Chosen tokens of non-supports have Γ + s_i,
s_i > 0, in place of Γ.

Other tokens of supports are c x_iα + e with ‖e‖ < Γ(1 − c) and c ∈ [0, 1), so that :mod:`generators.optimal_tokens`
certifies Assumption C. The e_1-component of these tokens is at most c h_i, and negative if h_i = 0, so that e_1
separates α and p_mm exists. The data may then be rotated (if the chosen tokens are independent, so that supports
survive rounding), scaled by a power of two, permuted, and mapped to keys by a W that keeps e_1: injective, or of lower
rank. Nothing is filtered.

One case in five has tokens as users have them, as far as Assumption C allows;
see :mod:`generators.realistic_joint`.

References: *Max-Margin Token Selection in Attention Mechanism*, Assumption C, Theorems 5 and 6, Figure 3.
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from hypothesis.strategies import DrawFn, SearchStrategy
from jaxtyping import Float64

from generators.case import Case
from generators.realistic_joint import realistic_joint_tokens, repeated_joint_inputs
from generators.realistic_numbers import is_realistic
from reference_attention.problem import Dataset

SHRINKS = (0.0, 0.5, 0.25, 0.75, 0.9375)
"""The values of c in the tokens x_it = c x_iα + e of supports."""
REACHES = (0.0, 0.5, 0.875)
"""The upper bounds of ‖e‖ that are drawn for the tokens c x_iα + e, in units of Γ (1 − c)."""

DUALS = (1.0, 2.0, 4.0)
"""The values of the weights w_i: powers of two, so that divisions by the weights are exact."""
GAPS = (2.0**-2, 2.0**-3, 2.0**-4, 2.0**-5, 2.0**-6)
"""The amounts by which the other tokens of a non-support are below the chosen token along e_1, in units of Γ."""


class Chosen(StrEnum):
    """The kinds of chosen tokens; a failing case shrinks to the first."""

    COMMON = "common"
    """All signed chosen tokens Y_i x_iα equal Γ v̄_mm, as in the paper's example."""
    BALANCED = "balanced"
    """The signed chosen tokens Y_i x_iα differ; a weighted sum of them is a multiple of v̄_mm, as in Figure 3(a)."""


@st.composite
def joint_cases(
    draw: DrawFn,
    *,
    non_supports: bool = False,
    loose: bool = False,
    gaps: tuple[float, ...] = GAPS,
    max_n: int = 4,
    max_T: int = 4,
    max_d: int = 4,
) -> Case:
    """Draw a case with dataset and α for which Assumption C holds over the supports, and v_mm and p_mm exist.

    Args:
        draw: the function that Hypothesis passes.
        non_supports: whether one or two inputs with a label margin above Γ are added (Theorem 6); otherwise all inputs
            are supports.
        loose: whether the other tokens of non-supports may have a label margin of Γ or more, even above that of the
            chosen token.
        gaps: the amounts by which the other tokens of a non-support may be below the chosen token along e_1, in units
            of Γ.
        max_n: the largest number of inputs, before non-supports are added.
        max_T: the largest number of tokens.
        max_d: the largest dimension of tokens.
    """
    n = min(draw(st.sampled_from((1, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4))), max_n)
    T = draw(st.integers(2, max_T))
    users = draw(is_realistic())
    d = min(4 if users else draw(st.sampled_from((2, 3, 3, 3, 3, 4, 4, 4, 4))), max_d)
    gamma = draw(st.sampled_from((1.0, 0.5, 2.0)))
    few = users and draw(st.booleans())
    chosen, labels = draw(_chosen_tokens(n, d, gamma))
    others = [draw(_cone_tokens(chosen[i], T - 1, gamma, few=few)) for i in range(n)]
    if non_supports:
        for _ in range(draw(st.sampled_from((1, 2, 2, 2, 2, 2)))):
            token, label, other_tokens = draw(_non_support(T, d, gamma, loose, gaps))
            chosen, labels = np.vstack([chosen, token]), np.append(labels, label)
            others.append(other_tokens)
    X = np.concatenate([chosen[:, None], np.array(others)], axis=1)
    order = draw(st.permutations(range(len(X))))
    X, labels = X[list(order)], labels[list(order)]
    alpha = np.array(draw(st.lists(st.integers(0, T - 1), min_size=len(X), max_size=len(X))), dtype=np.int64)
    for i, a in enumerate(alpha):
        X[i, [0, a]] = X[i, [a, 0]]
    head = np.eye(d)[0]
    if users:
        X, W = draw(realistic_joint_tokens(X, alpha, gamma))
        same = draw(repeated_joint_inputs(len(X), max_n + 2 * non_supports))
        X, labels, alpha = X[same], labels[same], alpha[same]
        data = Dataset(X * 2.0 ** draw(st.sampled_from((0, 0, 0, -10, 10))), labels, head, W)
        return Case(data.problem, dataset=data, alpha=alpha, seed=draw(st.integers(0, 2**16)), name="joint")
    W = draw(_key_queries(d))
    if draw(st.booleans()) and np.linalg.matrix_rank(chosen) == len(chosen):
        turn = draw(_rotation(d))
        X, head, W = X @ turn.T, turn @ head, None if W is None else W @ turn.T
    X = X * 2.0 ** draw(st.sampled_from((0, 0, 0, -3, 4)))
    data = Dataset(X, labels, head, W)
    return Case(data.problem, dataset=data, alpha=alpha, seed=draw(st.integers(0, 2**16)), name="joint")


@st.composite
def _chosen_tokens(
    draw: DrawFn, n: int, d: int, gamma: float
) -> tuple[Float64[np.ndarray, "n d"], Float64[np.ndarray, "n"]]:
    """Draw the chosen tokens x_iα of n supports, and their labels."""
    labels = np.array(draw(st.lists(st.sampled_from((1.0, -1.0)), min_size=n, max_size=n)))
    X = np.zeros((n, d))
    if n > 1 and draw(st.sampled_from((Chosen.COMMON, *[Chosen.BALANCED] * 14))) is Chosen.BALANCED:
        lateral = draw(hnp.arrays(np.int64, (n, d - 1), elements=st.integers(-3, 3))) * (gamma / 2)
        lateral[:, 0] = np.abs(lateral[:, 0])
        weights = np.array(draw(st.lists(st.sampled_from(DUALS), min_size=n, max_size=n)))
        signed = lateral[:-1] * (labels * weights)[:-1, None]
        missing = -signed.sum(axis=0) / weights[-1]
        # The last chosen token makes the weighted sum zero; its label is the one for which its e_1-component is not
        # negative.
        labels[-1] = -1.0 if missing[0] < 0 else 1.0
        lateral[-1] = missing * labels[-1]
        X[:, 1:] = lateral
    X[:, 0] = labels * gamma
    return X, labels


@st.composite
def _cone_tokens(
    draw: DrawFn, chosen: Float64[np.ndarray, "d"], count: int, gamma: float, *, few: bool
) -> Float64[np.ndarray, "count d"]:
    """Draw the other tokens of a support, which e_1 separates from x_iα: c x_iα + e with ‖e‖ ≤ (7/8) Γ (1 − c).

    With ``few`` the tokens are sparse and have few distinct scores.
    """
    d = chosen.size
    other_tokens = np.zeros((count, d))
    for t in range(count):
        c = draw(st.sampled_from(SHRINKS[:2] if few else SHRINKS))
        direction = np.array(draw(st.lists(st.integers(-3, 3), min_size=d, max_size=d)), dtype=np.float64)
        direction[1] = -abs(direction[1])
        if few:
            direction[np.arange(d) != 1] = 0.0
        reach = draw(st.sampled_from(REACHES))
        if chosen[1] == 0:
            direction[1] = min(direction[1], -1.0)
            reach = max(reach, 0.5)
        length = math.ceil(float(np.linalg.norm(direction)))
        other_tokens[t] = c * chosen + (gamma * (1 - c) * reach / max(length, 1)) * direction
    return other_tokens


@st.composite
def _non_support(
    draw: DrawFn, T: int, d: int, gamma: float, loose: bool, gaps: tuple[float, ...]
) -> tuple[Float64[np.ndarray, "d"], float, Float64[np.ndarray, "t d"]]:
    """Draw the chosen token of a non-support, with label margin Γ + s, the label, and the input's other tokens.

    The other tokens have a label margin below Γ (with ``loose``, any) and a smaller e_1-component than the chosen
    token. The difference is usually so small that p_mm depends on the other tokens, while p_relax, which ignores
    non-supports, does not.
    """
    label = draw(st.sampled_from((1.0, -1.0)))
    token = np.array(draw(st.lists(st.integers(-4, 4), min_size=d, max_size=d))) * (gamma / 2)
    token[0] = label * (gamma + gamma * draw(st.sampled_from((0.5, 0.25, 1.0, 2.0))))
    other_tokens = np.array(draw(hnp.arrays(np.int64, (T - 1, d), elements=st.integers(-4, 4)))) * (gamma / 2)
    outputs = (0.0, -1.0, 0.5, 0.75, 1.0, 1.25, 4.0) if loose else (0.0, -1.0, 0.5, 0.75)
    for t in range(T - 1):
        other_tokens[t, 0] = label * gamma * draw(st.sampled_from(outputs))
        other_tokens[t, 1] = token[1] - gamma * draw(st.sampled_from(gaps))
    return token, label, other_tokens


@st.composite
def _rotation(draw: DrawFn, d: int) -> Float64[np.ndarray, "d d"]:
    """Draw an orthogonal matrix, up to rounding: the factor Q of a unit lower triangular matrix of small integers."""
    entries = np.tril(draw(hnp.arrays(np.int64, (d, d), elements=st.integers(-2, 2))), -1)
    return np.asarray(np.linalg.qr(entries + np.eye(d))[0])


def _key_queries(d: int) -> SearchStrategy[Float64[np.ndarray, "k d"] | None]:
    """Return a strategy for W: the identity, an injective matrix, or a matrix of lower rank.

    An injective W has small integer entries, is square or tall, and is scaled by a power of two. A W of lower rank
    drops some coordinates, never that of e_1, and applies an injective matrix to the other coordinates.
    """

    @st.composite
    def injective(draw: DrawFn, width: int = d) -> Float64[np.ndarray, "k w"]:
        extra = draw(st.integers(0, 1))
        square = np.triu(draw(hnp.arrays(np.int64, (width, width), elements=st.integers(-2, 2))), 1) + np.eye(width)
        tall = draw(hnp.arrays(np.int64, (extra, width), elements=st.integers(-2, 2)))
        return np.vstack([square, tall]).astype(np.float64) * 2.0 ** draw(st.integers(-2, 2))

    @st.composite
    def of_lower_rank(draw: DrawFn) -> Float64[np.ndarray, "k d"]:
        injective_part = np.ones(d, dtype=bool)
        others = st.sampled_from([j for j in range(d) if j != 1])
        injective_part[draw(st.lists(others, min_size=1, max_size=max(1, d - 2)))] = False
        return np.asarray(draw(injective(int(injective_part.sum()))) @ np.eye(d)[injective_part])

    # With d = 2 a W of lower rank keeps only e_1, so that all keys lie on a line; draw such a W less often.
    often = 1 if d == 2 else 10
    return st.sampled_from((st.none(), injective(), *[of_lower_rank()] * often)).flatmap(lambda chosen: chosen)


def schedule_of(case: Case) -> tuple[Float64[np.ndarray, "k"], Float64[np.ndarray, "k"]] | None:
    """Return log r for the head's radii r, and the prompt's radii R; None if the radii of one are not given.

    The arrays of the case are ``log_head_radii`` or ``head_radii``, and ``prompt_radii``.
    """
    arrays = case.arrays
    if "prompt_radii" not in arrays or not {"head_radii", "log_head_radii"} & set(arrays):
        return None
    R = np.asarray(arrays["prompt_radii"], dtype=np.float64)
    if "log_head_radii" in arrays:
        return np.asarray(arrays["log_head_radii"], dtype=np.float64), R
    return np.log(np.asarray(arrays["head_radii"], dtype=np.float64)), R


def radii_of(case: Case) -> list[tuple[float, float]]:
    """Return the pairs (log r, R) of the radii of :func:`schedule_of`, or an empty list if they are not given."""
    log_r, R = schedule_of(case) or (np.empty(0), np.empty(0))
    return list(zip(log_r.tolist(), R.tolist(), strict=True))


def relaxed_cases() -> SearchStrategy[Case]:
    """Return a strategy for cases of Theorem 6: one or two inputs have a label margin above Γ."""
    return joint_cases(non_supports=True)
