"""The result of checking an assumption: holds, fails or not established, and the number that decides."""

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
        exact: the same numbers by name in the form of JSON, rationals as text; for files, never for a table.
    """

    holds: bool | None
    evidence: str
    exact: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Assumption:
    """An assumption of the paper, as a predicate on data.

    Attributes:
        id: kebab-case, as in the reports.
        title: the assumption in a few words.
        source: where the paper states it.
        check: decides it; equalities are decided exactly, as floats are rationals.
    """

    id: str
    title: str
    source: str
    check: Callable[[Any], Finding]


SHORT = 7
"""The largest number of characters of a fraction that is shown as such."""
SHOWN = 4
"""The number of entries of a longer vector that evidence shows."""


def number(x: object, *others: object) -> str:
    """Format a number to six digits, or to as many more as distinguish it from the others."""
    value, rest = float(x), [float(y) for y in others]  # type: ignore[arg-type]
    apart = [y for y in rest if y != value]
    digits = next((k for k in range(6, 17) if all(f"{y:.{k}g}" != f"{value:.{k}g}" for y in apart)), 17)
    return f"{value:.{digits}g}"


def fraction(x: fmpq) -> str:
    """Format a rational as a fraction if that is short, otherwise to six digits."""
    return str(x) if len(str(x)) <= SHORT else f"{to_float(x):.6g}"


def entries(texts: Sequence[str], most: int = SHOWN + 1) -> str:
    """Join all entries up to ``most`` of them; of more, the first few and how many there are."""
    return ", ".join(texts if len(texts) <= most else [*texts[: most - 1], f"… {len(texts)} in all"])


def format_tokens(alpha: Iterable[object], most: int = SHOWN + 1) -> str:
    """Format tokens α; of many, the first few."""
    return f"[{entries([str(t) for t in alpha], most)}]"


def vector(values: Iterable[object]) -> str:
    """Format the first few entries of a vector, rounded."""
    return f"({entries([fraction(x) if isinstance(x, fmpq) else number(x) for x in values])})"
