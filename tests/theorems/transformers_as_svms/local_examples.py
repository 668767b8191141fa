"""Tokens and queries around a locally optimal α that is not optimal."""

from __future__ import annotations

import numpy as np

from generators.case import Case
from reference_attention.query_dataset import QueryDataset


def local_example(loss: str = "logistic", seed: int = 5) -> Case:
    """Orthogonal queries, so that each input decides for itself: (2, 0, −5) scores 2 and lies far on the other side of
    α = (1, 0, 1), score 1, as seen from (0, 1, 0), score 0; in the second input α is opt.
    """
    X = [[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [2.0, 0.0, -5.0]], [[1.5, 1.0, 0.0], [0.5, 0.0, 1.0], [-1.0, 0.5, 0.0]]]
    data = QueryDataset(X, [[1.0, 0.0], [0.0, 2.0]], [1.0, 1.0], [1.0, 0.0, 0.0], loss)
    return Case(data.problem, queried=data, alpha=np.array([0, 0]), seed=seed)
