"""The classes Claim and Verdict: a statement makes claims, and each claim is a named inequality or limit."""

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
    """The four possible outcomes of a check; only ``upheld`` counts as success."""

    UPHELD = "upheld"
    FALSIFIED = "falsified"
    NOT_APPLICABLE = "not-applicable"
    INCONCLUSIVE = "inconclusive"


WORST_FIRST = (Verdict.FALSIFIED, Verdict.INCONCLUSIVE, Verdict.UPHELD, Verdict.NOT_APPLICABLE)
"""The verdicts from worst to best; the verdict on several claims or statements is the worst one."""


class Form(StrEnum):
    """The kind of a claim: how it is decided, and how strong it is."""

    EXACT = "exact"
    """Decided over the rationals, or an identity up to rounding."""
    EFFECTIVE = "effective"
    """An inequality with explicit constants, true at every finite point."""
    LIMIT = "limit"
    """A limit with its rate, checked on a path that is followed far enough to show the limit."""
    SHARP = "sharp"
    """The next-order term of a limit, predicted in closed form."""


UNBOUNDED = "the bound of its rounding error is infinite, so no value could violate it"
"""Why a claim with an infinite tolerance is undecided."""


@dataclass(frozen=True)
class Claim:
    """One named inequality or limit: it holds when ``slack ≥ −tolerance``.

    Attributes:
        name: a stable name in kebab-case, by which reports list the claim.
        form: exact, effective, limit or sharp.
        slack: left side minus right side, in the units of ``tolerance``; if checked at many points, at the point
            nearest to failing.
        tolerance: the amount by which the inequality may be violated because of rounding or of a rate of convergence.
        why: the reason for the tolerance, or the key of a reason that the suite declares.
        detail: both sides at the point nearest to failing, as text.
        undecided: why the claim could not be decided; empty if it could.
        branch: if the claim allows alternatives, the one that occurred, in a few words; reports count the alternatives.
        not_found: whether the claim is undecided because a search of the suite did not find the object of the claim.
            Such a case does not pass, but says nothing about the implementation under test; up to half of the generated
            cases may be undecided for this reason.
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
        """Refuse an unknown reason or a negative tolerance; make a claim with an infinite tolerance undecided."""
        # Store the name as a plain string: a ClaimName also holds a condition, which cannot be pickled.
        object.__setattr__(self, "name", str(self.name))
        if not isinstance(self.why, Reason) and self.why not in TOLERANCES:
            raise ValueError(f"claim {self.name}: no tolerance named {self.why!r} is declared")
        if self.tolerance < 0:
            raise ValueError(f"claim {self.name}: its tolerance is {self.tolerance:.6g}, but must not be negative")
        if np.isposinf(self.tolerance) and not self.undecided:
            object.__setattr__(self, "undecided", UNBOUNDED)

    @property
    def verdict(self) -> Verdict:
        """The verdict: upheld or falsified by slack and tolerance; inconclusive if undecided or NaN.

        The implementation under test cannot cause such a NaN: a NaN that it returns falsifies by :class:`NotANumber`.
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
    """Return the claim that left ≥ right at every entry; the claim reports the entry nearest to failing.

    An entry whose two sides are the same float is reported only if this is so at every entry, since it would hide the
    others. A NaN is reported unless another entry fails. A claim without entries is undecided, not upheld.

    Args:
        name: the name of the claim.
        form: exact, effective, limit or sharp.
        left: an array. If ``left`` or ``right`` carries a rounding error (:class:`theorems.bounded.Bounded`), the
            tolerance is the error bound of ``left − right``.
        right: an array that broadcasts against ``left``.
        rounding: if both sides are plain numbers, the absolute error of ``left − right`` at each entry.
        why: the reason for ``rounding``, or the key of a reason that the suite declares.
        scale: the divisor that makes slack and tolerance comparable between entries; by default the larger side if the
            sides carry their rounding error, else 1.
        points: a noun for the entries, used in ``detail``.

    Raises:
        TypeError: ``rounding`` is given although the sides carry their error, or missing for plain numbers.
    """
    carried = isinstance(left, Bounded) or isinstance(right, Bounded)
    if carried == (rounding is not None):
        raise TypeError(f"claim {name}: give rounding= if both sides are plain numbers, and only then.")
    if carried:
        gap: Any = left - right
        left, right = value_of(left), value_of(right)
        # The factor covers the rounding of the division by the scale.
        rounding = gap.error * (1 + 4 * EPS)
        larger = np.fmax(np.fmax(np.abs(left), np.abs(right)), rounding)
        scale = np.where(np.isfinite(larger) & (larger > 0), larger, 1.0) if scale is None else scale
    left, right, rounding, scale = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (left, right, rounding, 1.0 if scale is None else scale))
    )
    if left.size == 0:
        return Claim(name, form, 0.0, 0.0, why, undecided=f"there is no {points} at which to check it")
    slack = ((gap.value if carried else left - right) / scale).ravel()
    tolerance = (rounding / scale).ravel()
    bad = np.isnan(slack) | np.isnan(tolerance)
    # An entry with an infinite tolerance says nothing; without the first ``where`` it could become NaN (∞ − ∞) and hide
    # others.
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
    """Exception that ends a conclusion after a claim that failed and without which later claims have no meaning.

    Attributes:
        claims: the claims to yield before the conclusion ends.
    """

    claims: tuple[Claim, ...] = ()


class Undecided(Ended):
    """Exception that ends a conclusion with one undecided claim, without which it cannot continue.

    Args:
        claim: the name of the claim that could not be decided.
        why: the reason.
        form: the form of the claim.
        not_found: whether the reason is that a search or solver of the suite found nothing; see :class:`Claim`.
    """

    def __init__(self, claim: str, why: str, form: Form = Form.EXACT, *, not_found: bool = False) -> None:
        """Make ``claims`` from the claim's name and the reason why it is undecided."""
        super().__init__(f"{claim}: {why}")
        self.why = why
        self.claims = (undecided_claim(claim, why, form, not_found=not_found),)


class Refuted(Ended):
    """Exception that ends a conclusion as falsified: the implementation under test returned something impossible.

    Args:
        claim: the name of the claim that fails.
        detail: a description of what was returned.
        form: the form of the claim.
    """

    def __init__(self, claim: str, detail: str, form: Form = Form.EFFECTIVE) -> None:
        """Make ``claims`` from the claim's name and the description of what was returned."""
        super().__init__(f"{claim}: {detail}")
        # An impossible result is infinitely far from a correct one.
        self.claims = (Claim(claim, form, -np.inf, 0.0, EXACT, detail=detail),)


class NotANumber(Refuted):
    """Exception that ends a conclusion as falsified, because the implementation under test returned inf or NaN."""


def until_undecided(conclusion: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a conclusion so that it catches :class:`Ended`, yields the exception's claims and ends."""

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
    """Wrap a conclusion so that a claim that refines a limit is undecided if the claim of this limit is undecided.

    For example, a claim on the rate at which a path approaches a limit means nothing if the limit was not reached.

    Args:
        conclusion: the function that yields claims.
        refines: the name of the limit's claim, by the name of the claim that refines it.
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
    """Return the claim; if the limit that it refines is undecided, an undecided copy with the limit's ``not_found``."""
    limit = refines.get(claim.name, "")
    of_limit = limits.get(limit)
    if not limit or claim.undecided or (of_limit and of_limit.verdict in (Verdict.UPHELD, Verdict.FALSIFIED)):
        return claim
    state = "undecided" if of_limit else "not established"
    reason = f"the limit that it refines, {limit}, is {state}"
    return replace(claim, undecided=reason, not_found=bool(of_limit and of_limit.not_found))


def section(claims: Callable[..., Iterator[Claim]]) -> Callable[..., Iterator[Claim]]:
    """Decorate a generator of some of a conclusion's claims: if it raises :class:`Ended`, only these claims end.

    A refutation (:class:`Refuted`), such as a NaN in place of a number, still ends the whole conclusion.
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
    """Return an undecided claim, for a conclusion that continues with other claims.

    Args:
        claim: the name of the claim.
        why: the reason.
        form: the form of the claim.
        not_found: whether the reason is that a search or solver of the suite found nothing; see :class:`Claim`.
    """
    return Claim(claim, form, 0.0, 0.0, EXACT, undecided=why, not_found=not_found)
