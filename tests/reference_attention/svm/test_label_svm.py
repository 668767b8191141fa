"""The SVM on labels, (SVM), by hand: its margin Γ, slack, supports and duals."""

from __future__ import annotations

import numpy as np

from reference_attention.svm.label_svm import LabelSvm, label_svm
from reference_attention.svm.max_margin import Infeasible


def test_the_solution_of_the_svm_on_labels_is_that_found_by_hand() -> None:
    """For features (2, 0), (6, 0), (2, 8) the solution is v_mm = (½, 0), so that Γ = 2 and the second input has slack 6
    − 2.
    """
    solution = label_svm(np.array([[2.0, 0.0], [6.0, 0.0], [2.0, 8.0]]))
    assert isinstance(solution, LabelSvm)
    assert solution.v.tolist() == [0.5, 0.0]
    assert solution.direction.tolist() == [1.0, 0.0]
    assert (solution.margin, solution.norm) == (2.0, 0.5)
    assert solution.slack.tolist() == [0.0, 4.0, 0.0]
    assert solution.support.tolist() == [True, False, True]
    assert solution.duals.tolist() == [1.0, 0.0, 0.0]
    assert not solution.strictly_complementary


def test_the_svm_on_labels_is_infeasible_if_no_head_separates_the_features() -> None:
    assert isinstance(label_svm(np.array([[1.0, 0.0], [-1.0, 0.0]])), Infeasible)
