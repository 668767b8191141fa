"""The amounts by which margins exceed one, with a small relative error even where they are 10^−17.

References: *Max-Margin Token Selection in Attention Mechanism*, Definition 2.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from reference_attention.exact import to_float
from reference_attention.svm.max_margin import MaxMargin

NEAR_ONE = 2.0**-10
"""Distance of a margin above 1 below which the margin is recomputed from the exact solution."""


def margins_beyond_one(solution: MaxMargin) -> Float64[np.ndarray, "n T"]:
    """Return (k_iα − k_it)·p − 1 with a small relative error, even where the number is 10^−17; +inf at t = α."""
    beyond = solution.margins - 1
    for i, t in np.argwhere(beyond < NEAR_ONE):
        beyond[i, t] = 0.0 if solution.neighbours[i, t] else to_float(solution.exact.margin(int(i), int(t)) - 1)
    return beyond
