"""The stored animation equals the command's output, is small, runs no script, and describes the flows in words."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np

from tests.places import ROOT
from tests.theorems.explore.animation import animation_svg, frames

PICTURE = ROOT / "docs" / "images" / "explore.svg"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def test_the_stored_animation_is_the_output_of_the_command() -> None:
    """Compare coordinates up to a pixel, since the last digits of flows differ between machines."""
    kept, made = PICTURE.read_text(encoding="utf-8"), animation_svg(frames())
    assert NUMBER.sub("", made) == NUMBER.sub("", kept)
    apart = np.array(NUMBER.findall(made), dtype=float) - np.array(NUMBER.findall(kept), dtype=float)
    assert np.abs(apart).max() <= 1


def test_the_animation_is_small_and_runs_no_script() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert len(text) < 300_000
    root = ElementTree.fromstring(text)
    kinds = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert kinds == {"svg", "title", "style", "polyline", "circle", "rect", "text", "animate", "set"} & kinds
    assert "href" not in text
    descriptions = [
        element for element in root.iter() if element.tag.endswith("text") and element.find("{*}animate") is not None
    ]
    assert len(descriptions) == 2, "what the flows do changes on the way"
