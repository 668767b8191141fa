"""A planted fault: an implementation, or a reading of the data, that is wrong in one way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from generators.case import Case
from generators.subject import Subject
from theorems.core.implementation import REFERENCE, Implementation


class Kind(StrEnum):
    """What a fault is in."""

    SOFTMAX = "softmax"
    """Weights, risk and gradient agree with each other and are all wrong."""
    GRADIENT = "gradient"
    RISK = "risk"
    """The value of the risk, or of its excess."""
    STEP = "step"
    """L_p, whose inverse is the step size."""
    DATA = "data"
    """The attention, or the SVM, is given other data than the statement."""
    SVM = "svm"
    SETS = "sets"
    """ATT-SVM' of Theorem 8."""
    DIRECTION = "direction"
    """Definition 3."""
    LABELS = "labels"
    """(SVM) of the head and p_relax."""
    JOINT = "joint"
    """What moves head and prompt together."""
    MIXING = "mixing"
    """What is best where attention mixes: s⋆, Gen-SVM, W_fin."""
    RUN = "run"
    """What is run on a right gradient: descents, flows, paths."""


FaultKind = Kind
"""The same for files that have other kinds, too."""


@dataclass(frozen=True)
class Fault:
    """A planted fault.

    Attributes:
        name: kebab-case, stable.
        kind: what it is in.
        says: what is wrong, in a line.
        caught_by: the id of a statement that catches it within a few examples; the cheapest one.
        made: size → the faulty implementation; faults without a size ignore it.
        size: how wrong the planted one is, for faults that have a size, else 0; a smaller one is less wrong.
        unit: what the size measures.
        smallest: no smaller size is tried (float64 does not resolve it, or it is no fault any more).
        spoil: case → the case as the statement misreads it, once the assumptions have been checked on the right one.
        about: the class of the cases that it spoils.
    """

    name: str
    kind: Kind
    says: str
    caught_by: str
    made: Callable[[float], Implementation]
    size: float = 0.0
    unit: str = ""
    smallest: float = 1e-16
    spoil: Callable[[Any], Any] | None = None
    about: type[Subject] = Case

    @property
    def implementation(self) -> Implementation:
        """The faulty implementation, named after the fault."""
        return replace(self.made(self.size), name=self.name)

    def of_size(self, size: float) -> Fault:
        """The same fault, that much wrong."""
        return replace(self, size=size)


def right(size: float) -> Implementation:
    """Nothing is replaced: the fault is in the data."""
    return REFERENCE
