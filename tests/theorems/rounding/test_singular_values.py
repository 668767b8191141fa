"""Bounds of singular values contain the true ones, for matrices of any shape and condition."""

from __future__ import annotations

import numpy as np
from flint import ctx

from theorems.bounded import exact, in_floats
from theorems.rounding.singular_values import nuclear_norm, singular_values


def test_singular_values_of_a_diagonal_are_its_entries() -> None:
    given = np.array([[3.0, 0.0, 0.0], [0.0, 1e-9, 0.0]])
    result = singular_values(exact(given))
    assert (np.abs(result.value - [3.0, 1e-9]) <= result.error).all()
    assert (result.error < 1e-14).all()


def test_bounds_of_singular_values_include_the_error_of_the_matrix() -> None:
    rng = np.random.default_rng(0)
    given = rng.normal(size=(5, 4, 3))
    apart = rng.normal(size=given.shape) * 1e-6
    result = singular_values(exact(given).widen(np.abs(apart)))
    moved = np.linalg.svd(given + apart, compute_uv=False)
    assert (np.abs(result.value - moved) <= result.error).all()
    assert (result.error < 1e-4).all()


def test_singular_values_give_the_frobenius_and_the_nuclear_norm() -> None:
    given = np.random.default_rng(1).normal(size=(4, 6))
    result = singular_values(exact(given))
    total = np.sum(result * result)
    assert abs(total.value - float(np.sum(given**2))) <= total.error + 1e-12
    assert nuclear_norm(exact(given)).value == np.sum(result).value


def test_an_integer_matrix_agrees_with_ball_arithmetic() -> None:
    from flint import arb_mat

    given = np.array([[1.0, 2, 3], [4, 5, 6], [7, 8, 10]])
    result, before = singular_values(exact(given)), ctx.prec
    ctx.prec = 200
    try:
        exact_values = sorted(
            (abs(x.real).sqrt() for x in (arb_mat(given.T.tolist()) * arb_mat(given.tolist())).eig(algorithm="approx")),
            key=float,
            reverse=True,
        )
    finally:
        ctx.prec = before
    assert (np.abs(result.value - [float(x) for x in exact_values]) <= result.error).all()


def test_in_plain_floats_singular_values_are_those_of_numpy() -> None:
    with in_floats():
        assert isinstance(singular_values(exact(np.eye(2))), np.ndarray)
