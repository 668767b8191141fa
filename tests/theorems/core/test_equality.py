"""The claim that two arrays agree within the rounding of both: each entry counts, and both signs of a difference."""

from __future__ import annotations

import numpy as np

from theorems.bounded import Bounded
from theorems.core.claim import Verdict
from theorems.core.equality import equal


def test_a_deviation_in_either_direction_is_falsified() -> None:
    one = Bounded([1.0, 2.0], [1e-9, 1e-9])
    assert equal("x", one, [1.0, 2.0]).verdict is Verdict.UPHELD
    for off in (1e-8, -1e-8):
        for sides in ((one, [1.0, 2.0 + off]), ([1.0, 2.0 + off], one)):
            assert equal("x", *sides).verdict is Verdict.FALSIFIED


def test_the_errors_of_both_sides_are_allowed() -> None:
    assert equal("x", Bounded(1.0, 1e-9), Bounded(1.0 + 1.9e-9, 1e-9)).verdict is Verdict.UPHELD


def test_an_exactly_equal_entry_does_not_hide_a_wrong_one() -> None:
    claim = equal("x", Bounded([0.0, 1.0], [0.0, 1e-9]), [0.0, 1.0])
    assert claim.tolerance > 0
    assert equal("x", Bounded([0.0, 1.0]), [0.0, 1.0]).verdict is Verdict.UPHELD
    assert equal("x", Bounded([0.0, 1.0]), [0.0, 2.0]).verdict is Verdict.FALSIFIED


def test_an_entry_of_unknown_error_does_not_hide_a_wrong_one() -> None:
    unknown = Bounded([1.0, 1.0], [np.inf, 0.0])
    assert equal("x", unknown, [1.0, 2.0]).verdict is Verdict.FALSIFIED
    assert equal("x", unknown, [1.0, 1.0]).verdict is Verdict.INCONCLUSIVE


def test_the_two_sides_of_an_equality_are_broadcast() -> None:
    assert equal("x", Bounded(np.ones((3, 2)), 1e-9), 1.0).verdict is Verdict.UPHELD
