"""Points W of small excess risk, on and near the ray, at which the statement on attention that mixes is checked.

References: *Transformers as Support Vector Machines*, Section 6.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from flint import arb

from generators.margin_assumptions import Vector, dot
from reference_attention.svm.finite_part import Balls, mixing_offset
from theorems.transformers_as_svms.mixing_numbers import Mixing, inner
from theorems.transformers_as_svms.mixing_path_numbers import has_closed_form

BEYOND = (0.125, 3.0, 40.0)
"""The values added to the least r at which the bounds hold; r is the position on the ray W_fin + r W^mm."""
KICKS = (0.0, 0.01, 0.3)
"""The displacements along the rows E of :mod:`.mixing`, in logits; the excess risk is quadratic in them.

One more displacement is e^{−r/2}, whose excess risk is comparable to that of the masked tokens."""
WANDER = (0.0, 0.3, 2.0)
"""The displacements in directions orthogonal to E, in units of ‖W^mm‖."""


def near_points(mixing: Mixing, rng: np.random.Generator) -> Iterator[Balls]:
    """Yield random W with ε = (n(L(W) − L_⋆)/λ)^½ ≤ s⋆_min/2, where ε bounds the distance of attention from s⋆."""
    deep = max(mixing.least_depth, arb(0))
    for extra in BEYOND:
        r = (deep + extra).mid()
        kicks = [*map(arb, KICKS), (-r / 2).exp(), arb(0)]
        for kick, wander in zip(kicks, (0.0, *rng.permutation(WANDER * 2)[:4].tolist()), strict=True):
            W = _move(mixing, mixing.on_the_ray(r), kick, wander, rng)
            if mixing.spread(mixing.excess(W)) <= arb(mixing.least_weight) / 2:
                yield W
        if has_closed_form(mixing):
            offset = mixing_offset(mixing.svm, mixing.attention)
            W = [(a + r * arb(b)).mid() for a, b in zip(offset, mixing.svm.point, strict=True)]
            if mixing.spread(mixing.excess(W)) <= arb(mixing.least_weight) / 2:
                yield W


def sublevel_points(mixing: Mixing, rng: np.random.Generator) -> Iterator[tuple[arb, Balls]]:
    """Yield pairs (r, W) with ‖W‖ ≤ ‖W_fin + r W^mm‖ and L(W) ≤ L(W_fin + r W^mm), including W_fin + r W^mm."""
    deep = max(mixing.least_depth, arb(0))
    for extra in BEYOND:
        r = (deep + extra).mid()
        edge = mixing.on_the_ray(r)
        yield r, edge
        most, level = inner(edge, edge), mixing.excess(edge)
        starts = [_move(mixing, edge, arb(0), wander / 8, rng) for wander in WANDER]
        if has_closed_form(mixing):
            offset = mixing_offset(mixing.svm, mixing.attention)
            starts.append([a + r * arb(b) for a, b in zip(offset, mixing.svm.point, strict=True)])
        for start in starts:
            W = _to_norm(mixing, start, most)
            if W is not None and mixing.excess(W) <= level:
                yield r, W


def _to_norm(mixing: Mixing, W: Balls, square: arb) -> Balls | None:
    """Return W with its component along W^mm changed so that ‖W‖² is a little below ``square``."""
    point = [arb(x) for x in mixing.svm.point]
    square_of_point = inner(point, point)
    along = inner(W, point) / square_of_point
    flat = [a - along * b for a, b in zip(W, point, strict=True)]
    square_along = (square - inner(flat, flat)) / square_of_point
    if not square_along > 0:
        return None
    length = square_along.sqrt() * (1 - arb(2) ** -200)
    return [(a + length * b).mid() for a, b in zip(flat, point, strict=True)]


def _move(mixing: Mixing, W: Balls, kick: arb, wander: float, rng: np.random.Generator) -> Balls:
    """Return W moved along a random combination of the rows of E, and in a random direction orthogonal to them."""
    shift = rng.normal(size=len(W)).tolist()
    for pair in mixing.independent:
        row = mixing.level_rows[pair]
        # The displacement is in logits, so that it does not depend on the unit of the row.
        W = _add(W, row, kick * rng.normal() / arb(dot(row, row)))
    flat = mixing.across([arb(x) for x in shift])[1]
    length = inner(flat, flat).sqrt()
    if not length > 0:
        return W
    size = arb(mixing.norm_squared).sqrt() / length
    return [(a + wander * size * b).mid() for a, b in zip(W, flat, strict=True)]


def _add(W: Balls, row: Vector, by: arb) -> Balls:
    return [a + by * arb(b) for a, b in zip(W, row, strict=True)]
