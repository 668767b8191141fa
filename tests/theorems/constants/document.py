"""The table of constants as the document docs/constants.md, from what is kept."""

from __future__ import annotations

from tests.places import ROOT
from tests.theorems.constants.measuring import Witness, constants_of, ids, stored_witnesses
from tests.theorems.constants.weakening import Constant

DOCUMENT = ROOT / "docs" / "constants.md"

HEAD = """# Constants of the bounds

Printed by `python -m tests.theorems.constants --markdown`; measured anew, with the cases kept, by `--write`.

A statement's own constants are weakened, one at a time, until one of its claims fails on right attention. A constant
whose loss nobody notices is not needed, or the data that need it are never tried. *Fails from* is the share (1, ½, ¼, …
of the way to the third column, logarithmic for a factor) at which that happens: small for constants that are nearly
sharp.

<!-- printed -->

| statement | constant | becomes | fails from | claim | case, or why nothing fails |
|---|---|---|---|---|---|
"""


def markdown() -> str:
    """The whole document."""
    rows = [row(id, constant, stored_witnesses(id).get(constant.key)) for id in ids() for constant in constants_of(id)]
    return HEAD + "\n".join(rows) + "\n"


def row(id: str, constant: Constant, witness: Witness | None) -> str:
    """A line of the table."""
    seen = ("–", "", constant.unseen) if witness is None else (f"{witness.share:.3g}", witness.claim, witness.place)
    return "| " + " | ".join((id, constant.says, constant.becomes, *seen)) + " |"
