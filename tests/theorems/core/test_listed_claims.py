"""Each statement lists its claims: making an unlisted one is an error, and a listed one that is never made
is reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from generators.case import Case
from reference_attention.problem import Problem
from tests.theorems.fake_statements import FAKES, fake_statement, install
from theorems.command.app import main
from theorems.core.check import check
from theorems.core.claim import Claim, Form, Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.statement import ALWAYS, Statement, always, statement
from theorems.core.tolerances import EXACT
from theorems.run.registry.suite import statements
from theorems.run.verify import draw_cases, verify_generated

CHEAP = ("lemma-3", "lemma-5", "lemma-8", "lemma-9", "lemma-10", "lemma-11", "lemma-14")
EXAMPLES = 20


@pytest.mark.parametrize("id", statements())
def test_every_statement_of_the_suite_lists_its_claims(id: str) -> None:
    claims = statements()[id].claims
    assert claims
    assert all(name and when for name, when in claims.items())


@pytest.mark.parametrize("id", CHEAP)
def test_a_statement_makes_exactly_the_claims_that_it_lists(id: str) -> None:
    """Each listed claim is made; an unlisted claim would be an error, which makes the verdict inconclusive."""
    result = verify_generated(id, EXAMPLES, 0)
    assert result.verdict is Verdict.UPHELD, result.reason
    assert result.never_made == ()
    unconditional = {name for name, when in statements()[id].claims.items() if when == ALWAYS}
    counts = {claim.name: claim.cases for claim in result.claims}
    assert {name for name in unconditional if counts[name] < EXAMPLES} == set()
    assert {name for name, count in counts.items() if count < EXAMPLES} <= set(counts) - unconditional


@pytest.mark.parametrize("id", [id for id in statements() if id not in CHEAP])
def test_the_claims_made_on_a_case_are_among_those_listed(id: str) -> None:
    one = statements()[id]
    outcome = check(one, draw_cases(one, 1, 0)[0], REFERENCE)
    assert outcome.verdict in (Verdict.UPHELD, Verdict.NOT_APPLICABLE), outcome.reason
    missing = {name for name, when in one.claims.items() if when == ALWAYS} - {claim.name for claim in outcome.claims}
    assert outcome.verdict is Verdict.NOT_APPLICABLE or missing == set()


@statement("two-claims", claims=always("first") | {"never": "where pigs fly"})
def two_claims(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make the first of two listed claims, and for three tokens a claim that is not listed."""
    yield Claim("first", Form.EXACT, 0.0, 0.0, EXACT)
    if case.problem.T == 3:
        yield Claim("unlisted", Form.EXACT, 0.0, 0.0, EXACT)


def _case(tokens: int) -> Case:
    return Case(Problem(np.zeros((1, tokens, 1)), np.zeros((1, tokens))))


def test_a_claim_that_is_not_listed_is_an_error() -> None:
    assert check(two_claims, _case(2), REFERENCE).verdict is Verdict.UPHELD
    outcome = check(two_claims, _case(3), REFERENCE)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "unlisted is not among the claims that two-claims lists" in outcome.reason


def _never(id: str, claims: dict[str, str]) -> Statement:
    return replace(fake_statement(id, FAKES["true"].conclusion), claims=claims)


def test_a_claim_that_was_never_made_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    listed = always("sum-at-least-one", "sum-at-most-one") | {"rare": "where pigs fly"}
    install(
        monkeypatch.setattr,
        {
            "complete": _never("complete", always("sum-at-least-one", "sum-at-most-one")),
            "rarely": _never("rarely", listed),
        },
    )
    assert verify_generated("complete", 5, 0).never_made == ()
    assert verify_generated("rarely", 5, 0).never_made == ("rare",)
    path = tmp_path / "results.json"
    assert main(["verify", "complete", "rarely", "--examples", "5", "--jobs", "1", "--json", str(path)]) == 0
    out = capsys.readouterr().out
    assert "rarely: claims checked on none of 5 examples: rare" in out
    assert "complete: never made" not in out
    assert [statement["never_made"] for statement in json.loads(path.read_text())["statements"]] == [[], ["rare"]]
    assert main(["show", "rarely"]) == 0
    assert "where pigs fly" in capsys.readouterr().out
