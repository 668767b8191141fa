"""Lemma 10: in general position a direction has at most d directional neighbours.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.5.2, Lemma 10.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis.strategies import SearchStrategy
from jaxtyping import Bool, Float64, Int64

from generators.case import Case
from generators.direction_cases import direction_cases, directions_for
from reference_attention.directions import direction
from reference_attention.exact import rational_matrix
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import premises, sharper, stated_claim
from theorems.core.direction_certificate import DEFINITION_3, as_defined
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.core.tolerances import EXACT

NEIGHBOURS = stated_claim("neighbours")
TIES = sharper("ties")
NEIGHBOUR_RANK = sharper("neighbour-rank", when="there are directional neighbours")
TIE_RANK = sharper("tie-rank", when="tokens tie in selection")

ASSUMPTIONS = ("general-position", "direction-given")


def _cases() -> SearchStrategy[Case]:
    return direction_cases(kinds=("tied", "lower", "higher", "near"))


@statement(
    "lemma-10",
    "At most d directional neighbours",
    source="Appendix B.5.2, Lemma 10",
    claims=(NEIGHBOURS, TIES, DEFINITION_3, NEIGHBOUR_RANK, TIE_RANK),
    assumptions=ASSUMPTIONS,
    cases=_cases,
    from_data=directions_for,
    kernel=SVM_ONLY,
    needs={"direction-given": "the lemma counts the directional neighbours of q, and q = 0 has none"},
)
def lemma_10(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """If keys are in general position, every direction q ≠ 0 has at most d directional neighbours.

    The rows k_iα_i − k_it of these neighbours are linearly independent. Likewise at most d − 1 tokens tie with a
    selected token, and their rows are linearly independent.

    *Derivation.* Let M hold the rows of the neighbours, for any choice α of selected tokens: M q = θ‖q‖ 1 with the
    directional margin θ > 0. With more than d rows, the all-ones vector M q/(θ‖q‖) would be in the range, which general
    position excludes; up to d rows have full rank. If M holds the rows of ties instead, M q = 0 with q ≠ 0: the rank is
    below d, so d such rows would not have full rank.

    Everything is decided over the rationals. The claim ``definition-3`` checks the reported neighbours against the
    keys: each reported neighbour has the smallest positive margin, and no other token has this margin.
    """
    problem = case.problem
    keys = problem.keys
    q = under_test[direction](keys, case.arrays["q"])
    count, ties = int(q.neighbours.sum()), int(q.selected.sum()) - problem.n
    yield at_least(NEIGHBOURS, Form.EXACT, problem.d, count, rounding=0.0, why=EXACT, points="direction")
    yield at_least(TIES, Form.EXACT, problem.d - 1, ties, rounding=0.0, why=EXACT, points="direction")
    alpha = np.argmax(q.selected, axis=1)
    others = q.selected & (np.arange(problem.T) != alpha[:, None])
    for name, mask in ((NEIGHBOUR_RANK, q.neighbours), (TIE_RANK, others)):
        rank = _rank(keys, alpha, mask)
        if rank is not None:
            yield at_least(name, Form.EXACT, rank, int(mask.sum()), rounding=0.0, why=EXACT, points="direction")
    yield from premises(as_defined(q, keys, case.arrays["q"]))


def _rank(
    keys: Float64[np.ndarray, "n T d"], alpha: Int64[np.ndarray, "n"], mask: Bool[np.ndarray, "n T"]
) -> int | None:
    """Return the exact rank of the rows k_iα_i − k_it of the marked tokens; None if no token is marked."""
    i, t = np.nonzero(mask)
    if i.size == 0:
        return None
    return int((rational_matrix(keys[i, alpha[i]]) - rational_matrix(keys[i, t])).rank())
