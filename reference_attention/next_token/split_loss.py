"""The loss and its gradient at θ = θ_⋆ + u + θ_⊥, computed from u ∈ F and θ_⊥ ∈ F^⊥, which keep digits that θ loses.

The notation is that of :mod:`.master_problem`, :mod:`.finite_minimum` (q⋆, w⋆, see :attr:`.FiniteMinimum.log_shares`)
and :mod:`.subspace_split` (F, Ŝ, g). With d_jv = a_jv·u minus its mean over v under q⋆_j, and x_j = Σ_{v∉Ŝ_j} e^{log
w_jv − g_jv·θ_⊥},

    L(θ) − L_⋆ = Σ π_j log(1 + Σ_{Ŝ_j} q⋆_jz (e^{d_jz} − 1)) + Σ π_j log(1 + x_j),
    log w_jv = log w⋆_jv + d_jv − log(1 + Σ_{Ŝ_j} q⋆_jz (e^{d_jz} − 1)),

because Σ_j π_j Σ_z (q⋆_jz − p_jz) a_jz, the gradient of the restricted loss at θ_⋆, is zero on F. Points are given by
the coordinates x of u and y of θ_⊥.

Reference: derived here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64

from reference_attention.next_token.finite_minimum import FiniteMinimum
from reference_attention.next_token.master_problem import MasterProblem

Array = Float64[np.ndarray, "..."]


@dataclass(frozen=True, eq=False)
class SplitLoss:
    """The loss L at points θ_⋆ + u + θ_⊥, and the quantities that it is computed from, in floats (symbols: the module).

    Attributes:
        minimum: θ_⋆, and the coordinates in which points are given.
    """

    minimum: FiniteMinimum

    @cached_property
    def weights(self) -> Float64[np.ndarray, "m"]:
        """Return π_j, the share of context j in all counts."""
        counts = self.minimum.split.problem.counts
        return np.asarray(counts.sum(axis=1) / counts.sum())

    @cached_property
    def inner(self) -> Float64[np.ndarray, "m K"]:
        """Return q⋆_jv, the softmax over Ŝ_j at θ_⋆; 0 outside Ŝ_j."""
        return np.where(self.minimum.split.sets, self.minimum.shares, 0.0)

    @cached_property
    def outer(self) -> Float64[np.ndarray, "m K"]:
        """Return log w⋆_jv of the alternatives v outside Ŝ_j; −∞ for v ∈ Ŝ_j and where there is no alternative."""
        return np.where(self.minimum.split.others, self.minimum.log_shares, -np.inf)

    @cached_property
    def inside(self) -> Float64[np.ndarray, "m K r"]:
        """Return the coordinates in F of a_jv minus the mean of a_jz under q⋆_j."""
        rows = self.minimum.split.inside
        return np.asarray(rows - np.einsum("jv,jvr->jr", self.inner, rows)[:, None])

    def parts(self, x: Float64[np.ndarray, "*b r"], y: Float64[np.ndarray, "*b s"]) -> tuple[Array, Array, Array]:
        """Return three arrays: Σ_z q⋆_jz (e^{d_jz} − 1); the softmax over Ŝ_j at θ minus q⋆_jv; log w_jv − g_jv·θ_⊥."""
        d = np.einsum("jvr,...r->...jv", self.inside, x)
        increases = self.inner * np.expm1(np.where(self.inner > 0, d, 0.0))
        total = increases.sum(axis=-1)
        share_changes = (increases - self.inner * total[..., None]) / (1 + total[..., None])
        logs = self.outer + d - np.log1p(total)[..., None] - np.einsum("jvs,...s->...jv", self.minimum.split.outside, y)
        return total, share_changes, logs

    def excess(self, x: Float64[np.ndarray, "*b r"], y: Float64[np.ndarray, "*b s"]) -> Float64[np.ndarray, "*b"]:
        """Return L(θ) − L_⋆, where L_⋆ is the infimum of L."""
        total, _, logs = self.parts(x, y)
        return np.asarray((np.log1p(total) + np.logaddexp(0.0, log_sum(logs))) @ self.weights)

    def gradient(
        self, x: Float64[np.ndarray, "*b r"], y: Float64[np.ndarray, "*b s"]
    ) -> tuple[Float64[np.ndarray, "*b r"], Float64[np.ndarray, "*b s"]]:
        """Return the parts of ∇L(θ) in F and in F^⊥, each in coordinates."""
        change, shares_outside = self.changes(x, y)
        pi = self.weights
        along = np.einsum("j,...jv,jvr->...r", pi, change, self.inside)
        return along, -np.einsum("j,...jv,jvs->...s", pi, shares_outside, self.minimum.split.outside)

    def changes(self, x: Float64[np.ndarray, "*b r"], y: Float64[np.ndarray, "*b s"]) -> tuple[Array, Array]:
        """Return the array s_jv − q⋆_jv, and the array s_jv with 0 for v ∈ Ŝ_j; s_j is the softmax over V_j at θ."""
        _, share_changes, logs = self.parts(x, y)
        log_normaliser = np.logaddexp(0.0, log_sum(logs))[..., None]
        shares_outside, share_inside = np.exp(logs - log_normaliser), np.exp(-log_normaliser)
        return share_changes * share_inside + self.inner * np.expm1(-log_normaliser) + shares_outside, shares_outside


def split_gradient(
    minimum: FiniteMinimum, x: Float64[np.ndarray, "*b r"], y: Float64[np.ndarray, "*b s"]
) -> tuple[Float64[np.ndarray, "*b r"], Float64[np.ndarray, "*b s"]]:
    """Return the parts of ∇L at θ_⋆ + u + θ_⊥ in F and in F^⊥, each in coordinates."""
    return SplitLoss(minimum).gradient(x, y)


def next_token_loss(problem: MasterProblem, theta: Float64[np.ndarray, "*b D"]) -> Float64[np.ndarray, "*b"]:
    """Return L(θ) computed directly from its definition in :mod:`.master_problem`, by logits."""
    with np.errstate(divide="ignore"):
        logits = np.einsum("jvd,...d->...jv", problem.vectors, theta) + np.log(problem.multiplicities)
    shares = problem.counts / problem.counts.sum()
    attained = (shares * np.where(problem.supports, logits, 0.0)).sum(axis=(-2, -1))
    return np.asarray(log_sum(logits) @ shares.sum(axis=1) - attained)


def log_sum(logs: Float64[np.ndarray, "*b m K"]) -> Float64[np.ndarray, "*b m"]:
    """Return log Σ e^logs over the last axis, −∞ for an empty sum."""
    return np.asarray(np.logaddexp.reduce(logs, axis=-1))
