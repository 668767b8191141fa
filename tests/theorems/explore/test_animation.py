"""The animated picture is what the command writes, small, without a script, and says what the flows do."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.places import ROOT
from theorems.core.exit_code import Exit
from theorems.explore.animation import main

PICTURE = ROOT / "docs" / "images" / "explore.svg"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def test_it_is_what_the_command_writes(tmp_path: Path) -> None:
    """Up to a pixel, as flows differ in their last digits from machine to machine."""
    path = tmp_path / "explore.svg"
    assert main([str(path)]) == Exit.UPHELD
    kept, made = (one.read_text(encoding="utf-8") for one in (PICTURE, path))
    assert NUMBER.sub("", made) == NUMBER.sub("", kept)
    apart = np.array(NUMBER.findall(made), dtype=float) - np.array(NUMBER.findall(kept), dtype=float)
    assert np.abs(apart).max() <= 1


def test_it_is_small_and_runs_nothing() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert len(text) < 300_000
    root = ElementTree.fromstring(text)
    kinds = {one.tag.rpartition("}")[2] for one in root.iter()}
    assert kinds == {"svg", "title", "style", "polyline", "circle", "rect", "text", "animate", "set"} & kinds
    assert "href" not in text
    said = [one for one in root.iter() if one.tag.endswith("text") and one.find("{*}animate") is not None]
    assert len(said) == 2, "what the flows do changes on the way"


def test_a_target_that_cannot_be_written_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == Exit.BAD_INPUT
    assert main(["/nowhere/picture.svg"]) == Exit.BAD_INPUT
    assert capsys.readouterr().err.count("theorems: ") == 2
