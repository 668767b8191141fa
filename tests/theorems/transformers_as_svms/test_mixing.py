"""The statement on attention that mixes tokens: upheld by the reference, and each claim falsified by a planted fault or
by a weaker constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flint import arb, ctx
from hypothesis import given, settings

from generators.case import Case
from generators.mixing_assumptions import exact_scores, penalty_of
from reference_attention.optimal_attention import optimal_attention
from reference_attention.paths.mixing_path import mixing_path
from reference_attention.svm.finite_part import finite_part
from reference_attention.svm.general_svm import GeneralSvm, general_svm
from tests.theorems.transformers_as_svms.mixing_examples import CASES
from theorems.core.check import check
from theorems.core.claim import Form, Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults import fault_named
from theorems.transformers_as_svms.ball_claims import balls_at_least
from theorems.transformers_as_svms.mixing import tsvm_mixing
from theorems.transformers_as_svms.mixing_numbers import Mixing, inner
from theorems.transformers_as_svms.mixing_path_numbers import PathPoint


def falsified(name: str, under_test: Implementation) -> set[str]:
    claims = check(tsvm_mixing, CASES[name], under_test).claims
    return {claim.name for claim in claims if claim.verdict is Verdict.FALSIFIED}


@settings(max_examples=8)
@given(tsvm_mixing.cases())
def test_reference_upholds_generated_cases(case: Case) -> None:
    outcome = check(tsvm_mixing, case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


@pytest.mark.parametrize("name", CASES)
def test_the_statement_on_mixing_is_upheld_on_cases_by_hand(name: str) -> None:
    outcome = check(tsvm_mixing, CASES[name], REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


def test_each_claim_on_mixing_is_made_on_some_case() -> None:
    assert {claim.name for claim in check(tsvm_mixing, CASES["two-inputs"], REFERENCE).claims} == set(
        tsvm_mixing.claims
    )


CAUGHT = {
    "mixing-penalty-doubled": "attention-is-optimal",
    "mixing-set-off-by-a-token": "attention-is-optimal",
    "gen-svm-masks-one-more": "general-svm-is-optimal",
    "gen-svm-without-equalities": "general-svm-is-optimal",
    "finite-part-reversed": "finite-part-is-least",
    "finite-part-without-logarithm": "finite-part-is-least",
    "finite-part-not-the-least": "finite-part-is-least",
    "mixing-path-on-the-ray": "path-is-lowest",
    "mixing-path-predicted": "path-is-lowest",
    "mixing-path-at-one-radius": "path-has-the-radii-asked-for",
    "mixing-path-at-twice-the-radius": "path-has-the-radii-asked-for",
    "mixing-path-multipliers-doubled": "path-has-its-multipliers",
    "mixing-path-leaves-radii-out": "path-has-the-radii-asked-for",
    "mixing-offset-is-finite-part": "offset-limit",
    "mixing-offset-without-duals": "offset-limit",
    "temperature": "ratios-on-the-ray",
    "negated-logits": "masked-mass-on-the-ray",
}


@pytest.mark.parametrize("fault", CAUGHT)
def test_planted_faults_falsify_the_intended_claims_on_mixing(fault: str) -> None:
    assert CAUGHT[fault] in falsified("two-inputs", fault_named(fault).implementation)


def test_a_wrong_finite_part_is_caught_by_claims_on_and_beside_the_ray() -> None:
    names = falsified("four", fault_named("finite-part-reversed").implementation)
    assert names >= {"finite-part-is-least", "ratios-on-the-ray", "excess-on-the-ray"}


def mixing_of(name: str) -> Mixing:
    data, lam = CASES[name].queried, penalty_of(CASES[name])
    assert data is not None
    attention = optimal_attention(exact_scores(data), lam)
    svm = general_svm(data.keys, attention.sets, attention.first)
    assert isinstance(svm, GeneralSvm)
    return Mixing(data, lam, attention, svm, finite_part(svm, attention))


WEAKER: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "B/8": ("log_ceiling", lambda right: property(lambda of: right.func(of) - arb(8).log()), "excess-on-the-ray"),
    "δ/4": ("deviation", lambda right: lambda of, epsilon: right(of, epsilon) / 4, "sublevel-ratios"),
    "ε/4": ("spread", lambda right: lambda of, excess: right(of, excess) / 4, "sublevel-ratios"),
    "ε = 0": ("spread", lambda right: lambda of, excess: arb(0), "sublevel-masked-margins"),
    "ε = 0, of the length": ("spread", lambda right: lambda of, excess: arb(0), "sublevel-length-from-duals"),
    "r + 1": ("on_the_ray", lambda right: lambda of, r: right(of, r - 1), "sublevel-correlation"),
}
"""Constants made too small or left out: attribute of :class:`Mixing`, the change, and a claim that fails with it."""


@pytest.mark.parametrize("what", WEAKER)
def test_a_claim_on_mixing_fails_with_each_weaker_constant(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, weaken, claim = WEAKER[what]
    monkeypatch.setattr(Mixing, name, weaken(Mixing.__dict__[name]))
    assert claim in {item for case in CASES for item in falsified(case, REFERENCE)}


def test_no_point_beside_the_mixing_path_has_a_lower_risk() -> None:
    """Points of the same norm beside the path have a larger n(L − inf L), beyond the error of the computed path."""
    mixing = mixing_of("two-inputs")
    (result,) = mixing_path(mixing.data.keys, mixing.attention, mixing.lam, mixing.svm, [128.0])
    with ctx.workprec(result.bits):
        on_path = PathPoint(mixing, result.point)
        assert on_path.distance < arb(2) ** -30
        for k in range(len(result.point)):
            moved = [x + (arb(1) / 8 if k == j else 0) for j, x in enumerate(result.point)]
            scale = on_path.radius / inner(moved, moved).sqrt()
            assert mixing.excess([scale * x for x in moved]) > on_path.excess


def test_a_path_that_our_newton_method_misses_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reference_attention.paths.mixing_path.STEPS", 1)
    outcome = check(tsvm_mixing, CASES["two-inputs"], REFERENCE)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "path-has-the-radii-asked-for: points at 0 of 2 radii: Newton's method does not converge" in outcome.reason


def test_a_nan_ball_is_undecided_unless_another_claim_fails() -> None:
    nothing, one = arb("nan"), arb(1)
    assert balls_at_least("a", Form.EXACT, [(nothing, one), (one, one)]).verdict is Verdict.INCONCLUSIVE
    assert balls_at_least("a", Form.EXACT, [(nothing, one), (one - 1, one)]).verdict is Verdict.FALSIFIED
    assert balls_at_least("a", Form.EXACT, []).verdict is Verdict.INCONCLUSIVE
    with ctx.workprec(4000):
        assert balls_at_least("a", Form.EXACT, [(one, one + arb(2) ** -2000)]).verdict is Verdict.FALSIFIED
    assert balls_at_least("a", Form.EXACT, [(one, one)]).verdict is Verdict.UPHELD
