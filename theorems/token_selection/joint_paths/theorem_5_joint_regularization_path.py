"""Theorem 5: the joint regularization path of head and prompt when every feature x_iα is a support vector of v_mm.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3.1, Theorem 5, Appendix C.1;
:mod:`.joint_constants`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from generators.joint_cases import joint_cases, radii_of
from reference_attention.floats import EPS
from reference_attention.paths.joint_path import descend_at_radius, exponential_schedule, head_at
from theorems.core.claim import Claim, Form, at_least, section, undecided_claim
from theorems.core.claim_name import premises, sharper
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.statement import statement
from theorems.core.tolerances import tolerance
from theorems.token_selection.joint_paths.joint_constants import (
    COMPETITOR_CLAIMS,
    EFFECTIVE_CLAIMS,
    HEAD_DIRECTION,
    JOINT_LIMIT,
    LIMIT_CLAIMS,
    LIMIT_DIRECTION,
    LIMIT_HEAD,
    LIMIT_MARGINS,
    LIMIT_REACHED,
    PROMPT_DIRECTION,
    PROMPT_MARGIN,
    QUADRANT,
    LimitBounds,
    Pairs,
    Sublevel,
    competitor_claims,
    log_odds,
)
from theorems.token_selection.joint_paths.joint_gradients import JOINT_GRADIENTS, joint_gradients
from theorems.token_selection.joint_paths.joint_minimiser import LARGEST_UNITS, STARTS, JointMinimiser
from theorems.token_selection.joint_paths.joint_premises import JOINT_DATA, JOINT_SOLUTIONS, joint_data, joint_solutions
from theorems.token_selection.joint_paths.joint_sets import at_pairs
from theorems.token_selection.joint_paths.joint_setup import NON_OPTIMALITY, JointSetup, joint_setup

JOINT_SHARP = tolerance(
    "joint-sharp",
    "4 √m ‖G⁺‖² (‖o‖ + 1)/(R Θ min μ) + rounding of logits · ‖G⁺‖ + residual of the solver · inverse curvature",
    "the curvature of the sphere changes the duals by O(1/R); the radius is so large that the weights of"
    " non-neighbours and r e^{−RΘ} are below e^{−40}",
)

SHARP_OFFSET = sharper(
    "sharp-offset",
    when="all inputs are supports, the neighbours independent with positive duals, and the radius at most 2^24",
    refines=LIMIT_DIRECTION,
)

LEVELS = ((6.0, 0.5), (6.0, 1.0), (30.0, 1.0), (30.0, 2.0), (120.0, 0.5), (120.0, 2.0))
"""The pairs (RΘ, log r/(RΘ)) for the radii r, R of sublevel sets: r is below, at or above e^{RΘ}; Θ = 1/‖p_mm‖."""
SOLVED = 1e-6
"""The largest norm of the projected gradient at which a minimiser's offset is compared with the predicted one."""
DEPENDENT = 2.0**-40
"""The least singular value of G, the rows of p_mm's neighbours, that counts as nonzero, as a share of the largest.

Much smaller singular values are rounding errors, which a pseudo-inverse omits. If there are any, the error bound of the
predicted offset exceeds :data:`SHARP_ERROR` at every radius up to 2^24.
"""
SHARP_ERROR, LARGEST_SHARP = 1e-3, 2.0**24
"""The predicted offset is compared where the bound of its error is below SHARP_ERROR, at RΘ up to LARGEST_SHARP."""


@statement(
    "theorem-5",
    "head and prompt: the joint regularization path goes to v_mm and p_mm",
    source="Section 3.1, Theorem 5; Appendix C.1",
    claims=(
        *JOINT_DATA,
        *JOINT_SOLUTIONS,
        *JOINT_GRADIENTS,
        *COMPETITOR_CLAIMS,
        *EFFECTIVE_CLAIMS,
        *LIMIT_CLAIMS,
        SHARP_OFFSET,
    ),
    assumptions=("optimal-tokens", "separable"),
    cases=joint_cases,
    kernel=SATURATED,
)
def theorem_5(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the loss be logistic, Assumption C hold for α with ν, and p_mm(α) exist.

    (v_r, p_R) minimise L over ‖v‖ ≤ r, ‖p‖ ≤ R; then v_r/r → v̄_mm and p_R/R → p̄_mm as r, R → ∞. (The loss of the case
    is not used, nor the head of its dataset.)

    **Effective**, for every (v, p) with ‖v‖ ≤ r, ‖p‖ ≤ R and L(v, p) ≤ L(r v̄_mm, R p̄_mm) =: L_c, with F = log(e^{n L_c}
    − 1) + rΓ ≤ log n + r D (T−1) e^{−RΘ} + o(1), z_it = Y_i x_it, D = max v̄_mm·(z_iα − z_it), Δ = max ‖x_iα − x_it‖,
    and s_iα the softmax weight of α:

    - q_max = max_i (1 − s_iα) ≤ B := F/(rν),
    - every margin (k_iα − k_it)·p ≥ log(1/B − 1) if B < 1, of either sign,
    - cos(p, p_mm) ≥ log(1/B − 1)/(RΘ) if that is positive,
    - 1 − cos(v, v_mm) ≤ (F/r + BΔ)/Γ if that is at most 1.

    Derivation: :mod:`.joint_constants`. It sharpens the paper's log(2n) to log n + o(1) and its 2M, M = max ‖x_it‖, to
    D and Δ; the margin may have either sign. With r ≥ e^{RΘ}, B = O(e^{−RΘ}) and the margins are Θ − O(1)/R. Losses are
    compared as log L + rΓ.

    **Limit.** Minimisers have these limits however r and R are related: they are followed along r = R, r = e^{RΘ/2} and
    r = e^{RΘ}/D to RΘ = 10⁸, where 1 − cos(p, p_mm) is bounded by 10⁻⁶ (:mod:`.joint_constants`). At R p̄_mm an output
    loses up to r D e^{−RΘ}: the factor 1/D of the last schedule makes this O(1) in any unit of the tokens.

    **Sharp.** Along r = e^{RΘ/2}, R(p_R/R − p̄_mm) → o, the part of G⁺ log(π_i δ_it/μ_it) orthogonal to p̄_mm, for
    independent neighbours with m rows G = (g_j), pseudo-inverse G⁺ and duals μ > 0, where δ_it = v̄_mm·(z_iα − z_it).
    *Derivation.* While r e^{−RΘ} → 0, the excess e^X of :mod:`.joint_constants` is to first order Σ_j c_j e^{−R g_j·p̄},
    c_j = π_i δ_it, with π the head's dual: π_i ∝ e^{−w·z_iα}. So R (p/R − p̄) → G⁺ b, b_j = log(c_j/μ_j), minus its part
    along p̄. At finite R the stationarity condition Σ_j c_j e^{−g_j·o_R} g_j ∥ p̄ + o_R/R moves log μ_j by at most
    2‖(Gᵀ)⁺‖‖o‖/(RΘμ_j), so the error is at most 4√m ‖G⁺‖² (‖o‖+1)/(RΘ min μ), plus e^{−R(m'−Θ)}, m' the least margin of
    the other tokens at p̄, and r e^{−RΘ}.
    """
    setup = joint_setup(case, under_test)
    yield from premises(joint_data(case, setup, under_test), joint_solutions(setup, under_test))
    p_mm, theta, rng = setup.separator, setup.separator.margin, case.rng()
    radii = radii_of(case) or [(share * units, units * p_mm.norm) for units, share in LEVELS]
    levels = [Sublevel(setup, under_test, log_r, R, R * p_mm.direction) for log_r, R in radii]
    yield from competitor_claims(levels)
    yield from in_sublevel_sets([level.pairs(rng) for level in levels])
    yield from premises(joint_gradients(setup, under_test, rng))
    starts = rng.normal(size=(STARTS, p_mm.p.size))
    share, units = [(0.0, LARGEST_UNITS), (0.5, LARGEST_UNITS), (1.0, LARGEST_UNITS / 4)][int(rng.integers(3))]
    unit = float(setup.largest_drops.value.max()) if share == 1.0 else 1.0
    schedule = exponential_schedule(share * theta, unit)
    yield from minimiser_claims(
        JointMinimiser.of(setup, under_test, schedule, units * p_mm.norm, starts, LIMIT_DIRECTION)
    )
    yield from offset_claims(setup, under_test, starts)


def in_sublevel_sets(sets: Sequence[Pairs]) -> Iterator[Claim]:
    """Yield the effective claims at pairs of sublevel sets; the comments use the symbols of :mod:`.joint_constants`."""
    # The weights outside α: q_max = max_i (1 − s_iα) ≤ B.
    yield from at_pairs(NON_OPTIMALITY, [(x.level.bound, np.max(x.q, axis=1)) for x in sets])

    # The margins: (k_iα − k_it)·p ≥ log(1/B − 1).
    margins = [(x.margins, log_odds(x.level.bound)) for x in sets if x.level.bound < 1]
    yield from at_pairs(PROMPT_MARGIN, margins)

    # If the solver under test does not report an input as a support, Theorem 6's bound Q_i is used instead of B.
    others = [(x.margins[:, x.level.spare], x.level.floors[x.level.spare]) for x in sets if x.level.spare.any()]
    yield from at_pairs(QUADRANT, others)

    # The prompt's direction, with the duals μ of p_mm: ⟨p, p̄_mm⟩/R ≥ Σ_it μ_it log(1/B − 1)/(R‖p_mm‖) = log(1/B −
    # 1)/(RΘ).
    useful = [(x, x.least_cosine > 0) for x in sets]
    cosines = [(x.cosine[good], x.least_cosine[good]) for x, good in useful if good.any()]
    yield from at_pairs(PROMPT_DIRECTION, cosines)

    # The head's direction: 1 − cos(v, v_mm) ≤ (F/r + BΔ)/Γ.
    yield from at_pairs(HEAD_DIRECTION, [(x.level.head_loss, x.head_off) for x in sets if x.level.head_loss <= 1])


@section
def minimiser_claims(at: JointMinimiser) -> Iterator[Claim]:
    """Yield the limit claims at a minimiser of the risk; the comments use the symbols of :mod:`.joint_constants`."""
    yield from premises(at)
    bounds = LimitBounds(at)

    # The margins, (k_iα − k_it)·p ≥ log(1/Q_i − 1) for bounds Q_i of 1 − s_iα, hence with the duals μ of p_mm the
    # prompt's direction, ⟨p, p̄_mm⟩/R ≥ Σ_it μ_it log(1/Q_i − 1)/(R‖p_mm‖) ≥ 1 − 10⁻⁶.
    yield at_least(LIMIT_MARGINS, Form.LIMIT, at.margins, bounds.floors, why=JOINT_LIMIT, points="input")
    yield at_least(LIMIT_DIRECTION, Form.LIMIT, at.cosine, bounds.cosine, why=JOINT_LIMIT, points="minimiser")
    if bounds.radius_suffices:
        least = 1 - bounds.visible
        yield at_least(LIMIT_REACHED, Form.LIMIT, bounds.cosine, least, why=JOINT_LIMIT, points="minimiser")

    # The head's direction: 1 − cos(v, v_mm) ≤ F (1 + Δ/ν)/(rΓ).
    if bounds.head <= 1:
        yield at_least(LIMIT_HEAD, Form.LIMIT, bounds.head, bounds.head_off, why=JOINT_LIMIT, points="minimiser")


def offset_claims(setup: JointSetup, under_test: Implementation, starts: Float64[np.ndarray, "m k"]) -> Iterator[Claim]:
    """Yield the claim about the path's offset from the ray of p̄_mm, if :class:`PredictedOffset` predicts one."""
    predicted = PredictedOffset.of(setup)
    if predicted is None:
        return
    at = predicted.minimiser(under_test, starts)
    if not at.residual < SOLVED:
        why = f"the solver of the path stopped at a gradient of norm {at.residual:.3g}"
        yield undecided_claim(SHARP_OFFSET, why, Form.SHARP)
        return

    # The part of p − R p̄_mm orthogonal to p̄_mm differs from o by at most 4√m ‖G⁺‖² (‖o‖ + 1)/(RΘ min μ), see theorem_5.
    o, pi = offset(setup, predicted.pseudo, at.w)
    error = predicted.factor * (float(np.linalg.norm(o)) + 1) / at.R
    difference = across(at.p - at.R * setup.separator.direction, setup.separator.direction) - o
    allowed = error + predicted.logits(at) + predicted.flatness(at, pi)
    distance = float(np.linalg.norm(difference))
    yield at_least(SHARP_OFFSET, Form.SHARP, allowed, distance, rounding=0.0, why=JOINT_SHARP, points="radius")


@dataclass(frozen=True, eq=False)
class PredictedOffset:
    """The predicted offset of the path from the ray of p̄_mm, at a radius where its error is below :data:`SHARP_ERROR`.

    Attributes:
        setup: the problem of the path, with its solutions.
        pseudo: the pseudo-inverse G⁺ of the rows G of the m neighbours, (k, m).
        factor: the factor 4√m ‖G⁺‖²/(Θ min μ) of the error bound, μ the duals and Θ the margin of p̄_mm.
        head: the offset w from r v̄_mm of the head that minimises the risk for a prompt on the ray of p_mm, (d,).
        o: the offset of the prompt for this head, (k,).
        units: the radius R of the prompt, as RΘ.
    """

    setup: JointSetup
    pseudo: Float64[np.ndarray, "k m"]
    factor: float
    head: Float64[np.ndarray, "d"]
    o: Float64[np.ndarray, "k"]
    units: float

    @classmethod
    def of(cls, setup: JointSetup) -> PredictedOffset | None:
        """Return the predicted offset; None if an input is no support, a dual 0 or not unique, or the error large."""
        joint, svm = setup.joint, setup.separator
        near, theta = svm.neighbours, svm.margin
        if not (svm.independent and (svm.duals[near] > 0).all() and joint.svm.support.all()):
            return None
        G, mu = joint.rows[near], svm.duals[near]
        singular = np.linalg.svd(G, compute_uv=False)
        if not singular[-1] > DEPENDENT * singular[0]:
            return None
        others = joint.others & ~near
        gap = float(np.min(svm.margins[others])) - 1.0 if others.any() else math.inf
        if not gap > 0:
            return None
        pseudo = np.linalg.pinv(G)
        factor = 4 * math.sqrt(len(mu)) * float(np.linalg.norm(pseudo, 2)) ** 2 / (theta * float(mu.min()))
        units = max(200.0, 80.0 / gap)
        # The duals π of the head in the limit r e^{−RΘ} → 0 determine o, and o determines the radius.
        head = head_at(joint, units / 2, units / theta * svm.direction)
        o, _ = offset(setup, pseudo, head)
        units = max(units, 1.1 * theta * factor * (float(np.linalg.norm(o)) + 1) / SHARP_ERROR)
        return cls(setup, pseudo, factor, head, o, units) if units <= LARGEST_SHARP else None

    def minimiser(self, under_test: Implementation, starts: Float64[np.ndarray, "m k"]) -> JointMinimiser:
        """Return the minimiser at the predicted radius for r = e^{RΘ/2}, by search or descent from the prediction."""
        svm = self.setup.separator
        R = self.units / svm.margin

        def schedule(R: float) -> float:
            return max(R * svm.margin / 2, math.log(R))

        at = JointMinimiser.of(self.setup, under_test, schedule, R, starts, SHARP_OFFSET)
        if at.residual < SOLVED and not at.above:
            return at
        return replace(at, path=descend_at_radius(self.setup.joint, schedule, R, R * svm.direction + self.o, self.head))

    def logits(self, at: JointMinimiser) -> float:
        """Return a bound of the error of the offset that the rounding of logits causes at the minimiser ``at``."""
        norm = float(np.linalg.norm(self.pseudo, 2))
        return 4 * EPS * (at.p.size + 8) * at.R * norm * self.setup.joint.longest_row

    def flatness(self, at: JointMinimiser, pi: Float64[np.ndarray, "n"]) -> float:
        """Return a bound of the offset's error by the solver's residual: the residual times the inverse curvature.

        ``pi`` are the duals π of the head.
        """
        mu, theta = self.setup.separator.duals[self.setup.separator.neighbours], self.setup.separator.margin
        norm = float(np.linalg.norm(self.pseudo, 2))
        return float(np.max(at.path.residuals)) * (norm**2 / float((pi.min() * mu.min()) / mu.sum()) + at.R / theta)


def offset(
    setup: JointSetup, pseudo: Float64[np.ndarray, "k m"], w: Float64[np.ndarray, "d"]
) -> tuple[Float64[np.ndarray, "k"], Float64[np.ndarray, "n"]]:
    """Return the offset o and the head's duals π for the head r v̄_mm + w (symbols: see :func:`theorem_5`).

    The vector b = log(π_i δ_it/μ_it) is determined up to a constant, which changes only the part of o along p̄_mm.
    """
    joint, near = setup.joint, setup.separator.neighbours
    E = joint.chosen_tokens @ w
    pi = np.exp(-E - np.logaddexp.reduce(-E))
    b = np.log((pi[:, None] * joint.drops)[near] / setup.separator.duals[near])
    return across(pseudo @ (b - b.mean()), setup.separator.direction), pi


def across(x: Float64[np.ndarray, "k"], unit: Float64[np.ndarray, "k"]) -> Float64[np.ndarray, "k"]:
    """Return the part of x orthogonal to a unit vector."""
    return np.asarray(x - (x @ unit) * unit)
