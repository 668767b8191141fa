"""Lemma 10 with keys that are not in general position.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix B.5.2, Lemma 10.
"""

from __future__ import annotations

from collections.abc import Iterator

from generators.case import Case
from reference_attention.directions import direction
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT
from theorems.without.small_cases import plain_cases, with_directions
from theorems.without.weakening import weaken


@weaken(
    "lemma-10",
    without="general-position",
    refutes="q has at most d directional neighbours",
    cases=with_directions(plain_cases(), "q"),
)
def any_position(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let keys be in special position: any number of tokens can then lie on the hyperplane of the smallest margin.

    The tokens on the hyperplane can belong to one input or to several. In general position they are at most d.
    """
    problem = case.problem
    count = int(under_test[direction](problem.keys, case.arrays["q"]).neighbours.sum())
    detail = f"{count} directional neighbours in d = {problem.d}"
    yield Claim("neighbours", Form.EXACT, float(problem.d - count), 0.0, EXACT, detail)
