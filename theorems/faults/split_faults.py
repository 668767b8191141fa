"""Faults where scores cannot all be won: proof of the ties, direction across them, risk within, finite part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from flint import fmpq

from reference_attention.exact import rational
from reference_attention.next_token.unwinnable_scores import ScoreSplit, score_split
from reference_attention.problem import Problem
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind


@dataclass(frozen=True)
class OtherSplit:
    """Size → the split, changed: (split, size) → split, in place of the right one."""

    change: Callable[[ScoreSplit, float], ScoreSplit]
    size: float = 0.0

    def split(self, problem: Problem) -> ScoreSplit | None:
        """As :func:`score_split`."""
        right = score_split(problem)
        return None if right is None else self.change(right, self.size)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", own={score_split: OtherSplit(self.change, size).split})


@dataclass(frozen=True)
class As:
    """The split with another method, which a class of splits has."""

    kind: type[ScoreSplit]

    def __call__(self, split: ScoreSplit, size: float) -> ScoreSplit:
        """The changed split."""
        return self.kind(*(getattr(split, field.name) for field in fields(ScoreSplit)))


def _weight_negated(split: ScoreSplit, size: float) -> ScoreSplit:
    pair = min(split.supports.tying)
    tying = {**split.supports.tying, pair: -split.supports.tying[pair]}
    return replace(split, supports=replace(split.supports, tying=tying))


def _pair_forgotten(split: ScoreSplit, size: float) -> ScoreSplit:
    pair = min(split.supports.tying)
    sets = split.sets.copy()
    sets[pair] = False
    tying = {other: weight for other, weight in split.supports.tying.items() if other != pair}
    return _on_sets(split, sets, tying)


def _all_tied(split: ScoreSplit, size: float) -> ScoreSplit:
    sets = np.ones_like(split.sets)
    return _on_sets(split, sets, {pair: fmpq(1) for pair in split.master.pairs})


def _on_sets(split: ScoreSplit, sets: Any, tying: Any) -> ScoreSplit:
    supports = replace(split.supports, sets=sets, tying=tying)
    return replace(split, supports=supports, svm=replace(split.svm, sets=sets))


def _direction_tilted(split: ScoreSplit, size: float) -> ScoreSplit:
    """U moved by ε of a row in F."""
    row = split.master.differences[min(split.supports.tying)]
    point = [x + rational(size) * y for x, y in zip(split.svm.point, row, strict=True)]
    return replace(split, svm=replace(split.svm, point=point))


def _direction_scaled(split: ScoreSplit, size: float) -> ScoreSplit:
    point = [rational(1 + size) * x for x in split.svm.point]
    return replace(split, svm=replace(split.svm, point=point))


class _OfAllTokens(ScoreSplit):
    def weights_within(self, x: Any) -> Any:
        logits = -(self.inside @ x)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)


class _CopiesOnce(ScoreSplit):
    """Inputs alike count once."""

    def risk_within(self, x: Any) -> float:
        outputs = np.sum(self.weights_within(x) * self.problem.scores, axis=1)
        return float(np.mean(self.problem.loss.value(np.unique(outputs))))


class _TiedInputsAlone(ScoreSplit):
    """Inputs that are won do not count."""

    def risk_within(self, x: Any) -> float:
        outputs = np.sum(self.weights_within(x) * self.problem.scores, axis=1)
        return float(np.mean(self.problem.loss.value(outputs[self.tied_inputs])))


class _RestAtZero(ScoreSplit):
    """Tied inputs are taken to stay at equal weights."""

    def rest_near(self, x: Any) -> Any:
        return np.zeros_like(x)


class _SlopeWithoutLoss(ScoreSplit):
    """As if ℓ' were −1."""

    def derivatives_within(self, x: Any) -> Any:
        weights = self.weights_within(x)
        mixture = np.sum(weights * self.problem.scores, axis=1)
        moved = weights * (self.problem.scores - mixture[:, None])
        slope = np.einsum("nt,ntr->r", moved, self.inside) / self.problem.n
        return slope, super().derivatives_within(x)[1]


class _BoundsAlways(ScoreSplit):
    @property
    def bounds_risk(self) -> bool:
        return True


def _fault(name: str, kind: Kind, says: str, change: Any, size: float = 0.0, unit: str = "") -> Fault:
    return Fault(name, kind, says, "unwinnable-scores", OtherSplit(change), size, unit)


SPLIT_FAULTS = (
    _fault("tying-weight-negated", Kind.SETS, "a Farkas weight of a tied token has the other sign", _weight_negated),
    _fault("tied-token-forgotten", Kind.SETS, "a token that ties for good is said to be separated", _pair_forgotten),
    _fault("all-tokens-tied", Kind.SETS, "every token is said to tie", _all_tied),
    _fault("direction-not-across-ties", Kind.SVM, "U moves by ε of a row in F", _direction_tilted, 1e-6, "ε"),
    _fault("direction-across-ties-scaled", Kind.SVM, "U is 1 + ε of itself", _direction_scaled, 1e-6, "ε"),
    _fault("risk-within-of-all-tokens", Kind.RISK, "separated tokens keep their weight in L_F", As(_OfAllTokens)),
    _fault("risk-within-counts-copies-once", Kind.RISK, "inputs alike count once in L_F", As(_CopiesOnce)),
    _fault("risk-within-of-tied-inputs", Kind.RISK, "inputs that are won do not count in L_F", As(_TiedInputsAlone)),
    _fault("finite-part-at-zero", Kind.RUN, "tied tokens are taken to stay at equal weights", As(_RestAtZero)),
    _fault("slope-within-without-loss", Kind.GRADIENT, "∇L_F as if ℓ' were −1", As(_SlopeWithoutLoss)),
    _fault("risk-within-always-below", Kind.RISK, "L ≥ L_F whatever separated tokens score", As(_BoundsAlways)),
)
"""Faults in the split of data whose scores cannot all be won."""
