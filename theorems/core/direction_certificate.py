"""Check of the selected tokens and directional neighbours of a direction q against Definition 3.

The tokens are computed a second time, over the rationals, independently of the implementation under test.

References: *Max-Margin Token Selection in Attention Mechanism*, Definition 3.
"""

from __future__ import annotations

import numpy as np
from flint import fmpz_mat
from jaxtyping import Bool, Float64

from reference_attention.directions import Direction
from reference_attention.exact import Dyadic
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import premise
from theorems.core.tolerances import EXACT

DEFINITION_3 = premise("definition-3")


def by_definition(
    keys: Float64[np.ndarray, "n T d"], q: Float64[np.ndarray, "d"]
) -> tuple[Bool[np.ndarray, "n T"], Bool[np.ndarray, "n T"]]:
    """Return the masks of the selected tokens and directional neighbours of q by Definition 3, over the rationals."""
    n, tokens, d = keys.shape
    # The keys become integers times a power of two, which does not change the order of the logits.
    whole = fmpz_mat(n * tokens, d, Dyadic.of(keys).integers())
    logits = (whole * fmpz_mat(d, 1, Dyadic.of(q).integers())).entries()
    rows = [logits[i * tokens : (i + 1) * tokens] for i in range(n)]
    margins = [[max(row) - x for x in row] for row in rows]
    theta = min((x for row in margins for x in row if x != 0), default=None)
    selected = np.array([[x == 0 for x in row] for row in margins])
    return selected, np.array([[theta is not None and x == theta for x in row] for row in margins])


def as_defined(
    direction: Direction, keys: Float64[np.ndarray, "n T d"], q: Float64[np.ndarray, "d"], name: str = DEFINITION_3
) -> Claim:
    """Return the claim that ``direction`` has the selected tokens and directional neighbours of q by Definition 3."""
    selected, neighbours = by_definition(keys, q)
    right = int(((direction.selected == selected) & (direction.neighbours == neighbours)).sum())
    return at_least(name, Form.EXACT, right, selected.size, rounding=0.0, why=EXACT, points="direction")
