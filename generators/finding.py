"""What checking an assumption gives: holds, fails or not established, and the number that decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from flint import fmpq

from reference_attention.exact import to_float


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes:
        holds: ``None`` when neither the assumption nor its negation could be proven.
        evidence: the number (token, margin, multiplier, …) that decides, rounded, in the units of the case.
        exact: the same by name as JSON has it, rationals as text; for files, never for a table.
    """

    holds: bool | None
    evidence: str
    exact: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


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
    check: Callable[[Any], Finding]


SHORT = 7
"""Characters of a fraction that is shown as such."""
SHOWN = 4
"""Entries of a vector that evidence shows."""


def number(x: object, *others: object) -> str:
    """A number to six digits, or to as many more as tell it from the others."""
    value, rest = float(x), [float(y) for y in others]  # type: ignore[arg-type]
    apart = [y for y in rest if y != value]
    digits = next((k for k in range(6, 17) if all(f"{y:.{k}g}" != f"{value:.{k}g}" for y in apart)), 17)
    return f"{value:.{digits}g}"


def fraction(x: fmpq) -> str:
    """A rational as it is where that is short, otherwise to six digits."""
    return str(x) if len(str(x)) <= SHORT else f"{to_float(x):.6g}"


def entries(shown: Sequence[str], most: int = SHOWN + 1) -> str:
    """All of them up to ``most``, otherwise the first few and how many there are."""
    return ", ".join(shown if len(shown) <= most else [*shown[: most - 1], f"… {len(shown)} in all"])


def format_tokens(alpha: Iterable[object], most: int = SHOWN + 1) -> str:
    """Tokens α, the first few of many."""
    return f"[{entries([str(t) for t in alpha], most)}]"


def vector(values: Iterable[object]) -> str:
    """The first few entries of a vector, rounded."""
    return f"({entries([fraction(x) if isinstance(x, fmpq) else number(x) for x in values])})"
