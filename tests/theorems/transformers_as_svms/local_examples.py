"""Tokens and queries around a locally optimal α that is not optimal."""

from __future__ import annotations

import numpy as np

from generators.case import Case
from reference_attention.query_dataset import QueryDataset


def local_example(loss: str = "logistic", seed: int = 5) -> Case:
    """Return two inputs with orthogonal queries, so that the tokens of each are selected independently.

    In the first, α = (1, 0, 1) has score 1, and the better token (2, 0, −5), of score 2, has a large margin; in the
    second, α is the optimal token.
    """
    X = [[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [2.0, 0.0, -5.0]], [[1.5, 1.0, 0.0], [0.5, 0.0, 1.0], [-1.0, 0.5, 0.0]]]
    data = QueryDataset(X, [[1.0, 0.0], [0.0, 2.0]], [1.0, 1.0], [1.0, 0.0, 0.0], loss)
    return Case(data.problem, queried=data, alpha=np.array([0, 0]), seed=seed)
