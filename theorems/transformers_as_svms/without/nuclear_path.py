"""The regularization path of (K, Q) without a strict optimum, separation, a decreasing loss, or a unique solution.

If queries have one entry, W is a column, ‖W‖_⋆ = ‖W‖_F, and the path of (K, Q) is the path of W, so that
counterexamples for the path of W apply here.

References: *Transformers as Support Vector Machines*, Theorem 2 (KQ-ERM).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from generators.case import Case
from reference_attention.exact import to_floats
from reference_attention.svm.max_margin import Infeasible
from reference_attention.svm.nuclear_max_margin import nuclear_max_margin
from reference_attention.svm.nuclear_nonuniqueness import two_nuclear_solutions
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT
from theorems.transformers_as_svms.without import frobenius_path as frobenius
from theorems.without.query_drawing import plain_query_cases
from theorems.without.weakening import weaken

REFUTED = "(K̄, Q̄)(R) = argmin of L(KQᵀ) over ½(‖K‖² + ‖Q‖²) ≤ R has K̄Q̄ᵀ/R → W_⋆/C_⋆"


tied_scores = frobenius.tied_scores.of(
    "tsvm-nuclear-path",
    "Let two tokens tie for the highest score: selecting either minimises the risk, and the path selects the one that"
    " can have the larger margin over the other tokens. W_⋆ may be the solution for the other one.",
    refutes=REFUTED,
)
increasing_loss = frobenius.increasing_loss.of("tsvm-nuclear-path", frobenius.increasing_loss.why, refutes=REFUTED)
not_separable = frobenius.not_separable.of(
    "tsvm-nuclear-path",
    "Let two inputs with the same query have opposite labels: they need opposite W. The risk has a finite minimiser,"
    " at which the path stays, and W̄(R)/R → 0.",
    refutes="K̄Q̄ᵀ/R converges to a matrix of norm one, as it converges to W_⋆/C_⋆ if W_⋆ exists",
)


@weaken(
    "tsvm-nuclear-path",
    without="unique-nuclear-solution",
    refutes="K̄Q̄ᵀ/R has the limit W_⋆/C_⋆, W_⋆ the matrix of least nuclear norm that separates the optimal tokens",
    cases=plain_query_cases(n=(2, 2), tokens=(2, 2), d=(2, 2), e=(2, 2)),
)
def several_solutions(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the rows be e1e1ᵀ and e2e2ᵀ: they constrain only the diagonal of W, so that W_⋆ is not unique.

    Every W = ((1, b), (b, 1)) with |b| ≤ 1 has nuclear norm 2; its rank is 1 or 2. The statement is about all of them.
    """
    data = case.queried
    assert data is not None
    svm = under_test[nuclear_max_margin](data.keys, case.chosen_tokens)
    if isinstance(svm, Infeasible):
        return
    two = None if svm.exact is not None else two_nuclear_solutions(svm)
    apart = 0.0 if two is None else float(np.linalg.norm(to_floats((two[0] - two[1]).entries())))
    yield Claim("solution-is-the-only-one", Form.EXACT, -apart, 0.0, EXACT)
