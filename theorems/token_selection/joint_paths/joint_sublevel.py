"""The sublevel set of a joint problem, its effective constants, and a hunt through it (Theorems 5 and 6).

Notation. z_it = Y_i x_it, u = v̄_mm, Γ its margin, S its supports (all inputs in Theorem 5), slack_i = u·z_iα − Γ ≥ 0
with equality on S, δ_it = u·(z_iα − z_it), q_i = 1 − s_iα, Λ = log L + rΓ. Competitor: (r u, R p_c/‖p_c‖), with p_c =
p_mm in Theorem 5, p_c = p_relax + ε (p_mm − p_relax) in Theorem 6; any ε ∈ [0, 1] will do. Let (v, p) be feasible, ‖v‖
≤ r, ‖p‖ ≤ R, with Λ(v, p) ≤ Λ_c, the competitor's. Everything below is about all such points, not only minimisers.

1. *Outputs.* (1/n) ℓ(min_i Y_i v·x_i^p) ≤ L ≤ L_c and ℓ^{-1}(y) = −log(e^y − 1) give min_i Y_i v·x_i^p ≥ rΓ − F,
   F = log(exp(n L_c) − 1) + rΓ. (For L_c → 0: F → Λ_c + log n; the paper's log(2n) is an upper bound.)
2. *Competitor.* ℓ(u) ≤ e^{−u} and q_i ≤ (T−1)/(e^{R m_i} + T − 1), m_i its margin at input i, give
   Λ_c ≤ log mean_i exp(−r (slack_i − D_i q_i)), D_i = max_t δ_it^+. In Theorem 5: F ≤ log n + r D (T−1) e^{−RΘ} + o(1).
3. *Selection.* Assumption C over S with ν: min_{i∈S} Y_i v·x_i^p ≤ r (Γ − ν q_S), q_S = max_{i∈S} q_i (the label
   margin is that of the unit ball, never negative). So q_S ≤ B := F/(rν).
4. *Margin.* A token t ≠ α of i ∈ S with k-margin R m has q_i ≥ σ(−R m). So R m_S ≥ log(1/B − 1) when B < 1, whatever
   the sign of m_S. With r ≥ e^{RΘ}/D: R (Θ − m_S) ≤ log((log n + D (T−1) + o(1))/ν) + o(1): the rate of the paper's
   claim.
5. *Head.* For i ∈ S: v·z_iα ≥ rΓ − F − r q_S Δ, Δ = max over S of ‖z_iα − z_it‖. Averaged with the duals,
   Γ u·v ≥ rΓ − F − r B Δ, so 1 − cos(v, v_mm) ≤ (F/r + BΔ)/Γ =: η²/2 wherever that is at most 1, and ‖v − r u‖ ≤ r η.
6. *Non-supports* (Theorem 6). If d_i = min_t δ_it > 0: u·z_i^p ≥ Γ − F/r − η max_t ‖z_it‖ by 1 and 5, while
   u·z_i^p ≤ Γ + slack_i − q_i d_i. So q_i ≤ Q_i := (slack_i + F/r + η max_t‖z_it‖)/d_i, and R m_i ≥ log(1/Q_i − 1)
   when Q_i < 1.
7. *Direction.* With duals μ ≥ 0 of the target (p_mm, or p_relax: Σ_{i∈S} μ_it = ‖p_relax‖² because the other right
   sides are 0), ⟨p, p_relax⟩ = Σ μ_it (k_iα − k_it)·p ≥ R m_S ‖p_relax‖² + Σ_{i∉S} μ_it R m_i, and ‖p‖ ≤ R.

F, B, Q are computed from the actual Λ_c; item 2 is claimed separately.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float64

from generators.case import Case
from generators.optimal_tokens import token_optimality
from reference_attention.floats import EPS
from reference_attention.paths.joint import (
    Joint,
    chosen_of,
    exponents,
    log_mean_exp,
    log_slopes,
    relative_log_risk,
    retracted,
)
from reference_attention.svm.max_margin import Infeasible, MaxMargin
from theorems.core.claim import Form, Undecided
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance

JOINT_SUBLEVEL = tolerance(
    "joint-sublevel",
    "Λ: Σ_i π_i (error of E_i) + eps (1 + 4 log n); log q: 4 eps (T + k + 8)(1 + max Σ_j |δk_j p_j|);"
    " margins: the same;"
    " 1 − cos(v, v_mm): (d + 4) eps ‖w‖/r, the rounding of ‖r v̄_mm + w‖ ≤ r",
    "joint_sublevel: a softmax weight has the relative error of its logit, E_i the errors of its terms, a mean of"
    " exponentials their average; only points inside by more than this count, so the bounds themselves need no more"
    " than the rounding of their own sides",
)

LOGIT_FLOOR = -700.0
"""Logarithm of what smaller softmax weights of the implementation under test are taken for: below, digits are lost."""


@dataclass(frozen=True, eq=False)
class JointSetup:
    """A case of Theorem 5 or 6 with the solutions that the implementation under test gives.

    Attributes:
        joint: signed tokens, keys, α and (SVM).
        nu: a proven ν of Assumption C over the supports.
        separator: p_mm(α).
        target: p_relax (p_mm where every input is a support).
    """

    joint: Joint
    nu: float
    separator: MaxMargin
    target: MaxMargin

    @cached_property
    def spread(self) -> float:
        """Δ."""
        return float(np.max(np.linalg.norm(self.joint.sides[self.joint.svm.support], axis=-1)))

    @cached_property
    def largest_drops(self) -> Float64[np.ndarray, "n"]:
        """D_i, shape (n,)."""
        return np.asarray(np.max(np.where(self.joint.others, self.joint.drops, 0.0), axis=1))

    @cached_property
    def smallest_drops(self) -> Float64[np.ndarray, "n"]:
        """d_i, shape (n,)."""
        return np.asarray(np.min(np.where(self.joint.others, self.joint.drops, np.inf), axis=1))


def joint_setup(
    case: Case, under_test: Implementation, claim: str = "non-optimality", form: Form = Form.EFFECTIVE
) -> JointSetup:
    """The objects of the theorem.

    Args:
        claim, form: what is undecided without them.

    Raises:
        Undecided: one of them does not exist, and why.
    """
    data, alpha = case.dataset, case.chosen
    if data is None:
        raise Undecided(claim, "the case has no tokens and labels", form)
    tokens = data.signed_tokens
    optimality = token_optimality(case, supports_only=True)
    if not optimality.holds:
        raise Undecided(claim, f"no ν of Assumption C: {optimality.evidence}", form)
    svm = under_test.label_svm(chosen_of(tokens, alpha))
    separator = under_test.max_margin(case.problem.keys, alpha)
    if isinstance(svm, Infeasible) or isinstance(separator, Infeasible):
        raise Undecided(claim, "v_mm or p_mm does not exist", form)
    target = separator
    if not svm.support.all():
        relaxed = under_test.relaxed_max_margin(case.problem.keys, alpha, svm.support)
        if isinstance(relaxed, Infeasible):
            raise Undecided(claim, "p_relax does not exist", form)
        target = relaxed
    return JointSetup(Joint(tokens, case.problem.keys, alpha, svm), optimality.nu, separator, target)


@dataclass(frozen=True, eq=False)
class Points:
    """Pairs (r v̄_mm + w, p) with their softmax weights and Λ, and the rounding that Λ may carry.

    Attributes:
        w: shape (m, d).
        p: shape (m, k).
        log_weights: shape (m, n, T).
        value: Λ, shape (m,).
        error: shape (m,).
    """

    w: Float64[np.ndarray, "m d"]
    p: Float64[np.ndarray, "m k"]
    log_weights: Float64[np.ndarray, "m n T"]
    value: Float64[np.ndarray, "m"]
    error: Float64[np.ndarray, "m"]

    def where(self, mask: Bool[np.ndarray, "m"]) -> Points:
        """Those of the mask."""
        return Points(self.w[mask], self.p[mask], self.log_weights[mask], self.value[mask], self.error[mask])


@dataclass(frozen=True, eq=False)
class Sublevel:
    """{(v, p): ‖v‖ ≤ r, ‖p‖ ≤ R, L(v, p) ≤ L(competitor)} for one (r, R)."""

    setup: JointSetup
    under_test: Implementation
    log_r: float
    R: float
    competitor: Float64[np.ndarray, "k"]

    def points(self, w: Float64[np.ndarray, "m d"], p: Float64[np.ndarray, "m k"]) -> Points:
        """Those heads and prompts, moved into the balls."""
        w = retracted(self.setup.joint, self.log_r, w)
        norms = np.linalg.norm(p, axis=1, keepdims=True)
        p = p * np.where(norms > self.R, self.R * (1 - 2 * EPS) / np.maximum(norms, self.R), 1.0)
        joint = self.setup.joint
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(self.under_test.weights(joint.keys, p)), LOGIT_FLOOR)
        value = relative_log_risk(joint, self.log_r, w, logs)
        return Points(w, p, logs, value, self._error(w, p, logs))

    def _error(
        self, w: Float64[np.ndarray, "m d"], p: Float64[np.ndarray, "m k"], logs: Float64[np.ndarray, "m n T"]
    ) -> Float64[np.ndarray, "m"]:
        """Rounding of Λ: Σ_i π_i (error of E_i) + 4 eps log n, the errors being relative to the terms of E_i."""
        joint = self.setup.joint
        relative = self.relative(p)
        d = w.shape[1]
        weights = np.exp(logs) * joint.others
        heads = np.sum(np.abs(joint.sides) * np.abs(w)[:, None, None, :], axis=-1)
        direct = np.sum(np.abs(joint.chosen) * np.abs(w)[:, None, :], axis=-1)
        r = math.exp(min(self.log_r, 690.0))
        # δ_it is a sum of d products: its error is relative to Σ_j |side_j u_j|, not to δ_it.
        drops = np.sum(np.abs(joint.sides) * np.abs(joint.svm.direction), axis=-1)
        along = np.exp(np.minimum(self.log_r + logs, 690.0)) * joint.others * drops
        terms = np.sum(along + weights * heads, axis=-1) * relative[:, None]
        # Whether v lies in its ball is known up to the rounding of v̄_mm·w; moved into it, v loses that much of every
        # output.
        outside = np.linalg.norm(w, axis=1)[:, None] * np.abs(joint.chosen @ joint.svm.direction)
        own = (d + 4) * EPS * (direct + outside + r * joint.svm.slack)
        E = exponents(joint, self.log_r, w, logs)
        shares = np.exp(
            np.minimum(log_slopes(joint, self.log_r, E), 690.0)
            - np.logaddexp.reduce(np.minimum(log_slopes(joint, self.log_r, E), 690.0), axis=1)[:, None]
        )
        wobble = np.minimum(terms + own, 1e300)
        # Small errors average; large ones count as they are, at the inputs that are not e^{−40} beneath the others.
        first = 2 * np.sum(shares * wobble, axis=1)
        active = E - wobble <= np.min(E + wobble, axis=1, keepdims=True) + 40.0
        largest = np.max(np.where(active, wobble, 0.0), axis=1) + E.shape[1] * math.exp(-40.0)
        count = 4 * EPS * math.log(E.shape[1]) + (EPS * (1 + np.abs(log_mean_exp(-E))) if E.shape[1] > 1 else 0.0)
        return np.asarray(np.where(np.max(shares * wobble, axis=1) < 0.125, first, largest) + count)

    def relative(self, p: Float64[np.ndarray, "m k"]) -> Float64[np.ndarray, "m"]:
        """Relative error of a softmax weight: 2 eps (T + k + 8)(1 + max Σ_j |δk_j p_j|)."""
        joint = self.setup.joint
        size = np.max(np.sum(np.abs(joint.rows) * np.abs(p)[:, None, None, :], axis=-1), axis=(1, 2))
        return np.asarray(2 * EPS * (joint.keys.shape[1] + joint.keys.shape[2] + 8) * (1 + size))

    @cached_property
    def start(self) -> Points:
        """The competitor."""
        return self.points(np.zeros((1, self.setup.joint.tokens.shape[2])), self.competitor[None])

    @cached_property
    def deficit(self) -> float:
        """F, rounded up by the competitor's rounding."""
        joint = self.setup.joint
        value = float(self.start.value[0] + self.start.error[0])
        log_nl = math.log(joint.tokens.shape[0]) + value
        small = log_nl - math.exp(min(self.log_r, 690.0)) * joint.svm.margin
        # log(e^y − 1) = log y + y/2 + O(y²) for y = n L_c, here relative to e^{−rΓ}.
        if small < -30.0:
            return log_nl + math.exp(small)
        y = math.exp(min(small, 690.0))
        return (y if y > 40 else math.log(math.expm1(y))) + math.exp(self.log_r) * joint.svm.margin

    @cached_property
    def bound(self) -> float:
        """B, an upper bound of q_S."""
        return self.deficit / (math.exp(min(self.log_r, 690.0)) * self.setup.nu)

    @cached_property
    def head_loss(self) -> float:
        """An upper bound of 1 − cos(v, v_mm); valid wherever it is at most 1."""
        r = math.exp(min(self.log_r, 690.0))
        return (self.deficit / r + self.bound * self.setup.spread) / self.setup.joint.svm.margin

    @cached_property
    def other_bounds(self) -> Float64[np.ndarray, "n"]:
        """Q_i, an upper bound of q_i at the non-supports (inf where it says nothing), B at the supports, shape (n,)."""
        joint, r = self.setup.joint, math.exp(min(self.log_r, 690.0))
        eta = math.sqrt(2 * self.head_loss) if 0 <= self.head_loss <= 1 else math.inf
        sizes = np.max(np.linalg.norm(joint.tokens, axis=-1), axis=1)
        room = joint.svm.slack + self.deficit / r + eta * sizes
        drops = self.setup.smallest_drops
        loose = np.where(drops > 0, room / np.where(drops > 0, drops, 1.0), np.inf)
        return np.where(joint.svm.support, self.bound, loose)

    def hunted(self, rng: np.random.Generator, *, rays: int = 20, rounds: int = 3) -> Points:
        """Points surely inside, most of them at the end of a ray: where the bounds are tightest.

        Rays start at the competitor, then at points found; along each, step sizes from far below one logit to far
        beyond the balls are tried (the set need not be convex), then those around the largest one inside.
        """
        joint = self.setup.joint
        d, k = joint.tokens.shape[2], joint.keys.shape[2]
        limit = float(self.start.value[0] - self.start.error[0])
        rows = joint.rows[joint.others]
        unit = float(np.max(np.linalg.norm(rows, axis=1)))
        origin_w, origin_p = np.zeros((rays, d)), np.repeat(self.competitor[None], rays, axis=0)
        # The competitor itself belongs to the set, and may be all of it that rounding can tell from the outside.
        kept = [self.start]
        coarse = np.logspace(-5, math.log10(8 * unit * self.R + 8), 22)
        for _ in range(rounds):
            by_w, by_p = self._directions(rng, rays, rows, unit)
            steps = np.repeat(coarse[:, None], rays, axis=1)
            for _ in range(2):
                g = len(steps)
                w = (origin_w + steps[..., None] * by_w).reshape(-1, d)
                p = (origin_p + steps[..., None] * by_p).reshape(-1, k)
                tried = self.points(w, p)
                inside = tried.value + tried.error <= limit
                kept.append(tried.where(inside))
                last = np.max(np.where(inside.reshape(g, rays), steps, 0.0), axis=0)
                steps = np.maximum(last, coarse[0]) * np.linspace(1.0, coarse[1] / coarse[0], 10)[:, None]
            w, p = np.concatenate([x.w for x in kept]), np.concatenate([x.p for x in kept])
            chosen = rng.integers(len(w), size=rays)
            chosen[: rays // 2] = rng.integers(max(0, len(w) - 40), len(w), size=rays // 2)
            origin_w, origin_p = w[chosen], p[chosen]
        return Points(
            *(np.concatenate([getattr(x, name) for x in kept]) for name in ("w", "p", "log_weights", "value", "error"))
        )

    def _directions(
        self, rng: np.random.Generator, rays: int, rows: Float64[np.ndarray, "m k"], unit: float
    ) -> tuple[Float64[np.ndarray, "b d"], Float64[np.ndarray, "b k"]]:
        """Moves of head and prompt: random, against single rows or tokens, along the competitor, or of one block
        only.
        """
        joint = self.setup.joint
        d, k = joint.tokens.shape[2], rows.shape[1]
        by_p = rng.normal(size=(rays, k)) / unit
        single = rng.integers(len(rows), size=rays)
        kind = rng.integers(4, size=rays)
        by_p = np.where((kind == 1)[:, None], -rows[single] / unit**2, by_p)
        by_p = np.where((kind == 2)[:, None], rng.choice([-1, 1], (rays, 1)) * self.competitor / self.R / unit, by_p)
        by_w = rng.normal(size=(rays, d)) / max(float(np.abs(joint.chosen).max()), 1e-300)
        by_w *= np.exp(rng.uniform(-8, max(1.0, min(self.log_r / 2, 40.0)), (rays, 1)))
        block = rng.integers(3, size=(rays, 1))
        return np.where(block == 1, 0.0, by_w), np.where(block == 2, 0.0, by_p)
