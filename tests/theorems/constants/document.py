"""The document docs/constants.md: the table of constants, from the stored cases on which weakened constants fail."""

from __future__ import annotations

from tests.places import ROOT
from tests.theorems.constants.measuring import Witness, constants_of, ids, stored_witnesses
from tests.theorems.constants.weakening import Constant

DOCUMENT = ROOT / "docs" / "constants.md"

HEAD = """# Constants of the bounds

`python -m tests.theorems.constants --markdown` prints this page; `--write` measures again and stores the cases.

Each constant of a statement is weakened until a claim of the statement fails on correct attention. If none fails, the
constant is not needed, or no case that needs it is tried. *Fails from* is the smallest weakening tried (1, ½, ¼, … of
the way to the third column, on a logarithmic scale for factors) at which a claim fails: small for nearly sharp
constants.

<!-- printed -->

| statement | constant | becomes | fails from | claim | case, or why nothing fails |
|---|---|---|---|---|---|
"""


def markdown() -> str:
    """Return the whole document."""
    rows = [row(id, constant, stored_witnesses(id).get(constant.key)) for id in ids() for constant in constants_of(id)]
    return HEAD + "\n".join(rows) + "\n"


def row(id: str, constant: Constant, witness: Witness | None) -> str:
    """Return the row of the table on one constant of a statement."""
    seen = ("–", "", constant.unseen) if witness is None else (f"{witness.share:.3g}", witness.claim, witness.place)
    return "| " + " | ".join((id, constant.says, constant.becomes, *seen)) + " |"
