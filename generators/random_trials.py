"""Random problems of the paper's Figures 9 and 10: tokens and head uniform on the unit sphere, labels uniform in ±1.

A trial (one such problem) depends on a seed, d and its number, but not on how many trials are drawn.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix E, Figures 9 and 10.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from reference_attention.problem import Dataset

INPUTS, TOKENS = 4, 6
"""The default numbers of inputs and of tokens of a trial."""


def random_trial(seed: int, d: int, number: int, n: int = INPUTS, tokens: int = TOKENS) -> Dataset:
    """Return the data of a trial: x_it and v uniform on the sphere in d dimensions, Y_i = ±1, W = I, logistic loss."""
    rng = np.random.default_rng([seed, d, number])
    X = on_the_sphere(rng.standard_normal((n, tokens, d)))
    v = on_the_sphere(rng.standard_normal(d))
    return Dataset(X, rng.choice([-1.0, 1.0], size=n), v)


def on_the_sphere(points: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b d"]:
    """Divide each point by its norm; Gaussian points become uniform on the sphere."""
    return np.asarray(points / np.linalg.norm(points, axis=-1, keepdims=True))
