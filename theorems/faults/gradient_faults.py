"""Faults in the gradient only: weights and risk are right."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

from array_api_compat import array_namespace

from reference_attention.loss import Array, Loss
from reference_attention.losses import loss_named
from reference_attention.risk import ScaledGradient, scaled_gradient
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Faults, Kind
from theorems.faults.softmax import Normalised, as_it_is, covariance, detached_normaliser, diagonal, without_scale

FAULTS = Faults(Kind.GRADIENT)
GRADIENT = ("lemma-3", scaled_gradient)
Data = tuple[Array, Array, Loss]
Change = Callable[..., tuple[Data, float]]


@FAULTS.change("negated-gradient", "−∇L in place of ∇L: ascent", *GRADIENT)
def _negate(g: ScaledGradient, *arguments: Any) -> ScaledGradient:
    return ScaledGradient(g.log_scale, -g.direction)


@FAULTS.change("gradient-too-long", "(1 + ε) ∇L in place of ∇L", *GRADIENT, size=1.0)
def _longer(g: ScaledGradient, size: float, *arguments: Any) -> ScaledGradient:
    return ScaledGradient(g.log_scale, (1 + size) * g.direction)


@FAULTS.change("clipped-gradient", "∇L is clipped at the norm 1/ε", *GRADIENT, size=1e-3)
def _clip(g: ScaledGradient, size: float, *arguments: Any) -> ScaledGradient:
    """Shorten ∇L to the norm 1/``size`` where it is longer."""
    xp = array_namespace(g.direction)
    over = g.log_norm + math.log(size)
    return ScaledGradient(g.log_scale - xp.where(over > 0, over, xp.zeros_like(over)), g.direction)


@FAULTS.change(
    "one-coordinate-off",
    "the first coordinate of ∇L is multiplied by 1 + ε",
    *GRADIENT,
    size=1e-6,
)
def _one_coordinate(g: ScaledGradient, size: float, *arguments: Any) -> ScaledGradient:
    xp = array_namespace(g.direction)
    changed = xp.concat([g.direction[..., :1] * (1 + size), g.direction[..., 1:]], axis=-1)
    return ScaledGradient(g.log_scale, changed)


@FAULTS.change("rolled-coordinates", "the coordinates of ∇L are rolled by one, as if keys were misaligned", *GRADIENT)
def _roll(g: ScaledGradient, *arguments: Any) -> ScaledGradient:
    xp = array_namespace(g.direction)
    return ScaledGradient(g.log_scale, xp.roll(g.direction, 1, axis=-1))


@FAULTS.change("weight-decay", "∇L + λ p in place of ∇L (weight decay)", *GRADIENT, size=1e-3)
def _add_decay(g: ScaledGradient, size: float, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
    """Return ∇L + λ p, λ = ``size``, in the unit of the larger term, so that neither is lost by underflow."""
    xp = array_namespace(g.direction)
    length = xp.sqrt(xp.sum(p * p, axis=-1)) * size
    log_decay = xp.where(length > 0, xp.log(xp.where(length > 0, length, xp.ones_like(length))), g.log_scale)
    scale = xp.where(log_decay > g.log_scale, log_decay, g.log_scale)
    shift = xp.where(scale > -math.inf, scale, xp.zeros_like(scale))
    scaled = xp.exp(g.log_scale - shift)[..., None] * g.direction
    return ScaledGradient(scale, scaled + xp.exp(-shift)[..., None] * size * p)


@FAULTS.change("float32-gradient", "∇L is stored in float32", *GRADIENT)
def _single(g: ScaledGradient, *arguments: Any) -> ScaledGradient:
    """Return the gradient as stored in float32: rounded, and 0 below about 1e-38."""
    xp = array_namespace(g.direction)
    stored = xp.astype(g.direction * xp.exp(g.log_scale)[..., None], xp.float32)
    return without_scale(xp.astype(stored, xp.float64))


def _with_slope(loss: Loss, slope_at: Callable[[Array], Array] | None) -> Loss:
    """Return the loss with ℓ'(``slope_at(u)``) in place of ℓ'(u); with ℓ' = −1 if ``slope_at`` is None."""
    wrong = copy(loss)
    if slope_at is None:
        vars(wrong)["log_slope"] = lambda u: 0 * u
        vars(wrong)["derivative"] = lambda u: 0 * u - 1
    else:
        vars(wrong)["log_slope"] = lambda u: loss.log_slope(slope_at(u))
        vars(wrong)["derivative"] = lambda u: loss.derivative(slope_at(u))
    return wrong


def _problem(name: str, says: str, by: str) -> Callable[[Change], Change]:
    """Return a decorator that plants the gradient of a problem with wrong data, multiplied by a factor.

    The decorated function maps the right (keys, scores, loss) to ((wrong keys, scores, loss), factor).
    """
    return FAULTS.plant(name, says, by, scaled_gradient, through=_of_other_problem)


def _of_other_problem(change: Change, right: Any, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
    data, factor = change(keys, scores, loss)
    gradient = right(*data, p)
    return ScaledGradient(gradient.log_scale, factor * gradient.direction)


@_problem("wrong-loss-derivative", "ℓ'(−u) in place of ℓ'(u)", "lemma-3")
def _slope_at_minus_u(keys: Array, scores: Array, loss: Loss) -> tuple[Data, float]:
    return (keys, scores, _with_slope(loss, lambda u: -u)), 1.0


@_problem("loss-derivative-dropped", "ℓ' = −1, as for the correlation loss", "lemma-3")
def _slope_dropped(keys: Array, scores: Array, loss: Loss) -> tuple[Data, float]:
    return (keys, scores, _with_slope(loss, None)), 1.0


@_problem("surrogate-loss", "for the loss σ(−u), the gradient of its convex surrogate log(1 + e^−u)", "lemma-1")
def _make_convex(keys: Array, scores: Array, loss: Loss) -> tuple[Data, float]:
    return (keys, scores, loss_named("logistic") if loss.name == "sigmoid" else loss), 1.0


@_problem("last-input-left-out", "the last input is left out of the sum over the inputs", "lemma-3")
def _last_input_left_out(keys: Array, scores: Array, loss: Loss) -> tuple[Data, float]:
    n = keys.shape[-3]
    if n == 1:
        return (keys, scores, loss), 1.0
    return (keys[..., :-1, :, :], scores[..., :-1, :], loss), (n - 1) / n


def _textbook(pulled_back: Any) -> Callable[[float], Implementation]:
    """Return the function size → reference with the gradient (1/n) Σ ℓ' Kᵀ Jᵀγ, whatever the size.

    J is the Jacobian of the softmax; the function ``pulled_back`` computes Jᵀγ.
    """
    return partial(_with_gradient, Normalised(as_it_is, pulled_back).gradient)


def _with_gradient(gradient: Any, size: float) -> Implementation:
    return REFERENCE.replace("", {scaled_gradient: gradient})


FAULTS.wrap(
    "diagonal-jacobian", "the softmax Jacobian without its off-diagonal entries: diag(s(1 − s))", "lemma-3", _textbook
)(diagonal)
FAULTS.wrap("detached-normaliser", "the softmax Jacobian with the normaliser detached: diag(s)", "lemma-3", _textbook)(
    detached_normaliser
)
FAULTS.wrap(
    "cancelling-gradient",
    "the textbook formula, which is wrong by rounding where the softmax saturates",
    "lemma-3",
    _textbook,
)(covariance)
