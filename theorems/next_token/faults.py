"""Planted faults in next-token prediction: in supports, loss, NTP-SVM, finite part, runs, components and data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
from reference_attention.next_token.split_loss import next_token_loss, split_gradient
from reference_attention.next_token.subspace_split import Split
from reference_attention.svm.max_margin import MaxMargin
from theorems.faults.fault import Faults, Kind

SETS, RISK, GRADIENT, SVM = Faults(Kind.SETS), Faults(Kind.RISK), Faults(Kind.GRADIENT), Faults(Kind.SVM)
MIXING, RUN, DATA = Faults(Kind.MIXING), Faults(Kind.RUN), Faults(Kind.DATA)
NEXT, ENTROPY, ATTENTION, OVER = "ntp-extended-supports", "ntp-entropy", "ntp-attention", "ntp-overparameterized"
DESCENT, PATH, FINITE = "ntp-descent", "ntp-path", "ntp-finite-part"


@SETS.change("supports-not-extended", "Ŝ = S, although other alternatives tie", ATTENTION, extended_supports)
def _not_extended(supports: ExtendedSupports, problem: MasterProblem) -> ExtendedSupports:
    return replace(supports, sets=problem.supports, tying={}, levelling={})


@SETS.change("supports-of-everything", "Ŝ = V, although alternatives can be separated", NEXT, extended_supports)
def _all_tied(supports: ExtendedSupports, problem: MasterProblem) -> ExtendedSupports:
    level = [fmpq(0)] * problem.dimension
    tied = {pair: fmpq(1) for pair in problem.pairs if not problem.supports[pair]}
    return replace(supports, sets=problem.alternatives, separator=level, tying=tied)


def _change(problem: MasterProblem, **changed: Any) -> MasterProblem:
    return problem.with_counts(**({"counts": problem.counts} | changed))


@RISK.plant("loss-forgets-multiplicities", "the loss with all multiplicities m_jv = 1", ATTENTION, next_token_loss)
def _loss_without_times(right: Callable[..., Any], problem: MasterProblem, theta: Any) -> Any:
    return right(_change(problem, multiplicities=np.minimum(problem.multiplicities, 1)), theta)


@RISK.plant("loss-of-equal-contexts", "the loss with equal weights π_j of contexts", ENTROPY, next_token_loss)
def _loss_of_equal_contexts(right: Callable[..., Any], problem: MasterProblem, theta: Any) -> Any:
    """Compute the loss with all contexts equally frequent; the frequencies p of next tokens stay as they are."""
    totals = problem.counts.sum(axis=1)
    return right(_change(problem, counts=problem.counts * (np.lcm.reduce(totals) // totals)[:, None]), theta)


@RISK.plant("loss-of-most-frequent", "the loss with all targets p_j one-hot", ENTROPY, next_token_loss)
def _loss_of_most_frequent(right: Callable[..., Any], problem: MasterProblem, theta: Any) -> Any:
    """Compute the loss as if each context were always followed by its most frequent next token."""
    most = np.eye(problem.counts.shape[1], dtype=int)[np.argmax(problem.counts, axis=1)]
    return right(_change(problem, counts=most * problem.counts.sum(axis=1)[:, None]), theta)


@RISK.change("next-token-loss-off", "the loss is multiplied by 1 + ε", NEXT, next_token_loss, size=1e-6)
def _loss_off(loss: Any, size: float, *arguments: Any) -> Any:
    return loss * (1 + size)


@GRADIENT.change("gradient-in-f-off", "P_F∇L is multiplied by 1 + ε", NEXT, split_gradient, size=1e-6)
def _gradient_off(gradient: tuple[Any, Any], size: float, *arguments: Any) -> tuple[Any, Any]:
    along, away = gradient
    return along * (1 + size), away


@GRADIENT.plant("gradient-as-at-theta-star", "∇L is computed as if P_Fθ = θ_⋆", NEXT, split_gradient)
def _gradient_at_the_limit(right: Callable[..., Any], minimum: FiniteMinimum, x: Any, y: Any) -> Any:
    return right(minimum, np.zeros_like(x), y)


@SVM.change(
    "ntp-svm-without-ties",
    "NTP-SVM without its equalities (6a) within supports",
    PATH,
    next_token_svm,
    only=NextTokenSvm,
)
def _svm_without_ties(svm: NextTokenSvm, problem: MasterProblem, sets: Any) -> NextTokenSvm:
    """Solve NTP-SVM with margins for one token of each extended support Ŝ_j; its other tokens may have other logits."""
    excluded = [pair for pair in problem.pairs if not sets[pair]]
    alone = np.zeros_like(sets)
    alone[np.arange(len(sets)), problem.first] = True
    loose = separate_pairs(problem, excluded, alone) if excluded else None
    return replace(svm, point=list(loose.exact.p)) if isinstance(loose, MaxMargin) else svm


@SVM.change("ntp-svm-scaled", "θ_mm is multiplied by 1 + ε", PATH, next_token_svm, only=NextTokenSvm, size=1e-6)
def _svm_scaled(svm: NextTokenSvm, size: float, *arguments: Any) -> NextTokenSvm:
    return replace(svm, point=[rational(1 + size) * x for x in svm.point])


@SVM.change(
    "ntp-svm-dual-off",
    "the duals of NTP-SVM are multiplied by 1 + ε",
    PATH,
    next_token_svm,
    only=NextTokenSvm,
    size=1e-6,
)
def _svm_dual_off(svm: NextTokenSvm, size: float, *arguments: Any) -> NextTokenSvm:
    return replace(svm, duals={pair: rational(1 + size) * x for pair, x in svm.duals.items()})


@MIXING.plant("theta-star-of-equal-counts", "θ_⋆ as if each observed token had followed once", NEXT, finite_minimum)
def _minimum_of_equal_counts(right: Callable[..., FiniteMinimum], split: Split) -> FiniteMinimum:
    once = _change(split.problem, counts=np.minimum(split.problem.counts, 1))
    return FiniteMinimum(split, right(replace(split, problem=once)).point)


@MIXING.plant("theta-star-without-multiplicities", "θ_⋆ for multiplicities m_jv = 1", ATTENTION, finite_minimum)
def _minimum_without_times(right: Callable[..., FiniteMinimum], split: Split) -> FiniteMinimum:
    once = _change(split.problem, multiplicities=np.minimum(split.problem.multiplicities, 1))
    return FiniteMinimum(split, right(replace(split, problem=once)).point)


@MIXING.change("theta-star-off", "θ_⋆ is multiplied by 1 + ε", ENTROPY, finite_minimum, size=1e-6)
def _minimum_off(minimum: FiniteMinimum, size: float, split: Split) -> FiniteMinimum:
    return FiniteMinimum(split, [rational(1 + size) * x for x in minimum.point])


@MIXING.plant("compatible-if-uniform", "only equal counts are reported as compatible", OVER, compatible)
def _compatible_if_uniform(right: Callable[..., bool], problem: MasterProblem) -> bool:
    return all(len(set(row[row > 0].tolist())) == 1 for row in problem.counts)


@MIXING.plant("compatible-always", "any counts are reported as compatible", NEXT, compatible)
def _always_compatible(right: Callable[..., bool], problem: MasterProblem) -> bool:
    return True


@RUN.plant("next-token-step-too-long", "the step size is (1 + ε) η", DESCENT, next_token_descent, size=1e-6)
def _longer_step(right: Callable[..., SplitRun], size: float, *arguments: Any, step: float, **options: Any) -> SplitRun:
    return right(*arguments, step=step * (1 + size), **options)


@RUN.plant(
    "next-token-steps-normalized",
    "steps are normalized to the length η where they should not be, and the reverse",
    DESCENT,
    next_token_descent,
)
def _normalize(right: Callable[..., SplitRun], *arguments: Any, normalized: bool, **options: Any) -> SplitRun:
    return right(*arguments, normalized=not normalized, **options)


@RUN.plant("next-token-run-short", "the last iterate is missing", DESCENT, next_token_descent)
def _one_short(right: Callable[..., SplitRun], *arguments: Any, steps: int, **options: Any) -> SplitRun:
    return right(*arguments, steps=steps - 1, **options)


@RUN.change("finite-part-frozen", "P_Fθ stays at its start", FINITE, next_token_descent)
def _finite_part_frozen(run: SplitRun, minimum: FiniteMinimum, x: Any, y: Any, **options: Any) -> SplitRun:
    return SplitRun(np.broadcast_to(x, run.x.shape), run.y)


@RUN.change("next-token-path-on-ray", "the ray of θ_mm in place of the path", PATH, next_token_path)
def _path_on_ray(path: SplitRun, minimum: FiniteMinimum, svm: NextTokenSvm, multipliers: Any) -> SplitRun:
    """Replace each point of the path by the point of the ray θ_⋆ + rθ_mm whose part orthogonal to F is as long."""
    along = minimum.split.coordinates_of(svm.floats)[minimum.split.dimension :]
    long = np.linalg.norm(path.y, axis=2, keepdims=True) / np.linalg.norm(along)
    return SplitRun(np.zeros_like(path.x), long * along)


@RUN.change("next-token-path-off", "points of the path are turned by ε", PATH, next_token_path, size=1e-2)
def _path_off(path: SplitRun, size: float, *arguments: Any) -> SplitRun:
    """Rotate every point towards the first coordinate of F^⊥."""
    off = np.zeros_like(path.y)
    off[..., 0] = size * np.linalg.norm(path.y, axis=2)
    return SplitRun(path.x, path.y + off)


@RUN.change("next-token-path-at-one-radius", "the same point at all radii", PATH, next_token_path)
def _path_at_one_radius(path: SplitRun, *arguments: Any) -> SplitRun:
    """Return, for every multiplier, the point of the path for the least multiplier."""
    return replace(path, x=np.repeat(path.x[-1:], len(path.x), axis=0), y=np.repeat(path.y[-1:], len(path.y), axis=0))


@RUN.plant(
    "next-token-path-of-other-multipliers",
    "the path at the multipliers μ/(1 + ε)",
    PATH,
    next_token_path,
    size=1e-2,
)
def _path_of_other_multipliers(
    right: Callable[..., SplitRun], size: float, minimum: FiniteMinimum, svm: NextTokenSvm, multipliers: Any
) -> SplitRun:
    return right(minimum, svm, multipliers / (1 + size))


@SETS.change("components-weak", "weakly in place of strongly connected components", ATTENTION, component_sets)
def _weak_components(
    components: Bool[np.ndarray, "n K"], samples: Int64[np.ndarray, "n T"], labels: Int64[np.ndarray, "n"]
) -> Bool[np.ndarray, "n K"]:
    """Return weakly connected components (edges count in both directions); the tokens of a sequence are all in one."""
    sizes = [len({x for x in row if x != ABSENT}) for row in samples.tolist()]
    return np.arange(components.shape[1]) < np.array(sizes)[:, None]


@SETS.change("components-of-one-graph", "one priority graph for all last tokens", ATTENTION, component_sets)
def _one_graph(
    components: Bool[np.ndarray, "n K"], samples: Int64[np.ndarray, "n T"], labels: Int64[np.ndarray, "n"]
) -> Bool[np.ndarray, "n K"]:
    """Append the same new token to all sequences, which gives one graph in place of one per last token."""
    last = np.full((len(samples), 1), samples.max() + 1)
    return component_sets(np.concatenate([samples, last], axis=1), labels)[:, : components.shape[1]]


@DATA.spoil("contexts-merged", "the second context gets the embedding of the first", OVER, about=NextTokens)
def _merge_contexts(case: NextTokens) -> NextTokens:
    """Give the second context, or in data of sequences the second token, the embedding of the first."""
    h: Float64[np.ndarray, "m d"] = np.array(case.embeddings)
    h[1:2] = h[0]
    return case.replace(embeddings=h)
