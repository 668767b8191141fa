"""Data for benchopt: random problems like those of the paper's Figures 9 and 10, trained from p = 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchopt import BaseDataset

from generators.random_trials import random_trial


class Dataset(BaseDataset):
    """Random problems with n = 4, T = 6, and tokens and head drawn uniformly from the unit sphere.

    The same seed and number give the same problem.
    """

    name = "trials"
    parameters = {"d": [10], "number": [0, 1, 2]}  # noqa: RUF012

    def get_data(self) -> dict[str, Any]:
        """Return the problem (keys, scores, loss), the start, and the shape of the trained parameter."""
        problem = random_trial(0, self.d, self.number).problem
        return {"problem": problem, "start": np.zeros(self.d), "shape": (self.d,), "keys": None}
