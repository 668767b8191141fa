"""Lemmas 8, 9, 10 and Theorem 4: upheld by the reference, falsified by planted faults; errors in the paper's proofs.

q̄ is q/‖q‖, θ its least margin; a neighbour of q is a token at margin θ; α are the tokens that q selects, L_α the risk
if these have all weight.
"""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import find, given, settings

from generators.assumptions import ASSUMPTIONS
from generators.case import Case
from generators.direction_assumptions import not_locally_optimal_direction
from generators.direction_cases import direction_cases, pair_cases
from reference_attention.better_directions import best_token_direction, higher_neighbours_direction, tilted_direction
from reference_attention.directions import (
    Direction,
    direction,
    inner,
    margin_difference,
    neighbour_optimal,
    within_cone,
)
from reference_attention.exact import rational
from reference_attention.losses import loss_named
from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.max_margin import max_margin
from tests.theorems import oracle
from tests.theorems.token_selection.faults import FAULTS, planted
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.rounding.excess_risk import excess
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.suite import statements
from theorems.run.verify import draw_cases, verify_generated
from theorems.token_selection.directions.definitions import DEFINITIONS
from theorems.token_selection.directions.directional_risk import Costs, along, crossing
from theorems.token_selection.directions.leading_term import leading_term

IDS = ("lemma-8", "lemma-9", "lemma-10", "theorem-4")


@pytest.mark.parametrize("id", IDS)
def test_theorem_4_is_upheld_by_the_reference(id: str) -> None:
    statement = statement_named(id)

    @settings(max_examples=15)
    @given(statement.cases())
    def upheld(case: Case) -> None:
        outcome = check(statement, case, REFERENCE)
        assert outcome.verdict is Verdict.UPHELD, outcome.reason

    upheld()


def test_theorem_7_is_an_alias_of_theorem_4_and_definitions_are_registered() -> None:
    assert statement_named("theorem-7").id == "theorem-4"
    assert set(IDS) <= set(statements())
    assert list(DEFINITIONS) == ["definition-1", "definition-2", "definition-3"]
    for definition in DEFINITIONS.values():
        assert definition.resolve()


@pytest.mark.parametrize("fault", ["local-path-at-twice-the-radius", "local-path-at-one-radius"])
def test_a_local_path_at_other_radii_is_caught(fault: str) -> None:
    under_test = planted(fault)[fault]
    cases = draw_cases(statement_named("theorem-4"), 6, 0, every=False)
    claims = [claim for case in cases for claim in check(statement_named("theorem-4"), case, under_test).claims]
    names = {claim.name for claim in claims if claim.verdict is Verdict.FALSIFIED}
    assert names & {"path-is-in-the-cone", "path-is-no-higher-than-its-seeds"}
    assert names & {"narrow-path-is-in-the-cone", "narrow-path-is-no-higher-than-its-seeds"}


# Errors in the paper, shown by examples.


def pair(keys: list[list[float]], scores: list[float], q1: list[float], q2: list[float]) -> Case:
    """Return one input with the correlation loss, and the directions q1 and q2."""
    problem = Problem(np.array([keys]), np.array([scores]), loss_named("correlation"))
    return Case(problem, arrays=MappingProxyType({"q1": np.array(q1), "q2": np.array(q2)}))


def excess_along(case: Case, name: str, R: float) -> arb:
    """Return L(R q̄) − L_α for the direction of the given name, in ball arithmetic."""
    problem = case.problem
    unit = direction(problem.keys, case.arrays[name]).unit
    with oracle.precision(256 + math.ceil(40 * R)):
        alpha = np.argmax(problem.keys[0] @ unit)
        return oracle.risk(problem, R * unit) + float(problem.scores[0, alpha])


def test_lemma_8b_is_false_for_a_neighbour_of_equal_score() -> None:
    """If the only neighbour of q1 scores like the selected token, q1 is not neighbour-optimal, yet L is constant.

    With a third token of lower score, q1 is still not neighbour-optimal, but the risk along q1 is larger than along q2,
    though Lemma 8 (b) claims that it is smaller.
    """
    flat = pair([[0.0, 0.0], [-1.0, 0.0]], [0.0, 0.0], [3.0, 4.0], [1.0, 0.0])
    assert ASSUMPTIONS["wider-direction"].check(flat).holds
    assert ASSUMPTIONS["decided-neighbours"].check(flat).holds is False
    for R in (1.0, 100.0):
        assert excess_along(flat, "q1", R) == excess_along(flat, "q2", R)
    reversed_pair = pair([[0.0, 0.0], [-1.0, 0.0], [-2.0, 1.0]], [0.0, 0.0, -1.0], [2.0, 1.0], [1.0, 0.0])
    assert ASSUMPTIONS["wider-direction"].check(reversed_pair).holds
    first = direction(reversed_pair.problem.keys, reversed_pair.arrays["q1"])
    assert first.neighbours.tolist() == [[False, True, False]]
    assert not neighbour_optimal(first, reversed_pair.problem.scores)
    for R in (10.0, 40.0):
        assert excess_along(reversed_pair, "q1", R) > excess_along(reversed_pair, "q2", R)


@pytest.mark.parametrize("exponent", [4, 8])
def test_the_radius_of_lemma_8a_does_not_depend_on_the_margin_difference_alone(exponent: int) -> None:
    """With fixed keys and scores and margins θ2 − θ1 > 0.3, the risk along q2 is larger at R = 1/η for every η.

    Along q1 = (1, η) the neighbour, which scores lower, has margin 1 + η, and a token that scores higher has 1 + 2η.
    """
    eta = 2.0**-exponent
    case = pair([[0.0, 0.0], [-1.0, -1.0], [-1.0, -2.0]], [0.0, -1.0, 3.0], [1.0, eta], [3.0, 4.0])
    for id in ("wider-direction", "decided-neighbours"):
        assert ASSUMPTIONS[id].check(case).holds
    keys = case.problem.keys
    assert margin_difference(*(direction(keys, case.arrays[q]) for q in ("q2", "q1"))) > 0.3
    R = 1 / eta
    assert excess_along(case, "q1", R) < 0 < excess_along(case, "q2", R)
    assert check(statement_named("lemma-8"), case, REFERENCE).verdict is Verdict.UPHELD


def test_the_neighbour_optimality_of_q2_is_not_needed() -> None:
    """If the neighbour of q2 scores higher, the risk along q2 is smaller than Lemma 8 (a) needs."""
    case = pair([[0.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]], [0.0, -1.0, 1.0], [1.0, 0.5], [1.0, -0.125])
    assert ASSUMPTIONS["wider-direction"].check(case).holds
    assert ASSUMPTIONS["decided-neighbours"].check(case).holds is False
    assert excess_along(case, "q2", 30.0) < 0 < excess_along(case, "q1", 30.0)


# Constructions of better directions in the proof of Theorem 4, decided over the rationals.


@given(direction_cases(kinds=("lower", "near")))
def test_a_tilt_towards_p_mm_widens_the_margin(case: Case) -> None:
    case = case.normalise()  # the statement's check normalises, too
    keys, scores = case.problem.keys, case.problem.scores
    result = direction(keys, case.arrays["q"])
    solution = max_margin(keys, result.best(scores))
    better = tilted_direction(keys, result, solution.exact.p, 2.0**-20)  # type: ignore[union-attr, arg-type]
    assert better is not None
    assert margin_difference(better, result) > 0
    assert within_cone(better.vector, result.vector, 2.0**-20)


@given(direction_cases(kinds=("mixed", "higher")))
def test_only_higher_neighbours_remain(case: Case) -> None:
    case = case.normalise()  # the statement's check normalises, too
    keys, scores = case.problem.keys, case.problem.scores
    result = direction(keys, case.arrays["q"])
    alpha = result.best(scores)
    better = higher_neighbours_direction(keys, result, scores, alpha, 2.0**-20)
    assert better is not None
    above = scores > np.take_along_axis(scores, alpha[:, None], axis=1)
    assert np.array_equal(better.neighbours, result.neighbours & above)
    assert np.array_equal(better.selected, result.selected)


@given(direction_cases(kinds=("tied",)))
def test_the_best_token_of_every_tie_is_selected(case: Case) -> None:
    case = case.normalise()  # the statement's check normalises, too
    keys, scores = case.problem.keys, case.problem.scores
    result = direction(keys, case.arrays["q"])
    alpha = result.best(scores)
    better = best_token_direction(keys, result, alpha, 2.0**-20)
    assert better is not None
    assert better.unique
    assert np.array_equal(better.best(scores), alpha)
    ties = result.selected & (np.arange(case.problem.T) != alpha[:, None])
    assert np.array_equal(better.neighbours, ties)
    assert within_cone(better.vector, result.vector, 2.0**-20)


def test_theorem_4_is_upheld_near_a_locally_optimal_direction_and_not_applicable_to_it() -> None:
    keys = np.array([[[0.0, 0.0], [-1.0, 0.0]]])
    problem = Problem(keys, np.array([[0.0, -1.0]]))
    theorem = statement_named("theorem-4")

    def outcome(q: list[float]) -> Verdict:
        return check(theorem, Case(problem, arrays=MappingProxyType({"q": np.array(q)})), REFERENCE).verdict

    assert outcome([1.0, 0.0]) is Verdict.NOT_APPLICABLE
    for distance in (1e-3, 1e-6, 1e-9, 1e-12):
        assert outcome([1.0, distance]) is Verdict.UPHELD


def test_margins_are_compared_on_rounded_keys_where_tokens_nearly_coincide() -> None:
    """For the rounded keys, p_mm of the exact products x zᵀ has a smaller margin than a direction near it."""
    tokens = [[[1.000000001257, 0.999999998679], [1.000000006404, 1.000000001049], [0.999999994643, 1.000000003616]]]
    data = QueryDataset(tokens, [[1.3, 0.9]], [1], [1.0, 0.5])
    statement = statement_named("theorem-4")
    cases = list(statement.from_data(Case(data.problem, queried=data)))
    outcomes = [check(statement, case, REFERENCE) for case in cases]
    assert [outcome.reason for outcome in outcomes if outcome.verdict is Verdict.FALSIFIED] == []
    assert sum(outcome.verdict is Verdict.UPHELD for outcome in outcomes) >= 5


def test_the_perturbation_that_breaks_ties_is_orthogonal_to_the_direction() -> None:
    """The perturbation w that breaks ties of tokens is orthogonal to q, so to first order the norm of q does not
    change.
    """
    case = find(direction_cases(kinds=("tied",)), lambda case: case.problem.d == 2)
    result = direction(case.problem.keys, case.arrays["q"])
    better = best_token_direction(case.problem.keys, result, result.best(case.problem.scores), 0.5)
    assert better is not None
    w = [a - b for a, b in zip(better.vector, result.vector, strict=True)]
    assert inner(w, result.vector) == fmpq(0)


def kind_of_case(case: Case) -> str:
    """Return which case of the proof of Theorem 4 applies: "A1", "A2" or "B"."""
    result = direction(case.problem.keys, case.arrays["q"])
    own = np.take_along_axis(case.problem.scores, result.best(case.problem.scores)[:, None], axis=1)
    higher = bool((result.neighbours & (case.problem.scores > own)).any())
    return "B" if not result.unique else "A2" if higher else "A1"


@pytest.mark.parametrize("number", [0, 2])
def test_drawn_cases_include_every_case_of_the_proof_of_theorem_4(number: int) -> None:
    """Draws copy no earlier cases; otherwise only 30 of 50 would differ, and some case of the proof would be rare."""
    cases = draw_cases(statement_named("theorem-4"), 50, number)
    kinds = [kind_of_case(case) for case in cases]
    assert min(kinds.count(kind) for kind in ("A1", "A2", "B")) >= 3
    assert len({case.problem.keys.tobytes() for case in cases}) >= 45


def test_verify_reports_how_often_each_case_of_the_proof_occurred() -> None:
    result = verify_generated("theorem-4", 30, 0, REFERENCE)
    counts = {claim["name"]: claim["branches"] for claim in result.as_json()["claims"] if "branches" in claim}
    proof = {f"case ({part}) of the proof" for part in ("A1", "A2", "B")}
    ends = {"the norm grows, the direction stays away", "the norm stays bounded"}
    assert set(counts["better-direction"]) == proof
    assert sum(counts["better-direction"].values()) == 30
    for path in ("path", "narrow-path"):
        assert set(counts[f"{path}-leaves-or-stays-bounded"]) == ends
    # In a narrow cone, the path stays bounded only in case (A2) of the proof.
    bounded = counts["narrow-path-leaves-or-stays-bounded"]["the norm stays bounded"]
    claims = {claim.name: claim.cases for claim in result.claims}
    assert bounded == claims["narrow-path-norm-bounded"] <= counts["better-direction"]["case (A2) of the proof"]


def near_a_locally_optimal_direction(distance: float) -> Case:
    problem = Problem(np.array([[[0.0, 0.0], [-1.0, 0.0]]]), np.array([[0.0, -1.0]]))
    return Case(problem, arrays=MappingProxyType({"q": np.array([1.0, distance])}))


@pytest.mark.parametrize("distance", [1e-6, 1e-9, 1e-12])
def test_faults_are_caught_near_a_locally_optimal_direction(distance: float) -> None:
    """The radius from which q is beaten, about 1/distance², may be beyond float64; other claims can still fail."""
    case, theorem = near_a_locally_optimal_direction(distance), statement_named("theorem-4")
    claims = {claim.name for claim in check(theorem, case, REFERENCE).claims}
    assert "neighbourhood-risk-anywhere" in claims
    assert ("neighbourhood-is-beaten" in claims) == (distance > 1e-7)
    for fault in ("masked-token", "clipped-logits", "svm-for-another-token"):
        assert check(theorem, case, FAULTS[fault]).verdict is Verdict.FALSIFIED


def true_excess(problem: Problem, found: Direction, alpha: np.ndarray, R: float) -> arb:
    """Return n (L(R q̄) − L_α) at the exact R q̄, in ball arithmetic."""
    scale, total = arb(rational(R)) / arb(found.norm_squared).sqrt(), arb(0)
    for margins, scores, best in zip(found.exact, problem.scores.tolist(), alpha.tolist(), strict=True):
        weights = [(-arb(x) * scale).exp() for x in margins]
        mean = sum((w * arb(g) for w, g in zip(weights, scores, strict=True)), arb(0)) / sum(weights, arb(0))
        total += oracle.loss_value(problem.loss, mean) - oracle.loss_value(problem.loss, arb(scores[best]))
    return total


@settings(max_examples=50)
@given(pair_cases())
def test_the_first_order_term_is_within_its_remainder(case: Case) -> None:
    """Compare |n (L(R q̄) − L_α) e^{Rθ} − D| ≤ r with ball arithmetic."""
    problem = case.normalise().problem
    result = direction(problem.keys, case.arrays["q1"])
    costs = Costs.of(problem, result.best(problem.scores))
    radii = np.array([1.0, 5.0, 20.0]) / result.margin
    lead = leading_term(result, costs, radii)
    assert result.least is not None
    for k, R in enumerate(radii.tolist()):
        with oracle.precision(600):
            decay = arb(rational(R)) * arb(result.least) / arb(result.norm_squared).sqrt()
            measured = true_excess(problem, result, costs.alpha, R) * (decay - arb(rational(lead.log_unit))).exp()
            off = float(abs(measured - arb(rational(float(lead.term.value)))))
        assert off <= lead.remainder.value[k] + lead.remainder.error[k] + lead.term.error


@given(pair_cases())
def test_the_excess_along_a_direction_is_enclosed(case: Case) -> None:
    """Compare the suite's and the reference's excess at R q̄ with ball arithmetic."""
    problem = case.normalise().problem
    result = direction(problem.keys, case.arrays["q1"])
    costs = Costs.of(problem, result.best(problem.scores))
    radii = np.array([0.5, 5.0, 20.0]) / result.margin
    for item in (
        excess(problem, along(result, radii), costs.alpha) * problem.n,
        costs.excess(along(result, radii), REFERENCE, "x"),
    ):
        for x, error, unit, R in zip(item.x.value, item.x.error, item.log_unit, radii.tolist(), strict=True):
            with oracle.precision(600):
                truth = true_excess(problem, result, costs.alpha, R)
                unit = arb(rational(float(unit))).exp() if np.isfinite(unit) else arb(0)
                assert abs(truth - arb(rational(float(x))) * unit) <= arb(rational(float(error))) * unit


@settings(max_examples=100)
@given(direction_cases(kinds=("lower",)))
def test_no_direction_of_kind_lower_is_max_margin(case: Case) -> None:
    assert not_locally_optimal_direction(case).holds


@pytest.mark.parametrize(
    ("log_constant", "gap", "expected"),
    [
        *[(2.0, 4.0, 0.5), (-2.0, 4.0, 0.0), (-math.inf, 1.0, 0.0), (math.inf, 2.0, math.inf), (5.0, math.inf, 0.0)],
        *[(1.0, 0.0, math.inf), (-math.inf, 0.0, 0.0)],
    ],
)
def test_the_radius_from_which_an_exponential_is_below_one(log_constant: float, gap: float, expected: float) -> None:
    assert crossing(log_constant, gap) == expected
