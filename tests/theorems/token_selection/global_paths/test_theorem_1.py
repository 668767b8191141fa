"""Theorem 1: upheld by the reference, falsified by planted faults; its predictions compared with other solvers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from generators.case import Case
from reference_attention.paths.regularization_path import regularization_path
from reference_attention.risk import scaled_gradient
from reference_attention.svm.max_margin import MaxMargin, max_margin
from tests.theorems.token_selection.faults import FAULTS, planted
from tests.theorems.token_selection.path_cases import (
    BEYOND_FLOAT,
    CORNERS,
    case,
    claims_of,
    falsified,
    figure_1a,
    random_cases,
    statement,
)
from theorems.bounded import Bounded
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.curves.constraints import Constraints, exact_to_rounding
from theorems.curves.followed_path import Followed, FollowedPath
from theorems.curves.reduced_program import FAR, Reduced, closed_form, tangent_basis
from theorems.curves.sphere import Sphere
from theorems.curves.sublevel_hunt import sublevel_points
from theorems.token_selection.global_paths.theorem_1_regularization_path import (
    PATH_CORRELATION,
    SUBLEVEL_RADII,
    in_sublevel_sets,
    log_kappa,
    on_the_path,
)

CAUGHT_BY: dict[str, str] = {
    "temperature": "sublevel-correlation-from-duals",
    "masked-token": "path-is-stationary",
    "epsilon-in-denominator": "path-is-stationary",
    "float32-softmax": "sublevel-margin",  # weights underflow, so L equals its infimum
    "clipped-logits": "path-is-stationary",
    "negated-gradient": "path-is-stationary",
    "one-coordinate-off": "offset-at-radius",
    "rolled-coordinates": "path-is-stationary",
    "weight-decay": "path-is-stationary",
    "wrong-loss-derivative": "path-is-stationary",
    "diagonal-jacobian": "path-is-stationary",
    "detached-normaliser": "path-is-stationary",
    "cancelling-gradient": "path-is-stationary",
    "svm-scaled": "svm-is-optimal",
    "svm-misses-a-constraint": "svm-is-optimal",
    "svm-with-bias": "svm-is-optimal",
    "svm-for-another-token": "svm-is-optimal",
    "neighbours-by-tolerance": "svm-is-optimal",
    "neighbour-lost": "svm-is-optimal",
    "svm-always-infeasible": "svm-is-optimal",
}
"""For each fault, a claim that it falsifies."""

PATHS = ("path-at-twice-the-radius", "path-at-half-the-radius", "path-at-one-radius", "path-leaves-radii-out")
"""Faults by which the regularization path has wrong radii."""

MISSED = {"gradient-too-long": "the path minimises a risk; twice its gradient vanishes at the same points"}
"""Faults under which the theorem remains true, with the reason."""


@settings(max_examples=12)
@given(statement("theorem-1").cases())
def test_reference_upholds_generated_cases(given_case: Case) -> None:
    outcome = check(statement("theorem-1"), given_case, REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


@pytest.mark.parametrize("name", CORNERS)
def test_theorem_1_is_upheld_on_corner_cases(name: str) -> None:
    outcome = check(statement("theorem-1"), CORNERS[name], REFERENCE)
    assert outcome.verdict is Verdict.UPHELD, outcome.reason


@pytest.mark.parametrize("fault", PATHS)
def test_a_regularization_path_at_wrong_radii_is_caught(fault: str) -> None:
    under_test = planted(fault)[fault]
    assert "minimised-path-is-on-the-sphere" in falsified("theorem-1", CORNERS["several-inputs"], under_test)


def test_theorem_1_beyond_float64_is_undecided_with_a_reason() -> None:
    for far in BEYOND_FLOAT.values():
        outcome = check(statement("theorem-1"), far, REFERENCE)
        assert outcome.verdict is Verdict.INCONCLUSIVE
        assert "κ" in outcome.reason


def test_theorem_1_is_upheld_on_figure_1a() -> None:
    claims = claims_of("theorem-1", figure_1a(), REFERENCE)
    assert all(claim.verdict is Verdict.UPHELD for claim in claims.values())
    # With one SVM-neighbour the path is on the ray of p_mm, so no claim on a rate is made.
    assert {"offset-closed-form", "path-is-lowest", "sublevel-margin"} <= set(claims)


def test_which_rate_theorem_1_claims_depends_on_neighbours_of_dual_zero() -> None:
    assert "path-rate" in claims_of("theorem-1", CORNERS["several-inputs"], REFERENCE)
    assert "offset-limit" in claims_of("theorem-1", CORNERS["more-neighbours-than-dimensions"], REFERENCE)
    for name in ("zero-dual", "zero-dual-of-dependent"):
        claims = claims_of("theorem-1", CORNERS[name], REFERENCE)
        assert "path-rate-with-logarithm" in claims
        assert "path-rate" not in claims


def test_each_planted_fault_is_caught_by_the_intended_claim_of_theorem_1() -> None:
    cases = random_cases(4, equal=False)
    assert set(CAUGHT_BY) | set(MISSED) == set(FAULTS)
    for fault, claim in CAUGHT_BY.items():
        assert any(claim in falsified("theorem-1", c, FAULTS[fault]) for c in cases), fault
    for fault in MISSED:
        assert not any(falsified("theorem-1", c, FAULTS[fault]) for c in cases), fault


def test_for_a_textbook_kernel_theorem_1_makes_only_claims_at_finite_radii() -> None:
    kernel = replace(FAULTS["cancelling-gradient"], textbook_eps=2.0**-52)
    claims = claims_of("theorem-1", CORNERS["several-inputs"], kernel)
    assert set(claims) == {
        "svm-is-optimal",
        "sublevel-margin",
        "sublevel-correlation",
        "sublevel-correlation-from-duals",
    }


def _svm(given_case: Case) -> MaxMargin:
    solution = max_margin(given_case.problem.keys, given_case.problem.optimal)
    assert isinstance(solution, MaxMargin)
    return solution


def test_the_search_in_sublevel_sets_reaches_the_bound_from_the_duals() -> None:
    """The bound from the duals is attained on the boundary of the sublevel set, which the search must reach."""
    for given_case in random_cases(4, equal=False):
        claim = claims_of("theorem-1", given_case, REFERENCE)["sublevel-correlation-from-duals"]
        kappa = float(log_kappa(given_case.problem).value)
        assert claim.slack < 1e-3 / (kappa * 1e6) + 1e-7


def test_the_bounds_with_a_quarter_of_kappa_are_falsified() -> None:
    """For two inputs with orthogonal keys and score gaps of ratio 10⁶, the sublevel set contains p with p·p̄_mm far
    less than R.
    """
    keys = np.zeros((2, 2, 2))
    keys[:, 0] = np.eye(2)
    given_case = case(keys, np.array([[1.0, 0.0], [1e-6, 0.0]]), "correlation")
    problem, svm = given_case.problem, _svm(given_case)
    constraints = Constraints.of(problem, svm)
    basis = tangent_basis(svm.direction, constraints.rows)
    kappa = log_kappa(problem)

    def wrong(kappa: Bounded) -> set[str]:
        rhos = float(kappa.value) * np.array(SUBLEVEL_RADII)
        result = sublevel_points(problem, REFERENCE, svm, constraints, basis, rhos, given_case.rng())
        made = in_sublevel_sets(problem, REFERENCE, svm, kappa, rhos, *result)
        return {claim.name for claim in made if claim.verdict is Verdict.FALSIFIED}

    assert wrong(kappa) == set()
    assert {"sublevel-margin", "sublevel-correlation"} <= wrong(kappa / 4)


@pytest.mark.parametrize("name", ["several-inputs", "more-neighbours-than-dimensions", "margin-1+3e-9", "zero-dual"])
def test_the_reduced_program_agrees_with_global_minimisation_of_the_risk(name: str) -> None:
    """The path found by L-BFGS on the risk from several starts has the offset from p_mm that the reduced program
    predicts.
    """
    given_case = CORNERS[name]
    problem, svm = given_case.problem, _svm(given_case)
    constraints = Constraints.of(problem, svm)
    basis = tangent_basis(svm.direction, constraints.rows)
    for rho in (1e3, 1e5):
        assert exact_to_rounding(problem, float(log_kappa(problem).value), rho)
        y, solved = Reduced.at(constraints, basis, rho).newton(np.zeros(problem.d - 1))
        path = regularization_path(problem, [rho * svm.norm], max_margin=svm)
        assert solved
        assert path.converged.all()
        np.testing.assert_allclose(path.offsets[0] / svm.norm, basis @ y, atol=1e-9 * (1 + np.linalg.norm(y)))


def test_the_closed_form_of_the_offset_is_that_found_by_hand() -> None:
    """For k_opt − k_t = (1, 0) and (0, 2) with costs c = (1, 3), p_mm = (1, ½) and duals λ = (1, ¼); the offset solves
    (k_opt − k_t)·o = log(c_t/λ_t), up to its part along p_mm.
    """
    given_case = case([[[0, 0], [-1, 0], [0, -2]]], [[3.0, 2.0, 0.0]], "correlation")
    svm = _svm(given_case)
    constraints = Constraints.of(given_case.problem, svm)
    basis = tangent_basis(svm.direction, constraints.rows)
    y, _ = closed_form(constraints, basis)
    factor = given_case.problem.keys[0, 1, 0] / -1.0
    b = np.array([np.log(1 / 1.0), np.log(3 / 0.25)])
    o = np.array([b[0], b[1] / 2])
    p = np.array([1.0, 0.5])
    expected = (o - (o @ p) / (p @ p) * p) / factor
    np.testing.assert_allclose(basis @ y * svm.norm, expected, atol=1e-14)


def test_closed_form_has_five_digits_at_radius_1e6_and_its_error_falls_like_1_over_radius() -> None:
    given_case = random_cases(2, equal=False)[1]
    problem, svm = given_case.problem, _svm(given_case)
    constraints = Constraints.of(problem, svm)
    basis = tangent_basis(svm.direction, constraints.rows)
    limit, _ = closed_form(constraints, basis)
    errors = []
    for rho in (1e4, 1e5, 1e6):
        y, _ = Reduced.at(constraints, basis, rho).newton(np.zeros(problem.d - 1))
        errors.append(float(np.linalg.norm(y - limit) / np.linalg.norm(limit)))
    assert errors[-1] < 1e-5
    np.testing.assert_allclose(np.diff(np.log10(errors)), -1, atol=0.02)


def test_offset_grows_like_log_radius_where_a_neighbour_has_no_dual() -> None:
    given_case = CORNERS["zero-dual"]
    problem, svm = given_case.problem, _svm(given_case)
    constraints = Constraints.of(problem, svm)
    basis = tangent_basis(svm.direction, constraints.rows)
    sizes = [
        float(np.linalg.norm(Reduced.at(constraints, basis, rho).newton(np.zeros(1))[0])) for rho in (1e4, 1e6, 1e8)
    ]
    # The offset y balances e^{−y} and y/ρ, so y + log y = log ρ at radius ρ.
    for rho, y in zip((1e4, 1e6, 1e8), sizes, strict=True):
        assert abs(y + np.log(y) - np.log(rho)) < 0.01


def _nudged(amount: float) -> Any:
    """Return an implementation with the gradient turned by the angle ``amount`` in the plane of the first two axes."""
    right = scaled_gradient

    def gradient(*args: Any) -> Any:
        result = right(*args)
        direction = np.array(result.direction)
        a, b = direction[..., 0].copy(), direction[..., 1].copy()
        direction[..., 0], direction[..., 1] = a - amount * b, b + amount * a
        return replace(result, direction=direction)

    return REFERENCE.replace("nudged", {scaled_gradient: gradient})


def test_a_gradient_turned_by_1e_11_is_caught() -> None:
    """A turn of 1e-17, below rounding, must not be caught; at radius 1e6 the offset shows angles a million times
    larger.
    """
    given_case = random_cases(2, equal=False)[0]
    assert not falsified("theorem-1", given_case, _nudged(1e-17))
    assert "path-is-stationary" in falsified("theorem-1", given_case, _nudged(1e-11))


def _path_claims(given_case: Case, **changed: Any) -> dict[str, Verdict]:
    """Return the verdicts on the path at two radii; ``changed`` replaces fields of the second point."""
    problem, svm = given_case.problem, _svm(given_case)
    constraints = Constraints.of(problem, svm)
    basis = tangent_basis(svm.direction, constraints.rows)
    spheres = [Sphere(problem, svm, basis, Reduced.at(constraints, basis, rho), REFERENCE) for rho in (1e3, 1e5)]
    first, second = (Followed.at(sphere, constraints) for sphere in spheres)
    at = [first, replace(second, **changed)]
    made = on_the_path(FollowedPath(at, constraints, basis, svm, np.random.default_rng(0), PATH_CORRELATION))
    return {claim.name: claim.verdict for claim in made}


def test_a_prediction_that_newton_did_not_find_is_undecided() -> None:
    """A wrong prediction falsifies the claim, unless it is marked as not found by Newton's method."""
    given_case, far = CORNERS["more-neighbours-than-dimensions"], np.array([1e3])
    assert set(_path_claims(given_case).values()) == {Verdict.UPHELD}
    assert _path_claims(given_case, predicted=far)["path-is-stationary"] is Verdict.FALSIFIED
    assert _path_claims(given_case, predicted=far, solved=False) == {
        "path-is-stationary": Verdict.UPHELD,
        "path-correlation": Verdict.INCONCLUSIVE,
    }


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("several-inputs", {"offset-closed-form": Verdict.UPHELD}),
        ("more-neighbours-than-dimensions", {"offset-limit": Verdict.INCONCLUSIVE}),
        ("zero-dual", {"path-rate-with-logarithm": Verdict.UPHELD}),
    ],
)
def test_claims_that_need_no_limit_are_decided_if_newton_did_not_find_the_limit(
    name: str, limits: dict[str, Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newton's method may not converge on the reduced program of infinite radius if coordinates differ much in
    scale.
    """
    right = Reduced.newton

    def newton(self: Reduced, start: Any, steps: int = 400) -> tuple[Any, bool]:
        y, solved = right(self, start, steps)
        return y, solved and self.rho < FAR

    monkeypatch.setattr(Reduced, "newton", newton)
    result = _path_claims(CORNERS[name])
    assert {"path-correlation", "path-is-lowest", "offset-at-radius"} <= {
        claim for claim, verdict in result.items() if verdict is Verdict.UPHELD
    }
    assert limits.items() <= result.items()
    assert Verdict.FALSIFIED not in result.values()


def test_coordinates_of_very_different_scales_are_no_false_alarm() -> None:
    """Two differences k_opt − k_t are long and nearly opposite; a third, of dual 0, is 10⁻⁵ from the first.

    In one direction the reduced program has only the curvature of the sphere, 1/ρ, sixteen digits below that in others.
    """
    keys = [[[0.0, 0.0, 0.0], [-1e-3, 2600.0, 0.0], [-1e-3, -2600.0, 0.0], [-1e-3, 2600.0, 1e-5]]]
    claims = claims_of("theorem-1", case(keys, [[1.0, 0.0, -1.0, 0.0]], "exponential"), REFERENCE)
    assert {claim.verdict for claim in claims.values()} == {Verdict.UPHELD}
    assert "path-rate-with-logarithm" in claims
