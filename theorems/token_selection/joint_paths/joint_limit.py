"""The limit and sharp forms of Theorems 5 and 6: the joint path is followed to where the limit is visible.

**Rate.** Let (v, p) satisfy L(v, p) ≤ L(v, p_c) for the same head v, as a minimiser does, and let every drop
c_it = v·(z_iα − z_it) be positive. With a_i = v·z_iα and x_i = Σ_t s_it c_it ≥ 0, convexity of ℓ gives
|ℓ'(a_j)| c_jt s_jt ≤ Σ_i (ℓ(a_i − x_i) − ℓ(a_i)) = n (L(v, p) − L_α(v)) ≤ n (L(v, p_c) − L_α(v)) =: e^X for every (j,
t), hence q_j ≤ Q_j := e^X Σ_t 1/(|ℓ'(a_j)| c_jt) and R m_j ≥ log(1/Q_j − 1). At R p̄_c, X = −R Θ_c + O(1) as long as
the heads' outputs a_i stay within O(1) of rΓ on S and the non-supports contribute no more: the margins over S are Θ −
O(1)/R, and item 7 of :mod:`.joint_sublevel` turns them into a cosine.

So *minimisers* need no schedule in Theorem 5, whereas the whole sublevel set (rate log(8M(T−1)/ν)/R) needs r ≥ e^{RΘ}.

**Which schedule suffices in Theorem 6.** A non-support contributes at most e^{−r slack_i + O(1)} r q_i to e^{X + rΓ},
the supports e^{−RΘ_c} r. With p_c = p_relax + ε (p_mm − p_relax), ε = O(1/R): R p̄_c has margin RΘ_relax − O(1) over S
and R ρ_i, ρ_i = min_t (k_iα − k_it)·p̄_relax ≥ 0, at i ∉ S, up to O(1). So X = −RΘ_relax + O(1) as soon as
r slack_i + R ρ_i ≥ R Θ_relax for all i ∉ S:

    r/R ≥ c* := max_{i∉S} (Θ_relax − ρ_i)^+ / slack_i.

Along r = cR the general limit is argmax_{‖p‖≤1} min( min_{i∈S} (k_iα−k_it)·p, min_{i∉S} (k_iα−k_it)·p + c slack_i )
under (k_iα−k_it)·p ≥ 0 (the same exchange argument, with log-sum-exp for the minimum): p_mm at c = 0, p_relax exactly
from c* on. In Figure 3(b): slack = 1/2, ρ = 1/2, Θ_relax = 1, so c* = 1.

**Sharp.** While r e^{−RΘ} → 0, X is to first order Σ_j c_j e^{−R g_j·p̄}, c_j = π_i δ_it, with π the head's dual: π_i
∝ e^{−w·z_iα}. If the SVM-neighbours' rows G are independent and their duals μ > 0: R (p/R − p̄) → o = G⁺ b, b_j =
log(c_j/μ_j), minus its part along p̄. At finite R the stationarity condition Σ_j c_j e^{−g_j·o_R} g_j ∥ p̄ + o_R/R
moves log μ_j by at most 2‖(Gᵀ)⁺‖‖o‖/(RΘμ_j), so the error is at most 4√m ‖G⁺‖² (‖o‖+1)/(RΘ min μ), plus e^{−R(m'−Θ)}
of the non-neighbours and r e^{−RΘ}.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from reference_attention.paths.joint import Joint, excess_gradient, exponents, head_drops, log_slopes, relative_log_risk
from reference_attention.paths.joint_path import JointPath, Schedule, descend_at_radius, head_at
from theorems.bounded import exact
from theorems.core.claim import Claim, Form, at_least, undecided_claim
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.statement import always
from theorems.core.tolerances import EXACT, tolerance
from theorems.token_selection.joint_paths.joint_claims import one_minus_cosine, target_bound
from theorems.token_selection.joint_paths.joint_sublevel import LARGEST_EXPONENT, JointSetup

JOINT_LIMIT = tolerance(
    "joint-limit",
    "log-excess risks: 4 eps (k + 8) R max|k_iα − k_it|, in the bound; the bound itself: 8 eps (1 + |it|)",
    "joint_limit: the bound of the found minimiser's margins is effective; its excess carries the rounding of logits"
    " of size R, what both sides carry is added",
)
JOINT_SHARP = tolerance(
    "joint-sharp",
    "4 √m ‖G⁺‖² (‖o‖ + 1)/(R Θ min μ) + rounding of logits · ‖G⁺‖ + residual of the solver · inverse curvature",
    "joint_limit: the curvature of the sphere moves the duals by O(1/R); at least 2·40 units separate"
    " non-neighbours, so that they and r e^{−RΘ} are below e^{−40}",
)

VISIBLE = 1e-6
"""1 − cos at which a limit counts as reached; the radius is chosen so that the bound is below it."""
LIMIT_CLAIMS = always("path-is-lowest", "limit-margins", "limit-direction") | {
    "limit-reached": "the radius is large enough to see the limit",
    "limit-head": "the bound on 1 − cos(v, v_mm) is at most 1",
}
"""The claims of :func:`limit_claims`, and when they are made."""
LARGEST_UNITS = 2.0**28
"""RΘ of the limit: logits carry an error of eps RΘ = 6e-8."""
RESOLVED = 1.0
"""By how much a minimiser's log-excess may be above the competitor's: where a non-support keeps q_i between 0 and 1,
float64 knows its exponent r (slack_i − q_i d_i) no better. The bounds hold for any pair, with its own excess."""
STARTS = 128
"""Directions that the search for the minimiser begins with."""
SELECTED = 16.0
"""Logits by which every token is behind where an input is called selected."""
SOLVED = 1e-6
"""Residual of a minimiser that the sharp form is compared at."""
DEPENDENT = 2.0**-40
"""Share of the largest singular value of G that a singular value must exceed: far below it those of floats are noise,
and a pseudo-inverse leaves them out. No radius within 2^24 has an error of :data:`SHARP_ERROR` then."""
SHARP_ERROR = 1e-3
"""The sharp form is compared where its error bound is below this."""


def log_excess(joint: Joint, log_r: float, w: Float64[np.ndarray, "d"], p: Float64[np.ndarray, "k"]) -> float:
    """log n(L(v, p) − L_α(v)) + rΓ."""
    return excess_gradient(joint, log_r, w, p)[0] + math.log(joint.tokens.shape[0])


def competitors(setup: JointSetup, R: float) -> list[Float64[np.ndarray, "k"]]:
    """R p̄_c for ε = 0 and ε = 2^k/R: any of them may serve in the proof."""
    start, towards = setup.target.p, setup.separator.p - setup.target.p
    if not np.any(towards):
        return [R * setup.target.direction]
    unit = R / setup.separator.norm
    # Where p_relax ties an input, ε = 0 would leave to rounding on which side of a tie the competitor is.
    tied = setup.target.neighbours[~setup.joint.svm.support].any()
    shares = [] if tied else [0.0]
    shares += [min(1.0, 2.0**k / unit) for k in range(-2, 9)]
    prompts = [start + share * towards for share in shares]
    return [R / float(np.linalg.norm(p)) * p for p in prompts]


def limit_claims(
    setup: JointSetup,
    under_test: Implementation,
    schedule: Schedule,
    R: float,
    starts: Float64[np.ndarray, "m k"],
    *,
    reached: bool = True,
) -> Iterator[Claim]:
    """The minimiser at radius R along the schedule: lowest, margins, direction and head within their bounds, the limit
    visible.

    Args:
        starts: directions that the search for the minimiser begins with.
        reached: also claim that 1 − cos is bounded by :data:`VISIBLE`, and by what the rounding of logits hides of it.
    """
    joint = setup.joint
    log_r = schedule(R)
    # Rounding of the logits moves either side by 2 eps (k + 8) R max|k|.
    slip = 4 * EPS * (starts.shape[1] + 8) * R * joint.longest_row
    path = under_test.joint_minimiser(joint, schedule, R, starts).path
    above = _above(setup, log_r, R, path, slip)
    if above and under_test.joint_minimiser is not REFERENCE.joint_minimiser:
        search = REFERENCE.joint_minimiser(joint, schedule, R, starts).path
        if not _above(setup, log_r, R, search, slip):
            yield Claim("path-is-lowest", Form.LIMIT, -math.inf, 0.0, EXACT, f"{above}; a search finds a lower one")
            return
    if above:
        claim = undecided_claim("limit-direction", above, Form.LIMIT)
        yield replace(claim, not_found=True, branch="no minimiser found: " + above.split(":")[0])
        return
    w, p = path.offsets[0], path.prompts[0]
    yield Claim("path-is-lowest", Form.LIMIT, 0.0, 0.0, EXACT, branch=_how(setup, p))
    found, _, target = _compare(setup, log_r, R, w, p)
    if not _has_digits(joint, w):
        reason = f"the head's offset of {np.linalg.norm(w):.3g} leaves no digits of its outputs"
        yield undecided_claim("limit-direction", reason, Form.LIMIT)
        return
    drops_sign, log_drops = head_drops(joint, log_r, w)
    if (drops_sign[joint.others] <= 0).any():
        yield undecided_claim(
            "limit-direction",
            "at the head found some token scores no less than the chosen one: α is not what the path selects",
            Form.LIMIT,
        )
        return
    own = log_slopes(joint, log_r, exponents(joint, log_r, w, _selecting(joint)))
    costs = np.where(joint.others, own[:, None] + log_drops, np.inf)
    log_Q = max(found, target) + slip + np.logaddexp.reduce(-costs, axis=1)
    value = float(relative_log_risk(joint, log_r, w, joint.log_weights(p)))
    deficit = math.log(joint.tokens.shape[0]) + value
    floors = np.maximum(_log_odds(log_Q), _floors_from_outputs(joint, log_r, w, deficit))
    argued = exact(floors).widen(np.where(np.isfinite(floors), 8 * EPS * (1 + np.abs(floors)), 0.0))
    margins = setup.margins(p)
    yield at_least("limit-margins", Form.LIMIT, margins, argued, why=JOINT_LIMIT, points="input")
    bound = target_bound(setup, argued, margins, R)
    cosine = exact(p) @ setup.towards / R
    yield at_least("limit-direction", Form.LIMIT, cosine, bound, why=JOINT_LIMIT, points="minimiser")
    if reached:
        # Both excesses carry the rounding of logits: 2 · slip/(RΘ) = 8 eps (k + 8) max‖k_iα − k_it‖/Θ of the cosine.
        visible = VISIBLE + 2 * slip / (R * setup.target.margin)
        yield at_least("limit-reached", Form.LIMIT, bound, 1 - visible, why=JOINT_LIMIT, points="minimiser")
    deficit = max(deficit, 0.0) + 16 * EPS * (1 + float(np.abs(joint.chosen_tokens @ w).max()))
    r = math.exp(min(log_r, LARGEST_EXPONENT))
    loss = deficit / exact(r) * (1 + setup.spread / setup.nu) / setup.margin
    if loss <= 1:
        off = one_minus_cosine(setup.u, r, w[None])
        yield at_least("limit-head", Form.LIMIT, loss, off, why=JOINT_LIMIT, points="minimiser")


def _above(setup: JointSetup, log_r: float, R: float, path: JointPath, slip: float) -> str:
    """What kind of pair it is, if it is no minimiser: above a competitor, as a pair or as a prompt for its head."""
    w, p = path.offsets[0], path.prompts[0]
    found, _, target = _compare(setup, log_r, R, w, p)
    beyond = _pair_excess(setup, log_r, R, w, p)
    if found <= target + slip + RESOLVED and beyond <= slip:
        return ""
    unit = setup.joint.longest_row
    lowest = float(np.min(np.where(setup.joint.others, setup.joint.rows @ p, np.inf)))
    kind = "another selection" if lowest < -1e-6 * unit * R else "in distress" if path.residuals[0] > 1e-6 else "local"
    return (
        f"{kind}: log-excess {found:.6g}, the competitor's {target:.6g}; log-risk {beyond:.6g} above that of (r v̄_mm,"
        f" R p̄_c), gradient {path.residuals[0]:.3g}"
    )


def _how(setup: JointSetup, p: Float64[np.ndarray, "k"]) -> str:
    """What the minimiser does at the non-supports."""
    others = ~setup.joint.svm.support
    if not others.any():
        return ""
    margins = np.min(np.where(setup.joint.others, setup.joint.rows @ p, np.inf), axis=1)[others]
    return "every input selected" if margins.min() > SELECTED else "an input at its boundary"


def _has_digits(joint: Joint, w: Float64[np.ndarray, "d"]) -> bool:
    """Whether outputs w·z are known to six bits.

    v̄_mm is rounded: across it a support has a slope of one rounding, and at r = e^{10⁸} nothing bounds how far a
    solver follows it.
    """
    return float(np.linalg.norm(w) * np.max(np.linalg.norm(joint.tokens, axis=-1))) * (w.size + 8) * EPS <= 2.0**-6


def _compare(
    setup: JointSetup, log_r: float, R: float, w: Float64[np.ndarray, "d"], p: Float64[np.ndarray, "k"]
) -> tuple[float, Float64[np.ndarray, "k"], float]:
    """The log-excess at p, the best competitor for the same head, and its log-excess."""
    best = min(competitors(setup, R), key=lambda c: log_excess(setup.joint, log_r, w, c))
    return log_excess(setup.joint, log_r, w, p), best, log_excess(setup.joint, log_r, w, best)


def _pair_excess(
    setup: JointSetup, log_r: float, R: float, w: Float64[np.ndarray, "d"], p: Float64[np.ndarray, "k"]
) -> float:
    """log L(r v̄_mm + w, p) less that of the best pair (r v̄_mm, R p̄_c): a minimiser's is not positive.

    The bounds hold for any head, but they are O(1)/R only if the head's outputs stay within O(1) of rΓ.
    """
    joint, alone = setup.joint, np.zeros(w.size)
    pairs = (relative_log_risk(joint, log_r, alone, joint.log_weights(c)) for c in competitors(setup, R))
    return float(relative_log_risk(joint, log_r, w, joint.log_weights(p))) - min(float(x) for x in pairs)


def _floors_from_outputs(
    joint: Joint, log_r: float, w: Float64[np.ndarray, "d"], deficit: float
) -> Float64[np.ndarray, "n"]:
    """Item 6 for a known head: v·x_i^p ≥ rΓ − F gives q_i ≤ (v·z_iα − rΓ + F)/min_t c_it; floors of R m_i from that."""
    _, log_drops = head_drops(joint, log_r, w)
    log_least = np.min(np.where(joint.others, log_drops, np.inf), axis=1)
    room = joint.svm.slack + (joint.chosen_tokens @ w + deficit) * math.exp(-min(log_r, 690.0))
    log_room = log_r + np.log(np.maximum(room, 1e-300))
    return _log_odds(log_room - log_least + 64 * EPS)


def _log_odds(log_bound: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n"]:
    """log(1/B − 1) from log B, −inf where B is 1 or more."""
    inside = log_bound < 0
    safe = np.where(inside, log_bound, -1.0)
    return np.where(inside, np.log(-np.expm1(safe)) - safe, -np.inf)


def _selecting(joint: Joint) -> Float64[np.ndarray, "n T"]:
    """Log weights that select α exactly."""
    return np.where(joint.others, -np.inf, 0.0)


def sharp_claim(setup: JointSetup, under_test: Implementation, starts: Float64[np.ndarray, "m k"]) -> Iterator[Claim]:
    """R (p_R/R − p̄_mm) → o along r = e^{RΘ/2}, where all inputs are supports and the duals are unique and positive."""
    joint, svm = setup.joint, setup.separator
    near = svm.neighbours
    if not (svm.independent and (svm.duals[near] > 0).all() and joint.svm.support.all()):
        return
    theta = svm.margin
    G, mu = joint.rows[near], svm.duals[near]
    singular = np.linalg.svd(G, compute_uv=False)
    if not singular[-1] > DEPENDENT * singular[0]:
        return
    pseudo = np.linalg.pinv(G)
    norm = float(np.linalg.norm(pseudo, 2))
    others = joint.others & ~near
    gap = float(np.min(svm.margins[others])) - 1.0 if others.any() else math.inf
    factor = 4 * math.sqrt(len(mu)) * norm**2 / (theta * float(mu.min()))

    def schedule(R: float) -> float:
        return max(R * theta / 2, math.log(R))

    if not gap > 0:
        return
    # The head's dual π at r e^{−RΘ} = 0 gives o, o the radius at which its error bound is small enough.
    units = max(200.0, 80.0 / gap)
    w = head_at(joint, units / 2, units / theta * svm.direction)
    o, pi = _predicted_offset(setup, w, pseudo)
    units = max(units, 1.1 * theta * factor * (float(np.linalg.norm(o)) + 1) / SHARP_ERROR)
    if units > 2.0**24:
        return
    R = units / theta
    path = under_test.joint_minimiser(joint, schedule, R, starts).path
    slip = 4 * EPS * (starts.shape[1] + 8) * R * joint.longest_row
    if not float(path.residuals[0]) < SOLVED or _above(setup, schedule(R), R, path, slip):
        # From where the minimiser is predicted to be; its residual says whether it is one.
        path = descend_at_radius(joint, schedule, R, R * svm.direction + o, w)
    if not float(path.residuals[0]) < SOLVED:
        reason = f"the path's solver stopped at a gradient of {float(path.residuals[0]):.3g}"
        yield undecided_claim("sharp-offset", reason, Form.SHARP)
        return
    w, p = path.offsets[0], path.prompts[0]
    o, pi = _predicted_offset(setup, w, pseudo)
    error = factor * (float(np.linalg.norm(o)) + 1) / R
    measured = _across(p - R * svm.direction, svm.direction)
    solver = 4 * EPS * (p.size + 8) * R * norm * joint.longest_row
    flat = float(np.max(path.residuals)) * (norm**2 / float((pi.min() * mu.min()) / mu.sum()) + R / theta)
    yield at_least(
        "sharp-offset",
        Form.SHARP,
        error + solver + flat,
        float(np.linalg.norm(measured - o)),
        rounding=0.0,
        why=JOINT_SHARP,
        points="radius",
    )


def _across(x: Float64[np.ndarray, "k"], unit: Float64[np.ndarray, "k"]) -> Float64[np.ndarray, "k"]:
    return np.asarray(x - (x @ unit) * unit)


def _predicted_offset(
    setup: JointSetup, w: Float64[np.ndarray, "d"], pseudo: Float64[np.ndarray, "k m"]
) -> tuple[Float64[np.ndarray, "k"], Float64[np.ndarray, "n"]]:
    """o and π. b is determined up to a constant, which moves o along p̄ only."""
    joint, near = setup.joint, setup.separator.neighbours
    E = joint.chosen_tokens @ w
    pi = np.exp(-E - np.logaddexp.reduce(-E))
    b = np.log((pi[:, None] * joint.drops)[near] / setup.separator.duals[near])
    return _across(pseudo @ (b - b.mean()), setup.separator.direction), pi
