"""Records of runs: files of ``theorems verify --json``, read back and checked, with all that a report needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reference_attention.errors import InvalidInput
from reference_attention.files import read_named_values
from theorems.core.claim import Form, Verdict
from theorems.core.parts import Parts
from theorems.run.result import ClaimSummary, tightest_of

NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True)
class StatementRecord:
    """Result of one statement.

    Attributes:
        not_found: examples that are inconclusive only because a search had no success.
        never_made: claims that it may make and made on no example.
        conclusion: where it was falsified, which parts' claims failed and which did not.
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
        """Return the verdict, with the part that failed if it was not the conclusion as its source states it."""
        note = self.conclusion.note if self.conclusion else ""
        return f"{self.verdict} ({note})" if note else str(self.verdict)

    @property
    def counts_in_words(self) -> str:
        """Return how many examples had which verdict, in words."""
        return ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items() if count)

    @property
    def tightest(self) -> ClaimSummary | None:
        """Return the claim nearest to its tolerance, as in the table of verify; a falsified one if there is any."""
        return tightest_of(self.claims)


@dataclass(frozen=True)
class RunRecord:
    """A run of verify.

    Attributes:
        version: the version of this package.
        seed, examples: its options.
        data: the file or data set that was checked; empty for generated cases.
        implementation: what was under test.
        statements: in their order.
    """

    version: str
    seed: int
    examples: int
    data: str
    implementation: str
    statements: tuple[StatementRecord, ...]


def read(path: Path) -> RunRecord:
    """Read a file of ``theorems verify --json``.

    Raises:
        InvalidInput: no such file, or one that something else wrote.
    """
    if path.suffix != ".json":
        raise InvalidInput(f"{path}: the name must end in .json; give a file of theorems verify --json.")
    return parse(read_named_values(path), str(path))


def parse(values: Mapping[str, Any], name: str) -> RunRecord:
    """Return the record that named values make.

    Raises:
        InvalidInput: something is missing or of another kind; the message says what.
    """
    at = _Reader(values, name)
    return RunRecord(
        at.text("version"),
        at.whole("seed"),
        at.whole("examples"),
        "" if values.get("data") is None else at.text("data"),
        at.text("implementation"),
        tuple(_statement(reader) for reader in at.objects("statements")),
    )


def _statement(at: _Reader) -> StatementRecord:
    return StatementRecord(
        at.text("id"),
        at.text("title"),
        at.verdict("verdict"),
        at.whole("examples"),
        dict(at.counts("counts")),
        tuple(_claim(reader) for reader in at.objects("claims")),
        at.text("reason"),
        at.whole("not_found") if "not_found" in at.held else 0,
        at.texts("never_made") if "never_made" in at.held else (),
        # Of an attention kernel nobody blames the paper.
        at.parts("conclusion") if "conclusion" in at.held and not at.held.get("touched") else None,
    )


def _claim(at: _Reader) -> ClaimSummary:
    form = at.text("form")
    if form not in set(Form):
        raise at.error("form")
    return ClaimSummary(
        at.text("name"),
        Form(form),
        at.number("worst_slack"),
        at.number("tolerance"),
        at.text("why"),
        at.verdict("verdict"),
        at.counts("branches") if "branches" in at.held else (),
        at.whole("cases") if "cases" in at.held else 1,
    )


@dataclass(frozen=True)
class _Reader:
    """An object of the file, and where it stands, for the message."""

    held: Mapping[str, Any]
    where: str

    def error(self, key: str) -> InvalidInput:
        what = "is missing" if key not in self.held else "is not what theorems verify --json writes"
        return InvalidInput(f"{self.where}: {key} {what}; give a file of theorems verify --json.")

    def field(self, key: str, kind: type) -> Any:
        value = self.held.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.error(key)
        return value

    def text(self, key: str) -> str:
        return str(self.field(key, str))

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.field(key, list)
        if not all(isinstance(value, str) for value in values):
            raise self.error(key)
        return tuple(values)

    def parts(self, key: str) -> Parts:
        try:
            return Parts.of_json(self.field(key, dict))
        except (ValueError, TypeError):
            raise self.error(key) from None

    def whole(self, key: str) -> int:
        return int(self.field(key, int))

    def counts(self, key: str) -> tuple[tuple[str, int], ...]:
        """Return whole numbers by name."""
        return tuple((str(name), n) for name, n in self.field(key, dict).items() if isinstance(n, int))

    def verdict(self, key: str) -> Verdict:
        value = self.text(key)
        if value not in set(Verdict):
            raise self.error(key)
        return Verdict(value)

    def number(self, key: str) -> float:
        value = self.held.get(key, "")
        if value is None:
            return math.nan
        if isinstance(value, str) and value in NUMBERS:
            return NUMBERS[value]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key)
        try:
            return float(value)
        except OverflowError:
            raise self.error(key) from None

    def objects(self, key: str) -> list[_Reader]:
        values = self.field(key, list)
        if not all(isinstance(value, dict) for value in values):
            raise self.error(key)
        return [_Reader(value, f"{self.where}, {key} {k + 1}") for k, value in enumerate(values)]
