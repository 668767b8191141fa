"""Declarations of claims: the name of a claim, its part in the statement, and the cases on which it is made.

A statement's file declares each of its claims once, lists the declarations in ``claims=`` and passes them as names::

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
"""Condition of claims that are made on every case, unless an earlier claim ends the conclusion."""


class ClaimName(str):
    """The name of a claim, with its part in the statement and the cases on which it is made.

    Attributes:
        part: a premise, the stated conclusion, or a sharper form of ours.
        when: the cases on which the claim is made, in words; a :class:`theorems.core.parts.Condition` is also a
            function that decides whether a case is among them.
        refines: the name of the claim of a limit that this claim sharpens; this claim is undecided if the limit's claim
            is. Empty if this claim sharpens no limit.
    """

    part: Part
    when: str
    refines: str

    def __new__(cls, name: str, part: Part, when: str = ALWAYS, refines: str = "") -> ClaimName:
        """Create the string and set its attributes."""
        name_with_part = super().__new__(cls, name)
        name_with_part.part, name_with_part.when, name_with_part.refines = part, when, refines
        return name_with_part

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Pickle as a plain string, since conditions are functions that cannot be pickled."""
        return str, (str(self),)

    def only(self, when: str) -> ClaimName:
        """Return a copy with the further condition ``when``, for a statement that makes the claim on fewer cases."""
        return ClaimName(self, self.part, when if self.when == ALWAYS else f"{when}; {self.when}", self.refines)


def stated_claim(name: str, *, when: str = ALWAYS) -> ClaimName:
    """Declare a claim that the source itself states as the conclusion, at finite points or in the limit."""
    return ClaimName(name, Part.STATED, when)


def premise(name: str, *, when: str = ALWAYS) -> ClaimName:
    """Declare a claim that checks what the conclusion assumes about data, solutions or runs."""
    return ClaimName(name, Part.PREMISE, when)


def sharper(name: str, *, when: str = ALWAYS, refines: str = "") -> ClaimName:
    """Declare a claim that is sharper than what the source states.

    Args:
        name: the name, in kebab-case.
        when: the cases on which the claim is made.
        refines: the claim of a limit whose rate or next-order term this claim gives. This claim is undecided if the
            limit's claim is, see :func:`theorems.core.claim.unless_limit_is_open`.
    """
    return ClaimName(name, Part.SHARPER, when, refines)


@runtime_checkable
class Given(Protocol):
    """Protocol of the objects that a conclusion is about, such as a solution, a run or points."""

    def premises(self) -> Iterator[Claim]:
        """Yield the claims that check what the conclusion assumes about the object."""


def premises(*objects: Given | Iterable[Claim] | Claim) -> Iterator[Claim]:
    """Yield the claims that check what the conclusion assumes about several objects.

    A conclusion calls this function as ``yield from premises(descent, flow)``.

    Raises:
        Ended: a claim about an object fails by so much that the later claims have no meaning.
    """
    for premise in objects:
        if isinstance(premise, Claim):
            yield premise
        else:
            yield from premise if isinstance(premise, Iterable) else premise.premises()
