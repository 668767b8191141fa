"""The journal of a hunt: an observation of each case, so that a hunt that was cut off goes on where it was."""

from __future__ import annotations

import time
from dataclasses import astuple, fields
from typing import Any

from max_margin_theorems import signals
from reference_attention.errors import InvalidInput
from reference_attention.files import numbers
from theorems.counterexamples.search import Observation
from theorems.run.journal import Journal

EVERY = 1.0
"""Seconds between two lines about a hunt that is under way."""


class HuntJournal:
    """The observed cases of a hunt in its journal; without a journal nothing is kept.

    Attributes:
        known: the observations that the journal held when it was opened.
    """

    def __init__(self, journal: Journal | None) -> None:
        """Read the observations.

        Raises:
            InvalidInput: the journal holds something else.
        """
        self._journal = journal
        self._waiting: list[list[Any]] = []
        self._said = time.monotonic()
        records = [] if journal is None else journal.records
        try:
            self.known = [_parse(entry) for record in records for entry in record["cases"]]
        except (KeyError, TypeError, ValueError):
            path = journal.path if journal else ""
            raise InvalidInput(f"--resume: {path} is damaged; give another file.") from None

    def note(self, looked: Observation) -> None:
        """Keep an observation; those of about a second are written together, as one line."""
        if self._journal is None:
            return
        with signals.shield_from_signals():
            self._waiting.append(list(astuple(looked)))
            if time.monotonic() - self._said > EVERY:
                self.write()

    def write(self) -> None:
        """Write the observations that are not yet written."""
        if self._journal is not None and self._waiting:
            self._journal.append({"cases": self._waiting})
            self._waiting, self._said = [], time.monotonic()


def _parse(entry: list[Any]) -> Observation:
    values = numbers(entry)
    kinds = (float, bool, bool, bool, str, bool, float)
    right = len(values) == len(fields(Observation)) and all(
        isinstance(value, (int, float) if kind is float else kind) for value, kind in zip(values, kinds, strict=True)
    )
    if not right:
        raise ValueError("no case")
    return Observation(*values)
