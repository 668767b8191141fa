"""The solutions v_mm, p_mm and p_relax in statements about head and prompt, and the symbols of their inequalities.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, Theorems 5 and 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from generators.case import Case
from generators.optimal_tokens import token_optimality
from reference_attention.floats import EPS
from reference_attention.paths.joint_risk import Joint, chosen_rows
from reference_attention.problem import Problem
from reference_attention.svm.label_svm import label_svm, relaxed_max_margin
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from theorems.bounded import exact
from theorems.bounded.arithmetic import UNIT
from theorems.core.claim import Form, Undecided
from theorems.core.claim_name import sharper
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import Numbers

NON_OPTIMALITY = sharper("non-optimality")
"""The claim that bounds 1 − s_iα; undecided where v_mm, p_mm or p_relax does not exist, falsified by NaN weights."""


RESOLVED_MARGIN = 2.0**-10
"""The largest rounding error of a margin of 1 at which p_mm can serve as a competitor (:func:`competitors`).

Premises evaluate the margin at RΘ = 600 (the norm R times the margin Θ of p̄_mm), where rounding must not change a logit
by 1. Keys that are separable only because they are rounded, such as products with a W of low rank, exceed this error.
"""


def with_roundings(x: Any, roundings: int) -> Numbers:
    """Return floats as bounded arrays with the error of a result that was rounded ``roundings`` times."""
    return exact(x) * (1 + exact(np.zeros(())).widen((roundings + 1) * UNIT))


@dataclass(frozen=True, eq=False)
class JointSetup:
    """A case of Theorem 5 or 6 with the solutions that the implementation under test returns.

    z_it = Y_i x_it are the signed tokens. The *supports* of v_mm are the inputs i with v̄_mm·z_iα = Γ.

    Attributes:
        problem: keys, scores, loss.
        joint: signed tokens, keys, α and the solution v_mm of (SVM).
        nu: a proven constant ν of Assumption C over the supports.
        separator: the solution p_mm(α) of ATT-SVM.
        target: the solution p_relax of the relaxed SVM; p_mm if every input is a support.
    """

    problem: Problem
    joint: Joint
    nu: float
    separator: MaxMargin
    target: MaxMargin

    @cached_property
    def u(self) -> Numbers:
        """The direction v̄_mm, (d,), with the rounding errors of the entries of v_mm, its norm and the quotient."""
        return with_roundings(self.joint.svm.direction, 5)

    @cached_property
    def margin(self) -> Numbers:
        """The label margin Γ = 1/‖v_mm‖."""
        return with_roundings(self.joint.svm.margin, 4)

    @cached_property
    def slack(self) -> Numbers:
        """The slacks slack_i = v̄_mm·z_iα − Γ ≥ 0 of the inputs, with z_iα = Y_i x_iα and the label margin Γ, (n,)."""
        return with_roundings(self.joint.svm.slack, 6)

    @cached_property
    def towards(self) -> Numbers:
        """The direction p̄_relax, (k,)."""
        return with_roundings(self.target.direction, 5)

    @cached_property
    def sides(self) -> Numbers:
        """The differences z_iα − z_it of signed tokens z_it = Y_i x_it, (n, T, d)."""
        return exact(self.joint.chosen_tokens)[:, None] - self.joint.tokens

    @cached_property
    def rows(self) -> Numbers:
        """The differences of keys k_iα − k_it, (n, T, k)."""
        return exact(chosen_rows(self.joint.keys, self.joint.alpha))[:, None] - self.joint.keys

    @cached_property
    def drops(self) -> Numbers:
        """The drops δ_it = v̄_mm·(z_iα − z_it) of outputs from α to other tokens, with z_it = Y_i x_it, (n, T)."""
        return self.sides @ self.u

    @cached_property
    def spread(self) -> Numbers:
        """The constant Δ, the largest ‖z_iα − z_it‖ over the supports i of v_mm, with z_it = Y_i x_it."""
        return np.max(np.linalg.norm(self.sides[self.joint.svm.support], axis=-1))

    @cached_property
    def largest_drops(self) -> Numbers:
        """The largest drop D_i = max_t δ_it ≥ 0 of each input, where δ_it are the :attr:`drops`, (n,)."""
        return np.max(np.where(self.joint.others, np.maximum(self.drops, 0.0), 0.0), axis=1)

    @cached_property
    def smallest_drops(self) -> Numbers:
        """The smallest drop d_i = min_t δ_it, t ≠ α_i, of each input, where δ_it are the :attr:`drops`, (n,)."""
        return np.min(np.where(self.joint.others, self.drops, np.inf), axis=1)

    def margins(self, p: Float64[np.ndarray, "*b k"]) -> Numbers:
        """Return the margins min_t (k_iα − k_it)·p of prompts (*b, k), (*b, n)."""
        rows = np.vecdot(self.rows, p[..., None, None, :])
        return np.min(np.where(self.joint.others, rows, np.inf), axis=-1)


def joint_setup(
    case: Case, under_test: Implementation, claim: str = NON_OPTIMALITY, form: Form = Form.EFFECTIVE
) -> JointSetup:
    """Return v_mm, p_mm and p_relax as the implementation under test computes them, with the data of the case.

    Args:
        case: tokens, labels and the chosen tokens α.
        under_test: the implementation whose solvers are called.
        claim: the name of the claim that is undecided where a solution does not exist.
        form: the form of this claim (effective or limit).

    Raises:
        Undecided: a solution does not exist, or rounding hides the margins of p_mm.
    """
    data, alpha = case.dataset, case.chosen_tokens
    if data is None:
        raise Undecided(claim, "the case has no tokens and labels; give a dataset", form)
    tokens = data.signed_tokens
    optimality = token_optimality(case, supports_only=True)
    if not optimality.holds:
        raise Undecided(claim, f"no ν of Assumption C: {optimality.evidence}", form)
    svm = under_test[label_svm](chosen_rows(tokens, alpha))
    separator = under_test[max_margin](case.problem.keys, alpha)
    if isinstance(svm, Infeasible) or isinstance(separator, Infeasible):
        raise Undecided(claim, "v_mm or p_mm does not exist", form)
    hidden = margin_rounding(case.problem.keys, alpha, separator)
    if not hidden < RESOLVED_MARGIN:
        raise Undecided(claim, f"p_mm is so long that rounding moves its margins of 1 by {hidden:.3g}", form)
    target = separator
    if not svm.support.all():
        relaxed = under_test[relaxed_max_margin](case.problem.keys, alpha, svm.support)
        if isinstance(relaxed, Infeasible):
            raise Undecided(claim, "p_relax does not exist", form)
        target = relaxed
    return JointSetup(case.problem, Joint(tokens, case.problem.keys, alpha, svm), optimality.nu, separator, target)


def margin_rounding(keys: Float64[np.ndarray, "n T k"], alpha: Int64[np.ndarray, "n"], separator: MaxMargin) -> float:
    """Return eps max Σ|k_iα − k_it||p_mm|, a bound of the change of the margins of p_mm by rounding."""
    rows = chosen_rows(keys, alpha)[:, None] - keys
    return float(EPS * np.max(np.abs(rows) @ np.abs(separator.p)))


def competitors(setup: JointSetup, R: float) -> list[Float64[np.ndarray, "k"]]:
    """Return prompts R p̄_c of norm R to which others are compared: p_c = p_relax + ε(p_mm − p_relax) for several ε.

    The ε are 0 and min(1, 2^k ‖p_mm‖/R) for k = −2, …, 8; if p_relax = p_mm, only R p̄_mm is returned.
    """
    start, towards = setup.target.p, setup.separator.p - setup.target.p
    if not np.any(towards):
        return [R * setup.target.direction]
    unit = R / setup.separator.norm
    # Where p_relax gives α and another token the same logit, ε = 0 is left out: rounding would decide on which side of
    # this tie R p̄_c lies.
    tied = setup.target.neighbours[~setup.joint.svm.support].any()
    shares = [] if tied else [0.0]
    shares += [min(1.0, 2.0**k / unit) for k in range(-2, 9)]
    prompts = [start + share * towards for share in shares]
    return [R / float(np.linalg.norm(p)) * p for p in prompts]


def nonoptimality_bounds(margin: Numbers, T: int) -> tuple[Numbers, Numbers]:
    """Return the bounds (T−1)/(e^m + T − 1) ≥ q ≥ σ(−m) of q = 1 − s_α, m the smallest of T − 1 margins of α."""
    odds = np.exp(-margin)
    return (T - 1) * odds / (1 + (T - 1) * odds), odds / (1 + odds)
