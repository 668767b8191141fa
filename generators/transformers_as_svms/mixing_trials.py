"""Random problems in which attention mixes tokens: orthonormal tokens, queries and head on the unit sphere.

A trial (one such problem) depends only on a seed, n, T, d and its number. Tokens are unit vectors, mapped into general
position by dyadic reflections I − ½uuᵀ, where u has four entries ±1. Queries and head are rounded to multiples of 2⁻¹⁰.

References: *Transformers as Support Vector Machines*, Section 6, the figure with several selected tokens per input.
"""

from __future__ import annotations

import numpy as np

from generators.random_trials import on_the_sphere
from reference_attention.query_dataset import QueryDataset

TURNS = 6
BITS = 10


def mixing_trial(seed: int, n: int, tokens: int, d: int, number: int) -> QueryDataset:
    """Return the data of a trial, d ≥ 4, with the loss ℓ(u) = −u and labels +1."""
    rng = np.random.default_rng([seed, n, tokens, d, number])
    X = np.stack([np.eye(d)[rng.permutation(d)[:tokens]] for _ in range(n)])
    for _ in range(TURNS):
        u = np.where(np.arange(d) < 4, rng.choice([-1.0, 1.0], size=d), 0.0)[rng.permutation(d)]
        X = X - 0.5 * (X @ u)[:, :, None] * u
    queries, v = (np.round(on_the_sphere(rng.standard_normal(shape)) * 2**BITS) / 2**BITS for shape in ((n, d), (d,)))
    return QueryDataset(X, queries, np.ones(n), v, "correlation")
