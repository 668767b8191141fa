"""The facts of an explanation: which tokens attention selects on the data, why, and which theorems apply.

References: *Max-Margin Token Selection in Attention Mechanism*, Definitions 1 and 2, Theorems 1–8.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from generators.layer_weights import checkpoints_of
from reference_attention.errors import InvalidInput
from reference_attention.next_token.unwinnable_scores import ScoreSplit, score_split
from theorems.core.points import directions
from theorems.explanations.applicability import Applicability, CheckedAssumptions, check_assumptions
from theorems.explanations.factored_ends import TrainedEnd, trained_ends
from theorems.explanations.joint_end import JointEnd, check_trains, joint_end
from theorems.explanations.layer_state import LayerState, compare_with_largest, layer_state
from theorems.explanations.matrix_solutions import MatrixSolutions, matrix_solutions
from theorems.explanations.prompt_scale import REACH, prompt_scale
from theorems.explanations.ragged_problem import RaggedProblem, counted_tokens, weights_at, with_all_queries
from theorems.explanations.rule_ends import RuleEnd, rule_ends
from theorems.explanations.selection import (
    Chosen,
    Entry,
    FollowedFlow,
    chosen_tokens,
    entry,
    follow_flow,
    locally_optimal_choices,
)
from theorems.explanations.trained_run import TrainedRun, trained_run

START = 3.0
"""Norm of the random starts in units of ‖p_mm‖: at this norm softmax weights differ, and none is close to 0."""
NORMS = 3
"""Number of norms at which softmax weights are shown; each is ten times the one before."""
DRAWN = 60
"""Number of points of a path that are recorded for a drawing in the plane, at equal steps of the norm."""


@dataclass(frozen=True)
class Token:
    """Facts about one token.

    Attributes:
        input, token: i and t.
        score: γ_it.
        selected: whether the flow from p(0) selects the token; None where that could not be decided.
        globally_optimal: whether no token of the input scores higher.
        locally_optimal: whether the token belongs to some locally optimal α; None where that was not decided.
        margin: (k_iα_i − k_it)·p_mm(α) for the α of :attr:`Facts.about`; None for t = α_i or without p_mm(α).
        neighbour: whether the margin is exactly 1, over the rationals; None if p_mm(α) does not exist.
        dual: the token's dual weight λ_it in ATT-SVM(α); None if p_mm(α) does not exist.
        weights: the token's softmax weight along the flow at each of :attr:`Facts.norms`.
    """

    input: int
    token: int
    score: float
    selected: bool | None
    globally_optimal: bool
    locally_optimal: bool | None
    margin: float | None
    neighbour: bool | None
    dual: float | None
    weights: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Facts:
    """Facts about which tokens attention selects on given data, why, and which theorems apply.

    Attributes:
        name: the name of the data.
        case: the data.
        path: the gradient flow from the trained weights if these are given, otherwise from p(0).
        others: the flows from random starts.
        choices: the choices of one token per input, without duplicates: the optimal tokens, the selected ones, the
            tokens of largest weight at the trained weights, and the given ones.
        about: the choice of tokens whose p_mm defines margins, duals and neighbours; None if no choice has a p_mm.
        locally_optimal: every locally optimal α; None where there are too many choices to try.
        entry: where the flow enters the cone of Theorem 3; None if it is not known to enter it.
        norms: the norms ‖p‖ at which the softmax weights of tokens are given, shape (m,).
        tokens: the facts about each token.
        assumptions: for each choice of tokens the assumptions that were checked.
        statements: lemmas and theorems, and whether they apply.
        seed: the seed of the random starts.
        weights: if W is trained, the solutions of least Frobenius and nuclear norm for each separable choice.
        ends: where the flows on W and on (K, Q) end; empty without queries.
        split: the tokens that tie with optimal ones under every prompt that gives no token a larger logit than the
            optimal ones; None where all optimal tokens can be selected at once, or that was not decided.
        layer: the state of attention at the trained weights, if these are given.
        before: the flow from p(0), if the data have both a start and trained weights.
        rules: where rules of ``theorems bench`` lead from the start of the flow, if any were requested.
        run: the run of training, if the data have trained weights of several checkpoints.
        joint: the end of joint descent on head and prompt, if the head is to be trained.
    """

    name: str
    case: Case
    path: FollowedFlow
    others: tuple[FollowedFlow, ...]
    choices: tuple[Chosen, ...]
    about: Chosen | None
    locally_optimal: tuple[Chosen, ...] | None
    entry: Entry | None
    norms: Float64[np.ndarray, "m"]
    tokens: tuple[Token, ...]
    assumptions: tuple[CheckedAssumptions, ...]
    statements: tuple[Applicability, ...]
    seed: int
    weights: tuple[MatrixSolutions, ...] = ()
    ends: tuple[TrainedEnd, ...] = ()
    split: ScoreSplit | None = None
    layer: LayerState | None = None
    before: FollowedFlow | None = None
    rules: tuple[RuleEnd, ...] = ()
    run: TrainedRun | None = None
    joint: JointEnd | None = None

    @property
    def optimal(self) -> Chosen:
        """Return the tokens of highest score (the first one of each input)."""
        return self.choices[0]

    @property
    def selection(self) -> Chosen | None:
        """Return the tokens that the flow selects; None if it selects none, or the selection could not be decided."""
        alpha = self.path.selects
        return None if alpha is None else next(choice for choice in self.choices if np.array_equal(choice.alpha, alpha))

    @property
    def is_decided(self) -> bool:
        """Return whether the end of the flow :attr:`path` is decided."""
        return self.path.is_decided


def facts_of(
    case: Case, name: str, starts: int = 0, seed: int = 0, rules: Sequence[str] = (), train: str = ""
) -> Facts:
    """Compute everything about the data, see :class:`Facts`.

    Args:
        case: the data.
        name: the name of the data.
        starts: number of flows from random starts, besides the flow from p(0).
        seed: the seed of the random starts.
        rules: the names of optimisers of ``theorems bench`` to run from p(0).
        train: ``v`` to train the head with the prompt as well.

    Raises:
        InvalidInput: the head cannot be trained, or an option needs inputs of one length.
    """
    if (rules or train) and case.unfit_for(()):
        option = f"--rule: {rules[0]}" if rules else f"--train: {train}"
        raise InvalidInput(f"{option} needs inputs that keep the same number of tokens; leave the option out.")
    if train:
        check_trains(case, train)
    with warnings.catch_warnings():
        # Searches for refuting prompts reach norms at which numbers overflow; these numbers are not reported.
        warnings.simplefilter("ignore", RuntimeWarning)
        return _facts_of(case, name, starts, seed, rules, bool(train))


def _facts_of(case: Case, name: str, starts: int, seed: int, rules: Sequence[str], joint: bool) -> Facts:
    original, case = case, with_all_queries(case)
    problem = case.problem
    best = chosen_tokens(problem, "optimal", problem.optimal)
    checkpoints = checkpoints_of(case)
    weights = None if checkpoints is None else checkpoints.last
    layer = None if weights is None else layer_state(case, weights)
    start = np.zeros(problem.d) if case.start is None else np.array(case.start)
    before = start if weights is not None and case.start is not None else None
    start = start if weights is None else weights.prompt
    record = _norms_to_record(case, best, start)
    ragged = isinstance(problem, RaggedProblem)
    split = score_split(problem) if best.solution is None and not ragged else None
    path = follow_flow(problem, start, record, split)
    further_starts = START * prompt_scale(case, best) * directions(np.random.default_rng(seed), starts, problem.d)
    others = tuple(follow_flow(problem, p, record, split) for p in further_starts)
    choices = [best]
    trained = None if layer is None or layer.tied_inputs.size else layer.tokens
    for label, alpha in (("selected", path.selects), ("trained", trained), ("given", case.alpha)):
        if alpha is not None and not any(np.array_equal(alpha, choice.alpha) for choice in choices):
            choices.append(chosen_tokens(problem, label, alpha))
    ranked = sorted(choices, key=lambda choice: path.selects is None or not np.array_equal(choice.alpha, path.selects))
    about = next((choice for choice in ranked if choice.solution is not None), None)
    local = locally_optimal_choices(problem)
    norms, softmax = _weights(case, path, best if about is None else about, start)
    alpha_by_choice = {"optimal": None, "selected": path.selects, "given": case.alpha}
    cases = {
        name: case.replace(alpha=a, start=None)
        for name, a in alpha_by_choice.items()
        if a is not None or name == "optimal"
    }
    if ragged:
        cases = {"optimal": original}
    checked, statements = check_assumptions(cases, case.start)
    solutions = matrix_solutions(case, choices)
    if layer is not None and trained is not None:
        layer = compare_with_largest(
            layer, next(choice for choice in choices if np.array_equal(choice.alpha, trained)), solutions
        )
    return Facts(
        name,
        case,
        path,
        others,
        tuple(choices),
        about,
        None if local is None else tuple(local),
        entry(case, path),
        norms,
        tuple(_tokens(case, path, choices, about, local, softmax)),
        tuple(checked),
        tuple(statements),
        seed,
        solutions,
        () if ragged else trained_ends(case, path, weights),
        split,
        layer,
        None if before is None else follow_flow(problem, before, record, split),
        rule_ends(case, path, rules),
        trained_run(case, checkpoints, best if layer is None or layer.chosen is None else layer.chosen, split),
        joint_end(case, path.start) if joint else None,
    )


def _decades(size: float, start: Float64[np.ndarray, "d"]) -> Float64[np.ndarray, "m"]:
    """Return the first :data:`NORMS` powers of ten that are about ``size`` or more, and above ‖start‖, shape (m,)."""
    first = round(math.log10(size))
    begin = float(np.linalg.norm(start))
    if begin > 0:
        first = max(first, math.floor(math.log10(begin)) + 1)
    return np.array([10.0 ** (first + k) for k in range(NORMS)])


def _norms_to_record(case: Case, best: Chosen, start: Float64[np.ndarray, "d"]) -> Float64[np.ndarray, "m"]:
    """Return the norms at which the flow is recorded: powers of ten and, for d = 2, enough others for a drawing."""
    size = prompt_scale(case, best)
    norms = 10.0 ** np.arange(math.floor(math.log10(size)) - 2, math.floor(math.log10(size)) + 10)
    if case.problem.d != 2:
        return norms
    largest = float(np.linalg.norm(case.problem.keys, axis=-1).max())
    return np.union1d(norms, np.linspace(0, REACH * max(size, largest), DRAWN + 1)[1:])


def _weights(
    case: Case, path: FollowedFlow, about: Chosen, start: Float64[np.ndarray, "d"]
) -> tuple[Float64[np.ndarray, "m"], Float64[np.ndarray, "m n T"]]:
    """Return norms that the flow reaches (if it stops early, the last norm, too), and the softmax weights there."""
    flow = path.flow
    norms = [norm for norm in _decades(prompt_scale(case, about), start) if norm <= flow.norms[-1]]
    rows = [int(np.argmin(np.abs(flow.norms - norm))) for norm in norms]
    if len(rows) < NORMS:
        rows.append(len(flow.norms) - 1)
    points = flow.points[rows]
    return flow.norms[rows], weights_at(case.problem, points)


def _tokens(
    case: Case,
    path: FollowedFlow,
    choices: list[Chosen],
    about: Chosen | None,
    local: list[Chosen] | None,
    weights: Float64[np.ndarray, "m n T"],
) -> list[Token]:
    problem, svm = case.problem, None if about is None else about.solution
    local_choices = [choice.alpha for choice in (choices if local is None else local) if choice.locally_optimal]
    top = problem.scores.max(axis=1)
    tokens = []
    for i, t in np.argwhere(counted_tokens(problem)).tolist():
        is_local: bool | None = any(int(alpha[i]) == t for alpha in local_choices)
        is_chosen = about is not None and int(about.alpha[i]) == t
        tokens.append(
            Token(
                i,
                t,
                float(problem.scores[i, t]),
                _selects(path, i, t),
                bool(problem.scores[i, t] == top[i]),
                None if local is None and not is_local else is_local,
                None if svm is None or is_chosen else float(svm.margins[i, t]),
                None if svm is None else bool(svm.neighbours[i, t]),
                None if svm is None else float(svm.duals[i, t]),
                tuple(float(w) for w in weights[:, i, t]),
            )
        )
    return tokens


def _selects(path: FollowedFlow, i: int, t: int) -> bool | None:
    if path.stationary:
        return False
    if path.selects is not None:
        return int(path.selects[i]) == t
    if path.parts is not None:
        tied = path.parts.split.sets[i]
        return bool(tied[t] and tied.sum() == 1)
    return bool(path.largest[i, t]) if path.is_decided else None
