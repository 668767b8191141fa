"""Verdict and Claim: the assertions of a statement, one named inequality or limit at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import wraps
from typing import Any

import numpy as np

from reference_attention.floats import EPS
from theorems.bounded import Bounded, value_of
from theorems.core.tolerances import EXACT, ROUNDING, TOLERANCES, Reason


class Verdict(StrEnum):
    """The four outcomes; they are never mixed up, and only the first is a pass."""

    UPHELD = "upheld"
    FALSIFIED = "falsified"
    NOT_APPLICABLE = "not-applicable"
    INCONCLUSIVE = "inconclusive"


WORST_FIRST = (Verdict.FALSIFIED, Verdict.INCONCLUSIVE, Verdict.UPHELD, Verdict.NOT_APPLICABLE)
"""The verdicts from worst to best: the verdict on several things is the first of these that one of them has."""


class Form(StrEnum):
    """The strength of a claim."""

    EXACT = "exact"
    """Decided over the rationals, or an identity up to rounding."""
    EFFECTIVE = "effective"
    """An inequality with explicit constants, true at every finite point."""
    LIMIT = "limit"
    """A limit, followed to where it is visible, with its rate."""
    SHARP = "sharp"
    """The next-order term, predicted in closed form."""


UNBOUNDED = "the bound of its rounding is infinite, which allows everything"
"""Why a claim with an infinite tolerance is undecided."""


@dataclass(frozen=True)
class Claim:
    """One named inequality or limit: it holds when ``slack ≥ −tolerance``.

    Attributes:
        name: stable, kebab-case; the report lists claims by it.
        form: exact, effective, limit or sharp.
        slack: how far the claim is on the right side of the inequality, in the units of ``tolerance``; the worst one if
            the claim was tried at many points.
        tolerance: what rounding (or the argued rate) allows; never a bare number.
        why: the reason of the tolerance, or the key of one that the suite declares.
        detail: both sides at the worst point, for a reader.
        undecided: why the claim could not be decided; empty if it could.
        branch: which of the possibilities that the statement leaves open occurred, in a few words; the report counts
            them.
        not_found: whether it is undecided because a search of the suite did not find what the claim is about. Such a
            case is no pass either, but it says nothing about what is under test: of generated cases half may be like
            that.
    """

    name: str
    form: Form
    slack: float
    tolerance: float
    why: str
    detail: str = ""
    undecided: str = ""
    branch: str = ""
    not_found: bool = False

    def __post_init__(self) -> None:
        """Refuse an unknown reason or a negative tolerance; where the tolerance is infinite, mark it undecided."""
        # A declared name carries when the claim is made, which need not travel with it.
        object.__setattr__(self, "name", str(self.name))
        if not isinstance(self.why, Reason) and self.why not in TOLERANCES:
            raise ValueError(f"claim {self.name}: no tolerance named {self.why!r} is declared")
        if self.tolerance < 0:
            raise ValueError(f"claim {self.name}: its tolerance is {self.tolerance:.6g}; none is negative")
        if np.isposinf(self.tolerance) and not self.undecided:
            object.__setattr__(self, "undecided", UNBOUNDED)

    @property
    def verdict(self) -> Verdict:
        """Upheld, falsified or inconclusive: a NaN decides nothing.

        An implementation that returns NaN where a number is due is falsified by :class:`NotANumber`.
        """
        if self.undecided or np.isnan(self.slack) or np.isnan(self.tolerance):
            return Verdict.INCONCLUSIVE
        return Verdict.UPHELD if self.slack >= -self.tolerance else Verdict.FALSIFIED


def at_least(
    name: str,
    form: Form,
    left: Any,
    right: Any,
    *,
    rounding: Any = None,
    why: str = ROUNDING,
    scale: Any = None,
    points: str = "point",
) -> Claim:
    """Return the claim that left ≥ right at every entry; the entry closest to (or furthest beyond) failing is reported.

    An entry at which both sides are the same float holds whatever the tolerance, and says nothing about how near the
    others are: it is reported only where there are no others. A NaN is reported unless another entry fails. A claim
    tried at no point at all is undecided, not upheld.

    Args:
        name: of the claim.
        form: exact, effective, limit or sharp.
        left: an array. If it or ``right`` carries its rounding (:class:`theorems.bounded.Bounded`), nothing but the
            error of ``left − right`` is allowed.
        right: an array that broadcasts against ``left``.
        rounding: the absolute error that ``left − right`` of plain numbers may carry, per entry.
        why: the reason for ``rounding``, or the key of one that the suite declares.
        scale: the divisor of slack and tolerance that makes them comparable between entries: by default 1, or the
            larger of two sides that carry their rounding.
        points: what an entry is, for the detail line.

    Raises:
        TypeError: ``rounding`` is given for sides that carry theirs, or missing for plain numbers.
    """
    carried = isinstance(left, Bounded) or isinstance(right, Bounded)
    if carried == (rounding is not None):
        raise TypeError(f"claim {name}: rounding= is for plain numbers, and only for them.")
    if carried:
        gap: Any = left - right
        left, right = value_of(left), value_of(right)
        # The quotients by the scale are rounded as well.
        rounding = gap.error * (1 + 4 * EPS)
        larger = np.fmax(np.fmax(np.abs(left), np.abs(right)), rounding)
        scale = np.where(np.isfinite(larger) & (larger > 0), larger, 1.0) if scale is None else scale
    left, right, rounding, scale = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (left, right, rounding, 1.0 if scale is None else scale))
    )
    if left.size == 0:
        return Claim(name, form, 0.0, 0.0, why, undecided=f"no {points} to try it at")
    slack = ((gap.value if carried else left - right) / scale).ravel()
    tolerance = (rounding / scale).ravel()
    bad = np.isnan(slack) | np.isnan(tolerance)
    # An entry with an infinite tolerance says nothing (∞ − ∞); it must not hide the others.
    with np.errstate(invalid="ignore"):
        room = np.where(np.isposinf(tolerance), np.inf, slack + tolerance)
        room = np.where(bad, np.inf, room)
    clear = np.isfinite(room) & (slack != 0)
    if bad.any() and not (room < 0).any():
        worst = int(np.argmax(bad))
    else:
        worst = int(np.argmin(np.where(clear, room, np.inf) if clear.any() and not np.isneginf(room).any() else room))
    detail = f"{left.ravel()[worst]:.17g} ≥ {right.ravel()[worst]:.17g} at {points} {worst} of {left.size}"
    return Claim(name, form, float(slack[worst]), float(tolerance[worst]), why, detail)


class Ended(Exception):
    """Raised by a conclusion after a claim without which the others have no meaning: it ends there.

    Attributes:
        claims: those still to be yielded at the end.
    """

    claims: tuple[Claim, ...] = ()


class Undecided(Ended):
    """Raised by a conclusion that cannot go on: it ends there, with one claim that is undecided.

    Args:
        claim: the name of the claim that could not be decided.
        why: the reason.
        form: of the claim.
        not_found: whether the reason is that a search or solver of the suite's own found nothing to judge by.
    """

    def __init__(self, claim: str, why: str, form: Form = Form.EXACT, *, not_found: bool = False) -> None:
        """Make the one undecided claim from its name and the reason."""
        super().__init__(f"{claim}: {why}")
        self.why = why
        self.claims = (undecided_claim(claim, why, form, not_found=not_found),)


class Refuted(Ended):
    """Raised where the implementation under test returns something impossible: the conclusion ends, falsified.

    Args:
        claim: the name of the claim that it fails.
        what: a description of what was returned.
        form: of the claim.
    """

    def __init__(self, claim: str, detail: str, form: Form = Form.EFFECTIVE) -> None:
        """Make the one failed claim from its name and what was returned."""
        super().__init__(f"{claim}: {detail}")
        # Infinitely far from what is due.
        self.claims = (Claim(claim, form, -np.inf, 0.0, EXACT, detail=detail),)


class NotANumber(Refuted):
    """Raised where the implementation under test returns something that is no finite number."""


def until_undecided(conclusion: Callable[..., Any]) -> Callable[..., Any]:
    """Return the conclusion, made to end with the exception's claims where it raises :class:`Ended`."""

    def claims(result: Iterable[Any]) -> Iterator[Any]:
        try:
            yield from result
        except Ended as stop:
            yield from stop.claims

    @wraps(conclusion)
    def wrapper(*arguments: Any) -> Any:
        try:
            result = conclusion(*arguments)
        except Ended as stop:
            return iter(stop.claims)
        return claims(result) if isinstance(result, Iterable) else result

    return wrapper


def unless_limit_is_open(conclusion: Callable[..., Any], refines: Mapping[str, str]) -> Callable[..., Any]:
    """Return the conclusion, with every claim that refines a limit undecided where that limit is.

    A claim that refines a limit speaks of a path or flow that goes there. Where it was not followed there, the claim
    compares something else, and says nothing about what is under test.

    Args:
        conclusion: yields claims.
        refines: name of a claim → name of the limit that it refines.
    """
    if not refines:
        return conclusion

    def claims(result: Iterable[Any]) -> Iterator[Any]:
        limits: dict[str, Claim] = {}
        early: list[Claim] = []
        for claim in result:
            if not isinstance(claim, Claim):
                yield claim
                continue
            if claim.name in refines and refines[claim.name] not in limits:
                early.append(claim)
                continue
            previous = limits.get(claim.name)
            undecided = claim.verdict is Verdict.INCONCLUSIVE and not claim.not_found
            if previous is None or previous.verdict is not Verdict.INCONCLUSIVE or undecided:
                limits[claim.name] = claim
            yield _unless_open(claim, refines, limits)
        for claim in early:
            yield _unless_open(claim, refines, limits)

    @wraps(conclusion)
    def wrapper(*arguments: Any) -> Any:
        result = conclusion(*arguments)
        return claims(result) if isinstance(result, Iterable) else result

    return wrapper


def _unless_open(claim: Claim, refines: Mapping[str, str], limits: Mapping[str, Claim]) -> Claim:
    """Return the claim, made undecided where the limit that it refines is; ``not_found`` is then that of the limit."""
    limit = refines.get(claim.name, "")
    of_limit = limits.get(limit)
    if not limit or claim.undecided or (of_limit and of_limit.verdict in (Verdict.UPHELD, Verdict.FALSIFIED)):
        return claim
    state = "undecided" if of_limit else "not established"
    reason = f"the limit that it refines, {limit}, is {state}"
    return replace(claim, undecided=reason, not_found=bool(of_limit and of_limit.not_found))


def section(claims: Callable[..., Iterator[Claim]]) -> Callable[..., Iterator[Claim]]:
    """Make a function one part of a conclusion: where it raises :class:`Ended` only this part ends; the next goes on.

    A refutation (:class:`Refuted`), such as a result that is no number, still ends the whole conclusion.
    """

    @wraps(claims)
    def wrapper(*arguments: Any, **options: Any) -> Iterator[Claim]:
        try:
            yield from claims(*arguments, **options)
        except Refuted:
            raise
        except Ended as stop:
            yield from stop.claims

    return wrapper


def undecided_claim(claim: str, why: str, form: Form = Form.EXACT, *, not_found: bool = False) -> Claim:
    """Return a claim that could not be decided, where the conclusion goes on with others.

    Args:
        claim: its name.
        why: the reason.
        form: of the claim.
        not_found: whether the reason is that a search or solver of the suite's own found nothing to judge by.
    """
    return Claim(claim, form, 0.0, 0.0, EXACT, undecided=why, not_found=not_found)
