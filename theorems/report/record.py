"""Records of runs for reports: the files that ``theorems verify --json`` writes, read and validated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cattrs import Converter, transform_error
from cattrs.gen import make_dict_structure_fn, override

from reference_attention.errors import InvalidInput
from reference_attention.files import read_named_values
from theorems.core.claim import Form, Verdict
from theorems.core.parts import Parts
from theorems.run.result import ClaimSummary, tightest_of

NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True)
class StatementRecord:
    """Result of one statement, as read from a file.

    Attributes:
        id, title: the id and title of the statement.
        verdict: the verdict on the statement.
        examples: the number of cases.
        counts: the number of cases with each verdict.
        claims: a summary of each claim.
        reason: why some cases were not upheld or not checked; empty if all were upheld.
        not_found: the number of cases that are inconclusive only because a search of the suite found nothing.
        never_made: the claims that the statement may make but made on no case.
        conclusion: the verdict on each part of the statement, if it was falsified; else None.
    """

    id: str
    title: str
    verdict: Verdict
    examples: int
    counts: Mapping[str, int]
    claims: tuple[ClaimSummary, ...]
    reason: str
    not_found: int = 0
    never_made: tuple[str, ...] = ()
    conclusion: Parts | None = None

    @property
    def verdict_in_words(self) -> str:
        """Return the verdict, with a note if the part that failed is not the conclusion as the paper states it."""
        note = self.conclusion.note if self.conclusion else ""
        return f"{self.verdict} ({note})" if note else str(self.verdict)

    @property
    def counts_in_words(self) -> str:
        """Return the number of cases with each verdict, in words."""
        return ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items() if count)

    @property
    def tightest(self) -> ClaimSummary | None:
        """Return the claim closest to failing, in units of its tolerance; a falsified claim if there is one."""
        return tightest_of(self.claims)


@dataclass(frozen=True)
class RunRecord:
    """Run of ``theorems verify``, as read from a file.

    Attributes:
        version: the version of this package that ran.
        seed, examples: the seed of the cases, and the number of generated cases per statement.
        data: the name of the file or dataset that was checked; empty for generated cases.
        implementation: the name of the implementation under test.
        statements: the results of the statements, in the order of the run.
    """

    version: str
    seed: int
    examples: int
    data: str
    implementation: str
    statements: tuple[StatementRecord, ...]


def read(path: Path) -> RunRecord:
    """Read a file that ``theorems verify --json`` wrote.

    Raises:
        InvalidInput: there is no such file, or ``theorems verify`` did not write it.
    """
    if path.suffix != ".json":
        raise InvalidInput(f"{path}: the name must end in .json; give a file of theorems verify --json.")
    return parse(read_named_values(path), str(path))


def parse(values: Mapping[str, Any], name: str) -> RunRecord:
    """Return the record of a run from its JSON values.

    Raises:
        InvalidInput: a value is missing or of a wrong type; the message names the value.
    """
    try:
        return _CONVERTER.structure(values, RunRecord)
    except Exception as error:
        problem, _, place = transform_error(error, format_exception=_problem)[0].partition(" @ $")
        raise InvalidInput(
            f"{name}: {place.removeprefix('.')} {problem}; give a file of theorems verify --json."
        ) from None


def _problem(error: BaseException, _: type | None) -> str:
    return "is missing" if isinstance(error, KeyError) else "is not what theorems verify --json writes"


def _exactly(kind: type) -> Callable[[Any, Any], Any]:
    """Return a hook for the converter that accepts only values of the type ``kind``; it never accepts a Boolean."""

    def check(value: Any, _: Any) -> Any:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError
        return value

    return check


def _number(value: Any, _: Any) -> float:
    value = math.nan if value is None else NUMBERS.get(value, value) if isinstance(value, str) else value
    return float(_exactly(int | float)(value, _))  # type: ignore[arg-type]


def _statement(value: Any, _: Any) -> StatementRecord:
    record: StatementRecord = _STATEMENT(value, StatementRecord)
    # If a kernel under test fails, the paper is not to blame: drop the verdicts on parts of the statement.
    return replace(record, conclusion=None) if value.get("touched") else record


_CONVERTER = Converter()
for _kind in (str, int):
    _CONVERTER.register_structure_hook(_kind, _exactly(_kind))
_CONVERTER.register_structure_hook(Verdict, lambda value, _: Verdict(value))
_CONVERTER.register_structure_hook(Form, lambda value, _: Form(value))
_CONVERTER.register_structure_hook(float, _number)
_CONVERTER.register_structure_hook(Parts, lambda value, _: Parts.of_json(value))
_texts = override(struct_hook=lambda value, _: tuple(_CONVERTER.structure(_exactly(list)(value, _), list[str])))
_STATEMENT = make_dict_structure_fn(StatementRecord, _CONVERTER, never_made=_texts)
_CONVERTER.register_structure_hook(StatementRecord, _statement)
_branches = override(struct_hook=lambda value, _: tuple(_CONVERTER.structure(value, dict[str, int]).items()))
_CONVERTER.register_structure_hook(ClaimSummary, make_dict_structure_fn(ClaimSummary, _CONVERTER, branches=_branches))
_data = override(struct_hook=lambda value, _: "" if value is None else _CONVERTER.structure(value, str))
_CONVERTER.register_structure_hook(RunRecord, make_dict_structure_fn(RunRecord, _CONVERTER, data=_data))
