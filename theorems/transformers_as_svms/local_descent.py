"""Gradient descent on W in a cone around the max-margin solution of locally optimal tokens.

References: *Transformers as Support Vector Machines*, Theorem 5; Theorem 3 of *Max-Margin Token Selection*.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import assume
from hypothesis.strategies import SearchStrategy

from generators.case import Case
from generators.query_cases import query_cases
from theorems.core.claim import Claim
from theorems.core.claim_name import premises
from theorems.core.dataset_claims import QUERY_CLAIMS, query_claims
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import FAR
from theorems.core.statement import statement
from theorems.token_selection.local_paths.invariant_cone import flow_is_resolved
from theorems.token_selection.local_paths.theorem_3_local_convergence import theorem_3


def _followable(case: Case) -> bool:
    assume(flow_is_resolved(case))
    return True


def _cases() -> SearchStrategy[Case]:
    return query_cases(alpha="locally-optimal").filter(_followable)


@statement(
    "tsvm-local-descent",
    "Local convergence of gradient descent on W",
    source="T-SVM, Theorem 5",
    claims=(*QUERY_CLAIMS, *theorem_3.declarations),
    assumptions=("queries-given", *theorem_3.assumptions),
    cases=_cases,
    from_data=theorem_3.from_data,
    kernel=FAR,
    needs=theorem_3.needs,
)
def tsvm_local_descent(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold and α be locally optimal: γ_it < γ_iα_i wherever (x_iα − x_it)ᵀ W^mm_α z_i = 1.

    For some μ and R the cone {W : ⟨W, W^mm_α⟩ ≥ (1 − μ)‖W‖_F‖W^mm_α‖_F, ‖W‖_F ≥ R} contains no stationary point of L,
    and gradient descent from inside it with η ≤ 1/L_W has ‖W(k)‖_F → ∞ and W(k)/‖W(k)‖_F → W^mm_α/‖W^mm_α‖_F.

    **Exact.** With p = vec(W) and keys vec(x_it z_iᵀ) this is Theorem 3 of the first paper, whose claims are checked:
    on the cone and its constants, on every iterate of gradient descent in the cone, and on the flow, which is followed
    to ‖W‖_F = 1e6 and to the norm at which its bound gives 1 − cos ≤ 1e-9.
    """
    yield from premises(query_claims(case, under_test))
    yield from theorem_3.conclusion(case, under_test)
