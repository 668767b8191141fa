"""Faults in the gradient alone: weights and risk are right."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

from array_api_compat import array_namespace

from reference_attention import risk as reference
from reference_attention.loss import Array, Loss
from reference_attention.losses import loss_named
from reference_attention.risk import ScaledGradient
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Fault, Kind
from theorems.faults.softmax import Normalised, as_it_is, covariance, detached_normaliser, diagonal, without_scale

Change = Callable[[ScaledGradient, Array, float], ScaledGradient]
Back = Callable[[Array, Array, Array, float], Array]


@dataclass(frozen=True)
class ChangedGradient:
    """The reference gradient, changed: (gradient, p, size) → gradient."""

    change: Change
    size: float = 0.0

    def gradient(self, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        """As :func:`reference_attention.risk.scaled_gradient`."""
        return self.change(reference.scaled_gradient(keys, scores, loss, p), p, self.size)


@dataclass(frozen=True)
class GradientChange:
    """Size → the reference with a changed gradient."""

    change: Change

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", scaled_gradient=ChangedGradient(self.change, size).gradient)


@dataclass(frozen=True)
class TextbookGradient:
    """Size → (1/n) Σ ℓ' Kᵀ Jᵀγ with that Jᵀ, by the formula of textbooks."""

    pulled_back: Back

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", scaled_gradient=Normalised(as_it_is, self.pulled_back).gradient)


@dataclass(frozen=True)
class OtherProblem:
    """The reference gradient of another problem: (keys, scores, loss) → (keys, scores, loss, factor)."""

    change: Callable[[Array, Array, Loss], tuple[Array, Array, Loss, float]]

    def gradient(self, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        """As :func:`reference_attention.risk.scaled_gradient`."""
        keys, scores, loss, factor = self.change(keys, scores, loss)
        found = reference.scaled_gradient(keys, scores, loss, p)
        return ScaledGradient(found.log_scale, factor * found.direction)

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return REFERENCE.replace("", scaled_gradient=self.gradient)


def _negate(g: ScaledGradient, p: Array, size: float) -> ScaledGradient:
    return ScaledGradient(g.log_scale, -g.direction)


def _longer(g: ScaledGradient, p: Array, size: float) -> ScaledGradient:
    return ScaledGradient(g.log_scale, (1 + size) * g.direction)


def _clip(g: ScaledGradient, p: Array, size: float) -> ScaledGradient:
    """∇L of norm 1/ε at the most."""
    xp = array_namespace(g.direction)
    over = g.log_norm + math.log(size)
    return ScaledGradient(g.log_scale - xp.where(over > 0, over, xp.zeros_like(over)), g.direction)


def _one_coordinate(g: ScaledGradient, p: Array, size: float) -> ScaledGradient:
    xp = array_namespace(g.direction)
    changed = xp.concat([g.direction[..., :1] * (1 + size), g.direction[..., 1:]], axis=-1)
    return ScaledGradient(g.log_scale, changed)


def _roll(g: ScaledGradient, p: Array, size: float) -> ScaledGradient:
    xp = array_namespace(g.direction)
    return ScaledGradient(g.log_scale, xp.roll(g.direction, 1, axis=-1))


def _add_decay(g: ScaledGradient, p: Array, size: float) -> ScaledGradient:
    """In the larger of the two scales, so that nothing is lost where one of them underflows."""
    xp = array_namespace(g.direction)
    length = xp.sqrt(xp.sum(p * p, axis=-1)) * size
    log_decay = xp.where(length > 0, xp.log(xp.where(length > 0, length, xp.ones_like(length))), g.log_scale)
    scale = xp.where(log_decay > g.log_scale, log_decay, g.log_scale)
    shift = xp.where(scale > -math.inf, scale, xp.zeros_like(scale))
    own = xp.exp(g.log_scale - shift)[..., None] * g.direction
    return ScaledGradient(scale, own + xp.exp(-shift)[..., None] * size * p)


def _single(g: ScaledGradient, p: Array, size: float) -> ScaledGradient:
    """Stored in float32: rounded, and lost below 1e-38."""
    xp = array_namespace(g.direction)
    stored = xp.astype(g.direction * xp.exp(g.log_scale)[..., None], xp.float32)
    return without_scale(xp.astype(stored, xp.float64))


def _with_slope(loss: Loss, slope_at: Callable[[Array], Array] | None) -> Loss:
    """A loss with ℓ' taken elsewhere, or without ℓ' (the slope of the correlation loss)."""
    wrong = copy(loss)
    if slope_at is None:
        vars(wrong)["log_slope"] = lambda u: 0 * u
        vars(wrong)["derivative"] = lambda u: 0 * u - 1
    else:
        vars(wrong)["log_slope"] = lambda u: loss.log_slope(slope_at(u))
        vars(wrong)["derivative"] = lambda u: loss.derivative(slope_at(u))
    return wrong


def _slope_at_minus_u(keys: Array, scores: Array, loss: Loss) -> tuple[Array, Array, Loss, float]:
    return keys, scores, _with_slope(loss, lambda u: -u), 1.0


def _slope_dropped(keys: Array, scores: Array, loss: Loss) -> tuple[Array, Array, Loss, float]:
    return keys, scores, _with_slope(loss, None), 1.0


def _make_convex(keys: Array, scores: Array, loss: Loss) -> tuple[Array, Array, Loss, float]:
    return keys, scores, loss_named("logistic") if loss.name == "sigmoid" else loss, 1.0


def _last_input_left_out(keys: Array, scores: Array, loss: Loss) -> tuple[Array, Array, Loss, float]:
    n = keys.shape[-3]
    if n == 1:
        return keys, scores, loss, 1.0
    return keys[..., :-1, :, :], scores[..., :-1, :], loss, (n - 1) / n


GRADIENT_FAULTS = (
    Fault("negated-gradient", Kind.GRADIENT, "ascent: the wrong sign", "lemma-3", GradientChange(_negate)),
    Fault(
        "gradient-too-long",
        Kind.GRADIENT,
        "(1 + ε) ∇L",
        "lemma-3",
        GradientChange(_longer),
        1.0,
        "relative error of the length",
    ),
    Fault(
        "clipped-gradient",
        Kind.GRADIENT,
        "∇L clipped at the norm 1/ε",
        "lemma-3",
        GradientChange(_clip),
        1e-3,
        "1 over the largest norm",
    ),
    Fault(
        "one-coordinate-off",
        Kind.GRADIENT,
        "the first coordinate of ∇L off by a factor 1 + ε",
        "lemma-3",
        GradientChange(_one_coordinate),
        1e-6,
        "relative error of a coordinate",
    ),
    Fault(
        "rolled-coordinates",
        Kind.GRADIENT,
        "coordinates rolled by one, as by a misaligned key",
        "lemma-3",
        GradientChange(_roll),
    ),
    Fault(
        "weight-decay",
        Kind.GRADIENT,
        "∇L + λ p: weight decay that was left on",
        "lemma-3",
        GradientChange(_add_decay),
        1e-3,
        "λ",
        1e-300,
    ),
    Fault("float32-gradient", Kind.GRADIENT, "∇L stored in float32", "lemma-3", GradientChange(_single)),
    Fault("wrong-loss-derivative", Kind.GRADIENT, "ℓ'(−u) for ℓ'(u)", "lemma-3", OtherProblem(_slope_at_minus_u)),
    Fault(
        "loss-derivative-dropped",
        Kind.GRADIENT,
        "ℓ' left out, as for the correlation loss",
        "lemma-3",
        OtherProblem(_slope_dropped),
    ),
    Fault(
        "surrogate-loss",
        Kind.GRADIENT,
        "∇L of the convex surrogate log(1 + e^−u) where the loss is σ(−u)",
        "lemma-1",
        OtherProblem(_make_convex),
    ),
    Fault(
        "last-input-left-out",
        Kind.GRADIENT,
        "the sum over the inputs stops one early",
        "lemma-3",
        OtherProblem(_last_input_left_out),
    ),
    Fault(
        "diagonal-jacobian",
        Kind.GRADIENT,
        "cross term of the softmax Jacobian dropped: diag(s(1 − s))",
        "lemma-3",
        TextbookGradient(diagonal),
    ),
    Fault(
        "detached-normaliser",
        Kind.GRADIENT,
        "normaliser detached: J = diag(s)",
        "lemma-3",
        TextbookGradient(detached_normaliser),
    ),
    Fault(
        "cancelling-gradient",
        Kind.GRADIENT,
        "the textbook formula, wrong only by rounding where the softmax saturates",
        "lemma-3",
        TextbookGradient(covariance),
    ),
)
"""Faults in the gradient alone."""
