"""Data by name, for ``--data``."""

from __future__ import annotations

import numpy as np

from theorems.api import Case, Problem


def three_ranks() -> Case:
    """Return three tokens along a line, scored in the order in which a prompt ranks them."""
    problem = Problem(np.array([[[0.0], [1.0], [2.0]]]), np.array([[-1.0, 0.0, 2.0]]))
    return Case(problem, start=np.array([1.0]), name="three-ranks")


DATA = {"three-ranks": three_ranks}
