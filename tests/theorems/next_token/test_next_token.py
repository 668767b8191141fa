"""Next-token statements: upheld by the reference, falsified by planted faults, and refuted without an assumption on
data given by hand.

The loss has a finite minimiser θ_⋆ in a subspace F, with projection P_F; orthogonally to F, with projection P_⊥, runs
diverge in the direction of the SVM's solution.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import cache
from typing import TypeVar

import numpy as np
import pytest

from generators.next_tokens import NextTokens
from generators.user_data import Given
from reference_attention.errors import InvalidInput
from reference_attention.next_token.finite_minimum import FiniteMinimum, finite_minimum
from reference_attention.next_token.next_token_descent import SplitRun
from reference_attention.next_token.next_token_path import next_token_path
from reference_attention.next_token.subspace_split import Split
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.faults import FAULTS
from theorems.faults.fault import Faults
from theorems.next_token import faults
from theorems.next_token.conjecture_ntp_normalized import TURNS, cycle_claims
from theorems.next_token.descent_run import follow
from theorems.next_token.limits import certify_limits
from theorems.next_token.without.entropy import contradictions, everything_follows, free_counts
from theorems.next_token.without.training import (
    dependent_contexts,
    dependent_tokens,
    descent_at_rest,
    foreign_labels,
    long_steps,
    long_steps_in_f,
    path_at_rest,
)
from theorems.run.registry.lookup import statement_named
from theorems.run.session import Request, Session
from theorems.run.verify import draw_cases
from theorems.without.weakening import Weakened

Result = TypeVar("Result")
IDS = (
    "ntp-extended-supports",
    "ntp-entropy",
    "ntp-overparameterized",
    "ntp-path",
    "ntp-descent",
    "ntp-finite-part",
    "ntp-attention",
    "conjecture-ntp-normalized",
)
EXAMPLES = 12
CAUGHT_BY = {
    "supports-not-extended": "extended-supports-are-proven",
    "supports-of-everything": "extended-supports-are-proven",
    "loss-forgets-multiplicities": "loss-is-that-of-the-attention-on-the-label",
    "loss-of-equal-contexts": "cross-entropy-is-above-the-entropy",
    "loss-of-most-frequent": "cross-entropy-is-above-the-entropy",
    "next-token-loss-off": "loss-is-taken-apart",
    "gradient-in-f-off": "gradient-is-that-of-the-two-parts",
    "gradient-as-at-theta-star": "gradient-is-that-of-the-two-parts",
    "ntp-svm-without-ties": "ntp-svm-is-optimal",
    "ntp-svm-scaled": "ntp-svm-is-optimal",
    "ntp-svm-dual-off": "ntp-svm-is-optimal",
    "theta-star-of-equal-counts": "finite-part-is-enclosed",
    "theta-star-without-multiplicities": "finite-part-is-enclosed",
    "theta-star-off": "finite-part-is-enclosed",
    "compatible-if-uniform": "contexts-are-compatible",
    "compatible-always": "compatible-iff-log-odds-are-attained",
    "next-token-step-too-long": "next-token-iterate-is-a-step",
    "next-token-steps-normalized": "next-token-iterate-is-a-step",
    "next-token-run-short": "next-token-run-is-the-one-asked-for",
    "finite-part-frozen": "next-token-iterate-is-a-step",
    "next-token-path-on-ray": "path-point-minimises-over-its-ball",
    "next-token-path-off": "path-point-minimises-over-its-ball",
    "next-token-path-at-one-radius": "path-point-has-the-multiplier-asked-for",
    "next-token-path-of-other-multipliers": "path-point-has-the-multiplier-asked-for",
    "components-weak": "extended-supports-are-strong-components",
    "components-of-one-graph": "extended-supports-are-strong-components",
    "contexts-merged": "contexts-are-separable",
}


@cache
def cases_of(id: str) -> tuple[NextTokens, ...]:
    return tuple(draw_cases(statement_named(id), 4 * EXAMPLES, 3))


@pytest.mark.parametrize("id", IDS)
def test_every_next_token_statement_is_upheld_by_the_reference(id: str) -> None:
    outcomes = [check(statement_named(id), case, REFERENCE) for case in cases_of(id)[:EXAMPLES]]
    assert {outcome.verdict for outcome in outcomes} == {Verdict.UPHELD}


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_fault_is_caught_by_a_claim_about_the_faulty_function(name: str) -> None:
    fault = FAULTS[name]
    statement = statement_named(fault.caught_by)
    for case in cases_of(fault.caught_by):
        spoiled = fault.spoil(case) if fault.spoil else case
        faulty = statement.conclusion(spoiled, fault.implementation)
        if any(claim.name == CAUGHT_BY[name] and claim.verdict is Verdict.FALSIFIED for claim in faulty):
            return
    pytest.fail(f"{name} is not caught")


def test_every_planted_fault_of_next_tokens_is_tried() -> None:
    planted = (kind for kind in vars(faults).values() if isinstance(kind, Faults))
    assert set(CAUGHT_BY) == {fault.name for kind in planted for fault in kind}


def tokens(h: object, counts: object, step: float = 0.0) -> NextTokens:
    return NextTokens(np.array(h, dtype=float), np.array(counts), step=step)


HALF = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
WITNESSES = {
    "one embedding, two tokens": (contradictions, tokens([[1], [1]], [[1, 0, 0], [0, 3, 0]])),
    "one ratio at 1 and at 2": (free_counts, tokens([[1], [2]], [[2, 1, 0], [2, 1, 0]])),
    "everything follows": (everything_follows, tokens([[1]], [[2, 1]])),
    "path at rest": (path_at_rest, tokens([[1], [-1]], [[1, 0], [1, 0]])),
    "descent at rest": (descent_at_rest, tokens([[1], [-1]], [[1, 0], [1, 0]])),
    "a 2-cycle": (long_steps, tokens([[1]], [[1, 1, 0]], 6.0)),
    "a 2-cycle in F": (long_steps_in_f, tokens([[1]], [[1, 1, 0]], 6.0)),
    "dependent contexts": (dependent_contexts, tokens([[1], [1]], [[1, 0, 0], [0, 3, 0]])),
    "dependent tokens": (
        dependent_tokens,
        NextTokens(HALF, samples=np.array([[0, 2], [1, 2]]), labels=np.array([0, 1])),
    ),
    "a foreign label": (foreign_labels, NextTokens(np.eye(3), samples=np.array([[0, 1]]), labels=np.array([2]))),
}


@pytest.mark.parametrize("name", WITNESSES)
def test_data_given_by_hand_refute_a_statement_without_its_assumption(name: str) -> None:
    weakened, case = WITNESSES[name]
    assert isinstance(weakened, Weakened)
    assert weakened.fails(case).holds is False
    assert all(weakened.statement.assumption(id).check(case).holds for id in weakened.keeps)
    assert any(claim.verdict is Verdict.FALSIFIED for claim in weakened.conclusion(case, REFERENCE))


def test_shorter_steps_do_not_cycle() -> None:
    """Step size 3.9 converges: it is less than 2 divided by the Hessian's largest eigenvalue, 4, though above the 2 of
    1/β.
    """
    case = tokens([[1]], [[1, 1, 0]], 3.9)
    assert all(claim.verdict is Verdict.UPHELD for claim in long_steps.conclusion(case, REFERENCE))


FROM_ISSUES = {
    "products that floats round": (
        "ntp-attention",
        NextTokens(
            np.array([[0.1, 0.2, 0.3], [0.3, 0.7, 0.1], [0.2, 0.9, 0.6]]),
            samples=np.array([[0, 1, 2], [1, 0, 2]]),
            labels=np.array([0, 1]),
        ),
    ),
    "contexts 300 apart in scale": ("ntp-finite-part", tokens([[1, 0], [0, 300]], [[2, 1, 0], [1, 3, 0]])),
    "contexts 1e6 apart in scale": ("ntp-path", tokens([[1e-3, 0], [2, 1e3]], [[2, 1, 0], [1, 3, 0]])),
    "a margin of thousands of logits": (
        "ntp-path",
        tokens(
            [
                [-3, 0, -1, 4, -5],
                [1, 4, -5, 5, 2],
                [2, -3, -3, 3, 0],
                [-1, -1, -3, 2, -4],
                [-3, 4, 1, -5, -3],
                [0, 4, 2, 3, 1],
            ],
            [[1, 1], [0, 1], [1, 1], [1, 0], [0, 1], [1, 1]],
        ),
    ),
    "a unit vector beside its original": (
        "ntp-entropy",
        tokens([[0.2683281572999748, 0.4472135954999579], [0.6, 1.0]], [[1, 0], [0, 1]]),
    ),
}


@pytest.mark.parametrize("name", FROM_ISSUES)
def test_statements_are_upheld_on_data_that_once_gave_false_alarms(name: str) -> None:
    id, case = FROM_ISSUES[name]
    assert check(statement_named(id), case, REFERENCE).verdict is Verdict.UPHELD


def test_a_transient_is_no_counterexample() -> None:
    """Contexts are nearly parallel, so P_Fθ is hundreds of steps away from θ_⋆; a run that is still on its way refutes
    nothing.
    """
    outcome = check(
        statement_named("conjecture-ntp-normalized"), tokens([[1, 0], [1, 0.01]], [[2, 1, 0], [1, 2, 0]]), REFERENCE
    )
    assert (outcome.verdict, outcome.not_found) == (Verdict.INCONCLUSIVE, True)


def test_only_steps_of_normalized_descent_turn_into_the_subspace_f() -> None:
    """With plain descent ‖P_F∇L‖ decreases together with ‖P_⊥∇L‖, so steps do not turn into F as with
    normalized steps.
    """
    limits = value_of_part(certify_limits(tokens([[1]], [[2, 1, 0]]).problem, REFERENCE))
    x, y = np.array([[0.5]]), np.zeros((1, 2))
    step = 0.1
    run = value_of_part(follow(limits, REFERENCE, x, y, step, 2000))
    assert [claim.name for claim in cycle_claims(run, 1000) if claim.verdict is Verdict.FALSIFIED] == [TURNS]
    run = value_of_part(follow(limits, REFERENCE, x, y, step, 2000, normalized=True))
    assert {claim.verdict for claim in cycle_claims(run, 1000)} == {Verdict.UPHELD}


def test_a_newton_search_that_ended_early_leaves_the_claim_undecided() -> None:
    """If Newton's method ends early, for θ_⋆ or the last point of the path, only claims about these are undecided."""

    def lose_minimum(split: Split) -> FiniteMinimum:
        return replace(finite_minimum(split), lost="ended at a gradient of length 1")

    def lose_last(*arguments: object) -> SplitRun:
        run = next_token_path(*arguments)  # type: ignore[arg-type]
        return replace(run, lost={len(run.x) - 1: "ended early"})

    case = tokens([[1]], [[2, 1, 0]])
    for id, own in (("ntp-finite-part", {finite_minimum: lose_minimum}), ("ntp-path", {next_token_path: lose_last})):
        made = list(statement_named(id).conclusion(case, REFERENCE.replace("", own)))
        open_ones = [claim for claim in made if claim.verdict is not Verdict.UPHELD]
        assert [(claim.verdict, claim.not_found) for claim in open_ones] == [(Verdict.INCONCLUSIVE, True)]


@pytest.mark.parametrize("power", [-40, 7])
@pytest.mark.parametrize("id", ["ntp-descent", "ntp-attention"])
def test_the_unit_of_embeddings_does_not_change_verdicts(id: str, power: int) -> None:
    for case in cases_of(id)[:4]:
        scaled = case.replace(embeddings=np.ldexp(case.embeddings, power))
        kept, changed = (check(statement_named(id), each, REFERENCE) for each in (case, scaled))
        assert kept.verdict is changed.verdict
        assert [claim.slack for claim in kept.claims] == [claim.slack for claim in changed.claims]


def value_of_part(made: Generator[object, None, Result]) -> Result:
    """Return the value that a generator of claims returns after its last claim."""
    while True:
        try:
            next(made)
        except StopIteration as stop:
            result: Result = stop.value
            return result


def test_no_statement_is_verified_on_a_text_that_takes_too_long() -> None:
    case = NextTokens.of_corpus("the quick brown fox jumps over a lazy dog", 1, name="fox.txt")
    with pytest.raises(InvalidInput, match=r"fox.txt has 702 pairs.* 729 entries.*or run theorems explain"):
        Session(Request(("ntp-descent",), given=Given(case))).finish()
