"""The token mask of a user's file, by which padding is removed before anything is computed.

``mask`` has shape (n, T) and is true, or 1, where a token counts: the opposite of PyTorch's ``key_padding_mask``.
Padding cannot be replaced by copies of other tokens, because a copy would take weight. So if every input has the same
number of tokens that count, the other tokens are dropped. Otherwise the data become a :class:`SequenceDataset` with one
query per input, which sees the tokens that count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from reference_attention.errors import InvalidInput
from reference_attention.loss import Loss
from reference_attention.problem import Dataset, as_array, checked_array, refuse_truth_values
from reference_attention.sequence_dataset import SequenceDataset

PER_TOKEN = ("X", "keys", "scores")
"""The names of the arrays of a file whose second axis counts tokens."""
MEANING = "true marks a token that counts; if yours marks padding, as PyTorch's key_padding_mask does, give ~mask"
"""The convention of the mask in words, for error messages."""


def token_mask_of(values: Mapping[str, Any]) -> Bool[np.ndarray, "n T"] | None:
    """Return the mask of the tokens that count; None without a mask, or if the mask says what queries see, (n, L, T).

    Raises:
        InvalidInput: the mask has a wrong shape or wrong values, keeps no token of an input, one token of every input,
            or only zero tokens; or a query is a token that does not count.
    """
    if "mask" not in values or ("queries" in values and np.ndim(as_array("queries", values["queries"], "")) == 3):
        return None
    name = "X" if "X" in values else "keys"
    tokens = as_array(name, values[name], "(n, T, d)")
    if tokens.ndim != 3 or tokens.dtype.kind not in "fiu":
        checked_array(name, values[name], ("n", "T", "d"))  # raises InvalidInput with the reason
    mask = _checked_mask(values["mask"], (tokens.shape[0], tokens.shape[1]))
    _refuse_zeros_that_count(values, tokens, mask)
    if "queries" in values:
        _refuse_hidden_queries(values["queries"], tokens, mask)
    return mask


def is_ragged(mask: Bool[np.ndarray, "n T"] | None) -> bool:
    """Return whether inputs keep different numbers of tokens."""
    return mask is not None and bool(np.ptp(mask.sum(axis=1)))


def ragged_dataset(values: Mapping[str, Any], mask: Bool[np.ndarray, "n T"], loss: Loss, name: str) -> SequenceDataset:
    """Return the dataset of inputs that keep different numbers of tokens; without queries, each gets the query 1.

    Raises:
        InvalidInput: chosen tokens are given, or arrays do not fit together.
    """
    if "alpha" in values:
        raise InvalidInput(f"{name}: alpha is for inputs that keep the same number of tokens; leave it out.")
    arrays = dict(values)
    for key in PER_TOKEN:
        if key in arrays:
            array = np.array(_of_tokens(key, arrays[key], mask), dtype=object)
            array[~mask] = 0
            arrays[key] = array.tolist()
    n, visible = len(mask), mask[:, None]
    ones = np.ones((n, 1, 1))
    if "X" not in arrays or "W" in arrays:
        if "X" in arrays:
            problem = Dataset(arrays["X"], arrays["Y"], arrays["v"], arrays["W"], loss).problem
            keys, scores = problem.keys, problem.scores
        else:
            keys, scores = checked_array("keys", arrays["keys"], (n, "T", "d")), arrays["scores"]
        return SequenceDataset(keys, ones, ones[..., 0], np.zeros(keys.shape[2]), loss, visible, values=scores)
    dataset = Dataset(arrays["X"], arrays["Y"], arrays["v"], None, loss)
    queries = checked_array("queries", arrays["queries"], (n, "e"))[:, None] if "queries" in arrays else ones
    return SequenceDataset(dataset.X, queries, dataset.Y[:, None], dataset.v, loss, visible)


def drop_hidden_tokens(values: Mapping[str, Any], mask: Bool[np.ndarray, "n T"]) -> dict[str, Any]:
    """Return the arrays of a file with only the tokens that count, in their order, and without the mask.

    Tokens that do not count are ignored; they may be NaN.
    """
    arrays = {key: value for key, value in values.items() if key != "mask"}
    for key in PER_TOKEN:
        if key in arrays:
            array = _of_tokens(key, arrays[key], mask)
            arrays[key] = array[mask].reshape(len(mask), -1, *array.shape[2:])
    return arrays


def _of_tokens(key: str, value: Any, mask: Bool[np.ndarray, "n T"]) -> np.ndarray:
    """Return the array, after a check that its first axes have the shape of the mask."""
    refuse_truth_values(key, value)
    array = as_array(key, value, "(n, T, …)")
    if array.shape[:2] != mask.shape:
        wanted = ", ".join(map(str, mask.shape))
        raise InvalidInput(f"{key}: shape {array.shape} does not begin with ({wanted}), the shape of the mask.")
    return array


def positions_of(mask: Bool[np.ndarray, "n T"]) -> Int64[np.ndarray, "n t"]:
    """Return, for each input, the positions in the file of the tokens that count."""
    return np.nonzero(mask)[1].reshape(len(mask), -1).astype(np.int64)


def renumber(alpha: Int64[np.ndarray, "n"], mask: Bool[np.ndarray, "n T"]) -> Int64[np.ndarray, "n"]:
    """Convert indices of chosen tokens in the file to indices among the tokens that count.

    Raises:
        InvalidInput: a chosen token does not count.
    """
    rows = np.arange(len(mask))
    if (hidden := np.flatnonzero(~mask[rows, alpha])).size:
        i = int(hidden[0])
        raise InvalidInput(f"alpha: token {alpha[i]} of input {i} does not count by the mask; choose one that does.")
    return np.asarray(mask.cumsum(axis=1)[rows, alpha] - 1).astype(np.int64)


def _checked_mask(value: Any, shape: tuple[int, int]) -> Bool[np.ndarray, "n T"]:
    raw = as_array("mask", value, str(shape))
    if raw.shape != shape or not np.isin(raw, (0, 1)).all():
        raise InvalidInput(
            f"mask: dtype {raw.dtype} and shape {raw.shape} do not say which tokens count; give booleans, or 0 and 1,"
            f" of shape {shape}: {MEANING}."
        )
    mask = raw.astype(np.bool_)
    counts = mask.sum(axis=1)
    if not counts.all():
        raise InvalidInput(f"mask: no token of input {int(np.argmin(counts))} counts; {MEANING}.")
    if (counts == 1).all():
        raise InvalidInput("mask: one token of each input counts, which leaves nothing to select; let two count.")
    return mask


def _refuse_zeros_that_count(
    values: Mapping[str, Any], tokens: Float64[np.ndarray, "n T d"], mask: Bool[np.ndarray, "n T"]
) -> None:
    """Refuse a mask by which only zero tokens count, as such a mask seems to mark padding."""
    filled = (tokens != 0).any(axis=2)
    if "scores" in values:
        scores = as_array("scores", values["scores"], "(n, T)")
        filled |= scores != 0 if scores.shape == mask.shape else False
    if not filled[mask].any() and filled[~mask].any():
        raise InvalidInput(f"mask: all tokens that count are zero, and others are not; {MEANING}.")


def _refuse_hidden_queries(queries: Any, tokens: Float64[np.ndarray, "n T d"], mask: Bool[np.ndarray, "n T"]) -> None:
    """Refuse a query equal to a token that does not count, such as ``X[:, -1]`` with padding at the end."""
    z = as_array("queries", queries, "(n, e)")
    if z.shape != (len(tokens), tokens.shape[2]):
        return
    equal = (tokens == z[:, None]).all(axis=2)
    wrong = np.flatnonzero((equal & ~mask).any(axis=1) & ~(equal & mask).any(axis=1))
    if wrong.size:
        i = int(wrong[0])
        t = int(np.argmax(equal[i] & ~mask[i]))
        raise InvalidInput(
            f"queries: the query of input {i} is its token {t}, which does not count by the mask; take one that counts,"
            " such as the last token that does."
        )
