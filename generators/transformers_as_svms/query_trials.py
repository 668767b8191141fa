"""Random problems for training W: tokens, queries and head on the unit sphere, labels uniform in ±1.

A trial (one such problem) depends on a seed, n, T, d and its number, but not on how many trials are drawn. Tokens and
queries are rounded to multiples of 2⁻²⁰, so that the keys vec(x zᵀ) are exact.

References: *Transformers as Support Vector Machines*, notebook local_converge and the figure of SVM ranks.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from generators.random_trials import on_the_sphere
from reference_attention.query_dataset import QueryDataset

BITS = 20


def query_trial(seed: int, n: int, tokens: int, d: int, number: int, bits: int = BITS) -> QueryDataset:
    """Return the data of one trial, with the logistic loss.

    Args:
        seed: the common seed of all trials.
        n: the number of inputs.
        tokens: the number of tokens of each input.
        d: the dimension of tokens and queries.
        number: the number of the trial.
        bits: the number of bits after the binary point to which tokens, queries and head are rounded.
    """
    rng = np.random.default_rng([seed, n, tokens, d, number])
    X, queries, v = (_sphere(rng, shape, bits) for shape in ((n, tokens, d), (n, d), (d,)))
    return QueryDataset(X, queries, rng.choice([-1.0, 1.0], size=n), v)


def _sphere(rng: np.random.Generator, shape: tuple[int, ...], bits: int) -> Float64[np.ndarray, "..."]:
    return np.asarray(np.ldexp(np.round(np.ldexp(on_the_sphere(rng.standard_normal(shape)), bits)), -bits))
