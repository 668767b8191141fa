"""A case: everything that one check of a statement needs, immutable, from a strategy or from a user's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from jaxtyping import Float64, Int64

from attention.problem import Dataset, Problem


@dataclass(frozen=True, eq=False)
class Case:
    """A problem and the further objects over which a statement quantifies.

    Attributes:
        problem: keys, scores, loss.
        dataset: tokens, labels, head and key-query weights that the problem was made from, where the statement
            speaks of them.
        alpha: chosen tokens, shape (n,); ``None`` means the optimal ones.
        start: p(0), shape (d,); ``None`` lets the statement take its own starts.
        arrays: further named arrays of a statement (``u`` and ``W0`` of Lemma 1, ``q`` of Lemma 3, …).
        seed: drives the points at which a "for every p" conclusion is tried; same seed, same points.
        name: where the case comes from, for the report.
    """

    problem: Problem
    dataset: Dataset | None = None
    alpha: Int64[np.ndarray, "n"] | None = None
    start: Float64[np.ndarray, "d"] | None = None
    arrays: Mapping[str, Float64[np.ndarray, "..."]] = field(default_factory=lambda: MappingProxyType({}))
    seed: int = 0
    name: str = "generated"

    @property
    def chosen(self) -> Int64[np.ndarray, "n"]:
        """α, the optimal tokens unless others were chosen, shape (n,)."""
        return self.problem.optimal if self.alpha is None else self.alpha

    def rng(self) -> np.random.Generator:
        """A fresh generator that depends on the seed alone."""
        return np.random.default_rng(self.seed)

    def but(self, **changed: object) -> Case:
        """This case with some fields replaced."""
        return replace(self, **changed)  # type: ignore[arg-type]
