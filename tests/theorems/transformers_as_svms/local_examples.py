"""Tokens and queries around a locally optimal α that is not optimal."""

from __future__ import annotations

import numpy as np

from generators.case import Case
from reference_attention.query_dataset import QueryDataset


def local_example(loss: str = "logistic", seed: int = 5) -> Case:
    """Return two inputs with orthogonal queries, so that each selects independently. In the first, (2, 0, −5) of score
    2 lies far behind α = (1, 0, 1) of score 1, as seen from (0, 1, 0) of score 0; in the second α is opt.
    """
    X = [[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [2.0, 0.0, -5.0]], [[1.5, 1.0, 0.0], [0.5, 0.0, 1.0], [-1.0, 0.5, 0.0]]]
    data = QueryDataset(X, [[1.0, 0.0], [0.0, 2.0]], [1.0, 1.0], [1.0, 0.0, 0.0], loss)
    return Case(data.problem, queried=data, alpha=np.array([0, 0]), seed=seed)
