"""A statement's own constants made weaker, by a share from 0 (as they are) to 1 (as much as the table says).

An unneeded factor is a finding, and a needed one has a case on which the statement fails without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unittest import mock

Weakened = Callable[[Callable[..., Any], float], Callable[..., Any]]
"""(the constant as a function of what it is made of, share) → the weakened one, likewise."""


@dataclass(frozen=True)
class Constant:
    """A named constant of an effective bound.

    Attributes:
        ids: the statements that claim with it.
        says: the constant in its bound, as the docstring has it.
        becomes: what it is replaced by at the share 1.
        owner: the module or class that has it.
        attribute: its name there.
        weaken: how.
        unseen: why nothing fails without it, where nothing does.
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
        """Under which its witnesses are kept."""
        return f"{self.says} → {self.becomes}"

    @contextmanager
    def weakened(self, share: float) -> Iterator[None]:
        """Within it the constant is weaker by that share."""
        held = vars(self.owner)[self.attribute]
        if isinstance(held, cached_property):
            new: Any = property(self.weaken(held.func, share))
        elif isinstance(held, property):
            assert held.fget is not None
            new = property(self.weaken(held.fget, share))
        else:
            new = self.weaken(held, share)
        with mock.patch.object(self.owner, self.attribute, new):
            yield


def scaled(factor: float) -> Weakened:
    """Times factor^share."""
    return lambda held, share: lambda *of, **by: held(*of, **by) * factor**share


def faded(held: Callable[..., Any], share: float) -> Callable[..., Any]:
    """Times 1 − share."""
    return lambda *of, **by: held(*of, **by) * (1 - share)


def lowered(amount: Callable[..., Any]) -> Weakened:
    """A logarithm less share · amount, the amount a function of what the constant is made of."""
    return lambda held, share: lambda *of, **by: held(*of, **by) - share * amount(*of, **by)
