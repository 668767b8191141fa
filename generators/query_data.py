"""Reading of the arrays in a user's file that concern queries: queries, mask, causal, and the starts W0, K0 and Q0."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.errors import InvalidInput
from reference_attention.exact import rounded_product
from reference_attention.loss import Loss
from reference_attention.problem import Problem, as_array, checked_array
from reference_attention.query_dataset import QueryDataset
from reference_attention.sequence_dataset import SequenceDataset

QUERIES = ("queries", "W0", "K0", "Q0", "mask", "causal")
FACTORS = QUERIES[2:4]
"""The names of the arrays with the factors K and Q at which training starts."""


def check_query_names(name: str, names: Collection[str]) -> None:
    """Check that a file gives W only without queries, and a start of W only with queries.

    Raises:
        InvalidInput: W together with queries, or a start of W without queries.
    """
    if {"W", "queries"} <= {*names}:
        raise InvalidInput(f"{name}: with queries, W is trained; give its start as W0, or leave W out.")
    starts = [key for key in QUERIES[1:4] if key in names]
    if starts and "queries" not in names:
        raise InvalidInput(f"{name}: {starts[0]} is a start of W, which is trained with queries; add queries.")
    if "causal" in names and "queries" not in names:
        raise InvalidInput(f"{name}: causal says what queries see; add queries of shape (n, L, e).")


def query_dataset_of(values: Mapping[str, Any], loss: Loss, name: str) -> QueryDataset | SequenceDataset | None:
    """Return the dataset with one query per input, or several if queries have three axes; None without queries.

    Raises:
        InvalidInput: X, Y or v is missing, or arrays do not fit together.
    """
    if "queries" not in values:
        return None
    if "X" not in values:
        raise InvalidInput(f"{name}: X is missing; X, Y and v are needed together with queries.")
    X, queries, Y, v = (values[key] for key in ("X", "queries", "Y", "v"))
    if as_array("queries", values["queries"], "(n, e) or (n, L, e)").ndim == 3:
        if "alpha" in values:
            raise InvalidInput(f"{name}: alpha chooses a token of each input, not of each query; leave it out.")
        causal = _truth("causal", values.get("causal", False))
        return SequenceDataset(X, queries, Y, v, loss, values.get("mask"), causal=causal)
    if "causal" in values:
        raise InvalidInput(f"{name}: causal is for several queries per input; give queries of shape (n, L, e).")
    return QueryDataset(X, queries, Y, v, loss)


def _truth(name: str, value: Any) -> bool:
    value = value.item() if isinstance(value, np.ndarray | np.generic) and np.ndim(value) == 0 else value
    if value is not True and value is not False:
        raise InvalidInput(f"{name}: must be true or false.")
    return bool(value)


def start_of(
    values: Mapping[str, Any], problem: Problem, queried: QueryDataset | SequenceDataset | None, name: str
) -> Float64[np.ndarray, "d"] | None:
    """Return the start p(0) or, if W is trained, vec(W0), where W0 = K0 Q0ᵀ if K0 and Q0 are given.

    Raises:
        InvalidInput: two starts, only one of K0 and Q0, or a shape that does not fit.
    """
    start_names = [key for key in ("start", "p0", "W0", "K0") if key in values]
    if len(start_names) > 1:
        raise InvalidInput(f"{name}: {start_names[0]} and {start_names[1]} are both starts; give one of them.")
    if ("K0" in values) != ("Q0" in values):
        missing = "Q0" if "K0" in values else "K0"
        raise InvalidInput(f"{name}: {missing} is missing; K0 and Q0 are needed together.")
    if not start_names:
        return None
    if start_names[0] in ("start", "p0") or queried is None:
        return checked_array(start_names[0], values[start_names[0]], (problem.d,))
    if start_names[0] == "W0":
        return checked_array("W0", values["W0"], queried.shape).ravel()
    K0 = checked_array("K0", values["K0"], (queried.shape[0], "m"))
    Q0 = checked_array("Q0", values["Q0"], (queried.shape[1], K0.shape[1]))
    return rounded_product(K0, np.ascontiguousarray(Q0.T)).ravel()
