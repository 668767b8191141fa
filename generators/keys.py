"""Strategies for keys: arbitrary, separable by construction, in general position, badly scaled.

Separable keys are built from a direction u of small integers with an entry u_j = ±1. Every difference is k_iα_i − k_it
= c·a + e, where c > 0 is drawn, e ⊥ u has integer entries (entry j is solved for), and either

- a = u: then p_mm = u/‖u‖² if u is a non-negative combination of the differences with c = 1, as when one of these has
  e = 0 or two have opposite e. Tokens with c = 1 are SVM-neighbours, tokens with c > 1 are not;
- or a = u_j e_j, for the axis e_j: the differences are small integers whose product with u is c, and p_mm may have any
  direction.

In both cases the product of every difference with u is positive, so that no case has to be filtered.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Bool, Float64, Int64

from generators.general_position import offending_choice
from generators.numbers import STYLES, Frame, integers, one_in

NEAR_TIE = 1 + 2.0**-28
"""A margin above 1, so close that a comparison with tolerance 1e-8 would count the token as an SVM-neighbour."""
MODERATE_MARGINS = (1.0, 1.0, 1.0, 2.0, 3.0, 1.5, 4.0, NEAR_TIE)
WIDE_MARGINS = (*MODERATE_MARGINS, 2.0**-6, 1e3)


@st.composite
def key_directions(draw: DrawFn, frame: Frame) -> tuple[Float64[np.ndarray, "d"], int]:
    """Draw a direction u of small integers, and the position of an entry of u that is ±1."""
    u = draw(frame.integers("d", -2, 2)).astype(np.float64)
    pivot = draw(st.integers(0, frame.d - 1))
    u[pivot] = draw(st.sampled_from((1.0, -1.0)))
    return u, pivot


@st.composite
def separable_keys(
    draw: DrawFn,
    frame: Frame,
    alpha: Int64[np.ndarray, "n"],
    constrained: Bool[np.ndarray, "n T"],
    *,
    wide: bool = True,
) -> Float64[np.ndarray, "n T d"]:
    """Draw keys for which some direction separates α_i from every constrained token of each input.

    Args:
        draw: the function that Hypothesis passes.
        frame: the sizes n, T and d.
        alpha: the chosen tokens.
        constrained: a mask, (n, T), of the tokens from which α_i is separated; the other tokens are arbitrary.
        wide: whether some margins are far smaller or larger than others, which makes convergence slower.
    """
    n, tokens, d = frame.shape
    style = draw(STYLES)
    u, pivot = draw(key_directions(frame))
    along = u if draw(st.booleans()) else u[pivot] * np.eye(d)[pivot]
    multiples = draw(frame.choices("nT", WIDE_MARGINS if wide else MODERATE_MARGINS))
    if draw(one_in(4)):
        # Multiply the margins of an input by 4, so that it usually has no SVM-neighbour.
        multiples[draw(st.integers(0, n - 1))] *= 4
    sideways = draw(frame.entries("nTd", style))
    free = np.arange(tokens) != alpha[:, None]
    _close(draw, sideways, multiples, np.argwhere(constrained & free))
    sideways[:, :, pivot] = 0
    sideways[:, :, pivot] = -u[pivot] * (sideways @ u)
    differences = sideways + multiples[:, :, None] * along
    loose = ~constrained & free
    if loose.any():
        differences[loose] = draw(frame.entries("nTd", style))[loose]
    bases = draw(frame.entries("nd", style))
    if draw(one_in(4)):
        # Make the chosen key a multiple of u, so that keys whose difference has a = u and e = 0 are multiples, too.
        bases = bases[:, :1] * u
    keys: Float64[np.ndarray, "n T d"] = bases[:, None] - differences
    keys[np.arange(n), alpha] = bases
    if draw(one_in(4)):
        i, first, second = (draw(st.integers(0, size - 1)) for size in (n, tokens, tokens))
        if free[i, first] and free[i, second] and (constrained[i, first] or not constrained[i, second]):
            keys[i, second] = keys[i, first]
    return keys


def _close(
    draw: DrawFn,
    sideways: Float64[np.ndarray, "n T d"],
    multiples: Float64[np.ndarray, "n T"],
    neighbours: Int64[np.ndarray, "m 2"],
) -> None:
    """Make u a combination of rows k_iα_i − k_it: of one SVM-neighbour with e = 0, or of two with e and −e.

    Args:
        draw: the function that Hypothesis passes.
        sideways: the components e of the differences, changed in place.
        multiples: the factors c of the differences, changed in place.
        neighbours: the pairs (i, t) of tokens that may become SVM-neighbours.
    """
    if len(neighbours) == 0:
        return
    first = tuple(neighbours[draw(st.integers(0, len(neighbours) - 1))])
    multiples[first] = 1.0
    if len(neighbours) > 1 and draw(st.booleans()):
        second = tuple(draw(st.sampled_from([tuple(x) for x in neighbours if tuple(x) != first])))
        multiples[second] = 1.0
        sideways[second] = -sideways[first]
    else:
        sideways[first] = 0.0


@st.composite
def arbitrary_keys(draw: DrawFn, frame: Frame) -> Float64[np.ndarray, "n T d"]:
    """Draw any keys, separable or not."""
    return np.asarray(draw(frame.entries("nTd", draw(STYLES))))


def nudge_to_general_position(keys: Float64[np.ndarray, "n T d"]) -> Float64[np.ndarray, "n T d"]:
    """Move the keys by a small dyadic perturbation, if necessary, so that they are in general position.

    Each try draws the perturbation from a finer grid, so that the share of perturbations that fail tends to zero.
    Entries move by at most 1/(16 d), hence products of differences of keys with u, whose entries are at most 2, by at
    most 2·2d/(16 d) = 1/4: separable keys stay separable.
    """
    largest = 2.0 ** -(4 + (keys.shape[2] - 1).bit_length())
    nudged, tries = keys, 0
    while offending_choice(nudged) is not None:
        tries += 1
        steps = np.random.default_rng(tries).integers(-(4**tries), 4**tries + 1, size=keys.shape)
        nudged = keys + steps * (largest / 4**tries)
    return nudged


@st.composite
def rescaled_keys(draw: DrawFn, keys: Float64[np.ndarray, "n T d"]) -> Float64[np.ndarray, "n T d"]:
    """Draw the keys unchanged, or with a factor for each input, for each coordinate, or for all (1e-120 to 1e120).

    The factors of inputs and of coordinates are powers of two, hence exact, and separable keys stay separable. The
    factor of all keys may be a power of ten, which rounds every entry by at most half an ulp.
    """
    kind = draw(st.integers(0, 12))
    n, _, d = keys.shape
    if kind == 9:
        factors = draw(integers((n,), -10, 10))
        return np.asarray(keys * (2.0**factors)[:, None, None])
    if kind == 10:
        factors = draw(integers((d,), -10, 10))
        return np.asarray(keys * 2.0**factors)
    if kind > 10:
        powers_of_two = st.integers(-398, 398).map(lambda k: 2.0**k)
        powers_of_ten = st.integers(-120, 120).map(lambda k: 10.0**k)
        return np.asarray(keys * draw(st.one_of(powers_of_two, powers_of_ten)))
    return keys
