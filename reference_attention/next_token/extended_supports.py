"""Extended supports Ŝ_j ⊇ S_j with proof: the tokens that training cannot separate from those that followed context j.

V_j is the set of all alternatives of context j, a_jv their vectors, and S_j ⊆ V_j the set of those that followed
context j in the data. C = {U : (a_jz − a_jv)·U ≥ 0 for z ∈ S_j, v ∈ V_j} is the recession cone of the loss; every U ∈ C
gives the alternatives of S_j equal logits a_jz·U. The extended support Ŝ_j is S_j and each v whose logit equals that of
S_j for all U ∈ C. A single linear program determines Ŝ: maximise Σ t_jv subject to (a_jz − a_jv)·U ≥ t_jv and 0 ≤ t_jv
≤ 1, where z = z_j is the first alternative of S_j. As C is a cone, each t_jv is 0 or 1 in a solution, and 1 exactly
outside Ŝ_j. The solver's answer is then proven. A rational U in C *separates* each v ∉ Ŝ_j from S_j, that is, (a_jz −
a_jv)·U > 0. And multipliers λ ≥ 0 and μ, rational, with Σ λ_jv (a_jz − a_jv) + Σ μ_jz' (a_jz − a_jz') = 0 and λ_jv > 0
for v ∈ Ŝ_j∖S_j show that no U in C separates any v ∈ Ŝ_j∖S_j.

References: derived here; the conditions (6) of arXiv 2402.18551 are Ŝ = S; scipy.optimize (HiGHS).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Bool
from scipy.optimize import linprog

from reference_attention.exact import combination, products, rational, to_floats
from reference_attention.next_token.master_problem import MasterProblem, Vector
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin

Pair = tuple[int, int]
"""A pair (j, v) of a context j and one of its alternatives v."""
TIED = 0.5
"""Number below which a t_jv of the linear program's solution counts as 0; exactly solved, each t_jv is 0 or 1."""


@dataclass(frozen=True, eq=False)
class ExtendedSupports:
    """The extended supports Ŝ_j and their proof (symbols: see the module).

    Attributes:
        sets: a mask of the alternatives in Ŝ_j, shape (m, K).
        separator: a vector U ∈ C with (a_jz − a_jv)·U > 0 for every v ∉ Ŝ_j, D rationals.
        tying: the multipliers λ_jv > 0, by pairs (j, v) with v ∈ Ŝ_j∖S_j.
        levelling: the multipliers μ_jz' of either sign, by pairs (j, z') with z' ∈ S_j, z' ≠ z_j.
    """

    sets: Bool[np.ndarray, "m K"]
    separator: Vector
    tying: dict[Pair, fmpq]
    levelling: dict[Pair, fmpq]

    @cached_property
    def largest(self) -> int:
        """Return the number of alternatives in the largest extended support Ŝ_j."""
        return int(self.sets.sum(axis=1).max())

    def separable(self, problem: MasterProblem) -> bool:
        """Return whether Ŝ = S (NTP-separability): some U gives observed tokens equal logits, above all others."""
        return bool((self.sets == problem.supports).all())

    def error(self, problem: MasterProblem) -> str:
        """Check the proof over the rationals, without a solver, and return its first error; empty if it is valid."""
        rows, sets = problem.differences, np.asarray(self.sets)
        if sets.shape != problem.supports.shape or (problem.supports & ~sets).any():
            return "the sets do not contain the supports"
        if (sets & ~problem.alternatives).any() or len(self.separator) != problem.dimension:
            return "the sets or U have the shapes of another problem"
        gains = dict(zip(rows, products(list(rows.values()), self.separator), strict=True))
        for (j, v), gain in gains.items():
            if sets[j, v] and gain != 0:
                return f"U does not tie alternative {v} of context {j}, which is in Ŝ"
            if not sets[j, v] and not gain > 0:
                return f"U does not separate alternative {v} of context {j}, which is not in Ŝ"
        weights = {**self.tying, **self.levelling}
        tied = {pair for pair in rows if sets[pair] and not problem.supports[pair]}
        if set(self.tying) != tied or not all(x > 0 for x in self.tying.values()):
            return "λ is not positive exactly on the alternatives of Ŝ∖S"
        if not all(pair in rows and problem.supports[pair] for pair in self.levelling):
            return "μ is non-zero on an alternative that did not follow its context"
        total = combination([rows[pair] for pair in weights], list(weights.values()), problem.dimension)
        return "" if all(x == 0 for x in total) else "Σλ(a_z − a_v) + Σμ(a_z − a_z') is not 0"


def extended_supports(problem: MasterProblem) -> ExtendedSupports:
    """Return the extended supports with a proof, by the linear program or else :func:`supports_by_exclusion`.

    >>> extended_supports(MasterProblem.of_tokens([[1.0], [1.0]], [[1, 0, 0], [0, 3, 0]])).sets
    array([[ True,  True, False],
           [ True,  True, False]])
    """
    return _by_program(problem) or supports_by_exclusion(problem)


def _by_program(problem: MasterProblem) -> ExtendedSupports | None:
    """Solve the linear program in (U, t); return Ŝ with its proof over the rationals, or None if the proof fails."""
    rows = problem.differences
    level = [pair for pair in rows if problem.supports[pair]]
    others = [pair for pair in rows if not problem.supports[pair]]
    sets = np.array(problem.supports)
    if not others:
        return ExtendedSupports(sets, [fmpq(0)] * problem.dimension, {}, {})
    floats = {pair: _unit(row) for pair, row in rows.items()}
    size, count = problem.dimension, len(others)
    upper = np.hstack([-np.array([floats[pair] for pair in others]), np.eye(count)])
    equal = np.hstack([np.array([floats[pair] for pair in level]).reshape(-1, size), np.zeros((len(level), count))])
    solution = linprog(
        np.append(np.zeros(size), -np.ones(count)),
        A_ub=upper,
        b_ub=np.zeros(count),
        A_eq=equal if level else None,
        b_eq=np.zeros(len(level)) if level else None,
        bounds=[(None, None)] * size + [(0, 1)] * count,
        method="highs-ds",
    )
    if solution.status != 0:
        return None
    tied = [pair for pair, t in zip(others, solution.x[size:].tolist(), strict=True) if t < TIED]
    for pair in tied:
        sets[pair] = True
    tight = [*level, *tied]
    separator = _null_vector([rows[pair] for pair in tight], solution.x[:size].tolist())
    prices = dict(zip(others, (-solution.ineqlin.marginals).tolist(), strict=True))
    prices.update(zip(level, (-solution.eqlin.marginals).tolist() if level else [], strict=True))
    scaled = [prices[pair] / max(float(np.abs(to_floats(rows[pair])).max()), 1e-300) for pair in tight]
    balance = _null_vector(list(fmpq_mat([rows[p] for p in tight]).transpose().tolist()), scaled) if tied else []
    weights = dict(zip(tight, balance, strict=True)) if tied else {}
    proof = ExtendedSupports(
        sets,
        separator,
        {pair: weights[pair] for pair in tied},
        {pair: weights[pair] for pair in level if tied},
    )
    return None if proof.error(problem) else proof


def _unit(row: Vector) -> list[float]:
    """Return the row as floats, divided by its largest absolute entry."""
    floats = to_floats(row)
    return list((floats / max(float(np.abs(floats).max()), 1e-300)).tolist())


def _null_vector(rows: list[Vector], near: list[float]) -> Vector:
    """Return an x with row·x = 0 for all rows: its free variables are the floats ``near``, and the others follow."""
    values = [rational(x) for x in near]
    if not rows:
        return values
    reduced, rank = fmpq_mat(rows).rref()
    table, at, pivots = reduced.tolist()[:rank], 0, []
    for row in table:
        while row[at] == 0:
            at += 1
        pivots.append(at)
    free = [k for k in range(len(near)) if k not in pivots]
    for row, pivot in zip(table, pivots, strict=True):
        values[pivot] = -sum((row[k] * values[k] for k in free if row[k] != 0), fmpq(0))
    return values


def supports_by_exclusion(problem: MasterProblem) -> ExtendedSupports:
    """Return Ŝ by deciding for each alternative, with an exact SVM, whether some U ∈ C separates it.

    If the SVM is infeasible, its Farkas multipliers are the proof. This function and the linear program share no
    computation but the differences a_jz − a_jv.
    """
    rows = problem.differences
    others = [pair for pair in rows if not problem.supports[pair]]
    sets, separator = np.array(problem.supports), [fmpq(0)] * problem.dimension
    weights: dict[Pair, fmpq] = {}
    for pair in others:
        answer = separate_pairs(problem, [pair])
        if isinstance(answer, MaxMargin):
            separator = [x + y for x, y in zip(separator, answer.exact.p, strict=True)]
            continue
        sets[pair] = True
        for (j, v), weight in signed_multipliers(signed_rows(problem, problem.supports), answer.exact).items():
            weights[j, v] = weights.get((j, v), fmpq(0)) + weight
    tying = {pair: weights[pair] for pair in others if sets[pair]}
    levelling = {pair: x for pair, x in weights.items() if problem.supports[pair]}
    return ExtendedSupports(sets, separator, tying, levelling)


def separate_pairs(
    problem: MasterProblem, separated: Collection[Pair], level: Bool[np.ndarray, "m K"] | None = None
) -> MaxMargin | Infeasible:
    """Return the U of least norm with equal logits on ``level`` and margin 1 at ``separated`` pairs.

    With z = z_j, (a_jz − a_jv)·U is 0 for the alternatives v of context j in the mask ``level`` (by default S_j), at
    least 1 for the pairs (j, v) in ``separated``, and at least 0 for all others.

    The problem is solved as an ATT-SVM of inputs with two tokens. Each inequality is an input with the required margin
    1 or 0, and each equality is two inputs, of opposite sign, with the required margin 0.
    """
    rows = signed_rows(problem, problem.supports if level is None else level)
    keys = problem.pair_keys([pair for pair, _ in rows], [sign for _, sign in rows])
    required = [int(pair in separated) for pair, _ in rows]
    return max_margin(keys, np.zeros(len(rows), dtype=np.int64), required=required)


def signed_rows(problem: MasterProblem, level: Bool[np.ndarray, "m K"]) -> list[tuple[Pair, int]]:
    """Return for each input of the SVM in :func:`separate_pairs` the pair (j, v) and the sign ±1 of its inequality."""
    return [(pair, sign) for pair in problem.pairs for sign in ((1, -1) if level[pair] else (1,))]


def signed_multipliers(rows: list[tuple[Pair, int]], duals: dict[Pair, fmpq]) -> dict[Pair, fmpq]:
    """Return the multipliers of the rows a_jz − a_jv, by pair, from those of the inputs of :func:`separate_pairs`."""
    out: dict[Pair, fmpq] = {}
    for (k, _), weight in duals.items():
        pair, sign = rows[k]
        out[pair] = out.get(pair, fmpq(0)) + sign * weight
    return out
