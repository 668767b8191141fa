"""Data for the page: named datasets, files, recorded counterexamples and links, and the lists to choose from."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from generators.case import Case
from generators.datasets import DATASETS
from generators.user_data import load, refuse_several_lengths
from reference_attention.errors import InvalidInput
from reference_attention.files import read_named_values
from theorems.core.recorded_files import COUNTEREXAMPLES
from theorems.counterexamples import record
from theorems.explore.link import is_link, unpack_link
from theorems.explore.state import State, state_of

FIRST = "figure-8"
"""The data set that the page shows by default, with two inputs, two starts and two directions."""
OF_ATTENTION = re.compile('"case": {[^}]*"(?:keys|X)": ')
"""Pattern that occurs in a counterexample's file if its data can be drawn."""
OF_HUNTS = {"statement", "without", "case"}
"""Keys that the JSON file of every counterexample contains."""


def state_named(source: str) -> State:
    """Return the state for a named dataset, a recorded counterexample, a file or a link.

    Raises:
        InvalidInput: ``source`` is none of these, or cannot be drawn.
    """
    if is_link(source):
        return unpack_link(source)
    recorded = COUNTEREXAMPLES / f"{source}.json"
    if source in counterexamples():
        return _state_on(source, record.load(recorded).case.replace(name=source))
    path = Path(source)
    if path.suffix == ".json" and path.is_file() and set(read_named_values(path)) >= OF_HUNTS:
        return _state_on(source, record.load(path).case)
    return _state_on(source, load(source, 0).case)


def _state_on(source: str, subject: object) -> State:
    if not isinstance(subject, Case):
        raise InvalidInput(f"{source}: the page shows only data of attention; give keys and scores, or tokens X.")
    refuse_several_lengths(subject)
    return state_of(subject)


def state_in_file(name: str, content: bytes) -> State:
    """Return the state for a file whose content is given as bytes.

    Raises:
        InvalidInput: as :func:`state_named`, with the name of the file.
    """
    plain = Path(name).name or "file"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / plain
        path.write_bytes(content)
        try:
            state = state_named(str(path))
        except InvalidInput as error:
            raise InvalidInput(str(error).replace(str(path), plain)) from None
    return state.but(case=state.case.replace(name=plain))


def counterexamples() -> list[str]:
    """Return the names of the recorded counterexamples, STATEMENT-without-ASSUMPTION.

    Records without a counterexample, and data that cannot be drawn, are left out.
    """
    paths = sorted(COUNTEREXAMPLES.glob("*.json"))
    texts = {path.stem: path.read_text(encoding="utf-8") for path in paths}
    return [name for name, text in texts.items() if '"none_found"' not in text and OF_ATTENTION.search(text)]


def datasets() -> list[str]:
    """Return the names of the datasets that can be drawn."""
    return list(DATASETS)
