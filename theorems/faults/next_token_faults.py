"""Faults in next-token prediction: loss, extended supports, NTP-SVM, the finite part, runs, components, data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import fmpq
from jaxtyping import Bool, Float64, Int64

from generators.next_tokens import NextTokens
from reference_attention.exact import rational
from reference_attention.next_token.attention_samples import ABSENT, component_sets
from reference_attention.next_token.compatibility import compatible
from reference_attention.next_token.extended_supports import ExtendedSupports, extended_supports, separate_pairs
from reference_attention.next_token.finite_minimum import FiniteMinimum, finite_minimum
from reference_attention.next_token.master_problem import MasterProblem
from reference_attention.next_token.next_token_descent import SplitRun, next_token_descent
from reference_attention.next_token.next_token_path import next_token_path
from reference_attention.next_token.next_token_svm import NextTokenSvm, next_token_svm
from reference_attention.next_token.split import Split
from reference_attention.next_token.split_loss import next_token_loss, split_gradient
from reference_attention.svm.max_margin import MaxMargin
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind, right


@dataclass(frozen=True)
class InPlaceOf:
    """Size → a function that is called with the size and what the right one is called with, in its place."""

    function: Callable[..., Any]
    wrong: Callable[..., Any]
    size: float = 0.0

    def call(self, *given: Any, **options: Any) -> Any:
        """The wrong result."""
        return self.wrong(self.size, *given, **options)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", own={self.function: InPlaceOf(self.function, self.wrong, size).call})


def _change(problem: MasterProblem, **changed: Any) -> MasterProblem:
    return problem.with_counts(**({"counts": problem.counts} | changed))


def _equal_weights(problem: MasterProblem) -> MasterProblem:
    """Every context as often as any other, p as it is."""
    totals = problem.counts.sum(axis=1)
    return _change(problem, counts=problem.counts * (np.lcm.reduce(totals) // totals)[:, None])


def _loss_without_times(size: float, problem: MasterProblem, theta: Any) -> Any:
    return next_token_loss(_change(problem, multiplicities=np.minimum(problem.multiplicities, 1)), theta)


def _loss_of_equal_contexts(size: float, problem: MasterProblem, theta: Any) -> Any:
    return next_token_loss(_equal_weights(problem), theta)


def _loss_of_most_frequent(size: float, problem: MasterProblem, theta: Any) -> Any:
    """What followed most often counts alone."""
    most = np.argmax(problem.counts, axis=1)
    totals = problem.counts.sum(axis=1)
    return next_token_loss(
        _change(problem, counts=np.eye(problem.counts.shape[1], dtype=int)[most] * totals[:, None]), theta
    )


def _loss_off(size: float, problem: MasterProblem, theta: Any) -> Any:
    return next_token_loss(problem, theta) * (1 + size)


def _gradient_off(size: float, minimum: FiniteMinimum, x: Any, y: Any) -> Any:
    along, away = split_gradient(minimum, x, y)
    return along * (1 + size), away


def _gradient_at_the_limit(size: float, minimum: FiniteMinimum, x: Any, y: Any) -> Any:
    """As if P_Fθ were θ_⋆."""
    return split_gradient(minimum, np.zeros_like(x), y)


def _not_extended(size: float, problem: MasterProblem) -> ExtendedSupports:
    found = extended_supports(problem)
    return replace(found, sets=problem.supports, tying={}, levelling={})


def _all_tied(size: float, problem: MasterProblem) -> ExtendedSupports:
    found = extended_supports(problem)
    level = [fmpq(0)] * problem.dimension
    tied = {pair: fmpq(1) for pair in problem.pairs if not problem.supports[pair]}
    return replace(found, sets=problem.alternatives, separator=level, tying=tied)


def _svm_without_ties(size: float, problem: MasterProblem, sets: Any) -> Any:
    """Only z_j is put above what is ruled out; those of Ŝ need not be level."""
    found = next_token_svm(problem, sets)
    asked = [pair for pair in problem.pairs if not sets[pair]]
    alone = np.zeros_like(sets)
    alone[np.arange(len(sets)), problem.first] = True
    loose = separate_pairs(problem, asked, alone) if asked else found
    if not isinstance(found, NextTokenSvm) or not isinstance(loose, MaxMargin):
        return found
    return replace(found, point=list(loose.exact.p))


def _svm_scaled(size: float, problem: MasterProblem, sets: Any) -> Any:
    return _svm(problem, sets, rational(1 + size), point=True)


def _svm_dual_off(size: float, problem: MasterProblem, sets: Any) -> Any:
    return _svm(problem, sets, rational(1 + size), point=False)


def _svm(problem: MasterProblem, sets: Any, factor: fmpq, *, point: bool) -> Any:
    found = next_token_svm(problem, sets)
    if not isinstance(found, NextTokenSvm):
        return found
    if point:
        return replace(found, point=[factor * x for x in found.point])
    return replace(found, duals={pair: factor * x for pair, x in found.duals.items()})


def _minimum_of_equal_counts(size: float, split: Split) -> FiniteMinimum:
    once = _change(split.problem, counts=np.minimum(split.problem.counts, 1))
    found = finite_minimum(Split(once, split.sets, split.orthogonal, split.dimension))
    return FiniteMinimum(split, found.point)


def _minimum_without_times(size: float, split: Split) -> FiniteMinimum:
    once = _change(split.problem, multiplicities=np.minimum(split.problem.multiplicities, 1))
    return FiniteMinimum(split, finite_minimum(Split(once, split.sets, split.orthogonal, split.dimension)).point)


def _minimum_off(size: float, split: Split) -> FiniteMinimum:
    found = finite_minimum(split)
    return FiniteMinimum(split, [rational(1 + size) * x for x in found.point])


def _compatible_if_uniform(size: float, problem: MasterProblem) -> bool:
    return all(len(set(row[row > 0].tolist())) == 1 for row in problem.counts)


def _longer_step(size: float, *given: Any, step: float, **options: Any) -> SplitRun:
    return next_token_descent(*given, step=step * (1 + size), **options)


def _normalize(size: float, *given: Any, normalized: bool, **options: Any) -> SplitRun:
    return next_token_descent(*given, normalized=not normalized, **options)


def _one_short(size: float, *given: Any, steps: int, **options: Any) -> SplitRun:
    return next_token_descent(*given, steps=steps - 1, **options)


def _finite_part_frozen(size: float, minimum: FiniteMinimum, x: Any, y: Any, **options: Any) -> SplitRun:
    run = next_token_descent(minimum, x, y, **options)
    return SplitRun(np.broadcast_to(x, run.x.shape), run.y)


def _path_on_ray(size: float, minimum: FiniteMinimum, svm: NextTokenSvm, multipliers: Any) -> SplitRun:
    """θ_⋆ + rθ_mm, of the length of the path's point."""
    run = next_token_path(minimum, svm, multipliers)
    along = minimum.split.coordinates_of(svm.floats)[minimum.split.dimension :]
    long = np.linalg.norm(run.y, axis=2, keepdims=True) / np.linalg.norm(along)
    return SplitRun(np.zeros_like(run.x), long * along)


def _path_off(size: float, minimum: FiniteMinimum, svm: NextTokenSvm, multipliers: Any) -> SplitRun:
    """Every point turned towards the first coordinate of F^⊥."""
    run = next_token_path(minimum, svm, multipliers)
    off = np.zeros_like(run.y)
    off[..., 0] = size * np.linalg.norm(run.y, axis=2)
    return SplitRun(run.x, run.y + off)


def _path_at_one_radius(size: float, minimum: FiniteMinimum, svm: NextTokenSvm, multipliers: Any) -> SplitRun:
    """The point of the least multiplier, over and over."""
    run = next_token_path(minimum, svm, multipliers)
    return replace(run, x=np.repeat(run.x[-1:], len(run.x), axis=0), y=np.repeat(run.y[-1:], len(run.y), axis=0))


def _path_of_other_multipliers(size: float, minimum: FiniteMinimum, svm: NextTokenSvm, multipliers: Any) -> SplitRun:
    return next_token_path(minimum, svm, multipliers / (1 + size))


def _always_compatible(size: float, problem: MasterProblem) -> bool:
    return True


def _weak_components(
    size: float, samples: Int64[np.ndarray, "n T"], labels: Int64[np.ndarray, "n"]
) -> Bool[np.ndarray, "n K"]:
    """Edges count in both directions: all tokens of a sequence are in one component."""
    right_one = component_sets(samples, labels)
    sizes = [len({x for x in row if x != ABSENT}) for row in samples.tolist()]
    return np.arange(right_one.shape[1]) < np.array(sizes)[:, None]


def _one_graph(
    size: float, samples: Int64[np.ndarray, "n T"], labels: Int64[np.ndarray, "n"]
) -> Bool[np.ndarray, "n K"]:
    """One graph of all sequences, whatever token they end in: a further token ends each."""
    last = np.full((len(samples), 1), samples.max() + 1)
    found = component_sets(np.concatenate([samples, last], axis=1), labels)
    return found[:, : component_sets(samples, labels).shape[1]]


def _merge_contexts(case: NextTokens) -> NextTokens:
    """The second context, or token, has the first one's embedding."""
    h: Float64[np.ndarray, "m d"] = np.array(case.embeddings)
    h[1:2] = h[0]
    return case.replace(embeddings=h)


SUPPORTS, LOSS, GRADIENT = extended_supports, next_token_loss, split_gradient
NEXT, ATTENTION = "ntp-extended-supports", "ntp-attention"
OVER, DESCENT, PATH, FINITE = "ntp-overparameterized", "ntp-descent", "ntp-path", "ntp-finite-part"
KINDS = {
    extended_supports: Kind.SETS,
    component_sets: Kind.SETS,
    next_token_svm: Kind.SVM,
    finite_minimum: Kind.MIXING,
    compatible: Kind.MIXING,
    next_token_loss: Kind.RISK,
    split_gradient: Kind.GRADIENT,
    next_token_descent: Kind.RUN,
    next_token_path: Kind.RUN,
}
"""What a fault is in, by the function that it stands in for."""


def _fault(name: str, says: str, by: str, of: Any, wrong: Any, size: float = 0.0, unit: str = "") -> Fault:
    return Fault(name, KINDS[of], says, by, InPlaceOf(of, wrong), size, unit)


NEXT_TOKEN_FAULTS = (
    _fault("supports-not-extended", "Ŝ = S, whatever ties", ATTENTION, SUPPORTS, _not_extended),
    _fault("supports-of-everything", "Ŝ = V, whatever separates", NEXT, SUPPORTS, _all_tied),
    _fault("loss-forgets-multiplicities", "m = 1 in the loss", ATTENTION, LOSS, _loss_without_times),
    _fault("loss-of-equal-contexts", "π_j = 1/m in the loss", "ntp-entropy", LOSS, _loss_of_equal_contexts),
    _fault("loss-of-most-frequent", "p is one-hot in the loss", "ntp-entropy", LOSS, _loss_of_most_frequent),
    _fault("next-token-loss-off", "the loss is 1 + ε of itself", NEXT, LOSS, _loss_off, 1e-6, "relative error"),
    _fault("gradient-in-f-off", "P_F∇L is 1 + ε of itself", NEXT, GRADIENT, _gradient_off, 1e-6, "relative error"),
    _fault("gradient-as-at-theta-star", "∇L as if P_Fθ = θ_⋆", NEXT, GRADIENT, _gradient_at_the_limit),
    _fault("ntp-svm-without-ties", "NTP-SVM without (6a)", PATH, next_token_svm, _svm_without_ties),
    _fault("ntp-svm-scaled", "θ_mm is 1 + ε of itself", PATH, next_token_svm, _svm_scaled, 1e-6, "ε"),
    _fault("ntp-svm-dual-off", "its duals are 1 + ε of themselves", PATH, next_token_svm, _svm_dual_off, 1e-6, "ε"),
    _fault(
        "theta-star-of-equal-counts", "θ_⋆ as if all had followed once", NEXT, finite_minimum, _minimum_of_equal_counts
    ),
    _fault("theta-star-without-multiplicities", "θ_⋆ of m = 1", ATTENTION, finite_minimum, _minimum_without_times),
    _fault("theta-star-off", "θ_⋆ is 1 + ε of itself", "ntp-entropy", finite_minimum, _minimum_off, 1e-6, "ε"),
    _fault("compatible-if-uniform", "only equal counts are compatible", OVER, compatible, _compatible_if_uniform),
    _fault("compatible-always", "any counts are compatible", NEXT, compatible, _always_compatible),
    _fault("next-token-step-too-long", "steps of (1 + ε) η", DESCENT, next_token_descent, _longer_step, 1e-6, "ε"),
    _fault("next-token-steps-normalized", "steps of length η", DESCENT, next_token_descent, _normalize),
    _fault("next-token-run-short", "the last iterate is missing", DESCENT, next_token_descent, _one_short),
    _fault("finite-part-frozen", "P_Fθ stays where it was", FINITE, next_token_descent, _finite_part_frozen),
    _fault("next-token-path-on-ray", "the ray of θ_mm for the path", PATH, next_token_path, _path_on_ray),
    _fault("next-token-path-off", "turned by ε", PATH, next_token_path, _path_off, 1e-2, "ε"),
    _fault("next-token-path-at-one-radius", "one point for all radii", PATH, next_token_path, _path_at_one_radius),
    _fault(
        "next-token-path-of-other-multipliers",
        "the path at μ/(1 + ε)",
        PATH,
        next_token_path,
        _path_of_other_multipliers,
        1e-2,
        "ε",
    ),
    _fault("components-weak", "weakly connected components", ATTENTION, component_sets, _weak_components),
    _fault("components-of-one-graph", "one graph for all last tokens", ATTENTION, component_sets, _one_graph),
    Fault(
        "contexts-merged",
        Kind.DATA,
        "the second context is read with the embedding of the first",
        OVER,
        right,
        spoil=_merge_contexts,
        about=NextTokens,
    ),
)
"""Faults in what next-token prediction is computed with."""
