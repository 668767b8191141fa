"""The names of claims, each typed once: declared with its part in the statement and when it is made, then used.

A statement's file declares each of its claims, lists the declarations in ``claims=`` and makes the claims by them::

    IS_A_STEP = premise("iterate-is-a-step")
    NORM_DIVERGES = stated_claim("norm-diverges")
    CLIMBS = sharper("climbs-to-max-margin", when=ONE_INPUT)

    @statement("theorem-2", claims=(IS_A_STEP, NORM_DIVERGES, CLIMBS), ...)
    def theorem_2(case, under_test):
        yield at_least(CLIMBS, Form.EFFECTIVE, left, right)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from theorems.core.claim import Claim
from theorems.core.parts import Part

ALWAYS = "on every case"
"""The condition of a claim that is always made, unless one before it ends the conclusion."""


class ClaimName(str):
    """The name of a claim, with its part in the statement and when it is made.

    Attributes:
        part: a premise, the stated conclusion, or a sharper form of ours.
        when: on which cases it is made, in words; a :class:`theorems.core.parts.Condition` can be decided.
        refines: the claim of the limit that it says more about, empty if none: where that one is undecided, so is this.
    """

    part: Part
    when: str
    refines: str

    def __new__(cls, name: str, part: Part, when: str = ALWAYS, refines: str = "") -> ClaimName:
        """Make the string with its attributes."""
        name_with_part = super().__new__(cls, name)
        name_with_part.part, name_with_part.when, name_with_part.refines = part, when, refines
        return name_with_part

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Pickle as a plain string: conditions do not travel between processes."""
        return str, (str(self),)

    def only(self, when: str) -> ClaimName:
        """Return this name for a statement that makes the claim on fewer cases: where ``when`` holds, too."""
        return ClaimName(self, self.part, when if self.when == ALWAYS else f"{when}; {self.when}", self.refines)


def stated_claim(name: str, *, when: str = ALWAYS) -> ClaimName:
    """Declare a claim that is the conclusion as its source states it, at finite points or in the limit."""
    return ClaimName(name, Part.STATED, when)


def premise(name: str, *, when: str = ALWAYS) -> ClaimName:
    """Declare a claim that data, solutions or runs are those that the conclusion speaks of."""
    return ClaimName(name, Part.PREMISE, when)


def sharper(name: str, *, when: str = ALWAYS, refines: str = "") -> ClaimName:
    """Declare a claim that says more than the source does.

    Args:
        name: kebab-case.
        when: on which cases it is made.
        refines: the claim of a limit whose rate or next-order term this one gives. Where that limit was not found, or
            is not decided, the claim is not judged: :func:`theorems.core.claim.unless_limit_is_open`.
    """
    return ClaimName(name, Part.SHARPER, when, refines)


@runtime_checkable
class Given(Protocol):
    """An object that a conclusion speaks of: a solution, a run, points."""

    def premises(self) -> Iterator[Claim]:
        """Yield the claims that the object is what the conclusion takes it for."""


def premises(*objects: Given | Iterable[Claim] | Claim) -> Iterator[Claim]:
    """Yield the claims that the given objects are what the conclusion takes them for.

    A conclusion calls it as ``yield from premises(descent, flow)``.

    Raises:
        Ended: one of the objects is so far from it that no claim about it would mean anything.
    """
    for premise in objects:
        if isinstance(premise, Claim):
            yield premise
        else:
            yield from premise if isinstance(premise, Iterable) else premise.premises()
