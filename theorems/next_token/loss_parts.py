"""The loss of next-token prediction at points θ = θ_⋆ + u + θ_⊥, as a sum of two parts with error bounds.

The symbols are those of :mod:`.limits`. The two parts of `ntp-extended-supports` are computed separately from u ∈ F and
θ_⊥ ∈ F^⊥, so that nothing cancels. Shapes: b points, m contexts, K alternatives at most, r = dim F, s = dim F^⊥, D = r
+ s.

Reference: derived here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64

from theorems.bounded import exact, value_of
from theorems.next_token.limits import Limits
from theorems.rounding.attention_at import Numbers

SMALL = 0.02
"""The bound of |d| below which e^d − 1 − d is computed from its series."""


@dataclass(frozen=True, eq=False)
class LossParts:
    """The parts of the loss and of its gradient at several points θ, with the notation of the module.

    Attributes:
        limits: the limits Ŝ, θ_mm, θ_⋆ and F of training.
        x: the coordinates of u = P_Fθ − θ_⋆ in F, (*b, r).
        y: the coordinates of θ_⊥ in F^⊥, (*b, s).
    """

    limits: Limits
    x: Float64[np.ndarray, "*b r"]
    y: Float64[np.ndarray, "*b s"]

    @cached_property
    def shift(self) -> Numbers:
        """The changes d_jv = f_jv·u of logits when u is added, less their mean under q⋆, (*b, m, K)."""
        return np.einsum("...r,jvr->...jv", exact(self.x), self.limits.inside)

    @cached_property
    def growth(self) -> Numbers:
        """The relative growth Σ_z q⋆_jz (e^{d_jz} − 1) ≥ 0 of the softmax normaliser over Ŝ_j when u is added, (*b, m).

        As Σ_z q⋆_jz d_jz = 0, it is computed as Σ_z q⋆_jz (e^{d_jz} − 1 − d_jz).
        """
        inner, sets = self.limits.inner, self.limits.split.sets
        return np.maximum(np.sum(inner * rest_of_exp(np.where(sets, self.shift, 0.0)), axis=-1), 0.0)

    @cached_property
    def finite_excess(self) -> Numbers:
        """The excess L_fin(P_F θ) − L_⋆ of the part in F, (*b,)."""
        return np.sum(self.limits.weights * np.log1p(self.growth), axis=-1)

    @cached_property
    def margins(self) -> Numbers:
        """The margins g_jv·θ_⊥ of alternatives off Ŝ_j, (*b, m, K); +∞ on Ŝ_j and where there is no alternative."""
        margins = np.einsum("...s,jvs->...jv", exact(self.y), self.limits.outside)
        return np.where(self.limits.others, margins, np.inf)

    @cached_property
    def log_outer(self) -> Numbers:
        """The logarithms of the weights w_jv(P_F θ) of alternatives off Ŝ_j, (*b, m, K); −∞ on Ŝ_j."""
        masked = self.limits.others
        at = np.where(masked, self.shift, 0.0) + self.limits.log_outer - np.log1p(self.growth)[..., None]
        return np.where(masked, at, -np.inf)

    @cached_property
    def log_lost(self) -> Numbers:
        """The logarithms of the odds x_j = Σ_v w_jv e^{−g_jv·θ_⊥} of an alternative off Ŝ_j, (*b, m)."""
        masked = self.limits.others
        logs = np.where(masked, self.log_outer - np.where(masked, self.margins, 0.0), -np.inf)
        return np.logaddexp.reduce(logs, axis=-1)

    @cached_property
    def log_kept(self) -> Numbers:
        """The numbers log(1 + x_j), with x_j the odds of an alternative off Ŝ_j, (*b, m)."""
        return np.logaddexp(0.0, self.log_lost)

    @cached_property
    def excess(self) -> Numbers:
        """The excess L(θ) − L_⋆, (*b,)."""
        return self.finite_excess + np.sum(self.limits.weights * self.log_kept, axis=-1)

    @cached_property
    def away(self) -> Numbers:
        """The softmax probabilities s_jv, at θ, of alternatives off Ŝ_j; 0 on Ŝ_j, (*b, m, K)."""
        masked = self.limits.others
        logs = np.where(masked, self.log_outer - np.where(masked, self.margins, 0.0), -np.inf)
        return np.exp(logs - self.log_kept[..., None])

    @cached_property
    def share_off(self) -> Numbers:
        """The total probability Ω = Σ π_j x_j/(1 + x_j) of alternatives off Ŝ, (*b,)."""
        return np.sum(self.limits.weights * np.sum(self.away, axis=-1), axis=-1)

    @cached_property
    def soft_margin(self) -> Numbers:
        """The upper bound m + K = min_jv (g_jv·θ_⊥ − log C_jv) + log ΣC of −⟨∇L, θ_⊥⟩/Ω, (*b,).

        Here C_jv = π_j w_jv/(1 + x_j), and Ω is ``share_off``; see part 5 of `ntp-extended-supports`.
        """
        masked = self.limits.others
        logs = np.where(masked, self.log_outer, 0.0) + (np.log(self.limits.weights) - self.log_kept)[..., None]
        lifted = np.where(masked, np.where(masked, self.margins, 0.0) - logs, np.inf)
        total = np.logaddexp.reduce(np.logaddexp.reduce(np.where(masked, logs, -np.inf), axis=-1), axis=-1)
        return np.min(lifted, axis=(-2, -1)) + total

    @cached_property
    def gradient_inside(self) -> Numbers:
        """The gradient in F, P_F∇L(θ) = Σ_j π_j Σ_v (s_jv − q⋆_jv) f_jv, with s_jv the softmax at θ, (*b, r)."""
        inner, grown = self.limits.inner, self.growth[..., None]
        log_inside, sets = self.log_kept[..., None], self.limits.split.sets
        raised = np.expm1(np.where(sets, self.shift, 0.0))
        change = inner * ((raised - grown) / (1 + grown) * np.exp(-log_inside) + np.expm1(-log_inside)) + self.away
        return np.einsum("...jv,jvr->...r", self.limits.weights[:, None] * change, self.limits.inside)

    @cached_property
    def gradient_outside(self) -> Numbers:
        """The gradient in F^⊥, P_⊥∇L(θ) = −Σ_j π_j Σ_{v∉Ŝ_j} s_jv g_jv, with s_jv the softmax at θ, (*b, s)."""
        return -np.einsum("...jv,jvs->...s", self.limits.weights[:, None] * self.away, self.limits.outside)

    @cached_property
    def gradient(self) -> Numbers:
        """The gradient ∇L(θ) in the coordinates of F and F^⊥, (*b, D)."""
        return np.concatenate([self.gradient_inside, self.gradient_outside], axis=-1)

    @cached_property
    def gradient_norm(self) -> Numbers:
        """The norm ‖∇L(θ)‖, (*b,)."""
        return np.linalg.norm(self.gradient, axis=-1)

    @cached_property
    def inside_norm(self) -> Numbers:
        """The norm ‖u‖ = ‖P_F θ − θ_⋆‖, (*b,)."""
        return np.linalg.norm(exact(self.x), axis=-1) if self.x.shape[-1] else exact(np.zeros(self.x.shape[:-1]))

    @cached_property
    def outside_norm(self) -> Numbers:
        """The norm ‖θ_⊥‖, (*b,)."""
        return np.linalg.norm(exact(self.y), axis=-1) if self.y.shape[-1] else exact(np.zeros(self.y.shape[:-1]))

    @cached_property
    def theta(self) -> Numbers:
        """The point θ in the coordinates of F and F^⊥, (*b, D)."""
        return np.concatenate([exact(self.x) + self.limits.origin, exact(self.y)], axis=-1)

    @cached_property
    def norm(self) -> Numbers:
        """The norm ‖θ‖, (*b,)."""
        return np.linalg.norm(self.theta, axis=-1)

    @cached_property
    def along(self) -> Numbers:
        """The component ⟨θ, θ̄_mm⟩ of θ along θ̄_mm = θ_mm/‖θ_mm‖, (*b,)."""
        return np.vecdot(exact(self.y), self.limits.ray) / self.limits.ray_norm


def rest_of_exp(d: Any) -> Numbers:
    """Return e^d − 1 − d."""
    small = np.abs(value_of(d)) < SMALL
    near: Any = np.where(small, d, 0.0)
    size = np.abs(value_of(near)) + np.asarray(near.error)
    # The series d²/2 + d³/6 + …, whose remainder is below |d|^7/4000 in this range.
    series = near * near / 2 * (1 + near / 3 * (1 + near / 4 * (1 + near / 5 * (1 + near / 6))))
    far = np.where(small, 0.0, d)
    return np.where(small, series.widen(size**7 / 4000), np.expm1(far) - far)
