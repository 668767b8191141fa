"""Tolerances with their reasons: rounding, an effective bound of the theorem, or an argued rate.

Each reason is declared beside the claims that use it, and there is no tolerance without one; ``theorems list
tolerances`` prints all of them. A statement in a user's own file declares its with :func:`reason`.
"""

from __future__ import annotations

from dataclasses import dataclass

from reference_attention.errors import InvalidInput


@dataclass(frozen=True)
class Tolerance:
    """A tolerance of a claim: by how much it may miss, and why.

    Attributes:
        formula: how the number is computed.
        reason: why this much and no more.
    """

    formula: str
    reason: str


class Reason(str):
    """The key of a tolerance, carrying the tolerance itself; claims take it as their ``why``.

    Attributes:
        tolerance: formula and reason.
    """

    tolerance: Tolerance

    def __new__(cls, key: str, formula: str = "", because: str = "") -> Reason:
        """Make the string with its tolerance."""
        reason = super().__new__(cls, key)
        reason.tolerance = Tolerance(formula, because)
        return reason


TOLERANCES: dict[str, Tolerance] = {}
"""The tolerances declared by the modules imported so far, by key; for all see
:func:`theorems.run.registry.suite.tolerances`."""


def tolerance(key: str, formula: str, because: str) -> Reason:
    """Declare a tolerance of the suite, beside the claims that use it.

    Args:
        key: kebab-case; in the report and the JSON.
        formula: how the number is computed.
        because: why this much and no more.

    Raises:
        ValueError: another one has that key.
    """
    reason = Reason(key, formula, because)
    if TOLERANCES.setdefault(key, reason.tolerance) != reason.tolerance:
        raise ValueError(f"tolerance {key} is declared twice")
    return reason


def reason(key: str, formula: str, because: str) -> Reason:
    """Make a tolerance for a statement of one's own: rounding, an effective bound, or an argued rate.

    Args:
        key: kebab-case; in the report and the JSON.
        formula: how the number is computed.
        because: why this much and no more.

    Raises:
        InvalidInput: the key is one of the suite's own, or something is left empty.
    """
    if key in TOLERANCES:
        raise InvalidInput(f"reason: {key!r} is one of the suite's tolerances; choose another key.")
    for name, text in (("key", key), ("formula", formula), ("because", because)):
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput(
                f"reason: {name} is empty; a tolerance needs a key, its formula and why it is no larger."
            )
    return Reason(key, formula, because)


EXACT = tolerance("exact", "0", "decided over the rationals: nothing is rounded")
ROUNDING = tolerance(
    "rounding",
    "the error that left − right carries, over the larger side",
    "rounding.bounded: both sides are computed on numbers that carry a proven bound of their rounding through every"
    " operation; what an implementation returns carries what a correct one may be off by",
)
