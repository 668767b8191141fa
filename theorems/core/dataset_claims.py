"""Exact claims on a dataset: keys are X_i Wᵀ, or vec(x_it z_iᵀ) with query z_i if W is trained; scores are Y_i X_i v.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 1.1; *Transformers as Support Vector Machines*,
(W-ERM).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Float64

from generators.case import Case
from reference_attention.exact import rational, rational_matrix, to_floats
from reference_attention.problem import Dataset, keys_and_scores
from reference_attention.query_dataset import QueryDataset, outer_keys_and_scores
from theorems.core.claim import Claim, Form
from theorems.core.claim_name import premise
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT

KEYS_ARE_PRODUCTS = premise("keys-are-products", when="the case has tokens")
SCORES_ARE_PRODUCTS = premise("scores-are-products", when="the case has tokens")
DATASET_CLAIMS = (KEYS_ARE_PRODUCTS, SCORES_ARE_PRODUCTS)
"""The claims that :func:`dataset_claims` yields."""


def dataset_claims(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claims that k_it = W x_it and γ_it = Y_i v·x_it, each within half a unit in the last place.

    The claims are checked both for the keys and scores that the implementation computes and for those in the problem of
    the case. Without tokens no claim is made.
    """
    data = case.dataset
    if data is None:
        return
    keys, scores = under_test[keys_and_scores](data)
    tokens = rational_matrix(data.X.reshape(-1, data.X.shape[2]))
    yield _rounding_claim(SCORES_ARE_PRODUCTS, _signed_scores(data, tokens), scores, case.problem.scores)
    keyed = tokens if data.W is None else tokens * rational_matrix(np.ascontiguousarray(data.W.T))
    yield _rounding_claim(KEYS_ARE_PRODUCTS, keyed.entries(), keys, case.problem.keys)


KEYS_ARE_OUTER_PRODUCTS = premise("keys-are-outer-products")
QUERY_CLAIMS = (KEYS_ARE_OUTER_PRODUCTS, premise(SCORES_ARE_PRODUCTS))
"""The claims that :func:`query_claims` yields."""


def query_claims(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claims that k_it = vec(x_it z_iᵀ) and γ_it = Y_i v·x_it, each within half a unit in the last place."""
    data = case.queried
    assert data is not None, "the statement assumes queries-given"
    keys, scores = under_test[outer_keys_and_scores](data)
    tokens = rational_matrix(data.X.reshape(-1, data.X.shape[2]))
    yield _rounding_claim(SCORES_ARE_PRODUCTS, _signed_scores(data, tokens), scores, case.problem.scores)
    queries = [[rational(b) for b in query] for query in data.queries.tolist() for _ in range(data.X.shape[1])]
    outer = [a * b for row, query in zip(tokens.tolist(), queries, strict=True) for a in row for b in query]
    yield _rounding_claim(KEYS_ARE_OUTER_PRODUCTS, outer, keys, case.problem.keys)


def _signed_scores(data: Dataset | QueryDataset, tokens: fmpq_mat) -> list[fmpq]:
    """Return the scores Y_i v·x_it over the rationals, one per row of ``tokens``."""
    labels = np.repeat(data.Y, data.X.shape[1]).tolist()
    products = (tokens * rational_matrix(data.v[:, None])).entries()
    return [rational(y) * x for y, x in zip(labels, products, strict=True)]


def _rounding_claim(name: str, products: list[fmpq], reported: Any, expected: Float64[np.ndarray, "..."]) -> Claim:
    nearest = to_floats(products).reshape(expected.shape)
    for source, values in (("reported", np.asarray(reported)), ("that of the problem", expected)):
        if values.shape != expected.shape:
            return _claim(name, f"an array of shape {values.shape} is reported, not {expected.shape}")
        for k in np.flatnonzero(values != nearest).tolist():
            value, product = float(values.flat[k]), products[k]
            # A product halfway between two floats may be rounded to either.
            if not np.isfinite(value) or abs(rational(value) - product) > rational(float(np.spacing(abs(value)))) / 2:
                where = tuple(int(x) for x in np.unravel_index(k, expected.shape))
                return _claim(name, f"entry {where} is {nearest.flat[k]:.17g}; {source} is {value:.17g}")
    return _claim(name, "")


def _claim(name: str, wrong: str) -> Claim:
    return Claim(name, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, wrong)
