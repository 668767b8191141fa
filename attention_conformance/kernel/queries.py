"""A kernel behind the functions that statements call: with one prompt for all inputs, or with the queries W z_i.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 1.1; *Transformers as Support Vector Machines*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from reference_attention.loss import Array, Loss
from reference_attention.outer_keys import OuterKeys
from reference_attention.risk import ScaledGradient, risk, scaled_gradient, softmax_weights
from theorems.core.implementation import Replacements


@runtime_checkable
class QueryKernel(Protocol):
    """A kernel on queries (*b, n or 1, d): see :class:`attention_conformance.kernel.kernel.Kernel`."""

    def weights(self, keys: Array, queries: Array) -> Array:
        """Return s_i, (*b, n, T)."""

    def outputs(self, keys: Array, scores: Array, queries: Array) -> Array:
        """Return γ_iᵀ s_i, (*b, n)."""

    def gradients(self, keys: Array, scores: Array, loss: Loss, queries: Array) -> tuple[Array, Array]:
        """Return the gradient of each input's loss by its query, (*b, n, d), and the log of its unit, (*b,)."""


@dataclass(frozen=True, eq=False)
class PromptKernel:
    """A kernel that is given one prompt p for all inputs."""

    kernel: QueryKernel

    @property
    def replacements(self) -> Replacements:
        """The functions of the reference that the kernel stands in for."""
        return {softmax_weights: self.weights, risk: self.risk, scaled_gradient: self.scaled_gradient}

    def weights(self, keys: Array, p: Array) -> Array:
        """Return s_i = softmax(K_i p), (*b, n, T)."""
        return self.kernel.weights(keys, np.asarray(p)[..., None, :])

    def risk(self, keys: Array, scores: Array, loss: Loss, p: Array) -> Array:
        """Return L(p) = (1/n) Σ_i ℓ(γ_iᵀ s_i), (*b,)."""
        return np.mean(loss.value(self.kernel.outputs(keys, scores, np.asarray(p)[..., None, :])), axis=-1)

    def scaled_gradient(self, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        """Return ∇L(p), (*b, d)."""
        each, log_scale = self.kernel.gradients(keys, scores, loss, np.asarray(p)[..., None, :])
        return ScaledGradient(log_scale, np.mean(each, axis=-2))


@dataclass(frozen=True, eq=False)
class OuterKernel(PromptKernel):
    """A kernel that is given the queries W z_i, where keys are vec(x zᵀ) and prompts vec(W).

    Attributes:
        factors: the tokens x, which are the kernel's keys, and z.
        keys: the floats vec(x zᵀ); with any other keys the kernel is given a prompt.
    """

    factors: OuterKeys
    keys: Array

    def _queries(self, p: Array) -> Array:
        d, e = self.factors.tokens.shape[2], self.factors.queries.shape[1]
        return np.einsum("...ab,nb->...na", np.asarray(p).reshape(*np.shape(p)[:-1], d, e), self.factors.queries)

    def weights(self, keys: Array, p: Array) -> Array:
        """Return s_i = softmax(X_i W z_i), (*b, n, T)."""
        if keys is not self.keys:
            return super().weights(keys, p)
        return self.kernel.weights(self.factors.tokens, self._queries(p))

    def risk(self, keys: Array, scores: Array, loss: Loss, p: Array) -> Array:
        """Return L(W), (*b,)."""
        if keys is not self.keys:
            return super().risk(keys, scores, loss, p)
        return np.mean(loss.value(self.kernel.outputs(self.factors.tokens, scores, self._queries(p))), axis=-1)

    def scaled_gradient(self, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        """Return ∇L(W) = (1/n) Σ_i ∂ℓ_i/∂q_i z_iᵀ, (*b, d·e)."""
        if keys is not self.keys:
            return super().scaled_gradient(keys, scores, loss, p)
        each, log_scale = self.kernel.gradients(self.factors.tokens, scores, loss, self._queries(p))
        mean = np.einsum("...na,nb->...ab", each, self.factors.queries) / len(self.factors.queries)
        return ScaledGradient(log_scale, mean.reshape(*mean.shape[:-2], -1))
