"""Claims and the registry: a claim that is vacuous, a NaN or an unknown tolerance never passes."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from generators.assumptions import ASSUMPTIONS
from generators.case import Case
from max_margin_theorems import papers
from reference_attention.errors import InvalidInput
from reference_attention.floats import EPS
from tests.theorems.fake_statements import small_cases
from theorems.bounded import Bounded
from theorems.core.claim import (
    Claim,
    Form,
    NotANumber,
    Undecided,
    Verdict,
    at_least,
    undecided_claim,
    unless_limit_is_open,
)
from theorems.core.claim_name import sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.core.statement import Statement, statement
from theorems.core.tolerances import TOLERANCES
from theorems.run.registry import suite
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.suite import statements, tolerances_of

FLOATS = st.floats(-10, 10)


@given(slack=FLOATS, tolerance=st.floats(0, 10))
def test_verdict_of_a_claim(slack: float, tolerance: float) -> None:
    claim = Claim("x", Form.EXACT, slack, tolerance, "exact")
    assert claim.verdict is (Verdict.UPHELD if slack + tolerance >= 0 else Verdict.FALSIFIED)
    assert Claim("x", Form.EXACT, slack, tolerance, "exact", undecided="why").verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("slack", "tolerance"), [(math.nan, 1.0), (1.0, math.nan), (math.nan, math.nan)])
def test_nan_never_upholds_a_claim(slack: float, tolerance: float) -> None:
    assert Claim("x", Form.EXACT, slack, tolerance, "exact").verdict is Verdict.INCONCLUSIVE
    assert Claim("x", Form.EXACT, -math.inf, 1.0, "exact").verdict is Verdict.FALSIFIED


def test_an_implementation_that_returns_nan_is_falsified() -> None:
    (claim,) = NotANumber("x", "the gradient under test is not finite").claims
    assert claim.verdict is Verdict.FALSIFIED
    assert "not finite" in claim.detail


def test_an_infinite_tolerance_never_upholds_a_claim() -> None:
    assert Claim("x", Form.LIMIT, -1.0, math.inf, "rounding").verdict is Verdict.INCONCLUSIVE
    everywhere = at_least("x", Form.EFFECTIVE, [0.0, 1.0], 2.0, rounding=math.inf, why="rounding")
    assert everywhere.verdict is Verdict.INCONCLUSIVE
    elsewhere = at_least("x", Form.EFFECTIVE, [0.0, 3.0], 2.0, rounding=[math.inf, 0.0], why="rounding")
    assert elsewhere.verdict is Verdict.UPHELD


def test_a_negative_tolerance_is_refused_and_falsifies_nothing() -> None:
    with pytest.raises(ValueError, match="claim x: its tolerance is -3"):
        at_least("x", Form.EFFECTIVE, 1.0, 0.0, rounding=-3.0, why="rounding")


def test_a_claim_between_bounded_arrays_needs_no_tolerance() -> None:
    left = Bounded([1.0, 5.0, 3.0], [0.5, 0.0, np.inf])
    upheld = at_least("x", Form.EFFECTIVE, left, [1.25, 5.0, 9.0])
    assert upheld.verdict is Verdict.UPHELD
    assert upheld.why == "rounding"
    assert at_least("x", Form.EFFECTIVE, left, 1.25).detail.startswith("1 ≥ 1.25 at point 0 of 3")
    assert at_least("x", Form.EFFECTIVE, left, [1.75, 5.0, 0.0]).verdict is Verdict.FALSIFIED
    assert at_least("x", Form.EFFECTIVE, 1.0, Bounded(1.0) + 2 * EPS).verdict is Verdict.FALSIFIED
    assert at_least("x", Form.EFFECTIVE, left[2:], 0.0).verdict is Verdict.INCONCLUSIVE
    assert at_least("x", Form.EFFECTIVE, left[:0], 0.0).verdict is Verdict.INCONCLUSIVE
    assert at_least("x", Form.EFFECTIVE, -np.inf, left[:1]).verdict is Verdict.FALSIFIED
    for sides, rounding in (((left, 0.0), 1.0), ((1.0, 0.0), None)):
        with pytest.raises(TypeError, match="claim x: give rounding= if both sides are plain numbers"):
            at_least("x", Form.EFFECTIVE, *sides, rounding=rounding)


def test_a_tolerance_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="no tolerance named 'because'"):
        Claim("x", Form.EXACT, 1.0, 1e-2, "because")


@given(st.lists(st.tuples(FLOATS, FLOATS, st.floats(0, 1)), min_size=1, max_size=6))
def test_at_least_reports_the_worst_entry(entries: list[tuple[float, float, float]]) -> None:
    left, right, rounding = np.array(entries).T
    claim = at_least("x", Form.EXACT, left, right, rounding=rounding, why="rounding")
    told = left != right if (left != right).any() else left == right
    assert claim.slack + claim.tolerance == (left - right + rounding)[told].min()
    assert (claim.verdict is Verdict.UPHELD) == bool((left - right >= -rounding).all())


def test_at_least_without_points_is_undecided() -> None:
    claim = at_least("x", Form.EXACT, np.empty(0), 0.0, rounding=0.0, why="exact", points="iterate")
    assert claim.verdict is Verdict.INCONCLUSIVE
    assert "no iterate" in claim.undecided


def test_at_least_with_a_nan_is_undecided_unless_another_entry_fails() -> None:
    left = np.array([5.0, math.nan, -1.0])
    assert at_least("x", Form.EXACT, left, -2.0, rounding=0.0, why="exact").verdict is Verdict.INCONCLUSIVE
    assert at_least("x", Form.EXACT, 5.0, 0.0, rounding=np.abs(left), why="exact").verdict is Verdict.INCONCLUSIVE
    # The NaN must not hide the entry that fails.
    assert at_least("x", Form.EXACT, left, 0.0, rounding=0.0, why="exact").verdict is Verdict.FALSIFIED


def test_an_entry_with_equal_sides_does_not_hide_the_others() -> None:
    claim = at_least("x", Form.EFFECTIVE, [0.0, 1.5, 9.0], [0.0, 1.0, 1.0], rounding=1e-15, why="rounding")
    assert (claim.slack, claim.verdict) == (0.5, Verdict.UPHELD)
    alone = at_least("x", Form.EFFECTIVE, [0.0, 3.0], [0.0, 3.0], rounding=1e-15, why="rounding")
    assert (alone.slack, alone.verdict) == (0.0, Verdict.UPHELD)
    unknown = at_least("x", Form.EFFECTIVE, [2.0, 5.0], [2.0, 1.0], rounding=[0.0, np.inf], why="rounding")
    assert (unknown.slack, unknown.verdict) == (0.0, Verdict.UPHELD)
    failed = at_least("x", Form.EFFECTIVE, [2.0, 5.0], [2.0, 6.0], rounding=1e-15, why="rounding")
    assert (failed.slack, failed.verdict) == (-1.0, Verdict.FALSIFIED)


def test_a_statement_is_registered_where_it_is_defined() -> None:
    def conclusion(case: Case, under_test: Implementation) -> Iterator[Claim]:
        """What it says."""
        yield Claim("x", Form.EXACT, 1.0, 0.0, "exact")

    made = statement("lemma-99", "a title", source="here", assumptions=(), cases=small_cases)(conclusion)
    assert isinstance(made, Statement)
    assert made.text == "What it says."
    assert statement("lemma-99", assumptions=())(conclusion).title == "What it says"
    for id, needed in (("queries-given", {"queries-given"}), ("single-input", set())):
        assert set(statement("lemma-97", assumptions=(id,), cases=small_cases)(conclusion).needs) == needed
    conclusion.__doc__ = None
    with pytest.raises(InvalidInput, match="no docstring"):
        statement("lemma-98", "silent", source="here", assumptions=(), cases=small_cases)(conclusion)


def test_two_statements_of_one_id_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("theorems.twin")
    twin = replace(statement_named("lemma-3"), conclusion=lambda case, under_test: iter(()))
    twin.conclusion.__module__ = module.__name__
    module.__dict__["twin"] = twin
    known = list(papers.modules_of("theorems.token_selection"))
    monkeypatch.setattr(papers, "modules_of", lambda room, apart: [*known, module])
    suite.statements.cache_clear()
    with pytest.raises(ValueError, match=r"statement lemma-3 is defined twice, the second time in theorems\.twin"):
        statements()
    monkeypatch.undo()
    assert statements()["lemma-3"] is not twin


def test_a_conclusion_that_stops_early_makes_an_undecided_claim_first() -> None:
    def conclusion(case: Case, under_test: Implementation) -> Iterator[Claim]:
        """It stops halfway."""
        yield Claim("first", Form.EXACT, 1.0, 0.0, "exact")
        raise Undecided("second", "no solution", Form.LIMIT)

    made = statement("lemma-99", assumptions=(), cases=small_cases)(conclusion)
    first, second = made.conclusion(None, None)  # type: ignore[arg-type]
    assert first.verdict is Verdict.UPHELD
    assert (second.name, second.form, second.undecided) == ("second", Form.LIMIT, "no solution")
    assert second.verdict is Verdict.INCONCLUSIVE


def test_unknown_ids_are_refused_with_the_nearest_three() -> None:
    with pytest.raises(
        InvalidInput, match=r"'lemma-0' is not a statement\. Did you mean 'lemma-[0-9]+', .* or 'lemma-[0-9]+'\?"
    ):
        statement_named("lemma-0")


def test_statements_are_in_the_order_of_the_paper() -> None:
    ids = ["lemma-10", "theorem-2", "lemma-3", "other", "theorem-1", "lemma-1"]
    random.Random(0).shuffle(ids)
    assert sorted(ids, key=suite.in_order) == ["lemma-1", "lemma-3", "lemma-10", "theorem-1", "theorem-2", "other"]


# ---- every statement of the suite ------------------------------------------------------------------------


@pytest.mark.parametrize("id", statements())
def test_every_statement_is_well_formed(id: str) -> None:
    one = statements()[id]
    assert re.fullmatch(r"[a-z]+(-[a-z0-9]+)+", id)
    assert one.title
    assert one.source
    assert set(one.assumptions) <= {*ASSUMPTIONS, *one.own_assumptions}
    assert len(one.text.strip().splitlines()) >= 2, "the docstring states the theorem and derives its forms"
    assert tolerances_of(one).keys() <= TOLERANCES.keys()
    assert tolerances_of(one), "a statement without a reason for its tolerances"


def test_ids_and_aliases_are_unique() -> None:
    names = [name for theorem in statements().values() for name in (theorem.id, *theorem.aliases)]
    assert len(names) == len(set(names))
    for theorem in statements().values():
        for name in (theorem.id, *theorem.aliases):
            assert statement_named(name) is theorem


def test_slack_and_tolerance_are_in_the_same_unit() -> None:
    claim = at_least("a", Form.EFFECTIVE, [3.0], [1.0], rounding=0.5, scale=4.0, why="rounding")
    assert (claim.slack, claim.tolerance) == (0.5, 0.125)


def test_a_claim_with_one_nan_is_undecided() -> None:
    nan = float("nan")
    for left, rounding in (([nan, 5.0], [0.0, 0.0]), ([5.0, 5.0], [0.0, nan]), ([5.0, nan], [0.0, 0.0])):
        claim = at_least("a", Form.EFFECTIVE, left, 0.0, rounding=rounding, why="rounding")
        assert claim.verdict is Verdict.INCONCLUSIVE


def test_a_claim_without_entries_is_undecided_with_tolerance_zero() -> None:
    claim = at_least("a", Form.EFFECTIVE, [], 0.0, rounding=0.0, why="rounding")
    assert claim.verdict is Verdict.INCONCLUSIVE
    assert (claim.slack, claim.tolerance) == (0.0, 0.0)


def refinement(*claims: Claim) -> Claim:
    """Return the claim "offset", which refines the claim "direction", from a conclusion that makes the given claims."""
    conclusion = unless_limit_is_open(lambda: iter(claims), {"offset": "direction"})
    return next(claim for claim in conclusion() if claim.name == "offset")


def verdict_of_refinement(*claims: Claim) -> Verdict:
    return refinement(*claims).verdict


def test_a_sharper_claim_is_not_judged_where_its_limit_is_undecided() -> None:
    limit = Claim("direction", Form.LIMIT, 0.0, 0.0, "exact")
    open_limit = undecided_claim("direction", "no minimiser was found", Form.LIMIT)
    wrong = Claim("offset", Form.SHARP, -1.0, 0.0, "exact")
    assert verdict_of_refinement(limit, wrong) is Verdict.FALSIFIED
    assert verdict_of_refinement(wrong, limit) is Verdict.FALSIFIED
    assert verdict_of_refinement(replace(limit, slack=-1.0), wrong) is Verdict.FALSIFIED
    assert verdict_of_refinement(open_limit, wrong) is Verdict.INCONCLUSIVE
    assert verdict_of_refinement(wrong, open_limit) is Verdict.INCONCLUSIVE
    assert verdict_of_refinement(limit, open_limit, wrong) is Verdict.INCONCLUSIVE
    assert verdict_of_refinement(open_limit, limit, wrong) is Verdict.INCONCLUSIVE
    assert verdict_of_refinement(wrong) is Verdict.INCONCLUSIVE


def test_a_sharper_claim_counts_as_not_found_if_its_limit_was_not_found() -> None:
    wrong = Claim("offset", Form.SHARP, -1.0, 0.0, "exact")
    undecided = undecided_claim("direction", "float64 does not resolve it", Form.LIMIT)
    searched = undecided_claim("direction", "no minimiser was found", Form.LIMIT, not_found=True)
    assert refinement(searched, wrong).not_found
    assert refinement(wrong, searched).not_found
    assert not refinement(undecided, wrong).not_found
    assert not refinement(searched, undecided, wrong).not_found
    assert not refinement(wrong).not_found


def test_a_statement_lists_the_limits_that_its_claims_refine() -> None:
    limit, offset = stated_claim("direction"), sharper("offset", refines="direction")

    @statement("x", claims=(limit, offset), cases=small_cases)
    def conclusion(case: Case, under_test: Implementation) -> Iterator[Claim]:
        """Make an undecided claim and a falsified one."""
        yield undecided_claim(limit, "no path", Form.LIMIT)
        yield Claim(offset, Form.SHARP, -1.0, 0.0, "exact")

    assert conclusion.refines == {"offset": "direction"}
    assert conclusion.declarations[1].refines == "direction"
    with pytest.raises(InvalidInput, match="refines 'direction'; name a listed claim"):
        statement("x", claims=(offset,), cases=small_cases)
