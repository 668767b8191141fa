"""Inputs with different numbers of tokens as one problem, for an explanation.

Arrays are rectangular, so the end of a shorter input is filled with copies of one of its tokens. Copies add no
constraint to ATT-SVM(α), unless they are copies of a chosen token α_i, and change no margin, no neighbour and no
largest score. But they get softmax weight, so softmax weights and the gradient are computed on the parts, each of which
has inputs of one length.

The functions in this module also accept a :class:`Problem`, whose inputs have one length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from generators.case import Case
from reference_attention.loss import Array, Loss
from reference_attention.outer_keys import OuterKeys
from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.risk import ScaledGradient, scaled_gradient, softmax_weights
from reference_attention.sequence_dataset import SequenceDataset, SequencePart
from reference_attention.svm.max_margin import Infeasible, MaxMargin


class RaggedProblem(Problem):
    """Inputs with different numbers of tokens, filled with copies.

    Attributes:
        pairs: the numbers (i, k) in the data of the input and query that make each input of this problem, shape (m, 2).
        positions: the number of each token in its input X_i; for a copy, the number of its original; shape (m, T).
        counted: whether a token is an original, not a copy; copies come last, shape (m, T).
        parts: the inputs grouped by their numbers of tokens.
    """

    pairs: Int64[np.ndarray, "m 2"]
    positions: Int64[np.ndarray, "m T"]
    counted: Bool[np.ndarray, "m T"]
    parts: Sequence[SequencePart]
    _data: SequenceDataset

    def __init__(self, data: SequenceDataset, alpha: Int64[np.ndarray, "m"] | None = None) -> None:
        """Pad each input with copies of its first token; if that is the chosen token α_i, of its second."""
        parts = data.parts
        longest = parts[-1].problem.T
        positions, scores, pairs = [], [], np.concatenate([part.pairs for part in parts])
        for part in parts:
            filling = ((0, 0), (0, longest - part.problem.T))
            positions.append(np.pad(part.tokens, filling, constant_values=-1))
            scores.append(np.pad(part.problem.scores, filling))
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        numbers, values = np.concatenate(positions)[order], np.concatenate(scores)[order]
        counted, rows = numbers >= 0, np.arange(len(order))
        copied = np.zeros(len(order), dtype=np.int64) if alpha is None else (alpha == 0).astype(np.int64)
        numbers = np.where(counted, numbers, numbers[rows, copied][:, None])
        values = np.where(counted, values, values[rows, copied][:, None])
        i, k = pairs[order].T
        tokens, queries = data.X[i[:, None], numbers], data.queries[i, k]
        super().__init__(tokens if data.trains_prompt else OuterKeys(tokens, queries), values, data.loss)
        attributes = {"pairs": pairs[order], "positions": numbers, "counted": counted, "parts": parts, "_data": data}
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    def beside(self, alpha: Int64[np.ndarray, "m"]) -> RaggedProblem:
        """Return the problem padded with copies of tokens that α does not choose, so that ATT-SVM(α) is unchanged."""
        return RaggedProblem(self._data, alpha)

    def selection_at(self, p: Float64[np.ndarray, "d"]) -> Int64[np.ndarray, "m"]:
        """Return the first token of largest weight of each input, shape (m,); copies are ignored."""
        return np.argmax(np.where(self.counted, self.keys @ p, -np.inf), axis=1).astype(np.int64)

    @property
    def queried(self) -> QueryDataset | None:
        """Return tokens, copies included, and query of each input; None if a prompt is trained."""
        data = self._data
        if data.trains_prompt:
            return None
        i, k = self.pairs.T
        return QueryDataset(data.X[i[:, None], self.positions], data.queries[i, k], data.Y[i, k], data.v, data.loss)

    @property
    def left_out(self) -> int:
        """Return the number of inputs left out because they have a single token, which has all weight."""
        return self._data.total - self.n

    def gradient(self, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        """Return ∇L at p as the mean over the parts; ``keys``, ``scores`` and ``loss`` are ignored."""
        gradients = [scaled_gradient(part.problem.keys, part.problem.scores, loss, p) for part in self.parts]
        scales = np.array([g.log_scale + np.log(part.share) for g, part in zip(gradients, self.parts, strict=True)])
        top = scales.max(axis=0)
        with np.errstate(invalid="ignore"):
            sizes = np.where(np.isneginf(scales), 0.0, np.exp(scales - top))
        return ScaledGradient(top, sum(size[..., None] * g.direction for size, g in zip(sizes, gradients, strict=True)))


def counted_tokens(problem: Problem) -> Bool[np.ndarray, "n T"]:
    """Return a mask of the tokens that are no copies, shape (n, T)."""
    return problem.counted if isinstance(problem, RaggedProblem) else np.ones(problem.scores.shape, dtype=bool)


def beside(problem: Problem, alpha: Int64[np.ndarray, "n"]) -> Problem:
    """Return a rectangular problem with the same ATT-SVM(α)."""
    return problem.beside(alpha) if isinstance(problem, RaggedProblem) else problem


def without_copies(svm: MaxMargin | Infeasible, problem: Problem) -> MaxMargin | Infeasible:
    """Remove the copies from a solution for :func:`beside`'s problem: add a copy's dual weight to its original's."""
    if isinstance(svm, Infeasible) or not isinstance(problem, RaggedProblem):
        return svm
    counted, rows = problem.counted, np.arange(problem.n)
    duals = np.where(counted, svm.duals, 0.0)
    duals[rows, (svm.alpha == 0).astype(np.int64)] += np.where(counted, 0.0, svm.duals).sum(axis=1)
    return replace(svm, duals=duals, neighbours=svm.neighbours & counted)


def weights_at(problem: Problem, p: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b n T"]:
    """Return the softmax weights of the tokens; zero at copies."""
    weights = softmax_weights(problem.keys, p)
    if not isinstance(problem, RaggedProblem):
        return np.asarray(weights)
    for part in problem.parts:
        inputs = (problem.pairs[:, None] == part.pairs).all(axis=2).argmax(axis=0)
        weights[..., inputs, :] = 0.0
        weights[..., inputs, : part.problem.T] = softmax_weights(part.problem.keys, p)
    return np.asarray(weights)


def with_all_queries(case: Case) -> Case:
    """Return sequences with several queries per input as data with one input per query."""
    if case.sequence is None:
        return case
    problem = RaggedProblem(case.sequence)
    if case.problem.n == case.sequence.total:
        return case.replace(queried=problem.queried)
    changed: dict[str, Any] = {"problem": problem, "queried": problem.queried, "positions": problem.positions}
    return case.replace(**changed)
