"""Weakening of a constant in a statement's bound, by a share from 0 (unchanged) to 1 (the weaker value in the table).

If a factor is needed, the statement fails on some case without the factor; an unneeded factor is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unittest import mock

import numpy as np

from generators.case import Case
from reference_attention.losses import loss_named
from reference_attention.problem import Problem

Weakened = Callable[[Callable[..., Any], float], Callable[..., Any]]
"""Function (constant, share) → weakened constant, where both constants are functions of the same arguments."""


@dataclass(frozen=True)
class Constant:
    """A named constant in an explicit bound.

    Attributes:
        ids: the statements whose claims use the constant.
        says: the constant as written in the bound in the statement's docstring.
        becomes: the weaker value that replaces the constant if the share is 1.
        owner: the module or class that has the constant as an attribute.
        attribute: the name of the constant in ``owner``.
        weaken: function that returns the constant weakened by a share.
        unseen: why no case fails with the weakened constant; empty if some case fails.
    """

    ids: tuple[str, ...]
    says: str
    becomes: str
    owner: Any
    attribute: str
    weaken: Weakened
    unseen: str = ""

    @property
    def key(self) -> str:
        """Return the key under which the constant's witnesses are stored."""
        return f"{self.says} → {self.becomes}"

    @contextmanager
    def weakened(self, share: float) -> Iterator[None]:
        """Weaken the constant by the given share within the block."""
        original = vars(self.owner)[self.attribute]
        if isinstance(original, cached_property):
            new: Any = property(self.weaken(original.func, share))
        elif isinstance(original, property):
            assert original.fget is not None
            new = property(self.weaken(original.fget, share))
        else:
            new = self.weaken(original, share)
        with mock.patch.object(self.owner, self.attribute, new):
            yield


def scaled(factor: float) -> Weakened:
    """Return the weakening that multiplies a constant by factor^share."""
    return lambda original, share: lambda *of, **by: original(*of, **by) * factor**share


def faded(original: Callable[..., Any], share: float) -> Callable[..., Any]:
    """Return the constant multiplied by 1 − share."""
    return lambda *of, **by: original(*of, **by) * (1 - share)


def lowered(amount: Callable[..., Any]) -> Weakened:
    """Return the weakening that subtracts share · amount from a constant that is a logarithm."""
    return lambda original, share: lambda *of, **by: original(*of, **by) - share * amount(*of, **by)


AT_LESS = "log1p(x), taken at the least margin, is too large by more than b min(x, 1)"


LOG_2 = float(np.log(2.0))


def half(*of: Any) -> float:
    """Return log 2, for any arguments."""
    return LOG_2


def log_rows(problem: Problem) -> float:
    return float(np.log(problem.n * (problem.T - 1)))


def log_slopes(problem: Problem) -> float:
    low, high = problem.score_range
    return problem.loss.log_bound(low, high) - problem.loss.log_floor(low, high)


def log_gaps(problem: Problem) -> float:
    others = np.arange(problem.T) != problem.optimal[:, None]
    gaps = np.log(problem.gaps()[others])
    return float(np.max(gaps) - np.min(gaps))


def towards_one(original: Any, share: float) -> Any:
    """Return the constant to the power 1 − share."""
    return lambda *of: np.exp((1 - share) * np.log(original(*of)))


def less_share(original: Any, share: float) -> Any:
    return lambda self, m: 1 - (1 - original(self, m)) * (1 - share)


def case(rows: list[list[float]], scores: list[float], loss: str) -> Case:
    """Return one input whose first token is 0, so that ``rows`` are its key minus the keys of the other tokens."""
    keys = np.array([[[0.0] * len(rows[0]), *(-np.array(row) for row in rows)]])
    return Case(Problem(keys, np.array([scores]), loss_named(loss)), seed=1)
