"""The statement on several queries per input: upheld by the reference, and each claim falsified by a planted fault.

A part has all queries that see the same number of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from flint import fmpq, fmpq_mat
from hypothesis import given, settings

from generators.case import Case
from generators.margin_assumptions import exact_vector
from generators.sequence_assumptions import optimal_tokens_of, sequence_rows
from reference_attention import risk
from reference_attention.outer_keys import OuterKeys
from reference_attention.problem import Problem
from reference_attention.sequence_dataset import SequenceDataset, SequencePart
from reference_attention.sequence_risk import sequence_excess, sequence_parts
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.sequence_max_margin import SequenceInfeasible, SequenceMaxMargin, sequence_max_margin
from theorems.core.check import check
from theorems.core.claim import Claim, Verdict
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults import fault_named
from theorems.run.registry.lookup import statement_named

STATEMENT = statement_named("tsvm-sequence")


def case_of(data: SequenceDataset) -> Case:
    return Case(data.problem, sequence=data, seed=3).normalise()


def causal_case() -> Case:
    """Return two inputs of four tokens in causal self-attention; the second coordinate of a token has the sign of the
    label of the query at its place.
    """
    rng = np.random.default_rng(5)
    X = rng.integers(-6, 7, size=(2, 4, 3)) / 2.0
    X[:, :, 0] = [[1.0, 2.0, -0.5, 3.0], [0.0, -1.0, 2.0, 0.5]]
    Y = np.array([[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0]])
    X[:, :, 1] = Y * [[1.0, 2.0, 1.0, 1.5], [2.0, 1.0, 1.0, 1.0]]
    return case_of(SequenceDataset(X, X, Y, [1.0, 0.0, 0.0], causal=True))


def masked_case() -> Case:
    """Return an input with three queries and a mask that hides arbitrary tokens; one query sees a single token."""
    rng = np.random.default_rng(6)
    X = rng.integers(-3, 4, size=(1, 4, 2)).astype(np.float64)
    X[0, :, 0] = [3.0, 1.0, 2.0, 0.0]
    Y = np.array([[1.0, -1.0, -1.0]])
    z = np.array([[[1.0, 0.5], [-2.0, 1.0], [-1.0, 3.0]]])
    mask = np.array([[[1, 0, 1, 1], [0, 1, 1, 0], [0, 0, 0, 1]]], dtype=np.bool_)
    return case_of(SequenceDataset(X, z, Y, [1.0, 0.0], "exponential", mask))


CASES = {"causal": causal_case(), "masked": masked_case()}


def claims_of(given_case: Case, under_test: Implementation) -> dict[str, Claim]:
    return {claim.name: claim for claim in check(STATEMENT, given_case, under_test).claims}


def falsified(name: str, under_test: Implementation) -> set[str]:
    claims = claims_of(CASES[name], under_test).values()
    return {claim.name for claim in claims if claim.verdict is Verdict.FALSIFIED}


def rebuilt(part: SequencePart, tokens: Any, data: SequenceDataset) -> SequencePart:
    """Return the part with other tokens for its queries."""
    i, k = part.pairs.T
    scores = data.Y[i, k][:, None] * (data.X @ data.v)[i[:, None], tokens]
    keys = OuterKeys(data.X[i[:, None], tokens], data.queries[i, k])
    return replace(part, problem=Problem(keys, scores, data.loss), tokens=tokens)


def without_mask(data: SequenceDataset) -> Sequence[SequencePart]:
    return SequenceDataset(data.X, data.queries, data.Y, data.v, data.loss).parts


def part_forgotten(data: SequenceDataset) -> Sequence[SequencePart]:
    return data.parts[1:]


def padded(data: SequenceDataset) -> Sequence[SequencePart]:
    """Return parts in which all queries have equally many tokens, by repetition of the last token."""
    most = data.parts[-1].problem.T
    return [
        rebuilt(part, np.pad(part.tokens, ((0, 0), (0, most - part.problem.T)), "edge"), data) for part in data.parts
    ]


def padded_with_the_unseen(data: SequenceDataset) -> Sequence[SequencePart]:
    """Return parts in which every query of the first part also sees the first token that is hidden from it."""
    first = data.parts[0]
    others = [np.setdiff1d(np.arange(data.X.shape[1]), row)[:1] for row in first.tokens]
    return [rebuilt(first, np.concatenate([first.tokens, np.array(others)], axis=1), data), *data.parts[1:]]


def shortest_last(data: SequenceDataset) -> Sequence[SequencePart]:
    return data.parts[::-1]


def queries_backwards(data: SequenceDataset) -> Sequence[SequencePart]:
    return [data.part(part.pairs[::-1]) for part in data.parts]


def a_part_per_query(data: SequenceDataset) -> Sequence[SequencePart]:
    return [data.part(part.pairs[r : r + 1]) for part in data.parts[::-1] for r in range(part.problem.n)]


def each_part_alike(parts: Any, p: Any, log_excess: Any = risk.log_excess_risk) -> Any:
    """Return the excess risk as the unweighted mean over parts, ignoring the numbers of their queries."""
    return sequence_excess([replace(part, total=part.problem.n * len(parts)) for part in parts], p, log_excess)


def largest_part_only(parts: Any, p: Any, log_excess: Any = risk.log_excess_risk) -> Any:
    return sequence_excess(parts[-1:], p, log_excess)


def off_by(factor: float, power: float) -> Callable[..., Any]:
    """Return a function that replaces the excess risk x by factor · x^power."""

    def excess(parts: Any, p: Any, log_excess: Any = risk.log_excess_risk) -> Any:
        sign, size = sequence_excess(parts, p, log_excess)
        return sign, size * power + np.log(factor)

    return excess


def of_the_largest_part(keys: Any, alpha: Any) -> Any:
    """Return the solution of ATT-SVM for the constraints of the last part only."""
    right, wrong = sequence_max_margin(keys, alpha), sequence_max_margin(keys[-1:], alpha[-1:])
    if isinstance(right, SequenceInfeasible) or isinstance(wrong, SequenceInfeasible):
        return right
    return replace(right, p=wrong.p, exact_p=wrong.exact_p)


def without_a_row(keys: Any, alpha: Any) -> Any:
    """Return the solution of ATT-SVM with the constraint of the largest dual weakened 1024-fold."""
    right = sequence_max_margin(keys, alpha)
    if isinstance(right, SequenceInfeasible):
        return right
    q, r, t = max(right.exact_duals, key=lambda at: right.exact_duals[at])
    plain = [np.array(key.floats if isinstance(key, OuterKeys) else key) for key in keys]
    best = plain[q][r, alpha[q][r]]
    plain[q][r, t] = best + 1024 * (plain[q][r, t] - best)
    wrong = sequence_max_margin(plain, alpha)
    return wrong if isinstance(wrong, SequenceInfeasible) else replace(right, p=wrong.p, exact_p=wrong.exact_p)


def infeasible_but_for_opt(keys: Any, alpha: Any) -> Any:
    """Return the solution for the optimal tokens, and report any other choice of tokens as infeasible."""
    solution = sequence_max_margin(keys, alpha)
    opt = optimal_tokens_of(CASES["causal"].sequence.parts)  # type: ignore[union-attr]
    if len(opt) == len(alpha) and all(np.array_equal(a, b) for a, b in zip(opt, alpha, strict=True)):
        return solution
    return SequenceInfeasible(tuple(alpha), {(0, 0, (int(alpha[0][0]) + 1) % 2): fmpq(1)})


def longer(keys: Any, alpha: Any) -> Any:
    """Return W^mm multiplied by 1.001."""
    right = sequence_max_margin(keys, alpha)
    if isinstance(right, SequenceInfeasible):
        return right
    return replace(right, exact_p=[x * fmpq(1001, 1000) for x in right.exact_p], p=right.p * 1.001)


PLANTS: dict[str, tuple[str, Implementation, set[str]]] = {
    "mask-ignored": (
        "causal",
        REFERENCE.replace("", {sequence_parts: without_mask}),
        {"parts-are-the-data", "unseen-tokens-do-not-matter"},
    ),
    "part-forgotten": ("causal", REFERENCE.replace("", {sequence_parts: part_forgotten}), {"parts-are-the-data"}),
    "duplicated-padding": ("causal", REFERENCE.replace("", {sequence_parts: padded}), {"parts-are-the-data"}),
    "padding-seen": (
        "masked",
        REFERENCE.replace("", {sequence_parts: padded_with_the_unseen}),
        {"parts-are-the-data", "unseen-tokens-do-not-matter"},
    ),
    "shares-alike": ("causal", REFERENCE.replace("", {sequence_excess: each_part_alike}), {"excess-is-the-mean"}),
    "risk-of-one-part": (
        "causal",
        REFERENCE.replace("", {sequence_excess: largest_part_only}),
        {"excess-is-the-mean", "sublevel-margin"},
    ),
    "risk-too-small": (
        "masked",
        REFERENCE.replace("", {sequence_excess: off_by(0.01, 1.0)}),
        {"excess-is-the-mean", "risk-floor", "leading-term-from-below"},
    ),
    "risk-too-large": (
        "masked",
        REFERENCE.replace("", {sequence_excess: off_by(100.0, 1.0)}),
        {"excess-is-the-mean", "risk-ceiling", "leading-term-from-above"},
    ),
    "risk-of-half-the-logits": (
        "causal",
        REFERENCE.replace("", {sequence_excess: off_by(1.0, 0.5)}),
        {"risk-ceiling", "leading-term-from-above"},
    ),
    "risk-of-twice-the-logits": (
        "causal",
        REFERENCE.replace("", {sequence_excess: off_by(1.0, 2.0)}),
        {"risk-floor", "sublevel-correlation-from-duals"},
    ),
    "svm-of-one-part": (
        "causal",
        REFERENCE.replace("", {sequence_max_margin: of_the_largest_part}),
        {"svm-is-optimal"},
    ),
    "svm-without-a-row": (
        "causal",
        REFERENCE.replace("", {sequence_max_margin: without_a_row}),
        {"svm-is-optimal", "any-tokens-are-decided"},
    ),
    "svm-too-long": ("masked", REFERENCE.replace("", {sequence_max_margin: longer}), {"svm-is-optimal"}),
    "svm-gives-up": (
        "causal",
        REFERENCE.replace("", {sequence_max_margin: infeasible_but_for_opt}),
        {"any-tokens-are-decided"},
    ),
}
"""For each planted fault: a case, the implementation under test, and claims that it falsifies."""


@settings(max_examples=8)
@given(STATEMENT.cases())
def test_reference_upholds_generated_cases(given_case: Case) -> None:
    outcome = check(STATEMENT, given_case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


@pytest.mark.parametrize("name", CASES)
def test_every_claim_on_sequences_is_made(name: str) -> None:
    claims = claims_of(CASES[name], REFERENCE)
    assert set(claims) == set(STATEMENT.claims)
    assert all(claim.verdict is Verdict.UPHELD for claim in claims.values())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("arranged", [shortest_last, queries_backwards, a_part_per_query])
def test_parts_may_come_in_any_order(name: str, arranged: Callable[..., Any]) -> None:
    """An implementation may sort queries and divide them into parts in any way, if it reports their places."""
    claims = claims_of(CASES[name], REFERENCE.replace("", {sequence_parts: arranged}))
    assert set(claims) == set(STATEMENT.claims)
    assert {claim.verdict for claim in claims.values()} == {Verdict.UPHELD}


@cache
def claims_falsified_by(name: str) -> set[str]:
    case_name, under_test, _ = PLANTS[name]
    return falsified(case_name, under_test)


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_falsifies_the_intended_claims_on_sequences(name: str) -> None:
    assert PLANTS[name][2] <= claims_falsified_by(name), claims_falsified_by(name)


@pytest.mark.parametrize("name", ["temperature", "masked-token", "float32-softmax"])
def test_faults_of_attention_falsify_the_statement_on_sequences(name: str) -> None:
    assert falsified("causal", fault_named(name).implementation)


def test_each_claim_fails_under_some_planted_fault() -> None:
    names = set().union(*(claims_falsified_by(name) for name in PLANTS))
    names |= falsified("causal", fault_named("temperature").implementation)
    assert names == set(STATEMENT.claims), set(STATEMENT.claims) - names


def test_a_sequence_with_one_part_has_the_svm_solution_of_that_part() -> None:
    data = SequenceDataset([[[1, 2], [3, 4], [0, 1]]], [[[1, 0.5], [-1, 2]]], [[1, -1]], [1, 0])
    (part,) = data.parts
    one = max_margin(part.problem.exact_keys, part.problem.optimal)
    several = sequence_max_margin([part.problem.exact_keys], [part.problem.optimal])
    assert isinstance(one, MaxMargin)
    assert isinstance(several, SequenceMaxMargin)
    assert list(one.exact.p) == several.exact_p
    assert (one.neighbours == several.neighbours[0]).all()


def test_parts_in_different_units_are_solved_together() -> None:
    """Keys of two parts differ in size by 2^40; check the constraints and p_mm = Σ λ (k_α − k_t) over both parts."""
    small, large = np.array([[[1.0, 0.0], [0.0, 2.0]]]) * 2.0**-30, np.array([[[0.0, 1.0], [3.0, 0.0], [1.0, 1.0]]])
    alpha = [np.array([0]), np.array([1])]
    solution = sequence_max_margin([small, large * 1024], alpha)
    assert isinstance(solution, SequenceMaxMargin)
    rows = [small[0, 0] - small[0, 1], *(1024 * (large[0, 1] - large[0, t]) for t in (0, 2))]
    assert min(float(row @ solution.p) for row in rows) > 1 - 1e-12
    total = [sum((w * x[j] for w, x in _used(solution, rows)), fmpq(0)) for j in (0, 1)]
    assert total == solution.exact_p


def _used(found: SequenceMaxMargin, rows: list[Any]) -> list[tuple[fmpq, list[fmpq]]]:
    at = {(0, 0, 1): rows[0], (1, 0, 0): rows[1], (1, 0, 2): rows[2]}
    return [(weight, exact_vector(at[place])) for place, weight in found.exact_duals.items()]


def test_fewer_differences_of_keys_than_dimensions_may_be_dependent() -> None:
    """For d = 5, T = 4, n = 2 there are 24 differences of keys in 25 dimensions, of rank only 21."""
    rng = np.random.default_rng(0)
    X = rng.integers(-9, 10, size=(2, 4, 5)).astype(np.float64)
    data = SequenceDataset(X, X, np.ones((2, 4)), np.ones(5))
    rows = list(sequence_rows(data, data.parts, optimal_tokens_of(data.parts)).values())
    assert (len(rows), len(rows[0])) == (24, 25)
    assert fmpq_mat(rows).rank() == 21
    # In one dimension more, the differences are independent.
    X = rng.integers(-9, 10, size=(2, 4, 6)).astype(np.float64)
    data = SequenceDataset(X, X, np.ones((2, 4)), np.ones(6))
    assert fmpq_mat(list(sequence_rows(data, data.parts, optimal_tokens_of(data.parts)).values())).rank() == 24
