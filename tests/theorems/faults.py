"""Planted faults: implementations that are wrong in one way each, to show that a statement can fail.

A fault in the attention is consistent (weights, risk and gradient are those of the wrong softmax) and
computed as carefully as the reference wherever its formula allows, so that it is caught for what it says,
not for rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from attention import risk as reference
from attention.implementation import REFERENCE, Implementation
from attention.losses import Array, Loss
from attention.max_margin import Infeasible, MaxMargin, max_margin
from attention.risk import ScaledGradient


def _scaled(direction: Array) -> ScaledGradient:
    """A gradient that was computed without a scale of its own."""
    xp = array_namespace(direction)
    return ScaledGradient(xp.zeros_like(direction[..., 0]), direction)


def _from_weights(name: str, weights: Any, jacobian: str = "full") -> Implementation:
    """Attention with those weights; the gradient is (1/n) Σ ℓ' Kᵀ J γ with the Jacobian J of softmax.

    jacobian: ``full`` is diag(s) − s sᵀ, ``diagonal`` its diagonal, ``detached`` is diag(s), as if the
    normaliser were constant.
    """

    def outputs(keys: Array, scores: Array, p: Array) -> Array:
        xp = array_namespace(keys)
        return xp.sum(weights(keys, p) * scores, axis=-1)

    def risk(keys: Array, scores: Array, loss: Loss, p: Array) -> Array:
        return array_namespace(keys).mean(loss.value(outputs(keys, scores, p)), axis=-1)

    def gradient(keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        xp = array_namespace(keys)
        s = weights(keys, p)
        f = xp.sum(s * scores, axis=-1)
        rows = {"full": scores - f[..., None], "diagonal": (1 - s) * scores, "detached": scores + 0 * s}
        spread = rows[jacobian]
        coefficients = loss.derivative(f)[..., None] * s * spread / keys.shape[-3]
        return _scaled(xp.sum(xp.sum(coefficients[..., None] * keys, axis=-2), axis=-2))

    return REFERENCE.but(name, weights=weights, risk=risk, scaled_gradient=gradient)


def _gradient_fault(name: str, change: Any) -> Implementation:
    """The reference with ``change(scaled gradient, keys, scores, loss, p)`` for its gradient."""

    def gradient(keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        right = reference.scaled_gradient(keys, scores, loss, p)
        return change(right, keys, scores, loss, p)  # type: ignore[no-any-return]

    return REFERENCE.but(name, scaled_gradient=gradient)


def _on_other_keys(name: str, change: Callable[[Array], Array]) -> Implementation:
    """The reference on changed keys (its SVM still on the given ones)."""

    def weights(keys: Array, p: Array) -> Array:
        return reference.softmax_weights(change(keys), p)

    def risk(keys: Array, scores: Array, loss: Loss, p: Array) -> Array:
        return reference.risk(change(keys), scores, loss, p)

    def gradient(keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        return reference.scaled_gradient(change(keys), scores, loss, p)

    def log_excess(keys: Array, scores: Array, loss: Loss, p: Array, alpha: Array) -> tuple[Array, Array]:
        return reference.log_excess_risk(change(keys), scores, loss, p, alpha)

    return REFERENCE.but(name, weights=weights, risk=risk, scaled_gradient=gradient, log_excess_risk=log_excess)


def _masked(keys: Array) -> Array:
    """The last token attends to the one before it: its own key is lost."""
    xp = array_namespace(keys)
    return xp.concat([keys[..., :-1, :], keys[..., -2:-1, :]], axis=-2)


def _weights_epsilon(keys: Array, p: Array) -> Array:
    xp = array_namespace(keys, p)
    logits = xp.sum(keys * p[..., None, None, :], axis=-1)
    shifted = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return shifted / (xp.sum(shifted, axis=-1, keepdims=True) + 1e-6)


def _weights_single(keys: Array, p: Array) -> Array:
    xp = array_namespace(keys, p)
    single = xp.sum(xp.astype(keys, xp.float32) * xp.astype(p, xp.float32)[..., None, None, :], axis=-1)
    shifted = xp.exp(single - xp.max(single, axis=-1, keepdims=True))
    return xp.astype(shifted / xp.sum(shifted, axis=-1, keepdims=True), xp.float64)


def _weights_clipped(keys: Array, p: Array) -> Array:
    xp = array_namespace(keys, p)
    logits = xp.clip(xp.sum(keys * p[..., None, None, :], axis=-1), min=-5.0, max=5.0)
    shifted = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return shifted / xp.sum(shifted, axis=-1, keepdims=True)


def _negated(g: ScaledGradient, *_: Any) -> ScaledGradient:
    return ScaledGradient(g.log_scale, -g.direction)


def _doubled(g: ScaledGradient, *_: Any) -> ScaledGradient:
    return ScaledGradient(g.log_scale, 2 * g.direction)


def _one_coordinate(g: ScaledGradient, *_: Any) -> ScaledGradient:
    xp = array_namespace(g.direction)
    factor = xp.ones_like(g.direction[..., :1]) + 1e-6
    changed = xp.concat([g.direction[..., :1] * factor, g.direction[..., 1:]], axis=-1)
    return ScaledGradient(g.log_scale, changed)


def _rotated(g: ScaledGradient, *_: Any) -> ScaledGradient:
    """Coordinates rolled by one: a transposed or misaligned key."""
    xp = array_namespace(g.direction)
    return ScaledGradient(g.log_scale, xp.roll(g.direction, 1, axis=-1))


def _decayed(g: ScaledGradient, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
    """Weight decay that somebody left on: ∇L + 1e-3 p."""
    xp = array_namespace(g.direction)
    return _scaled(g.direction * xp.exp(g.log_scale)[..., None] + 1e-3 * p)


def _with_slope_at_minus_u(loss: Loss) -> Loss:
    """A loss whose derivative is taken at −u."""
    wrong = copy(loss)
    vars(wrong)["log_slope"] = lambda u: loss.log_slope(-u)
    vars(wrong)["derivative"] = lambda u: loss.derivative(-u)
    return wrong


def _wrong_slope(_: ScaledGradient, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
    return reference.scaled_gradient(keys, scores, _with_slope_at_minus_u(loss), p)


Solution = MaxMargin | Infeasible


def _with_prompt(solution: MaxMargin, keys: Any, p: Any, exact_p: list[Any]) -> MaxMargin:
    """That solution with another p: margins and exact certificate follow."""
    alpha = solution.alpha
    rows = np.take_along_axis(keys, alpha[:, None, None], axis=1) - keys
    margins = rows @ p
    margins[np.arange(len(alpha)), alpha] = np.inf
    exact = copy(solution.exact)
    vars(exact).pop("norm_squared", None)
    vars(exact)["p"] = exact_p
    return replace(solution, p=p, margins=margins, exact=exact)


def _svm_scaled(keys: Any, alpha: Any) -> Solution:
    """Margin 2 instead of 1."""
    right = max_margin(keys, alpha)
    if isinstance(right, Infeasible):
        return right
    return _with_prompt(right, keys, 2 * right.p, [2 * x for x in right.exact.p])


def _svm_without_a_constraint(keys: Any, alpha: Any) -> Solution:
    """The constraint with the largest dual is weakened 1024-fold, which is as good as lost."""
    right = max_margin(keys, alpha)
    if isinstance(right, Infeasible):
        return right
    i, t = np.unravel_index(np.argmax(right.duals), right.duals.shape)
    weaker = np.array(keys)
    weaker[i, t] = keys[i, alpha[i]] + 1024 * (keys[i, t] - keys[i, alpha[i]])
    wrong = max_margin(weaker, alpha)
    assert isinstance(wrong, MaxMargin)
    changed = _with_prompt(right, keys, wrong.p, wrong.exact.p)
    return replace(changed, neighbours=wrong.neighbours, duals=wrong.duals)


def _svm_with_bias(keys: Any, alpha: Any) -> Solution:
    """(k_α − k_t)ᵀp + b ≥ 1 with b penalised like p, as a library's SVM with an intercept column."""
    right = max_margin(keys, alpha)
    if isinstance(right, Infeasible):
        return right
    n, tokens, d = keys.shape
    column = np.zeros((n, tokens, 1))
    column[np.arange(n), alpha] = 1.0
    wrong = max_margin(np.concatenate([keys, column], axis=2), alpha)
    assert isinstance(wrong, MaxMargin)
    changed = _with_prompt(right, keys, wrong.p[:d], list(wrong.exact.p)[:d])
    return replace(changed, neighbours=wrong.neighbours, duals=wrong.duals)


def _svm_for_another_token(keys: Any, alpha: Any) -> Solution:
    """The first input's α replaced by the next token, where that is feasible."""
    other = np.array(alpha)
    other[0] = (other[0] + 1) % keys.shape[1]
    wrong = max_margin(keys, other)
    return wrong if isinstance(wrong, MaxMargin) else max_margin(keys, alpha)


def _svm_always_infeasible(keys: Any, alpha: Any) -> Solution:
    """A solver that gives up."""
    n, tokens, _ = keys.shape
    return Infeasible(alpha=np.asarray(alpha), multipliers=np.full((n, tokens), 1.0 / (n * tokens)), exact={})


def _neighbours_by_tolerance(keys: Any, alpha: Any) -> Solution:
    """Neighbours decided with a float tolerance as wide as the margin itself."""
    right = max_margin(keys, alpha)
    if isinstance(right, Infeasible):
        return right
    return replace(right, neighbours=np.isfinite(right.margins) & (right.margins < 2.0))


def _neighbour_lost(keys: Any, alpha: Any) -> Solution:
    """The neighbour with the largest dual is not reported."""
    right = max_margin(keys, alpha)
    if isinstance(right, Infeasible):
        return right
    fewer = np.array(right.neighbours)
    fewer[np.unravel_index(np.argmax(right.duals), right.duals.shape)] = False
    return replace(right, neighbours=fewer)


ATTENTION_FAULTS: dict[str, Implementation] = {
    fault.name: fault
    for fault in (
        _on_other_keys("temperature", lambda keys: 1.01 * keys),
        _on_other_keys("masked-token", _masked),
        _from_weights("epsilon-in-denominator", _weights_epsilon),
        _from_weights("float32-softmax", _weights_single),
        _from_weights("clipped-logits", _weights_clipped),
    )
}
"""Faults in the softmax: weights, risk and gradient agree with each other and are all wrong."""

GRADIENT_FAULTS: dict[str, Implementation] = {
    fault.name: fault
    for fault in (
        _gradient_fault("negated-gradient", _negated),
        _gradient_fault("doubled-gradient", _doubled),
        _gradient_fault("one-coordinate-off-by-1e-6", _one_coordinate),
        _gradient_fault("rolled-coordinates", _rotated),
        _gradient_fault("weight-decay", _decayed),
        _gradient_fault("wrong-loss-derivative", _wrong_slope),
        REFERENCE.but(
            "diagonal-jacobian",
            scaled_gradient=_from_weights("", reference.softmax_weights, jacobian="diagonal").scaled_gradient,
        ),
        REFERENCE.but(
            "detached-normaliser",
            scaled_gradient=_from_weights("", reference.softmax_weights, jacobian="detached").scaled_gradient,
        ),
        REFERENCE.but(
            "cancelling-gradient",
            scaled_gradient=_from_weights("", reference.softmax_weights).scaled_gradient,
        ),
    )
}
"""Faults in the gradient alone; ``cancelling-gradient`` is the textbook formula, wrong only by rounding."""

SVM_FAULTS: dict[str, Implementation] = {
    name: REFERENCE.but(name, max_margin=solver)
    for name, solver in {
        "svm-scaled": _svm_scaled,
        "svm-misses-a-constraint": _svm_without_a_constraint,
        "svm-with-bias": _svm_with_bias,
        "svm-for-another-token": _svm_for_another_token,
        "svm-always-infeasible": _svm_always_infeasible,
        "neighbours-by-tolerance": _neighbours_by_tolerance,
        "neighbour-lost": _neighbour_lost,
    }.items()
}
"""Faults in the hard-margin SVM."""

FAULTS: dict[str, Implementation] = {**ATTENTION_FAULTS, **GRADIENT_FAULTS, **SVM_FAULTS}
"""Every planted fault by name."""
