"""Faults in ATT-SVM⋆ and in the regularization path of (K, Q)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import arb

from reference_attention.loss import Array
from reference_attention.losses import loss_named
from reference_attention.outer_keys import OuterKeys
from reference_attention.paths.nuclear_path import NuclearPath, nuclear_path
from reference_attention.problem import Problem
from reference_attention.svm.balls import balls
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind

Solution = NuclearMaxMargin | Infeasible
Change = Callable[[NuclearMaxMargin, OuterKeys, float], Solution]


@dataclass(frozen=True)
class ChangedNuclear:
    """The reference solution, changed: (solution, keys, size) → solution. Calling it with a size makes the fault."""

    change: Change
    size: float = 0.0

    def solve(self, keys: OuterKeys, alpha: Any) -> Solution:
        """As :func:`reference_attention.svm.nuclear_max_margin.nuclear_max_margin`."""
        right = nuclear_max_margin(keys, alpha)
        return right if isinstance(right, Infeasible) else self.change(right, keys, self.size)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", nuclear_max_margin=ChangedNuclear(self.change, size).solve)


@dataclass(frozen=True)
class ChangedNuclearPath:
    """The right path, changed: (path, problem, solution, size) → path. Calling it with a size makes the fault."""

    change: Callable[[NuclearPath, Problem, NuclearMaxMargin, float], NuclearPath]
    size: float = 0.0

    def path(self, problem: Problem, svm: NuclearMaxMargin, rhos: Any) -> NuclearPath:
        """As :func:`reference_attention.paths.nuclear_path.nuclear_path`."""
        return self.change(nuclear_path(problem, svm, rhos), problem, svm, self.size)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", nuclear_path=ChangedNuclearPath(self.change, size).path)


def balance_factors(W: Array, rank: int | None = None) -> tuple[Array, Array]:
    """K and Q with KQᵀ = W and KᵀK = QᵀQ."""
    u, s, vt = np.linalg.svd(W, full_matrices=False)
    r = int(np.sum(s > 1e-12 * s[..., 0].max())) if rank is None else rank
    roots = np.sqrt(s)[..., None, :r]
    return u[..., :r] * roots, np.swapaxes(vt, -1, -2)[..., :r] * roots


def _frobenius(right: NuclearMaxMargin, keys: OuterKeys, size: float) -> Solution:
    """W^mm of least Frobenius norm, with its duals; its nuclear norm is called the value."""
    found = max_margin(keys, right.alpha)
    assert isinstance(found, MaxMargin)
    K, Q = balance_factors(found.p.reshape(right.W.shape))
    value = float((K**2).sum())
    return replace(right, K=K, Q=Q, duals=found.duals, margins=found.margins, bounds=(value, value))


def _swap_factors(right: NuclearMaxMargin, keys: OuterKeys, size: float) -> Solution:
    return replace(right, K=right.Q, Q=right.K)


def _rank_cut(right: NuclearMaxMargin, keys: OuterKeys, size: float) -> Solution:
    return replace(right, K=right.K[:, :-1], Q=right.Q[:, :-1])


def _double_columns(right: NuclearMaxMargin, keys: OuterKeys, size: float) -> Solution:
    """Each column twice, shorter: the same W, of twice the rank by the number of columns."""
    K, Q = (np.concatenate([x, x], axis=1) / np.sqrt(2) for x in (right.K, right.Q))
    return replace(right, K=K, Q=Q)


def _another_face(right: NuclearMaxMargin, keys: OuterKeys, size: float) -> Solution:
    """The face of the dual with all λ equal."""
    if right.exact is None:
        return right
    rows = right.rows
    sizes = np.ldexp(1.0, rows.p + rows.q)
    u, _, vt = np.linalg.svd((rows.a * sizes[:, None]).T @ rows.z, full_matrices=False)
    r = right.K.shape[1]
    return replace(right, exact=replace(right.exact, U1=balls(u[:, :r]), V1=balls(vt[:r].T)))


def _dual_off(right: NuclearMaxMargin, keys: OuterKeys, size: float) -> Solution:
    changed = np.array(right.duals)
    changed[np.unravel_index(np.argmax(changed), changed.shape)] *= 1 + size
    return replace(right, duals=changed)


def _value_off(right: NuclearMaxMargin, keys: OuterKeys, size: float) -> Solution:
    return replace(right, bounds=(right.bounds[0] * (1 + size), right.bounds[1] * (1 + size)))


def _out_of_balance(right: NuclearMaxMargin, keys: OuterKeys, size: float) -> Solution:
    """The same W from factors of which one is longer, as each normalised by itself."""
    return replace(right, K=right.K * (1 + size), Q=right.Q / (1 + size))


def _wider_gap(right: NuclearMaxMargin, keys: OuterKeys, size: float) -> Solution:
    """As if M had no further singular values."""
    return right if right.exact is None else replace(right, exact=replace(right.exact, gap=arb(1)))


def _more_injective(right: NuclearMaxMargin, keys: OuterKeys, size: float) -> Solution:
    if right.exact is None:
        return right
    return replace(right, exact=replace(right.exact, injectivity=right.exact.injectivity * (1 + size)))


def _tenth_of_gap(right: NuclearMaxMargin, keys: OuterKeys, size: float) -> Solution:
    return right if right.exact is None else replace(right, exact=replace(right.exact, gap=right.exact.gap / 10))


def _tenth_of_tau(right: NuclearMaxMargin, keys: OuterKeys, size: float) -> Solution:
    if right.exact is None:
        return right
    return replace(right, exact=replace(right.exact, injectivity=right.exact.injectivity / 10))


def _support_lost(right: NuclearMaxMargin, keys: OuterKeys, size: float) -> Solution:
    if right.exact is None:
        return right
    return replace(right, exact=replace(right.exact, support=right.exact.support[1:]))


def _without_a_constraint(right: NuclearMaxMargin, keys: OuterKeys, size: float) -> Solution:
    """That of the largest dual, weakened 1024-fold."""
    i, t = np.unravel_index(np.argmax(right.duals), right.duals.shape)
    weaker, best = np.array(keys.tokens), keys.tokens[i, right.alpha[i]]
    weaker[i, t] = best + 1024 * (weaker[i, t] - best)
    return nuclear_max_margin(OuterKeys(weaker, keys.queries), right.alpha)


def _infeasible(right: NuclearMaxMargin, keys: OuterKeys, size: float) -> Solution:
    n, T, _ = keys.shape
    return Infeasible(right.alpha, np.full((n, T), 1.0 / (n * T)), {})


def _with_points(path: NuclearPath, svm: NuclearMaxMargin, W: Array) -> NuclearPath:
    """The path with other W; offsets follow."""
    K, Q = balance_factors(W, path.K.shape[2])
    return replace(path, K=K, Q=Q, offsets=W - path.rho[:, None, None] * svm.W)


def _on_the_ray(path: NuclearPath, problem: Problem, svm: NuclearMaxMargin, size: float) -> NuclearPath:
    return _with_points(path, svm, path.rho[:, None, None] * svm.W)


def _half_the_radius(path: NuclearPath, problem: Problem, svm: NuclearMaxMargin, size: float) -> NuclearPath:
    other = nuclear_path(problem, svm, path.rho / 2)
    return _with_points(path, svm, other.K @ np.swapaxes(other.Q, -1, -2))


def _twice_the_radius(path: NuclearPath, problem: Problem, svm: NuclearMaxMargin, size: float) -> NuclearPath:
    other = nuclear_path(problem, svm, path.rho * 2)
    return _with_points(path, svm, other.K @ np.swapaxes(other.Q, -1, -2))


def _at_one_radius(path: NuclearPath, problem: Problem, svm: NuclearMaxMargin, size: float) -> NuclearPath:
    W = path.K[:1] @ np.swapaxes(path.Q[:1], -1, -2)
    return _with_points(path, svm, np.repeat(W, len(path.rho), axis=0))


def _leaves_radii_out(path: NuclearPath, problem: Problem, svm: NuclearMaxMargin, size: float) -> NuclearPath:
    """The last point alone is said to be found."""
    return replace(path, reasons=(*("it was given up" for _ in path.reasons[1:]), path.reasons[-1]))


def _other_scores(path: NuclearPath, problem: Problem, svm: NuclearMaxMargin, size: float) -> NuclearPath:
    """The first non-optimal score falls by a share of its gap."""
    scores, (i, t) = np.array(problem.scores), (int(svm.rows.inputs[0]), int(svm.rows.tokens[0]))
    scores[i, t] -= size * (scores[i].max() - scores[i, t])
    return nuclear_path(Problem(problem.keys, scores, problem.loss), svm, path.rho)


def _another_loss(path: NuclearPath, problem: Problem, svm: NuclearMaxMargin, size: float) -> NuclearPath:
    name = "correlation" if problem.loss.name != "correlation" else "exponential"
    return nuclear_path(Problem(problem.keys, problem.scores, loss_named(name)), svm, path.rho)


def _of_frobenius(path: NuclearPath, problem: Problem, svm: NuclearMaxMargin, size: float) -> NuclearPath:
    """The ray of W^mm of least Frobenius norm, cut to the rank at hand."""
    found = max_margin(problem.exact_keys, svm.alpha)
    assert isinstance(found, MaxMargin)
    W = found.p.reshape(svm.W.shape)
    radius = path.rho * svm.norm / np.linalg.norm(W, ord="nuc")
    return _with_points(path, svm, radius[:, None, None] * W)


def _ends_early(path: NuclearPath, problem: Problem, svm: NuclearMaxMargin, size: float) -> NuclearPath:
    """ρ ε beside the minimum, within the ball."""
    W = path.K @ np.swapaxes(path.Q, -1, -2)
    moved = W + size * np.linalg.norm(W, axis=(1, 2), keepdims=True) * np.roll(W, 1, axis=2) / svm.norm
    shrunk = path.rho * svm.norm / np.linalg.svd(moved, compute_uv=False).sum(axis=1)
    return _with_points(path, svm, np.minimum(shrunk, 1.0)[:, None, None] * moved)


def _too_large(path: NuclearPath, problem: Problem, svm: NuclearMaxMargin, size: float) -> NuclearPath:
    """‖K‖² + ‖Q‖² ≤ R, with ½ forgotten, the other way round."""
    return replace(path, K=path.K * np.sqrt(2), Q=path.Q * np.sqrt(2))


SVM = "tsvm-nuclear-path"

NUCLEAR_FAULTS = (
    Fault("nuclear-is-frobenius", Kind.SVM, "W^mm of least Frobenius norm", SVM, ChangedNuclear(_frobenius)),
    Fault("nuclear-factors-swapped", Kind.SVM, "Wᵀ: K and Q change places", SVM, ChangedNuclear(_swap_factors)),
    Fault("nuclear-rank-cut", Kind.SVM, "K and Q without their last column", SVM, ChangedNuclear(_rank_cut)),
    Fault("nuclear-columns-doubled", Kind.SVM, "each column of K and Q twice", SVM, ChangedNuclear(_double_columns)),
    Fault("nuclear-another-face", Kind.SVM, "U1, V1 of another dual", SVM, ChangedNuclear(_another_face)),
    Fault(
        "nuclear-dual-off",
        Kind.SVM,
        "the largest λ is off by a factor 1 + ε",
        SVM,
        ChangedNuclear(_dual_off),
        1e-3,
        "ε",
    ),
    Fault("nuclear-value-off", Kind.SVM, "C_⋆ is off by a factor 1 + ε", SVM, ChangedNuclear(_value_off), 1e-3, "ε"),
    Fault(
        "nuclear-out-of-balance",
        Kind.SVM,
        "K(1 + ε) and Q/(1 + ε), so that ½(‖K‖² + ‖Q‖²) > ‖W‖_⋆",
        SVM,
        ChangedNuclear(_out_of_balance),
        1e-3,
        "ε",
    ),
    Fault("nuclear-gap-of-one", Kind.SVM, "g = 1", "tsvm-rank", ChangedNuclear(_wider_gap)),
    Fault("nuclear-tau-off", Kind.SVM, "τ is off by a factor 1 + ε", SVM, ChangedNuclear(_more_injective), 1e-3, "ε"),
    Fault("nuclear-gap-too-small", Kind.SVM, "g/10 for g", SVM, ChangedNuclear(_tenth_of_gap)),
    Fault("nuclear-tau-too-small", Kind.SVM, "τ/10 for τ", SVM, ChangedNuclear(_tenth_of_tau)),
    Fault("nuclear-support-lost", Kind.SVM, "a constraint is left out of S", SVM, ChangedNuclear(_support_lost)),
    Fault(
        "nuclear-without-a-constraint",
        Kind.SVM,
        "that of the largest λ is lost",
        SVM,
        ChangedNuclear(_without_a_constraint),
    ),
    Fault(
        "nuclear-always-infeasible", Kind.SVM, "ATT-SVM⋆ is always called infeasible", SVM, ChangedNuclear(_infeasible)
    ),
    Fault("nuclear-path-on-the-ray", Kind.RUN, "ρW_⋆ instead of the path", SVM, ChangedNuclearPath(_on_the_ray)),
    Fault("nuclear-path-at-half-the-radius", Kind.RUN, "the path at R/2", SVM, ChangedNuclearPath(_half_the_radius)),
    Fault("nuclear-path-at-twice-the-radius", Kind.RUN, "the path at 2R", SVM, ChangedNuclearPath(_twice_the_radius)),
    Fault(
        "nuclear-path-at-one-radius",
        Kind.RUN,
        "the point at the first radius is returned for all",
        SVM,
        ChangedNuclearPath(_at_one_radius),
    ),
    Fault(
        "nuclear-path-leaves-radii-out",
        Kind.RUN,
        "a point at the largest radius alone",
        SVM,
        ChangedNuclearPath(_leaves_radii_out),
    ),
    Fault("nuclear-path-of-another-loss", Kind.RUN, "the path of another loss", SVM, ChangedNuclearPath(_another_loss)),
    Fault(
        "nuclear-path-of-other-scores",
        Kind.RUN,
        "a gap is 1 + ε times as large",
        SVM,
        ChangedNuclearPath(_other_scores),
        1e-1,
        "ε",
    ),
    Fault(
        "nuclear-path-of-frobenius",
        Kind.RUN,
        "the ray of the Frobenius solution",
        SVM,
        ChangedNuclearPath(_of_frobenius),
    ),
    Fault(
        "nuclear-path-ends-early",
        Kind.RUN,
        "points ε R beside the minimum",
        SVM,
        ChangedNuclearPath(_ends_early),
        1e-3,
        "ε",
    ),
    Fault("nuclear-path-too-large", Kind.RUN, "‖K‖² + ‖Q‖² = 4R", SVM, ChangedNuclearPath(_too_large)),
)
"""Faults in ATT-SVM⋆ and its path."""
