"""Statements draw large cases, and what is computed on them stays within time and memory."""

from __future__ import annotations

import numpy as np
import pytest

from generators.numbers import BLOCKS, MODERATE, SOLVABLE_BLOCKS, Large
from reference_attention.problem import Problem
from theorems.core.points import ENTRIES, LEAST_POINTS, affordable
from theorems.registry.lookup import statement_named
from theorems.run.verify import drawn
from theorems.token_selection.softmax.smoothness import diameters

SIZES: dict[str, Large] = {
    **dict.fromkeys(("lemma-1", "lemma-3", "lemma-6"), BLOCKS),
    **dict.fromkeys(("lemma-4", "lemma-5", "lemma-11", "lemma-14"), SOLVABLE_BLOCKS),
    **dict.fromkeys(("lemma-7", "theorem-1", "theorem-2", "theorem-3", "theorem-4"), MODERATE),
}


@pytest.mark.parametrize("id", SIZES)
def test_a_tenth_to_two_fifths_of_the_cases_drawn_have_many_tokens_and_dimensions(id: str) -> None:
    large, examples = SIZES[id], 40
    shapes = [case.problem.keys.shape for case in drawn(statement_named(id), examples, 0)]
    wide = [(n, T, d) for n, T, d in shapes if T in large.tokens and d >= min(large.d) - 1]
    assert 0.1 * examples <= len(wide) <= 0.4 * examples
    assert max(T for _, T, _ in wide) > min(large.tokens)


def test_there_are_fewer_points_where_problems_are_large() -> None:
    small, large = (Problem(np.ones((1, T, d)), np.zeros((1, T))) for T, d in ((5, 5), (256, 256)))
    assert affordable(small, 150) == 150
    assert affordable(large, 150) == LEAST_POINTS
    assert affordable(large, 4) == 4
    assert affordable(Problem(np.ones((16, 8, 128)), np.zeros((16, 8))), 150) == ENTRIES // (16 * 8 * 128)


@pytest.mark.parametrize("unit", [1.0, 1e-130, 1e130])
def test_diameters_one_token_at_a_time_are_those_of_all_pairs(unit: float) -> None:
    keys = np.random.default_rng(0).normal(size=(3, 9, 4)) * unit
    keys[1] = keys[1, :1]
    found = diameters(keys)
    brute = np.max(np.linalg.norm((keys[:, :, None] - keys[:, None]) / unit, axis=-1), axis=(1, 2)) * unit
    assert np.all(np.abs(found.value - brute) <= found.error + 4e-16 * brute)
    assert found.value[1] == found.error[1] == 0
    assert np.all(found.error <= 1e-14 * brute)
