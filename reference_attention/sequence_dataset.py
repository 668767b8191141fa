"""Tokens with several queries per input, each of which sees some tokens only: sequence outputs, causal attention.

Each pair (i, k) of an input and a query z_ik is treated as an input of its own, with the keys vec(x_it z_ikᵀ) of the
tokens t that the query sees. The number of these tokens differs from pair to pair (it is k + 1 under a causal mask). A
token that is not seen cannot be replaced by a copy of another token, because the copy takes softmax weight. So the
pairs are grouped by the number of tokens that they see, and each group is a problem.

References: *Transformers as Support Vector Machines*, sequence outputs (appendix).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy.typing import ArrayLike

from reference_attention.errors import InvalidInput
from reference_attention.exact import rounded_product
from reference_attention.loss import Loss
from reference_attention.outer_keys import OuterKeys
from reference_attention.problem import Dataset, Problem, as_array, checked_array


@dataclass(frozen=True, eq=False)
class SequencePart:
    """The pairs (i, k) of an input and a query that see the same number T' of tokens, as the m inputs of a problem.

    Attributes:
        problem: the problem with keys vec(x_it z_ikᵀ) and scores Y_ik vᵀx_it of the tokens seen; its prompt is vec(W).
        pairs: the pair (i, k) of each input of the problem, shape (m, 2).
        tokens: the indices in X_i of the tokens of each input, shape (m, T').
        total: the number n·L of all pairs of the dataset, by which the risk of the dataset is divided.
    """

    problem: Problem
    pairs: Int64[np.ndarray, "m 2"]
    tokens: Int64[np.ndarray, "m t"]
    total: int

    @property
    def share(self) -> float:
        """Return the number of this part's pairs divided by the number of all pairs of the dataset.

        The risk of the dataset is the sum over parts of share times the part's risk, plus a constant from the pairs
        that see a single token.
        """
        return self.problem.n / self.total


@dataclass(frozen=True, eq=False, init=False)
class SequenceDataset:
    """Tokens, L queries per input, a label for each query, and a head.

    The risk is (1/nL) Σ_i Σ_k ℓ(Y_ik vᵀ X_iᵀ softmax(X_i W z_ik)), where the softmax is over the tokens that query k of
    input i sees. The pairs (i, k) that see the same number T' ≥ 2 of tokens form a :class:`SequencePart`.

    Args:
        X: tokens, shape (n, T, d): a list, an array or a torch tensor, of which a read-only float64 copy is kept.
        queries: the queries z_ik, shape (n, L, e); for self-attention the tokens, ``queries=X``.
        Y: labels ±1, shape (n, L).
        v: head, shape (d,).
        loss: a :class:`Loss` or its name.
        mask: whether query k of input i sees token t, booleans of shape (n, L, T); by default every query sees all
            tokens.
        causal: whether query k sees only the tokens 0 … k; it cannot be combined with a mask, and needs L = T.
        values: the products vᵀx_it, shape (n, T); if they are given, ``v`` is not used.

    Raises:
        InvalidInput: an entry is NaN or infinite, shapes do not fit together, a label is not ±1, the loss is unknown, a
            query sees no token, or no query sees two tokens.

    >>> from theorems import SequenceDataset
    >>> X = [[[1, 2], [3, 4], [5, 7]]]
    >>> data = SequenceDataset(X=X, queries=X, Y=[[1, 1, -1]], v=[1, 0], causal=True)
    >>> [(part.problem.T, part.pairs.tolist()) for part in data.parts]
    [(2, [[0, 1]]), (3, [[0, 2]])]
    """

    X: Float64[np.ndarray, "n T d"]
    queries: Float64[np.ndarray, "n L e"]
    Y: Float64[np.ndarray, "n L"]
    v: Float64[np.ndarray, "d"]
    loss: Loss
    mask: Bool[np.ndarray, "n L T"]
    values: Float64[np.ndarray, "n T"] | None

    def __init__(
        self,
        X: ArrayLike,
        queries: ArrayLike,
        Y: ArrayLike,
        v: ArrayLike,
        loss: Loss | str = "logistic",
        mask: ArrayLike | None = None,
        *,
        causal: bool = False,
        values: ArrayLike | None = None,
    ) -> None:
        """Check tokens and head as :class:`Dataset` does, then queries, labels, mask and values, and store them."""
        dataset = Dataset(X, np.ones(len(checked_array("X", X, ("n", "T", "d")))), v, None, loss)
        n, T, _ = dataset.X.shape
        z = checked_array("queries", queries, (n, "L", "e"))
        labels = checked_array("Y", Y, (n, z.shape[1]))
        if not (np.abs(labels) == 1).all():
            i, k = (int(x) for x in np.argwhere(np.abs(labels) != 1)[0])
            raise InvalidInput(f"Y: label {(i, k)} is {labels[i, k]:g}; labels must be -1 or +1.")
        for name in ("X", "v", "loss"):
            object.__setattr__(self, name, getattr(dataset, name))
        object.__setattr__(self, "queries", z)
        object.__setattr__(self, "Y", labels)
        object.__setattr__(self, "mask", _checked_mask(mask, causal, (n, z.shape[1], T)))
        object.__setattr__(self, "values", None if values is None else checked_array("scores", values, (n, T)))

    @property
    def shape(self) -> tuple[int, int]:
        """Return (d, e), the shape of W."""
        return self.X.shape[2], self.queries.shape[2]

    @property
    def trains_prompt(self) -> bool:
        """Return whether all queries equal the number 1 (e = 1), so that W is a prompt p, and keys are tokens."""
        return bool(self.queries.shape[2] == 1 and (self.queries == 1).all())

    @property
    def lengths(self) -> tuple[int, ...]:
        """Return the different numbers of tokens that queries see, in increasing order."""
        return tuple(np.unique(self.mask.sum(axis=2)).tolist())

    @property
    def total(self) -> int:
        """Return the number of pairs (i, k), n·L."""
        return self.Y.size

    @cached_property
    def parts(self) -> tuple[SequencePart, ...]:
        """Return the groups of pairs that see equally many tokens, two or more, by increasing number of tokens."""
        visible_counts = self.mask.sum(axis=2)
        return tuple(
            self.part(np.argwhere(visible_counts == count))
            for count in np.unique(visible_counts[visible_counts > 1]).tolist()
        )

    @cached_property
    def _values(self) -> Float64[np.ndarray, "n T"]:
        """Return vᵀx_it, shape (n, T): the given values, or the exact products, each rounded once."""
        if self.values is not None:
            return self.values
        n, T, d = self.X.shape
        return rounded_product(self.X.reshape(n * T, d), self.v[:, None]).reshape(n, T)

    def part(self, pairs: Int64[np.ndarray, "m 2"]) -> SequencePart:
        """Return the problem whose inputs are the given pairs (i, k), which must see the same number of tokens."""
        pairs = np.asarray(pairs, dtype=np.int64)
        i, k = pairs.T
        tokens = np.nonzero(self.mask[i, k])[1].reshape(len(pairs), -1).astype(np.int64)
        scores = self.Y[i, k][:, None] * self._values[i[:, None], tokens]
        keys = OuterKeys(self.X[i[:, None], tokens], self.queries[i, k])
        return SequencePart(Problem(keys, scores, self.loss), pairs, tokens, self.total)

    @property
    def problem(self) -> Problem:
        """Return the problem of the pairs that see the most tokens."""
        return self.parts[-1].problem

    def with_queries_scaled(self, factor: float) -> SequenceDataset:
        """Return the data with all queries multiplied by ``factor``; nothing is rounded if it is a power of two.

        On the new data, W/``factor`` gives the logits that W gives on these data.
        """
        return replace(self, queries=self.queries * factor)


def _checked_mask(mask: Any, causal: bool, shape: tuple[int, int, int]) -> Bool[np.ndarray, "n L T"]:
    """Return a read-only mask of the tokens that each query sees, from the arguments of :class:`SequenceDataset`."""
    _, length, tokens = shape
    if causal and mask is not None:
        raise InvalidInput("mask: causal=True is a mask already; give either mask or causal.")
    if causal and length != tokens:
        raise InvalidInput(f"causal: {length} queries and {tokens} tokens; give a query per token, or a mask.")
    if mask is None:
        visible = np.ones(shape, dtype=np.bool_)
        if causal:
            visible &= np.tri(tokens, dtype=np.bool_)
    else:
        raw = as_array("mask", mask, str(shape))
        if raw.shape != shape or not np.isin(raw, (0, 1)).all():
            raise InvalidInput(
                f"mask: dtype {raw.dtype} and shape {raw.shape} are not those of a mask; give booleans of shape"
                f" {shape}."
            )
        visible = raw.astype(np.bool_)
    counts = visible.sum(axis=2)
    if not counts.all():
        i, k = (int(x) for x in np.argwhere(counts == 0)[0])
        raise InvalidInput(f"mask: query {k} of input {i} sees no token; let it see at least one.")
    if (counts == 1).all():
        raise InvalidInput("mask: no query sees two tokens, which leaves nothing to select; let one see two.")
    visible.setflags(write=False)
    return visible
