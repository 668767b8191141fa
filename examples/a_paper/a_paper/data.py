"""The paper's data sets by name, for the option ``--data``."""

from __future__ import annotations

import numpy as np

from theorems.api import Case, Problem


def three_ranks() -> Case:
    """Return a case with three tokens on a line and a prompt that ranks them in the order of their scores."""
    problem = Problem(np.array([[[0.0], [1.0], [2.0]]]), np.array([[-1.0, 0.0, 2.0]]))
    return Case(problem, start=np.array([1.0]), name="three-ranks")


DATA = {"three-ranks": three_ranks}
