"""Theorem 6 and its lemmas without their hypothesis that the joint path's prompt p_R selects the tokens α.

The hypothesis is about the path, not about the data; the cases that the suite draws for these statements satisfy it by
construction. Supports are the inputs with the smallest label margin under the max-margin head v_mm; p_relax is the
max-margin prompt if the margin 1 is required at supports, and the margin 0 at other inputs.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3.2, Theorem 6; Appendix C.2, Lemmas 12 and 13.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64

from generators.case import Case
from generators.numbers import integers
from reference_attention.paths.joint_minimisers import Pair
from reference_attention.paths.joint_path import exponential_schedule
from reference_attention.paths.joint_risk import Joint
from reference_attention.problem import Dataset
from reference_attention.svm.label_svm import relaxed_max_margin
from reference_attention.svm.max_margin import Infeasible, MaxMargin
from theorems.core.claim import Claim, Form
from theorems.without.flow_claims import CLEAR, LIMIT_FOLLOWED
from theorems.without.joint_path_claims import RADII, follow_joint_path, joint_of, relaxed_solution


@st.composite
def one_support(draw: DrawFn) -> Case:
    """Draw a case where only input 0 is a support of v_mm = (1, 0), and the second token of input 1 is arbitrary.

    The second token of input 0 is zero, so that Assumption C holds over the supports.
    """
    X, Y = np.zeros((2, 2, 2)), np.array(draw(st.lists(st.sampled_from((1.0, -1.0)), min_size=2, max_size=2)))
    X[0, 0, 0] = 1.0
    X[1, 0] = 2.0, draw(st.integers(-2, 2))
    X[1, 1] = draw(integers((2,), -3, 3))
    data = Dataset(Y[:, None, None] * X + 0.0, Y, np.array([1.0, 0.0]))
    return Case(data.problem, dataset=data, alpha=np.zeros(2, dtype=np.int64), seed=draw(st.integers(0, 9)))


def shorter_elsewhere(case: Case) -> float:
    """Return by what fraction ‖p_relax‖ can shrink if one input selects another token, minus :data:`CLEAR`.

    The input must not be a support, and the other token's label margin under v_mm must be above 1. Return −1 if v_mm or
    p_relax does not exist, the data's head is not v_mm, or the loss is not logistic. (Symbols: see the module.)
    """
    joint = joint_of(case)
    data = case.dataset
    if joint is None or data is None or data.loss.name != "logistic" or not np.array_equal(data.v, joint.svm.v):
        return -1.0
    relaxed = relaxed_solution(joint)
    if relaxed is None:
        return -1.0
    norms = [other.norm for other in _elsewhere(joint)]
    return 1.0 - min(norms, default=np.inf) / relaxed.norm - CLEAR


def _elsewhere(joint: Joint) -> Iterator[MaxMargin]:
    """Yield p_relax for every choice that differs from α in the token of one input that is not a support.

    The other token's label margin under v_mm is above 1. Choices for which p_relax does not exist are left out.
    """
    for i, t in np.argwhere(joint.others & ~joint.svm.support[:, None]):
        if joint.tokens[i, t] @ joint.svm.v > 1:
            alpha = joint.alpha.copy()
            alpha[i] = t
            solution = relaxed_max_margin(joint.keys, alpha, joint.svm.support)
            if not isinstance(solution, Infeasible):
                yield solution


def path_of(case: Case) -> tuple[list[Pair], Float64[np.ndarray, "k"]] | None:
    """Return (v_r, p_R) for r = e^{RΘ/2} and the direction of p_relax; None if v_mm or p_relax does not exist.

    Θ is 1/‖p_relax‖; other symbols: see the module.
    """
    joint = joint_of(case)
    relaxed = None if joint is None else relaxed_solution(joint)
    if joint is None or relaxed is None:
        return None
    return follow_joint_path(
        joint, exponential_schedule(relaxed.margin / 2), RADII, relaxed.norm, case.seed
    ), relaxed.direction


def quadrant_claim(pairs: list[Pair]) -> Claim:
    """Claim (k_iα − k_it)·p_R ≥ 0 for all i, t at one radius R at least, per R times max |entry of k_iα − k_it|."""
    least = max(pair.lowest_margin / (pair.R * float(np.abs(pair.joint.rows).max())) for pair in pairs)
    margins = ", ".join(f"{pair.lowest_margin:.6g}" for pair in pairs)
    radii = ", ".join(f"{pair.R:.6g}" for pair in pairs)
    detail = f"the smallest (k_iα − k_it)·p_R is {margins} at R = {radii}"
    return Claim("prompt-in-quadrant", Form.LIMIT, least, pairs[-1].units ** -0.5, LIMIT_FOLLOWED, detail)
