"""Adapter from a kernel to the functions that statements call: softmax weights, risk, and gradient of the risk.

The kernel's query is one prompt p for all inputs or, if a matrix W is trained, W z_i for the query token z_i of input
i. Arrays have batch axes *b, n inputs, T tokens and d columns; input i has keys K_i, scores γ_i and tokens X_i.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 1.1; *Transformers as Support Vector Machines*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reference_attention.loss import Array, Loss
from reference_attention.outer_keys import OuterKeys
from reference_attention.risk import ScaledGradient, risk, scaled_gradient, softmax_weights
from theorems.core.implementation import Replacements


@dataclass(frozen=True, eq=False)
class QueriedKernel:
    """A kernel that gets the prompt p for all inputs or, for one array of keys vec(x zᵀ), the queries W z_i.

    With p = vec(W) the logit vec(x z_iᵀ)·p is xᵀ W z_i, so that the kernel may get the keys x and the query W z_i.

    Attributes:
        kernel: a :class:`attention_conformance.kernel.kernel.Kernel`.
        factors: the tokens x, which become the kernel's keys, and the query tokens z_i; None if there is no W.
        outer_keys: the array of the keys vec(x z_iᵀ); for every other array of keys the kernel gets the prompt p.
    """

    kernel: Any
    factors: OuterKeys | None = None
    outer_keys: Array | None = None

    @property
    def replacements(self) -> Replacements:
        """The functions that call the kernel, each by the function of the reference that it replaces."""
        return {softmax_weights: self.weights, risk: self.risk, scaled_gradient: self.scaled_gradient}

    def _asked(self, keys: Array, p: Array) -> tuple[Array, Array, Array | None]:
        """Return the keys and queries that the kernel gets, and the query tokens z, None if p is the query."""
        if self.factors is None or keys is not self.outer_keys:
            return keys, np.asarray(p)[..., None, :], None
        tokens, z = self.factors.tokens, self.factors.queries
        W = np.asarray(p).reshape(*np.shape(p)[:-1], tokens.shape[2], z.shape[1])
        return tokens, np.einsum("...ab,nb->...na", W, z), z

    def weights(self, keys: Array, p: Array) -> Array:
        """Return the softmax weights s_i = softmax(K_i p), or softmax(X_i W z_i), of shape (*b, n, T)."""
        keys, queries, _ = self._asked(keys, p)
        weights: Array = self.kernel.weights(keys, queries)
        return weights

    def risk(self, keys: Array, scores: Array, loss: Loss, p: Array) -> Array:
        """Return the risk L(p) = (1/n) Σ_i ℓ(γ_iᵀ s_i), of shape (*b,), for the softmax weights s_i at p."""
        keys, queries, _ = self._asked(keys, p)
        return np.mean(loss.value(self.kernel.outputs(keys, scores, queries)), axis=-1)

    def scaled_gradient(self, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        """Return the gradient of the risk as a factor and a direction: by the prompt, (*b, d), or by vec(W), (*b, d·e).

        ∇L(W) = (1/n) Σ_i ∂ℓ_i/∂q_i z_iᵀ, with ∂ℓ_i/∂q_i the gradient of input i's loss by its query q_i = W z_i. W is
        trained if the keys are :attr:`outer_keys`, the products x zᵀ.
        """
        keys, queries, z = self._asked(keys, p)
        each, log_scale = self.kernel.gradients(keys, scores, loss, queries)
        if z is None:
            return ScaledGradient(log_scale, np.mean(each, axis=-2))
        mean = np.einsum("...na,nb->...ab", each, z) / len(z)
        return ScaledGradient(log_scale, mean.reshape(*mean.shape[:-2], -1))
