"""Counterexamples as JSON files, from whose data each counterexample can be checked again.

References: the JSON dialect is that of :mod:`reference_attention.files`; the case is written as in
:mod:`generators.user_data`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generators.subject import Subject
from generators.user_data import as_text, subject_of
from reference_attention.errors import InvalidInput
from reference_attention.files import from_json, read_named_values, to_json, write_in
from theorems.core.check import sentence
from theorems.counterexamples.check import CaseCheck
from theorems.counterexamples.search import Effort
from theorems.counterexamples.weakened_statements import weakened_named
from theorems.run.findings import NamedFinding
from theorems.run.findings import as_json as findings_json
from theorems.without.weakening import Weakened

REQUIRED = ("statement", "without", "claim", "case")
REQUIRED_OF_EFFORT = ("statement", "without", "seed", "none_found")


@dataclass(frozen=True)
class Record:
    """A recorded counterexample.

    Attributes:
        weakened: the refuted statement, without one of its assumptions.
        claim: the name of the violated claim.
        case: the data of the counterexample.
    """

    weakened: Weakened
    claim: str
    case: Any


def as_record(weakened: Weakened, case: Subject, examined: CaseCheck, seed: int) -> str:
    """Return the text of a counterexample's file: the violated claim, assumptions with evidence, and data."""
    assert examined.violated is not None
    findings = [*examined.kept, *([(weakened.without, examined.dropped)] if weakened.without else [])]
    record: dict[str, Any] = {
        "statement": weakened.statement.id,
        "without": weakened.without,
        "refutes": weakened.refutes,
        "why": " ".join(weakened.why.split()),
        "claim": examined.violated.name,
        "violation": sentence(examined.violated),
        "assumptions": findings_json([NamedFinding(id, "", f.holds, f.evidence, f.exact) for id, f in findings]),
        "seed": seed,
        "case": from_json(as_text(case)),
    }
    return "{\n" + ",\n".join(f"  {to_json(key)}: {to_json(value)}" for key, value in record.items()) + "\n}\n"


def as_effort(weakened: Weakened, effort: Effort, seed: int) -> str:
    """Return the text of the file about a hunt without a counterexample, with the numbers of cases and rounds.

    ``met`` in the file counts the cases on which the omitted assumption fails and the others hold. It is left out if
    the statement has a measure of violation, which rules cases out before assumptions are checked.
    """
    counts: dict[str, Any] = {"cases": effort.tried, "rounds": effort.rounds}
    if weakened.violation is None:
        counts["met"] = effort.met
    counts |= {"largest_violation": effort.best, "undecided": effort.undecided}
    record: dict[str, Any] = {
        "statement": weakened.statement.id,
        "without": weakened.without,
        "refutes": weakened.refutes,
        "why": " ".join(weakened.why.split()),
        "seed": seed,
        "none_found": counts,
    }
    return "{\n" + ",\n".join(f"  {to_json(key)}: {to_json(value)}" for key, value in record.items()) + "\n}\n"


def save(weakened: Weakened, text: str, directory: Path, *, name: str = "") -> Path:
    """Write the file of a counterexample, or of a hunt without one, and return its path.

    Args:
        weakened: the statement without one of its assumptions, which gives the file its default name.
        text: the text of the file.
        directory: the folder for the file.
        name: the name of the file; by default it contains a hash of the text, so that equal counterexamples share a
            file.

    Raises:
        InvalidInput: the directory cannot be written.
    """
    return write_in(directory, name or f"{weakened.name}-*.json", text)


def load(path: Path) -> Record:
    """Read a counterexample that ``theorems hunt`` wrote.

    Raises:
        InvalidInput: the file cannot be read; the message says what to change.
    """
    values = read(path)
    if "none_found" in values:
        raise InvalidInput(f"{path}: records a hunt that found no counterexample, so that there is nothing to replay.")
    try:
        weakened = weakened_named(values["statement"], values["without"])
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    return Record(weakened, values["claim"], subject_of(values["case"], name=path.name))


def read(path: Path) -> dict[str, Any]:
    """Return the JSON values of a file of ``theorems hunt``: a counterexample, or ``none_found`` with numbers of cases.

    Raises:
        InvalidInput: ``theorems hunt`` did not write the file.
    """
    if path.suffix != ".json":
        raise InvalidInput(f"{path}: the name must end in .json; give a file that theorems hunt wrote.")
    values = read_named_values(path)
    required = REQUIRED_OF_EFFORT if "none_found" in values else REQUIRED
    wrong = next((f"{name} is missing" for name in required if name not in values), "")
    for name, value in values.items():
        if name not in KINDS:
            wrong = wrong or f"{name!r} is unknown"
        elif not KINDS[name][0](value):
            wrong = wrong or f"{name} must be {KINDS[name][1]}"
    if wrong:
        raise InvalidInput(f"{path}: {wrong}; give a file that theorems hunt wrote.")
    return values


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_finding(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) - {"exact", "exact_of"} == {"id", "holds", "because"}
        and _is_text(value["id"])
        and value["holds"] in (True, False, None)
        and _is_text(value["because"])
        and _is_object(value.get("exact", {}))
        and _is_text(value.get("exact_of", ""))
    )


def _are_findings(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_finding, value))


def _is_effort(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(_is_count(value.get(name, 0)) for name in ("cases", "rounds", "met", "undecided"))
        and "cases" in value
    )


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


TEXT, COUNT = (_is_text, "text"), (_is_count, "a whole number")

KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "statement": TEXT,
    "without": TEXT,
    "refutes": TEXT,
    "why": TEXT,
    "claim": TEXT,
    "violation": TEXT,
    "assumptions": (_are_findings, "a list of objects with id, holds and because"),
    "seed": COUNT,
    "case": (_is_object, "an object"),
    "none_found": (_is_effort, "an object of counts"),
}
"""The names in a file, each with a function that checks its value and a description of valid values."""
