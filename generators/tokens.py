"""Strategies for datasets of tokens, labels, head and key-query weights, in integers so that products are exact.

References: *Max-Margin Token Selection in Attention Mechanism*, Lemma 2/11, Assumption C, Theorems 5 and 6.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Bool, Float64

from generators.idle_neighbours import can_have_idle_neighbour, solver, with_idle_neighbour
from generators.numbers import Frame, Style, entries, integers, one_in
from generators.realistic_keys import realistic_tokens
from generators.realistic_numbers import EVERY, SHORT, repeated_inputs
from reference_attention.losses import loss_named
from reference_attention.problem import Dataset, Problem


@st.composite
def labels(draw: DrawFn, frame: Frame, *, positive: bool) -> Float64[np.ndarray, "n"]:
    """Draw labels ±1; if ``positive``, all are +1."""
    if positive:
        return np.ones(frame.n)
    return np.asarray(draw(frame.choices("n", (1.0, -1.0))))


@st.composite
def realisations(draw: DrawFn, frame: Frame, problem: Problem, *, positive: bool) -> Dataset:
    """Draw a dataset that gives exactly the problem: tokens get one more coordinate Y_i γ_it, and v is its axis."""
    Y = draw(labels(frame, positive=positive))
    plain = Dataset.realising(problem)
    X = plain.X.copy()
    X[:, :, -1] *= Y[:, None]
    return Dataset(X, Y, plain.v, plain.W, problem.loss)


@st.composite
def key_query_weights(draw: DrawFn, frame: Frame) -> tuple[Float64[np.ndarray, "d D"] | None, Float64[np.ndarray, "D"]]:
    """Draw W, often rank-deficient (``None`` means the identity), and a nonzero head v = Wᵀw, computed exactly."""
    d, most = frame.d, frame.most[2]
    w = draw(frame.entries("d", Style.INTEGERS))
    if not w.any():
        w[0] = 1.0
    if not draw(st.booleans()):
        return None, w
    width = draw(st.integers(max(1, d - 1), d + 1))
    W = draw(integers((d, width), -2, 2, most=(most, most + 1))).astype(np.float64)
    if d > 1 and draw(st.booleans()):
        W[-1] = draw(st.sampled_from((0.0, 1.0, -1.0))) * W[0]
    if not (w @ W).any():
        w, W[0] = np.eye(d)[0], np.eye(width)[0]
    return W, w @ W


@st.composite
def datasets_with_head_in_key_range(
    draw: DrawFn, frame: Frame, loss: str, *, positive: bool, equal: bool = False, users: bool = False
) -> Dataset:
    """Draw data with keys of dimension d, v ∈ range(Wᵀ), and one strictly best token per input (Lemma 2).

    The best token is shifted along the axis of the largest entry of v. With ``equal`` the other tokens differ by
    vectors orthogonal to v, so that their scores are equal (Assumption B). With ``users`` tokens are numbers as users
    have them; if ``equal``, of the kinds that have few bits, and otherwise of all kinds, with a shift of the best token
    that exceeds the rounding errors.
    """
    W, v = draw(key_query_weights(frame))
    Y = draw(labels(frame, positive=positive))
    (n, tokens, _), width = frame.shape, len(v)
    unused = None
    if users and W is None and can_have_idle_neighbour(frame.shape) and draw(st.integers(0, 3)):
        unused = draw(st.integers(0, width - 1))
        v[unused], v[unused - 1] = 0.0, v[unused - 1] or 1.0
    most = (*frame.most[:2], frame.most[2] + 1)
    if users:
        X = draw(realistic_tokens(Frame(n, tokens, width, most), SHORT if equal else EVERY, scaled=not equal))
    else:
        X = draw(entries((n, tokens, width), Style.INTEGERS, most=most))
    best = draw(frame.integers("n", 0, tokens - 1))
    axis = int(np.argmax(np.abs(v)))
    if equal:
        # Make each token x orthogonal to v by changing the entry ``axis``: x − (x·v / v[axis]) e_axis, times v[axis] to
        # keep integers.
        orthogonal = X * v[axis]
        orthogonal[:, :, axis] -= X @ v
        X = X[:, :1] + orthogonal
    scores = Y[:, None] * (X @ v)
    scores[np.arange(n), best] = -np.inf
    gain = draw(frame.integers("n", 1, 3)) + users
    for i, t in enumerate(best):
        missing = scores[i].max() - Y[i] * (X[i, t] @ v)
        X[i, t, axis] += Y[i] * np.sign(v[axis]) * max(0, np.floor(missing / abs(v[axis])) + gain[i])
    if unused is not None:
        # Scores do not depend on the coordinate ``unused``, in which v is 0.
        aside = draw(st.sampled_from((1.0, -1.0, 0.25)))
        X = with_idle_neighbour(X, best, unused, aside, solver(best))
    same = draw(repeated_inputs(n)) if users else np.arange(n)
    return Dataset(X[same], Y[same], v, W, loss_named(loss))


@st.composite
def datasets_with_optimal_tokens(
    draw: DrawFn, frame: Frame, loss: str, *, positive: bool, relaxed: bool = False
) -> Dataset:
    """Draw data with Assumption C and separable keys: x_iα = Y_i (u* ± e), other tokens are shorter; the head is u*.

    The vector u* is orthogonal to axis 0, and ‖u*‖ ≥ 4. Other tokens have norm at most ¾‖u*‖ and are negative on axis
    0, which therefore separates α. With e = 0 this is the paper's example. Inputs with ±e come in pairs, with e ⊥ u*
    and ‖e‖ ≤ ‖u*‖/2: then v_mm = u*/‖u*‖² with equal duals. If an input of a pair selects another token, the pair's
    share of the bound F of :func:`generators.dataset_assumptions.optimal_tokens` falls from 2/n ‖u*‖ to at most (√1.25
    + 3/4)/n ‖u*‖, so that the proof given there applies. With ``relaxed`` some inputs have x_iα = 2 Y_i u* and do not
    support v_mm (Theorem 6). For d = 1, where only one sign of p separates, all labels are equal.
    """
    n, tokens, d = frame.shape
    Y = draw(labels(frame, positive=positive))
    u = 4.0 * draw(frame.entries("d", Style.INTEGERS))
    if d == 1:
        Y[:] = Y[0]
        u = np.abs(u)
    else:
        u[0] = 0.0
    u[-1] = u[-1] if u.any() else 4.0
    paired = np.zeros(n, dtype=bool)
    turned = np.zeros(d)
    if d > 2 and n > 1 and draw(st.booleans()):
        paired[: n - n % 2] = True
        turned[-1], turned[-2] = u[-2] / 2, -u[-1] / 2
    signs = np.where(np.arange(n) % 2 == 0, 1.0, -1.0) * paired
    chosen = Y[:, None] * (u + signs[:, None] * turned)
    if relaxed:
        beyond = _beyond_support(draw, frame, paired)
        chosen[beyond] = 2 * Y[beyond, None] * u
    X = draw(_shorter(frame, u))
    X[np.arange(n), draw(frame.integers("n", 0, tokens - 1))] = chosen
    W = None
    if d > 1 and draw(one_in(3)):
        most = frame.most[2]
        W = np.eye(d) + np.triu(draw(entries((d, d), Style.INTEGERS, most=(most, most))), 1)
    return Dataset(X, Y, u, W, loss_named(loss))


def _beyond_support(draw: DrawFn, frame: Frame, paired: Bool[np.ndarray, "n"]) -> Bool[np.ndarray, "n"]:
    """Draw the mask of inputs that will not support v_mm: never the first, and both inputs of a pair or neither."""
    beyond: Bool[np.ndarray, "n"] = draw(frame.choices("n", (False, True)))
    first = np.arange(frame.n) - np.arange(frame.n) % 2
    beyond = np.where(paired, beyond[first], beyond)
    beyond[first == first[0]] &= ~paired[0]
    beyond[0] = False
    return beyond


@st.composite
def _shorter(draw: DrawFn, frame: Frame, u: Float64[np.ndarray, "d"]) -> Float64[np.ndarray, "n T d"]:
    """Draw tokens that are negative on axis 0 and have norm at most ¾‖u‖: multiples of u, or small integers.

    As ‖u‖ ≥ 4 and u_0 = 0, a multiple of u has norm at most √(0.625² + 1/16) ‖u‖ < 0.68 ‖u‖. A token of small integers,
    entries ±1 and −2 on axis 0, has norm at most √(d + 3); so all entries of the token beyond the first 9/16 ‖u‖² − 3
    are set to 0. For d = 1 tokens lie between −¾u and ¾u.
    """
    if frame.d == 1:
        return np.asarray(draw(frame.choices("nTd", (0.0, 0.5, -0.5, 0.75, -0.75))) * u)
    multiples = draw(frame.choices("nT", (0.0, 0.5, -0.5, 0.625)))
    small = draw(frame.integers("nTd", -1, 1)).astype(np.float64)
    small[:, :, int(9 / 16 * (u @ u)) - 4 + 1 :] = 0.0
    use_small = draw(frame.choices("nT", (False, True)))
    tokens = np.where(use_small[:, :, None], small, multiples[:, :, None] * u)
    down = draw(frame.choices("nT", (1.0, 0.25, 2.0**-10, 2.0)))
    # Multiples of u get at least −1 on axis 0, so that their norm stays at most ¾‖u‖.
    tokens[:, :, 0] = -np.where(use_small, down, np.minimum(down, 1.0))
    return np.asarray(tokens)
