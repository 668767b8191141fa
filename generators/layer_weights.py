"""Trained weights in a user's file: a prompt p or, for data with queries, W or factors K and Q of W = KQᵀ.

The names in a file are ``p`` (d,), ``W_trained`` (d, e), and ``K_trained`` (d, m) with ``Q_trained`` (e, m); the logit
of token t is k_it·p or, for a query z_i, x_itᵀ W z_i. An array with one more axis, the first, holds the weights at
checkpoints of training; the array ``steps`` then holds the number of training steps before each checkpoint.
:func:`checkpoints_of` checks the arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import fmpq_mat
from jaxtyping import Float64

from generators.case import Case
from reference_attention.errors import InvalidInput
from reference_attention.exact import rational_matrix, rounded_product
from reference_attention.problem import as_array, checked_array, refuse_truth_values

TRAINED = ("p", "W_trained", "K_trained", "Q_trained")
"""The names of trained weights in a file."""
STEPS = "steps"
"""The name of the array that holds the number of training steps before each checkpoint."""
MOST_CHECKPOINTS = 1000
"""The largest number of checkpoints; the exact comparison of each checkpoint takes time."""
FORMS = "p, or with queries W_trained, or K_trained and Q_trained"
"""A list of the names under which trained weights can be given, for messages."""


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """Trained weights that fit the data.

    Attributes:
        name: ``p``, ``W`` or ``(K, Q)``.
        matrix: p as a column (d, 1), or W (d, e); for factors the exact product KQᵀ with each entry rounded once.
        factors: K (d, m) and Q (e, m), if the factors were given; otherwise None.
    """

    name: str
    matrix: Float64[np.ndarray, "d e"]
    factors: tuple[Float64[np.ndarray, "d m"], Float64[np.ndarray, "e m"]] | None = None

    @property
    def prompt(self) -> Float64[np.ndarray, "k"]:
        """Return p or vec(W), shape (d,) or (d·e,)."""
        return self.matrix.ravel()

    @property
    def arrays(self) -> dict[str, Float64[np.ndarray, "..."]]:
        """Return the weights by their names in a file."""
        if self.factors is not None:
            return dict(zip(TRAINED[2:], self.factors, strict=True))
        return {"p": self.prompt} if self.name == "p" else {"W_trained": self.matrix}

    @cached_property
    def exact(self) -> fmpq_mat:
        """Return p or W as a matrix of rationals; for factors the exact product KQᵀ."""
        if self.factors is None:
            return rational_matrix(self.matrix)
        K, Q = self.factors
        return rational_matrix(K) * rational_matrix(Q).transpose()


@dataclass(frozen=True, eq=False)
class Checkpoints:
    """Trained weights at one or more times of training.

    Attributes:
        weights: the weights in the order of training.
        steps: the number of training steps before each checkpoint, increasing, shape (s,).
    """

    weights: tuple[LayerWeights, ...]
    steps: Float64[np.ndarray, "s"]

    @property
    def last(self) -> LayerWeights:
        """Return the weights at the end of training."""
        return self.weights[-1]

    @property
    def arrays(self) -> dict[str, Float64[np.ndarray, "..."]]:
        """Return the weights by their names in a file, with the steps if there are several checkpoints."""
        if len(self.weights) == 1:
            return self.last.arrays
        stacks = {name: np.array([weights.arrays[name] for weights in self.weights]) for name in self.last.arrays}
        return {**stacks, STEPS: self.steps}


def checkpoints_of(case: Case, values: Mapping[str, Any] | None = None) -> Checkpoints | None:
    """Return the trained weights of all checkpoints; None if the data have no trained weights.

    Args:
        case: the data.
        values: named values that hold the weights, as lists, arrays or tensors; if left out, the arrays of the case.

    Raises:
        InvalidInput: weights of two kinds, one factor without the other, or weights that do not fit the data; steps
            that do not increase, or steps without checkpoints.
    """
    values = case.arrays if values is None else values
    trained = {name: values[name] for name in TRAINED if name in values}
    if not trained:
        if STEPS in values:
            raise InvalidInput(f"{STEPS}: no weights at these steps; give {FORMS}, with a first axis of checkpoints.")
        return None
    check_trained_names(case.name, trained)
    single = 1 if "p" in trained else 2
    arrays = {name: as_array(name, value, "an array") for name, value in trained.items()}
    if all(array.ndim == single for array in arrays.values()):
        if STEPS in values:
            first = next(iter(trained))
            raise InvalidInput(f"{STEPS}: {first} has no axis of checkpoints; add it in front, or leave out {STEPS}.")
        return Checkpoints((_weights_of(case, trained),), np.zeros(1))
    stacked = {name: array for name, array in arrays.items() if array.ndim == single + 1}
    if len(stacked) < len(arrays):  # K or Q lacks the axis of checkpoints, or an array has too few or too many axes
        return Checkpoints((_weights_of(case, trained),), np.zeros(1))
    for name in stacked:
        refuse_truth_values(name, trained[name])
    return _checkpoints(case, stacked, values.get(STEPS))


def _checkpoints(case: Case, stacked: Mapping[str, np.ndarray], steps: Any) -> Checkpoints:
    name, stack = next(iter(stacked.items()))
    count = len(stack)
    for other, array in stacked.items():
        if len(array) != count:
            raise InvalidInput(f"{other}: has {len(array)} checkpoints, but {name} has {count}; give the same number.")
    if not 2 <= count <= MOST_CHECKPOINTS:
        fix = "leave out the first axis" if count == 1 else f"give 2 to {MOST_CHECKPOINTS} of them, evenly spaced"
        raise InvalidInput(f"{name}: has {count} checkpoint(s) along its first axis; {fix}.")
    numbers = checked_array(STEPS, np.arange(count) if steps is None else steps, (count,))
    if numbers[0] < 0 or (np.diff(numbers) <= 0).any():
        k = 0 if numbers[0] < 0 else int(np.argmax(np.diff(numbers) <= 0)) + 1
        raise InvalidInput(f"{STEPS}: entry {k} is {numbers[k]:g}; give increasing numbers, all at least 0.")
    weights = []
    for k in range(count):
        try:
            weights.append(_weights_of(case, {key: array[k] for key, array in stacked.items()}))
        except InvalidInput as error:
            raise InvalidInput(f"checkpoint {k}: {error}") from None
    return Checkpoints(tuple(weights), numbers)


def _weights_of(case: Case, weights: Mapping[str, Any]) -> LayerWeights:
    queried = case.queried or case.sequence
    if queried is None or ("p" in weights and case.sequence is not None and case.sequence.trains_prompt):
        if "p" not in weights:
            raise InvalidInput(
                f"{next(iter(weights))}: weights of logits x·W z need the queries z; add queries of shape (n, e), or"
                f" give the trained prompt as p of shape ({case.problem.d},)."
            )
        return LayerWeights("p", _of_shape("p", weights["p"], (case.problem.d,))[:, None])
    d, e = queried.shape
    if "p" in weights:
        raise InvalidInput(f"p: the data have queries, so W is trained, not p; give W_trained of shape {(d, e)}.")
    if "W_trained" in weights:
        return LayerWeights("W", _of_shape("W_trained", weights["W_trained"], (d, e)))
    K = _of_shape("K_trained", weights["K_trained"], (d, "m"))
    Q = _of_shape("Q_trained", weights["Q_trained"], (e, K.shape[1]))
    product = rounded_product(K, np.ascontiguousarray(Q.T))
    return LayerWeights("(K, Q)", checked_array("K_trained Q_trainedᵀ", product, (d, e)), (K, Q))


def check_trained_names(name: str, weights: Mapping[str, Any]) -> None:
    """Check that only one kind of trained weights is given, and of factors both or none.

    Raises:
        InvalidInput: two kinds, such as p and W_trained, or K_trained without Q_trained.
    """
    trained = [weight_name for weight_name in TRAINED if weight_name in weights]
    ways = {"K" if weight_name in TRAINED[2:] else weight_name for weight_name in trained}
    if len(ways) > 1:
        raise InvalidInput(f"{name}: {trained[0]} and {trained[1]} are both trained weights; give {FORMS}.")
    if ("K_trained" in weights) != ("Q_trained" in weights):
        missing = "Q_trained" if "K_trained" in weights else "K_trained"
        raise InvalidInput(f"{name}: {missing} is missing; K_trained and Q_trained are needed together.")


def _of_shape(name: str, value: Any, shape: tuple[int | str, ...]) -> Float64[np.ndarray, "..."]:
    """Return the array ``value``, which must have the given shape.

    Raises:
        InvalidInput: the array has another shape; for the transposed shape, as in torch, the message says so.
    """
    raw = as_array(name, value, str(shape))
    flipped = raw.shape[::-1]
    if (
        raw.ndim == 2
        and raw.shape[0] != shape[0]
        and all(isinstance(want, str) or length == want for length, want in zip(flipped, shape, strict=True))
    ):
        raise InvalidInput(
            f"{name}: shape {raw.shape} is that of its transpose; give {name}.T, of shape {flipped}. The weight of a"
            " torch Linear is (m, d)."
        )
    return checked_array(name, value, shape)
