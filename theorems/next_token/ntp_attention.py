"""Attention trained to predict a token turns to the solution of graph-SVM, and its mass goes to the label's component.

Main result: the theorem of arXiv 2403.08081 for log-loss, from any start and with rates, as a special case of the
problem of ntp-extended-supports: strongly connected components are extended supports.

References: arXiv 2403.08081 (its code: yixiao-huang/next-token-prediction); Ford, *Solution of a ranking problem from
binary comparisons*, 1957.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from flint import fmpq
from jaxtyping import Bool, Float64

from generators.next_token.assumptions import INDEPENDENT_TOKENS, LABELS_WITHIN, SEQUENCES
from generators.next_token.cases import independent_sequences
from generators.next_tokens import NextTokens
from reference_attention.exact import rational_matrix, to_float
from reference_attention.floats import EPS
from reference_attention.next_token.attention_samples import ABSENT, component_sets
from reference_attention.next_token.split_loss import next_token_loss
from theorems.bounded import exact
from theorems.core.claim import Claim, Form
from theorems.core.claim_name import premise, sharper, stated_claim
from theorems.core.equality import equal
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.core.tolerances import EXACT
from theorems.next_token.limits import LIMIT_PREMISES, certify_limits
from theorems.next_token.ntp_extended_supports import loss_from_logits
from theorems.rounding.attention_at import Numbers

MASS = premise("loss-is-that-of-the-attention-on-the-label")
COMPONENTS = stated_claim("extended-supports-are-strong-components")
GRAPH_SVM = stated_claim("limit-solves-graph-svm")
EDGES = sharper("edges-imply-paths", when="where a path leads from a token to a token of another component")
POINTS = 10


@statement(
    "ntp-attention",
    "Next-token prediction by attention: strongly connected components and graph-SVM",
    source="2403.08081, Theorem 1 (as its code has it)",
    claims=(*LIMIT_PREMISES, MASS, COMPONENTS, GRAPH_SVM, EDGES),
    assumptions=(SEQUENCES, LABELS_WITHIN, INDEPENDENT_TOKENS),
    about=NextTokens,
    cases=independent_sequences,
    kernel=SVM_ONLY,
    needs={
        "sequences-given": "the statement is about sequences of tokens",
    },
)
def ntp_attention(case: NextTokens, under_test: Implementation) -> Iterator[Claim]:
    """Let tokens have embeddings e_v, and let sequence X_i have the last token k and a label y_i ∈ X_i.

    Let f_i(W) = Σ_{t : x_it = y_i} softmax(X_i W e_k)_t, L(W) = −(1/n)Σ log f_i(W). The priority graph of k has an edge
    from y_i to each other token of X_i, for all samples i that end in k. Write v ≍ w if v and w are in one strongly
    connected component, and v ⇒ w if a path leads from v to w and none back. Graph-SVM is min ‖W‖_F subject to (e_v −
    e_w)ᵀW e_k = 0 for v ≍ w and ≥ 1 for v ⇒ w, for every k.
    **Theorem.** For independent embeddings, W/‖W‖ → W_svm/‖W_svm‖ in training, where W_svm solves graph-SVM; the part
    of W in span{(e_v − e_w)e_kᵀ : v ≍ w} tends to the minimiser, in this span, of the loss restricted to the components
    of labels.

    Here: L has the form of ntp-extended-supports, with V_i the distinct tokens of X_i, m_iv their multiplicities and
    a_iv = vec(e_v e_kᵀ); Ŝ_i are the tokens of X_i in the label's component; W_svm = θ_mm. So the theorem follows from
    ntp-path, ntp-descent and ntp-finite-part, with rates, from any start, and even for any embeddings if Ŝ replaces the
    components.

    **Components ⊆ Ŝ** always: along a cycle the left sides of the inequalities (e_v − e_w)ᵀW e_k ≥ 0, which define the
    cone C of ntp-extended-supports, add up to 0. **Ŝ ⊆ components** for independent embeddings: there is a W with e_vᵀW
    e_k = −(length of the longest path of components that ends in the component of v).
    **Constraints** for every v ⇒ w follow from the constraints of the samples: along a path from v to w the left sides
    add up, and one of them is ≥ 1.
    """
    assert case.samples is not None
    assert case.labels is not None
    limits = yield from certify_limits(case.problem, under_test)
    rng = case.rng()
    W = rng.normal(size=(POINTS, case.problem.dimension)) * rng.choice([0.1, 1.0, 5.0], (POINTS, 1))
    mass = loss_by_attention(case, W)
    loss = np.asarray(under_test[next_token_loss](case.problem, W))
    carried = 2 * loss_from_logits(limits, exact(W)).error
    yield equal(MASS, exact(loss).widen(carried + 8 * EPS * np.abs(loss)), mass)
    components = under_test[component_sets](case.samples, case.labels)
    same = components.shape == limits.supports.sets.shape and bool((components == limits.supports.sets).all())
    detail = f"components {components.astype(int).tolist()}, Ŝ {limits.supports.sets.astype(int).tolist()}"
    yield Claim(COMPONENTS, Form.EXACT, 0.0 if same else -1.0, 0.0, EXACT, "" if same else detail)
    level, above = graph_margins(case, limits.svm.point)
    most = max((abs(x) for x in level), default=fmpq(0))
    yield Claim(GRAPH_SVM, Form.EXACT, -to_float(most), 0.0, EXACT, "the components are level")
    if above:
        yield Claim(EDGES, Form.EXACT, to_float(min(above) - 1), 0.0, EXACT, f"the least is {min(above)}")


def loss_by_attention(case: NextTokens, W: Float64[np.ndarray, "b D"]) -> Numbers:
    """Return L(W) = −(1/n) Σ log Σ_{t : x_it = y_i} softmax(X_i W e_k)_t at b points, computed token by token, (b,)."""
    assert case.samples is not None
    assert case.labels is not None
    d, total = case.embeddings.shape[1], exact(np.zeros(len(W)))
    for row, label in zip(case.samples, case.labels, strict=True):
        tokens = row[row != ABSENT]
        query: Any = np.einsum("bij,j->bi", exact(W.reshape(-1, d, d)), exact(case.embeddings[tokens[-1]]))
        logits = query @ exact(case.embeddings[tokens].T)
        label_logits = np.where(tokens == label, logits, -np.inf)
        total = total + np.logaddexp.reduce(logits, axis=-1) - np.logaddexp.reduce(label_logits, axis=-1)
    return total / len(case.samples)


def graph_margins(case: NextTokens, point: list[fmpq]) -> tuple[list[fmpq], list[fmpq]]:
    """Return (e_v − e_w)ᵀW e_k for all v ≍ w, and for all v ⇒ w, of all graphs k, as rationals (see the statement)."""
    assert case.samples is not None
    assert case.labels is not None
    e = rational_matrix(case.embeddings).tolist()
    d = len(e[0])
    level: list[fmpq] = []
    above: list[fmpq] = []
    rows = [[x for x in row if x != ABSENT] for row in case.samples.tolist()]
    for last in {row[-1] for row in rows}:
        heights = [
            sum((x * point[a * d + b] * y for a, x in enumerate(embedding) for b, y in enumerate(e[last])), fmpq(0))
            for embedding in e
        ]
        reached = paths_of([(row, int(y)) for row, y in zip(rows, case.labels, strict=True) if row[-1] == last], len(e))
        for v, w in np.argwhere(reached).tolist():
            (level if reached[w, v] else above).append(heights[v] - heights[w])
    return level, above


def paths_of(samples: list[tuple[list[int], int]], size: int) -> Bool[np.ndarray, "K K"]:
    """Return the mask, (size, size), of the pairs v ≠ w with a path from v to w, by Warshall's algorithm."""
    reached = np.zeros((size, size), dtype=bool)
    for tokens, label in samples:
        reached[label, tokens] = True
    for through in range(size):
        reached |= reached[:, [through]] & reached[[through]]
    np.fill_diagonal(reached, False)
    return reached
