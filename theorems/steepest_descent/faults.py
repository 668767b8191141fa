"""Planted faults in steepest descent, in mirror descent, and in the max-margin solution in a norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from flint import fmpq

from reference_attention.exact import products, to_float, to_floats
from reference_attention.loss import Array
from reference_attention.next_token.label_descent import label_descent, label_gradient
from reference_attention.next_token.master_problem import MasterProblem
from reference_attention.norms import Blocks, Norm, Schatten, conjugate
from reference_attention.risk import ScaledGradient
from reference_attention.svm.norm_max_margin import NormMaxMargin, norm_max_margin
from reference_attention.training.steepest_descent import mirror_descent, steepest_descent, steepest_direction
from theorems.faults.fault import Faults, Function, Kind

RUN, SVM = Faults(Kind.RUN), Faults(Kind.SVM)
ONE_INPUT, MARGIN, MIRROR = "steepest-one-input", "steepest-from-a-margin", "mirror-one-input"
LABELS, MOMENTUM = "steepest-multiclass", "steepest-momentum"
Options = dict[str, Any]
"""The type of the keyword options of a descent (step lengths, norm, momentum, …), by name."""
Change = Callable[..., Options]
"""The type of a function (options of a run, size of the fault if it has one) → faulty values of some options."""
DESCENTS = (steepest_descent, label_descent)


def _run(change: Change, right: Callable[..., Array], *arguments: Any, **options: Any) -> Array:
    *size, problem, start = arguments
    return right(problem, start, **options | change(options, *size))


def _options(
    name: str, says: str, caught_by: str, *descents: Callable[..., Array], **further: Any
) -> Callable[[Change], Change]:
    """Return a decorator that plants a fault: ``descents`` run with the options that the decorated function returns."""
    return RUN.plant(name, says, caught_by, *descents, through=_run, **further)


@_options(
    "steepest-in-the-dual-norm", "steps are steepest in the dual norm ‖·‖_q' in place of ‖·‖_q", ONE_INPUT, *DESCENTS
)
def _dual_norm(options: Options) -> Options:
    return {"norm": conjugate(options["norm"])}


@_options("steepest-is-euclidean", "normalized gradient descent in ‖·‖_2, whatever the norm", ONE_INPUT, *DESCENTS)
def _euclidean(options: Options) -> Options:
    return {"norm": 2.0}


def _run_along(direction: Callable[..., Array], right: Callable[..., Array], *arguments: Any, **options: Any) -> Array:
    *size, problem, start = arguments
    return right(problem, start, **options | {"direction": partial(direction, *size)})


def _direction(name: str, says: str, caught_by: str, **further: Any) -> Callable[[Function], Function]:
    """Return a decorator that plants a fault: both :data:`DESCENTS` take the steps that the decorated function returns.

    The decorated function maps (size of the fault if it has one, x, norm) to the step.
    """
    return RUN.plant(name, says, caught_by, *DESCENTS, through=_run_along, **further)


@_direction(
    "orthogonal-factor-approximate", "the orthogonal factor is approximated by five Newton–Schulz steps", ONE_INPUT
)
def _newton_schulz(x: Array, norm: Norm) -> Array:
    """Take five Newton–Schulz steps with Muon's coefficients, which bring singular values to about 0.7 to 1.2."""
    if not isinstance(norm, Schatten) or norm.power == 1:
        return steepest_direction(x, norm)
    matrices = norm.matrices(x)
    size = np.linalg.norm(matrices, axis=(-2, -1), keepdims=True)
    X = matrices / np.where(size > 0, size, 1.0)
    for _ in range(5):
        A = X @ np.swapaxes(X, -1, -2)
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
    return np.asarray(X.reshape(x.shape))


@_direction(
    "orthogonal-factor-bent",
    "U S^ε Vᵀ in place of the orthogonal factor U Vᵀ",
    MARGIN,
    size=0.1,
)
def _bent_factor(size: float, x: Array, norm: Norm) -> Array:
    """Return U S^ε Vᵀ in place of U Vᵀ for the matrix U S Vᵀ, with S divided by the largest singular value."""
    if not isinstance(norm, Schatten) or norm.power == 1:
        return steepest_direction(x, norm)
    u, s, vt = np.linalg.svd(norm.matrices(x), full_matrices=False)
    bent = (s / np.where(s[..., :1] > 0, s[..., :1], 1.0)) ** size
    return np.asarray(((u * bent[..., None, :]) @ vt).reshape(x.shape))


@_direction("blocks-transposed", "columns are normalised in place of rows, and rows in place of columns", LABELS)
def _transposed_blocks(x: Array, norm: Norm) -> Array:
    other = {"rows": "columns", "columns": "rows"}
    if isinstance(norm, Blocks):
        norm = Blocks(norm.power, other.get(norm.kind, norm.kind), norm.shape)
    return steepest_direction(x, norm)


@_direction("blocks-by-mean-square", "blocks are divided by their root mean square, not by their norm", LABELS)
def _longer_blocks(x: Array, norm: Norm) -> Array:
    step = steepest_direction(x, norm)
    if not isinstance(norm, Blocks):
        return step
    return np.asarray(step * (norm.members @ np.sqrt(norm.members.sum(axis=0))))


@_options("momentum-forgotten", "M_t = ∇L: no momentum", MARGIN, *DESCENTS)
def _no_momentum(options: Options) -> Options:
    return {"momentum": 0.0}


@_options("momentum-too-short", "momentum β/4 in place of β", MARGIN, *DESCENTS)
def _short_momentum(options: Options) -> Options:
    return {"momentum": 0.25 * options["momentum"]}


@_options("steepest-step-too-long", "the step length is (1 + ε) η", ONE_INPUT, *DESCENTS, size=0.1)
def _longer(options: Options, size: float) -> Options:
    return {"lengths": options["lengths"] * (1 + size)}


@_options("steepest-step-constant", "the step length is η_0 at every step", ONE_INPUT, *DESCENTS)
def _constant(options: Options) -> Options:
    return {"lengths": np.full_like(options["lengths"], options["lengths"][0])}


@SVM.change(
    "norm-margin-of-another-basis",
    "the solution p without the constraint of one row",
    ONE_INPUT,
    norm_max_margin,
    only=NormMaxMargin,
)
def _other_basis(right: NormMaxMargin, *arguments: Any) -> NormMaxMargin:
    """Solve without the constraint that has the largest dual, and scale p to margin 1 where p separates all tokens."""
    if isinstance(right.norm, Schatten) and right.norm.power == 1:
        return right  # The solver for the nuclear norm needs factors of the keys; a subset of the rows has none.
    worst = max(range(len(right.rows)), key=lambda j: right.exact_duals[j])
    others = [row for j, row in enumerate(right.rows) if j != worst]
    if not others:
        return right
    # An input with the keys 0 and −g_j, whose optimal key is 0, has the rows g_j.
    apart = np.array([[0.0] * len(right.exact_p), *([-to_float(x) for x in row] for row in others)])
    other = norm_max_margin(apart[None], np.zeros(1, dtype=np.int64), right.norm)
    if other is None or not (least := min(products(right.rows, other.exact_p))) > 0:
        return right
    return replace(right, exact_p=[x / least for x in other.exact_p])


@SVM.change(
    "norm-margin-in-another-norm",
    "the max-margin solution in another norm, ‖·‖_1 or ‖·‖_∞",
    ONE_INPUT,
    norm_max_margin,
    only=NormMaxMargin,
)
def _other_norm(right: NormMaxMargin, keys: Any, alpha: Array, norm: Norm) -> NormMaxMargin | None:
    other = norm_max_margin(keys, right.alpha, 1.0 if right.norm == math.inf else math.inf)
    return other and replace(other, norm=right.norm)


@SVM.change(
    "norm-margin-with-euclidean-duals",
    "the duals λ of the solution in ‖·‖_2",
    MARGIN,
    norm_max_margin,
    only=NormMaxMargin,
)
def _euclidean_duals(right: NormMaxMargin, keys: Any, alpha: Array, norm: Norm) -> NormMaxMargin | None:
    other = norm_max_margin(keys, right.alpha, 2.0)
    return other and replace(right, exact_duals=other.exact_duals)


@SVM.change("norm-margin-negative-duals", "duals −λ in place of λ", ONE_INPUT, norm_max_margin, only=NormMaxMargin)
def _negative_dual(right: NormMaxMargin, *arguments: Any) -> NormMaxMargin:
    return replace(right, exact_duals=[-x for x in right.exact_duals])


@SVM.change(
    "norm-margin-off",
    "a coordinate of p is multiplied by 1 + ε",
    ONE_INPUT,
    norm_max_margin,
    only=NormMaxMargin,
    size=0.1,
)
def _shift(right: NormMaxMargin, size: float, *arguments: Any) -> NormMaxMargin:
    """Enlarge the largest coordinate of p, and scale p to the least margin 1; then p is longer than the solution."""
    j = max(range(len(right.exact_p)), key=lambda k: abs(right.exact_p[k]))
    p = [x * (1 + fmpq(*float(size).as_integer_ratio())) if k == j else x for k, x in enumerate(right.exact_p)]
    least = min(products(right.rows, p))
    return replace(right, exact_p=[x / least for x in p]) if least > 0 else right


@RUN.plant("label-weights-forgotten", "the gradient of the loss with equal weights π_i", MOMENTUM, label_gradient)
def _equal_weights(right: Callable[..., ScaledGradient], problem: MasterProblem, theta: Array) -> ScaledGradient:
    """Compute the gradient as if every feature occurred once."""
    return right(problem.with_counts(np.sign(problem.counts)), theta)


@RUN.plant(
    "label-softmax-of-the-others",
    "the gradient with s_iv = e^{−g·W}/x_i in place of e^{−g·W}/(1 + x_i)",
    LABELS,
    label_gradient,
)
def _of_the_others(right: Callable[..., ScaledGradient], problem: MasterProblem, theta: Array) -> ScaledGradient:
    """Compute the gradient with a softmax over the wrong classes only, so that their weights add up to 1."""
    rows = np.array([to_floats(problem.differences[pair]) for pair in problem.pairs])
    logits = -(theta @ rows.T).reshape(len(theta), problem.contexts, -1)
    shares = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
    weights = np.array([to_float(x) for x in problem.weights])[:, None] * shares
    return ScaledGradient(np.zeros(len(theta)), -weights.reshape(len(theta), -1) @ rows)


@_options(
    "mirror-of-another-power",
    "the potential ψ with the power (1 + ε) q in place of q",
    MIRROR,
    mirror_descent,
    size=0.1,
)
def _other_power(options: Options, size: float) -> Options:
    return {"norm": options["norm"] * (1 + size)}


@_options("mirror-step-too-long", "the step size is (1 + ε) η", MIRROR, mirror_descent, size=0.1)
def _longer_in_logs(options: Options, size: float) -> Options:
    return {"log_step": options["log_step"] + math.log1p(size)}


@_options(
    "mirror-otherwise-normalized", "plain steps in place of normalized ones, and the reverse", MIRROR, mirror_descent
)
def _otherwise_normalized(options: Options) -> Options:
    return {"normalized": not options["normalized"]}


@_options("mirror-one-step-short", "the last point is missing", MIRROR, mirror_descent)
def _short_run(options: Options) -> Options:
    return {"steps": options["steps"] - 1}
