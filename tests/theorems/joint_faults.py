"""Planted faults for the joint statements: a wrong (SVM), a wrong p_relax, beside those of :mod:`tests.theorems.faults`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from attention.implementation import REFERENCE, Implementation
from attention.label_svm import LabelSvm, label_svm, relaxed_max_margin
from attention.max_margin import max_margin
from tests.theorems.faults import ATTENTION_FAULTS, FAULTS


def _solved(features: Any) -> LabelSvm:
    solution = label_svm(features)
    assert isinstance(solution, LabelSvm)
    return solution


def _without_the_heaviest_support(features: Any) -> LabelSvm:
    """The support with the largest dual is weakened 1024-fold; everything else is reported as if nothing had happened."""
    right = _solved(features)
    if len(features) == 1:
        return right
    weaker = np.array(features)
    weaker[int(np.argmax(right.duals))] *= 1024
    wrong = _solved(weaker)
    return replace(right, v=wrong.v, direction=wrong.direction, margin=wrong.margin)


def _with_intercept(features: Any) -> LabelSvm:
    """z·v + b ≥ 1 with b penalised: an intercept that the model does not have."""
    wrong = _solved(np.concatenate([features, np.ones((len(features), 1))], axis=1))
    v = wrong.v[:-1]
    return replace(wrong, v=v, direction=v / np.linalg.norm(v))


def _scaled(features: Any) -> LabelSvm:
    """‖v_mm‖ half of what it is: Γ doubled."""
    right = _solved(features)
    return replace(right, margin=2 * right.margin)


def _slack_lost(features: Any) -> LabelSvm:
    """Every input is taken for a support, as with a wide tolerance."""
    right = _solved(features)
    return replace(right, support=np.ones_like(right.support), slack=np.zeros_like(right.slack))


def _support_lost(features: Any) -> LabelSvm:
    """The support with the largest dual is not reported, if there is another."""
    right = _solved(features)
    if right.support.sum() < 2:
        return right
    fewer = right.support.copy()
    fewer[int(np.argmax(right.duals))] = False
    return replace(right, support=fewer)


def _relaxed_without_quadrant(keys: Any, alpha: Any, support: Any) -> Any:
    """The constraints ≥ 0 of the non-supports forgotten: their margins are whatever they are."""
    weaker = np.array(keys)
    weaker[~support] = keys[~support][np.arange(int((~support).sum())), alpha[~support]][:, None]
    return relaxed_max_margin(weaker, alpha, support)


LABEL_FAULTS: dict[str, Implementation] = {
    name: REFERENCE.but(name, label_svm=solver)
    for name, solver in {
        "label-svm-misses-a-constraint": _without_the_heaviest_support,
        "label-svm-with-intercept": _with_intercept,
        "label-margin-doubled": _scaled,
        "all-inputs-supports": _slack_lost,
        "support-lost": _support_lost,
    }.items()
}
RELAXED_FAULTS: dict[str, Implementation] = {
    "relaxed-is-not-relaxed": REFERENCE.but(
        "relaxed-is-not-relaxed", relaxed_max_margin=lambda keys, alpha, support: max_margin(keys, alpha)
    ),
    "relaxed-without-quadrant": REFERENCE.but("relaxed-without-quadrant", relaxed_max_margin=_relaxed_without_quadrant),
}
JOINT_FAULTS: dict[str, Implementation] = {
    **LABEL_FAULTS,
    **RELAXED_FAULTS,
    **ATTENTION_FAULTS,
    **{
        name: FAULTS[name]
        for name in (
            "svm-scaled",
            "svm-misses-a-constraint",
            "svm-with-bias",
            "negated-gradient",
            "rolled-coordinates",
            "weight-decay",
        )
    },
}
"""What the joint statements are tried on."""
