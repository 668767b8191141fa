"""Known failures: a file that lists the statements expected to be falsified, and numbers of claims to be checked.

A run fails, too, if a listed statement is upheld, or if fewer claims are checked than the file says. A line has an id
and a reason, as in ``lemma-6 the backward pass is an approximation``; a line ``checked lemma-3 9`` says that nine
claims of lemma-3 were checked. ``#`` begins a comment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reference_attention.errors import InvalidInput, nearest
from reference_attention.files import read_text
from theorems.core.claim import Verdict
from theorems.run.registry.suite import capabilities, statements
from theorems.run.result import Result

CHECKED = "checked"
DECIDED = (Verdict.UPHELD, Verdict.FALSIFIED)
"""Verdicts of a statement for which the number of its decided claims is recorded and compared."""


@dataclass(frozen=True)
class KnownFailures:
    """Content of a file of known failures.

    Attributes:
        path: the path of the file.
        reasons: for each statement known to fail, by id, the reason why it fails.
        claims: for each statement, by id, the number of claims that were decided when the file was written.
    """

    path: Path
    reasons: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, int] = field(default_factory=dict)

    def expected_failures(self, results: Iterable[Result]) -> dict[str, str]:
        """Return the file's reasons, by id, for the statements that the results falsify and the file lists."""
        return {
            result.id: self.reasons[result.id]
            for result in results
            if result.verdict is Verdict.FALSIFIED and result.id in self.reasons
        }

    def complaints(self, results: Iterable[Result]) -> list[str]:
        """Return a sentence for each difference between the results and the file.

        No sentence is returned for an inconclusive result, which the report of the run shows anyway.
        """
        by_id = {result.id: result for result in results}
        sentences, missing = [], []
        for id in self.reasons:
            result = by_id.get(id)
            if result is not None and result.verdict is Verdict.UPHELD:
                sentences.append(f"{id} is upheld now; take it out of {self.path}.")
            elif result is None or result.verdict is Verdict.NOT_APPLICABLE:
                sentences.append(f"{id} stands in {self.path} and was not checked; check it, or take it out.")
        for id, before in self.claims.items():
            result = by_id.get(id)
            now = result.decided_claims if result is not None and result.verdict in DECIDED else 0
            undecided = result is not None and result.verdict is Verdict.INCONCLUSIVE
            if now < before and not undecided:
                missing.append(f"{id} {now} of {before}")
        if missing:
            sentences.append(f"fewer claims were checked than when {self.path} was written: {', '.join(missing)}.")
        return sentences


def known_ids() -> list[str]:
    """Return every id of the suite that a file of known failures may list."""
    return [*statements(), *capabilities()]


def read(path: Path, ids: Iterable[str]) -> KnownFailures:
    """Read a file of known failures.

    Args:
        path: the path of the file.
        ids: the ids of statements that the file may list.

    Raises:
        InvalidInput: the file cannot be read; a line has an unknown id or no reason; two lines have the same id.
    """
    try:
        text = read_text(path, "a text file")
    except InvalidInput as error:
        raise InvalidInput(f"--known-failures: {error}") from None
    known_ids = set(ids)
    reasons: dict[str, str] = {}
    claims: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = " ".join(line.split())
        if not line or line.startswith("#"):
            continue
        where = f"--known-failures: {path}, line {number}"
        counts = line.startswith(f"{CHECKED} ")
        id, remainder = _id_and_rest(line.removeprefix(f"{CHECKED} "), known_ids)
        if id not in known_ids:
            raise InvalidInput(
                f"{where}: {id!r} is not a known id{_nearest(id, known_ids)}; correct it, or remove the line."
            )
        if id in (claims if counts else reasons):
            raise InvalidInput(f"{where}: {id} is listed twice; remove one of the lines.")
        if counts:
            if not remainder.isdecimal():
                raise InvalidInput(f"{where}: {remainder!r} is not a number of claims; write {CHECKED} {id} N.")
            claims[id] = int(remainder)
        elif not remainder:
            raise InvalidInput(f"{where}: {id} has no reason; write after the id why it is known to fail.")
        else:
            reasons[id] = remainder
    return KnownFailures(path, reasons, claims)


def _id_and_rest(line: str, known_ids: Iterable[str]) -> tuple[str, str]:
    """Split a line into the longest known id with which it begins (an id may contain blanks) and the remaining text."""
    matches = [id for id in known_ids if line == id or line.startswith(f"{id} ")]
    id = max(matches, key=len, default=line.partition(" ")[0])
    return id, line.removeprefix(id).strip()


def _nearest(id: str, known_ids: Iterable[str]) -> str:
    near = nearest(id, sorted(known_ids), 1)
    return f"; the nearest is {near[0]}" if near else ""


def file_text(results: Sequence[Result], about: str, before: Mapping[str, str]) -> str:
    """Return the text of the file of known failures that agrees with these results.

    Args:
        results: the results.
        about: a description of what was run, for the comment at the top of the file.
        before: reasons from an earlier file, by statement id, which are kept.
    """
    lines = [f"# Known failures of {about}, for --known-failures: an id and the reason."]
    for result in results:
        if result.verdict is Verdict.FALSIFIED:
            lines.append(f"{result.id} {before.get(result.id) or ' '.join(result.complaint.split()) or 'falsified'}")
    lines.append("# How many claims were checked: a run that checks fewer fails.")
    lines += [f"{CHECKED} {result.id} {result.decided_claims}" for result in results if result.verdict in DECIDED]
    return "\n".join(lines) + "\n"
