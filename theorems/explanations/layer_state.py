"""State of attention at trained weights: softmax weights, margins, tokens of largest weight, distance from theory.

Logits are computed over the rationals from the given weights (for factors, from the exact product of K and Q). So ties
are decided exactly and margins are rounded once. For the softmax weight s of a token, 1 − s is computed as the sum of
    the other tokens' weights, without cancellation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import fmpq
from jaxtyping import Bool, Float64, Int64

from generators.case import Case
from generators.layer_weights import LayerWeights
from reference_attention.angles import one_minus_cosine
from reference_attention.exact import rational_matrix, to_float
from reference_attention.svm.max_margin import offending_neighbours
from theorems.explanations.matrix_solutions import MatrixSolutions
from theorems.explanations.ragged_problem import counted_tokens
from theorems.explanations.selection import Chosen


@dataclass(frozen=True)
class MarginInNorm:
    """The least margin of trained weights, divided by a norm, and its largest possible value.

    Attributes:
        of: the name of the norm, ``‖p‖``, ``‖W‖_F`` or ``‖W‖_⋆``.
        norm: the norm of the weights.
        margin: the least margin of the weights over all inputs, divided by ``norm``.
        largest: the largest such quotient over all p, or W, that give the same tokens the largest softmax weight.
        one_minus_cosine: 1 − cos to the p or W that attains ``largest``; None if its direction is not proven unique.
        undecided: why uniqueness is not proven; empty if it is proven.
    """

    of: str
    norm: float
    margin: float
    largest: float
    one_minus_cosine: float | None
    undecided: str = ""

    @property
    def share(self) -> float:
        """Return the margin as a share of the largest one."""
        return self.margin / self.largest


@dataclass(frozen=True, eq=False)
class LayerState:
    """State of attention at trained weights.

    Attributes:
        weights: the trained weights.
        margins: the largest logit minus the logit of each token, computed exactly and rounded once, shape (n, T); +inf
            where a shorter input has no token t.
        largest: the tokens of largest weight, ties included, exact, shape (n, T).
        softmax: the softmax weights s, shape (n, T).
        chosen: the tokens of largest weight with their max-margin direction; None where an input has a tie.
        in_norms: the least margin divided by ‖p‖, or by ‖W‖_F and by ‖W‖_⋆; empty where an input has a tie.
    """

    weights: LayerWeights
    margins: Float64[np.ndarray, "n T"]
    largest: Bool[np.ndarray, "n T"]
    softmax: Float64[np.ndarray, "n T"]
    chosen: Chosen | None = None
    in_norms: tuple[MarginInNorm, ...] = ()

    @property
    def tokens(self) -> Int64[np.ndarray, "n"]:
        """Return the first token of largest weight of each input, shape (n,)."""
        return np.argmax(self.largest, axis=1).astype(np.int64)

    @property
    def others(self) -> Bool[np.ndarray, "n T"]:
        """Return a mask of all tokens but the first of largest weight of each input, shape (n, T)."""
        return np.arange(self.largest.shape[1]) != self.tokens[:, None]

    @property
    def off(self) -> Float64[np.ndarray, "n"]:
        """Return, for each input, the sum of all softmax weights but that of :attr:`tokens`, shape (n,)."""
        return np.asarray((self.softmax * self.others).sum(axis=1))

    @property
    def tied_inputs(self) -> Int64[np.ndarray, "k"]:
        """Return the inputs in which several tokens have the largest weight, shape (k,)."""
        return np.flatnonzero(self.largest.sum(axis=1) > 1).astype(np.int64)

    @property
    def nearest(self) -> Int64[np.ndarray, "n"]:
        """Return the token of second largest weight of each input, shape (n,)."""
        return np.argmin(np.where(self.others, self.margins, np.inf), axis=1).astype(np.int64)

    @property
    def norm(self) -> float:
        """Return ‖p‖, or if W is trained ‖W‖_F."""
        return float(np.linalg.norm(self.weights.matrix))

    def one_minus_cosine(self, choice: Chosen) -> float | None:
        """Return 1 − cos between the weights and a choice's max-margin direction; None without one or at weights 0."""
        if choice.solution is None or not self.norm:
            return None
        return float(one_minus_cosine(self.weights.prompt, choice.solution.direction))

    def offending(self, case: Case) -> list[tuple[int, int]]:
        """Return the neighbours (i, t) that keep the chosen tokens from being locally optimal."""
        solution = None if self.chosen is None else self.chosen.solution
        return [] if solution is None else offending_neighbours(solution, case.problem.scores)

    def as_json(self) -> dict[str, Any]:
        """Return every number in full for JSON."""
        K, Q = (None, None) if self.weights.factors is None else self.weights.factors
        return {
            "weights": self.weights.name,
            "prompt": self.weights.prompt,
            "norm": self.norm,
            "norms_of_factors": None if K is None or Q is None else [np.linalg.norm(K), np.linalg.norm(Q)],
            "tokens": self.tokens,
            "tied_inputs": self.tied_inputs,
            "softmax": self.softmax,
            "margins": self.margins,
            "one_minus_s": self.off,
            "locally_optimal": None if self.chosen is None else self.chosen.locally_optimal,
            "in_norms": [vars(margin) | {"share": margin.share} for margin in self.in_norms],
        }


def layer_state(case: Case, weights: LayerWeights) -> LayerState:
    """Compute softmax weights and margins at the weights; :func:`compare_with_largest` adds max-margin solutions."""
    rows = [[max(logits) - x for x in logits] for logits in _exact_logits(case, weights)]
    counted = counted_tokens(case.problem)
    margins = np.where(counted, [[to_float(x) for x in row] for row in rows], np.inf)
    largest = counted & np.array([[x == 0 for x in row] for row in rows])
    powers = np.exp(-margins)
    return LayerState(weights, margins, largest, powers / powers.sum(axis=1, keepdims=True))


def _exact_logits(case: Case, weights: LayerWeights) -> list[list[fmpq]]:
    """Compute the logits k_it·p or x_itᵀ W z_i over the rationals: n lists of T."""
    n, count = case.problem.scores.shape
    data = case.queried
    tokens = case.problem.keys if data is None else data.X
    rows = (rational_matrix(tokens.reshape(n * count, -1)) * weights.exact).tolist()
    if data is None:
        return [[row[0] for row in rows[i * count : (i + 1) * count]] for i in range(n)]
    queries = rational_matrix(data.queries).tolist()
    return [[sum(map(fmpq.__mul__, rows[i * count + t], queries[i]), fmpq(0)) for t in range(count)] for i in range(n)]


def compare_with_largest(state: LayerState, chosen: Chosen, solutions: Iterable[MatrixSolutions]) -> LayerState:
    """Add to a state its least margin divided by each norm, and the largest possible value of this quotient.

    Args:
        state: a state without ties.
        chosen: the state's tokens of largest weight with their max-margin direction, which exists because the trained
            weights separate these tokens.
        solutions: if W is trained, the solutions of least norm, including those for the tokens ``chosen``.
    """
    least, solution = float(state.margins[state.others].min()), chosen.solution
    if solution is None:
        return state
    matrix = state.weights.matrix
    name = "‖p‖" if state.weights.name == "p" else "‖W‖_F"
    apart = state.one_minus_cosine(chosen)
    in_norms = [MarginInNorm(name, state.norm, least / state.norm, solution.margin, apart)]
    for trained in solutions:
        if trained.of == chosen.name:
            nuclear = float(np.linalg.svd(matrix, compute_uv=False).sum())
            target = trained.nuclear.W.ravel() / np.linalg.norm(trained.nuclear.W)
            apart = float(one_minus_cosine(matrix.ravel(), target)) if trained.nuclear.unique else None
            why = "" if trained.nuclear.unique else trained.nuclear.undecided
            in_norms.append(MarginInNorm("‖W‖_⋆", nuclear, least / nuclear, 1 / trained.nuclear.norm, apart, why))
    return replace(state, chosen=chosen, in_norms=tuple(in_norms))
