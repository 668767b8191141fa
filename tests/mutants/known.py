"""What is known of mutants in few bytes, to be kept with the sources: a letter for each mutant of a function."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

from tests.mutants.making import Mutant, Outcome

LETTERS = {"killed": "k", "timeout": "t", "survived": "s"}
"""A mutant that was not faced is a dot."""


def known(path: Path, mutants: Iterable[Mutant]) -> dict[str, Outcome]:
    """Outcomes by id, of all mutants of functions that are as they were; none where there is no file."""
    held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    outcome_of, found = {letter: outcome for outcome, letter in LETTERS.items()}, {}
    for (file, function), own in _by_function(mutants):
        for one, letter in zip(own, held.get(file, {}).get(function, ""), strict=False):
            if letter in outcome_of:
                found[one.id] = Outcome(file, one.function, one.line, one.change, outcome_of[letter], "", 0.0)
    return found


def keep(path: Path, mutants: Iterable[Mutant], outcomes: Mapping[str, Outcome]) -> None:
    """Write the file anew: what it says of files with other mutants stays."""
    held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    files: dict[str, dict[str, str]] = {}
    for (file, function), own in _by_function(mutants):
        letters = "".join(LETTERS[outcomes[one.id].outcome] if one.id in outcomes else "." for one in own)
        if letters.strip("."):
            files.setdefault(file, {})[function] = letters.rstrip(".")
        held.pop(file, None)
    path.write_text(json.dumps(held | files, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def _by_function(mutants: Iterable[Mutant]) -> Iterable[tuple[tuple[str, str], list[Mutant]]]:
    named = sorted(((one.file, f"{one.function} {one.digest}"), one.start, k, one) for k, one in enumerate(mutants))
    return ((key, [one for *_, one in group]) for key, group in groupby(named, key=lambda entry: entry[0]))
