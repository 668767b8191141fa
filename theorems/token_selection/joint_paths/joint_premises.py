"""The premises of statements about head and prompt: keys and scores of the tokens, v_mm, p_mm and p_relax.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, Theorems 5 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from generators.case import Case
from reference_attention.floats import EPS
from theorems.bounded import exact
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import premise
from theorems.core.dataset_claims import DATASET_CLAIMS, dataset_claims
from theorems.core.implementation import Implementation
from theorems.core.svm_certificate import SVM_IS_OPTIMAL, svm_claim
from theorems.token_selection.joint_paths.joint_sets import SublevelSet
from theorems.token_selection.joint_paths.joint_setup import JointSetup, nonoptimality_bounds, with_roundings

SPARE = "some input is no support of v_mm"
RELAXED_SVM_IS_OPTIMAL = premise("relaxed-svm-is-optimal", when=SPARE)
LABEL_MARGIN = premise("label-margin")
LABEL_SUPPORTS = premise("label-supports")
LABEL_DUALS = premise("label-duals")
TARGET_SELECTS = premise("target-selects")
TARGET_IS_TIGHT = premise("target-is-tight")
TARGET_KEEPS_OTHERS = premise("target-keeps-others", when=SPARE)
JOINT_DATA = (SVM_IS_OPTIMAL, *DATASET_CLAIMS, RELAXED_SVM_IS_OPTIMAL)
"""The claims that :func:`joint_data` makes."""
JOINT_SOLUTIONS = (LABEL_MARGIN, LABEL_SUPPORTS, LABEL_DUALS, TARGET_SELECTS, TARGET_IS_TIGHT, TARGET_KEEPS_OTHERS)
"""The claims that :func:`joint_solutions` makes."""


def joint_data(case: Case, setup: JointSetup, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claims that keys and scores are products of the data, and that p_mm and p_relax solve their SVMs.

    The claim on p_relax is made where some input is no support of v_mm.
    """
    yield from dataset_claims(case, under_test)
    problem, alpha, support = setup.problem, case.chosen_tokens, setup.joint.svm.support
    yield svm_claim(problem, alpha, setup.separator)
    if not support.all():
        required = support.astype(np.int64)
        yield svm_claim(problem, alpha, setup.target, required=required, name=RELAXED_SVM_IS_OPTIMAL)


def joint_solutions(setup: JointSetup, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claims that v_mm has the label margin Γ and p_relax the margin Θ, both attained on the supports S only.

    The margin of p_relax is claimed through the weights q_i = 1 − s_iα at R p̄_relax: σ(−RΘ) ≤ max_{i∈S} q_i ≤
    (T−1)/(e^{RΘ} + T − 1), and q_i ≤ (T−1)/T at other inputs.
    """
    joint, target, T = setup.joint, setup.target, setup.problem.T
    support = joint.svm.support
    outputs = joint.chosen_tokens @ setup.u
    yield at_least(LABEL_MARGIN, Form.EFFECTIVE, outputs - setup.slack, setup.margin, points="input")
    yield at_least(LABEL_SUPPORTS, Form.EFFECTIVE, setup.margin, outputs[support], points="support")
    yield _duals_claim(setup)
    # The ball ‖p‖ ≤ R is larger than the points require, because a point on its sphere would be shortened for rounding.
    level = SublevelSet(setup, under_test, 0.0, 601.0 * target.norm, 600.0 * target.p)
    RTheta = np.array([4.0, 60.0, 600.0])
    points = level.points(np.zeros((3, joint.tokens.shape[2])), RTheta[:, None] * target.p)
    # Entries of p are rounded twice, which changes margins, and so logarithms of q, by at most EPS Σ|k_iα − k_it||p|.
    margin_error = EPS * np.max(np.sum(np.abs(joint.rows) * np.abs(points.p)[:, None, None, :], axis=-1), axis=(1, 2))
    q = level.nonoptimality(points) * np.exp(exact(np.zeros(3)).widen(margin_error * (1 + 16 * EPS)))[:, None]
    worst = np.max(q[:, support], axis=1)
    upper, lower = nonoptimality_bounds(exact(RTheta), T)
    yield at_least(TARGET_SELECTS, Form.EFFECTIVE, upper, worst, points="radius")
    yield at_least(TARGET_IS_TIGHT, Form.EFFECTIVE, worst, lower, points="radius")
    if not support.all():
        others = (exact(T) - 1) / T
        yield at_least(TARGET_KEEPS_OTHERS, Form.EFFECTIVE, others, q[:, ~support], points="radius and input")


def _duals_claim(setup: JointSetup) -> Claim:
    """Return the claim that the duals λ of (SVM) prove v_mm optimal: λ ≥ 0, zero off S, Σ λ = 1, Σ λ_i z_i = Γ v̄_mm.

    S are the supports and z_i = Y_i x_iα the signed features. Each dual is a rounded rational, divided by the rounded
    sum of n such rationals.
    """
    svm, n = setup.joint.svm, setup.problem.n
    duals = with_roundings(svm.duals, n + 2)
    residual = duals @ setup.joint.chosen_tokens - setup.margin * setup.u
    total = np.sum(duals, keepdims=True) - 1
    conditions = [np.abs(residual), np.abs(total), exact(-svm.duals), exact(svm.duals[~svm.support])]
    return at_least(LABEL_DUALS, Form.EXACT, 0.0, np.concatenate(conditions), points="condition")
