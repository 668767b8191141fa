"""If the contexts' embeddings are linearly independent, any observed next tokens are compatible and separable.

Main result: Lemma 1 of arXiv 2402.18551, for d ≥ m in place of d > m.

Reference: arXiv 2402.18551, Lemma 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from flint import fmpq, fmpq_mat

from generators.next_token.assumptions import INDEPENDENT_CONTEXTS
from generators.next_token.cases import independent_contexts
from generators.next_tokens import NextTokens
from reference_attention.exact import products, rational_matrix
from reference_attention.next_token.compatibility import compatible
from reference_attention.next_token.extended_supports import extended_supports
from reference_attention.next_token.subspace_split import Split
from theorems.core.claim import Claim, Form
from theorems.core.claim_name import sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.core.tolerances import EXACT
from theorems.next_token.limits import SUPPORTS_ARE_PROVEN

SEPARABLE = stated_claim("contexts-are-separable")
COMPATIBLE = stated_claim("contexts-are-compatible")
MANY = stated_claim("solutions-are-infinitely-many")
EXPLICIT = sharper("separator-in-closed-form")


@statement(
    "ntp-overparameterized",
    "Independent embeddings of contexts are separable and compatible",
    source="2402.18551, Lemma 1",
    claims=(SUPPORTS_ARE_PROVEN, SEPARABLE, COMPATIBLE, MANY, EXPLICIT),
    assumptions=(INDEPENDENT_CONTEXTS,),
    about=NextTokens,
    cases=independent_contexts,
    kernel=SVM_ONLY,
)
def ntp_overparameterized(case: NextTokens, under_test: Implementation) -> Iterator[Claim]:
    """**Lemma 1.** Let d > m and rank[h_1 … h_m] = m.

    Then the data are NTP-compatible and NTP-separable. Both the equations (4) of the log-odds and the conditions (6)
    of separability have infinitely many solutions.

    Here the lemma is proved for rank m and any d ≥ m. The equations e_zᵀW h_j = y_jz for all j and z have the solution
    W = Yᵀ(hhᵀ)⁻¹h, where h has the rows h_j. With y_jz = log p_jz on S_j it solves (4); with y_jz = 1 on S_j and 0 off
    S_j it solves (6); adding 1uᵀ, with any u, keeps a solution. All claims are decided over the rationals: Ŝ = S is
    proven, compatibility is decided with integers, and the solution of (6) is checked by insertion.
    """
    problem = case.problem
    supports = under_test[extended_supports](problem)
    yield _decide(SUPPORTS_ARE_PROVEN, not supports.error(problem), supports.error(problem))
    yield _decide(SEPARABLE, supports.separable(problem), "Ŝ is larger than S")
    yield _decide(COMPATIBLE, under_test[compatible](problem), "no W attains the log-odds")
    split = Split.of(problem, supports.sets)
    yield _decide(MANY, split.dimension < problem.dimension, "(4) has at most one solution")
    margins = dict(zip(problem.pairs, products(list(problem.differences.values()), separator_of(case)), strict=True))
    right = all(margin == (0 if problem.supports[pair] else 1) for pair, margin in margins.items())
    yield _decide(EXPLICIT, right, "Yᵀ(hhᵀ)⁻¹h does not solve (6)")


def separator_of(case: NextTokens) -> list[fmpq]:
    """Return the statement's solution of (6), vec(Yᵀ(hhᵀ)⁻¹h) with y_jz = 1 on S_j, else 0; 0 if hhᵀ is singular."""
    h = rational_matrix(case.embeddings)
    chosen = fmpq_mat([[fmpq(int(x)) for x in row] for row in case.problem.supports.tolist()])
    gram = h * h.transpose()
    if gram.det() == 0:
        return [fmpq(0)] * case.problem.dimension
    return list((chosen.transpose() * gram.inv() * h).entries())


def _decide(name: str, holds: bool, otherwise: str) -> Claim:
    return Claim(name, Form.EXACT, 0.0 if holds else -1.0, 0.0, EXACT, "" if holds else otherwise)
