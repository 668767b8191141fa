"""Nonlinear heads ψ: networks with one hidden layer, and how hidden units change when attention mixes in other tokens.

A head is ψ(x) = Σ_j b_j φ_j(w_j·x + c_j), where hidden unit j has the input weights w_j, the bias c_j, the activation
φ_j and the output weight b_j. Softmax weights s sum to one, so at the attended token X_iᵀs the input of unit j is Σ_t
s_t z_itj with z_itj = w_j·x_it + c_j. So ψ depends on the tokens only through the *features* z, shape (n, T, m). A
linear head has one unit with φ(z) = z, features γ and weight 1. Changes of φ are computed in logarithms: where softmax
weights are as small as e^{−10⁶}, the value of ψ itself shows no change.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix D, (83), Lemma 14.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.errors import InvalidInput
from reference_attention.losses import LOSSES
from reference_attention.problem import checked_array

Floats = Float64[np.ndarray, "..."]
Array = Any
"""An array of floats, or of another type that implements NumPy's protocols."""


class Activation(ABC):
    """A non-decreasing activation φ whose slope φ' increases up to the point ``steepest`` and decreases beyond it."""

    name: str
    steepest: float
    """The point where φ' is largest; +inf if φ' never decreases."""

    @abstractmethod
    def value(self, z: Array) -> Array:
        """Return φ(z)."""

    @abstractmethod
    def slope(self, z: Floats, sign: Floats) -> Floats:
        """Return φ'(z); at a kink, return the one-sided derivative in the direction ``sign`` = ±1."""

    @abstractmethod
    def log_change(self, z: Floats, sign: Floats, log_size: Floats) -> Floats:
        """Return log |φ(z + sign·e^{log_size}) − φ(z)|, −inf where φ is constant.

        The result is exact up to rounding, however small the step e^{log_size} is.
        """

    @abstractmethod
    def log_stiffness(self, z: Floats, sign: Floats) -> Floats:
        """Return log B, where B bounds how far φ is from linear in the direction ``sign``.

        For every step δ > 0, | |φ(z + sign·δ) − φ(z)| − φ'(z) δ | ≤ φ'(z) B δ². Where φ'(z) = 0, φ does not change for
        δ ≤ 1/B.
        """

    def lowest_secant(self, z: Floats, sign: Floats, reach: Floats) -> Floats:
        """Return the least quotient |φ(z + sign·δ) − φ(z)|/δ over steps 0 < δ ≤ reach.

        The quotient is the mean of φ' between z and z + sign·δ. As φ' has no interior minimum, the mean first increases
        and then decreases as δ grows (one of these phases may be missing). So its least value is φ'(z) or the quotient
        at δ = reach.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            full_secant = np.exp(self.log_change(z, sign, np.log(reach)) - np.log(reach))
        return np.where(reach > 0, np.minimum(self.slope(z, sign), full_secant), self.slope(z, sign))

    def highest_slope(self, z: Floats, sign: Floats, reach: Floats) -> Floats:
        """Return the largest φ' between z and z + sign·reach."""
        end = z + sign * reach
        low, high = np.minimum(z, end), np.maximum(z, end)
        at = np.clip(self.steepest, low, high)
        return np.maximum(self.slope(at, -np.ones_like(at)), self.slope(at, np.ones_like(at)))


class Linear(Activation):
    """The activation φ(z) = z."""

    name = "linear"
    steepest = math.inf

    def value(self, z: Array) -> Array:
        """Return z."""
        return z

    def slope(self, z: Floats, sign: Floats) -> Floats:
        """Return φ'(z) = 1."""
        return np.ones(np.broadcast(z, sign).shape)

    def log_change(self, z: Floats, sign: Floats, log_size: Floats) -> Floats:
        """Return log |φ(z + sign·e^{log_size}) − φ(z)| = ``log_size``."""
        return log_size + 0.0 * z

    def log_stiffness(self, z: Floats, sign: Floats) -> Floats:
        """Return log B = −inf of :meth:`Activation.log_stiffness`, since φ is linear."""
        return np.full(np.broadcast(z, sign).shape, -math.inf)


class Tanh(Activation):
    """The activation φ = tanh."""

    name = "tanh"
    steepest = 0.0

    def value(self, z: Array) -> Array:
        """Return tanh z."""
        return np.tanh(z)

    def slope(self, z: Floats, sign: Floats) -> Floats:
        """Return φ'(z) = 1/cosh² z."""
        return np.exp(-2 * _log_cosh(z)) + 0.0 * sign

    def log_change(self, z: Floats, sign: Floats, log_size: Floats) -> Floats:
        """Return log |tanh(z + sign·e^{log_size}) − tanh z|."""
        # tanh x − tanh(x − δ) = sinh δ / (cosh x cosh(x − δ)). As tanh is odd, a step up from z equals a step down from
        # −z.
        x = -sign * z
        size = np.exp(np.minimum(log_size, 700.0))
        log_sinh = np.where(size < 1e-8, log_size, size - math.log(2) + np.log(-np.expm1(-2 * np.maximum(size, 1e-8))))
        return log_sinh - _log_cosh(x) - _log_cosh(x - size)

    def log_stiffness(self, z: Floats, sign: Floats) -> Floats:
        """Return log B of :meth:`Activation.log_stiffness`, B = 0.385 cosh² z, which follows from |φ''| ≤ 0.77."""
        # The change of φ over a step δ differs from slope·δ by at most max|φ''| δ²/2 ≤ 0.385 δ², so B = 0.385/slope.
        return math.log(0.385) + 2 * _log_cosh(z) + 0.0 * sign


class Arctan(Activation):
    """The activation φ = arctan."""

    name = "arctan"
    steepest = 0.0

    def value(self, z: Array) -> Array:
        """Return arctan z."""
        return np.arctan(z)

    def slope(self, z: Floats, sign: Floats) -> Floats:
        """Return φ'(z) = 1/(1 + z²)."""
        return 1 / (1 + z * z) + 0.0 * sign

    def log_change(self, z: Floats, sign: Floats, log_size: Floats) -> Floats:
        """Return log |arctan(z + sign·e^{log_size}) − arctan z|."""
        # arctan x − arctan(x − δ) is the angle of the vector (1 + x(x − δ), δ) to the first axis.
        x = -sign * z
        size = np.exp(np.minimum(log_size, 700.0))
        large = np.maximum(size, 1e-8)
        angle = np.log(np.arctan2(large, 1 + x * (x - large)))
        return np.where(size < 1e-8, log_size - np.log1p(x * (x - np.minimum(size, 1e-8))), angle)

    def log_stiffness(self, z: Floats, sign: Floats) -> Floats:
        """Return log B of :meth:`Activation.log_stiffness`, B = 0.325 (1 + z²), which follows from |φ''| ≤ 0.65."""
        # The change of φ over a step δ differs from slope·δ by at most max|φ''| δ²/2 ≤ 0.325 δ², so B = 0.325/slope.
        return math.log(0.325) + np.log1p(z * z) + 0.0 * sign


class Softplus(Activation):
    """The activation φ(z) = log(1 + e^z), which equals ℓ(−z) for the logistic loss ℓ."""

    name = "softplus"
    steepest = math.inf

    def value(self, z: Array) -> Array:
        """Return log(1 + e^z)."""
        return np.logaddexp(0.0, z)

    def slope(self, z: Floats, sign: Floats) -> Floats:
        """Return φ'(z) = 1/(1 + e^{−z})."""
        return np.exp(-np.logaddexp(0.0, -z)) + 0.0 * sign

    def log_change(self, z: Floats, sign: Floats, log_size: Floats) -> Floats:
        """Return log |φ(z + sign·e^{log_size}) − φ(z)|, computed from the logistic loss ℓ by φ(z) = ℓ(−z)."""
        z, sign, log_size = np.broadcast_arrays(z, sign, log_size)
        return np.asarray(LOSSES["logistic"].log_excess(-z, sign, log_size)[1])

    def log_stiffness(self, z: Floats, sign: Floats) -> Floats:
        """Return log B of :meth:`Activation.log_stiffness`, B = (1 + e^{−z})/8, which follows from |φ''| ≤ 1/4."""
        # The change of φ over a step δ differs from slope·δ by at most max|φ''| δ²/2 ≤ δ²/8, so B = (1/8)/slope.
        return math.log(0.125) + np.logaddexp(0.0, -z) + 0.0 * sign


class Relu(Activation):
    """The activation φ(z) = max(z, 0)."""

    name = "relu"
    steepest = math.inf

    def value(self, z: Array) -> Array:
        """Return max(z, 0)."""
        return np.maximum(z, 0.0)

    def slope(self, z: Floats, sign: Floats) -> Floats:
        """Return φ'(z): 1 where z > 0, or where z = 0 and the step is upwards; 0 elsewhere."""
        return np.where((z > 0) | ((z == 0) & (sign > 0)), 1.0, 0.0)

    def log_change(self, z: Floats, sign: Floats, log_size: Floats) -> Floats:
        """Return log |max(z + sign·e^{log_size}, 0) − max(z, 0)|."""
        z, sign, log_size = np.broadcast_arrays(z, sign, log_size)
        with np.errstate(divide="ignore"):
            down = np.minimum(log_size, np.log(np.maximum(z, 0.0)))
            size = np.exp(np.minimum(log_size, 700.0))
            up = np.where(z >= 0, log_size, np.log(np.maximum(size + np.minimum(z, 0.0), 0.0)))
        return np.where(sign < 0, down, up)

    def log_stiffness(self, z: Floats, sign: Floats) -> Floats:
        """Return log B of :meth:`Activation.log_stiffness`: −log |z| if the kink at 0 lies ahead, else −inf."""
        # φ is linear up to the kink. If a step δ passes the kink, then δ ≥ |z|, so the change of φ differs from slope·δ
        # by at most δ ≤ δ²/|z|.
        with np.errstate(divide="ignore"):
            return np.where(z * sign < 0, -np.log(np.abs(z)), -math.inf)


def _log_cosh(z: Floats) -> Floats:
    return np.logaddexp(z, -z) - math.log(2)


ACTIVATIONS: tuple[Activation, ...] = (Linear(), Tanh(), Arctan(), Softplus(), Relu())
"""The activations that a head can have; data files store an activation as its position in this tuple."""


@dataclass(frozen=True, eq=False)
class Head:
    """A head ψ with one hidden layer of m units, on the tokens of a data set (symbols: see the module).

    Args:
        features: the inputs z_itj of the hidden units at every token, shape (n, T, m).
        weights: the output weights b_j ≠ 0 of the units, shape (m,).
        activations: the activation of each unit, as a position in :data:`ACTIVATIONS`, shape (m,).
        labels: the labels Y_i = ±1, shape (n,).

    Raises:
        InvalidInput: shapes do not fit together, a weight is zero, an activation is unknown, or a label is not ±1.
    """

    features: Float64[np.ndarray, "n T m"]
    weights: Float64[np.ndarray, "m"]
    activations: Int64[np.ndarray, "m"]
    labels: Float64[np.ndarray, "n"]

    def __post_init__(self) -> None:
        """Check the arrays, and keep read-only copies of them."""
        features = checked_array("head_features", self.features, ("n", "T", "m"))
        n, _, m = features.shape
        weights = checked_array("head_weights", self.weights, (m,))
        labels = checked_array("head_labels", self.labels, (n,))
        codes = checked_array("head_activations", self.activations, (m,))
        if not weights.all():
            raise InvalidInput(f"head_weights: weight {int(np.argmin(weights != 0))} is zero; leave that unit out.")
        if not np.isin(codes, np.arange(len(ACTIVATIONS))).all():
            codes_and_names = ", ".join(f"{k} {phi.name}" for k, phi in enumerate(ACTIVATIONS))
            raise InvalidInput(f"head_activations: {codes.tolist()} are not all known; give {codes_and_names}.")
        if not (np.abs(labels) == 1).all():
            raise InvalidInput("head_labels: labels must be -1 or +1.")
        for name, value in (("features", features), ("weights", weights), ("labels", labels)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "activations", codes.astype(np.int64))

    @classmethod
    def linear(cls, scores: Float64[np.ndarray, "n T"]) -> Head:
        """Return the linear head that gives the scores γ of a Problem: Y_i ψ(X_iᵀ s) = γ_iᵀs."""
        return cls(scores[:, :, None], np.ones(1), np.zeros(1, dtype=np.int64), np.ones(len(scores)))

    @property
    def signs(self) -> Float64[np.ndarray, "n m"]:
        """Return −sign(Y_i b_j), shape (n, m), the direction in which the input of unit j must move to lower Y_i ψ."""
        return np.asarray(-np.sign(self.labels[:, None] * self.weights))

    def units(self, name: str, *arguments: Array) -> Array:
        """Return the results of a method of every unit's activation, called on the unit's entries of the arguments."""
        columns = [
            getattr(ACTIVATIONS[code], name)(*(x[..., j] for x in arguments))
            for j, code in enumerate(self.activations.tolist())
        ]
        return np.stack(np.broadcast_arrays(*columns), axis=-1)

    def outputs(self, weights: Array) -> Array:
        """Return Y_i ψ(X_iᵀ s_i) for softmax weights s, (*b, n, T) → (*b, n)."""
        return self.outputs_of(np.sum(weights[..., None] * self.features, axis=-2))

    def outputs_of(self, inputs: Array) -> Array:
        """Return Y_i ψ, given the inputs of the hidden units, (*b, n, m) → (*b, n)."""
        return self.labels * np.sum(self.weights * self.units("value", inputs), axis=-1)
