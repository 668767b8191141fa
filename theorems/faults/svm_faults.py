"""Faults in the hard-margin SVM: its solution, its duals, its neighbours, the tokens that it is solved for."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import fmpq

from reference_attention.exact import rational, to_floats
from reference_attention.outer_keys import OuterKeys
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind

Solution = MaxMargin | Infeasible
Change = Callable[[MaxMargin, Any, float], Solution]


@dataclass(frozen=True)
class ChangedSvm:
    """The reference solution, changed: (solution, keys, size) → solution. Calling it with a size makes the fault."""

    change: Change
    size: float = 0.0

    def solve(self, keys: Any, alpha: Any) -> Solution:
        """As :func:`reference_attention.svm.max_margin.max_margin`."""
        right = max_margin(keys, alpha)
        return right if isinstance(right, Infeasible) else self.change(right, _floats(keys), self.size)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", max_margin=ChangedSvm(self.change, size).solve)


@dataclass(frozen=True)
class OtherSvm:
    """ATT-SVM of other data: (keys, alpha) → (keys, alpha); of the given ones where the others are infeasible."""

    change: Callable[[Any, Any], tuple[Any, Any]]

    def solve(self, keys: Any, alpha: Any) -> Solution:
        """As :func:`reference_attention.svm.max_margin.max_margin`."""
        wrong = max_margin(*self.change(_floats(keys), alpha))
        return wrong if isinstance(wrong, MaxMargin) else max_margin(keys, alpha)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", max_margin=self.solve)


def _floats(keys: Any) -> Any:
    """The keys as an array, each entry rounded once where they are given by their factors."""
    return keys.floats if isinstance(keys, OuterKeys) else keys


def with_prompt(solution: MaxMargin, keys: Any, p: Any, exact_p: list[fmpq]) -> MaxMargin:
    """That solution with another p: margins and exact certificate follow."""
    alpha = solution.alpha
    rows = np.take_along_axis(keys, alpha[:, None, None], axis=1) - keys
    margins = rows @ p
    margins[np.arange(len(alpha)), alpha] = np.inf
    exact = copy(solution.exact)
    vars(exact).pop("norm_squared", None)
    vars(exact)["p"] = exact_p
    return replace(solution, p=p, margins=margins, exact=exact)


def _from(wrong: Solution, right: MaxMargin, keys: Any) -> MaxMargin:
    """The right solution with p, neighbours and duals of another problem (whose p may have further coordinates)."""
    assert isinstance(wrong, MaxMargin)
    d = keys.shape[2]
    changed = with_prompt(right, keys, wrong.p[:d], list(wrong.exact.p)[:d])
    return replace(changed, neighbours=wrong.neighbours, duals=wrong.duals)


def _longer(right: MaxMargin, keys: Any, size: float) -> Solution:
    exact = [rational(1 + size) * x for x in right.exact.p]
    return with_prompt(right, keys, to_floats(exact), exact)


def coordinate_off(p: Any, size: float) -> Any:
    """p with its largest coordinate off by a factor 1 + size, in floats."""
    changed = np.array(p)
    changed[int(np.argmax(np.abs(p)))] *= 1 + size
    return changed


def _one_coordinate(right: MaxMargin, keys: Any, size: float) -> Solution:
    p = coordinate_off(right.p, size)
    # Only what has moved: the exact point stays exact elsewhere.
    exact = [x if a == b else rational(float(a)) for a, b, x in zip(p, right.p, right.exact.p, strict=True)]
    return with_prompt(right, keys, p, exact)


def _dual_off(right: MaxMargin, keys: Any, size: float) -> Solution:
    changed = np.array(right.duals)
    changed[np.unravel_index(np.argmax(changed), changed.shape)] *= 1 + size
    return replace(right, duals=changed)


def _without_a_constraint(right: MaxMargin, keys: Any, size: float) -> Solution:
    """Weakened 1024-fold, which is as good as lost."""
    i, t = np.unravel_index(np.argmax(right.duals), right.duals.shape)
    weaker, best = np.array(keys), keys[i, right.alpha[i]]
    weaker[i, t] = best + 1024 * (keys[i, t] - best)
    return _from(max_margin(weaker, right.alpha), right, keys)


def _with_bias(right: MaxMargin, keys: Any, size: float) -> Solution:
    n, tokens, _ = keys.shape
    column = np.zeros((n, tokens, 1))
    column[np.arange(n), right.alpha] = 1.0
    return _from(max_margin(np.concatenate([keys, column], axis=2), right.alpha), right, keys)


def _soft(right: MaxMargin, keys: Any, size: float) -> Solution:
    """Squared slacks: a column √ε for each constraint of its own makes a hard margin of it."""
    n, tokens, _ = keys.shape
    columns = -np.sqrt(size) * np.eye(n * tokens).reshape(n, tokens, n * tokens)
    columns[np.arange(n), right.alpha] = 0.0
    return _from(max_margin(np.concatenate([keys, columns], axis=2), right.alpha), right, keys)


def _near_neighbours(right: MaxMargin, keys: Any, size: float) -> Solution:
    return replace(right, neighbours=np.isfinite(right.margins) & (right.margins < 1 + size))


def _neighbour_lost(right: MaxMargin, keys: Any, size: float) -> Solution:
    fewer = np.array(right.neighbours)
    fewer[np.unravel_index(np.argmax(right.duals), right.duals.shape)] = False
    return replace(right, neighbours=fewer)


def _infeasible(right: MaxMargin, keys: Any, size: float) -> Solution:
    n, tokens, _ = keys.shape
    return Infeasible(right.alpha, np.full((n, tokens), 1.0 / (n * tokens)), {})


def _next_token(keys: Any, alpha: Any) -> tuple[Any, Any]:
    other = np.array(alpha)
    other[0] = (other[0] + 1) % keys.shape[1]
    return keys, other


def _largest_keys(keys: Any, alpha: Any) -> tuple[Any, Any]:
    return keys, np.argmax(np.sum(keys * keys, axis=2), axis=1)


def _rounded_products(keys: Any, alpha: Any) -> tuple[Any, Any]:
    """As :class:`OtherSvm` hands keys over: floats, also where they are products that are none."""
    return keys, alpha


def _single(keys: Any, alpha: Any) -> tuple[Any, Any]:
    return keys.astype(np.float32).astype(np.float64), alpha


SVM_FAULTS = (
    Fault(
        "svm-scaled",
        Kind.SVM,
        "(1 + ε) p_mm: another margin",
        "lemma-11",
        ChangedSvm(_longer),
        1.0,
        "relative error of ‖p_mm‖",
    ),
    Fault(
        "svm-coordinate-off",
        Kind.SVM,
        "the largest coordinate of p_mm off by a factor 1 + ε",
        "lemma-11",
        ChangedSvm(_one_coordinate),
        1e-6,
        "relative error of a coordinate",
    ),
    Fault(
        "svm-dual-off",
        Kind.SVM,
        "the largest dual off by a factor 1 + ε",
        "theorem-1",
        ChangedSvm(_dual_off),
        1e-6,
        "relative error of a dual",
    ),
    Fault(
        "svm-misses-a-constraint",
        Kind.SVM,
        "the constraint of the largest dual is lost",
        "lemma-11",
        ChangedSvm(_without_a_constraint),
    ),
    Fault(
        "svm-with-bias",
        Kind.SVM,
        "(k_α − k_t)·p + b ≥ 1, the intercept penalised like p",
        "lemma-11",
        ChangedSvm(_with_bias),
    ),
    Fault(
        "svm-soft-margin",
        Kind.SVM,
        "squared slacks at the price C = 1/ε",
        "lemma-11",
        ChangedSvm(_soft),
        1e-3,
        "1/C",
        1e-300,
    ),
    Fault(
        "svm-for-another-token",
        Kind.SVM,
        "the first input's α replaced by the next token, where feasible",
        "lemma-11",
        OtherSvm(_next_token),
    ),
    Fault(
        "svm-by-key-norm",
        Kind.SVM,
        "α taken for the token of the longest key, where feasible",
        "lemma-11",
        OtherSvm(_largest_keys),
    ),
    Fault("svm-of-float32-keys", Kind.SVM, "the keys rounded to float32 first", "lemma-4", OtherSvm(_single)),
    Fault(
        "svm-of-rounded-products",
        Kind.SVM,
        "keys x zᵀ rounded before their differences are taken",
        "tsvm-local-descent",
        OtherSvm(_rounded_products),
    ),
    Fault("svm-always-infeasible", Kind.SVM, "a solver that gives up", "lemma-11", ChangedSvm(_infeasible)),
    Fault(
        "neighbours-by-tolerance",
        Kind.SVM,
        "margins below 1 + ε count as neighbours",
        "theorem-1",
        ChangedSvm(_near_neighbours),
        1.0,
        "ε",
        1e-15,
    ),
    Fault(
        "neighbour-lost",
        Kind.SVM,
        "the neighbour of the largest dual is not reported",
        "theorem-1",
        ChangedSvm(_neighbour_lost),
    ),
)
"""Faults in ATT-SVM."""
