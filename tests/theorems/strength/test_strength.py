"""The claims of each statement hold on stored cases with the same slack as before.

A bound that became weaker is still upheld, and perhaps still catches all planted faults, so only this test notices it.
Whoever changes a claim, its constants or the points at which it is checked runs ``python -m tests.theorems.strength``,
looks at the output, and stores it with ``--write``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from generators.case import Case
from tests.theorems.strength import claims
from tests.theorems.strength.claims import KEPT, Strength, changes, ids, stored_cases
from theorems.bounded import exact
from theorems.core import claim as core
from theorems.core.claim import Form


@pytest.mark.parametrize("id", ids())
def test_claims_have_their_stored_strength(id: str) -> None:
    assert changes(id) == [], f"if that is meant: python -m tests.theorems.strength {id} --write"


def test_stored_cases_cover_exactly_the_statements() -> None:
    missing = " ".join(sorted(set(ids()) - {path.stem for path in KEPT.iterdir()}))
    assert sorted(path.stem for path in KEPT.iterdir()) == sorted(ids()), f"""
        to keep cases of a new statement: python -m tests.theorems.strength {missing} --write"""
    for id in ids():
        held = list(stored_cases(id))
        assert len(held) >= 2
        assert all(item.claims for item in held)


def weaker(name: str, share: float, cases: int) -> Callable[[str, Case], list[Strength]]:
    """Return a replacement of ``strengths`` in which a claim's slack is larger by a share on the first cases."""
    held, records = claims.strengths, []

    def found(id: str, case: Case) -> list[Strength]:
        records.append(case)
        return [
            replace(item, slack=item.slack * (1 + share))
            if item.slack and item.name == name and len(records) <= cases
            else item
            for item in held(id, case)
        ]

    return found


@pytest.mark.parametrize(
    ("share", "cases", "told"),
    [(0.01, 3, True), (0.01, 2, True), (0.01, 1, False), (0.0005, 3, False), (-0.01, 3, True)],
)
def test_a_slack_that_changed_on_most_cases_is_reported(
    monkeypatch: pytest.MonkeyPatch, share: float, cases: int, told: bool
) -> None:
    """A change of one per cent on most of the three cases is reported, whether the bound is weaker or stronger."""
    monkeypatch.setattr(claims, "strengths", weaker("lipschitz", share, cases))
    assert [line.split(":")[0] for line in changes("lemma-6")] == ["lipschitz"] * told


A = Strength("a", "effective", 0.5, 1e-12)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (A, True),
        (replace(A, tolerance=3e-12), True),
        (replace(A, tolerance=5e-12), False),
        (replace(A, form="limit"), False),
        (replace(A, slack=None, tolerance=None), False),
        (replace(A, slack=0.5004), True),
        (replace(A, slack=0.501), False),
        (replace(A, mean=0.4), False),
    ],
)
def test_strengths_are_equal_up_to_small_changes_of_slack_and_tolerance(other: Strength, same: bool) -> None:
    assert claims._same([A], [other]) is same
    assert not claims._same([A], [other, other])
    assert not claims._same([A], [])


@pytest.mark.parametrize(
    ("form", "mean", "same"), [("limit", 0.305, True), ("limit", 0.31, False), ("exact", 0.9, True)]
)
def test_a_mean_slack_that_changed_is_reported(form: str, mean: float, same: bool) -> None:
    """The slack at the point nearest to failing is unchanged, but the mean over all points is not."""
    a = replace(A, form=form, mean=0.3)
    assert claims._same([a], [replace(a, mean=mean)]) is same


def test_mean_slacks_are_recorded_by_claim() -> None:
    """Differences as shares of the larger side are 1/2, −1/4 and 0; entries that are not finite do not count."""
    with claims.means() as result:
        made = core.at_least(
            "x", Form.EFFECTIVE, np.array([2.0, 3.0, 0.0, np.inf]), np.array([1.0, 4.0, 0.0, 1.0]), rounding=9.0
        )
        assert made.name == "x"
        core.at_least("y", Form.EFFECTIVE, exact(np.array([2.0])), 1.0)
        core.at_least("x", Form.EFFECTIVE, np.zeros(0), 1.0, rounding=0.0)
    assert result == {"x": [pytest.approx(1 / 12), None], "y": [0.5]}
    core.at_least("z", Form.EFFECTIVE, 1.0, 0.0, rounding=0.0)
    assert "z" not in result


def test_differences_that_are_rounding_are_ignored() -> None:
    """Ignored are slacks within a tolerance of rounding size, tiny tolerances, and claims listed as unsteady."""
    a = Strength("a", "exact", 1e-16, 2e-16)
    assert claims._same([a], [replace(a, slack=-1.5e-16)])
    assert not claims._same([a], [replace(a, slack=1e-15)])
    zero = Strength("a", "exact", 0.0, 0.0)
    assert claims._same([zero], [replace(zero, slack=1e-24, tolerance=2e-24)])
    assert not claims._same([replace(A, tolerance=0.3)], [replace(A, tolerance=0.3, slack=0.49)])
    flow = replace(A, name="flow-rate")
    assert claims._same([flow], [replace(flow, slack=1e-16)])
