"""Attention that predicts a token by its total softmax weight: its training problem, and its priority graph.

A sequence of tokens X_i with last token k attends with weights softmax(X_i W e_k), where e_v is the embedding of token
v. The total weight on the occurrences of v is the predicted probability of v. As a
:class:`.master_problem.MasterProblem`, a sequence is a context. Its alternatives are its distinct tokens v, with the
vectors a_iv = vec(e_v e_kᵀ) and the number of occurrences of v as multiplicity. The priority graph of k has the tokens
as nodes, and an edge from the label to every other token of each sequence that ends in k.

Reference: arXiv 2403.08081, Section 2 (its code: yixiao-huang/next-token-prediction).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from reference_attention.errors import InvalidInput
from reference_attention.next_token.master_problem import MasterProblem
from reference_attention.outer_keys import OuterKeys
from reference_attention.problem import checked_array

ABSENT = -1
"""The token id that fills up shorter sequences at their end."""


def attention_problem(
    embeddings: Float64[np.ndarray, "K d"], samples: Int64[np.ndarray, "n T"], labels: Int64[np.ndarray, "n"]
) -> MasterProblem:
    """Return the :class:`MasterProblem` of the samples, one context per sample, alternatives in the order of their ids.

    ``embeddings`` are the vectors e_v, ``samples`` the token ids of each sequence, filled up with :data:`ABSENT`, and
    ``labels`` the id of the token to predict after each sequence.

    Raises:
        InvalidInput: an id is unknown, a sequence is empty, or a label does not occur in its sequence.
    """
    e = checked_array("embeddings", embeddings, ("K", "d"))
    if samples.ndim != 2 or labels.shape != (len(samples),) or 0 in samples.shape:
        raise InvalidInput(f"labels: shape {labels.shape} for samples {samples.shape}; give one label per sequence.")
    if (samples < ABSENT).any() or (samples >= len(e)).any() or (labels < 0).any() or (labels >= len(e)).any():
        raise InvalidInput(f"samples: ids have to be 0 to {len(e) - 1}, with −1 after the end of shorter sequences.")
    rows = [np.array([x for x in row if x != ABSENT]) for row in samples.tolist()]
    if any(len(row) == 0 for row in rows):
        raise InvalidInput("samples: a sequence is empty; leave it out.")
    distinct = [np.unique(row, return_counts=True) for row in rows]
    for i, ((tokens_of_row, _), label) in enumerate(zip(distinct, labels.tolist(), strict=True)):
        if label not in tokens_of_row:
            raise InvalidInput(f"labels: {label} does not occur in sequence {i}; give a token of the sequence.")
    most = max(len(tokens) for tokens, _ in distinct)
    vectors = np.zeros((len(rows), most, e.shape[1]))
    counts = np.zeros((len(rows), most), dtype=np.int64)
    times = np.zeros_like(counts)
    for i, (tokens, repeats) in enumerate(distinct):
        vectors[i, : len(tokens)] = e[tokens]
        times[i, : len(tokens)] = repeats
        counts[i, int(np.searchsorted(tokens, labels[i]))] = 1
    return MasterProblem(OuterKeys(vectors, e[[row[-1] for row in rows]]), counts, times)


def component_sets(samples: Int64[np.ndarray, "n T"], labels: Int64[np.ndarray, "n"]) -> Bool[np.ndarray, "n K"]:
    """Return a mask of the distinct tokens of each sequence that are in the strongly connected component of its label.

    The components are those of the priority graph of the sequence's last token. SciPy computes them by Tarjan's
    algorithm.
    """
    rows = [[x for x in row if x != ABSENT] for row in samples.tolist()]
    distinct = [sorted(set(row)) for row in rows]
    out = np.zeros((len(rows), max(map(len, distinct))), dtype=bool)
    size = int(samples.max()) + 1
    for last in {row[-1] for row in rows}:
        members = [i for i, row in enumerate(rows) if row[-1] == last]
        edges = [(int(labels[i]), v) for i in members for v in distinct[i] if v != labels[i]]
        ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
        graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(size, size))
        _, component = connected_components(graph, directed=True, connection="strong")
        for i in members:
            out[i, : len(distinct[i])] = component[distinct[i]] == component[labels[i]]
    return out
