"""The first-order term of the risk along a direction, with an explicit remainder, for the limits in Lemmas 8 and 9.

References: *Max-Margin Token Selection in Attention Mechanism*, Lemmas 8 and 9, equation (63).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.directions import Direction
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Form, at_least
from theorems.rounding.attention_at import Numbers
from theorems.rounding.sized_numbers import Sized
from theorems.token_selection.directions.directional_risk import Costs, float_of, with_unit_rounding

LEADING = "at some radius the remainder and the rounding error are each below half of the leading term"
"""The condition under which :func:`sharp_claim` is made."""


@dataclass(frozen=True, eq=False)
class LeadingTerm:
    """The first-order term D of n (L(R x) − L_α) e^{Rθ} = D + r for a direction x of margin θ, and a bound on |r|.

    Attributes:
        term: D = Σ |ℓ'(γ_iα_i)| g_it over the directional neighbours of x, with the score gaps g_it = γ_iα_i − γ_it, in
            units of e^{log_unit}.
        remainder: bounds on |r| at the radii R, in the same unit, (r,).
        log_unit: the logarithm of the largest |ℓ'(γ_iα_i)| |g_it| over these neighbours.
    """

    term: Numbers
    remainder: Numbers
    log_unit: float


def leading_term(direction: Direction, costs: Costs, radii: Float64[np.ndarray, "r"]) -> LeadingTerm:
    """Return the first-order term of the risk along a direction x, and bounds of its remainder at the radii R.

    Let a be the margins, θ the smallest of them and g the score gaps of tokens (:mod:`.directional_risk`). The
    remainder has three parts: tokens that are no neighbours contribute at most Σ |ℓ'| |g| e^{−R(a−θ)}; a neighbour's
    weight is e^{−Rθ}/Z with a normaliser 1 ≤ Z ≤ 1 + (T−1)e^{−Rθ}; and ℓ(u−δ) − ℓ(u) differs from |ℓ'(u)| δ by at most
    M0 δ²/2, M0 the Lipschitz constant of ℓ', where u = γ_iα_i, δ = Σ_t s_it g_it and |δ| ≤ Σ_t |g| e^{−Ra}.
    """
    problem, near, least = costs.problem, direction.neighbours, direction.least
    assert least is not None, "there are neighbours"
    chosen_scores = np.take_along_axis(problem.scores, costs.alpha[:, None], axis=1)
    log_terms: Any = problem.loss.log_slope(exact(chosen_scores)) + costs.log_gaps
    log_unit = float(value_of(log_terms)[near].max())
    terms: Any = np.exp(log_terms[near] - log_unit)
    beyond = with_unit_rounding(np.array([[float_of(x - least, direction) for x in row] for row in direction.exact]))
    decays = radii[:, None, None] * beyond
    log_vanishing = -radii * with_unit_rounding(direction.margin)
    others = np.sum(np.exp((log_terms - log_unit - decays)[:, ~near]), axis=1)
    sizes = np.sum(np.exp(costs.log_gaps - decays), axis=2)
    # The Lipschitz constant M0 of ℓ' may be close to the largest float, so the small factor e^{−Rθ} comes first.
    bends = np.exp(costs.log_curvature - log_unit + log_vanishing[:, None]) * sizes * sizes / 2
    remainder = others + np.sum(terms) * (problem.T - 1) * np.exp(log_vanishing) + np.sum(bends, axis=1)
    return LeadingTerm(np.sum(np.sign(costs.gaps[near]) * terms), remainder, log_unit)


def sharp_claim(
    name: str, direction: Direction, costs: Costs, radii: Float64[np.ndarray, "r"], excess: Sized
) -> Iterator[Claim]:
    """Claim D − r ≤ n (L(R x) − L_α) e^{Rθ} ≤ D + r at the radii where r < |D|/2, if there are such radii.

    D is the first-order term and r the bound of its remainder, see :class:`LeadingTerm`.

    Args:
        name: the name of the claim.
        direction: the direction x, with the margin θ.
        costs: the costs of the tokens other than α.
        radii: the radii R, (r,).
        excess: n (L(R x) − L_α) with the risk under test, (r,).
    """
    lead = leading_term(direction, costs, radii)
    D, r = lead.term, lead.remainder
    measured = excess.to(lead.log_unit - radii * with_unit_rounding(direction.margin))
    size = np.abs(value_of(D))
    resolved = (value_of(r) < size / 2) & (measured.error < np.maximum(np.abs(measured.value), size) / 2)
    if resolved.any():
        above, below = np.stack([D + r, measured]), np.stack([measured, D - r])
        yield at_least(name, Form.SHARP, above[:, resolved], below[:, resolved], points="radius")
