"""Small data with queries for the statements of Section 2 of the second paper, one for each distinction made there."""

from __future__ import annotations

from typing import Any

import numpy as np

from generators.case import Case
from reference_attention.query_dataset import QueryDataset
from theorems.core.check import check
from theorems.core.claim import Claim, Verdict
from theorems.core.implementation import Implementation
from theorems.run.registry.lookup import statement_named


def case(X: Any, queries: Any, Y: Any, v: Any, loss: str = "logistic", alpha: Any = None) -> Case:
    """Return a case with the given tokens (n, T, d), queries (n, e), labels and head."""
    data = QueryDataset(np.array(X, dtype=np.float64), np.array(queries, dtype=np.float64), Y, v, loss)
    chosen = None if alpha is None else np.array(alpha, dtype=np.int64)
    return Case(data.problem, queried=data, alpha=chosen, seed=7)


CASES: dict[str, Case] = {
    "two-tokens": case([[[2, 1], [0, 0]]], [[1, 2]], [1], [1, 0]),
    "single-input": case([[[2, 1], [0, 3], [1, -1]]], [[1, 2]], [1], [1, 0], alpha=[1]),
    "orthogonal-queries": case(
        [[[1, 2, 0], [0, 1, 1], [-1, 0, 2]], [[2, 0, 1], [3, 1, 0], [1, 1, 1]]],
        [[1, 1, 0], [1, -1, 0]],
        [1, -1],
        [1, 0, 0],
        "exponential",
        alpha=[0, 2],
    ),
    "self-attention": case(
        [[[1, 2, 0], [0, 1, 1]], [[2, 0, 1], [3, 1, 0]], [[1, 1, 1], [0, -1, 2]]],
        [[1, 2, 0], [2, 0, 1], [1, 1, 1]],
        [1, 1, -1],
        [1, 0, 0],
        "sigmoid",
    ),
    "rows-only": case(
        [[[1, 0], [0, 1]], [[0, 2], [1, 0]], [[1, 1], [3, 0]]], [[1, 0], [0, 1], [1, 1]], [1, 1, 1], [1, 0]
    ),
    "many-tokens": case(
        [[[3, 1], [1, 0], [1, 2], [0, -1], [2, 5]], [[0, 1], [1, 0], [2, 2], [-1, -1], [1, 4]]],
        [[1, 0.5], [-2, 1]],
        [1, -1],
        [1, 0],
        "correlation",
    ),
    "contradicted": case(
        [[[1, 2], [0, 1], [-1, 0]], [[1, 2], [0, 1], [-1, 0]]], [[1, 1], [-1, -1]], [1, 1], [1, 0], "correlation"
    ),
    "contradicted-logistic": case([[[1, 2], [0, 1]], [[1, 2], [0, 1]]], [[1, 1], [-2, -2]], [1, 1], [1, 0]),
}
"""The cases by names that say what is special."""


def claims_of(id: str, name: str, under_test: Implementation) -> dict[str, Claim]:
    """Return the claims of a statement on a case, by name; of several claims with one name, a falsified one."""
    made: dict[str, Claim] = {}
    for claim in check(statement_named(id), CASES[name], under_test).claims:
        if claim.name not in made or claim.verdict is Verdict.FALSIFIED:
            made[claim.name] = claim
    return made


def falsified(id: str, name: str, under_test: Implementation) -> set[str]:
    """Return the names of the claims of a statement that are falsified on a case."""
    claims = claims_of(id, name, under_test)
    return {claimed for claimed, claim in claims.items() if claim.verdict is Verdict.FALSIFIED}
