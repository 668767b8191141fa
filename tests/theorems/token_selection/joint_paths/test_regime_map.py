"""The regime map of joint paths: the critical ratio c* on Figure 3(b), and data that have no map.

The limits of the paths in the map are tested in tests/theorems/figures.
"""

from __future__ import annotations

import numpy as np
import pytest

from generators.case import Case
from generators.datasets import DATASETS
from reference_attention.problem import Problem
from theorems.token_selection.joint_paths.regime_map import regimes


def test_figure_3b_has_critical_ratio_one() -> None:
    ratios = {row.schedule: row.ratio for row in regimes(DATASETS["figure-3b"]())}
    assert ratios["r = 1 c* R"] == pytest.approx(1.0, rel=1e-15)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (DATASETS["figure-3a"](), "every input is a support of v_mm"),
        (DATASETS["figure-1c"](), "no ν of Assumption C"),
        (Case(Problem(np.eye(2)[None], np.array([[1.0, 0.0]]))), "the case has no tokens and labels"),
    ],
)
def test_data_without_a_map_are_refused(case: Case, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(regimes(case))
