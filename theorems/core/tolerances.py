"""Tolerances with their reasons: rounding, an explicit bound of the theorem, or a rate of convergence with an argument.

Each tolerance is declared beside the claims that use it, with its reason; ``theorems list tolerances`` prints all of
them. A statement in a user's file declares tolerances with :func:`reason`.
"""

from __future__ import annotations

from dataclasses import dataclass

from reference_attention.errors import InvalidInput


@dataclass(frozen=True)
class Tolerance:
    """The rule for the amount by which a claim may be violated, and why.

    Attributes:
        formula: how the number is computed.
        reason: why it is this large and no larger.
    """

    formula: str
    reason: str


class Reason(str):
    """The key of a tolerance, a string, with the tolerance as an attribute; claims are given it as their ``why``.

    Attributes:
        tolerance: formula and reason.
    """

    tolerance: Tolerance

    def __new__(cls, key: str, formula: str = "", because: str = "") -> Reason:
        """Create the string with its tolerance."""
        reason = super().__new__(cls, key)
        reason.tolerance = Tolerance(formula, because)
        return reason


TOLERANCES: dict[str, Tolerance] = {}
"""The tolerances of the modules imported so far, by key; all are in :func:`theorems.run.registry.suite.tolerances`."""


def tolerance(key: str, formula: str, because: str) -> Reason:
    """Declare a tolerance of the suite and return its key, for the claims that use it.

    Args:
        key: the key in kebab-case, for reports and JSON.
        formula: how the number is computed.
        because: why it is this large and no larger.

    Raises:
        ValueError: another tolerance has the key.
    """
    reason = Reason(key, formula, because)
    if TOLERANCES.setdefault(key, reason.tolerance) != reason.tolerance:
        raise ValueError(f"tolerance {key} is declared twice")
    return reason


def reason(key: str, formula: str, because: str) -> Reason:
    """Declare a tolerance in a user's file and return its key: rounding, an explicit bound, or a rate with an argument.

    Args:
        key: the key in kebab-case, for reports and JSON.
        formula: how the number is computed.
        because: why it is this large and no larger.

    Raises:
        InvalidInput: a tolerance of the suite has the key, or an argument is empty.
    """
    if key in TOLERANCES:
        raise InvalidInput(f"reason: {key!r} is one of the suite's tolerances; choose another key.")
    for name, text in (("key", key), ("formula", formula), ("because", because)):
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput(
                f"reason: {name} is empty; give key, formula, and because: the reason why the tolerance is no larger."
            )
    return Reason(key, formula, because)


EXACT = tolerance("exact", "0", "decided over the rationals: nothing is rounded")
ROUNDING = tolerance(
    "rounding",
    "the bound of the rounding error of left − right, divided by the larger side",
    "both sides are computed with numbers that carry a proven bound of their rounding error through every operation;"
    " numbers returned by an implementation carry the error that a correct implementation may have",
)
