"""A case of attention: the data for one check of a statement, from a strategy or from a user's file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from jaxtyping import Float64, Int64

from generators.subject import Subject
from reference_attention.errors import InvalidInput
from reference_attention.problem import Dataset, Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.sequence_dataset import SequenceDataset


@dataclass(frozen=True, eq=False)
class Case(Subject):
    """A problem of attention, and the further objects (tokens, starts, directions, …) that a statement is about.

    Attributes:
        problem: the keys, scores and loss.
        dataset: the tokens X, labels Y, head v and key-query weights W from which the problem was computed; None if
            only keys and scores are given.
        queried: the tokens, queries (one per input), labels and head from which the problem was computed, if W is
            trained; the prompt of the problem is then vec(W).
        sequence: the tokens, queries (several per input), labels and head, if W is trained; the problem is then that of
            the queries that see the most tokens.
        alpha: chosen tokens, shape (n,); ``None`` means the optimal tokens.
        start: the start p(0), shape (d,), or ``None`` if the statement chooses starts.
        arrays: further arrays of a statement by name (``u`` and ``W0`` of Lemma 1, ``q`` of Lemma 3, …). The name of an
            array determines how the array changes with the units of the keys, see :meth:`normalise`.
        positions: the positions of the tokens in the user's file, shape (n, T), if a mask removed other tokens. The
            file of a failing case omits the positions, as the file contains only the tokens that are left.
        seed: the seed of the points at which a conclusion about every p is checked.
        name: the source of the case, for the report: a dataset, a file or "generated".
    """

    problem: Problem
    dataset: Dataset | None = None
    queried: QueryDataset | None = None
    sequence: SequenceDataset | None = None
    alpha: Int64[np.ndarray, "n"] | None = None
    start: Float64[np.ndarray, "d"] | None = None
    arrays: Mapping[str, Float64[np.ndarray, "..."]] = field(default_factory=lambda: MappingProxyType({}))
    positions: Int64[np.ndarray, "n T"] | None = None
    seed: int = 0
    name: str = "generated"
    noun: ClassVar[str] = "a problem"

    @property
    def chosen_tokens(self) -> Int64[np.ndarray, "n"]:
        """The chosen tokens, shape (n,): α, or the optimal tokens if α is ``None``."""
        return self.problem.optimal if self.alpha is None else self.alpha

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes n, T and d."""
        return {"n": self.problem.n, "T": self.problem.T, "d": self.problem.d}

    def unfit_for(self, assumptions: Collection[str]) -> str:
        """Return why a statement with the given assumptions does not apply to the case; "" if the statement applies.

        A case is unfit only if its inputs have different numbers of tokens and the statement does not assume
        ``sequence-given``.
        """
        data = self.sequence
        if data is None or self.problem.n == data.total or "sequence-given" in assumptions:
            return ""
        lengths = f"{', '.join(map(str, data.lengths[:-1]))} and {data.lengths[-1]}"
        return f"inputs keep different numbers of tokens, {lengths}, and the statement is about inputs of one length"

    def normalise(self) -> Case:
        """Return the case with keys K/s and prompts s·p, where the power of two s brings max |key| into [1, 2).

        Nothing is rounded. ``start`` scales like a prompt. How an array scales follows from the words of the array's
        name, which underscores separate. An array with the word ``p``, ``p0``, ``prompt(s)``, ``norm(s)``, ``radius``
        or ``radii`` scales like a prompt, unless another word is ``head``; an array with ``eta(s)`` or
        ``step_size(s)``, a step size of gradient descent, scales with s². Other arrays (directions, heads, W-space)
        keep their values. The dataset's W, or its queries, are divided by s, so that the dataset still gives this
        problem.

        Raises:
            InvalidInput: a magnitude would leave the range in which scaling is exact.
        """
        scale = self.problem.key_scale
        if scale == 1.0:
            return self
        arrays = {name: scale_exactly(name, value, scale ** _degree(name)) for name, value in self.arrays.items()}
        dataset = self.dataset and replace(self.dataset, W=self.dataset.key_query / scale)
        queried = self.queried and self.queried.with_queries_scaled(1 / scale)
        sequence = self.sequence and self.sequence.with_queries_scaled(1 / scale)
        start = None if self.start is None else scale_exactly("start", self.start, scale)
        problem = self.problem.with_keys_scaled(1 / scale)
        frozen = MappingProxyType(arrays)
        data = {"dataset": dataset, "queried": queried, "sequence": sequence}
        return self.replace(problem=problem, start=start, arrays=frozen, **data)


_PROMPTS = {"p", "p0", "prompt", "prompts", "norm", "norms", "radius", "radii"}
_WHOLE = {"W_trained", "K_trained"}
"""Names of two more arrays that scale like a prompt: a trained W, and the factor K of W = KQᵀ; Q is not scaled."""


def _degree(name: str) -> int:
    """Return the power of s by which :meth:`Case.normalise` multiplies an array with this name: 0, 1 or 2."""
    words = set(name.split("_"))
    if words & {"eta", "etas"} or "step_size" in name:
        return 2
    return int(name in _WHOLE or ("head" not in words and bool(words & _PROMPTS)))


def scale_exactly(name: str, value: Float64[np.ndarray, "..."], factor: float) -> Float64[np.ndarray, "..."]:
    """Return the values times a factor, a power of two, without rounding.

    Raises:
        InvalidInput: a value would be rounded.
    """
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.asarray(value * factor)
        exact = bool(np.array_equal(scaled / factor, value, equal_nan=True))
    if not exact:
        raise InvalidInput(f"{name}: magnitudes leave float64 when the keys are scaled to size 1; rescale the data.")
    return scaled
