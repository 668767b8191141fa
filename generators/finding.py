"""Assumptions as predicates on data, and the results of their checks: "holds", "fails" or "not established"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from flint import fmpq

from reference_attention.exact import to_float


@dataclass(frozen=True)
class Finding:
    """The result of checking an assumption.

    Attributes:
        holds: whether the assumption holds; ``None`` if neither the assumption nor its negation could be proven.
        evidence: a text with the numbers (tokens, margins, multipliers, …) that decide, rounded, in the units of the
            case.
        exact: the exact numbers by name, as JSON with rationals as text; for files, not for tables.
    """

    holds: bool | None
    evidence: str
    exact: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Assumption:
    """An assumption of a paper, as a predicate on data.

    Attributes:
        id: the id in kebab-case, as in reports.
        title: the assumption in a few words.
        source: the place in the paper that states it.
        check: the predicate, which decides equalities exactly, because floats are rationals.
    """

    id: str
    title: str
    source: str
    check: Callable[[Any], Finding]


SHORT = 7
"""The largest number of characters of a fraction that is printed as a fraction."""
SHOWN = 4
"""The number of entries of a long vector that are printed."""


def number(x: object, *others: object) -> str:
    """Format a number with six digits, or with more if it would otherwise look equal to one of the others."""
    value, other_values = float(x), [float(y) for y in others]  # type: ignore[arg-type]
    apart = [y for y in other_values if y != value]
    digits = next((k for k in range(6, 17) if all(f"{y:.{k}g}" != f"{value:.{k}g}" for y in apart)), 17)
    return f"{value:.{digits}g}"


def fraction(x: fmpq) -> str:
    """Format a rational as a fraction if that has at most :data:`SHORT` characters, otherwise with six digits."""
    return str(x) if len(str(x)) <= SHORT else f"{to_float(x):.6g}"


def entries(texts: Sequence[str], most: int = SHOWN + 1) -> str:
    """Join the texts by commas; if there are more than ``most``, join only the first few and add their total number."""
    return ", ".join(texts if len(texts) <= most else [*texts[: most - 1], f"… {len(texts)} in all"])


def format_tokens(alpha: Iterable[object], most: int = SHOWN + 1) -> str:
    """Format the chosen tokens α as a list; if there are more than ``most``, format only the first few."""
    return f"[{entries([str(t) for t in alpha], most)}]"


def vector(values: Iterable[object]) -> str:
    """Format a vector with rounded entries; if it is long, format only the first few."""
    return f"({entries([fraction(x) if isinstance(x, fmpq) else number(x) for x in values])})"
