"""Attention that selects exactly τ tokens, for tokens that are not orthonormal.

References: *Transformers as Support Vector Machines*, Section 6 (lemma).
"""

from __future__ import annotations

from collections.abc import Iterator

from generators.case import Case
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT
from theorems.transformers_as_svms.exact_support import sizes_by_condition
from theorems.transformers_as_svms.without.simplex import least_weights, plain_head_cases
from theorems.without.weakening import weaken


@weaken(
    "tsvm-exact-support",
    without="orthonormal-tokens",
    refutes="if Σ_{t<τ} t γ^gap_t < 2λ < τ γ^gap_τ, the weights that minimise the risk have exactly τ nonzeros",
    cases=plain_head_cases,
)
def other_tokens(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let tokens not be orthonormal: −λ‖x‖² then favours short tokens and tokens that cancel other tokens.

    So the scores alone do not determine which tokens get weight.
    """
    for i, tau in enumerate(sizes_by_condition(case)):
        best = least_weights(case, i)
        if tau is not None and best is not None:
            size = sum(w != 0 for w in best)
            detail = f"input {i}: the best weights are ({', '.join(map(str, best))}), τ = {tau}"
            yield Claim("condition-suffices", Form.EXACT, 0.0 if size == tau else -1.0, 0.0, EXACT, detail)
