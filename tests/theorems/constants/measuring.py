"""The least weakening of a constant at which a claim fails, and the case on which it fails; tests replay them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from generators.case import Case
from generators.user_data import as_text, subject_of
from reference_attention.files import from_json
from tests.theorems.constants.table import CONSTANTS, WITNESSES
from tests.theorems.constants.weakening import Constant
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.run.registry.lookup import statement_named
from theorems.run.verify import draw_cases

KEPT = Path(__file__).parent / "kept"
LARGEST = 200
"""Largest number of entries of the keys of a stored case."""
SHARES = tuple(2.0**-k for k in range(1, 11))
"""Shares by which a constant is weakened after the share 1, down to the first share at which no case fails."""


@dataclass(frozen=True)
class Witness:
    """A case on which a statement fails when a constant is weakened by a share (0: unchanged, 1: the weaker value).

    Attributes:
        id: the id of the statement.
        share: the smallest tried share with which the statement fails on the case.
        claim: the name of the claim that fails.
        place: where the case is from, with its name or number.
        case: the case as text.
    """

    id: str
    share: float
    claim: str
    place: str
    case: str


def failing(id: str, case: Any, constant: Constant, share: float) -> str:
    """Return the first claim that is falsified with the weakened constant, or an empty text."""
    with constant.weakened(share):
        for claim in statement_named(id).conclusion(case.normalise(), REFERENCE):
            if claim.verdict is Verdict.FALSIFIED:
                return str(claim.name)
    return ""


def cases_of(id: str, examples: int) -> Iterator[tuple[str, Any]]:
    """Yield small cases with their places: those of :data:`WITNESSES`, and drawn ones."""
    yield from ((f"fixed {name}", case) for name, case in WITNESSES.get(id, {}).items())
    drawn = draw_cases(statement_named(id), examples, 0)
    yield from ((f"drawn {k + 1}", case) for k, case in enumerate(drawn))


def measure(constant: Constant, id: str, examples: int, most: int = 4) -> Witness | None:
    """Return the witness of smallest share among the first ``most`` cases that fail at share 1, or None without any."""
    failures: list[tuple[str, Any, str]] = []
    for place, case in cases_of(id, examples):
        small = not isinstance(case, Case) or case.problem.keys.size <= LARGEST
        if small and (claim := failing(id, case, constant, 1.0)):
            failures.append((place, case, claim))
            if len(failures) == most:
                break
    share = 1.0
    for smaller in SHARES:
        left = [(place, case, claim) for place, case, _ in failures if (claim := failing(id, case, constant, smaller))]
        if not left:
            break
        failures, share = left, smaller
    if not failures:
        return None
    place, case, claim = failures[0]
    return Witness(id, share, claim, place, as_text(case))


def path_of(id: str) -> Path:
    """Return the file in which the witnesses of a statement are stored."""
    return KEPT / f"{id}.json"


def keep(id: str, witnesses: dict[str, Witness | None]) -> None:
    """Write the witnesses of a statement's constants, keyed by constant, to the statement's file."""
    record = {key: None if witness is None else asdict(witness) for key, witness in witnesses.items()}
    path_of(id).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def stored_witnesses(id: str) -> dict[str, Witness | None]:
    """Return the stored witnesses of a statement, keyed by constant, or an empty dictionary."""
    if not path_of(id).exists():
        return {}
    record = json.loads(path_of(id).read_text(encoding="utf-8"))
    return {key: None if witness is None else Witness(**witness) for key, witness in record.items()}


def case_from(text: str) -> Any:
    """Return the case of a witness from its text."""
    return subject_of(from_json(text))


def constants_of(id: str) -> list[Constant]:
    """Return the constants of the table that the statement's claims use."""
    return [constant for constant in CONSTANTS if id in constant.ids]


def ids() -> list[str]:
    """Return the statements that have constants in the table."""
    return list(dict.fromkeys(id for constant in CONSTANTS for id in constant.ids))
