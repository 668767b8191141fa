"""Problems and datasets: the data that the theorems are about, checked once, when the object is made.

With the head v fixed, everything depends only on the keys k_it = W x_it, the scores γ_it = Y_i vᵀ x_it and the loss. A
:class:`Problem` consists of these three; a :class:`Dataset` consists of tokens, labels, key-query weights and head. The
Problem of a Dataset is computed with *correctly rounded* products, so that exactly equal scores become equal floats, on
every machine.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 1.1 and Definition 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike

from reference_attention.errors import InvalidInput
from reference_attention.exact import rounded_product
from reference_attention.loss import Loss
from reference_attention.losses import loss_named
from reference_attention.outer_keys import Keys, OuterKeys

LARGEST_MAGNITUDE = 1e140
"""Largest accepted magnitude of an entry, and inverse of the least one other than 0: beyond, squares over- or
underflow."""


def as_array(name: str, value: Any, expected: str) -> np.ndarray:
    """Return ``value`` (a list, an array or a tensor) as a NumPy array of any dtype.

    Raises:
        InvalidInput: the rows have different lengths, or NumPy cannot read the object; the message gives ``name`` (of
            the array) and ``expected`` (the shape to give).
    """
    if hasattr(value, "detach"):  # a tensor that requires gradients, or is on another device
        value = value.detach().cpu()
    try:
        return np.asarray(value)
    except ValueError:
        raise InvalidInput(f"{name}: the rows have different lengths; give an array of shape {expected}.") from None
    except (TypeError, RuntimeError) as error:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise InvalidInput(
            f"{name}: {kind} is no array for NumPy ({error}); give float64 of shape {expected}."
        ) from None


def refuse_truth_values(name: str, value: Any) -> None:
    """Raise if nested lists, an array or a tensor contain true or false where numbers are expected.

    Raises:
        InvalidInput: a truth value is among the numbers. NumPy would silently convert it to 1 or 0.
    """
    if _holds_truth_values(value):
        raise InvalidInput(f"{name}: true and false are no numbers; write 1 for true and 0 for false.")


def _holds_truth_values(value: Any) -> bool:
    """Return whether a truth value occurs in nested lists, an array or a tensor.

    Each level of nesting is examined in few calls, because a file may hold millions of numbers.
    """
    if isinstance(value, np.ndarray):
        return value.dtype.kind == "b"
    level = [value]
    while level:
        kinds = set(map(type, level))
        if bool in kinds:
            return True
        if not kinds <= {list, tuple}:
            if not kinds <= {float, int} and any("bool" in str(getattr(element, "dtype", "")) for element in level):
                return True
            level = [element for element in level if isinstance(element, list | tuple)] if kinds & {list, tuple} else []
        level = list(chain.from_iterable(level))
    return False


def refuse_sequence_first(tokens: Float64[np.ndarray, "n T d"], labels: Any) -> None:
    """Refuse tokens whose axes of inputs and tokens are exchanged, as the number of labels shows.

    Args:
        tokens: the tokens X, which should have the shape (n, T, d).
        labels: the labels Y, as given by the user.

    Raises:
        InvalidInput: the second axis of X, not the first, has the length of Y, so X has the shape (T, n, d).
    """
    n, tokens_per_input, _ = tokens.shape
    length = next(iter(getattr(labels, "shape", ())), None) if not isinstance(labels, list | tuple) else len(labels)
    if n != tokens_per_input and length == tokens_per_input:
        raise InvalidInput(
            f"X: shape {tokens.shape} is not (n, T, d) with one of the {length} labels for each input; if its first"
            " axis is the token, give X.transpose(1, 0, 2)."
        )


def checked_array(name: str, value: Any, shape: tuple[int | str, ...]) -> Float64[np.ndarray, "..."]:
    """Return ``value`` as a read-only float64 array of the given shape, where letters stand for any length.

    Lists, arrays and torch tensors (detached and moved to the CPU) are accepted; torch is not imported for this.

    Raises:
        InvalidInput: the values are not numeric, contain truth values, NaN or infinity, have the wrong shape, or lie
            outside the range of magnitudes.
    """
    refuse_truth_values(name, value)
    expected = "(" + ", ".join(str(s) for s in shape) + ("," if len(shape) == 1 else "") + ")"
    raw = as_array(name, value, expected)
    if raw.dtype.kind not in "fiu":
        raise InvalidInput(f"{name}: dtype {raw.dtype} is not real numeric; give float64 of shape {expected}.")
    if raw.ndim != len(shape):
        raise InvalidInput(f"{name}: shape {raw.shape} has {raw.ndim} dimension(s); give shape {expected}.")
    for axis, (length, want) in enumerate(zip(raw.shape, shape, strict=True)):
        if isinstance(want, int) and length != want:
            raise InvalidInput(
                f"{name}: shape {raw.shape} has length {length} along axis {axis}, but the other arrays need {want};"
                f" give shape {expected}."
            )
        if length == 0:
            raise InvalidInput(f"{name}: shape {raw.shape} is empty along axis {axis}; give at least one entry.")
    array = np.array(raw, dtype=np.float64, order="C")
    large = np.abs(array) >= 2.0**53
    if raw.dtype.kind in "iu" and not all(int(a) == int(b) for a, b in zip(array[large], raw[large], strict=True)):
        raise InvalidInput(f"{name}: integers beyond 2^53 are not exact in float64; scale the array down.")
    if not np.isfinite(array).all():
        where = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
        raise InvalidInput(f"{name}: entry {where} is {array[where]}; replace NaN and infinite entries.")
    size = np.abs(array)
    if size.max() > LARGEST_MAGNITUDE or (size[size > 0] < 1 / LARGEST_MAGNITUDE).any():
        raise InvalidInput(
            f"{name}: magnitudes must be 0 or between {1 / LARGEST_MAGNITUDE:g} and {LARGEST_MAGNITUDE:g}"
            " to be squared in float64; rescale the array."
        )
    array.setflags(write=False)
    return array


def checked_loss(loss: Any) -> Loss:
    """Return the loss that is given as an object or by its name.

    Raises:
        InvalidInput: ``loss`` is neither a :class:`Loss` nor the name of a loss.
    """
    return loss if isinstance(loss, Loss) else loss_named(loss)


@dataclass(frozen=True, eq=False, init=False)
class Problem:
    """Keys, scores and loss: L(p) = (1/n) Σ_i ℓ(γ_iᵀ softmax(K_i p)).

    Args:
        keys: K, shape (n, T, d): a list, an array or a torch tensor, of which a read-only float64 copy is kept; or
            :class:`OuterKeys`, the factors of keys vec(x zᵀ).
        scores: γ, shape (n, T), converted like the keys.
        loss: a :class:`Loss` or its name.

    Raises:
        InvalidInput: an entry is NaN or infinite, shapes do not fit together, T = 1 (there is nothing to select), or
            the loss is unknown.

    >>> from theorems import Problem
    >>> problem = Problem(keys=[[[1, 0], [0, 1], [0, 0]]], scores=[[1, 0.5, 0]])
    >>> problem.n, problem.T, problem.d, problem.loss
    (1, 3, 2, <logistic loss>)
    >>> problem.optimal
    array([0])
    >>> Problem(keys=[[[1, 0], [0, 1]]], scores=[[1, 0, 0]])
    Traceback (most recent call last):
    reference_attention.errors.InvalidInput: scores: ... the other arrays need 2; give shape (1, 2).
    """

    keys: Float64[np.ndarray, "n T d"]
    scores: Float64[np.ndarray, "n T"]
    loss: Loss
    factors: OuterKeys | None = field(init=False, repr=False)

    def __init__(self, keys: ArrayLike | OuterKeys, scores: ArrayLike, loss: Loss | str = "logistic") -> None:
        """Check and store the arrays and the loss; keep the factors of keys if their products may have been rounded."""
        factors = keys if isinstance(keys, OuterKeys) and not keys.short else None
        floats = checked_array("keys", keys.floats if isinstance(keys, OuterKeys) else keys, ("n", "T", "d"))
        n, tokens, _ = floats.shape
        if tokens < 2:
            raise InvalidInput("keys: T = 1 leaves nothing to select; give at least two tokens per input.")
        object.__setattr__(self, "keys", floats)
        object.__setattr__(self, "factors", factors)
        object.__setattr__(self, "scores", checked_array("scores", scores, (n, tokens)))
        object.__setattr__(self, "loss", checked_loss(loss))

    @property
    def n(self) -> int:
        """Return the number of inputs."""
        return int(self.keys.shape[0])

    @property
    def T(self) -> int:
        """Return the number of tokens per input."""
        return int(self.keys.shape[1])

    @property
    def d(self) -> int:
        """Return the dimension of the keys and of the prompt."""
        return int(self.keys.shape[2])

    @property
    def exact_keys(self) -> Keys:
        """Return the keys for exact decisions: their factors if factors were given whose products may be rounded."""
        return self.keys if self.factors is None else self.factors

    @cached_property
    def optimal(self) -> Int64[np.ndarray, "n"]:
        """Return opt_i, the token of highest score of each input, the first one if several are equal, shape (n,)."""
        return np.argmax(self.scores, axis=1).astype(np.int64)

    def selection_at(self, p: Float64[np.ndarray, "d"]) -> Int64[np.ndarray, "n"]:
        """Return the (first) token of largest softmax weight of each input at the prompt p, as indices, shape (n,)."""
        return np.argmax(self.keys @ p, axis=1).astype(np.int64)

    @cached_property
    def score_range(self) -> tuple[float, float]:
        """Return min γ and max γ, between which every output γ_iᵀ s_i lies, whatever the softmax weights s_i are."""
        return float(self.scores.min()), float(self.scores.max())

    @cached_property
    def key_scale(self) -> float:
        """Return the largest power of two that is at most the largest |entry| of the keys; 1 if all keys are zero."""
        largest = float(np.abs(self.keys).max())
        return 2.0 ** math.floor(math.log2(largest)) if largest > 0 else 1.0

    @cached_property
    def log_smoothness(self) -> float:
        """Return log L_p, where ∇L is L_p-Lipschitz, from keys and scores; −inf if ∇L = 0 everywhere.

        L_p = (1/n) Σ_i (M0 ‖γ_i‖² ‖K_i‖² + 3 M1 ‖γ_i‖ ‖K_i‖²), where M0 is the Lipschitz constant of ℓ' and M1 the
        largest |ℓ'| on [min γ, max γ], and ‖K_i‖ is the spectral norm. Because ‖γ_i‖ ≤ ‖v‖‖X_i‖ and ‖K_i‖ ≤ ‖W‖‖X_i‖,
        L_p is never larger than the constant of Lemma 6; so this lemma holds if ∇L is L_p-Lipschitz.
        """
        key_norms = np.linalg.norm(self.keys, ord=2, axis=(1, 2))
        score_norms = np.linalg.norm(self.scores, axis=1)
        low, high = self.score_range
        with np.errstate(divide="ignore"):
            curved = self.loss.log_lipschitz(low, high) + 2 * np.log(score_norms) + 2 * np.log(key_norms)
            steep = math.log(3) + self.loss.log_bound(low, high) + np.log(score_norms) + 2 * np.log(key_norms)
        return float(np.logaddexp.reduce(np.concatenate([curved, steep])) - math.log(self.n))

    def gaps(self, alpha: Int64[np.ndarray, "n"] | None = None) -> Float64[np.ndarray, "n T"]:
        """Return the score gaps γ_iα_i − γ_it, shape (n, T), where α are the optimal tokens unless others are given."""
        chosen = self.optimal if alpha is None else alpha
        return np.take_along_axis(self.scores, chosen[:, None], axis=1) - self.scores

    def with_keys_scaled(self, factor: float) -> Problem:
        """Return the problem with all keys multiplied by ``factor``; nothing is rounded if it is a power of two."""
        keys = self.keys * factor if self.factors is None else self.factors.scale_by(factor)
        return Problem(keys, self.scores, self.loss)


@dataclass(frozen=True, eq=False, init=False)
class Dataset:
    """Tokens, labels, head and key-query weights, as in the paper's problem (ERM).

    Args:
        X: tokens, shape (n, T, d): a list, an array or a torch tensor, of which a read-only float64 copy is kept.
        Y: labels ±1, shape (n,); this and the other arrays are converted like X.
        v: head, shape (d,).
        W: key-query weights, shape (d', d); the identity when omitted.
        loss: a :class:`Loss` or its name.

    Raises:
        InvalidInput: an entry is NaN or infinite, shapes do not fit together, T = 1 (there is nothing to select), a
            label is not ±1, or the loss is unknown.

    >>> from theorems import Dataset
    >>> dataset = Dataset(X=[[[1, 2], [3, 4]]], Y=[-1], v=[1, 0])
    >>> dataset.problem.keys
    array([[[1., 2.],
            [3., 4.]]])
    >>> dataset.problem.scores  # Y_i vᵀ x_it
    array([[-1., -3.]])
    """

    X: Float64[np.ndarray, "n T d"]
    Y: Float64[np.ndarray, "n"]
    v: Float64[np.ndarray, "d"]
    W: Float64[np.ndarray, "dk d"] | None
    loss: Loss

    def __init__(
        self, X: ArrayLike, Y: ArrayLike, v: ArrayLike, W: ArrayLike | None = None, loss: Loss | str = "logistic"
    ) -> None:
        """Check that the arrays are finite and fit together and that labels are ±1; store them and the loss."""
        tokens = checked_array("X", X, ("n", "T", "d"))
        n, T, d = tokens.shape
        if T < 2:
            raise InvalidInput("X: T = 1 leaves nothing to select; give at least two tokens per input.")
        refuse_sequence_first(tokens, Y)
        labels = checked_array("Y", Y, (n,))
        if not (np.abs(labels) == 1).all():
            bad = int(np.argmax(np.abs(labels) != 1))
            fix = "give 2*Y - 1" if np.isin(labels, (0, 1)).all() else "labels must be -1 or +1"
            raise InvalidInput(f"Y: label {bad} is {labels[bad]:g}; {fix}.")
        object.__setattr__(self, "X", tokens)
        object.__setattr__(self, "Y", labels)
        object.__setattr__(self, "v", checked_array("v", v, (d,)))
        object.__setattr__(self, "W", None if W is None else checked_array("W", W, ("d'", d)))
        object.__setattr__(self, "loss", checked_loss(loss))

    @property
    def key_query(self) -> Float64[np.ndarray, "dk d"]:
        """Return W, or the identity when none was given, shape (d', d)."""
        return np.eye(self.X.shape[2]) if self.W is None else self.W

    @property
    def signed_tokens(self) -> Float64[np.ndarray, "n T d"]:
        """Return the tokens times the labels of their inputs, z_it = Y_i x_it, shape (n, T, d)."""
        return np.asarray(self.Y[:, None, None] * self.X)

    @cached_property
    def problem(self) -> Problem:
        """Return the problem with keys X_i Wᵀ and scores Y_i X_i v, each entry the exact product rounded once."""
        n, tokens, d = self.X.shape
        flat = self.X.reshape(n * tokens, d)
        keys = self.X if self.W is None else rounded_product(flat, self.W.T).reshape(n, tokens, -1)
        scores = self.Y[:, None] * rounded_product(flat, self.v[:, None]).reshape(n, tokens)
        return Problem(keys, scores, self.loss)

    @cached_property
    def log_smoothness(self) -> float:
        """Return log L_p, where L_p is the Lipschitz constant of ∇L in Lemma 6.

        L_p = (1/n) Σ_i (M0‖v‖²‖W‖²‖X_i‖⁴ + 3 M1‖v‖‖W‖²‖X_i‖³) with spectral norms, where M0 is the Lipschitz constant
        of ℓ' and M1 the largest |ℓ'| between the least and the largest score.
        """
        low, high = self.problem.score_range
        with np.errstate(divide="ignore"):
            x = np.log(np.linalg.norm(self.X, ord=2, axis=(1, 2)))
            v = np.log(np.linalg.norm(self.v))
            w = np.log(np.linalg.norm(self.key_query, ord=2))
        curved = self.loss.log_lipschitz(low, high) + 2 * v + 2 * w + 4 * x
        steep = math.log(3) + self.loss.log_bound(low, high) + v + 2 * w + 3 * x
        return float(np.logaddexp.reduce(np.concatenate([curved, steep])) - math.log(len(self.Y)))

    @classmethod
    def realising(cls, problem: Problem) -> Dataset:
        """Return a dataset whose problem is ``problem``: each token is its key and its score, and v = (0, …, 0, 1).

        W drops the last entry of a token, and all labels are +1. The data of the paper's Figure 1 are built in this
        way.
        """
        X = np.concatenate([problem.keys, problem.scores[:, :, None]], axis=2)
        d = problem.d
        return cls(X, np.ones(problem.n), np.eye(d + 1)[d], np.eye(d, d + 1), problem.loss)


def log_smoothness(problem: Problem) -> float:
    """Return log L_p, where L_p is the Lipschitz constant of ∇L that :attr:`Problem.log_smoothness` computes."""
    return problem.log_smoothness


KeysAndScores = tuple[Float64[np.ndarray, "n T d"], Float64[np.ndarray, "n T"]]


def keys_and_scores(data: Dataset) -> KeysAndScores:
    """Return the keys X_i Wᵀ, (n, T, d), and scores Y_i X_i v, (n, T), each entry the exact product rounded once."""
    return data.problem.keys, data.problem.scores
