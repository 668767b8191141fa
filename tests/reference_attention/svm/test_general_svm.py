"""Gen-SVM and the finite part of the weights: by hand and against a projection; input that is refused.

Notation: a set of tokens of each input has equal logits, at least 1 above those of the masked tokens; s⋆ is the
attention of least penalised risk, W_fin the finite part of the weights, and o their offset.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flint import arb, ctx, fmpq
from scipy.optimize import minimize

from reference_attention.errors import InvalidInput
from reference_attention.exact import to_floats
from reference_attention.optimal_attention import optimal_attention
from reference_attention.outer_keys import OuterKeys
from reference_attention.svm.finite_part import finite_part, independent_part, mixing_offset, offset_correction
from reference_attention.svm.general_svm import GeneralSvm, general_svm
from reference_attention.svm.max_margin import Infeasible

FOUR = OuterKeys(np.eye(4)[None], np.ones((1, 1)))
TWO_OF_FOUR = np.array([[True, True, False, False]])
FIRST = np.zeros(1, dtype=np.int64)


def solved(keys: OuterKeys = FOUR, sets: Any = TWO_OF_FOUR, alpha: Any = FIRST) -> GeneralSvm:
    solution = general_svm(keys, sets, alpha)
    assert isinstance(solution, GeneralSvm)
    return solution


def test_the_solution_of_gen_svm_is_that_found_by_hand() -> None:
    svm = solved()
    half = fmpq(1, 2)
    assert svm.point == [half, half, -half, -half]
    assert svm.duals == {(0, 2): half, (0, 3): half}
    assert svm.multipliers == {(0, 1): -half}
    assert svm.margins == {(0, 2): 1, (0, 3): 1}
    assert svm.norm_squared == 1


@pytest.mark.parametrize("seed", range(8))
def test_no_feasible_w_is_shorter_than_the_solution_of_gen_svm(seed: int) -> None:
    """Compare with sequential quadratic programming over all pairs of a token of the set and a masked token."""
    rng = np.random.default_rng(seed)
    n, T, d, e = 2, 4, 4, 2
    X, z = rng.integers(-3, 4, size=(n, T, d)) / 1.0, rng.integers(-3, 4, size=(n, e)) / 1.0
    sets = np.argsort(rng.random((n, T)), axis=1) < 2
    alpha = np.argmax(sets, axis=1).astype(np.int64)
    solution = general_svm(OuterKeys(X, z), sets, alpha)
    if isinstance(solution, Infeasible):
        pytest.skip("dependent rows")

    def logits(w: Any) -> Any:
        return np.einsum("ntd,de,ne->nt", X, w.reshape(d, e), z)

    def level(w: Any) -> Any:
        return np.concatenate([np.diff(row[mask]) for row, mask in zip(logits(w), sets, strict=True)])

    def apart(w: Any) -> Any:
        rows = zip(logits(w), sets, strict=True)
        return np.concatenate([(row[mask][:, None] - row[~mask] - 1).ravel() for row, mask in rows])

    constraints = [{"type": "eq", "fun": level}, {"type": "ineq", "fun": apart}]
    ours = to_floats(solution.point)
    best = minimize(lambda w: w @ w, ours + 0.1 * rng.normal(size=d * e), constraints=constraints)
    assert best.success
    assert np.allclose(best.x, ours, atol=1e-5)


def test_gen_svm_is_infeasible_if_a_token_of_the_set_equals_a_masked_one() -> None:
    twice = OuterKeys(np.eye(2)[None, [0, 0, 1]], np.ones((1, 1)))
    assert isinstance(general_svm(twice, np.array([[True, False, False]]), FIRST), Infeasible)


@pytest.mark.parametrize(
    ("sets", "alpha", "says"), [(TWO_OF_FOUR, FIRST + 2, "does not belong"), (TWO_OF_FOUR | True, FIRST, "every token")]
)
def test_bad_input_is_refused(sets: Any, alpha: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        general_svm(FOUR, sets, alpha)


def test_the_finite_part_and_the_offset_are_those_found_by_hand() -> None:
    """For s⋆ = (3, 1, 0, 0)/4 and gaps ν = (0, 0, 1, 3)/2 of the masked tokens, W_fin and o are those of
    FINDINGS.md.
    """
    attention = optimal_attention([[fmpq(k) for k in (4, 3, 2, 1)]], fmpq(1))
    svm = solved()
    with ctx.workprec(256):
        half = arb(3).log() / 2
        for found, signs in (
            (finite_part(svm, attention), (1, -1, 0, 0)),
            (mixing_offset(svm, attention), (1, -1, 1, -1)),
        ):
            assert all(abs(x - sign * half) < arb(2) ** -240 for x, sign in zip(found, signs, strict=True))
        # With rows G_t = e_1 − e_t, o = W_fin + (log 3)/2 (G_4 − G_3), so that the correction o₂ has, for some t, ⟨G_3,
        # o₂⟩ = t + log 3 and ⟨G_4, o₂⟩ = t − log 3.
        correction = offset_correction(svm, attention)
        assert abs(correction[3] - correction[2] - 2 * arb(3).log()) < arb(2) ** -240


def test_the_independent_part_of_rows_is_the_first_maximal_one() -> None:
    rows = [[fmpq(x) for x in row] for row in ((1, 1, 0), (2, 2, 0), (0, 1, 0), (1, 2, 0), (0, 0, 3))]
    assert independent_part(rows) == [0, 2, 4]
    assert independent_part([]) == []
