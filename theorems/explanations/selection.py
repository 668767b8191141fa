"""Choices of one token per input: the optimal ones, those that gradient flows select, the locally optimal ones.

Ties, neighbours and local optimality are decided over the rationals. A flow counts as selecting tokens only if its
direction tends to their p_mm; if that is not shown, the selection is undecided.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Bool, Float64, Int64

from generators.case import Case
from generators.chosen_tokens import separable_choices
from generators.margin_assumptions import in_cone
from reference_attention.directions import direction
from reference_attention.next_token.unwinnable_scores import ScoreSplit, SplitFlow, follow_split_flow
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.svm.max_margin import Infeasible, MaxMargin, locally_optimal, max_margin
from reference_attention.training.descent import Stop
from reference_attention.training.flow import Flow, gradient_flow
from theorems.benchmark.measurements import Limit, far, limit_of_flow
from theorems.explanations.ragged_problem import RaggedProblem, beside, counted_tokens, weights_at, without_copies
from theorems.token_selection.local_paths.invariant_cone import with_cone

MOST_CHOICES = 128
"""Largest number of choices of one token per input for which all locally optimal choices are listed."""
WITHIN = 0.99
"""A flow's first point whose 1 − cos to p_mm, in floats, is at most this share of the cone's μ is checked exactly."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """A choice of one token per input, with the solution of ATT-SVM for these tokens.

    Attributes:
        name: "optimal", "selected", "trained", "given" or "locally optimal".
        svm: p_mm(α), or the proof that there is none.
        locally_optimal: whether α is locally optimal by Definition 2; False without p_mm.
    """

    name: str
    svm: MaxMargin | Infeasible
    locally_optimal: bool

    @property
    def alpha(self) -> Int64[np.ndarray, "n"]:
        """Return the tokens α, shape (n,)."""
        return self.svm.alpha

    @property
    def solution(self) -> MaxMargin | None:
        """Return p_mm(α) where it exists."""
        return None if isinstance(self.svm, Infeasible) else self.svm


def chosen_tokens(problem: Problem, name: str, alpha: Int64[np.ndarray, "n"]) -> Chosen:
    """Solve ATT-SVM(α) exactly, and decide whether α, (n,), is locally optimal."""
    svm = without_copies(max_margin(beside(problem, alpha).exact_keys, alpha), problem)
    return Chosen(name, svm, not isinstance(svm, Infeasible) and locally_optimal(svm, problem.scores))


@dataclass(frozen=True, eq=False)
class FollowedFlow:
    """A gradient flow, and the tokens that it selects.

    Attributes:
        start: p(0), shape (d,).
        flow: the flow up to the norm 1e6 · max(‖p(0)‖, 1/``problem.key_scale``), unless it ends before.
        largest: mask of the tokens of largest weight at its end, ties included, decided exactly, shape (n, T).
        limit: p_mm of the tokens that the flow selects; or the reason why it selects none, or why the selection is
            undecided.
        parts: the finite part and the direction of the flow's limit, if no prompt selects all optimal tokens and both
            exist.
    """

    start: Float64[np.ndarray, "d"]
    flow: Flow
    largest: Bool[np.ndarray, "n T"]
    limit: Limit | str
    parts: SplitFlow | None = None

    @property
    def selects(self) -> Int64[np.ndarray, "n"] | None:
        """Return the tokens that the flow selects, shape (n,); None if it selects none, or if that is undecided."""
        return self.limit.svm.alpha if isinstance(self.limit, Limit) else None

    @property
    def stationary(self) -> bool:
        """Return whether the flow converges to a finite point."""
        return self.flow.stop is Stop.STATIONARY

    @property
    def final_tokens(self) -> Int64[np.ndarray, "n"]:
        """Return the first token of largest weight of each input at the end of the flow, shape (n,)."""
        return np.argmax(self.largest, axis=1)

    def off(self, problem: Problem) -> Float64[np.ndarray, "r n"]:
        """Return, at each recorded point, the sum of all weights but that of :attr:`final_tokens`, shape (r, n)."""
        weights = weights_at(problem, self.flow.points)
        return np.asarray(np.where(np.arange(problem.T) != self.final_tokens[:, None], weights, 0.0).sum(axis=-1))

    @property
    def tied_inputs(self) -> Int64[np.ndarray, "k"]:
        """Return the inputs in which several tokens have the largest weight at the end of the flow, (k,).

        Return no input if the flow was not followed to its last norm.
        """
        several = (self.largest.sum(axis=1) > 1) & self.flow.reached_norm
        return np.flatnonzero(several).astype(np.int64)

    @property
    def is_decided(self) -> bool:
        """Return whether the end of the flow is known: a finite point, a limit direction, both, or exact ties."""
        has_limit = isinstance(self.limit, Limit) or self.parts is not None
        return self.stationary or has_limit or self.tied_inputs.size > 0


def follow_flow(
    problem: Problem,
    start: Float64[np.ndarray, "d"],
    record: Float64[np.ndarray, "r"] | None = None,
    split: ScoreSplit | None = None,
) -> FollowedFlow:
    """Follow the flow from a start.

    Args:
        problem: the problem.
        start: p(0), shape (d,).
        record: norms at which points are recorded, besides eight norms per decade.
        split: the tokens that tie with optimal ones, if no prompt selects all optimal tokens; a flow that selects no
            tokens is then followed in two parts.
    """
    norm = far(problem, start)
    steps = np.geomspace(norm / 1e9, norm, 73)
    records = steps if record is None else np.union1d(steps, record)
    gradient = problem.gradient if isinstance(problem, RaggedProblem) else scaled_gradient
    flow = gradient_flow(problem, start, norm=norm, record=records, gradient=gradient)
    p = flow.final
    largest = counted_tokens(problem) & (direction(problem.keys, p).selected if p.any() else True)
    limit = limit_of_flow(beside(problem, problem.selection_at(p)), flow)
    if split is None or isinstance(limit, Limit) or flow.stop is Stop.STATIONARY:
        return FollowedFlow(start, flow, largest, limit)
    parts = follow_split_flow(split, flow, records, norm)
    if isinstance(parts, str):
        return FollowedFlow(start, flow, largest, f"no prompt selects all optimal tokens, and {parts}")
    heaviest = parts.weights == parts.weights.max(axis=1, keepdims=True)
    return FollowedFlow(start, parts.flow, heaviest, limit, parts)


def locally_optimal_choices(problem: Problem) -> list[Chosen] | None:
    """Return every locally optimal α, in lexicographic order; None if there are too many choices to try."""
    counts = counted_tokens(problem).sum(axis=1)
    if np.log(counts).sum() > np.log(MOST_CHOICES) * (1 + 1e-12):
        return None
    ragged = isinstance(problem, RaggedProblem)
    choices = map(np.array, product(*map(range, counts.tolist()))) if ragged else separable_choices(problem)
    every = (chosen_tokens(problem, "locally optimal", alpha) for alpha in choices)
    return [choice for choice in every if choice.locally_optimal]


@dataclass(frozen=True)
class Entry:
    """Entry of a flow into the cone of Theorem 3 around p_mm of the tokens that it selects.

    Attributes:
        norm: ‖p‖ at the first recorded point inside the cone.
        mu, radius: μ and R of the cone {1 − cos(p, p_mm) ≤ μ, ‖p‖ ≥ R}; the theorem holds for every start in it.
    """

    norm: float
    mu: float
    radius: float


def entry(case: Case, path: FollowedFlow) -> Entry | None:
    """Return where the flow enters the cone of Theorem 3, checked exactly; None if no recorded point is inside."""
    if isinstance(case.problem, RaggedProblem):
        return None  # the cone's constants are derived for inputs of one length
    if not isinstance(path.limit, Limit) or not locally_optimal(path.limit.svm, case.problem.scores):
        return None
    with_constants = with_cone(case.replace(alpha=path.limit.svm.alpha, start=None))
    if "cone_mu" not in with_constants.arrays:
        return None
    mu, radius = float(with_constants.arrays["cone_mu"]), float(with_constants.arrays["cone_radius"])
    apart = path.flow.one_minus_cosine(path.limit.svm.direction)
    inside = np.flatnonzero((path.flow.norms >= radius) & (apart <= WITHIN * mu))
    if not inside.size:
        return None
    point = np.array(path.flow.points[inside[0]])
    if in_cone(with_constants.replace(start=point)).holds is not True:
        return None
    return Entry(float(path.flow.norms[inside[0]]), mu, radius)
