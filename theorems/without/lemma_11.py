"""Lemma 11 (which is Lemma 2) with a label −1, tokens of equal score, or a head outside the range of the keys.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 2, Lemma 2; Appendix B, Lemma 11.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from generators.case import Case
from generators.finding import Finding
from generators.score_assumptions import strict_optimum
from reference_attention.problem import Dataset
from reference_attention.svm.max_margin import Infeasible, max_margin
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT
from theorems.without.small_cases import small_vectors
from theorems.without.weakening import Weakening


@st.composite
def _tokens(draw: DrawFn, *, positive: bool = True, identity: bool = True) -> Case:
    """Draw tokens, labels and a head of small integers; W is the identity or, if not ``identity``, any small matrix."""
    n, T, d = draw(st.integers(1, 2)), draw(st.integers(2, 3)), draw(st.integers(1, 2))
    X = np.array([[draw(small_vectors(d, zero=True)) for _ in range(T)] for _ in range(n)])
    Y = np.ones(n) if positive else np.array([draw(st.sampled_from((1.0, -1.0))) for _ in range(n)])
    W = None if identity else np.array([draw(small_vectors(d, zero=True)) for _ in range(draw(st.integers(1, 2)))])
    data = Dataset(X, Y, draw(small_vectors(d)), W)
    return Case(data.problem, dataset=data)


def feasible(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Claim that ATT-SVM(opt) has a solution; if not, the detail gives exact Farkas multipliers, which prove this."""
    solution = under_test[max_margin](case.problem.keys, case.problem.optimal)
    if isinstance(solution, Infeasible):
        weights = ", ".join(f"({i},{t}): {w}" for (i, t), w in solution.exact.items() if w != 0)
        detail = f"the differences k_iα − k_it, weighted by {{{weights}}}, add up to 0"
        yield Claim("gmm-exists", Form.EXACT, -1.0, 0.0, EXACT, detail)
    else:
        yield Claim("gmm-exists", Form.EXACT, 0.0, 0.0, EXACT, f"‖p_mm‖ = {solution.norm:.6g}")


LEMMA_11 = Weakening("lemma-11", feasible, "ATT-SVM(opt) is feasible, so GMM exists")
mixed_labels = LEMMA_11.without(
    "positive-labels",
    "Let a label be −1: the best token then has the lowest v·x, but the lemma's prompt (Wᵀ)⁺v orders tokens by v·x and"
    " prefers the highest. Two inputs with the same tokens and opposite labels need opposite prompts.",
    cases=_tokens(positive=False),
)


def _only_ties_fail(case: Case) -> Finding:
    """Decide whether the optimum is strict; leave it undecided if the head v is 0, since then all scores are equal."""
    if case.dataset is not None and not case.dataset.v.any():
        return Finding(None, "v = 0, so that all scores are equal")
    return strict_optimum(case)


tied_scores = LEMMA_11.without(
    "strict-optimum",
    "Let two tokens have the best score: the lemma's prompt separates tokens by their scores, so that it cannot"
    " separate these two. For example, both may have the same key.",
    cases=_tokens,
    fails=_only_ties_fail,
)
unseen_head = LEMMA_11.without(
    "head-in-key-range",
    "Let the scores depend on components of tokens that W maps to 0, so that keys do not contain them. Tokens with the"
    " same key can then have different scores, or keys can be ordered like the scores in one input and in the reverse"
    " order in another.",
    cases=_tokens(identity=False),
)
