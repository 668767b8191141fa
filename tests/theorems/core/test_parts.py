"""The part of a statement to which a failed claim belongs: premise, the paper's conclusion, or our sharper claims."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from generators.case import Case
from reference_attention.errors import InvalidInput
from reference_attention.problem import Problem
from theorems.core.check import check
from theorems.core.claim import Claim, Form, Verdict, undecided_claim
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.parts import Condition, Parts, merge_parts
from theorems.core.statement import Statement, always, statement
from theorems.core.tolerances import EXACT
from theorems.run.encoding import decode, encode
from theorems.run.registry.suite import statements
from theorems.run.result import Result, merge_results, of_outcome

CASE = Case(Problem([[[1.0], [0.0]]], [[1.0, 0.0]]))
UPHELD, FALSIFIED, INCONCLUSIVE = Verdict.UPHELD, Verdict.FALSIFIED, Verdict.INCONCLUSIVE
SINGLE = Condition("n = 1", lambda case: bool(case.problem.n == 1))
SEVERAL = Condition("n > 1", lambda case: bool(case.problem.n > 1))


def made(name: str, holds: bool = True, form: Form = Form.EXACT) -> Claim:
    return Claim(name, form, 0.0 if holds else -1.0, 0.0, EXACT)


RUN, LIMIT, SHARP = made("run"), made("limit", form=Form.LIMIT), made("sharp", form=Form.SHARP)
NO_RUN, NO_LIMIT = made("run", False), made("limit", False, Form.LIMIT)
NO_SHARP = made("sharp", False, Form.SHARP)
LISTED = always("run", "limit", "sharp") | {"single": SINGLE, "several": SEVERAL, "sometimes": "where it can be"}


def stating(*claims: Claim, states: tuple[str, ...] | None = ("limit",), premises: tuple[str, ...] = ("run",)) -> Any:
    """Return a statement that makes the given claims on every case."""

    @statement("stating", claims=LISTED, states=states, premises=premises)
    def conclusion(case: Case, under_test: Implementation) -> Iterator[Claim]:
        """Make the given claims."""
        yield from claims

    return conclusion


def parts_of(tried: Statement) -> Parts:
    result = check(tried, CASE, REFERENCE)
    assert result.verdict is FALSIFIED
    assert result.parts is not None
    return result.parts


def test_a_failed_sharper_claim_leaves_the_paper_s_conclusion_upheld() -> None:
    tried = stating(RUN, LIMIT, NO_SHARP)
    parts = parts_of(tried)
    assert (parts.stated, parts.premises, parts.sharper) == (UPHELD, UPHELD, FALSIFIED)
    assert parts.forms == {Form.EXACT: UPHELD, Form.LIMIT: UPHELD, Form.SHARP: FALSIFIED}
    result = of_outcome(tried, check(tried, CASE, REFERENCE), generated=False)
    assert result.reason.startswith(
        "sharp (a sharper form of ours; the paper's conclusion is upheld on this case): slack -1"
    )
    assert result.verdict is FALSIFIED
    assert result.verdict_in_words == "falsified (a sharper form only)"
    assert result.as_json()["conclusion"] == {
        "stated": "upheld",
        "premises": "upheld",
        "sharper": "falsified",
        "forms": {"exact": "upheld", "limit": "upheld", "sharp": "falsified"},
    }


def test_a_failed_claim_of_the_paper_falsifies_the_paper_s_conclusion() -> None:
    tried = stating(RUN, NO_LIMIT, SHARP)
    assert parts_of(tried).stated is FALSIFIED
    result = of_outcome(tried, check(tried, CASE, REFERENCE), generated=False)
    assert result.reason.startswith("limit (the paper's own conclusion): slack -1")
    assert result.verdict_in_words == "falsified"
    both = check(stating(RUN, NO_SHARP, NO_LIMIT), CASE, REFERENCE)
    assert both.reason.startswith(
        "sharp (a sharper form of ours; the paper's conclusion is falsified on this case, too)"
    )


def test_a_paper_s_conclusion_that_was_not_reached_is_inconclusive() -> None:
    """The paper's claim was not made, since a sharper claim failed first, or it was undecided."""
    for claims in ([RUN, NO_SHARP], [RUN, undecided_claim("limit", "too far", Form.LIMIT), NO_SHARP]):
        tried = stating(*claims)
        assert parts_of(tried).stated is INCONCLUSIVE
        outcome = check(tried, CASE, REFERENCE)
        assert "the paper's conclusion is not decided on this case" in outcome.reason
        result = of_outcome(tried, outcome, generated=False)
        assert result.verdict_in_words == "falsified (its conclusion is not decided)"


@pytest.mark.parametrize(("states", "stated"), [(("limit", "several"), UPHELD), (("limit", "single"), INCONCLUSIVE)])
def test_a_claim_not_made_counts_only_where_its_condition_holds(states: tuple[str, ...], stated: Verdict) -> None:
    assert parts_of(stating(RUN, LIMIT, NO_SHARP, states=states)).stated is stated


def test_a_condition_that_cannot_be_evaluated_counts_as_holding() -> None:
    assert parts_of(stating(RUN, LIMIT, NO_SHARP, states=("limit", "sometimes"))).stated is INCONCLUSIVE
    assert not SEVERAL.holds(CASE)
    broken = Condition("who knows", lambda case: case.nothing)
    listed = always("sharp") | {"limit": broken}

    @statement("broken", claims=listed, states=("limit",))
    def conclusion(case: Case, under_test: Implementation) -> Iterator[Claim]:
        """Make a single claim, of the form sharp."""
        yield NO_SHARP

    assert parts_of(conclusion).stated is INCONCLUSIVE


def test_where_a_premise_fails_the_conclusion_is_undecided() -> None:
    for limit in (LIMIT, NO_LIMIT):
        tried = stating(NO_RUN, limit)
        assert parts_of(tried).stated is INCONCLUSIVE
        reason = check(tried, CASE, REFERENCE).reason
        assert reason.startswith("run (a premise, not what is concluded; the paper's conclusion is not decided")


def test_a_statement_without_claims_of_the_paper_is_reported_as_ours() -> None:
    tried = stating(RUN, NO_SHARP, states=())
    assert parts_of(tried).stated is None
    assert "(a claim of ours, which the paper does not state)" in check(tried, CASE, REFERENCE).reason


def test_without_declared_parts_all_claims_belong_to_the_conclusion() -> None:
    tried = stating(RUN, LIMIT, NO_SHARP, states=None, premises=())
    parts = parts_of(tried)
    assert (parts.stated, parts.premises, parts.sharper) == (FALSIFIED, None, None)
    assert check(tried, CASE, REFERENCE).reason.startswith("sharp: slack -1")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"states": ("limt",)}, "statement stating: states has 'limt', which is not in claims; list it there."),
        ({"premises": ("rn",)}, "statement stating: premises has 'rn', which is not in claims; list it there."),
        ({"states": "limit"}, "statement stating: states is a text; give a tuple of names of claims."),
        (
            {"states": ("limit", "run")},
            "statement stating: 'run' is in states and in premises; leave it in one of them.",
        ),
    ],
)
def test_unknown_names_of_parts_are_refused(wrong: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput) as error:
        stating(RUN, **wrong)
    assert str(error.value) == sentence


def test_merged_results_report_the_part_of_the_worst_falsified_case() -> None:
    upheld, sharp, limit = (
        of_outcome(tried, check(tried, CASE, REFERENCE), generated=False)
        for tried in (stating(RUN, LIMIT, SHARP), stating(RUN, LIMIT, NO_SHARP), stating(RUN, NO_LIMIT, SHARP))
    )
    assert upheld.conclusion is None
    assert "conclusion" not in upheld.as_json()
    assert merge_results([upheld, sharp]).conclusion == sharp.conclusion
    for order in ([sharp, limit], [limit, sharp]):
        result = merge_results(order).conclusion
        assert result is not None
        assert (result.stated, result.sharper) == (FALSIFIED, FALSIFIED)
    assert merge_parts([]) is None


def test_verdicts_on_parts_are_stored_and_records_without_them_are_read() -> None:
    tried = stating(RUN, LIMIT, NO_SHARP)
    result = of_outcome(tried, check(tried, CASE, REFERENCE), generated=False)
    record = json.loads(json.dumps(encode(result)))
    assert decode(record, Result) == result
    older = {name: value for name, value in record.items() if name != "parts"}
    assert decode(older, Result).conclusion is None
    assert "parts" not in encode(Result("one", "says"))


def test_every_statement_of_a_paper_declares_its_stated_claims() -> None:
    conjectures = {"conjecture-joint-descent", "conjecture-mixing"}
    for theorem in statements().values():
        assert theorem.states is not None, theorem.id
        ours = theorem.source.startswith("own") or theorem.id in conjectures
        assert (theorem.states == ()) == ours, theorem.id
