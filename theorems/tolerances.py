"""Every tolerance of the suite, with its reason: rounding, an effective bound of the theorem, or an argued rate.

A claim names its tolerance by key; there is no other place where one is allowed. A statement in somebody's own file
may bring a :func:`reason` along.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from attention.errors import InvalidInput

EPS = 2.0**-52
"""Spacing of float64 at one."""


@dataclass(frozen=True)
class Tolerance:
    """Why a claim may miss by as much as it may.

    Attributes:
        formula: how the number is computed.
        reason: why this much and no more.
    """

    formula: str
    reason: str


class Reason(str):
    """The key of a tolerance that somebody's own statement brings along; claims take it as their ``why``.

    Attributes:
        tolerance: formula and reason.
    """

    tolerance: Tolerance

    def __new__(cls, key: str, formula: str = "", because: str = "") -> Reason:
        made = super().__new__(cls, key)
        made.tolerance = Tolerance(formula, because)
        return made


def reason(key: str, formula: str, because: str) -> Reason:
    """A tolerance of a statement that is not the suite's: rounding, an effective bound, or an argued rate.

    Args:
        key: kebab-case; in the report and the JSON.
        formula: how the number is computed.
        because: why this much and no more.

    Raises:
        InvalidInput: a key of the suite's own, or something left empty.
    """
    if key in TOLERANCES:
        raise InvalidInput(f"reason: {key!r} is one of the suite's tolerances; choose another key.")
    for name, text in (("key", key), ("formula", formula), ("because", because)):
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput(
                f"reason: {name} is empty; a tolerance needs a key, its formula and why it is no larger."
            )
    return Reason(key, formula, because)


TOLERANCES: Mapping[str, Tolerance] = {
    "exact": Tolerance("0", "decided over the rationals: nothing is rounded"),
    "rounding": Tolerance(
        "8 eps (T + d + n) · (1 + max|k|·‖p‖) · Σ|terms|",
        "a logit differs from the exact one by at most (d + 2) eps · Σ|k_j p_j|, which is the relative error of its"
        " softmax weight; every quantity compared is a sum of products of such weights, so its error is that"
        " relative error times the sum of the absolute values of its terms",
    ),
    "log-weights": Tolerance(
        "s_t (e^{e_t + Σ_u s_u e_u + eps (T + 6 + 2|log s_t|)} − 1), e_t = (d + 3) eps Σ_j |δk_tj p_j|",
        "theorems.rounding.log_weight_error: the logits are differences of rounded keys times p, summed; log-sum-exp"
        " adds T + 4 roundings; eps is twice the unit roundoff, which pays for the two evaluations compared",
    ),
    "gradient": Tolerance(
        "(1/n) Σ_i |ℓ'_i| Σ_t s_t |δk_tj| (|δγ_t| r_t + Σ_u s_u |δγ_u| (r_t + r_u)) per coordinate j",
        "theorems.evaluation.Evaluation.gradient: r_t is the relative error of s_t and ℓ'; each product in the"
        " covariance inherits it, relative to its own size; inner products with p_mm or p add (d + 2) eps Σ|terms|",
    ),
    "kernel": Tolerance(
        "a_t = min(1, s_t (e^{x_t} − 1)), x_t = e_t + log Σ s e^e + (2T + 6) eps, e_t = eps ((d + 8) Σ_j |k_tj p_j| + 20 + 2|log s_t|)",
        "theorems.textbook: what a kernel's weights may be off by in its own numbers, added to log-weights, gradient, mixing"
        " and descent-rounding for an implementation that is one; its gradient is a sum of products of such weights",
    ),
    "exponent-rounding": Tolerance(
        "(d + 6) eps (max_j Σ_k |ĝ_jk p_k| + max|log c_j| + m)",
        "a logit difference is a sum of d products of rounded differences; the log-excess risk is a log-sum-exp of m"
        " of them plus the logarithms of slope and gap, and inherits the largest error of a term",
    ),
    "limit-followed": Tolerance(
        "ρ^{−1/2}, ρ the norm in units of ‖p_mm‖ (or of 1/max|k_iα − k_it|)",
        "theorems.hunting.followed: where a direction or a selection converges it is O(log ρ/ρ) from its limit; a counterexample"
        " must miss it a hundred times further than √ρ/ρ at norms of 10⁶, and no less than at a thousandth of it",
    ),
    "cosine-rounding": Tolerance("(d + 4) eps", "an inner product of d terms divided by two norms"),
    "path-rounding": Tolerance(
        "2 (ε Σ_j w_j |H⁻¹(e_j − ē)| + m eps Σ_j w_j |e_j| / λ_min(H)) + 8 d eps ρ",
        "a minimiser moves by −H⁻¹δ∇F: ε is the error of an exponent (exponent-rounding), the second term that of the"
        " sums of the gradient, the third that of the point and of the direction themselves; doubled, because the"
        " predicted and the followed minimiser both carry it",
    ),
    "path-dual-gap": Tolerance(
        "(|y| e + e²)/ρ² + (m + d + 8) eps (Σ_j w_j|exponent_j| + 1 + max|log c| + max|log w|)/ρ",
        "1 − cos ≤ (F_ρ(y') − D)/ρ holds without a margin; e is the rounding of the followed point (path-rounding), the"
        " rest that of the sums F and D of logarithms",
    ),
    "offset-convergence": Tolerance(
        "|H⁻¹∇F_ρ| + (e^{1.5 x} − 1)|H⁻¹∇F_ρ|_H/√λ_min(H) + path-rounding",
        "the distance of a limit point from the minimiser at radius ρ, O(1/ρ), bounded by the gradient there:"
        " log-sum-exp is quasi-self-concordant (theorems.path_offset.Reduced.correction)",
    ),
    "rate-fit": Tolerance(
        "Σ|x_i| e_i / Σ x_i², x_i = log ρ_i − mean, e_i = 2 log((|o| + τ_i)/(|o| − τ_i)) + 4|o|²/ρ_i²",
        "log(1 − cos) = log(|o|²/2) − 2 log ρ + an error e_i that follows from the bound τ_i on the offset's distance"
        " from its limit; a least-squares slope is linear in it",
    ),
    "constants": Tolerance(
        "16 eps (T + d + n + |log L|) on the logarithm",
        "spectral norms by a backward stable SVD are off by a few eps (T + d) relatively, sums over inputs by n eps",
    ),
    "risk-change": Tolerance(
        "Σ_t |ℓ'| s_t (|δγ_t| + Σ s|δγ|) (|expm1 Δ_t| r_t + e^{Δ_t} err(Δ_t)) / n + terms of the gradient",
        "theorems.risk_change: L(p + h) − L(p) is a sum over unselected tokens of s_t (γ_t − f) expm1(Δ_t), each factor"
        " with its own relative error; nothing cancels but these terms",
    ),
    "solution": Tolerance(
        "(d + 4) eps Σ|terms|",
        "p_mm is the exact solution rounded once per entry; inner products with it are sums of d rounded terms",
    ),
    "autograd": Tolerance(
        "(1/n) Σ_i |ℓ'_i| Σ_t s_t |x_tj| (|γ_t| + Σ s|γ|) r per coordinate j, r the relative error of the weights",
        "lemma-1 compares with plain automatic differentiation, which does not avoid cancellation: its error is"
        " relative to the terms, not to their sum",
    ),
    "two-runs": Tolerance(
        "E(t+1) = (1 + η L) E(t) + η · autograd + eps (4‖p(t)‖ + 4‖p(t+1)‖ + (d_u + 6)‖p(t+1) − p(t)‖)",
        "two runs in floating point drift apart by the rounding of each step, amplified by the curvature between them",
    ),
    "second-solver": Tolerance(
        "2 sqrt(1e-10) (1 + Σλ)",
        "Clarabel is asked for a gap and infeasibility of 1e-10; |x − p|² = |x|² − |p|² − 2 Σ λ_j (g_j·x − 1) is then at"
        " most 1e-10 (1 + |p|²) + 2e-10 (1 + |p|) Σλ, and |p|² = Σλ",
    ),
    "descent-rounding": Tolerance(
        "t · max_s η‖δ∇L(p(s))‖ + Σ_s eps (‖p(s)‖ + ‖p(s+1)‖ + 2‖Δ_s‖), times ‖p_mm‖ for ⟨p, p_mm⟩",
        "a computed iterate differs from p − η∇L(p) by the error of the gradient (Evaluation.gradient) and one rounding"
        " of the sum; the inequalities are summed over iterates, and so are their errors",
    ),
    "gradient-flow": Tolerance(
        "evaluations · √d (1e-12 ‖p‖ + max(1e-10/κ, 64 eps ‖p_end‖)) + 8 d eps ‖p‖",
        "the solver keeps its local error below rtol‖p‖ + atol per coordinate and step; for n = 1 the flow is the"
        " gradient flow of the convex Σ e^{−g_j·p}, which amplifies no error, and ⟨p, p_mm⟩ rises along every flow, so"
        " errors only add; the last term is the rounding of a point of that norm; rtol is 1e-9 for n > 1",
    ),
    "joint-sublevel": Tolerance(
        "Λ: Σ_i π_i (error of E_i) + eps (1 + 4 log n); log q: 4 eps (T + k + 8)(1 + max Σ_j |δk_j p_j|); margins: the same;"
        " 1 − cos(v, v_mm): (d + 4) eps ‖w‖/r, the rounding of ‖r v̄_mm + w‖ ≤ r",
        "theorems.joint_sublevel: a softmax weight has the relative error of its logit, E_i the errors of its terms, a mean of"
        " exponentials their average; only points inside by more than this count, so the bounds themselves need no more"
        " than the rounding of their own sides",
    ),
    "label-duals": Tolerance(
        "Σ λ z = Γ v̄_mm, Σ λ = 1: (2n + 8) eps (Σ λ|z| + Γ|v̄_mm|), (2n + 8) eps; λ ≥ 0 and λ = 0 off the supports: none",
        "each dual is a rounded rational divided by a rounded sum of n of them; n products with them are summed",
    ),
    "cone": Tolerance(
        "(d + 8) eps (‖p‖ + ‖a‖)/‖p − a‖ · √(2ν')",
        "1 − cos = |p̄' − p̄_mm|²/2, and the unit vectors carry (d + 8) eps of the vectors they were made of; the drift"
        " of a step has the rounding of the gradient",
    ),
    "increments": Tolerance(
        "Σ_{s<t} ‖Δ(s)‖ (|err ∇L|/|∇L| √(2ν' + 2|π'|) + (d + 64) eps); for logarithms 2 err log s + (t + 64) eps"
        " (1 + |exponent|)",
        "each increment inherits the rounding of its gradient, times the part of p̄' − p̄_mm that the inequality sees;"
        " sums of t increments add t eps",
    ),
    "flow-solver": Tolerance(
        "√d · evaluations · (rtol · |z| + atol)/‖p_mm‖",
        "a step of the solver has a local error of rtol |z| + atol per coordinate across p_mm, z the part of p there, and"
        " costs at least one gradient; lateral errors do not grow along the path, because it descends a convex function"
        " of the lateral coordinates",
    ),
    "joint-limit": Tolerance(
        "logits: 4 eps (k + 8) R max|k_iα − k_it|; cosine: that over R, plus 16 eps (k + 2)",
        "theorems.joint_limit: the bound of the found minimiser's margins is effective; its excess and its margins carry the"
        " rounding of logits of size R",
    ),
    "joint-sharp": Tolerance(
        "4 √m ‖G⁺‖² (‖o‖ + 1)/(R Θ min μ) + rounding of logits · ‖G⁺‖ + residual of the solver · inverse curvature",
        "theorems.joint_limit: the curvature of the sphere moves the duals by O(1/R); at least 2·40 units separate"
        " non-neighbours, so that they and r e^{−RΘ} are below e^{−40}",
    ),
    "excess-risk": Tolerance(
        "log(1 + ν/(|left| + ν)) ≤ log 2, ν = (1/n) Σ_it C_i |g_it| s_it (e^{err(log s_it)} − 1); plus 16 eps |log|",
        "theorems.excess_claims: L(p) − L_α is a sum of terms of either sign, each with the relative error of its softmax"
        " weight; two such sums are compared in logarithms after the error has been added to both sides",
    ),
    "leading-term": Tolerance(
        "−log(1 − r/|D|) + excess-risk, r = Σ_others C|g|e^{−R(a−θ)} + Σ_neighbours c|g|(T−1)e^{−Rθ} + M0/2 Σ_i δ_i²e^{Rθ}",
        "theorems.leading_term: what tokens beyond the directional neighbours, the softmax normaliser and the"
        " curvature of the loss add to the first-order term D e^{−Rθ}/n",
    ),
    "neighbourhood": Tolerance(
        "(d + 8) eps / δ",
        "the distance of a unit vector from q̄ carries (d + 8) eps of the vectors it is computed from, relative to the radius δ"
        " of the neighbourhood",
    ),
    "path-norm": Tolerance(
        "8 (d + 8) eps B (1 + 1/(μ + Bδ))",
        "the points compared carry the rounding of their exponents, (d + 8) eps R B, which moves the norm at which the risks"
        " are equal by as much over the margin there",
    ),
    "joint-descent": Tolerance(
        "‖p‖·‖p/‖p‖ − p(c)‖ at step 4k is at most twice that at step k, or than one logit",
        "argued rate of a conjecture: an O(1/R) deviation keeps R·deviation bounded, a limit elsewhere makes it grow fourfold",
    ),
    "mixing": Tolerance(
        "Σ_j |b_j| (max φ'_j (Σ_t s_t g_tj r_t + (T + 4) eps (Σ s|z| + |z*|)) + 8 eps |φ_j|) + c1 q r; in logarithms"
        " max_t err(log s_t) + 4 eps (n + T + m + 8)(1 + |logs|)",
        "Lemma 14: the input of a unit has the errors of its softmax weights, which the steepest slope passes on; q has"
        " the relative error r of its weights; log-excess risks are sums of such terms in logarithms",
    ),
}
"""Reasons by key."""
