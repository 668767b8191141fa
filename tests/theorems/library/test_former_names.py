"""Former public names work for one more version, with a warning that gives the new name."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from generators.case import Case
from reference_attention.problem import Problem
from reference_attention.risk import softmax_weights
from reference_attention.svm.max_margin import max_margin
from theorems.bounded import Bounded
from theorems.core.former_functions import _FUNCTIONS, function_named
from theorems.core.implementation import REFERENCE

PROBLEM = Problem(np.eye(2)[None], np.array([[1.0, 0.0]]))
ATTRIBUTES = [
    (Case(PROBLEM), "chosen", "chosen_tokens"),
    (Case(PROBLEM), "normalised", "normalise"),
    (Case(PROBLEM), "but", "replace"),
    (PROBLEM, "selected_by", "selection_at"),
    (Bounded(np.ones(2)), "widened", "widen"),
]


@pytest.mark.parametrize(("owner", "former", "name"), ATTRIBUTES, ids=lambda x: x if isinstance(x, str) else "")
def test_former_attributes_warn_and_work(owner: Any, former: str, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"\.{former} is now \w+\.{name}") as caught:
        result = getattr(owner, former)
    assert caught[0].filename == __file__
    assert np.array_equal(result, getattr(owner, name)) if former == "chosen" else result == getattr(owner, name)


@pytest.mark.parametrize(
    ("module", "former", "name"),
    [
        ("theorems", "drawn", "draws"),
        ("theorems", "rounded", "with_rounding"),
        ("theorems.api", "rounded", "with_rounding"),
    ],
)
def test_former_names_of_modules_warn_and_work(module: str, former: str, name: str) -> None:
    place = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{module}.{former} is now {module}.{name}"):
        assert getattr(place, former) is getattr(place, name)


def test_former_attributes_and_options_of_an_implementation_warn_and_work() -> None:
    """The warnings on an attribute, and on an argument of ``replace``, both point to the line of the user's file."""
    with pytest.warns(DeprecationWarning, match=r"\.max_margin is now Implementation\[max_margin\]") as attribute:
        assert REFERENCE.max_margin is max_margin  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match=r"\.weights is now Implementation\[softmax_weights\]") as argument:
        replaced = REFERENCE.replace("", weights=min, own={max_margin: max})
    assert [warning.filename for caught in (attribute, argument) for warning in caught] == [__file__] * 2
    assert (replaced[softmax_weights], replaced[max_margin]) == (min, max)
    assert all(callable(function_named(former)) for former in _FUNCTIONS)
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'; ask for a function f by under_test\[f\]"):
        REFERENCE.nothing  # type: ignore[attr-defined]  # noqa: B018
