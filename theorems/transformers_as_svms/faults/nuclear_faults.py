"""Planted faults in W_⋆, the solution of ATT-SVM⋆ (least nuclear norm), and in the regularization path of (K, Q)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from flint import arb

from reference_attention.loss import Array
from reference_attention.outer_keys import OuterKeys
from reference_attention.paths.nuclear_path import NuclearPath, nuclear_path
from reference_attention.problem import Problem
from reference_attention.svm.ball_matrices import balls
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from reference_attention.svm.nuclear_enclosure import NuclearEnclosure
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from theorems.faults.fault import Faults, Function, Kind
from theorems.faults.path_faults import with_another_loss

SVM, RUN = Faults(Kind.SVM), Faults(Kind.RUN)
PATH = "tsvm-nuclear-path"


def _solution(name: str, says: str, caught_by: str = PATH, **further: Any) -> Callable[[Function], Function]:
    """Return a decorator that plants a fault: the decorated function changes solutions of ATT-SVM⋆."""
    return SVM.change(name, says, caught_by, nuclear_max_margin, only=NuclearMaxMargin, **further)


def balance_factors(W: Array, rank: int | None = None) -> tuple[Array, Array]:
    """Return K and Q with KQᵀ = W and KᵀK = QᵀQ; they have ``rank`` columns, or the rank of W if it is None."""
    u, s, vt = np.linalg.svd(W, full_matrices=False)
    r = int(np.sum(s > 1e-12 * s[..., 0].max())) if rank is None else rank
    roots = np.sqrt(s)[..., None, :r]
    return u[..., :r] * roots, np.swapaxes(vt, -1, -2)[..., :r] * roots


@_solution("nuclear-is-frobenius", "W^mm of least Frobenius norm instead of W_⋆")
def _frobenius(right: NuclearMaxMargin, keys: OuterKeys, alpha: Any) -> NuclearMaxMargin:
    """Return W^mm of least Frobenius norm with its duals; its nuclear norm is reported as the value."""
    least = max_margin(keys, right.alpha)
    assert isinstance(least, MaxMargin)
    K, Q = balance_factors(least.p.reshape(right.W.shape))
    value = float((K**2).sum())
    return replace(right, K=K, Q=Q, duals=least.duals, margins=least.margins, bounds=(value, value))


@_solution("nuclear-factors-swapped", "Wᵀ: K and Q change places")
def _swap_factors(right: NuclearMaxMargin, *arguments: Any) -> NuclearMaxMargin:
    return replace(right, K=right.Q, Q=right.K)


@_solution("nuclear-rank-cut", "K and Q without their last column")
def _rank_cut(right: NuclearMaxMargin, *arguments: Any) -> NuclearMaxMargin:
    return replace(right, K=right.K[:, :-1], Q=right.Q[:, :-1])


@_solution("nuclear-columns-doubled", "each column of K and Q twice")
def _double_columns(right: NuclearMaxMargin, *arguments: Any) -> NuclearMaxMargin:
    """Repeat each column, divided by √2: W is the same, but the rank seems twice as large."""
    K, Q = (np.concatenate([x, x], axis=1) / np.sqrt(2) for x in (right.K, right.Q))
    return replace(right, K=K, Q=Q)


def _with_proof(right: NuclearMaxMargin, change: Callable[[NuclearEnclosure], NuclearEnclosure]) -> NuclearMaxMargin:
    """Return the solution with ``change`` applied to its exact enclosure, if it has one."""
    return right if right.exact is None else replace(right, exact=change(right.exact))


@_solution("nuclear-another-face", "the singular vectors U1, V1 of another dual")
def _another_face(right: NuclearMaxMargin, *arguments: Any) -> NuclearMaxMargin:
    """Replace U1 and V1 by the singular vectors of the dual matrix whose λ are all equal."""
    rows = right.rows
    sizes = np.ldexp(1.0, rows.p + rows.q)
    u, _, vt = np.linalg.svd((rows.a * sizes[:, None]).T @ rows.z, full_matrices=False)
    r = right.K.shape[1]
    return _with_proof(right, lambda proof: replace(proof, U1=balls(u[:, :r]), V1=balls(vt[:r].T)))


@_solution("nuclear-dual-off", "the largest λ is off by a factor 1 + ε", size=1e-3)
def _dual_off(right: NuclearMaxMargin, size: float, *arguments: Any) -> NuclearMaxMargin:
    changed = np.array(right.duals)
    changed[np.unravel_index(np.argmax(changed), changed.shape)] *= 1 + size
    return replace(right, duals=changed)


@_solution("nuclear-value-off", "C_⋆ is off by a factor 1 + ε", size=1e-3)
def _value_off(right: NuclearMaxMargin, size: float, *arguments: Any) -> NuclearMaxMargin:
    return replace(right, bounds=(right.bounds[0] * (1 + size), right.bounds[1] * (1 + size)))


@_solution("nuclear-out-of-balance", "K(1 + ε) and Q/(1 + ε), so that ½(‖K‖² + ‖Q‖²) > ‖W‖_⋆", size=1e-3)
def _out_of_balance(right: NuclearMaxMargin, size: float, *arguments: Any) -> NuclearMaxMargin:
    """Return the same W with a larger K and a smaller Q, so that the factors are unbalanced."""
    return replace(right, K=right.K * (1 + size), Q=right.Q / (1 + size))


@_solution("nuclear-gap-of-one", "the gap g is reported as 1", "tsvm-rank")
def _wider_gap(right: NuclearMaxMargin, *arguments: Any) -> NuclearMaxMargin:
    """Report the gap 1 − σ_{r+1}(M) as if all singular values of the dual matrix M below 1 were 0."""
    return _with_proof(right, lambda proof: replace(proof, gap=arb(1)))


@_solution("nuclear-tau-off", "τ is off by a factor 1 + ε", size=1e-3)
def _more_injective(right: NuclearMaxMargin, size: float, *arguments: Any) -> NuclearMaxMargin:
    return _with_proof(right, lambda proof: replace(proof, injectivity=proof.injectivity * (1 + size)))


@_solution("nuclear-gap-too-small", "g/10 instead of g")
def _tenth_of_gap(right: NuclearMaxMargin, *arguments: Any) -> NuclearMaxMargin:
    return _with_proof(right, lambda proof: replace(proof, gap=proof.gap / 10))


@_solution("nuclear-tau-too-small", "τ/10 instead of τ")
def _tenth_of_tau(right: NuclearMaxMargin, *arguments: Any) -> NuclearMaxMargin:
    return _with_proof(right, lambda proof: replace(proof, injectivity=proof.injectivity / 10))


@_solution("nuclear-support-lost", "a constraint is left out of the support S")
def _support_lost(right: NuclearMaxMargin, *arguments: Any) -> NuclearMaxMargin:
    return _with_proof(right, lambda proof: replace(proof, support=proof.support[1:]))


@_solution("nuclear-without-a-constraint", "the constraint of the largest λ is lost")
def _without_a_constraint(right: NuclearMaxMargin, keys: OuterKeys, alpha: Any) -> NuclearMaxMargin | Infeasible:
    """Multiply the row with the largest dual by 1024, which weakens its constraint, and solve."""
    i, t = np.unravel_index(np.argmax(right.duals), right.duals.shape)
    weaker, best = np.array(keys.tokens), keys.tokens[i, right.alpha[i]]
    weaker[i, t] = best + 1024 * (weaker[i, t] - best)
    return nuclear_max_margin(OuterKeys(weaker, keys.queries), right.alpha)


@_solution("nuclear-always-infeasible", "ATT-SVM⋆ is always called infeasible")
def _infeasible(right: NuclearMaxMargin, keys: OuterKeys, alpha: Any) -> Infeasible:
    n, T, _ = keys.shape
    return Infeasible(right.alpha, np.full((n, T), 1.0 / (n * T)), {})


def _with_points(path: NuclearPath, svm: NuclearMaxMargin, W: Array) -> NuclearPath:
    """Return the path with its matrices replaced by ``W``, and with the factors and offsets of these matrices."""
    K, Q = balance_factors(W, path.K.shape[2])
    return replace(path, K=K, Q=Q, offsets=W - path.rho[:, None, None] * svm.W)


@RUN.change("nuclear-path-on-the-ray", "ρW_⋆ instead of the path", PATH, nuclear_path)
def _on_the_ray(path: NuclearPath, problem: Problem, svm: NuclearMaxMargin, rhos: Any) -> NuclearPath:
    return _with_points(path, svm, path.rho[:, None, None] * svm.W)


@RUN.change("nuclear-path-at-half-the-radius", "the path at radius R/2", PATH, nuclear_path)
def _half_the_radius(path: NuclearPath, problem: Problem, svm: NuclearMaxMargin, rhos: Any) -> NuclearPath:
    other = nuclear_path(problem, svm, path.rho / 2)
    return _with_points(path, svm, other.K @ np.swapaxes(other.Q, -1, -2))


@RUN.change("nuclear-path-at-twice-the-radius", "the path at radius 2R", PATH, nuclear_path)
def _twice_the_radius(path: NuclearPath, problem: Problem, svm: NuclearMaxMargin, rhos: Any) -> NuclearPath:
    other = nuclear_path(problem, svm, path.rho * 2)
    return _with_points(path, svm, other.K @ np.swapaxes(other.Q, -1, -2))


@RUN.change("nuclear-path-at-one-radius", "the point at the first radius is returned for all radii", PATH, nuclear_path)
def _at_one_radius(path: NuclearPath, problem: Problem, svm: NuclearMaxMargin, rhos: Any) -> NuclearPath:
    W = path.K[:1] @ np.swapaxes(path.Q[:1], -1, -2)
    return _with_points(path, svm, np.repeat(W, len(path.rho), axis=0))


@RUN.change("nuclear-path-leaves-radii-out", "only the point at the largest radius", PATH, nuclear_path)
def _leaves_radii_out(path: NuclearPath, *arguments: Any) -> NuclearPath:
    """Report all points except the last as not found."""
    return replace(path, reasons=(*("it was given up" for _ in path.reasons[1:]), path.reasons[-1]))


@RUN.change("nuclear-path-of-another-loss", "the path of another loss", PATH, nuclear_path)
def _another_loss(path: NuclearPath, problem: Problem, svm: NuclearMaxMargin, rhos: Any) -> NuclearPath:
    return nuclear_path(with_another_loss(problem), svm, path.rho)


@RUN.change("nuclear-path-of-other-scores", "one score gap is multiplied by 1 + ε", PATH, nuclear_path, size=1e-1)
def _other_scores(path: NuclearPath, size: float, problem: Problem, svm: NuclearMaxMargin, rhos: Any) -> NuclearPath:
    """Follow the path for scores in which one token's gap to the best score is 1 + ``size`` times as large."""
    scores, (i, t) = np.array(problem.scores), (int(svm.rows.inputs[0]), int(svm.rows.tokens[0]))
    scores[i, t] -= size * (scores[i].max() - scores[i, t])
    return nuclear_path(Problem(problem.keys, scores, problem.loss), svm, path.rho)


@RUN.change("nuclear-path-of-frobenius", "the ray of the Frobenius solution", PATH, nuclear_path)
def _of_frobenius(path: NuclearPath, problem: Problem, svm: NuclearMaxMargin, rhos: Any) -> NuclearPath:
    """Return the ray of W^mm of least Frobenius norm, truncated to the rank of the path's factors."""
    least = max_margin(problem.exact_keys, svm.alpha)
    assert isinstance(least, MaxMargin)
    W = least.p.reshape(svm.W.shape)
    radius = path.rho * svm.norm / np.linalg.norm(W, ord="nuc")
    return _with_points(path, svm, radius[:, None, None] * W)


@RUN.change("nuclear-path-ends-early", "points at the distance ε R from the minimum", PATH, nuclear_path, size=1e-3)
def _ends_early(path: NuclearPath, size: float, problem: Problem, svm: NuclearMaxMargin, rhos: Any) -> NuclearPath:
    """Move each point away from the minimum by ``size`` times its norm, within the ball."""
    W = path.K @ np.swapaxes(path.Q, -1, -2)
    moved = W + size * np.linalg.norm(W, axis=(1, 2), keepdims=True) * np.roll(W, 1, axis=2) / svm.norm
    shrunk = path.rho * svm.norm / np.linalg.svd(moved, compute_uv=False).sum(axis=1)
    return _with_points(path, svm, np.minimum(shrunk, 1.0)[:, None, None] * moved)


@RUN.change("nuclear-path-too-large", "‖K‖² + ‖Q‖² = 4R", PATH, nuclear_path)
def _too_large(path: NuclearPath, *arguments: Any) -> NuclearPath:
    """Multiply K and Q by √2, so that ‖K‖² + ‖Q‖² is 4R instead of 2R."""
    return replace(path, K=path.K * np.sqrt(2), Q=path.Q * np.sqrt(2))
