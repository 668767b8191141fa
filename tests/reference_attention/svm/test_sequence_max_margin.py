"""One ATT-SVM with the constraints of several problems: exact rows in one common unit, KKT conditions and
Farkas vectors over the rationals.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from reference_attention.errors import InvalidInput
from reference_attention.outer_keys import OuterKeys
from reference_attention.svm.certificate import KeyRows
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.sequence_max_margin import (
    SequenceInfeasible,
    SequenceMaxMargin,
    StackedRows,
    sequence_max_margin,
)

RNG = np.random.default_rng(3)
ALPHA = [np.array([1]), np.array([0, 1]), np.array([2])]


def ahead(tokens: np.ndarray, q: int, unit: float) -> np.ndarray:
    """Return tokens in multiples of a unit, in which the chosen tokens are largest in every coordinate."""
    tokens[np.arange(len(tokens)), ALPHA[q]] += 10
    return tokens * unit


# The keys of each problem have their own unit.
KEYS = [
    ahead(RNG.integers(-8, 9, size=(1, 3, 4)), 0, 2.0**-3),
    ahead(RNG.integers(-2, 3, size=(2, 2, 4)), 1, 2.0**5),
    OuterKeys(ahead(RNG.integers(-9, 9, size=(1, 4, 2)), 2, 2.0**-10), RNG.integers(1, 9, size=(1, 2)) / 2.0**10),
]


def plain(q: int) -> np.ndarray:
    keys = KEYS[q]
    return keys.floats if isinstance(keys, OuterKeys) else keys


def row(q: int, i: int, t: int) -> list[Fraction]:
    return [Fraction(x) for x in (plain(q)[i, ALPHA[q][i]] - plain(q)[i, t]).tolist()]


def test_rows_of_several_problems_share_one_unit() -> None:
    rows = StackedRows([KeyRows(keys, alpha) for keys, alpha in zip(KEYS, ALPHA, strict=True)])
    places = [(0, 0, 0), (0, 0, 2), (1, 0, 1), (1, 1, 0), (2, 0, 0), (2, 0, 1), (2, 0, 3)]
    assert rows.places == places
    assert 0.25 < np.abs(rows.floats).max() < 4
    exact = rows.integers(range(7)).tolist()
    for j, place in enumerate(places):
        assert [Fraction(int(x)) * Fraction(2) ** rows.unit for x in exact[j]] == row(*place)
        assert [float(Fraction(int(x)) / Fraction(2) ** rows.shift) for x in exact[j]] == rows.floats[j].tolist()
    assert rows.integers([5]).tolist() == exact[5:6]
    spread = rows.spread(np.arange(7.0), np.inf)
    assert [item.tolist() for item in spread] == [[[0, np.inf, 1]], [[np.inf, 2], [3, np.inf]], [[4, 5, np.inf, 6]]]


def test_the_solution_satisfies_the_kkt_conditions_exactly() -> None:
    solution = sequence_max_margin(KEYS, ALPHA)
    assert isinstance(solution, SequenceMaxMargin)
    p = [Fraction(int(x.p), int(x.q)) for x in solution.exact_p]
    assert solution.p.tolist() == [float(x) for x in p]
    assert not solution.p.flags.writeable
    assert solution.norm == pytest.approx(float(np.linalg.norm(solution.p)))
    assert solution.direction == pytest.approx(solution.p / np.linalg.norm(solution.p))
    duals = {place: Fraction(int(x.p), int(x.q)) for place, x in solution.exact_duals.items()}
    assert all(x > 0 for x in duals.values())
    total = [sum(x * row(*place)[j] for place, x in duals.items()) for j in range(4)]
    assert total == p
    for q, (keys, alpha) in enumerate(zip(map(plain, range(3)), ALPHA, strict=True)):
        for i, t in np.ndindex(keys.shape[:2]):
            margin = sum(a * b for a, b in zip(row(q, i, t), p, strict=True))
            if t == alpha[i]:
                assert (solution.margins[q][i, t], solution.duals[q][i, t]) == (np.inf, 0.0)
                assert not solution.neighbours[q][i, t]
                continue
            assert margin >= 1
            assert solution.neighbours[q][i, t] == (margin == 1)
            assert solution.margins[q][i, t] == pytest.approx(float(margin))
            assert solution.duals[q][i, t] == float(duals.get((q, i, t), 0))
    single = max_margin(KEYS[0], ALPHA[0])
    assert isinstance(single, MaxMargin)
    assert sequence_max_margin(KEYS[:1], ALPHA[:1]).p.tolist() == single.p.tolist()  # type: ignore[union-attr]


def test_if_the_problems_are_infeasible_the_farkas_vector_cancels_their_rows_exactly() -> None:
    keys = [np.array([[[1.0, 0.0], [0.0, 0.0]]]), np.array([[[0.0, 0.0], [0.25, 0.0], [0.0, -1.0]]])]
    alpha = [np.array([0]), np.array([0])]
    solution = sequence_max_margin(keys, alpha)
    assert isinstance(solution, SequenceInfeasible)
    assert [item.tolist() for item in solution.alpha] == [[0], [0]]
    assert set(solution.exact) == {(0, 0, 1), (1, 0, 1)}
    assert all(x > 0 for x in solution.exact.values())
    assert solution.exact[1, 0, 1] == 4 * solution.exact[0, 0, 1]


def test_a_solution_beyond_the_floats_is_refused() -> None:
    keys = [np.array([[[5e-324, 0.0], [0.0, 0.0]]])]
    with pytest.raises(InvalidInput, match="an exact result is beyond the range of float64"):
        sequence_max_margin(keys, [np.array([0])])
