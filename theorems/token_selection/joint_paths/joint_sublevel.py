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
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from generators.case import Case
from generators.optimal_tokens import token_optimality
from reference_attention.floats import EPS
from reference_attention.paths.joint import Joint, chosen_rows, relative_log_risk, retract
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import Infeasible, MaxMargin
from theorems.bounded import either, exact
from theorems.bounded.arithmetic import UNIT
from theorems.core.claim import Form, Undecided
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.rounding.weights_under_test import weights_of

LARGEST_EXPONENT = 690.0
"""Radii beyond e^690 are taken to be this one; nothing that is computed here tells them from it."""


NEGLIGIBLE, NOTHING = 600.0, 2.0**-860
"""e^{−600}, and more than it."""
SERIES = 2.0**-40
"""y at which y² is not told from y by float64, nor log(1 − y/2) by its logarithm."""
LARGE = 700.0
"""Losses above this are taken themselves, not relative to e^{−u}."""


def largest(x: Numbers) -> Float64[np.ndarray, "*b"]:
    """An upper bound of |x|, infinite where nothing is known."""
    return np.asarray((np.abs(x.value) + x.error) * (1 + 4 * EPS))


def rounded_often(x: Any, roundings: int) -> Numbers:
    """Floats that so many correctly rounded operations made of exact numbers, each a product or a quotient of them."""
    return exact(x) * (1 + exact(np.zeros(())).widen((roundings + 1) * UNIT))


@dataclass(frozen=True, eq=False)
class JointSetup:
    """A case of Theorem 5 or 6 with the solutions that the implementation under test gives.

    Attributes:
        problem: its keys.
        joint: signed tokens, keys, α and (SVM).
        nu: a proven ν of Assumption C over the supports.
        separator: p_mm(α).
        target: p_relax (p_mm where every input is a support).
    """

    problem: Problem
    joint: Joint
    nu: float
    separator: MaxMargin
    target: MaxMargin

    @cached_property
    def u(self) -> Numbers:
        """v̄_mm, (d,): entries of v_mm and its length are rounded, and the quotient."""
        return rounded_often(self.joint.svm.direction, 5)

    @cached_property
    def margin(self) -> Numbers:
        """Γ."""
        return rounded_often(self.joint.svm.margin, 4)

    @cached_property
    def slack(self) -> Numbers:
        """slack_i, (n,)."""
        return rounded_often(self.joint.svm.slack, 6)

    @cached_property
    def towards(self) -> Numbers:
        """p̄_relax, (k,)."""
        return rounded_often(self.target.direction, 5)

    @cached_property
    def sides(self) -> Numbers:
        """z_iα − z_it, (n, T, d)."""
        return exact(self.joint.chosen_tokens)[:, None] - self.joint.tokens

    @cached_property
    def rows(self) -> Numbers:
        """k_iα − k_it, (n, T, k)."""
        return exact(chosen_rows(self.joint.keys, self.joint.alpha))[:, None] - self.joint.keys

    @cached_property
    def drops(self) -> Numbers:
        """δ_it, (n, T)."""
        return self.sides @ self.u

    @cached_property
    def spread(self) -> Numbers:
        """Δ."""
        return np.max(np.linalg.norm(self.sides[self.joint.svm.support], axis=-1))

    @cached_property
    def largest_drops(self) -> Numbers:
        """D_i, (n,)."""
        return np.max(np.where(self.joint.others, np.maximum(self.drops, 0.0), 0.0), axis=1)

    @cached_property
    def smallest_drops(self) -> Numbers:
        """d_i, (n,)."""
        return np.min(np.where(self.joint.others, self.drops, np.inf), axis=1)

    def margins(self, p: Float64[np.ndarray, "*b k"]) -> Numbers:
        """min_t (k_iα − k_it)·p, (*b, n)."""
        rows = np.vecdot(self.rows, p[..., None, None, :])
        return np.min(np.where(self.joint.others, rows, np.inf), axis=-1)


def joint_setup(
    case: Case, under_test: Implementation, claim: str = "non-optimality", form: Form = Form.EFFECTIVE
) -> JointSetup:
    """The objects of the theorem.

    Args:
        claim, form: what is undecided without them.

    Raises:
        Undecided: one of them does not exist, and why.
    """
    data, alpha = case.dataset, case.chosen_tokens
    if data is None:
        raise Undecided(claim, "the case has no tokens and labels", form)
    tokens = data.signed_tokens
    optimality = token_optimality(case, supports_only=True)
    if not optimality.holds:
        raise Undecided(claim, f"no ν of Assumption C: {optimality.evidence}", form)
    svm = under_test.label_svm(chosen_rows(tokens, alpha))
    separator = under_test.max_margin(case.problem.keys, alpha)
    if isinstance(svm, Infeasible) or isinstance(separator, Infeasible):
        raise Undecided(claim, "v_mm or p_mm does not exist", form)
    target = separator
    if not svm.support.all():
        relaxed = under_test.relaxed_max_margin(case.problem.keys, alpha, svm.support)
        if isinstance(relaxed, Infeasible):
            raise Undecided(claim, "p_relax does not exist", form)
        target = relaxed
    return JointSetup(case.problem, Joint(tokens, case.problem.keys, alpha, svm), optimality.nu, separator, target)


@dataclass(frozen=True, eq=False)
class Points:
    """Pairs (r v̄_mm + w, p) with the softmax weights under test and Λ.

    Attributes:
        w: (m, d).
        p: (m, k).
        weights: s_it, (m, n, T).
        value: Λ, (m,).
    """

    w: Float64[np.ndarray, "m d"]
    p: Float64[np.ndarray, "m k"]
    weights: Numbers
    value: Numbers

    def where(self, mask: Bool[np.ndarray, "m"]) -> Points:
        """Those of the mask."""
        return Points(self.w[mask], self.p[mask], self.weights[mask], self.value[mask])

    @classmethod
    def together(cls, parts: Iterable[Points]) -> Points:
        """All of them."""
        parts = list(parts)
        return cls(*(np.concatenate([getattr(x, name) for x in parts]) for name in ("w", "p", "weights", "value")))


@dataclass(frozen=True, eq=False)
class Sublevel:
    """{(v, p): ‖v‖ ≤ r, ‖p‖ ≤ R, L(v, p) ≤ L(competitor)} for one (r, R)."""

    setup: JointSetup
    under_test: Implementation
    log_r: float
    R: float
    competitor: Float64[np.ndarray, "k"]

    @cached_property
    def r(self) -> float:
        """The radius of the head."""
        return math.exp(min(self.log_r, LARGEST_EXPONENT))

    def feasible(
        self, w: Float64[np.ndarray, "m d"], p: Float64[np.ndarray, "m k"]
    ) -> tuple[Float64[np.ndarray, "m d"], Float64[np.ndarray, "m k"]]:
        """Those heads and prompts, moved into the balls."""
        norms = np.linalg.norm(p, axis=1, keepdims=True)
        shorter = self.R * (1 - 2 * EPS) / np.maximum(norms, self.R)
        return retract(self.setup.joint, self.log_r, w), p * np.where(norms > self.R, shorter, 1.0)

    def points(self, w: Float64[np.ndarray, "m d"], p: Float64[np.ndarray, "m k"]) -> Points:
        """Those heads and prompts, moved into the balls."""
        w, p = self.feasible(w, p)
        at = AttentionAt(self.setup.problem, p, self.under_test.textbook_eps)
        weights = weights_of(at, self.under_test, "non-optimality")
        return Points(w, p, weights, self.log_risk(w, weights))

    def nonoptimality(self, points: Points) -> Numbers:
        """q_i, (m, n)."""
        return np.sum(np.where(self.setup.joint.others, points.weights, 0.0), axis=-1)

    def log_risk(self, w: Float64[np.ndarray, "m d"], weights: Numbers) -> Numbers:
        """Λ = log mean_i ℓ(rΓ + E_i) + rΓ of the head within its ball, (m,).

        It is shortened by the factor 1/(1 + o/r) if ‖r v̄_mm + w‖ ≤ r + o: 2r (‖v‖ − r) ≤ ‖v‖² − r² = 2r v̄_mm·w +
        ‖w‖² where ‖v‖ > r. That costs at most (o/r)|rΓ + E_i| of an output.
        """
        s, r = self.setup, self.r
        drops = r * s.drops + np.vecdot(s.sides, w[:, None, None])
        lost = np.sum(np.where(s.joint.others, weights * drops, 0.0), axis=-1)
        E = r * s.slack + np.vecdot(exact(s.joint.chosen_tokens), w[:, None]) - lost
        outside = np.maximum(exact(w) @ s.u + np.vecdot(exact(w), w) / (2 * r), 0.0)
        E = E.widen(largest(outside)[:, None] * (largest(s.margin) + largest(E) / r))
        return np.logaddexp.reduce(_log_losses(r * s.margin, E), axis=-1) - np.log(exact(E.shape[-1]))

    def inside(self, w: Float64[np.ndarray, "m d"], p: Float64[np.ndarray, "m k"]) -> Bool[np.ndarray, "m"]:
        """Which of them, moved into the balls, are inside as far as floats tell."""
        w, p = self.feasible(w, p)
        weights = np.maximum(self.under_test.weights(self.setup.joint.keys, p), np.finfo(np.float64).tiny)
        return np.asarray(
            relative_log_risk(self.setup.joint, self.log_r, w, np.log(weights)) < float(self.start.value.value[0])
        )

    @cached_property
    def start(self) -> Points:
        """The competitor."""
        return self.points(np.zeros((1, self.setup.joint.tokens.shape[2])), self.competitor[None])

    @cached_property
    def deficit(self) -> Numbers:
        """F = log(e^y − 1) + rΓ = log n + Λ_c + y + log((1 − e^{−y})/y), y = n L_c."""
        log_nl = np.log(exact(self.setup.problem.n)) + self.start.value[0]
        y = np.exp(np.maximum(log_nl - self.r * self.setup.margin, -NEGLIGIBLE))
        return log_nl + y + _with_series(np.log(-np.expm1(-y) / y), y)

    @cached_property
    def bound(self) -> Numbers:
        """B, an upper bound of q_S."""
        return self.deficit / (exact(self.r) * self.setup.nu)

    @cached_property
    def head_loss(self) -> Numbers:
        """An upper bound of 1 − cos(v, v_mm); valid wherever it is at most 1."""
        return (self.deficit / self.r + self.bound * self.setup.spread) / self.setup.margin

    @cached_property
    def other_bounds(self) -> Numbers:
        """Q_i, an upper bound of q_i at the non-supports (inf where it says nothing), B at the supports, (n,)."""
        s = self.setup
        eta = np.sqrt(2 * np.maximum(self.head_loss, 0.0)) if self.head_loss <= 1 else exact(np.inf)
        sizes = np.max(np.linalg.norm(exact(s.joint.tokens), axis=-1), axis=1)
        room = s.slack + self.deficit / self.r + eta * sizes
        useful = s.smallest_drops > 0
        loose = np.where(useful, room / np.where(useful, s.smallest_drops, 1.0), np.inf)
        return np.where(s.joint.svm.support, self.bound, loose)

    def search_points(self, rng: np.random.Generator, *, rays: int = 20, rounds: int = 3) -> Points:
        """Points surely inside, most of them at the end of a ray: where the bounds are tightest.

        Rays start at the competitor, then at points found; along each, step sizes from far below one logit to far
        beyond the balls are tried (the set need not be convex), then those around the largest one inside.
        """
        joint = self.setup.joint
        d, k = joint.tokens.shape[2], joint.keys.shape[2]
        rows = joint.rows[joint.others]
        unit = float(np.max(np.linalg.norm(rows, axis=1)))
        origin_w, origin_p = np.zeros((rays, d)), np.repeat(self.competitor[None], rays, axis=0)
        kept_w, kept_p = [np.zeros((1, d))], [self.competitor[None]]
        coarse = np.logspace(-5, math.log10(8 * unit * self.R + 8), 22)
        for _ in range(rounds):
            by_w, by_p = self._directions(rng, rays, rows, unit)
            steps = np.repeat(coarse[:, None], rays, axis=1)
            for _ in range(2):
                g = len(steps)
                w = (origin_w + steps[..., None] * by_w).reshape(-1, d)
                p = (origin_p + steps[..., None] * by_p).reshape(-1, k)
                inside = self.inside(w, p)
                kept_w.append(w[inside])
                kept_p.append(p[inside])
                last = np.max(np.where(inside.reshape(g, rays), steps, 0.0), axis=0)
                steps = np.maximum(last, coarse[0]) * np.linspace(1.0, coarse[1] / coarse[0], 10)[:, None]
            w, p = np.concatenate(kept_w), np.concatenate(kept_p)
            chosen = rng.integers(len(w), size=rays)
            chosen[: rays // 2] = rng.integers(max(0, len(w) - 40), len(w), size=rays // 2)
            origin_w, origin_p = w[chosen], p[chosen]
        found = self.points(w[1:], p[1:])
        # The competitor itself belongs to the set, and may be all of it that rounding can tell from the outside.
        return Points.together([self.start, found.where(np.asarray(found.value <= self.start.value))])

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
        by_w = rng.normal(size=(rays, d)) / max(float(np.abs(joint.chosen_tokens).max()), 1e-300)
        by_w *= np.exp(rng.uniform(-8, max(1.0, min(self.log_r / 2, 40.0)), (rays, 1)))
        block = rng.integers(3, size=(rays, 1))
        return np.where(block == 1, 0.0, by_w), np.where(block == 2, 0.0, by_p)


def _log_losses(base: Numbers, E: Numbers) -> Numbers:
    """log ℓ(u) + rΓ, u = rΓ + E_i, rΓ = ``base``: −E_i + log(log(1 + y)/y) with y = e^{−u}, or log ℓ(u) if y overflows.

    From u = 600 on the second term is not told from what it is there.
    """
    u = base + E
    y = np.exp(-np.minimum(np.maximum(u, -LARGE), NEGLIGIBLE))
    losses = _with_series(np.log(np.log1p(y) / y), y)
    if (u.value < -LARGE).any():
        low = np.minimum(u, -LARGE)
        losses = either(u >= -LARGE, u < -LARGE, losses, np.log(np.logaddexp(0.0, -low)) + low)
    return losses - E


def _with_series(x: Numbers, y: Numbers) -> Numbers:
    """x; it is −y/2 up to y²/2 for small y > 0, and has digits of that where y was at least e^{−600}."""
    small = y.value < SERIES
    return np.where(small, -y / 2, x).widen(np.where(small, y.value**2 + NOTHING, 0.0))
