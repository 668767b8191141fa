"""Declarations of claims: the claim's name, its part (premise, conclusion or sharper form), and when it is made.

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
"""Condition of claims that are made on every case, unless an earlier claim fails and ends the check of the case."""


class ClaimName(str):
    """The name of a claim, with its part in the statement and the cases on which it is made.

    Attributes:
        part: a premise, the conclusion as the source states it, or a sharper claim of the suite's own.
        when: the cases on which the claim is made, in words; a :class:`theorems.core.parts.Condition` is also a
            function that decides whether a case is among them.
        refines: the name of another claim, about a limit, whose rate or next-order term this claim gives; while the
            limit is undecided, so is this claim. Empty for other claims.
    """

    part: Part
    when: str
    refines: str

    def __new__(cls, name: str, part: Part, when: str = ALWAYS, refines: str = "") -> ClaimName:
        """Create the string with its attributes."""
        name_with_part = super().__new__(cls, name)
        name_with_part.part, name_with_part.when, name_with_part.refines = part, when, refines
        return name_with_part

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Pickle as a plain string, without attributes: ``when`` may contain a function, which cannot be pickled."""
        return str, (str(self),)

    def only(self, when: str) -> ClaimName:
        """Return a copy with the further condition ``when``, for a statement that makes the claim on fewer cases."""
        return ClaimName(self, self.part, when if self.when == ALWAYS else f"{when}; {self.when}", self.refines)


def stated_claim(name: str, *, when: str = ALWAYS) -> ClaimName:
    """Declare a claim that the source itself states as its conclusion, at finite points or in the limit."""
    return ClaimName(name, Part.STATED, when)


def premise(name: str, *, when: str = ALWAYS) -> ClaimName:
    """Declare a premise: a claim that data, solutions and runs are what the conclusion assumes."""
    return ClaimName(name, Part.PREMISE, when)


def sharper(name: str, *, when: str = ALWAYS, refines: str = "") -> ClaimName:
    """Declare a claim of the suite's own that is sharper than what the source states.

    Args:
        name: the name, in kebab-case.
        when: the cases on which the claim is made, in words.
        refines: the claim of a limit whose rate or next-order term this claim gives. While the limit is undecided, so
            is this claim, see :func:`theorems.core.claim.unless_limit_is_open`.
    """
    return ClaimName(name, Part.SHARPER, when, refines)


@runtime_checkable
class Given(Protocol):
    """Protocol of objects that a conclusion is given, such as a solution, a run or points."""

    def premises(self) -> Iterator[Claim]:
        """Yield the premises: claims that the object is what the conclusion assumes."""


def premises(*objects: Given | Iterable[Claim] | Claim) -> Iterator[Claim]:
    """Yield the premises of several objects: claims that each object is what the conclusion assumes.

    A conclusion calls this function as ``yield from premises(descent, flow)``.

    Raises:
        Ended: a claim about an object fails by so much that the later claims have no meaning.
    """
    for premise in objects:
        if isinstance(premise, Claim):
            yield premise
        else:
            yield from premise if isinstance(premise, Iterable) else premise.premises()
