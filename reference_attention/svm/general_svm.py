"""Gen-SVM, exact: the W of least norm that gives tokens of a set O_i equal logits and separates O_i from other tokens.

min ‖W‖_F subject to (x_it − x_iτ)ᵀ W z_i = 0 for t, τ ∈ O_i, and ≥ 1 for t ∈ O_i, τ ∉ O_i. This is an ATT-SVM in which
each constraint is an input of two tokens; an equality becomes two opposite constraints of required margin 0.

References: *Transformers as Support Vector Machines*, Section 6, (Gen-SVM).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import fmpq
from jaxtyping import Bool, Int64

from reference_attention.errors import InvalidInput
from reference_attention.exact import products
from reference_attention.outer_keys import OuterKeys, rational_keys
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin

Pair = tuple[int, int]
"""A pair (i, t): token t of input i."""
Vector = list[fmpq]


@dataclass(frozen=True, eq=False)
class SetRows:
    """The rows (x_iα − x_it) z_iᵀ, as vectors, in two groups: rows with t ∈ O_i, and rows with t ∉ O_i.

    Attributes:
        level: the rows E, by (i, t) with t ∈ O_i, t ≠ α_i; their products with W are to be 0 in Gen-SVM (equal logits).
        masked: the rows G, by (i, τ) with τ ∉ O_i; their products with W are to be at least 1.
    """

    level: dict[Pair, Vector]
    masked: dict[Pair, Vector]

    @classmethod
    def of(cls, keys: OuterKeys, sets: Bool[np.ndarray, "n T"], alpha: Int64[np.ndarray, "n"]) -> SetRows:
        """Return the rows for the sets O_i, with the token α_i of O_i as the one to which rows refer."""
        n, T, _ = keys.shape
        flat = rational_keys(keys).tolist()
        rows = {
            (i, t): [a - b for a, b in zip(flat[i * T + int(alpha[i])], flat[i * T + t], strict=True)]
            for i in range(n)
            for t in range(T)
            if t != alpha[i]
        }
        inside = {pair: row for pair, row in rows.items() if sets[pair]}
        return cls(inside, {pair: row for pair, row in rows.items() if not sets[pair]})


@dataclass(frozen=True, eq=False)
class GeneralSvm:
    """The solution W^mm of Gen-SVM, with multipliers that prove it: W^mm = Σ λ_iτ G_iτ + Σ μ_it E_it.

    Attributes:
        sets: the sets O_i as a mask, shape (n, T).
        alpha: for each input the token α_i ∈ O_i to which rows refer, shape (n,).
        point: vec(W^mm), as d·e rationals.
        duals: the positive λ_iτ by (i, τ), τ ∉ O_i; all others are zero.
        multipliers: μ_it by (i, t), t ∈ O_i, of either sign.
        rows: the rows E and G of the constraints.
    """

    sets: Bool[np.ndarray, "n T"]
    alpha: Int64[np.ndarray, "n"]
    point: Vector
    duals: dict[Pair, fmpq]
    multipliers: dict[Pair, fmpq]
    rows: SetRows

    @cached_property
    def margins(self) -> dict[Pair, fmpq]:
        """Return the margins ⟨G_iτ, W^mm⟩ ≥ 1 by (i, τ), τ ∉ O_i."""
        masked = self.rows.masked
        return dict(zip(masked, products(list(masked.values()), self.point), strict=True))

    @cached_property
    def norm_squared(self) -> fmpq:
        """Return ‖W^mm‖_F², which is the sum of the duals λ."""
        return sum((x * x for x in self.point), fmpq(0))


def general_svm(
    keys: OuterKeys, sets: Bool[np.ndarray, "n T"], alpha: Int64[np.ndarray, "n"]
) -> GeneralSvm | Infeasible:
    """Solve Gen-SVM for the sets O_i, exactly.

    Args:
        keys: the keys vec(x_it z_iᵀ), by their factors.
        sets: the sets O_i as a mask.
        alpha: for each input a token of O_i.

    Raises:
        InvalidInput: an α_i outside O_i; sets that leave no token to separate from.
    """
    if not sets[np.arange(len(sets)), alpha].all():
        raise InvalidInput("alpha: a token does not belong to its set; give one of each O_i.")
    if sets.all():
        raise InvalidInput("sets: every token belongs to its set, so there is none to separate; mark fewer tokens.")
    constraints = list(_constraints(sets, alpha))
    inputs = [i for i, _, _, _ in constraints]
    tokens = np.stack([keys.tokens[i, [above, below]] for i, above, below, _ in constraints])
    required = np.array([required_margin for *_, required_margin in constraints])
    two = OuterKeys(tokens, keys.queries[inputs])
    solution = max_margin(two, np.zeros(len(constraints), dtype=np.int64), required=required)
    if not isinstance(solution, MaxMargin):
        return solution
    duals: dict[Pair, fmpq] = {}
    multipliers: dict[Pair, fmpq] = {}
    for (k, _), weight in solution.exact.duals.items():
        i, above, below, required_margin = constraints[k]
        if required_margin:
            duals[i, below] = weight
        else:
            sign, other = (1, below) if above == alpha[i] else (-1, above)
            multipliers[i, other] = multipliers.get((i, other), fmpq(0)) + sign * weight
    return GeneralSvm(sets, alpha, list(solution.exact.p), duals, multipliers, SetRows.of(keys, sets, alpha))


def _constraints(sets: Bool[np.ndarray, "n T"], alpha: Int64[np.ndarray, "n"]) -> Iterator[tuple[int, int, int, int]]:
    """Yield (i, token above, token below, least difference of their logits, 0 or 1) for each constraint."""
    for i, t in np.ndindex(*sets.shape):
        chosen = int(alpha[i])
        if not sets[i, t]:
            yield i, chosen, t, 1
        elif t != chosen:
            yield i, chosen, t, 0
            yield i, t, chosen, 0
