"""Features of data are decided on the numbers: each is recognised where it is present, and nowhere else."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from generators.case import Case
from generators.case_statistics import drawn_shares
from generators.data_features import OF_FEATURES, apart_in_one_coordinate, features_of
from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset

REPORTED: list[list[float]] = [
    [0, 0, 0, 0, 0],
    [-1, 0, 0, -2, -5],
    [-0.87, 0, 1.49, -1.98, -5],
    [-1.78, 0, 0, 1.95, -2.34],
    [0.02, -1.85, 0, 1.78, -5],
    [-1, 0.29, 0, -2, -5],
]
"""Keys from a report of a false alarm: a support was copied and moved in the coordinate where p_mm is zero."""

LOOKS: dict[str, Any] = {
    "zeros and ones": [[1.0, 0.0], [0.0, 1.0]],
    "decimals": [[0.25, 1.37], [-0.004, 0.0]],
    "numbers of float16": [[float(np.float16(0.1)), 1.0], [2.5, float(np.float16(math.pi))]],
    "numbers of bfloat16": [[0.0037384033203125, 1.0], [3.140625, 0.0]],
    "k/255": [[7 / 255, 0.0], [1.0, 254 / 255]],
    "weighted counts": [[2 * math.log(3), 0.0], [0.0, 0.0], [0.0, math.log(3)], [0.0, 0.0]],
}


@pytest.mark.parametrize("name", LOOKS)
def test_each_kind_of_numbers_has_only_its_own_feature(name: str) -> None:
    x = np.array([LOOKS[name]])
    result = {look for look in LOOKS if OF_FEATURES[look](x)}
    assert result == {name}
    assert OF_FEATURES["numbers as users have them"](x)
    x[0, 0, 0] += 2.0**-40
    assert name == "weighted counts" or not OF_FEATURES[name](x)


def test_decimals_in_other_units_are_recognised() -> None:
    for unit in (1e-3, 1e3):
        assert OF_FEATURES["decimals"](np.array([[[1.234 * unit, 0.01 * unit]]])) == (unit < 1)
    assert OF_FEATURES["columns in other units"](np.array([[[1.0, 1000.0]]]))
    assert not OF_FEATURES["columns in other units"](np.array([[[1.0, 99.0]]]))
    assert OF_FEATURES["columns in other units"](np.array([[[1.0]]])) is None


def test_data_of_small_fractions_have_no_feature() -> None:
    x = np.array([[[0.5, -3.0], [2.0, 1.0]]])
    assert not OF_FEATURES["numbers as users have them"](x)
    assert not OF_FEATURES["coordinate mostly zero"](x)
    assert not OF_FEATURES["constant coordinate"](x)


def test_the_features_of_a_reported_data_set_are_recognised() -> None:
    case = Case(Problem(np.array([REPORTED]), np.array([[0.0, -1, -1, -1, -1, -1]])))
    shares = {name: str(share) for name, share in drawn_shares("some", [case]).shares.items()}
    seen = (
        "decimals",
        "coordinate mostly zero",
        "degenerate duals",
        "apart in one coordinate, p_mm does not",
        "scores of three levels",
    )
    assert [shares[name] for name in seen] == ["1/1"] * len(seen)
    assert shares["apart in one coordinate, p_mm uses it"] == "0"
    assert shares["constant coordinate"] == "0"
    assert shares["repeated input"] == ""


def test_copies_constants_and_repeats_are_recognised() -> None:
    keys = np.array([[[1.0, 4.0], [0.0, 4.0]]] * 2)
    twice = drawn_shares("some", [Case(Problem(keys, np.array([[1.0, 0.0]] * 2)))]).shares
    assert [str(twice[name]) for name in ("repeated input", "constant coordinate")] == ["1/1", "1/1"]
    assert str(twice["apart in one coordinate, p_mm uses it"]) == "1/1"
    assert str(twice["apart in one coordinate, p_mm does not"]) == "0"
    # A copy of an input with other scores is another input.
    assert (
        str(drawn_shares("some", [Case(Problem(keys, np.array([[1.0, 0.0], [2.0, 0.0]])))]).shares["repeated input"])
        == "0"
    )
    assert apart_in_one_coordinate(np.array([[[1.0, 2.0], [1.0, 3.0], [0.0, 3.0]]])).sum() == 4


def test_features_of_data_with_queries_do_not_depend_on_scores() -> None:
    data = QueryDataset([[[1.0, 0.3], [0.0, 0.7]]], [[1.0, 0.5]], [1.0], [1.0, 0.0])
    assert features_of(Case(data.problem, queried=data)).tolist() == [[[0.3], [0.7]]]
