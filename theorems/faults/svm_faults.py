"""Faults in the hard-margin SVM: in the solution p_mm, its duals and neighbours, and the tokens chosen."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from flint import fmpq

from reference_attention.exact import rational, to_floats
from reference_attention.outer_keys import OuterKeys
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from theorems.faults.fault import Faults, Kind

FAULTS = Faults(Kind.SVM)
Solution = MaxMargin | Infeasible
Change = Callable[..., Solution]
Other = Callable[[Any, Any], tuple[Any, Any]]


def _floats(keys: Any) -> Any:
    """Return the keys as floats; of keys given by factors, each entry is the exact product rounded once."""
    return keys.floats if isinstance(keys, OuterKeys) else keys


def with_prompt(solution: MaxMargin, keys: Any, p: Any, exact_p: list[fmpq]) -> MaxMargin:
    """Return the solution with another p, with the margins of that p and with ``exact_p`` as its rationals."""
    alpha = solution.alpha
    rows = np.take_along_axis(keys, alpha[:, None, None], axis=1) - keys
    margins = rows @ p
    margins[np.arange(len(alpha)), alpha] = np.inf
    exact = copy(solution.exact)
    vars(exact).pop("norm_squared", None)
    vars(exact)["p"] = exact_p
    return replace(solution, p=p, margins=margins, exact=exact)


def _solution(name: str, says: str, by: str, **further: Any) -> Callable[[Change], Change]:
    """Return a decorator that plants the decorated function, (solution, size if any, float keys) → wrong solution."""
    return FAULTS.change(name, says, by, max_margin, only=MaxMargin, through=_on_floats, **further)


def _on_floats(change: Change, right: MaxMargin, *arguments: Any) -> Solution:
    *size, keys, _ = arguments
    return change(right, *size, _floats(keys))


def _from(wrong: Solution, right: MaxMargin, keys: Any) -> MaxMargin:
    """Return ``right`` with p, margins, neighbours and duals of ``wrong``; coordinates of p after d are dropped."""
    assert isinstance(wrong, MaxMargin)
    d = keys.shape[2]
    changed = with_prompt(right, keys, wrong.p[:d], list(wrong.exact.p)[:d])
    return replace(changed, neighbours=wrong.neighbours, duals=wrong.duals)


@_solution("svm-scaled", "(1 + ε) p_mm in place of p_mm", "lemma-11", size=1.0)
def _longer(right: MaxMargin, size: float, keys: Any) -> Solution:
    exact = [rational(1 + size) * x for x in right.exact.p]
    return with_prompt(right, keys, to_floats(exact), exact)


def coordinate_off(p: Any, size: float) -> Any:
    """Return p with its largest coordinate multiplied by 1 + size, in floats."""
    changed = np.array(p)
    changed[int(np.argmax(np.abs(p)))] *= 1 + size
    return changed


@_solution(
    "svm-coordinate-off",
    "the largest coordinate of p_mm is multiplied by 1 + ε",
    "lemma-11",
    size=1e-6,
)
def _one_coordinate(right: MaxMargin, size: float, keys: Any) -> Solution:
    p = coordinate_off(right.p, size)
    # Only the changed coordinate becomes a float; the others stay exact.
    exact = [x if a == b else rational(float(a)) for a, b, x in zip(p, right.p, right.exact.p, strict=True)]
    return with_prompt(right, keys, p, exact)


@_solution("svm-dual-off", "the largest dual is multiplied by 1 + ε", "theorem-1", size=1e-6)
def _dual_off(right: MaxMargin, size: float, keys: Any) -> Solution:
    changed = np.array(right.duals)
    changed[np.unravel_index(np.argmax(changed), changed.shape)] *= 1 + size
    return replace(right, duals=changed)


@_solution("svm-misses-a-constraint", "the constraint of the largest dual is left out", "lemma-11")
def _without_a_constraint(right: MaxMargin, keys: Any) -> Solution:
    """Return p_mm with the constraint of largest dual weakened 1024-fold, so that it hardly matters."""
    i, t = np.unravel_index(np.argmax(right.duals), right.duals.shape)
    weaker, best = np.array(keys), keys[i, right.alpha[i]]
    weaker[i, t] = best + 1024 * (keys[i, t] - best)
    return _from(max_margin(weaker, right.alpha), right, keys)


@_solution("svm-with-bias", "constraints (k_α − k_t)·p + b ≥ 1, where b is penalised like p", "lemma-11")
def _with_bias(right: MaxMargin, keys: Any) -> Solution:
    n, tokens, _ = keys.shape
    column = np.zeros((n, tokens, 1))
    column[np.arange(n), right.alpha] = 1.0
    return _from(max_margin(np.concatenate([keys, column], axis=2), right.alpha), right, keys)


@_solution(
    "svm-soft-margin",
    "a soft margin: squared slacks with the weight C = 1/ε",
    "lemma-11",
    size=1e-3,
)
def _soft(right: MaxMargin, size: float, keys: Any) -> Solution:
    """Return p_mm with squared slacks, by a hard-margin problem with one more coordinate for each constraint."""
    n, tokens, _ = keys.shape
    columns = -np.sqrt(size) * np.eye(n * tokens).reshape(n, tokens, n * tokens)
    columns[np.arange(n), right.alpha] = 0.0
    return _from(max_margin(np.concatenate([keys, columns], axis=2), right.alpha), right, keys)


@_solution(
    "neighbours-by-tolerance",
    "tokens of a margin below 1 + ε count as neighbours",
    "theorem-1",
    size=1.0,
)
def _near_neighbours(right: MaxMargin, size: float, keys: Any) -> Solution:
    return replace(right, neighbours=np.isfinite(right.margins) & (right.margins < 1 + size))


@_solution("neighbour-lost", "the neighbour with the largest dual is not reported", "theorem-1")
def _neighbour_lost(right: MaxMargin, keys: Any) -> Solution:
    fewer = np.array(right.neighbours)
    fewer[np.unravel_index(np.argmax(right.duals), right.duals.shape)] = False
    return replace(right, neighbours=fewer)


@_solution("svm-always-infeasible", "the problem is always reported as infeasible", "lemma-11")
def _infeasible(right: MaxMargin, keys: Any) -> Solution:
    n, tokens, _ = keys.shape
    return Infeasible(right.alpha, np.full((n, tokens), 1.0 / (n * tokens)), {})


def _other(name: str, says: str, by: str) -> Callable[[Other], Other]:
    """Return a decorator that plants ATT-SVM for the (keys, α) that the decorated function returns, where feasible."""
    return FAULTS.plant(name, says, by, max_margin, through=_solve_other)


def _solve_other(change: Other, right: Callable[..., Solution], keys: Any, alpha: Any) -> Solution:
    wrong = right(*change(_floats(keys), alpha))
    return wrong if isinstance(wrong, MaxMargin) else right(keys, alpha)


@_other(
    "svm-for-another-token",
    "the chosen token α of the first input is replaced by the next token, where feasible",
    "lemma-11",
)
def _next_token(keys: Any, alpha: Any) -> tuple[Any, Any]:
    other = np.array(alpha)
    other[0] = (other[0] + 1) % keys.shape[1]
    return keys, other


@_other("svm-by-key-norm", "the tokens with the longest keys are chosen in place of α, where feasible", "lemma-11")
def _largest_keys(keys: Any, alpha: Any) -> tuple[Any, Any]:
    return keys, np.argmax(np.sum(keys * keys, axis=2), axis=1)


@_other("svm-of-float32-keys", "the keys are rounded to float32 first", "lemma-4")
def _single(keys: Any, alpha: Any) -> tuple[Any, Any]:
    return keys.astype(np.float32).astype(np.float64), alpha


@_other("svm-of-rounded-products", "keys x zᵀ are rounded before their differences are taken", "tsvm-local-descent")
def _round_products(keys: Any, alpha: Any) -> tuple[Any, Any]:
    return keys, alpha
