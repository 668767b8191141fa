"""Keys given by their factors, tokens x_it and queries z_i: equal to the products x_it z_iᵀ, and exact where products
would be rounded.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from reference_attention.outer_keys import OuterKeys, first_inputs, rational_keys

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 5))
KEYS = OuterKeys(X, Z)


def exact(i: int, t: int) -> list[Fraction]:
    """Return vec(x_it z_iᵀ)."""
    return [Fraction(float(a)) * Fraction(float(b)) for a in X[i, t] for b in Z[i]]


def test_keys_in_floats_are_the_products_row_by_row() -> None:
    assert KEYS.shape == KEYS.floats.shape == (2, 3, 20)
    for i, t in np.ndindex(2, 3):
        assert KEYS.floats[i, t].tolist() == np.outer(X[i, t], Z[i]).ravel().tolist()


def test_keys_in_integers_and_rationals_are_the_exact_products() -> None:
    rationals = rational_keys(KEYS).tolist()
    plain = rational_keys(X).tolist()
    for i, t in np.ndindex(2, 3):
        assert [Fraction(m) * Fraction(2) ** KEYS.exponent for m in KEYS.integers((i, t))] == exact(i, t)
        assert [Fraction(int(q.p), int(q.q)) for q in rationals[3 * i + t]] == exact(i, t)
        assert [float(q.p) / float(q.q) for q in plain[3 * i + t]] == X[i, t].tolist()


@pytest.mark.parametrize(("bits", "short"), [(26, True), (27, True), (28, False)])
def test_keys_whose_products_have_few_bits_are_not_rounded(bits: int, short: bool) -> None:
    x, z = np.array([[[-(2.0**bits - 1), 0.0], [2.0**40, 3.0]]]), np.array([[2.0**26 - 1, 0.5]])
    keys = OuterKeys(x, z)
    assert keys.short is short
    products = [Fraction(float(a)) * Fraction(float(b)) for a in x[0, 0] for b in z[0]]
    assert ([Fraction(float(a)) for a in keys.floats[0, 0]] == products) == short


def test_keys_can_be_scaled_and_restricted_to_the_first_inputs() -> None:
    assert (KEYS.scale_by(0.25).floats == KEYS.floats / 4).all()
    assert (first_inputs(KEYS, 1).floats == KEYS.floats[:1]).all()  # type: ignore[union-attr]
    assert (first_inputs(X, 1) == X[:1]).all()
