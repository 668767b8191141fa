"""Files that tests/fuzz.py damages are read or refused in one sentence, quickly and in little memory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from reference_attention.errors import InvalidInput
from tests.fuzz import Kind, fuzzed, json_changed, kinds

FILES = 300
EXPLAINED = 40
"""Number of damaged files to explain, each of which takes a gradient flow."""


@pytest.fixture(scope="module")
def made() -> dict[str, Kind]:
    return kinds()


@pytest.mark.parametrize("name", ["npz", "json", "explain-npz", "explain-json", "replay", "module"])
def test_damaged_files_are_read_or_refused(made: dict[str, Kind], name: str, tmp_path: Path) -> None:
    count = EXPLAINED if name.startswith("explain") else FILES
    for content in made[name].seeds:
        path = tmp_path / f"whole{made[name].suffix}"
        path.write_bytes(content)
        made[name].read(path)
    result = fuzzed(made[name], count, 0, tmp_path)
    assert not result.wrong
    assert result.read >= max(1, count // 50)
    assert result.refused >= count // 5


def test_a_wrong_reader_is_caught(tmp_path: Path) -> None:
    """The wrong readers raise KeyError, refuse without a message, or refuse in two lines."""

    def crash(path: Path) -> object:
        raise KeyError("X")

    def silent(path: Path) -> object:
        raise InvalidInput("")

    def verbose(path: Path) -> object:
        raise InvalidInput("one line\nand another")

    for read in (crash, silent, verbose):
        result = fuzzed(Kind(".json", (b'{"X": [1, 2]}',), json_changed, read), 3, 0, tmp_path)
        assert result.wrong is not None
        assert len(result.wrong) == 3


def test_the_same_seed_damages_files_in_the_same_way() -> None:
    content = b'{"X": [[1, 2], [3, 4]], "name": "x"}'
    twice = [[json_changed(random.Random(k), content) for k in range(50)] for _ in range(2)]
    assert twice[0] == twice[1]
    assert len({*twice[0]}) > 30
