"""Faults in the joint problem: (SVM) of the head, and p_relax of Theorem 6."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reference_attention.svm.label_svm import LabelSvm, label_svm, relaxed_max_margin
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind


@dataclass(frozen=True)
class ChangedLabelSvm:
    """The reference solution of (SVM), changed: (solution, features, size) → solution."""

    change: Callable[[LabelSvm, Any, float], LabelSvm]
    size: float = 0.0

    def solve(self, features: Any) -> LabelSvm | Infeasible:
        """As :func:`reference_attention.svm.label_svm.label_svm`."""
        right = label_svm(features)
        return right if isinstance(right, Infeasible) else self.change(right, features, self.size)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", label_svm=ChangedLabelSvm(self.change, size).solve)


@dataclass(frozen=True)
class RelaxedSolver:
    """Size → the reference with that solver for p_relax."""

    solver: Callable[[Any, Any, Any], MaxMargin | Infeasible]

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", relaxed_max_margin=self.solver)


def _solve(features: Any) -> LabelSvm:
    solution = label_svm(features)
    assert isinstance(solution, LabelSvm)
    return solution


def _without_the_heaviest(right: LabelSvm, features: Any, size: float) -> LabelSvm:
    """Weakened 1024-fold; everything else is reported as if nothing had happened."""
    if len(features) == 1:
        return right
    weaker = np.array(features)
    weaker[int(np.argmax(right.duals))] *= 1024
    wrong = _solve(weaker)
    return replace(right, v=wrong.v, direction=wrong.direction, margin=wrong.margin)


def _with_intercept(right: LabelSvm, features: Any, size: float) -> LabelSvm:
    wrong = _solve(np.concatenate([features, np.ones((len(features), 1))], axis=1))
    v = wrong.v[:-1]
    return replace(wrong, v=v, direction=v / np.linalg.norm(v))


def _wider(right: LabelSvm, features: Any, size: float) -> LabelSvm:
    return replace(right, margin=(1 + size) * right.margin)


def _coordinate_off(right: LabelSvm, features: Any, size: float) -> LabelSvm:
    v = np.array(right.v)
    v[int(np.argmin(np.abs(v)))] += size * np.abs(v).max()  # the smallest one, so that v_mm turns
    return replace(right, v=v, direction=v / np.linalg.norm(v))


def _dual_off(right: LabelSvm, features: Any, size: float) -> LabelSvm:
    changed = np.array(right.duals)
    changed[int(np.argmax(changed))] *= 1 + size
    return replace(right, duals=changed)


def _slack_lost(right: LabelSvm, features: Any, size: float) -> LabelSvm:
    return replace(right, support=np.ones_like(right.support), slack=np.zeros_like(right.slack))


def _support_lost(right: LabelSvm, features: Any, size: float) -> LabelSvm:
    if right.support.sum() < 2:
        return right
    fewer = right.support.copy()
    fewer[int(np.argmax(right.duals))] = False
    return replace(right, support=fewer)


def not_relaxed(keys: Any, alpha: Any, support: Any) -> MaxMargin | Infeasible:
    """p_mm for p_relax."""
    return max_margin(keys, alpha)


def without_quadrant(keys: Any, alpha: Any, support: Any) -> MaxMargin | Infeasible:
    """The constraints ≥ 0 of the non-supports forgotten: their margins are whatever they are."""
    weaker = np.array(keys)
    weaker[~support] = keys[~support][np.arange(int((~support).sum())), alpha[~support]][:, None]
    return relaxed_max_margin(weaker, alpha, support)


LABEL_FAULTS = (
    Fault(
        "label-svm-misses-a-constraint",
        Kind.LABELS,
        "the support of the largest dual is lost",
        "lemma-13",
        ChangedLabelSvm(_without_the_heaviest),
    ),
    Fault(
        "label-svm-with-intercept",
        Kind.LABELS,
        "z·v + b ≥ 1, an intercept that the model does not have",
        "lemma-13",
        ChangedLabelSvm(_with_intercept),
    ),
    Fault(
        "label-margin-wide",
        Kind.LABELS,
        "(1 + ε) Γ reported",
        "lemma-13",
        ChangedLabelSvm(_wider),
        1.0,
        "relative error of Γ",
    ),
    Fault(
        "label-svm-coordinate-off",
        Kind.LABELS,
        "the smallest coordinate of v_mm off by ε times the largest",
        "lemma-13",
        ChangedLabelSvm(_coordinate_off),
        1e-3,
        "relative error of a coordinate",
    ),
    Fault(
        "label-dual-off",
        Kind.LABELS,
        "the largest dual of (SVM) off by a factor 1 + ε",
        "lemma-13",
        ChangedLabelSvm(_dual_off),
        1e-2,
        "relative error of a dual",
    ),
    Fault(
        "all-inputs-supports",
        Kind.LABELS,
        "every input is taken for a support",
        "lemma-13",
        ChangedLabelSvm(_slack_lost),
    ),
    Fault(
        "support-lost",
        Kind.LABELS,
        "the support of the largest dual is not reported",
        "lemma-13",
        ChangedLabelSvm(_support_lost),
    ),
    Fault("relaxed-is-not-relaxed", Kind.LABELS, "p_mm for p_relax", "theorem-6", RelaxedSolver(not_relaxed)),
    Fault(
        "relaxed-without-quadrant",
        Kind.LABELS,
        "the constraints ≥ 0 of the non-supports forgotten",
        "theorem-6",
        RelaxedSolver(without_quadrant),
    ),
)
"""Faults in (SVM) and p_relax."""
