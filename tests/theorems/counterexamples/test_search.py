"""Hunts: the same seed gives the same small counterexample, true statements are not refuted, and no counterexample
found is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from generators.case import Case
from generators.finding import Finding
from generators.user_data import as_text
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from tests.theorems.fake_statements import small_cases
from theorems.core.claim import Claim, Form, Verdict
from theorems.core.implementation import Implementation
from theorems.counterexamples.check import FAR, CaseCheck, examine
from theorems.counterexamples.record import as_record
from theorems.counterexamples.search import Effort, Hunt, Observation
from theorems.counterexamples.weakened_statements import weakened_named
from theorems.run.registry.lookup import statement_named
from theorems.without.flow_claims import direction_claims, norm_claim
from theorems.without.weakening import Weakened

SINGLE = ("theorem-2", "single-input")


def hunted_anew(seed: int) -> Hunt:
    hunt = Hunt(weakened_named(*SINGLE), seed, 300.0)
    hunt.run()
    return hunt


hunted = cache(hunted_anew)


@pytest.mark.parametrize("seed", [1, 7])
def test_theorem_2_with_two_inputs_is_refuted_by_integers_or_halves(seed: int) -> None:
    hunt = hunted(seed)
    assert hunt.found is not None
    assert hunt.finished
    problem = hunt.found.problem
    assert (problem.n, problem.T, problem.d) == (2, 2, 2)
    start = np.zeros(2) if hunt.found.start is None else hunt.found.start
    numbers = np.concatenate([problem.keys.ravel(), problem.scores.ravel(), start])
    assert np.array_equal(2 * numbers, np.rint(2 * numbers))
    assert examine(hunt.weakened, hunt.found, guided=False).is_counterexample


def test_a_search_with_the_same_seed_finds_the_same_counterexample() -> None:
    texts = []
    for hunt in (hunted(7), hunted_anew(7)):
        assert hunt.found is not None
        assert hunt.examined is not None
        texts.append(as_record(hunt.weakened, hunt.found, hunt.examined, 7))
    assert texts[0] == texts[1]


def test_a_counterexample_with_two_inputs_is_none_with_one_of_them() -> None:
    hunt = hunted(7)
    assert hunt.found is not None
    problem = hunt.found.problem
    alone = hunt.found.replace(problem=Problem(problem.keys[:1], problem.scores[:1], problem.loss))
    observation = examine(hunt.weakened, alone, guided=False)
    assert not observation.is_counterexample
    assert "single-input holds" in observation.refusal
    # The dropped assumption matters: with it, that is, for one input, the conclusion holds.
    start = np.zeros(problem.d) if alone.start is None else alone.start
    claims = list(direction_claims(alone.problem, start, Implementation(), alone.problem.optimal))
    assert {c.verdict for c in claims} == {Verdict.UPHELD}


@pytest.mark.parametrize("id", ["lemma-5", "lemma-11"])
def test_a_complete_statement_is_not_refuted(id: str) -> None:
    hunt = Hunt(weakened_named(id, ""), 0, 300.0, cases=25)
    hunt.run()
    assert hunt.found is None
    assert hunt.effort.tried == 25


def test_ctrl_c_keeps_the_counterexample_found() -> None:
    def interrupted(effort: Effort) -> None:
        if effort.shrinking == 12:
            raise KeyboardInterrupt

    hunt = Hunt(weakened_named(*SINGLE), 7, 300.0, interrupted)
    with pytest.raises(KeyboardInterrupt):
        hunt.run()
    assert hunt.found is not None
    assert not hunt.finished
    assert examine(hunt.weakened, hunt.found, guided=False).is_counterexample


def test_a_hunt_ends_after_its_seconds() -> None:
    hunt = Hunt(weakened_named("lemma-11", ""), 0, 0.5)
    hunt.run()
    assert hunt.found is None
    assert hunt.effort.tried > 0


def fake(slack: float, tolerance: float, *, kept: bool | None = True, fails: bool | None = False) -> Weakened:
    def conclusion(case: Case, under_test: Implementation) -> Iterator[Claim]:
        """Make a claim with the given slack and tolerance."""
        yield Claim("a", Form.EXACT, slack, tolerance, "rounding")

    class Told:
        def __init__(self, holds: bool | None) -> None:
            self.holds = holds
            self.title = "told"

        def check(self, case: Case) -> Finding:
            return Finding(self.holds, "so it is")

    base = statement_named("lemma-3")
    statement = replace(base, assumptions=("kept",))
    object.__setattr__(statement, "assumption", lambda id: Told(kept))
    return Weakened(statement, "dropped", ("kept",), "", "", small_cases, conclusion, lambda case: Finding(fails, "so"))


CASE = Case(Problem(np.eye(2)[None], np.array([[1.0, 0.0]]), LOSSES["logistic"]))


def test_a_resumed_hunt_finds_the_same_counterexample() -> None:
    def run(known: list[Observation]) -> tuple[Hunt, list[Observation]]:
        noted: list[Observation] = []
        hunt = Hunt(rare, 3, 300.0, known=known, note=noted.append)
        hunt.run()
        return hunt, noted

    def told(hunt: Hunt) -> tuple[object, ...]:
        assert hunt.found is not None
        assert hunt.examined is not None
        assert hunt.examined.violated is not None
        return as_text(hunt.found), hunt.examined.violated.name, hunt.effort

    usual = fake(-1.0, 0.0)

    def conclusion(case: Case, under_test: Implementation) -> Iterator[Claim]:
        """Make a claim that fails where there are at least nine tokens in total."""
        yield Claim("a", Form.EXACT, 8.5 - case.problem.scores.size, 0.0, "rounding")

    rare = replace(usual, conclusion=conclusion)
    whole, noted = run([])
    assert whole.effort.tried > 1
    assert whole.effort.shrinking > 5
    for cut in (1, whole.effort.tried - 1, whole.effort.tried, whole.effort.tried + 5, len(noted)):
        again, more = run(noted[:cut])
        assert told(again) == told(whole)
        assert len(more) == len(noted) - cut  # known cases are not examined again


def seen(*numbers: float, **findings: bool | None) -> CaseCheck:
    return examine(fake(*numbers, **findings), CASE)  # type: ignore[arg-type]


def test_a_violation_must_be_far_beyond_its_tolerance() -> None:
    assert seen(-1.01 * FAR * 1e-9, 1e-9).is_counterexample
    assert not seen(-0.99 * FAR * 1e-9, 1e-9).is_counterexample
    assert not seen(-5e-10, 1e-9).is_counterexample
    assert not seen(float("nan"), 1e-9).is_counterexample


def test_an_undecided_assumption_gives_no_counterexample() -> None:
    assert not seen(-1.0, 1e-9, kept=False).is_counterexample
    undecided = seen(-1.0, 1e-9, kept=None)
    assert not undecided.is_counterexample
    assert undecided.undecided
    assert not seen(-1.0, 1e-9, fails=True).is_counterexample
    assert not seen(-1.0, 1e-9, fails=None).is_counterexample


def test_a_conclusion_that_raises_refutes_nothing() -> None:
    def broken(case: Case, under_test: Implementation) -> Iterator[Claim]:
        """Divide by the seed, which is 0."""
        yield Claim("a", Form.EXACT, 1.0 / case.seed, 0.0, "exact")

    result = examine(replace(fake(0.0, 0.0), conclusion=broken), CASE)
    assert not result.is_counterexample
    assert "ZeroDivisionError" in result.refusal


def test_a_flow_that_cannot_move_in_float64_does_not_refute_divergence() -> None:
    """Keys have size 3e23 and p(0) norm 1, which is 3e23 in units of the keys, so that steps are lost to rounding."""
    scale = 3e23
    keys = np.array([[[0.0, 0.0], [-scale, 0.0]], [[0.0, 0.0], [0.0, -scale]]])
    case = Case(Problem(keys, np.array([[0.0, -1.0], [0.0, -1.0]]), LOSSES["correlation"]), start=np.array([0.0, -1.0]))
    entry = weakened_named(*SINGLE)
    result = examine(entry, case, guided=False)
    assert result.violated is None or result.violated.name != "norm-diverges"


def test_a_flow_that_ends_at_a_finite_point_refutes_divergence() -> None:
    """Optimal tokens lie in opposite directions on a line, so the risk has a finite minimiser."""
    from theorems.without.flow_claims import follow_flow

    keys = np.array([[[1.0], [0.0]], [[-1.0], [0.0]]])
    problem = Problem(keys, np.array([[1.0, 0.0], [1.0, 0.0]]), LOSSES["logistic"])
    claim = norm_claim(follow_flow(problem, np.array([1.0]), 1.0), 1.0)
    assert claim.verdict is Verdict.FALSIFIED


def test_a_case_on_which_a_conclusion_raises_counts_as_meeting_the_assumptions() -> None:
    def broken(case: Case, under_test: Implementation) -> Iterator[Claim]:
        """Raise ZeroDivisionError."""
        raise ZeroDivisionError
        yield

    assert examine(replace(fake(0.0, 0.0), conclusion=broken), CASE).met


def test_a_search_maximises_the_violation() -> None:
    """The objective is the given measure of violation; without one, the excess of a violation over the tolerance."""
    made = replace(fake(-1.0, 0.0), violation=lambda case: 0.125)
    assert examine(made, CASE).score == 0.125
    beyond = examine(replace(made, violation=None), CASE).score
    assert beyond > 0.125
    assert examine(made, CASE, guided=False).score == beyond
