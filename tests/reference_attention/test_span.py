"""Problems embedded in a large space have the same flows, paths and solutions as in their own space.

The span is that of the differences of keys, in which flows and paths are computed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from jaxtyping import Float64

from generators.case import Case
from reference_attention import risk
from reference_attention.directions import direction
from reference_attention.paths.local_path import local_path
from reference_attention.paths.regularization_path import regularization_path
from reference_attention.problem import Problem
from reference_attention.span import WIDE, Span, differences_to_first, span_of, span_of_rows, tangential, thin_tangents
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training import flow as flow_module
from reference_attention.training.batched_flow import gradient_flows
from reference_attention.training.derivatives import newton_field
from reference_attention.training.flow import gradient_flow
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.curves.constraints import Constraints, log_excess
from theorems.curves.flow_chords import chords
from theorems.curves.reduced_program import tangent_basis
from theorems.curves.sublevel_hunt import sublevel_points
from theorems.run.registry.lookup import statement_named

EPS = float(np.finfo(float).eps)
D = 500


def separable_problem() -> Problem:
    """Return a problem whose first tokens are optimal and ahead along the first axis."""
    rng = np.random.default_rng(5)
    keys, scores = rng.normal(size=(3, 3, 4)), rng.normal(size=(3, 3))
    keys[:, 0, 0] += 4.0
    scores[:, 0] += 4.0
    return Problem(keys, scores, "exponential")


SMALL = separable_problem()


def zeros_behind(x: Float64[np.ndarray, "*b k"]) -> Float64[np.ndarray, "*b d"]:
    return np.concatenate([x, np.zeros((*x.shape[:-1], D - x.shape[-1]))], axis=-1)


def signed_places(x: Float64[np.ndarray, "*b k"]) -> Float64[np.ndarray, "*b d"]:
    rng, out = np.random.default_rng(1), np.zeros((*x.shape[:-1], D))
    out[..., rng.permutation(D)[: x.shape[-1]]] = x * rng.choice((-1.0, 1.0), x.shape[-1])
    return out


def turned(x: Float64[np.ndarray, "*b k"]) -> Float64[np.ndarray, "*b d"]:
    frame = np.linalg.qr(np.random.default_rng(2).normal(size=(D, x.shape[-1])))[0]
    return np.asarray(x @ frame.T)


Embedding = Callable[[Float64[np.ndarray, "..."]], Float64[np.ndarray, "..."]]
embeddings = pytest.mark.parametrize("embed", [zeros_behind, signed_places, turned])


def embedded(embed: Embedding) -> Problem:
    return Problem(embed(SMALL.keys), SMALL.scores, SMALL.loss)


def solved(problem: Problem) -> MaxMargin:
    solution = max_margin(problem.keys, problem.optimal)
    assert isinstance(solution, MaxMargin)
    return solution


@embeddings
def test_the_basis_of_a_span_is_orthonormal_and_represents_all_differences_of_keys(embed: Embedding) -> None:
    problem = embedded(embed)
    span = span_of(problem.keys)
    assert span is not None
    k = span.basis.shape[1]
    assert k <= SMALL.n * (SMALL.T - 1)
    assert np.abs(span.basis.T @ span.basis - np.eye(k)).max() <= 8 * EPS
    for token in range(problem.T):
        rows = (problem.keys - problem.keys[:, [token]]).reshape(-1, D)
        lost = rows - span.points(span.coordinates(rows))
        assert (np.linalg.norm(lost, axis=1) <= 16 * EPS * np.linalg.norm(rows, axis=1)).all()


def test_coordinates_in_the_span_of_nearly_equal_keys_keep_their_relative_precision() -> None:
    rng = np.random.default_rng(0)
    keys = np.repeat(rng.normal(size=(2, 1, D)), 4, axis=1)
    keys[:, 1:] += rng.normal(size=(2, 3, D)) * np.array([1.0, 1e-9, 1e-9])[:, None]
    keys[:, 3] = keys[:, 1] + 1e-10 * rng.normal(size=(2, D))
    span = span_of(keys)
    assert span is not None
    rows = keys[:, 3] - keys[:, 1]
    lost = np.linalg.norm(rows - span.points(span.coordinates(rows)), axis=1)
    assert (lost <= 32 * EPS * np.linalg.norm(rows, axis=1)).all()


def test_no_span_is_used_where_it_has_the_dimension_of_the_space() -> None:
    rng = np.random.default_rng(0)
    assert span_of(rng.normal(size=(1, 2, WIDE))) is None
    assert span_of(rng.normal(size=(1, 2, WIDE + 1))) is not None
    assert span_of(rng.normal(size=(20, 3, 79))) is None
    assert span_of_rows(rng.normal(size=(50, 99))) is None
    assert thin_tangents(np.eye(4)[0], np.eye(4)) is None


@embeddings
def test_derivatives_in_the_span_are_coordinates_of_those_in_the_space(embed: Embedding) -> None:
    problem = embedded(embed)
    span = span_of(problem.keys)
    assert span is not None
    p = embed(np.array([0.3, -1.0, 2.0, 0.5]))
    scale, gradient, hessian = newton_field(problem.keys, problem.scores, problem.loss)(p)
    narrow = newton_field(problem.keys, problem.scores, problem.loss, span)(span.coordinates(p))
    assert narrow[0] == pytest.approx(scale, abs=1e-13)
    np.testing.assert_allclose(span.points(narrow[1]), gradient, atol=1e-13)
    np.testing.assert_allclose(span.basis @ narrow[2] @ span.basis.T, hessian, atol=1e-12)


@embeddings
def test_the_flow_of_an_embedded_problem_is_the_embedded_flow(embed: Embedding) -> None:
    start = np.array([0.5, 0.0, -0.25, 1.0])
    small, large = gradient_flow(SMALL, start, norm=1e4), gradient_flow(embedded(embed), embed(start), norm=1e4)
    assert (small.stop, len(small.points)) == (large.stop, len(large.points))
    np.testing.assert_array_equal(large.points[0], embed(start))
    np.testing.assert_allclose(large.points, embed(small.points), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(large.log_risk, small.log_risk, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(large.log_time[1:], small.log_time[1:], rtol=1e-5)


def test_the_flow_does_not_move_coordinates_outside_the_span() -> None:
    problem, outside = embedded(zeros_behind), np.zeros(D)
    outside[10:300] = np.random.default_rng(3).normal(size=290)
    start = outside + zeros_behind(np.array([0.5, 0.0, -0.25, 1.0]))
    flow = gradient_flow(problem, start, norm=1e3, axis=solved(problem).p)
    assert flow.reached_norm
    assert flow.norms[-1] == pytest.approx(1e3, rel=1e-14)
    np.testing.assert_allclose(flow.points[:, 4:], np.tile(outside[4:], (len(flow.points), 1)), atol=1e-12 * 1e3)


@embeddings
def test_the_regularization_path_of_an_embedded_problem_is_the_embedded_path(embed: Embedding) -> None:
    large, radii = embedded(embed), [1.0, 30.0, 1e4]
    svm, svm_large = solved(SMALL), solved(large)
    path = regularization_path(SMALL, radii, max_margin=svm)
    path_large = regularization_path(large, radii, max_margin=svm_large)
    assert path_large.converged.all()
    assert path.converged.all()
    np.testing.assert_allclose(path_large.log_excess, path.log_excess, rtol=1e-9)
    np.testing.assert_allclose(path_large.offsets, embed(path.offsets), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(path_large.points, axis=1), path.norms, rtol=4 * EPS)


def test_the_local_path_of_an_embedded_problem_is_the_embedded_path() -> None:
    axis = solved(SMALL).direction
    options = {"mu": 0.2, "radius": 1.0}
    small = local_path(SMALL, axis, SMALL.optimal, [10.0, 100.0], **options)
    large = local_path(embedded(turned), turned(axis), SMALL.optimal, [10.0, 100.0], **options)
    np.testing.assert_allclose(large.log_excess, small.log_excess, rtol=1e-3)


@embeddings
def test_the_exact_solution_of_an_embedded_problem_is_the_embedded_solution(embed: Embedding) -> None:
    small, large = solved(SMALL), solved(embedded(embed))
    np.testing.assert_array_equal(small.neighbours, large.neighbours)
    assert large.norm == pytest.approx(small.norm, rel=1e-13)
    if embed is not turned:
        assert large.exact.norm_squared == small.exact.norm_squared
        np.testing.assert_array_equal(large.p, embed(small.p))


def test_thin_tangents_are_orthonormal_and_keep_norms() -> None:
    problem = embedded(turned)
    axis = solved(problem).direction
    basis = thin_tangents(axis, differences_to_first(problem.keys))
    assert basis is not None
    whole = np.column_stack([axis, basis])
    assert np.abs(whole.T @ whole - np.eye(whole.shape[1])).max() <= 16 * EPS
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(5, D))
    across = vectors - (vectors @ axis)[:, None] * axis
    np.testing.assert_allclose(
        np.linalg.norm(tangential(vectors, axis, basis), axis=1), np.linalg.norm(across, axis=1), rtol=1e-12
    )


def without_a_direction(span: Span) -> Span:
    return Span(np.delete(span.basis, 1, axis=1))


def not_orthonormal(span: Span) -> Span:
    basis = span.basis.copy()
    basis[:, 1] += 0.1 * basis[:, 0]
    return Span(basis)


@pytest.mark.parametrize("fault", [without_a_direction, not_orthonormal])
def test_a_flow_computed_in_a_wrong_basis_is_falsified_by_its_chords(
    fault: Callable[[Span], Span], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement on chords integrates the gradient in coordinates computed separately from those of the flow."""
    problem, start = embedded(turned), turned(np.array([0.5, 0.0, -0.25, 1.0]))

    def verdict() -> Verdict:
        return chords(problem, gradient_flow(problem, start, norm=1e3), np.random.default_rng(0)).verdict

    assert verdict() is Verdict.UPHELD

    def wrong(*vectors: Float64[np.ndarray, "..."]) -> Span:
        span = span_of(*vectors)
        assert span is not None
        return fault(span)

    monkeypatch.setattr(flow_module, "span_of", wrong)
    assert verdict() is Verdict.FALSIFIED


@embeddings
def test_risks_and_gradients_of_many_embedded_points_are_those_of_each_point(embed: Embedding) -> None:
    keys = SMALL.keys.copy()
    keys[0, 1] = keys[0, 0]
    scores, loss = SMALL.scores, SMALL.loss
    points = np.random.default_rng(3).normal(size=(4, 2, SMALL.d)) * np.array([1e-3, 1.0, 10.0, 300.0])[:, None, None]
    large, there = embed(keys), embed(points)
    gradient = risk.scaled_gradient(large, scores, loss, there)
    assert risk.select(large, there).key_differences.shape == (4, 2, *large.shape)
    for place in np.ndindex(4, 2):
        alone = risk.scaled_gradient(large, scores, loss, there[place])
        np.testing.assert_allclose(gradient.log_scale[place], alone.log_scale, atol=1e-10)
        np.testing.assert_allclose(gradient.direction[place], alone.direction, atol=1e-10)
        value = risk.risk(large, scores, loss, there)[place]
        np.testing.assert_allclose(value, risk.risk(large, scores, loss, there[place]), rtol=1e-10)


@embeddings
def test_batched_flows_of_embedded_problems_end_at_the_embedded_points(embed: Embedding) -> None:
    starts, norms = np.random.default_rng(4).normal(size=(3, SMALL.d)), np.full(3, 50.0)
    few = gradient_flows([SMALL] * 3, starts, norms=norms, relative=1e-8)
    many = gradient_flows([embedded(embed)] * 3, embed(starts), norms=norms, relative=1e-8)
    assert many.stops == few.stops
    np.testing.assert_allclose(many.points, embed(few.points), atol=1e-5)


@embeddings
@pytest.mark.parametrize("id", ["theorem-1", "theorem-2", "descent-from-a-margin"])
def test_statements_make_the_same_claims_of_an_embedded_problem(id: str, embed: Embedding) -> None:
    scores = SMALL.scores if id != "theorem-2" else np.array([[3.0, 1.0, 1.0], [2.5, 0.0, 0.0], [4.0, -1.0, -1.0]])
    cases = [Case(Problem(keys, scores, SMALL.loss)) for keys in (SMALL.keys, embed(SMALL.keys))]
    own, other = (check(statement_named(id), case, REFERENCE) for case in cases)
    assert own.verdict is other.verdict is Verdict.UPHELD
    assert {claim.name for claim in own.claims} == {claim.name for claim in other.claims}


@embeddings
def test_directions_of_an_embedded_problem_give_the_same_findings(embed: Embedding) -> None:
    q = np.random.default_rng(4).normal(size=4)
    own, other = direction(SMALL.keys, q), direction(embedded(embed).keys, embed(q))
    assert (own.selected == other.selected).all()
    np.testing.assert_allclose(other.margins, own.margins, rtol=1e-12, atol=1e-14)


@embeddings
def test_points_of_sublevel_sets_are_searched_in_the_span(embed: Embedding) -> None:
    lowest = []
    for problem in (SMALL, embedded(embed)):
        svm = solved(problem)
        constraints = Constraints.of(problem, svm)
        basis, rhos = tangent_basis(svm.direction, constraints.rows), np.array([20.0, 200.0])
        points, of = sublevel_points(problem, REFERENCE, svm, constraints, basis, rhos, np.random.default_rng(0))
        assert points.shape[1] == problem.d
        assert (np.linalg.norm(points, axis=1) <= rhos[of] * svm.norm * (1 + 16 * EPS)).all()
        edge = log_excess(REFERENCE, problem, rhos[:, None] * svm.p)[of]
        assert (log_excess(REFERENCE, problem, points) <= edge + 1e-12 * rhos[of]).all()
        least = (problem.keys[:, :1] - problem.keys[:, 1:]).reshape(-1, problem.d) @ points.T
        lowest.append([float((least[:, of == k]).min() / rhos[k]) for k in range(2)])
    # The least margins that the search reaches, in units of the radius, must be as low in the large space.
    assert lowest[1][0] <= lowest[0][0] + 0.05
    assert lowest[1][1] <= lowest[0][1] + 0.01
