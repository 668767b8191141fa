"""Tokens with a query z_i per input: softmax weights are softmax(X_i W z_i), and the key-query weights W are trained.

References: *Transformers as Support Vector Machines*, (W-ERM).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from reference_attention.exact import rounded_product
from reference_attention.loss import Loss
from reference_attention.outer_keys import OuterKeys
from reference_attention.problem import Dataset, KeysAndScores, Problem, checked_array


@dataclass(frozen=True, eq=False, init=False)
class QueryDataset:
    """Tokens, a query z_i per input, labels and head: L(W) = (1/n) Σ_i ℓ(Y_i vᵀ X_iᵀ softmax(X_i W z_i)).

    Args:
        X: tokens, shape (n, T, d): a list, an array or a torch tensor, of which a read-only float64 copy is kept.
        queries: the query z_i of each input, shape (n, e): any vectors for cross-attention; for self-attention one of
            the tokens, for example ``X[:, 0]``.
        Y: labels ±1, shape (n,).
        v: head, shape (d,).
        loss: a :class:`Loss` or its name.

    Raises:
        InvalidInput: an entry is NaN or infinite, shapes do not fit together, T = 1 (there is nothing to select), a
            label is not ±1, or the loss is unknown.

    >>> from theorems import QueryDataset
    >>> data = QueryDataset(X=[[[1, 2], [3, 4]]], queries=[[1, 0.5]], Y=[1], v=[1, 0])
    >>> data.problem.keys  # vec(x zᵀ), so that a prompt on these keys is vec(W)
    array([[[1. , 0.5, 2. , 1. ],
            [3. , 1.5, 4. , 2. ]]])
    >>> data.problem.scores
    array([[1., 3.]])
    """

    X: Float64[np.ndarray, "n T d"]
    queries: Float64[np.ndarray, "n e"]
    Y: Float64[np.ndarray, "n"]
    v: Float64[np.ndarray, "d"]
    loss: Loss

    def __init__(
        self, X: ArrayLike, queries: ArrayLike, Y: ArrayLike, v: ArrayLike, loss: Loss | str = "logistic"
    ) -> None:
        """Check tokens, labels and head as :class:`Dataset` does, and that each input has a query; store them."""
        dataset = Dataset(X, Y, v, None, loss)
        for name in ("X", "Y", "v", "loss"):
            object.__setattr__(self, name, getattr(dataset, name))
        object.__setattr__(self, "queries", checked_array("queries", queries, (len(dataset.Y), "e")))

    @property
    def shape(self) -> tuple[int, int]:
        """Return (d, e), the shape of W."""
        return self.X.shape[2], self.queries.shape[1]

    @property
    def keys(self) -> OuterKeys:
        """Return the keys vec(x_it z_iᵀ), given by their factors, tokens and queries."""
        return OuterKeys(self.X, self.queries)

    @cached_property
    def problem(self) -> Problem:
        """Return the problem with keys vec(x_it z_iᵀ) and scores Y_i X_i v, whose prompt is vec(W).

        Each entry of keys and scores is the exact product, rounded once.
        """
        n, T, d = self.X.shape
        scores = self.Y[:, None] * rounded_product(self.X.reshape(n * T, d), self.v[:, None]).reshape(n, T)
        return Problem(self.keys, scores, self.loss)

    def with_queries_scaled(self, factor: float) -> QueryDataset:
        """Return the data with all queries multiplied by ``factor``; nothing is rounded if it is a power of two.

        On the new data, W/``factor`` gives the logits that W gives on these data.
        """
        return replace(self, queries=self.queries * factor)


def outer_keys_and_scores(data: QueryDataset) -> KeysAndScores:
    """Return keys vec(x_it z_iᵀ), (n, T, d·e), and scores Y_i X_i v, (n, T), exact products rounded once."""
    return data.problem.keys, data.problem.scores
