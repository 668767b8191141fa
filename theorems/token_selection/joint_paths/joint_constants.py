"""The constants of Theorems 5 and 6 with their derivations, for all pairs (v, p) in a sublevel set and for a minimiser.

Notation. z_it = Y_i x_it, u = v̄_mm, Γ its label margin, S its supports: the inputs i with u·z_iα = Γ (all inputs in
Theorem 5), slack_i = u·z_iα − Γ ≥ 0, δ_it = u·(z_iα − z_it), q_i = 1 − s_iα with the softmax weights s, Λ = log L + rΓ.
The margins of p at the inputs are R m_i = min_t (k_iα − k_it)·p, with m_S = min_{i∈S} m_i. *Competitor* is the pair to
which others are compared: (r u, R p_c/‖p_c‖), with p_c = p_mm in Theorem 5, p_c = p_relax + ε (p_mm − p_relax) in
Theorem 6; any ε ∈ [0, 1] is allowed. Let (v, p) be feasible, ‖v‖ ≤ r, ‖p‖ ≤ R, with Λ(v, p) ≤ Λ_c, the value of Λ at
the competitor, whose risk is L_c. The set of these pairs is the *sublevel set*. Everything below holds for all such
points, not only for minimisers.

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

**Limit: the rate.** Let (v, p) satisfy L(v, p) ≤ L(v, p_c) for the same head v, as a minimiser does, and let every drop
c_it = v·(z_iα − z_it) be positive. With a_i = v·z_iα and x_i = Σ_t s_it c_it ≥ 0, convexity of ℓ gives
|ℓ'(a_j)| c_jt s_jt ≤ Σ_i (ℓ(a_i − x_i) − ℓ(a_i)) = n (L(v, p) − L_α(v)) ≤ n (L(v, p_c) − L_α(v)) =: e^X for every (j,
t), hence q_j ≤ Q_j := e^X Σ_t 1/(|ℓ'(a_j)| c_jt) and R m_j ≥ log(1/Q_j − 1). At R p̄_c, X = −R Θ_c + O(1) as long as
the head's outputs a_i stay within O(1) of rΓ on S and the non-supports contribute no more: the margins over S are Θ −
O(1)/R, and item 7 turns them into a cosine.

So *minimisers* need no schedule in Theorem 5, whereas the whole sublevel set (rate log(8M(T−1)/ν)/R) needs r ≥ e^{RΘ}.

**Which schedule suffices in Theorem 6.** A non-support contributes at most e^{−r slack_i + O(1)} r q_i to e^{X + rΓ},
the supports e^{−RΘ_c} r. With p_c = p_relax + ε (p_mm − p_relax), ε = O(1/R): R p̄_c has margin RΘ_relax − O(1) over S
and R ρ_i, ρ_i = min_t (k_iα − k_it)·p̄_relax ≥ 0, at i ∉ S, up to O(1). So X = −RΘ_relax + O(1) as soon as
r slack_i + R ρ_i ≥ R Θ_relax for all i ∉ S:

    r/R ≥ c* := max_{i∉S} (Θ_relax − ρ_i)^+ / slack_i.

Along r = cR the general limit is argmax_{‖p‖≤1} min( min_{i∈S} (k_iα−k_it)·p, min_{i∉S} (k_iα−k_it)·p + c slack_i )
under (k_iα−k_it)·p ≥ 0 (by the same comparison of risks, with log-sum-exp for the minimum): p_mm at c = 0, p_relax
exactly from c* on. In Figure 3(b): slack = 1/2, ρ = 1/2, Θ_relax = 1, so c* = 1.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, Theorems 5 and 6, Appendix C.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.paths.joint_risk import exponents, log_slopes, relative_log_risk
from theorems.bounded import exact, possibly_at_least, value_of
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance
from theorems.rounding.attention_at import Numbers
from theorems.token_selection.joint_paths.joint_minimiser import IN_THE_BALLS, PATH_IS_LOWEST, JointMinimiser
from theorems.token_selection.joint_paths.joint_sets import (
    LARGEST_EXPONENT,
    NEGLIGIBLE,
    Points,
    SublevelSet,
    with_series,
)
from theorems.token_selection.joint_paths.joint_setup import (
    NON_OPTIMALITY,
    JointSetup,
    competitors,
    nonoptimality_bounds,
    with_roundings,
)

JOINT_LIMIT = tolerance(
    "joint-limit",
    "4 eps (k + 8) R max|k_iα − k_it| for log-excess risks, contained in the bound; 8 eps (1 + |bound|) in addition",
    "the bound of the minimiser's margins holds at finite R; the excess risk in it has the rounding error of logits of"
    " size R, and both sides of the claim have their own rounding errors",
)

COMPETITOR_SELECTS = sharper("competitor-selects")
COMPETITOR_MIXES = sharper("competitor-mixes")
COMPETITOR_RISK = sharper("competitor-risk")
COMPETITOR_CLAIMS = (COMPETITOR_SELECTS, COMPETITOR_MIXES, COMPETITOR_RISK)
"""The claims of :func:`competitor_claims`, about item 2 of the module's derivation."""
PROMPT_MARGIN = sharper("prompt-margin", when="the bound on 1 − s_iα is below 1 at some radii")
QUADRANT = sharper(
    "quadrant", when="for an input i that is no support of v_mm, the bound on q_i is below 1 at some radii"
)
PROMPT_DIRECTION = sharper("prompt-direction", when="the bound on the cosine is positive at some radii")
HEAD_DIRECTION = sharper("head-direction", when="the bound on 1 − cos(v, v_mm) is at most 1 at some radii")
EFFECTIVE_CLAIMS = (NON_OPTIMALITY, PROMPT_MARGIN, QUADRANT, PROMPT_DIRECTION, HEAD_DIRECTION)
"""The claims about pairs (v, p) in sublevel sets: in two balls, with at most the competitor's risk."""
LIMIT_MARGINS = sharper("limit-margins")
LIMIT_DIRECTION = stated_claim("limit-direction")
LIMIT_REACHED = sharper(
    "limit-reached",
    when="the radius is large enough for the bound on 1 − cos to be below 1e-6",
    refines=LIMIT_DIRECTION,
)
LIMIT_HEAD = stated_claim("limit-head", when="the bound on 1 − cos(v, v_mm) is at most 1")
LIMIT_CLAIMS = (IN_THE_BALLS, PATH_IS_LOWEST, LIMIT_MARGINS, LIMIT_DIRECTION, LIMIT_REACHED, LIMIT_HEAD)
"""The claims about a pair (v, p) that minimises the risk over balls."""

VISIBLE = 1e-6
"""The value of 1 − cos below which a limit counts as reached; it is above the proven bound at the radius in use."""


class Sublevel(SublevelSet):
    """A sublevel set with the constants F, B, Q_i of items 1–6 of the module's docstring, whose notation is used."""

    @classmethod
    def of(cls, setup: JointSetup, under_test: Implementation, log_r: float, R: float) -> Sublevel:
        """Return the pairs with at most the risk of the best competitor, at the radii r = e^{log_r} and R."""
        joint, zero = setup.joint, np.zeros(setup.joint.tokens.shape[2])
        prompts = competitors(setup, R)
        risks = [float(relative_log_risk(joint, log_r, zero, joint.log_weights(p))) for p in prompts]
        return cls(setup, under_test, log_r, R, prompts[int(np.argmin(risks))])

    @cached_property
    def deficit(self) -> Numbers:
        """The deficit F, an upper bound of rΓ − min_i Y_i v·x_i^p for all pairs (v, p) of the set.

        F = log(e^y − 1) + rΓ is computed as log n + Λ_c + y + log((1 − e^{−y})/y), y = n L_c.
        """
        log_nl = np.log(exact(self.setup.problem.n)) + self.start.value[0]
        y = np.exp(np.maximum(log_nl - self.r * self.setup.margin, -NEGLIGIBLE))
        return log_nl + y + with_series(np.log(-np.expm1(-y) / y), y)

    @cached_property
    def bound(self) -> Numbers:
        """The upper bound B = F/(rν) of 1 − s_iα at supports i, F the :attr:`deficit` and ν that of Assumption C."""
        return self.deficit / (exact(self.r) * self.setup.nu)

    @cached_property
    def head_loss(self) -> Numbers:
        """The upper bound (F/r + BΔ)/Γ of 1 − cos(v, v_mm), valid if it is at most 1 (item 5 of the module)."""
        return (self.deficit / self.r + self.bound * self.setup.spread) / self.setup.margin

    @cached_property
    def other_bounds(self) -> Numbers:
        """The upper bounds of q_i = 1 − s_iα, (n,): B at the supports, else Q_i of item 6 (inf if there is none)."""
        s = self.setup
        eta = np.sqrt(2 * np.maximum(self.head_loss, 0.0)) if self.head_loss <= 1 else exact(np.inf)
        sizes = np.max(np.linalg.norm(exact(s.joint.tokens), axis=-1), axis=1)
        room = s.slack + self.deficit / self.r + eta * sizes
        useful = s.smallest_drops > 0
        loose = np.where(useful, room / np.where(useful, s.smallest_drops, 1.0), np.inf)
        return np.where(s.joint.svm.support, self.bound, loose)

    @property
    def spare(self) -> Bool[np.ndarray, "n"]:
        """The mask of the inputs that are no supports and whose margin has a lower bound by item 6: Q_i < 1."""
        return np.asarray(~self.setup.joint.svm.support & np.isfinite(self.floors))

    @cached_property
    def floors(self) -> Numbers:
        """The lower bounds of the margins R m_i by items 4 and 6 of the module (−inf where there is none), (n,)."""
        return log_odds(self.other_bounds)

    def pairs(self, rng: np.random.Generator) -> Pairs:
        """Return pairs (v, p) of the set that random search finds."""
        return Pairs(self, self.search_points(rng))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs (v, p) of a sublevel set, with the numbers that the module's docstring bounds.

    Attributes:
        level: the sublevel set.
        points: the m pairs, with their softmax weights and risks.
    """

    level: Sublevel
    points: Points

    @cached_property
    def q(self) -> Numbers:
        """The softmax weights q_i = 1 − s_iα that are not on α, (m, n)."""
        return self.level.nonoptimality(self.points)

    @cached_property
    def margins(self) -> Numbers:
        """The margins R m_i = min_t (k_iα − k_it)·p, (m, n)."""
        return self.level.setup.margins(self.points.p)

    @cached_property
    def cosine(self) -> Numbers:
        """The numbers ⟨p, p̄_relax⟩/R, lower bounds of the cosine of p and p_relax because ‖p‖ ≤ R, (m,)."""
        return exact(self.points.p) @ self.level.setup.towards / self.level.R

    @cached_property
    def least_cosine(self) -> Numbers:
        """The lower bounds of :attr:`cosine` that item 7 of the module's docstring proves, (m,)."""
        return target_bound(self.level.setup, self.level.floors, self.margins, self.level.R)

    @cached_property
    def head_off(self) -> Numbers:
        """The deviation 1 − cos(v, v_mm) of the head, (m,)."""
        return one_minus_cosine(self.level.setup.u, self.level.r, self.points.w)

    def in_quadrant(self) -> Pairs:
        """Return the pairs without a certainly negative margin at an input that is no support of v_mm."""
        margins = self.margins[:, ~self.level.setup.joint.svm.support]
        inside: Bool[np.ndarray, "m"] = np.asarray(possibly_at_least(margins, 0.0).all(axis=1))
        return Pairs(self.level, self.points.where(inside))


@dataclass(frozen=True, eq=False)
class LimitBounds:
    """Bounds of a minimiser's margins, direction and head, with the notation of section *Limit* of the module."""

    minimiser: JointMinimiser

    @cached_property
    def floors(self) -> Numbers:
        """The lower bounds of R m_i, (n,): the larger of log(1/Q_i − 1) and the bound from the head's outputs."""
        return self._floors_at(max(self.minimiser.log_excess, self.minimiser.least_competing))

    def _floors_at(self, log_excess: float) -> Numbers:
        """Return the lower bounds of R m_i for a minimiser with the excess risk e^X, X = ``log_excess``, (n,)."""
        at, joint = self.minimiser, self.minimiser.setup.joint
        _, log_drops = at.drops
        selecting = np.where(joint.others, -np.inf, 0.0)
        slopes = log_slopes(joint, at.log_r, exponents(joint, at.log_r, at.w, selecting))
        costs = np.where(joint.others, slopes[:, None] + log_drops, np.inf)
        log_Q = log_excess + at.slip + np.logaddexp.reduce(-costs, axis=1)
        floors = np.maximum(odds_of_log(log_Q), self._from_outputs)
        return exact(floors).widen(np.where(np.isfinite(floors), 8 * EPS * (1 + np.abs(floors)), 0.0))

    @cached_property
    def cosine(self) -> Numbers:
        """The lower bound of ⟨p, p̄_relax⟩/R that follows from the margins' bounds by item 7 of the module."""
        return target_bound(self.minimiser.setup, self.floors, self.minimiser.margins, self.minimiser.R)

    @property
    def radius_suffices(self) -> bool:
        """Return whether to claim that, by the bounds, the minimiser is within :attr:`visible` of the limit.

        This is not claimed if tokens nearly tie, so that at this radius even the bound of 1 − ⟨p, p̄_relax⟩/R for a
        pair with the best competitor's risk exceeds :attr:`visible`. Such a bound is O(1)/R, four times as large at
        R/4. A bound that is not even twice as large at R/4 indicates another limit: then the claim is made.
        """
        short = self._competitors_shortfall
        shorter = LimitBounds(replace(self.minimiser, R=self.minimiser.R / 4))
        return short <= self.visible or shorter._competitors_shortfall < 2 * short

    @property
    def _competitors_shortfall(self) -> float:
        """The bound of 1 − ⟨p, p̄_relax⟩/R by item 7 for a minimiser with the risk of the best competitor."""
        at = self.minimiser
        return 1 - float(value_of(target_bound(at.setup, self._floors_at(at.least_competing), at.margins, at.R)))

    @property
    def visible(self) -> float:
        """The largest allowed bound of 1 − cos: :data:`VISIBLE`, plus the rounding of two compared excess risks.

        This rounding changes the cosine by 2 · slip/(RΘ) = 8 eps (k + 8) max‖k_iα − k_it‖/Θ, where slip is
        :attr:`.JointMinimiser.slip`.
        """
        return VISIBLE + 2 * self.minimiser.slip / (self.minimiser.R * self.minimiser.setup.target.margin)

    @property
    def head(self) -> Numbers:
        """The upper bound F (1 + Δ/ν)/(rΓ) of 1 − cos(v, v_mm) by item 5, valid if at most 1; F: item 1."""
        setup, at = self.minimiser.setup, self.minimiser
        deficit = max(self._deficit, 0.0) + 16 * EPS * (1 + float(np.abs(setup.joint.chosen_tokens @ at.w).max()))
        return deficit / exact(self._r) * (1 + setup.spread / setup.nu) / setup.margin

    @property
    def head_off(self) -> Numbers:
        """The deviation 1 − cos(v, v_mm) of the head."""
        return one_minus_cosine(self.minimiser.setup.u, self._r, self.minimiser.w[None])

    @property
    def _r(self) -> float:
        return math.exp(min(self.minimiser.log_r, LARGEST_EXPONENT))

    @property
    def _deficit(self) -> float:
        """The minimiser's log n + Λ, which bounds rΓ − min_i Y_i v·x_i^p up to terms that vanish with the risk."""
        return math.log(self.minimiser.setup.joint.tokens.shape[0]) + self.minimiser.log_risk

    @property
    def _from_outputs(self) -> Float64[np.ndarray, "n"]:
        """The lower bounds of R m_i for a known head: v·x_i^p ≥ rΓ − F gives q_i ≤ (v·z_iα − rΓ + F)/min_t c_it."""
        joint, log_r = self.minimiser.setup.joint, self.minimiser.log_r
        _, log_drops = self.minimiser.drops
        log_least = np.min(np.where(joint.others, log_drops, np.inf), axis=1)
        room = joint.svm.slack + (joint.chosen_tokens @ self.minimiser.w + self._deficit) * math.exp(-min(log_r, 690.0))
        log_room = log_r + np.log(np.maximum(room, 1e-300))
        return odds_of_log(log_room - log_least + 64 * EPS)


def competitor_claims(levels: Sequence[Sublevel]) -> Iterator[Claim]:
    """Claim the bounds of item 2 on the competitor's weights q_i outside α, and on its risk, as Λ_c.

    The bounds of the weights are σ(−R m_i) ≤ q_i ≤ (T−1)/(e^{R m_i} + T − 1).
    """
    selected, largest, smallest, risks, closed = [], [], [], [], []
    for level in levels:
        setup, start = level.setup, level.start
        upper, lower = nonoptimality_bounds(setup.margins(start.p[0]), setup.problem.T)
        selected.append(level.nonoptimality(start)[0])
        largest.append(upper)
        smallest.append(lower)
        exponents = level.r * (setup.largest_drops * upper - setup.slack)
        closed.append(np.logaddexp.reduce(exponents, keepdims=True) - np.log(exact(setup.problem.n)))
        risks.append(start.value)
    q, upper, lower, closed_form, risk = map(np.concatenate, (selected, largest, smallest, closed, risks))
    yield at_least(COMPETITOR_SELECTS, Form.EFFECTIVE, upper, q, points="input")
    yield at_least(COMPETITOR_MIXES, Form.EFFECTIVE, q, lower, points="input")
    yield at_least(COMPETITOR_RISK, Form.EFFECTIVE, closed_form, risk, points="pair of radii")


def target_bound(setup: JointSetup, floors: Numbers, margins: Numbers, R: float) -> Numbers:
    """Return the lower bound Σ_i (Σ_t μ_it) floor_i/(R‖p_relax‖) of ⟨p, p̄_relax⟩/R by item 7, where floor_i ≤ R m_i.

    μ are the duals of p_relax. At an input that is no support of v_mm, floor_i is at least the smaller of R m_i and 0;
    in the quadrant of Lemma 12, a hypothesis of the theorem, the smaller is 0.
    """
    shares = np.sum(with_roundings(setup.target.duals, 1), axis=1)
    floor = np.where(setup.joint.svm.support, floors, np.maximum(floors, np.minimum(margins, 0.0)))
    terms = np.where(setup.target.duals.any(axis=1), shares * floor, 0.0)
    return np.sum(terms, axis=-1) / (R * norm(with_roundings(setup.target.p, 1)))


def one_minus_cosine(u: Numbers, r: float, w: Float64[np.ndarray, "m d"]) -> Numbers:
    """Return 1 − cos(r u + w, u) for a unit vector u and offsets w, (m,), without cancellation.

    The formula is x²/(1 + x² + √(1 + x²)) with x = ‖w_⊥‖/(r + u·w), w_⊥ the part of w orthogonal to u.
    """
    along = exact(w) @ u
    length = r + along
    ahead = length > 0
    x = norm(w - along[:, None] * u, axis=1) / np.where(ahead, length, 1.0)
    return np.where(ahead, x * x / (1 + x * x + np.sqrt(1 + x * x)), 2.0)


def log_odds(bound: Numbers) -> Numbers:
    """Return log(1/B − 1) for upper bounds B of a weight; −inf where 0 < B < 1 is not certain."""
    inside = (bound > 0) & (bound < 1)
    safe = np.where(inside, bound, 0.5)
    return np.where(inside, np.log1p(-safe) - np.log(safe), -np.inf)


def odds_of_log(log_bound: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n"]:
    """Return log(1/B − 1) from the logarithms of upper bounds B of weights; −inf where B is 1 or more."""
    inside = log_bound < 0
    safe = np.where(inside, log_bound, -1.0)
    return np.where(inside, np.log(-np.expm1(safe)) - safe, -np.inf)
