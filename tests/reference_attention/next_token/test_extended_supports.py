"""Extended supports: two exact decision procedures agree, proofs are valid, and wrong proofs are refuted."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from flint import fmpq

from reference_attention.next_token import extended_supports as module
from reference_attention.next_token.extended_supports import extended_supports, supports_by_exclusion
from reference_attention.next_token.master_problem import MasterProblem

LOOP = MasterProblem.of_tokens([[1.0], [1.0]], [[1, 0, 0], [0, 3, 0]])
"""Not separable: the same embedding is followed by one token in one sample and by another token in the other."""


def random_problem(rng: np.random.Generator) -> MasterProblem:
    m, V, d = (int(rng.integers(low, high)) for low, high in ((1, 6), (2, 6), (1, 5)))
    counts = rng.integers(0, 2, size=(m, V)) * rng.integers(1, 5, size=(m, V))
    counts[np.arange(m), rng.integers(0, V, m)] += 1
    return MasterProblem.of_tokens(rng.integers(-3, 4, size=(m, d)), counts)


@pytest.mark.parametrize("seed", range(60))
def test_both_decision_procedures_find_the_same_supports_and_prove_them(seed: int) -> None:
    problem = random_problem(np.random.default_rng(seed))
    first, second = module._by_program(problem), supports_by_exclusion(problem)
    assert first is not None
    assert first.error(problem) == ""
    assert second.error(problem) == ""
    assert np.array_equal(first.sets, second.sets)


def test_supports_of_embeddings_of_very_different_sizes_are_decided() -> None:
    problem = MasterProblem.of_tokens([[1.0, 0.0], [1.0, 1e-13], [1e12, 1.0]], [[1, 0, 0], [0, 3, 0], [1, 1, 0]])
    result = extended_supports(problem)
    assert result.error(problem) == ""
    assert np.array_equal(result.sets, supports_by_exclusion(problem).sets)


def test_supports_of_contexts_that_contradict_each_other_are_joined() -> None:
    result = extended_supports(LOOP)
    assert result.sets.tolist() == [[True, True, False]] * 2
    assert not result.separable(LOOP)
    assert result.largest == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda found: {"sets": LOOP.supports}, "λ is not positive|does not separate"),
        (lambda found: {"separator": [-x for x in found.separator]}, "does not separate"),
        (lambda found: {"tying": {pair: -x for pair, x in found.tying.items()}}, "λ is not positive"),
        (lambda found: {"tying": {pair: x + 1 for pair, x in list(found.tying.items())[:1]}}, "λ is not positive"),
        (lambda found: {"tying": {p: x + k for k, (p, x) in enumerate(found.tying.items())}}, "is not 0"),
        (
            lambda found: {"levelling": {(0, 2): fmpq(1)}},
            "μ is non-zero on an alternative that did not follow its context",
        ),
        (lambda found: {"sets": np.ones((1, 3), dtype=bool)}, "do not contain"),
        (lambda found: {"separator": [fmpq(1)]}, "another problem"),
    ],
)
def test_a_wrong_proof_of_extended_supports_is_refuted(change: object, says: str) -> None:
    found = extended_supports(LOOP)
    wrong = replace(found, **change(found))  # type: ignore[operator]
    assert re.search(says, wrong.error(LOOP)), wrong.error(LOOP)
