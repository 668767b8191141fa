"""Statement, Claim, Verdict: what a theorem is to this suite.

A statement file reads like the paper: a function whose docstring states the theorem, its effective form and the
derivation, and whose body yields claims. ``@statement`` registers it; the command, the tests, the hunt and the
report pick it up from there.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from hypothesis.strategies import SearchStrategy

from attention.errors import InvalidInput
from attention.implementation import Implementation
from generators.assumptions import Assumption, assumption_named
from generators.case import Case
from theorems.tolerances import TOLERANCES, Reason


class Verdict(StrEnum):
    """The four outcomes; they are never mixed up, and only the first is a pass."""

    UPHELD = "upheld"
    FALSIFIED = "falsified"
    NOT_APPLICABLE = "not-applicable"
    INCONCLUSIVE = "inconclusive"


class Form(StrEnum):
    """How much a claim says."""

    EXACT = "exact"
    """Decided over the rationals, or an identity up to rounding."""
    EFFECTIVE = "effective"
    """An inequality with explicit constants, true at every finite point."""
    LIMIT = "limit"
    """A limit, followed to where it is visible, with its rate."""
    SHARP = "sharp"
    """The next-order term, predicted in closed form."""


@dataclass(frozen=True)
class Claim:
    """One named inequality or limit: it holds when ``slack ≥ −tolerance``.

    Attributes:
        name: stable, kebab-case; the report lists claims by it.
        form: exact, effective, limit or sharp.
        slack: how far on the right side of the inequality, in the units of ``tolerance``; the worst one if the
            claim was tried at many points.
        tolerance: what rounding (or the argued rate) allows; never a bare number.
        why: a key of :data:`theorems.tolerances.TOLERANCES`, or a :class:`theorems.tolerances.Reason`.
        detail: both sides at the worst point, for a reader.
        undecided: when not empty, the claim could not be decided, and why.
        branch: which of the possibilities that the statement leaves open occurred, in a few words; the report counts them.
    """

    name: str
    form: Form
    slack: float
    tolerance: float
    why: str
    detail: str = ""
    undecided: str = ""
    branch: str = ""

    def __post_init__(self) -> None:
        if self.why not in TOLERANCES and not isinstance(self.why, Reason):
            raise ValueError(f"claim {self.name}: no tolerance named {self.why!r} in theorems/tolerances.py")
        if self.tolerance < 0:
            raise ValueError(f"claim {self.name}: its tolerance is {self.tolerance:.6g}; none is negative")

    @property
    def verdict(self) -> Verdict:
        """Upheld, falsified or inconclusive. A NaN is never a pass, nor is an infinite tolerance: it allows everything."""
        if self.undecided or np.isposinf(self.tolerance):
            return Verdict.INCONCLUSIVE
        if np.isnan(self.slack) or np.isnan(self.tolerance):
            return Verdict.FALSIFIED
        return Verdict.UPHELD if self.slack >= -self.tolerance else Verdict.FALSIFIED


def at_least(
    name: str,
    form: Form,
    left: Any,
    right: Any,
    *,
    rounding: Any,
    why: str,
    scale: Any = 1.0,
    points: str = "point",
) -> Claim:
    """The claim left ≥ right at every entry; the entry closest to (or furthest beyond) failing is reported.

    Args:
        left, right: arrays that broadcast against each other.
        rounding: the absolute error that ``left − right`` may carry, per entry.
        why: the key of the reason for ``rounding``.
        scale: what slack and rounding are divided by, to be comparable between entries (e.g. Σ|terms|).
        points: what an entry is, for the detail line.

    A claim tried at no point at all is undecided, not upheld.
    """
    left, right, rounding, scale = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (left, right, rounding, scale))
    )
    if left.size == 0:
        return Claim(name, form, 0.0, 0.0, why, undecided=f"no {points} to try it at")
    slack = ((left - right) / scale).ravel()
    tolerance = (rounding / scale).ravel()
    bad = np.isnan(slack) | np.isnan(tolerance)
    # An entry with an infinite tolerance says nothing (∞ − ∞); it must not hide the others.
    with np.errstate(invalid="ignore"):
        room = np.where(np.isposinf(tolerance), np.inf, slack + tolerance)
    worst = int(np.argmax(bad)) if bad.any() else int(np.argmin(room))
    detail = f"{left.ravel()[worst]:.17g} ≥ {right.ravel()[worst]:.17g} at {points} {worst} of {left.size}"
    return Claim(name, form, float(slack[worst]), float(tolerance[worst]), why, detail)


Conclusion = Callable[[Case, Implementation], Iterator[Claim]]


@dataclass(frozen=True)
class Statement:
    """A statement of the paper, or one in somebody's own file (:mod:`theorems.user_file`).

    Attributes:
        id: e.g. ``theorem-2``, or ``path.py:name``.
        title: what it says, in a few words.
        source: where the paper states it.
        assumptions: ids of :mod:`generators.assumptions` or of ``own_assumptions``; all must hold for the
            conclusion to be checked. :meth:`assumption` finds them.
        cases: a strategy for cases that satisfy the assumptions by construction.
        conclusion: yields the claims, given a case and the implementation under test.
        text: the statement, its effective form and its derivation (the docstring of the conclusion).
        from_data: the cases of one user-supplied case (e.g. one per locally optimal α); itself by default.
        aliases: other ids of the same statement.
        own_assumptions: assumptions that are not the suite's, by id.
        file: the file that it was read from; empty for the suite's own.
    """

    id: str
    title: str
    source: str
    assumptions: tuple[str, ...]
    cases: Callable[[], SearchStrategy[Case]]
    conclusion: Conclusion
    text: str
    from_data: Callable[[Case], Iterator[Case]]
    aliases: tuple[str, ...] = field(default=())
    own_assumptions: Mapping[str, Assumption] = field(default_factory=lambda: MappingProxyType({}))
    file: str = ""

    @property
    def own_id(self) -> str:
        """The id without the file, which may be called by several paths."""
        return self.id.removeprefix(f"{self.file}:") if self.file else self.id

    def assumption(self, id: str) -> Assumption:
        """The assumption of that id, as this statement means it.

        Raises:
            InvalidInput: for an unknown id.
        """
        return self.own_assumptions.get(id) or assumption_named(id)


_REGISTRY: dict[str, Statement] = {}


def _as_it_is(case: Case) -> Iterator[Case]:
    yield case


def statement(
    id: str,
    title: str,
    *,
    source: str,
    assumptions: tuple[str, ...],
    cases: Callable[[], SearchStrategy[Case]],
    from_data: Callable[[Case], Iterator[Case]] = _as_it_is,
    aliases: tuple[str, ...] = (),
) -> Callable[[Conclusion], Statement]:
    """Register the decorated conclusion as a statement (see :class:`Statement`)."""

    def register(conclusion: Conclusion) -> Statement:
        if id in _REGISTRY:
            raise ValueError(f"statement {id} is registered twice")
        text = conclusion.__doc__
        if not text:
            raise ValueError(f"statement {id} has no docstring to state it")
        _REGISTRY[id] = made = Statement(id, title, source, assumptions, cases, conclusion, text, from_data, aliases)
        return made

    return register


def _order(id: str) -> tuple[int, int, str]:
    kind, _, number = id.partition("-")
    kinds = ("lemma", "theorem")
    return (kinds.index(kind) if kind in kinds else len(kinds), int(number) if number.isdigit() else 0, id)


@cache
def statements() -> dict[str, Statement]:
    """Every statement by id: lemmas, then theorems, each in the paper's order."""
    import theorems

    for module in pkgutil.iter_modules(theorems.__path__):
        if module.name.startswith(("lemma_", "theorem_", "conjecture_")):
            importlib.import_module(f"theorems.{module.name}")
    return {id: _REGISTRY[id] for id in sorted(_REGISTRY, key=_order)}


def statement_named(id: str) -> Statement:
    """The statement of that id or alias, or of somebody's own file: ``path.py:name``.

    Raises:
        InvalidInput: for an unknown id; a file that cannot be loaded.
    """
    from theorems.user_file import is_in_a_file, statement_in_file

    if is_in_a_file(id):
        return statement_in_file(id)
    for candidate in statements().values():
        if id == candidate.id or id in candidate.aliases:
            return candidate
    raise InvalidInput(f"id: {id!r} is not a statement; known are {', '.join(statements())}, PATH.py:NAME.")
