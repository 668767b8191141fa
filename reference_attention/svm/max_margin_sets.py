"""ATT-SVM': the max-margin problem when each input has a set O_i of optimal tokens, exact.

min ‖p‖ subject to max_{α∈O_i} min_{β∉O_i} (k_iα − k_iβ)·p ≥ 1 for every i. For one choice α_i ∈ O_i per input the
problem is convex: an ATT-SVM in which the other tokens of O_i impose no constraint. The feasible set of ATT-SVM' is the
union, over all choices, of the feasible sets of these problems. The union is not convex, and there can be several
solutions, the set G_mm. Every choice is solved over the rationals, so no tolerance is needed to decide which choices
are equally good.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix D, (ATT-SVM').
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import fmpq
from jaxtyping import Bool, Float64, Int64

from reference_attention.errors import InvalidInput
from reference_attention.exact import products, rational_matrix
from reference_attention.problem import checked_array
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin

Solver = Callable[[Float64[np.ndarray, "n T d"], Int64[np.ndarray, "n"]], MaxMargin | Infeasible]
"""A function that solves ATT-SVM for given keys (n, T, d) and chosen tokens (n,)."""

MOST_CHOICES = 4096
"""Largest number of choices of one optimal token per input that are enumerated; tokens with equal keys count once."""


@dataclass(frozen=True, eq=False)
class ChoiceSolution:
    """The solution of ATT-SVM' for one choice α_i ∈ O_i.

    Attributes:
        alpha: the chosen tokens, shape (n,).
        margins: (k_iα_i − k_iβ)·p for the non-optimal β, +inf at optimal tokens, shape (n, T).
        duals: the duals λ ≥ 0 with p = Σ λ_iβ (k_iα_i − k_iβ), zero at optimal tokens, shape (n, T).
        neighbours: mask of the tokens whose margin is exactly 1; False at optimal tokens, shape (n, T).
        svm: the solution of an ATT-SVM on only the inputs with a non-optimal token; the tokens of each input are first
            α, then the non-optimal tokens, one of them repeated where an input has fewer than others.
    """

    alpha: Int64[np.ndarray, "n"]
    margins: Float64[np.ndarray, "n T"]
    duals: Float64[np.ndarray, "n T"]
    neighbours: Bool[np.ndarray, "n T"]
    svm: MaxMargin

    @property
    def p(self) -> Float64[np.ndarray, "d"]:
        """Return the solution p, shape (d,)."""
        return self.svm.p

    @property
    def norm_squared(self) -> fmpq:
        """Return ‖p‖², exact."""
        return self.svm.exact.norm_squared


@dataclass(frozen=True, eq=False)
class MaxMarginSets:
    """The solutions of ATT-SVM' for all choices of one optimal token per input, the best first.

    Attributes:
        optimal: the sets O_i as a mask, shape (n, T).
        choices: the solution for each feasible choice, by increasing exact norm; of optimal tokens with equal keys only
            the first is chosen.
    """

    optimal: Bool[np.ndarray, "n T"]
    choices: tuple[ChoiceSolution, ...]

    @cached_property
    def solutions(self) -> tuple[ChoiceSolution, ...]:
        """Return G_mm: the distinct points p of least norm, each with the choice of tokens that p selects.

        If p selects several choices equally, any of these choices is returned.
        """
        best = [c for c in self.choices if c.norm_squared == self.choices[0].norm_squared]
        points: dict[tuple[Any, ...], list[ChoiceSolution]] = {}
        for choice in best:
            points.setdefault(tuple((int(x.p), int(x.q)) for x in choice.svm.exact.p), []).append(choice)
        # Several choices can have the same solution p; p selects the choice with the largest sum of margins.
        return tuple(max(same, key=_selected_logit) for same in points.values())

    @property
    def norm(self) -> float:
        """Return ‖p_mm‖, the least norm."""
        return self.choices[0].svm.norm

    @property
    def margin(self) -> float:
        """Return the margin Θ = 1/‖p_mm‖."""
        return 1.0 / self.norm

    @property
    def runner_up(self) -> ChoiceSolution | None:
        """Return the feasible choice with the second-least norm; None if all have the least norm."""
        least = self.choices[0].norm_squared
        return next((c for c in self.choices if c.norm_squared != least), None)


@dataclass(frozen=True, eq=False)
class InfeasibleSets:
    """A proof that no choice of optimal tokens can be separated from the other tokens.

    Attributes:
        optimal: the sets O_i as a mask, shape (n, T).
        refusals: proofs (by Farkas' lemma) that a choice of tokens for some of the inputs cannot be separated; together
            they rule out every choice.
    """

    optimal: Bool[np.ndarray, "n T"]
    refusals: tuple[Infeasible, ...]


def max_margin_sets(
    keys: Float64[np.ndarray, "n T d"], optimal: Bool[np.ndarray, "n T"], solver: Solver = max_margin
) -> MaxMarginSets | InfeasibleSets:
    """Solve ATT-SVM' for every choice of one optimal token per input.

    A choice for some of the inputs that is infeasible rules out all its completions.

    Args:
        keys: shape (n, T, d).
        optimal: the sets O_i as a mask, none of them empty, shape (n, T).
        solver: the solver of ATT-SVM.

    Raises:
        InvalidInput: keys that a Problem would refuse; a mask of another shape, with an empty set, or without any
            non-optimal token (ATT-SVM' has no constraint then); more than :data:`MOST_CHOICES` choices.
    """
    keys = checked_array("keys", keys, ("n", "T", "d"))
    optimal = _checked_sets(optimal, keys.shape[:2])
    inputs = [i for i in range(len(keys)) if not optimal[i].all()]
    options = {i: _distinct(keys[i], np.flatnonzero(optimal[i]).tolist()) for i in inputs}
    count = math.prod(len(tokens) for tokens in options.values())
    if count > MOST_CHOICES:
        raise InvalidInput(
            f"optimal: {count} choices of one optimal token per input are more than the {MOST_CHOICES} that are"
            " enumerated; give fewer inputs or smaller sets."
        )
    # Inputs with a single optimal token come first, so that a conflict among them is found only once.
    inputs.sort(key=lambda i: (len(options[i]), i))
    fixed = {i: options[i][0] for i in inputs if len(options[i]) == 1}
    search = _Search(keys, optimal, solver)
    completions = list(search.completions(fixed, [(i, options[i]) for i in inputs if i not in fixed]))
    if not completions:
        return InfeasibleSets(optimal, tuple(search.refusals))
    completions.sort(key=lambda c: c.norm_squared)
    return MaxMarginSets(optimal, tuple(completions))


class _Search:
    """A depth-first search over the choices of one optimal token per input."""

    def __init__(self, keys: Float64[np.ndarray, "n T d"], optimal: Bool[np.ndarray, "n T"], solver: Solver) -> None:
        self._keys, self._optimal, self._solver = keys, optimal, solver
        self._others = [np.flatnonzero(~row).tolist() for row in optimal]
        self.refusals: list[Infeasible] = []

    def completions(self, chosen: dict[int, int], open_inputs: list[tuple[int, list[int]]]) -> Iterator[ChoiceSolution]:
        """Yield the solutions for all feasible choices that agree with ``chosen``, a token for some of the inputs."""
        # With one input left, the problems with its tokens decide; solving without this input would save nothing.
        if chosen and len(open_inputs) != 1:
            solution = self._solve(chosen)
            if isinstance(solution, Infeasible):
                self.refusals.append(solution)
                return
            if not open_inputs:
                yield self._spread(chosen, solution)
                return
        (i, tokens), remaining = open_inputs[0], open_inputs[1:]
        for token in tokens:
            yield from self.completions({**chosen, i: token}, remaining)

    def _table(self, chosen: dict[int, int]) -> list[list[int]]:
        """Return α and the non-optimal tokens of each input in ``chosen``, one repeated to make lists equally long."""
        width = max(len(self._others[i]) for i in chosen)
        rows = [(a, self._others[i]) for i, a in sorted(chosen.items())]
        return [[a, *others, *others[:1] * (width - len(others))] for a, others in rows]

    def _solve(self, chosen: dict[int, int]) -> MaxMargin | Infeasible:
        """Solve the ATT-SVM of the chosen inputs, on keys in which α is the first token of each input."""
        table = np.array(self._table(chosen))
        reduced = self._keys[np.array(sorted(chosen))[:, None], table]
        return self._solver(reduced, np.zeros(len(chosen), dtype=np.int64))

    def _spread(self, chosen: dict[int, int], svm: MaxMargin) -> ChoiceSolution:
        """Return the solution for a complete choice, with margins and duals at the tokens of the original inputs."""
        shape = self._optimal.shape
        margins, duals = np.full(shape, np.inf), np.zeros(shape)
        neighbours = np.zeros(shape, dtype=np.bool_)
        alpha = np.argmax(self._optimal, axis=1).astype(np.int64)
        for r, (i, tokens) in enumerate(zip(sorted(chosen), self._table(chosen), strict=True)):
            alpha[i] = tokens[0]
            for c, t in enumerate(tokens[1:], start=1):
                margins[i, t] = svm.margins[r, c]
                duals[i, t] += svm.duals[r, c]
                neighbours[i, t] |= svm.neighbours[r, c]
        for array in (alpha, margins, duals, neighbours):
            array.setflags(write=False)
        return ChoiceSolution(alpha, margins, duals, neighbours, svm)


def exact_logits(keys: Float64[np.ndarray, "T d"], svm: MaxMargin) -> list[fmpq]:
    """Return the logit k_t·p of each token over the rationals."""
    return products(rational_matrix(keys).tolist(), svm.exact.p)


def _selected_logit(choice: ChoiceSolution) -> fmpq:
    """Return the exact sum of all margins, by which choices with the same solution p are compared."""
    svm = choice.svm
    n, tokens = svm.neighbours.shape
    return sum((svm.exact.margin(i, t) for i in range(n) for t in range(1, tokens)), fmpq(0))


def _distinct(keys: Float64[np.ndarray, "T d"], tokens: list[int]) -> list[int]:
    """Return the tokens whose key differs from the keys of all earlier tokens."""
    first: dict[tuple[float, ...], int] = {}
    for t in tokens:
        # Adding zero makes −0 and 0 the same.
        first.setdefault(tuple((keys[t] + 0.0).tolist()), t)
    return list(first.values())


def _checked_sets(optimal: Any, shape: tuple[int, ...]) -> Bool[np.ndarray, "n T"]:
    """Return the mask of optimal tokens, read-only; raise InvalidInput if it is none."""
    mask = np.asarray(optimal)
    if mask.dtype != np.bool_ or mask.shape != shape:
        raise InvalidInput(
            f"optimal: dtype {mask.dtype} and shape {mask.shape} are no mask of the tokens;"
            f" give booleans of shape {shape}."
        )
    if not mask.any(axis=1).all():
        i = int(np.argmin(mask.any(axis=1)))
        raise InvalidInput(f"optimal: input {i} has no optimal token; mark at least one.")
    if mask.all():
        raise InvalidInput("optimal: every token is optimal, so there is none to separate; mark fewer tokens.")
    mask = mask.copy()
    mask.setflags(write=False)
    return mask
