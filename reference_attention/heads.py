"""Nonlinear heads ψ: networks with one hidden layer, and how their units change when attention mixes in other tokens.

ψ(x) = Σ_j b_j φ_j(w_j·x + c_j). Softmax weights sum to one, so the input of unit j at the attended token X_iᵀs is Σ_t
s_t z_itj with z_itj = w_j·x_it + c_j. So ψ depends on the tokens only through these *features* z, shape (n, T, m). A
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
"""Floats, or an array type that implements NumPy's protocols."""


class Activation(ABC):
    """A non-decreasing function φ whose slope φ' rises up to ``steepest`` and falls beyond."""

    name: str
    steepest: float
    """The point where φ' is largest; +inf if φ' never falls."""

    @abstractmethod
    def value(self, z: Array) -> Array:
        """Return φ(z)."""

    @abstractmethod
    def slope(self, z: Floats, sign: Floats) -> Floats:
        """Return φ'(z); at a kink, return the one-sided derivative in the direction ``sign``."""

    @abstractmethod
    def log_change(self, z: Floats, sign: Floats, log_size: Floats) -> Floats:
        """Return log |φ(z + sign·e^{log_size}) − φ(z)|, −inf where φ is constant.

        The result is exact up to rounding, however small the step is.
        """

    @abstractmethod
    def log_stiffness(self, z: Floats, sign: Floats) -> Floats:
        """Return log B for a B such that |change of φ − slope·δ| ≤ slope·B δ² for steps δ in the direction ``sign``.

        Where the slope is 0, the change itself is zero for δ ≤ 1/B.
        """

    def lowest_secant(self, z: Floats, sign: Floats, reach: Floats) -> Floats:
        """Return the least |change|/δ over steps 0 < δ ≤ reach.

        The quotient is the mean of φ' between z and z + sign δ. φ' has no interior minimum. So as δ grows, the mean is
        first non-decreasing and then non-increasing (one of the two phases may be empty), and its least value is the
        slope at z or the secant over the whole reach.
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
        """Return 1."""
        return np.ones(np.broadcast(z, sign).shape)

    def log_change(self, z: Floats, sign: Floats, log_size: Floats) -> Floats:
        """Return ``log_size``."""
        return log_size + 0.0 * z

    def log_stiffness(self, z: Floats, sign: Floats) -> Floats:
        """Return −inf, since the change is linear."""
        return np.full(np.broadcast(z, sign).shape, -math.inf)


class Tanh(Activation):
    """The activation φ = tanh."""

    name = "tanh"
    steepest = 0.0

    def value(self, z: Array) -> Array:
        """Return tanh z."""
        return np.tanh(z)

    def slope(self, z: Floats, sign: Floats) -> Floats:
        """Return 1/cosh² z."""
        return np.exp(-2 * _log_cosh(z)) + 0.0 * sign

    def log_change(self, z: Floats, sign: Floats, log_size: Floats) -> Floats:
        """Return log |tanh(z + sign·e^{log_size}) − tanh z|."""
        # tanh x − tanh(x − δ) = sinh δ / (cosh x cosh(x − δ)); tanh is odd, so a step up from z is a step down from −z.
        x = -sign * z
        size = np.exp(np.minimum(log_size, 700.0))
        log_sinh = np.where(size < 1e-8, log_size, size - math.log(2) + np.log(-np.expm1(-2 * np.maximum(size, 1e-8))))
        return log_sinh - _log_cosh(x) - _log_cosh(x - size)

    def log_stiffness(self, z: Floats, sign: Floats) -> Floats:
        """Return log(0.385 cosh² z), from |φ''| ≤ 0.77."""
        # |change − slope·δ| ≤ max|φ''| δ²/2 with |φ''| ≤ 0.77, so B = 0.385/slope.
        return math.log(0.385) + 2 * _log_cosh(z) + 0.0 * sign


class Arctan(Activation):
    """The activation φ = arctan."""

    name = "arctan"
    steepest = 0.0

    def value(self, z: Array) -> Array:
        """Return arctan z."""
        return np.arctan(z)

    def slope(self, z: Floats, sign: Floats) -> Floats:
        """Return 1/(1 + z²)."""
        return 1 / (1 + z * z) + 0.0 * sign

    def log_change(self, z: Floats, sign: Floats, log_size: Floats) -> Floats:
        """Return log |arctan(z + sign·e^{log_size}) − arctan z|."""
        # arctan x − arctan(x − δ) is the angle of (1 + x(x − δ), δ).
        x = -sign * z
        size = np.exp(np.minimum(log_size, 700.0))
        large = np.maximum(size, 1e-8)
        angle = np.log(np.arctan2(large, 1 + x * (x - large)))
        return np.where(size < 1e-8, log_size - np.log1p(x * (x - np.minimum(size, 1e-8))), angle)

    def log_stiffness(self, z: Floats, sign: Floats) -> Floats:
        """Return log(0.325 (1 + z²)), from |φ''| ≤ 0.65."""
        # |φ''| ≤ 0.65.
        return math.log(0.325) + np.log1p(z * z) + 0.0 * sign


class Softplus(Activation):
    """The activation φ(z) = log(1 + e^z), which is ℓ(−z) of the logistic loss."""

    name = "softplus"
    steepest = math.inf

    def value(self, z: Array) -> Array:
        """Return log(1 + e^z)."""
        return np.logaddexp(0.0, z)

    def slope(self, z: Floats, sign: Floats) -> Floats:
        """Return 1/(1 + e^{−z})."""
        return np.exp(-np.logaddexp(0.0, -z)) + 0.0 * sign

    def log_change(self, z: Floats, sign: Floats, log_size: Floats) -> Floats:
        """Return log |φ(z + sign·e^{log_size}) − φ(z)|, which is the log excess of the logistic loss at −z."""
        z, sign, log_size = np.broadcast_arrays(z, sign, log_size)
        return np.asarray(LOSSES["logistic"].log_excess(-z, sign, log_size)[1])

    def log_stiffness(self, z: Floats, sign: Floats) -> Floats:
        """Return log((1 + e^{−z})/8), from |φ''| ≤ 1/4."""
        # |φ''| ≤ 1/4.
        return math.log(0.125) + np.logaddexp(0.0, -z) + 0.0 * sign


class Relu(Activation):
    """The activation φ(z) = max(z, 0)."""

    name = "relu"
    steepest = math.inf

    def value(self, z: Array) -> Array:
        """Return max(z, 0)."""
        return np.maximum(z, 0.0)

    def slope(self, z: Floats, sign: Floats) -> Floats:
        """Return 1 where z > 0, or z = 0 and the step is upwards, and 0 elsewhere."""
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
        """Return −log |z| where the kink lies ahead, otherwise −inf."""
        # φ is linear up to the kink. If the step passes the kink, then δ ≥ |z|, so |change − slope·δ| ≤ δ ≤ δ²/|z|.
        with np.errstate(divide="ignore"):
            return np.where(z * sign < 0, -np.log(np.abs(z)), -math.inf)


def _log_cosh(z: Floats) -> Floats:
    return np.logaddexp(z, -z) - math.log(2)


ACTIVATIONS: tuple[Activation, ...] = (Linear(), Tanh(), Arctan(), Softplus(), Relu())
"""The activations; data store an activation as its position in this tuple."""


@dataclass(frozen=True, eq=False)
class Head:
    """A head with one hidden layer on given data.

    Args:
        features: z_itj, inputs of the units at every token, shape (n, T, m).
        weights: b_j ≠ 0, shape (m,).
        activations: positions in :data:`ACTIVATIONS`, shape (m,).
        labels: Y_i = ±1, shape (n,).

    Raises:
        InvalidInput: shapes that do not fit together, zero weights, unknown activations, labels other than ±1.
    """

    features: Float64[np.ndarray, "n T m"]
    weights: Float64[np.ndarray, "m"]
    activations: Int64[np.ndarray, "m"]
    labels: Float64[np.ndarray, "n"]

    def __post_init__(self) -> None:
        """Refuse arrays that do not make a head; otherwise keep checked copies."""
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
        """Return the linear head of a Problem: Y_i ψ = γ_iᵀs."""
        return cls(scores[:, :, None], np.ones(1), np.zeros(1, dtype=np.int64), np.ones(len(scores)))

    @property
    def signs(self) -> Float64[np.ndarray, "n m"]:
        """Return −sign(Y_i b_j), the direction in which feature z_itj must move for Y_i ψ to fall."""
        return np.asarray(-np.sign(self.labels[:, None] * self.weights))

    def units(self, name: str, *arguments: Array) -> Array:
        """Call the named method of every unit's activation on arguments of shape (..., m) and stack the results."""
        columns = [
            getattr(ACTIVATIONS[code], name)(*(x[..., j] for x in arguments))
            for j, code in enumerate(self.activations.tolist())
        ]
        return np.stack(np.broadcast_arrays(*columns), axis=-1)

    def outputs(self, weights: Array) -> Array:
        """Return Y_i ψ(X_iᵀ s_i) for softmax weights s, shape (*b, n)."""
        return self.outputs_of(np.sum(weights[..., None] * self.features, axis=-2))

    def outputs_of(self, inputs: Array) -> Array:
        """Return Y_i ψ from the inputs of the units, shape (*b, n, m) → (*b, n)."""
        return self.labels * np.sum(self.weights * self.units("value", inputs), axis=-1)
