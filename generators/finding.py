"""What checking an assumption gives: holds, fails or not established, and the number that decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from generators.case import Case


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes:
        holds: ``None`` when neither the assumption nor its negation could be proven.
        evidence: the number (token, margin, multiplier, …) that decides.
    """

    holds: bool | None
    evidence: str


@dataclass(frozen=True)
class Assumption:
    """An assumption of the paper, as a predicate on data.

    Attributes:
        id: kebab-case, as in the reports.
        title: what it says, in a few words.
        source: where the paper states it.
        check: decides it; equalities exactly, over the rationals that float data are.
    """

    id: str
    title: str
    source: str
    check: Callable[[Case], Finding]


def number(x: object) -> str:
    """A number as a reader wants it: short if exact, otherwise with all its digits."""
    value = float(x)  # type: ignore[arg-type]
    return f"{value:g}" if float(f"{value:g}") == value else f"{value:.17g}"
