"""Failures that are known: a file that lists them, strict in both directions, and remembers how much was checked.

A line is an id and the reason, ``lemma-6 the backward pass is an approximation``; a line ``checked lemma-3 9`` says
that nine claims of it were checked. ``#`` begins a comment.
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
"""Of these verdicts claims are counted."""


@dataclass(frozen=True)
class KnownFailures:
    """What a file lists.

    Attributes:
        path: of the file.
        reasons: why it is known to fail, by id.
        claims: how many claims were checked when the file was written, by id.
    """

    path: Path
    reasons: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, int] = field(default_factory=dict)

    def expected_failures(self, found: Iterable[Result]) -> dict[str, str]:
        """The reasons of those that are falsified, as is known."""
        return {
            one.id: self.reasons[one.id] for one in found if one.verdict is Verdict.FALSIFIED and one.id in self.reasons
        }

    def complaints(self, found: Iterable[Result]) -> list[str]:
        """What is not as the file has it, a sentence each. What is inconclusive is told elsewhere, and is no pass."""
        by_id = {one.id: one for one in found}
        said, missing = [], []
        for id in self.reasons:
            one = by_id.get(id)
            if one is not None and one.verdict is Verdict.UPHELD:
                said.append(f"{id} is upheld now; take it out of {self.path}.")
            elif one is None or one.verdict is Verdict.NOT_APPLICABLE:
                said.append(f"{id} stands in {self.path} and was not checked; check it, or take it out.")
        for id, before in self.claims.items():
            one = by_id.get(id)
            now = one.decided_claims if one is not None and one.verdict in DECIDED else 0
            undecided = one is not None and one.verdict is Verdict.INCONCLUSIVE
            if now < before and not undecided:
                missing.append(f"{id} {now} of {before}")
        if missing:
            said.append(f"fewer claims were checked than when {self.path} was written: {', '.join(missing)}.")
        return said


def known_ids() -> list[str]:
    """Every id that a file may list, besides those of the run's own statements."""
    return [*statements(), *capabilities()]


def read(path: Path, ids: Iterable[str]) -> KnownFailures:
    """The file.

    Args:
        ids: those that it may list.

    Raises:
        InvalidInput: it cannot be read; a line with an unknown id, one without a reason, two of the same id.
    """
    try:
        text = read_text(path, "a text file")
    except InvalidInput as error:
        raise InvalidInput(f"--known-failures: {error}") from None
    known = set(ids)
    reasons: dict[str, str] = {}
    claims: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = " ".join(line.split())
        if not line or line.startswith("#"):
            continue
        where = f"--known-failures: {path}, line {number}"
        counts = line.startswith(f"{CHECKED} ")
        id, rest = _id_and_rest(line.removeprefix(f"{CHECKED} "), known)
        if id not in known:
            raise InvalidInput(f"{where}: {id!r} is no id{_nearest(id, known)}; correct it, or take the line out.")
        if id in (claims if counts else reasons):
            raise InvalidInput(f"{where}: {id} stands there twice; take one of the lines out.")
        if counts:
            if not rest.isdecimal():
                raise InvalidInput(f"{where}: {rest!r} is no number of claims; write it as {CHECKED} {id} N.")
            claims[id] = int(rest)
        elif not rest:
            raise InvalidInput(f"{where}: {id} has no reason; say after the id why it is known to fail.")
        else:
            reasons[id] = rest
    return KnownFailures(path, reasons, claims)


def _id_and_rest(line: str, known: Iterable[str]) -> tuple[str, str]:
    """An id may have blanks, of a file's path; the longest that is known is meant."""
    found = [id for id in known if line == id or line.startswith(f"{id} ")]
    id = max(found, key=len, default=line.partition(" ")[0])
    return id, line.removeprefix(id).strip()


def _nearest(id: str, known: Iterable[str]) -> str:
    near = nearest(id, sorted(known), 1)
    return f"; the nearest is {near[0]}" if near else ""


def file_text(found: Sequence[Result], about: str, before: Mapping[str, str]) -> str:
    """The text of a file that a run like this one agrees with.

    Args:
        about: what was run, for a reader.
        before: reasons that somebody has given already, by id.
    """
    lines = [f"# Known failures of {about}, for --known-failures: an id and the reason."]
    for one in found:
        if one.verdict is Verdict.FALSIFIED:
            lines.append(f"{one.id} {before.get(one.id) or ' '.join(one.complaint.split()) or 'falsified'}")
    lines.append("# How many claims were checked: a run that checks fewer fails.")
    lines += [f"{CHECKED} {one.id} {one.decided_claims}" for one in found if one.verdict in DECIDED]
    return "\n".join(lines) + "\n"
