"""Names of claims: each is declared with its part of the statement and the condition under which the claim is made."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from generators.case import Case
from reference_attention.errors import InvalidInput
from theorems.core.claim import Claim, Form, at_least
from theorems.core.claim_name import ALWAYS, ClaimName, premise, premises, sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.core.parts import Condition, Part
from theorems.core.statement import statement

ONE_INPUT = Condition("n = 1", lambda case: case.problem.n == 1)
GIVEN, SAID, MORE = premise("given"), stated_claim("said"), sharper("more", when=ONE_INPUT)


def conclusion(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """One inequality."""
    yield at_least(SAID, Form.EXACT, 1.0, 0.0, rounding=0.0)


def test_a_statement_reads_its_claims_from_the_declarations() -> None:
    made = statement("declared", claims=(GIVEN, SAID, MORE))(conclusion)
    assert dict(made.claims) == {"given": ALWAYS, "said": ALWAYS, "more": "n = 1"}
    assert (made.states, made.premises) == (("said",), ("given",))
    assert [made.part_of(name) for name in made.claims] == [Part.PREMISE, Part.STATED, Part.SHARPER]
    assert {type(name) for name in (*made.claims, *made.states, *made.premises)} == {str}


def test_a_statement_that_declares_no_stated_claim_has_no_stated_part() -> None:
    assert statement("declared", claims=(GIVEN, MORE))(conclusion).states == ()


def test_claims_and_pickled_names_have_plain_strings_as_names() -> None:
    claim = at_least(MORE, Form.EXACT, 1.0, 0.0, rounding=0.0)
    assert type(claim.name) is str
    assert claim.name == "more"
    sent = pickle.loads(pickle.dumps(MORE))
    assert type(sent) is str
    assert sent == "more"


def test_a_declared_claim_can_be_restricted_to_fewer_cases() -> None:
    fewer = MORE.only("tokens tie")
    assert (fewer, fewer.part, fewer.when) == ("more", Part.SHARPER, "tokens tie; n = 1")
    assert SAID.only(ONE_INPUT).when is ONE_INPUT
    assert MORE.when is ONE_INPUT


@pytest.mark.parametrize(
    ("claims", "options", "message"),
    [
        ((SAID, SAID), {}, "declared twice"),
        ((SAID,), {"states": ("said",)}, "leave out"),
        ((SAID,), {"premises": ("said",)}, "leave out"),
    ],
)
def test_contradictory_declarations_are_refused(
    claims: tuple[ClaimName, ...], options: dict[str, tuple[str, ...]], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        statement("declared", claims=claims, **options)


def test_premises_of_several_objects_are_listed_in_order() -> None:
    class Run:
        def premises(self) -> Iterator[Claim]:
            yield at_least("second", Form.EXACT, 1.0, 0.0, rounding=0.0)

    first, third = (at_least(name, Form.EXACT, 1.0, 0.0, rounding=0.0) for name in ("first", "third"))
    assert [claim.name for claim in premises(first, Run(), [third])] == ["first", "second", "third"]
