"""Proposition 1 without an assumption: contexts disagree, no W attains the log-odds, or nothing is ruled out.

Reference: arXiv 2402.18551, Proposition 1; our own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from flint import arb, ctx
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from generators.next_token.assumptions import COMPATIBLE, SEPARABLE
from generators.next_token.cases import next_token_cases, with_something_apart
from generators.next_tokens import NextTokens
from generators.numbers import integers
from reference_attention.next_token.extended_supports import extended_supports
from reference_attention.next_token.finite_minimum import finite_minimum
from reference_attention.next_token.subspace_split import BITS, Split
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT
from theorems.without.weakening import Weakening, weaken

INFIMUM = "entropy-is-approached"
ABOVE = "cross-entropy-is-above-the-entropy"


@st.composite
def _contradictions(draw: DrawFn) -> NextTokens:
    """Draw contexts with few distinct embeddings and one next token each, so that some may contradict others."""
    m, V = draw(st.integers(2, 3)), draw(st.integers(2, 3))
    h = draw(integers((m, 1), -1, 1)).astype(np.float64)
    counts = np.eye(V, dtype=np.int64)[draw(integers((m,), 0, V - 1))] * draw(integers((m, 1), 1, 3))
    return with_something_apart(NextTokens(h, counts))


@st.composite
def _everything_follows(draw: DrawFn) -> NextTokens:
    m, V = draw(st.integers(1, 2)), draw(st.integers(2, 3))
    return NextTokens(np.eye(m), draw(integers((m, V), 1, 3)))


def above_entropy(case: NextTokens, under_test: Implementation) -> Iterator[Claim]:
    """Claim that inf CE, the cross-entropy's infimum, is the entropy H; the difference is computed in balls."""
    problem = case.problem
    sets = under_test[extended_supports](problem).sets
    minimum = under_test[finite_minimum](Split.of(problem, sets))
    with ctx.workprec(BITS):
        entropy = arb(0)
        for pi, targets in zip(problem.weights, problem.targets, strict=True):
            entropy -= arb(pi) * sum((arb(p) * arb(p).log() for p in targets if p > 0), arb(0))
        more = minimum.value - entropy
    detail = f"inf CE = {float(minimum.value.mid()):.6g}, H = {float(entropy.mid()):.6g}"
    yield Claim(INFIMUM, Form.EXACT, -float(more.mid()), float(more.rad()), EXACT, detail)


NTP_ENTROPY = Weakening("ntp-entropy", above_entropy, "inf CE is the entropy H")
contradictions = NTP_ENTROPY.without(
    SEPARABLE.id,
    "Let contexts of one embedding be followed by different tokens: no W tells those contexts apart. The same can"
    " happen to an embedding that lies between others. Training learns the mean of the tokens that followed these"
    " contexts. The theorems hold with extended supports: direction and finite part are those of Ŝ.",
    cases=_contradictions,
)
free_counts = NTP_ENTROPY.without(
    COMPATIBLE.id,
    "Let the log-odds of frequencies not be linear in the embedding: no W attains them, and inf CE is above H. An"
    " example is h = 1 and h = 2, each followed by two tokens in the ratio 2 : 1. The direction of training is"
    " unchanged; the finite part is the best compromise.",
    cases=next_token_cases(("incompatible",), apart=True),
)


@weaken(
    "ntp-entropy",
    without="something-to-rule-out",
    refutes="CE(W) > H for every W",
    cases=_everything_follows,
)
def everything_follows(case: NextTokens, under_test: Implementation) -> Iterator[Claim]:
    """Let every token follow every context: training rules out nothing, and W^p itself attains the entropy."""
    problem = case.problem
    supports = under_test[extended_supports](problem)
    attained = not supports.error(problem) and bool((problem.supports == problem.alternatives).all())
    yield Claim(ABOVE, Form.EXACT, -float(attained), 0.0, EXACT, "S = V and (4) has a solution: CE(W^p) = H")
