"""Faults in steepest descent in a norm, and in the largest margin in that norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import fmpq

from reference_attention.exact import products, to_float, to_floats
from reference_attention.loss import Array
from reference_attention.next_token.label_descent import label_descent, label_gradient
from reference_attention.next_token.master_problem import MasterProblem
from reference_attention.norms import Norm, Schatten, conjugate
from reference_attention.risk import ScaledGradient
from reference_attention.svm.norm_max_margin import NormMaxMargin, norm_max_margin
from reference_attention.training.steepest_descent import mirror_descent, steepest_descent, steepest_direction
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind

Options = dict[str, Any]
"""What a run of steepest descent is asked for."""


@dataclass(frozen=True)
class OtherRun:
    """Steepest descent of other options than asked for. Called with a size it makes the fault."""

    change: Callable[[Options, float], Options]
    size: float = 0.0

    def steepest_descent(self, problem: Any, start: Array, **asked: Any) -> Array:
        """As :func:`reference_attention.training.steepest_descent.steepest_descent`."""
        return steepest_descent(problem, start, **self.change(asked, self.size))

    def label_descent(self, problem: Any, start: Array, **asked: Any) -> Array:
        """As :func:`reference_attention.next_token.label_descent.label_descent`."""
        return label_descent(problem, start, **self.change(asked, self.size))

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        made = OtherRun(self.change, size)
        return REFERENCE.replace("", steepest_descent=made.steepest_descent, own={label_descent: made.label_descent})


@dataclass(frozen=True)
class OtherLabels:
    """The gradient of another loss of classification. Called with a size it makes the fault."""

    gradient: Callable[[MasterProblem, Array], ScaledGradient]

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", own={label_gradient: self.gradient})


@dataclass(frozen=True)
class OtherMirror:
    """Mirror descent of other options than asked for. Called with a size it makes the fault."""

    change: Callable[[Options, float], Options]
    size: float = 0.0

    def mirror_descent(self, problem: Any, start: Array, **asked: Any) -> Array:
        """As :func:`reference_attention.training.steepest_descent.mirror_descent`."""
        return mirror_descent(problem, start, **self.change(asked, self.size))

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", mirror_descent=OtherMirror(self.change, size).mirror_descent)


@dataclass(frozen=True)
class OtherMargin:
    """Another solution than that of the largest margin. Called with a size it makes the fault."""

    change: Callable[[NormMaxMargin, Any, float], NormMaxMargin | None]
    size: float = 0.0

    def norm_max_margin(self, keys: Any, alpha: Array, norm: float) -> NormMaxMargin | None:
        """As :func:`reference_attention.svm.norm_max_margin.norm_max_margin`."""
        right = norm_max_margin(keys, alpha, norm)
        return right and self.change(right, keys, self.size)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", norm_max_margin=OtherMargin(self.change, size).norm_max_margin)


def _dual_norm(asked: Options, size: float) -> Options:
    return {**asked, "norm": conjugate(asked["norm"])}


def _euclidean(asked: Options, size: float) -> Options:
    return {**asked, "norm": 2.0}


def _no_momentum(asked: Options, size: float) -> Options:
    return {**asked, "momentum": 0.0}


def _short_momentum(asked: Options, size: float) -> Options:
    return {**asked, "momentum": 0.25 * asked["momentum"]}


def _other_power(asked: Options, size: float) -> Options:
    return {**asked, "norm": asked["norm"] * (1 + size)}


def _longer_in_logs(asked: Options, size: float) -> Options:
    return {**asked, "log_step": asked["log_step"] + math.log1p(size)}


def _otherwise_normalized(asked: Options, size: float) -> Options:
    return {**asked, "normalized": not asked["normalized"]}


def _short_run(asked: Options, size: float) -> Options:
    return {**asked, "steps": asked["steps"] - 1}


def _longer(asked: Options, size: float) -> Options:
    return {**asked, "lengths": asked["lengths"] * (1 + size)}


def _constant(asked: Options, size: float) -> Options:
    return {**asked, "lengths": np.full_like(asked["lengths"], asked["lengths"][0])}


def _other_basis(right: NormMaxMargin, keys: Any, size: float) -> NormMaxMargin:
    """p as if the row of the largest dual were not there; moved until it is feasible again, where that can be."""
    if isinstance(right.norm, Schatten) and right.norm.power == 1:
        return right  # these rows have no factors
    worst = max(range(len(right.rows)), key=lambda j: right.exact_duals[j])
    others = [row for j, row in enumerate(right.rows) if j != worst]
    if not others:
        return right
    # One input that selects the origin has these rows.
    apart = np.array([[0.0] * len(right.exact_p), *([-to_float(x) for x in row] for row in others)])
    found = norm_max_margin(apart[None], np.zeros(1, dtype=np.int64), right.norm)
    if found is None or not (least := min(products(right.rows, found.exact_p))) > 0:
        return right
    return replace(right, exact_p=[x / least for x in found.exact_p])


def _other_norm(right: NormMaxMargin, keys: Any, size: float) -> NormMaxMargin | None:
    other = norm_max_margin(keys, right.alpha, 1.0 if right.norm == math.inf else math.inf)
    return other and replace(other, norm=right.norm)


def _shift(right: NormMaxMargin, keys: Any, size: float) -> NormMaxMargin:
    """A coordinate is larger than it has to be: margins of at least 1, and a longer p."""
    j = max(range(len(right.exact_p)), key=lambda k: abs(right.exact_p[k]))
    p = [x * (1 + fmpq(*float(size).as_integer_ratio())) if k == j else x for k, x in enumerate(right.exact_p)]
    least = min(products(right.rows, p))
    return replace(right, exact_p=[x / least for x in p]) if least > 0 else right


def _euclidean_duals(right: NormMaxMargin, keys: Any, size: float) -> NormMaxMargin | None:
    other = norm_max_margin(keys, right.alpha, 2.0)
    return other and replace(right, exact_duals=other.exact_duals)


def _equal_weights(problem: MasterProblem, theta: Array) -> ScaledGradient:
    """Every feature counts once."""
    once = problem.with_counts(np.sign(problem.counts))
    return label_gradient(once, theta)


def _of_the_others(problem: MasterProblem, theta: Array) -> ScaledGradient:
    """Weights of wrong classes that add up to 1: the softmax without the right one."""
    rows = np.array([to_floats(problem.differences[pair]) for pair in problem.pairs])
    logits = -(theta @ rows.T).reshape(len(theta), problem.contexts, -1)
    shares = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
    weights = np.array([to_float(x) for x in problem.weights])[:, None] * shares
    return ScaledGradient(np.zeros(len(theta)), -weights.reshape(len(theta), -1) @ rows)


def _newton_schulz(x: Array, norm: Norm) -> Array:
    """Five steps with Muon's coefficients, which leave singular values between about 0.7 and 1.2."""
    if not isinstance(norm, Schatten) or norm.power == 1:
        return steepest_direction(x, norm)
    matrices = norm.matrices(x)
    size = np.linalg.norm(matrices, axis=(-2, -1), keepdims=True)
    X = matrices / np.where(size > 0, size, 1.0)
    for _ in range(5):
        A = X @ np.swapaxes(X, -1, -2)
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
    return np.asarray(X.reshape(x.shape))


@dataclass(frozen=True)
class Bent:
    """U S^ε Vᵀ in units of the largest singular value, for the orthogonal factor U Vᵀ."""

    size: float

    def __call__(self, x: Array, norm: Norm) -> Array:
        """In place of :func:`reference_attention.training.steepest_descent.steepest_direction`."""
        if not isinstance(norm, Schatten) or norm.power == 1:
            return steepest_direction(x, norm)
        u, s, vt = np.linalg.svd(norm.matrices(x), full_matrices=False)
        bent = (s / np.where(s[..., :1] > 0, s[..., :1], 1.0)) ** self.size
        return np.asarray(((u * bent[..., None, :]) @ vt).reshape(x.shape))


def _schulz(asked: Options, size: float) -> Options:
    return {**asked, "direction": _newton_schulz}


def _bent(asked: Options, size: float) -> Options:
    return {**asked, "direction": Bent(size)}


def _negative_dual(right: NormMaxMargin, keys: Any, size: float) -> NormMaxMargin:
    return replace(right, exact_duals=[-x for x in right.exact_duals])


ONE_INPUT, MARGIN, MIRROR = "steepest-one-input", "steepest-from-a-margin", "mirror-one-input"
LABELS, MOMENTUM = "steepest-multiclass", "steepest-momentum"
STEEPEST_FAULTS = (
    Fault("steepest-in-the-dual-norm", Kind.RUN, "directions steepest in ‖·‖_q'", ONE_INPUT, OtherRun(_dual_norm)),
    Fault("steepest-is-euclidean", Kind.RUN, "normalized gradient descent, q = 2", ONE_INPUT, OtherRun(_euclidean)),
    Fault("orthogonal-factor-approximate", Kind.RUN, "Newton and Schulz's five steps", ONE_INPUT, OtherRun(_schulz)),
    Fault("orthogonal-factor-bent", Kind.RUN, "U S^ε Vᵀ for U Vᵀ", MARGIN, OtherRun(_bent), 0.1, "ε", 1e-6),
    Fault("momentum-forgotten", Kind.RUN, "M_t = ∇L, β = 0", MARGIN, OtherRun(_no_momentum)),
    Fault("momentum-too-short", Kind.RUN, "a quarter of β", MARGIN, OtherRun(_short_momentum)),
    Fault("steepest-step-too-long", Kind.RUN, "steps of (1 + ε) η", ONE_INPUT, OtherRun(_longer), 0.1, "ε"),
    Fault("steepest-step-constant", Kind.RUN, "η_0 at every step", ONE_INPUT, OtherRun(_constant)),
    Fault("norm-margin-of-another-basis", Kind.SVM, "p of all rows but one", ONE_INPUT, OtherMargin(_other_basis)),
    Fault("norm-margin-in-another-norm", Kind.SVM, "γ of ‖·‖_1 or ‖·‖_∞", ONE_INPUT, OtherMargin(_other_norm)),
    Fault("norm-margin-with-euclidean-duals", Kind.SVM, "λ of ‖·‖_2", MARGIN, OtherMargin(_euclidean_duals)),
    Fault("norm-margin-negative-duals", Kind.SVM, "−λ for λ", ONE_INPUT, OtherMargin(_negative_dual)),
    Fault(
        "norm-margin-off", Kind.SVM, "a coordinate of p is 1 + ε of itself", ONE_INPUT, OtherMargin(_shift), 0.1, "ε"
    ),
    Fault("label-weights-forgotten", Kind.RUN, "of the loss with π_i = 1/n", MOMENTUM, OtherLabels(_equal_weights)),
    Fault("label-softmax-of-the-others", Kind.RUN, "with s_iv = e^{−g·W}/x_i", LABELS, OtherLabels(_of_the_others)),
    Fault("mirror-of-another-power", Kind.RUN, "ψ of (1 + ε) q", MIRROR, OtherMirror(_other_power), 0.1, "ε"),
    Fault("mirror-step-too-long", Kind.RUN, "steps of (1 + ε) η", MIRROR, OtherMirror(_longer_in_logs), 0.1, "ε"),
    Fault("mirror-otherwise-normalized", Kind.RUN, "plain for normalized", MIRROR, OtherMirror(_otherwise_normalized)),
    Fault("mirror-one-step-short", Kind.RUN, "the last point is missing", MIRROR, OtherMirror(_short_run)),
)
"""Faults in steepest and mirror descent, and in the margin that it is compared with."""
