"""ReLU heads with capped scores, for which mixtures of tokens are optimal, and the limit of descent with such heads.

The head is h(x) = relu(vᵀx + c) − Σ_j b_j relu(w_jᵀx − θ_j), where vᵀx + c > 0 at all tokens, w_j is the token with the
j-th highest score, θ_j the weight at which its cap begins, and the cap b_j is slightly more than the lead of w_j's
score over that of the token that gets the remaining weight. So weight on w_j beyond θ_j lowers the value of the head.
Other tokens have much lower scores: while descent oscillates about the kinks at θ_j, their weights fall like 1/k with
the step k.

References: *Transformers as Support Vector Machines*, Section 6.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from generators.case import Case
from generators.finding import Finding, number
from generators.mixing_cases import orthonormal_tokens, separate_queries
from generators.numbers import Frame, integers
from generators.optimal_sets import HEAD_ARRAYS, head_of
from generators.query_assumptions import NO_QUERIES
from reference_attention.exact import rational_matrix
from reference_attention.heads import ACTIVATIONS
from reference_attention.query_dataset import QueryDataset
from reference_attention.training.relu_descent import ReluRun

RELU = [phi.name for phi in ACTIVATIONS].index("relu")
MOST = (2, 5, 6)
"""The largest number of inputs n, number of tokens T and dimension d."""
STEP, STEPS = 0.1, 2000
"""The step length η of normalized descent, in units of 1/max|key|, and the number of steps."""
SELECTED = 1e-3
"""The weight at the end of descent above which a token counts as having weight, as in the authors' code."""
WIDTH = 100
"""The number of last steps over which scores are averaged, because descent oscillates about the kinks of a head."""


@st.composite
def capped_head_cases(draw: DrawFn) -> Case:
    """Draw a case with orthonormal tokens and a head of the form in the module's docstring.

    Labels are +1, and the loss is logistic. A second input has the same tokens in another order, and another query.
    """
    n, T = draw(st.integers(1, MOST[0])), draw(st.sampled_from((4, 3, 5)))
    d = draw(st.integers(T, MOST[2]))
    tokens = draw(orthonormal_tokens(Frame(1, T, d, (1, *MOST[1:]))))[0]
    caps = draw(st.integers(1, 2 if T > 3 else 1))
    ahead = draw(st.lists(st.sampled_from((0.25, 0.5)), min_size=caps, max_size=caps))
    behind = draw(st.lists(st.sampled_from((8.0, 4.0)), min_size=T, max_size=T))
    scores = -np.cumsum([0.0, *ahead, behind[0], *([0.0] * T)])[:T]
    scores[caps + 1 :] = -np.array(behind[caps + 1 :]) - sum(ahead)
    shares = draw(st.sampled_from(((0.5, 0.25), (0.25, 0.5), (0.375, 0.375))))
    orders = [np.arange(T), np.argsort(draw(integers((T,), 0, 9, most=(MOST[1],))), kind="stable")][:n]
    X = np.stack([tokens[order] for order in orders])
    v = scores @ tokens
    units, weights = [X @ v - scores.min() + 1.0], [1.0]
    for j in range(caps):
        units.append(X @ tokens[j] - shares[j])
        # The cap exceeds the lead of token j over the best token without a cap. So if token j has more weight than its
        # threshold (share), yet more weight lowers the value of the head.
        weights.append(-(sum(ahead[j:]) + draw(st.sampled_from((0.25, 0.5)))))
    data = QueryDataset(X, separate_queries(draw, X), np.ones(n), v)
    head = (np.stack(units, axis=2), np.array(weights), np.full(caps + 1, float(RELU)), np.ones(n))
    arrays = MappingProxyType(dict(zip(HEAD_ARRAYS, head, strict=True)))
    return Case(data.problem, queried=data, arrays=arrays, seed=draw(st.integers(0, 2**32 - 1)))


def relu_head(case: Case) -> Finding:
    """Check that the head is a sum of ReLUs of affine functions of a token, and has the same labels as the data."""
    data = case.queried
    if data is None:
        return Finding(None, NO_QUERIES)
    if "head_features" not in case.arrays:
        return Finding(None, "the case has no nonlinear head; give head_features, head_weights and head_activations")
    head = head_of(case)
    if head.features.shape[:2] != data.X.shape[:2]:
        return Finding(None, f"head_features: shape {head.features.shape}; it has to begin with {data.X.shape[:2]}")
    if (head.activations != RELU).any() or not np.array_equal(head.labels, data.Y):
        return Finding(False, "a unit is no ReLU, or labels of the head are not those of the data")
    flat = data.X.reshape(-1, data.X.shape[2])
    tokens = np.concatenate([flat, np.ones((len(flat), 1))], axis=1)
    extended = np.concatenate([tokens, head.features.reshape(len(flat), -1)], axis=1)
    alone, together = (int(rational_matrix(rows).rank()) for rows in (tokens, extended))
    if alone < together:
        return Finding(
            False, f"features are no affine functions of the tokens: rank {alone} without, {together} with them"
        )
    return Finding(True, f"{len(head.weights)} units")


def masked_tokens_cost(case: Case) -> Finding:
    """Run normalized descent, and check that finally every token without weight scores below the tokens with weight.

    Scores are computed with the ReLU units that are active in the last steps, and averaged over these steps.
    """
    finding = relu_head(case)
    if not finding.holds:
        return Finding(None, finding.evidence)
    case = case.normalise()
    run = ReluRun.of(case.problem, head_of(case), STEP / case.problem.key_scale, STEPS)
    scores, sets = run.mean_scores(STEPS, WIDTH), run.weights(STEPS) > SELECTED
    least = np.where(sets, scores, np.inf).min(axis=1)
    most = np.where(sets, -np.inf, scores).max(axis=1)
    i = int(np.argmin(least - most))
    if not np.isfinite(most[i]):
        return Finding(True, "every token has weight")
    evidence = (
        f"input {i}: tokens with weight score {number(least[i], most[i])} or more, others up to {number(most[i])}"
    )
    return Finding(bool(least[i] > most[i]), evidence)
