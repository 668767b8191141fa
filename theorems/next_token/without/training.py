"""Training on next tokens with nothing to rule out, too long steps, dependent embeddings, or labels outside sequences.

References: arXiv 2402.18551, Lemma 1, Theorems 1 and 2; arXiv 2403.08081; our own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from generators.next_token.assumptions import (
    INDEPENDENT_CONTEXTS,
    INDEPENDENT_TOKENS,
    LABELS_WITHIN,
    SHORT_STEPS,
    SOMETHING_APART,
)
from generators.next_token.cases import next_token_cases
from generators.next_tokens import NextTokens
from generators.numbers import integers
from reference_attention.next_token.extended_supports import extended_supports
from reference_attention.next_token.next_token_svm import NextTokenSvm, next_token_svm
from theorems.bounded import value_of
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT
from theorems.next_token.ntp_attention import loss_by_attention, ntp_attention
from theorems.next_token.ntp_descent import FALLS, SETTLES, ntp_descent
from theorems.next_token.ntp_finite_part import CONTRACTS, ntp_finite_part
from theorems.next_token.ntp_overparameterized import SEPARABLE, ntp_overparameterized
from theorems.without.weakening import Weakening, weaken

DIVERGES = "norm-diverges"
FINITE = "loss-is-finite"
LONG_STEPS = (6.0, 12.0, 16.0)
"""Step sizes η above 2/β = 4, where the smoothness of the loss is β = ½."""


@st.composite
def _long_steps(draw: DrawFn) -> NextTokens:
    """Draw one context, h = 1, and two or three tokens, the last of which never follows it."""
    counts = np.append(draw(integers((2,), 1, 2)), 0)[None]
    return NextTokens(np.ones((1, 1)), counts, step=draw(st.sampled_from(LONG_STEPS)))


@st.composite
def _nothing_apart(draw: DrawFn) -> NextTokens:
    """Draw contexts ±h, both followed by the first token: ruling out the second token after h favours it after −h."""
    h = np.array([[1.0], [-1.0]]) * draw(st.integers(1, 2))
    first = draw(integers((2, 2), 0, 2))
    first[:, 0] += 1
    return NextTokens(h, first)


@st.composite
def _foreign_labels(draw: DrawFn) -> NextTokens:
    """Draw sequences over three tokens, each with any of the three tokens as its label."""
    n = draw(st.integers(1, 2))
    samples = draw(integers((n, 2), 0, 2))
    return NextTokens(np.eye(3), samples=samples, labels=draw(integers((n,), 0, 2)))


def _at_rest(case: NextTokens, under_test: Implementation) -> Iterator[Claim]:
    """Claim that the weights' norm diverges, which is false where NTP-SVM has no constraints, so that θ_mm = 0."""
    problem = case.problem
    supports = under_test[extended_supports](problem)
    svm = under_test[next_token_svm](problem, supports.sets)
    resting = not supports.error(problem) and isinstance(svm, NextTokenSvm) and svm.norm_squared == 0
    yield Claim(DIVERGES, Form.EXACT, -float(resting), 0.0, EXACT, "Ŝ = V: the loss has a minimiser, θ_mm = 0")


path_at_rest = Weakening("ntp-path", _at_rest, "‖Ŵ_B‖ = B for every B, cos(Ŵ_B, W^mm) → 1").without(
    SOMETHING_APART.id,
    "Let nothing be ruled out: the loss has a minimiser θ_⋆, and Ŵ_B is θ_⋆ as soon as the ball contains it. If"
    " contexts h = 1 and h = −1 are both followed by the first token, a W that makes the second token less likely after"
    " one context makes it more likely after the other.",
    cases=_nothing_apart,
)
descent_at_rest = Weakening("ntp-descent", _at_rest, "‖W_k‖ → ∞").without(
    SOMETHING_APART.id,
    "Let nothing be ruled out: the loss has a minimiser θ_⋆, and descent converges to it: ‖W_k − θ_⋆‖ ≤ ‖W_0 − θ_⋆‖.",
    cases=_nothing_apart,
)
long_steps = Weakening.of_claims(ntp_descent, "CE(W_k) → H and P_F(W_k) → W⋆", FALLS, SETTLES).without(
    SHORT_STEPS.id,
    "Take steps beyond 2/λ_max(H): the part in F then oscillates about its limit for ever. With one context h = 1, p ="
    " (½, ½, 0) and η = 6, the part in F ends in a 2-cycle of amplitude 1.29, and the loss stays above its infimum.",
    cases=_long_steps,
)
long_steps_in_f = Weakening.of_claims(
    ntp_finite_part, "‖u_{k+1}‖ ≤ (1 − ηλ_H(1 − e^{−t_k})/t_k)‖u_k‖ + ηD_c(L(θ_k) − L_⋆)", CONTRACTS
).without(
    SHORT_STEPS.id,
    "Take steps beyond 2/λ_max(H): I − ηH̃ is then not a contraction, and the part in F ends in a cycle of two points.",
    cases=_long_steps,
)
dependent_contexts = Weakening.of_claims(ntp_overparameterized, "the data are NTP-separable", SEPARABLE).without(
    INDEPENDENT_CONTEXTS.id,
    "Let two contexts with the same embedding be followed by different tokens: no W separates these tokens.",
    cases=next_token_cases(("repeated", "random")),
)
dependent_tokens = Weakening.of_claims(
    ntp_attention,
    "the limit solves graph-SVM, which is feasible: Ŝ is the label's component",
    "extended-supports-are-strong-components",
).without(
    INDEPENDENT_TOKENS.id,
    "Let a token's embedding be a mean of others, say e_3 = (e_1 + e_2)/2, while the samples require its score to be"
    " below both. The graph has no cycle, so that all components are single tokens; but W can only tie the three."
    " Training follows Ŝ.",
    cases=next_token_cases(("dependent",)),
)


@weaken("ntp-attention", without=LABELS_WITHIN.id, refutes="L is finite, and training lowers it", cases=_foreign_labels)
def foreign_labels(case: NextTokens, under_test: Implementation) -> Iterator[Claim]:
    """Let a label not be in its sequence: attention puts no mass on the label, and the loss is −log 0 for every W.

    The official code drops the edges of such a sample from the graph, but keeps the sample in the loss.
    """
    loss = float(value_of(loss_by_attention(case, np.zeros((1, case.embeddings.shape[1] ** 2))))[0])
    yield Claim(FINITE, Form.EXACT, -1.0 if np.isinf(loss) else 0.0, 0.0, EXACT, f"L(0) = {loss:g}")
