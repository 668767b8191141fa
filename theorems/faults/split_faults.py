"""Faults for data where no prompt selects all optimal tokens.

The faults are in :class:`reference_attention.next_token.unwinnable_scores.ScoreSplit`, which divides the tokens into
those that tie with the optimal token at all prompts at which no token has a larger logit than the optimal one, and
those that a direction U separates from it. A fault is in the proof of the ties, in U, in the risk L_F of attention
restricted to the tied tokens, or in the part of the prompt that stays finite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from flint import fmpq

from reference_attention.exact import rational
from reference_attention.loss import Array
from reference_attention.next_token.unwinnable_scores import ScoreSplit, score_split
from reference_attention.problem import Problem
from theorems.faults.fault import Faults, Kind

FAULTS = Faults(Kind.RISK)
Wrong = Callable[..., Any]


def _split(name: str, says: str, **further: Any) -> Callable[[Wrong], Wrong]:
    """Return a decorator that plants the decorated function, (right split, size if any, problem) → wrong split."""
    return FAULTS.change(name, says, "unwinnable-scores", score_split, only=ScoreSplit, **further)


def _on_sets(split: ScoreSplit, sets: Any, tying: Any) -> ScoreSplit:
    supports = replace(split.supports, sets=sets, tying=tying)
    return replace(split, supports=supports, svm=replace(split.svm, sets=sets))


@_split("tying-weight-negated", "a Farkas weight of a tied token has the other sign", kind=Kind.SETS)
def _negate_weight(split: ScoreSplit, problem: Problem) -> ScoreSplit:
    pair = min(split.supports.tying)
    tying = {**split.supports.tying, pair: -split.supports.tying[pair]}
    return replace(split, supports=replace(split.supports, tying=tying))


@_split("tied-token-forgotten", "a token that ties for good is reported as separated", kind=Kind.SETS)
def _forget_pair(split: ScoreSplit, problem: Problem) -> ScoreSplit:
    pair = min(split.supports.tying)
    sets = split.sets.copy()
    sets[pair] = False
    return _on_sets(split, sets, {other: weight for other, weight in split.supports.tying.items() if other != pair})


@_split("all-tokens-tied", "every token is reported as tied", kind=Kind.SETS)
def _tie_all(split: ScoreSplit, problem: Problem) -> ScoreSplit:
    return _on_sets(split, np.ones_like(split.sets), {pair: fmpq(1) for pair in split.master.pairs})


@_split("direction-not-across-ties", "ε times a row in F is added to the direction U", kind=Kind.SVM, size=1e-6)
def _tilt_direction(split: ScoreSplit, size: float, problem: Problem) -> ScoreSplit:
    row = split.master.differences[min(split.supports.tying)]
    point = [x + rational(size) * y for x, y in zip(split.svm.point, row, strict=True)]
    return replace(split, svm=replace(split.svm, point=point))


@_split("direction-across-ties-scaled", "the direction U is multiplied by 1 + ε", kind=Kind.SVM, size=1e-6)
def _scale_direction(split: ScoreSplit, size: float, problem: Problem) -> ScoreSplit:
    return replace(split, svm=replace(split.svm, point=[rational(1 + size) * x for x in split.svm.point]))


def _with_method(method: str, wrong: Wrong, split: ScoreSplit, problem: Problem) -> ScoreSplit:
    changed = replace(split)
    vars(changed)[method] = partial(wrong, changed)
    return changed


def _method(name: str, says: str, method: Callable[..., Any], **further: Any) -> Callable[[Wrong], Wrong]:
    """Return a decorator that plants the right ScoreSplit with the decorated function in place of ``method``."""
    return _split(name, says, through=partial(_with_method, method.__name__), **further)


@_method("risk-within-of-all-tokens", "separated tokens keep their weight in L_F", ScoreSplit.weights_within)
def _weigh_all(split: ScoreSplit, x: Array) -> Array:
    logits = -(split.inside @ x)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _outputs(split: ScoreSplit, x: Array) -> Array:
    return np.sum(split.weights_within(x) * split.problem.scores, axis=1)


@_method("risk-within-counts-copies-once", "equal inputs count only once in L_F", ScoreSplit.risk_within)
def _count_copies_once(split: ScoreSplit, x: Array) -> float:
    return float(np.mean(split.problem.loss.value(np.unique(_outputs(split, x)))))


@_method(
    "risk-within-of-tied-inputs",
    "inputs without tied tokens are left out of L_F",
    ScoreSplit.risk_within,
)
def _leave_out_won_inputs(split: ScoreSplit, x: Array) -> float:
    return float(np.mean(split.problem.loss.value(_outputs(split, x)[split.tied_inputs])))


@_method("finite-part-at-zero", "tied tokens are assumed to keep equal weights", ScoreSplit.rest_near, kind=Kind.RUN)
def _rest_at_zero(split: ScoreSplit, x: Array) -> Array:
    return np.zeros_like(x)


@_method(
    "slope-within-without-loss", "∇L_F is computed with ℓ' = −1", ScoreSplit.derivatives_within, kind=Kind.GRADIENT
)
def _leave_loss_out(split: ScoreSplit, x: Array) -> tuple[Array, Array]:
    moved = split.weights_within(x) * (split.problem.scores - _outputs(split, x)[:, None])
    slope = np.einsum("nt,ntr->r", moved, split.inside) / split.problem.n
    return slope, ScoreSplit.derivatives_within(split, x)[1]


@_split("risk-within-always-below", "L ≥ L_F is claimed whatever the scores of separated tokens")
def _bound_always(split: ScoreSplit, problem: Problem) -> ScoreSplit:
    changed = replace(split)
    vars(changed)["bounds_risk"] = True
    return changed
