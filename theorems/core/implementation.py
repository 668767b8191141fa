"""What is under test: the functions that a statement calls, bundled so that any of them can be replaced.

The reference is this package's own. A library author swaps in his kernel, a test plants a fault; the statements
never import :mod:`reference_attention.risk` or :mod:`reference_attention.svm.max_margin` directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, SupportsIndex, TypeVar

import numpy as np
from flint import fmpq
from jaxtyping import Bool, Float64, Int64

from reference_attention import risk as reference
from reference_attention.directions import Direction, direction
from reference_attention.former_name import FormerName
from reference_attention.loss import Array, Loss
from reference_attention.norms import Norm
from reference_attention.optimal_attention import OptimalAttention, optimal_attention
from reference_attention.outer_keys import Keys, OuterKeys
from reference_attention.paths.joint import Joint, joint_gradient
from reference_attention.paths.joint_path import Schedule
from reference_attention.paths.joint_search import JointMinimum, joint_minimiser
from reference_attention.paths.local_path import LocalPath, local_path
from reference_attention.paths.mixing_path import MixingPoint, mixing_path
from reference_attention.paths.nuclear_path import NuclearPath, nuclear_path
from reference_attention.paths.regularization_path import Path, regularization_path
from reference_attention.paths.scheduled_direction import critical_ratio, scheduled_direction
from reference_attention.problem import Dataset, Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.risk import ScaledGradient
from reference_attention.sequence_dataset import SequenceDataset, SequencePart
from reference_attention.sequence_risk import sequence_excess, sequence_parts
from reference_attention.svm.finite_part import Balls, finite_part, mixing_offset
from reference_attention.svm.general_svm import GeneralSvm, general_svm
from reference_attention.svm.label_svm import LabelSvm, label_svm, relaxed_max_margin
from reference_attention.svm.max_margin import Infeasible, MaxMargin, locally_optimal, max_margin
from reference_attention.svm.max_margin_sets import InfeasibleSets, MaxMarginSets, Solver, max_margin_sets
from reference_attention.svm.norm_max_margin import NormMaxMargin, norm_max_margin
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from reference_attention.svm.sequence_max_margin import (
    PartKeys,
    SequenceInfeasible,
    SequenceMaxMargin,
    sequence_max_margin,
)
from reference_attention.training.descent import Trajectory, gradient_descent, normalized_gradient_descent
from reference_attention.training.factored_descent import FactoredTrajectory, factored_gradient_descent
from reference_attention.training.factored_flow import FactoredFlow, factored_flow
from reference_attention.training.flow import Flow, gradient_flow
from reference_attention.training.joint_descent import JointTrajectory, head_gradient, joint_descent
from reference_attention.training.steepest_descent import mirror_descent, steepest_descent


def reference_log_smoothness(problem: Problem) -> float:
    """log L_p of Lemma 6 in terms of keys and scores."""
    return problem.log_smoothness


Function = TypeVar("Function", bound=Callable[..., Any])
KeysAndScores = tuple[Float64[np.ndarray, "n T d"], Float64[np.ndarray, "n T"]]


def reference_keys_and_scores(data: Dataset) -> KeysAndScores:
    """X_i Wᵀ and Y_i X_i v, each entry the exact product rounded once."""
    return data.problem.keys, data.problem.scores


def reference_outer_keys_and_scores(data: QueryDataset) -> KeysAndScores:
    """vec(x_it z_iᵀ) and Y_i X_i v, each entry the exact product rounded once."""
    return data.problem.keys, data.problem.scores


@dataclass(frozen=True)
class Implementation:
    """Softmax attention and its hard-margin SVM, as the statements see them.

    Attributes:
        name: shown in the report.
        weights: (keys, p) → softmax weights, (*b, n, T).
        risk: (keys, scores, loss, p) → L(p), (*b,).
        scaled_gradient: (keys, scores, loss, p) → ∇L as a log scale and a direction.
        log_excess_risk: (keys, scores, loss, p, alpha) → sign and logarithm of L(p) − L_α.
        max_margin: (keys or their factors, alpha) → the solution of ATT-SVM(α), or a certificate that there is none.
        nuclear_max_margin: (tokens and queries, alpha) → the solution of ATT-SVM⋆(α), of least nuclear norm, or a
            certificate that there is none.
        textbook_eps: 0 for gradients that keep their digits when the softmax saturates. A kernel that computes the
            textbook formula has absolute errors instead: give the spacing of its numbers at one (2⁻⁵² in float64),
            and finite-point statements allow that much.
        label_svm: signed features Y_i r_i → the solution of (SVM), or a certificate that there is none.
        relaxed_max_margin: (keys, alpha, support) → p_relax of Theorem 6, or a certificate that there is none.
        direction: (keys, q) → what the direction q selects, its margin and neighbours (Definition 3).
        max_margin_sets: (keys, mask of optimal tokens, max_margin) → the solutions of ATT-SVM', or certificates that
            there are none.
        log_smoothness: problem → log L_p, whose inverse bounds the step size of gradient descent.
        gradient_descent, normalized_gradient_descent: (problem, start, *, steps, …, gradient) → the iterates;
            a statement hands them :attr:`scaled_gradient`.
        gradient_flow: (problem, start, *, norm, …) → the curve of the flow at recorded norms.
        factored_flow, factored_gradient_descent: (data, K, Q, *, norm or steps, …) → the flow and the iterates on
            factors (K, Q) of W; a statement hands the latter :attr:`scaled_gradient`.
        regularization_path: (problem, norms, *, max_margin, …) → argmin of L over the balls of these radii.
        nuclear_path: (problem, solution of ATT-SVM⋆, ρ) → argmin of L(KQᵀ) over ½(‖K‖² + ‖Q‖²) ≤ ρC_⋆.
        local_path: (problem, q, alpha, norms, *, mu, radius, …) → argmin of L over a cone, between two radii.
        locally_optimal: (solution of ATT-SVM(α), scores) → whether α is locally optimal (Definition 2).
        keys_and_scores: tokens, labels, head and W → keys X Wᵀ, (n, T, d), and scores Y Xv, (n, T).
        outer_keys_and_scores: tokens, queries, labels and head → keys vec(x zᵀ), (n, T, d·e), and scores Y Xv, (n, T).
        sequence_parts: several queries per input → the problems of those that see the same number of tokens, in any
            order; each says which queries its inputs are.
        sequence_excess: (parts, p, log_excess_risk) → sign and logarithm of L(p) − L_⋆ over all of them.
        sequence_max_margin: (keys, alpha), each per part → the solution of ATT-SVM over all of them, or a proof that
            there is none.
        optimal_attention: (scores as rationals, λ) → the best attention s⋆ under the head vᵀx − λ‖x‖².
        general_svm: (factors of keys, sets as a mask, alpha) → the solution of Gen-SVM, or a certificate that there is
            none.
        finite_part: (solution of Gen-SVM, s⋆) → vec(W_fin), as balls.
        mixing_offset: (solution of Gen-SVM, s⋆) → the limit of the path's offset from the ray of W^mm, as balls.
        mixing_path: (factors of keys, s⋆, λ, solution of Gen-SVM, ρ) → argmin of L over ‖W‖ ≤ ρ‖W^mm‖.
        joint_minimiser: (joint, schedule, R, starts) → argmin of L(v, p) over both balls, and how it was found.
        joint_gradient: (joint, log r, w, p) → log L + rΓ at the head r v̄_mm + w, its derivatives in w and p.
        joint_descent: (signed tokens, keys, head, prompt, *, steps, …, weights, gradient, by_head) → the iterates.
        head_gradient: (signed tokens, weights, head) → ∇_v L as a log scale and a direction.
        norm_max_margin: (keys or their factors, alpha, norm) → a point of the largest margin in that norm, with duals.
        steepest_descent: (problem, starts, *, lengths, norm, momentum, gradient) → p(0) … p(t).
        mirror_descent: (problem, starts, *, steps, log_step, norm, normalized, gradient) → dual points z(0) … z(t).
        scheduled_direction, critical_ratio: (joint, c) → p(c), and (joint, p_relax) → c*, of the path along r = cR.
        own: functions of a paper's own that something else stands in for, see :meth:`in_place_of`.
    """

    name: str = "reference"
    weights: Callable[[Array, Array], Array] = reference.softmax_weights
    risk: Callable[[Array, Array, Loss, Array], Array] = reference.risk
    scaled_gradient: Callable[[Array, Array, Loss, Array], ScaledGradient] = reference.scaled_gradient
    log_excess_risk: Callable[[Array, Array, Loss, Array, Array], tuple[Array, Array]] = reference.log_excess_risk
    max_margin: Callable[[Keys, Int64[np.ndarray, "n"]], MaxMargin | Infeasible] = max_margin
    nuclear_max_margin: Callable[[OuterKeys, Int64[np.ndarray, "n"]], NuclearMaxMargin | Infeasible] = (
        nuclear_max_margin
    )
    textbook_eps: float = 0.0
    label_svm: Callable[[Float64[np.ndarray, "n d"]], LabelSvm | Infeasible] = label_svm
    relaxed_max_margin: Callable[
        [Float64[np.ndarray, "n T d"], Int64[np.ndarray, "n"], Bool[np.ndarray, "n"]], MaxMargin | Infeasible
    ] = relaxed_max_margin
    direction: Callable[[Float64[np.ndarray, "n T d"], Float64[np.ndarray, "d"]], Direction] = direction
    max_margin_sets: Callable[
        [Float64[np.ndarray, "n T d"], Bool[np.ndarray, "n T"], Solver], MaxMarginSets | InfeasibleSets
    ] = max_margin_sets
    log_smoothness: Callable[[Problem], float] = reference_log_smoothness
    gradient_descent: Callable[..., Trajectory] = gradient_descent
    normalized_gradient_descent: Callable[..., Trajectory] = normalized_gradient_descent
    gradient_flow: Callable[..., Flow] = gradient_flow
    factored_flow: Callable[..., FactoredFlow] = factored_flow
    factored_gradient_descent: Callable[..., FactoredTrajectory] = factored_gradient_descent
    regularization_path: Callable[..., Path] = regularization_path
    nuclear_path: Callable[..., NuclearPath] = nuclear_path
    local_path: Callable[..., LocalPath] = local_path
    locally_optimal: Callable[[MaxMargin, Float64[np.ndarray, "n T"]], bool] = locally_optimal
    keys_and_scores: Callable[[Dataset], KeysAndScores] = reference_keys_and_scores
    outer_keys_and_scores: Callable[[QueryDataset], KeysAndScores] = reference_outer_keys_and_scores
    sequence_parts: Callable[[SequenceDataset], Sequence[SequencePart]] = sequence_parts
    sequence_excess: Callable[..., tuple[Array, Array]] = sequence_excess
    sequence_max_margin: Callable[
        [Sequence[PartKeys], Sequence[Int64[np.ndarray, "_n"]]], SequenceMaxMargin | SequenceInfeasible
    ] = sequence_max_margin
    optimal_attention: Callable[[Sequence[Sequence[fmpq]], fmpq], OptimalAttention] = optimal_attention
    general_svm: Callable[[OuterKeys, Bool[np.ndarray, "n T"], Int64[np.ndarray, "n"]], GeneralSvm | Infeasible] = (
        general_svm
    )
    finite_part: Callable[[GeneralSvm, OptimalAttention], Balls] = finite_part
    mixing_offset: Callable[[GeneralSvm, OptimalAttention], Balls] = mixing_offset
    mixing_path: Callable[..., list[MixingPoint]] = mixing_path
    joint_minimiser: Callable[[Joint, Schedule, float, Array], JointMinimum] = joint_minimiser
    joint_gradient: Callable[[Joint, float, Array, Array], tuple[float, Array, Array]] = joint_gradient
    joint_descent: Callable[..., JointTrajectory] = joint_descent
    head_gradient: Callable[[Array, Array, Array], ScaledGradient] = head_gradient
    norm_max_margin: Callable[[Keys, Int64[np.ndarray, "n"], Norm], NormMaxMargin | None] = norm_max_margin
    steepest_descent: Callable[..., Float64[np.ndarray, "r b d"]] = steepest_descent
    mirror_descent: Callable[..., Float64[np.ndarray, "r b d"]] = mirror_descent
    scheduled_direction: Callable[[Joint, float], Array] = scheduled_direction
    critical_ratio: Callable[[Joint, MaxMargin], float] = critical_ratio
    own: Mapping[Callable[..., Any], Callable[..., Any]] = field(default_factory=dict, hash=False)

    def in_place_of(self, function: Function) -> Function:
        """What is under test of a function that is none of the above: itself, unless a fault stands in for it.

        A paper calls its own solver as ``under_test.in_place_of(solver)(…)``, and its fault is
        ``REFERENCE.replace("", own={solver: wrong_solver})``.
        """
        return self.own.get(function, function)  # type: ignore[return-value]

    def replace(self, name: str, **replaced: Any) -> Implementation:
        """This implementation with some functions replaced."""
        return replace(self, name=name, **replaced)

    but = FormerName("replace")

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        # The reference is told from an equal one by its identity, in other processes, too.
        return "REFERENCE" if self is REFERENCE else super().__reduce_ex__(protocol)


REFERENCE = Implementation()
"""This package's own attention and SVM."""
