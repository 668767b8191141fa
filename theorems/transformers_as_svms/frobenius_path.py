"""Regularization path of W: its direction converges to W^mm, the W of least norm that separates the optimal tokens.

References: *Transformers as Support Vector Machines*, Theorem 2 (W); Theorem 1 of *Max-Margin Token Selection*.
"""

from __future__ import annotations

from collections.abc import Iterator

from generators.case import Case
from generators.query_cases import query_cases
from theorems.core.claim import Claim
from theorems.core.claim_name import premises
from theorems.core.dataset_claims import QUERY_CLAIMS, query_claims
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import BELOW_ROUNDING
from theorems.core.statement import statement
from theorems.token_selection.global_paths.theorem_1_regularization_path import theorem_1


@statement(
    "tsvm-frobenius-path",
    "Regularization path of W: W̄(R)/R → W^mm/‖W^mm‖",
    source="T-SVM, Theorem 2 (W-ERM)",
    claims=(*QUERY_CLAIMS, *theorem_1.declarations),
    assumptions=("queries-given", *theorem_1.assumptions),
    cases=query_cases,
    kernel=BELOW_ROUNDING,
)
def tsvm_frobenius_path(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let Assumption A hold and one token of each input be strictly best.

    Let the constraints (x_i,opt − x_it)ᵀ W z_i ≥ 1 be feasible and W^mm their solution of least ‖W‖_F. The path
    W̄(R) = argmin_{‖W‖_F ≤ R} L(W) has W̄(R)/R → W^mm/‖W^mm‖_F.

    **Exact.** With p = vec(W) and keys k_it = vec(x_it z_iᵀ), x_itᵀ W z_i = k_it·p and ‖W‖_F = ‖p‖. So L, the ball and
    ATT-SVM are the ones of Theorem 1 of the first paper, and all its claims are checked: the bounds over a sublevel set
    with ρ = R/‖W^mm‖_F and κ = log(2n(T−1) c_max Γ_max / (c_min Γ_min)) (c bounds |ℓ'| on the range of scores, Γ the
    score gaps), the limit, and the offset from the ray.
    """
    yield from premises(query_claims(case, under_test))
    yield from theorem_1.conclusion(case, under_test)
