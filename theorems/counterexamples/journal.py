"""The journal (file) of a hunt: the observation of each case, so that an interrupted hunt can be continued."""

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
"""Seconds between two lines of the journal during a hunt."""


class HuntJournal:
    """The observations of a hunt's cases, as lines of a journal; without a journal nothing is stored.

    Attributes:
        known: the observations that were in the journal when it was opened.
    """

    def __init__(self, journal: Journal | None) -> None:
        """Read the observations that an earlier process wrote to the journal.

        Raises:
            InvalidInput: a line of the journal does not hold observations.
        """
        self._journal = journal
        self._waiting: list[list[Any]] = []
        self._written = time.monotonic()
        records = [] if journal is None else journal.records
        try:
            self.known = [_parse(entry) for record in records for entry in record["cases"]]
        except (KeyError, TypeError, ValueError):
            path = journal.path if journal else ""
            raise InvalidInput(f"--resume: {path} is damaged; give another file.") from None

    def note(self, observation: Observation) -> None:
        """Record the observation of a case; those of about a second are written together, as one line."""
        if self._journal is None:
            return
        with signals.shield_from_signals():
            self._waiting.append(list(astuple(observation)))
            if time.monotonic() - self._written > EVERY:
                self.write()

    def write(self) -> None:
        """Write the observations that are not written yet."""
        if self._journal is not None and self._waiting:
            self._journal.append({"cases": self._waiting})
            self._waiting, self._written = [], time.monotonic()


def _parse(entry: list[Any]) -> Observation:
    values = numbers(entry)
    kinds = (float, bool, bool, bool, str, bool, float)
    is_valid = len(values) == len(fields(Observation)) and all(
        isinstance(value, (int, float) if kind is float else kind) for value, kind in zip(values, kinds, strict=True)
    )
    if not is_valid:
        raise ValueError("not an observation")
    return Observation(*values)
