"""By how much a constant is weakened before a claim fails, and on which case; kept, and replayed."""

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
from tests.theorems.strength.claims import stored_cases
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.run.registry.lookup import statement_named
from theorems.run.verify import draw_cases

KEPT = Path(__file__).parent / "kept"
LARGEST = 200
"""Numbers that the keys of a kept case have at most."""
SHARES = tuple(2.0**-k for k in range(1, 11))
"""Shares that are tried after 1, down to the first that no case sees."""


@dataclass(frozen=True)
class Witness:
    """A case on which a statement fails with a constant that is weaker by a share.

    Attributes:
        id: of the statement.
        share: the smallest of those tried with which it fails.
        claim: that fails.
        place: fixed, kept or drawn, and which.
        case: as text.
    """

    id: str
    share: float
    claim: str
    place: str
    case: str


def failing(id: str, case: Any, constant: Constant, share: float) -> str:
    """The first claim that is falsified with the weakened constant; empty if none is."""
    with constant.weakened(share):
        for claim in statement_named(id).conclusion(case.normalise(), REFERENCE):
            if claim.verdict is Verdict.FALSIFIED:
                return str(claim.name)
    return ""


def cases_of(id: str, examples: int) -> Iterator[tuple[str, Any]]:
    """Those of the witnesses that the table has, those whose strengths are kept, and drawn ones; small ones."""
    yield from ((f"fixed {name}", case) for name, case in WITNESSES.get(id, {}).items())
    yield from ((f"kept {k + 1}", witness.case) for k, witness in enumerate(stored_cases(id)))
    drawn = draw_cases(statement_named(id), examples, 0)
    yield from ((f"drawn {k + 1}", case) for k, case in enumerate(drawn))


def measure(constant: Constant, id: str, examples: int, most: int = 4) -> Witness | None:
    """The witness of the smallest share among the first few cases that fail at all; None if none does."""
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
    """Where the witnesses of a statement are kept."""
    return KEPT / f"{id}.json"


def keep(id: str, witnesses: dict[str, Witness | None]) -> None:
    """Write the witnesses of a statement's constants, by constant."""
    record = {key: None if witness is None else asdict(witness) for key, witness in witnesses.items()}
    path_of(id).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def stored_witnesses(id: str) -> dict[str, Witness | None]:
    """Those that are kept; none where nothing is."""
    if not path_of(id).exists():
        return {}
    record = json.loads(path_of(id).read_text(encoding="utf-8"))
    return {key: None if witness is None else Witness(**witness) for key, witness in record.items()}


def case_from(text: str) -> Any:
    """The case of a witness."""
    return subject_of(from_json(text))


def constants_of(id: str) -> list[Constant]:
    """Those of the table that the statement claims with."""
    return [constant for constant in CONSTANTS if id in constant.ids]


def ids() -> list[str]:
    """The statements that have constants in the table."""
    return list(dict.fromkeys(id for constant in CONSTANTS for id in constant.ids))
