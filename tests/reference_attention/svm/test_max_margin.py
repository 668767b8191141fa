"""ATT-SVM: every solution is checked by independent arithmetic with Fractions, and many are compared with cvxpy.

A row of ATT-SVM is k_iα_i − k_it, for a token t of input i and the chosen token α_i; a margin is a product of p with a
row. A neighbour is a token whose margin is exactly the required one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from fractions import Fraction

import cvxpy
import numpy as np
import pytest
from flint import fmpq, fmpz_mat
from hypothesis import example, given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from reference_attention.errors import InvalidInput
from reference_attention.floats import EPS
from reference_attention.svm.certificate import KeyRows
from reference_attention.svm.least_norm import IntegerRows, _independent, least_norm
from reference_attention.svm.max_margin import Infeasible, MaxMargin, locally_optimal, max_margin, offending_neighbours
from tests.reference_attention.test_exact import fraction

Pair = tuple[int, int]

SECOND_SOLVER_GAP = 1e-10
"""The relative gap and infeasibility to which Clarabel, called through cvxpy, solves."""


def rows_of(keys: np.ndarray, alpha: np.ndarray) -> dict[Pair, list[Fraction]]:
    """Return the exact rows k_iα_i − k_it by (i, t), t ≠ α_i."""
    exact = [[[Fraction(float(x)) for x in token] for token in tokens] for tokens in keys]
    return {
        (i, t): [a - b for a, b in zip(exact[i][int(alpha[i])], token, strict=True)]
        for i, tokens in enumerate(exact)
        for t, token in enumerate(tokens)
        if t != alpha[i]
    }


def combination(rows: Mapping[Pair, list[Fraction]], weights: Mapping[Pair, Fraction]) -> list[Fraction]:
    """Return the sum of the weights times their rows."""
    d = len(next(iter(rows.values())))
    return [sum((w * rows[pair][k] for pair, w in weights.items()), Fraction(0)) for k in range(d)]


def check_kkt(
    keys: np.ndarray,
    alpha: np.ndarray,
    p: list[Fraction],
    duals: Mapping[Pair, Fraction],
    neighbours: set[Pair],
    required: np.ndarray | None = None,
) -> set[str]:
    """Return the names of the KKT conditions of ATT-SVM that fail; if none fails, p is the only solution."""
    rows = rows_of(keys, alpha)
    margins = {pair: sum((a * b for a, b in zip(row, p, strict=True)), Fraction(0)) for pair, row in rows.items()}
    bound = {(i, t): 1 if required is None else int(required[i]) for i, t in rows}
    failed = set()
    if any(margins[pair] < bound[pair] for pair in rows):
        failed.add("feasibility")
    if any(value < 0 for value in duals.values()):
        failed.add("dual sign")
    if any(value != 0 and margins[pair] != bound[pair] for pair, value in duals.items()):
        failed.add("complementarity")
    if combination(rows, duals) != p:
        failed.add("stationarity")
    if neighbours != {pair for pair in rows if margins[pair] == bound[pair]}:
        failed.add("neighbours")
    return failed


def check_farkas(keys: np.ndarray, alpha: np.ndarray, multipliers: Mapping[Pair, Fraction]) -> set[str]:
    """Return the names of the conditions on a proof of infeasibility that the multipliers violate."""
    failed = set()
    if any(value < 0 for value in multipliers.values()):
        failed.add("sign")
    if sum(multipliers.values()) != 1:
        failed.add("sum")
    if any(x != 0 for x in combination(rows_of(keys, alpha), multipliers)):
        failed.add("combination")
    return failed


def rank(rows: list[list[Fraction]]) -> int:
    """Return the rank by Gaussian elimination over the rationals."""
    rows, result = [list(row) for row in rows], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((k for k in range(result, len(rows)) if rows[k][column] != 0), None)
        if pivot is None:
            continue
        rows[result], rows[pivot] = rows[pivot], rows[result]
        for k in range(result + 1, len(rows)):
            factor = rows[k][column] / rows[result][column]
            rows[k] = [a - factor * b for a, b in zip(rows[k], rows[result], strict=True)]
        result += 1
    return result


def basic_supports(rows: Mapping[Pair, list[Fraction]], p: list[Fraction]) -> Iterator[set[Pair]]:
    """Yield the rows with λ > 0 of every basic dual solution, λ ≥ 0 with Σ λ rows = p; every independent subset is
    tried.
    """
    for size in range(1, len(p) + 1):
        for subset in itertools.combinations(sorted(rows), size):
            columns = [rows[pair] for pair in subset]
            if rank(columns) < size or rank([*columns, p]) > size:
                continue
            weights = coordinates(columns, p)
            if min(weights) >= 0:
                yield {pair for pair, w in zip(subset, weights, strict=True) if w > 0}


def coordinates(columns: list[list[Fraction]], p: list[Fraction]) -> list[Fraction]:
    """Return the weights of independent columns that combine to p, by Gauss–Jordan elimination."""
    size = len(columns)
    system = [[column[k] for column in columns] + [p[k]] for k in range(len(p))]
    for c in range(size):
        pivot = next(k for k in range(c, len(system)) if system[k][c] != 0)
        system[c], system[pivot] = system[pivot], system[c]
        system[c] = [x / system[c][c] for x in system[c]]
        for k in range(len(system)):
            if k != c:
                system[k] = [a - system[k][c] * b for a, b in zip(system[k], system[c], strict=True)]
    return [system[c][size] for c in range(size)]


def pairs(mask: np.ndarray) -> set[Pair]:
    """Return the indices of the true entries."""
    return {(int(i), int(t)) for i, t in np.argwhere(mask)}


def assert_certified(
    keys: np.ndarray, alpha: np.ndarray, solution: MaxMargin | Infeasible, required: np.ndarray | None = None
) -> None:
    """Assert exactly and independently everything that the result claims."""
    if isinstance(solution, Infeasible):
        multipliers = {pair: fraction(x) for pair, x in solution.exact.items()}
        assert check_farkas(keys, alpha, multipliers) == set()
        assert pairs(solution.multipliers > 0) == set(multipliers)
        assert all(solution.multipliers[pair] == float(x) for pair, x in multipliers.items())
        return
    p = [fraction(x) for x in solution.exact.p]
    duals = {pair: fraction(x) for pair, x in solution.exact.duals.items()}
    neighbours = pairs(solution.neighbours)
    assert check_kkt(keys, alpha, p, duals, neighbours, required) == set()
    assert solution.p.tolist() == [float(x) for x in p]
    assert pairs(solution.duals != 0) == set(duals)
    assert all(solution.duals[pair] == float(x) for pair, x in duals.items())
    assert fraction(solution.exact.norm_squared) == sum(x * x for x in p)
    rows = rows_of(keys, alpha)
    assert solution.independent == (rank([rows[pair] for pair in sorted(neighbours)]) == len(neighbours))
    for i, chosen in enumerate(alpha):
        assert solution.margins[i, chosen] == np.inf
        assert not solution.neighbours[i, chosen]
    d = keys.shape[2]
    for (i, t), row in rows.items():
        exact = sum((a * b for a, b in zip(row, p, strict=True)), Fraction(0))
        assert fraction(solution.exact.margin(i, t)) == exact
        size = sum((abs(a * b) for a, b in zip(row, p, strict=True)), Fraction(0))
        assert abs(Fraction(float(solution.margins[i, t])) - exact) <= (d + 4) * Fraction(EPS) * size
    assert_complementarity(rows, p, neighbours, solution)


def assert_complementarity(
    rows: dict[Pair, list[Fraction]], p: list[Fraction], neighbours: set[Pair], solution: MaxMargin
) -> None:
    """Assert that duals claimed to be positive are so, and that every dual which enumeration finds positive
    is claimed.
    """
    maximal, positive = solution.exact_maximal_duals, solution.exact_positive_duals
    assert all(x > 0 for x in maximal.values())
    assert combination(rows, {pair: fraction(x) for pair, x in maximal.items()}) == p
    assert pairs(solution.dual_support) == set(maximal)
    assert solution.strictly_complementary == (positive is not None)
    if positive is not None:
        assert set(positive) == neighbours
        assert all(x > 0 for x in positive.values())
        assert combination(rows, {pair: fraction(x) for pair, x in positive.items()}) == p
        assert solution.positive_duals is not None
        assert all(solution.positive_duals[pair] == float(fraction(x)) for pair, x in positive.items())
        return
    assert solution.positive_duals is None
    # Dual solutions are the convex hull of the basic ones: a dual that is zero in all of those is always zero.
    assert set(maximal) < neighbours
    assert set().union(*basic_supports({pair: rows[pair] for pair in neighbours}, p)) == set(maximal)


def second_opinion(
    keys: np.ndarray, alpha: np.ndarray, required: np.ndarray | None = None
) -> tuple[str, np.ndarray | None]:
    """Return the status and the solution by cvxpy with Clarabel."""
    n, tokens, d = keys.shape
    others = np.arange(tokens) != alpha[:, None]
    rows = (keys[np.arange(n), alpha][:, None] - keys)[others]
    bounds = np.ones((n, tokens)) if required is None else np.repeat(required[:, None], tokens, axis=1)
    p = cvxpy.Variable(d)
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(p)), [rows @ p >= bounds[others]])
    tolerances = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), SECOND_SOLVER_GAP)
    problem.solve(solver=cvxpy.CLARABEL, **tolerances)
    return str(problem.status), p.value


def assert_agrees(keys: np.ndarray, alpha: np.ndarray, required: np.ndarray | None = None) -> None:
    """Assert that cvxpy finds the same p, or that both find the problem infeasible."""
    solution = max_margin(keys, alpha, required=required)
    status, p = second_opinion(keys, alpha, required)
    if isinstance(solution, Infeasible):
        assert "infeasible" in status
        return
    assert "optimal" in status
    assert p is not None
    size = 1 + float(solution.duals.sum())
    assert np.linalg.norm(p - solution.p) <= np.sqrt(SECOND_SOLVER_GAP) * 2 * size


def feasible(n: int, tokens: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Gaussian keys with the chosen tokens pushed along a common direction."""
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(n, tokens, d))
    direction = rng.normal(size=d)
    alpha = np.argmax(keys @ direction, axis=1).astype(np.int64)
    keys[np.arange(n), alpha] += direction / np.linalg.norm(direction)
    return keys, alpha


def small_integers(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return keys with integer entries from −2 to 2, among which ties, duplicates, dependent rows and zero duals
    abound.
    """
    rng = np.random.default_rng(seed)
    n, tokens, d = int(rng.integers(1, 4)), int(rng.integers(2, 6)), int(rng.integers(1, 4))
    keys = rng.integers(-2, 3, size=(n, tokens, d)).astype(np.float64)
    return keys, rng.integers(0, tokens, size=n)


def single(*rows: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return one input whose constraint rows are the given ones: the chosen token's key is 0."""
    keys = np.concatenate([np.zeros((1, len(rows[0]))), -np.array(rows, dtype=np.float64)])[None]
    return keys, np.array([0])


def solved(keys: np.ndarray, alpha: np.ndarray) -> MaxMargin:
    """Return the solution after certifying it here."""
    solution = max_margin(keys, alpha)
    assert isinstance(solution, MaxMargin)
    assert_certified(keys, alpha, solution)
    return solution


@st.composite
def integer_problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n, tokens, d = draw(st.integers(1, 3)), draw(st.integers(2, 4)), draw(st.integers(1, 3))
    entries = draw(st.lists(st.integers(-3, 3), min_size=n * tokens * d, max_size=n * tokens * d))
    alpha = draw(st.lists(st.integers(0, tokens - 1), min_size=n, max_size=n))
    return np.array(entries, dtype=np.float64).reshape(n, tokens, d), np.array(alpha)


@given(integer_problems())
@example(single((0.0, 0.0)))
@example((np.ones((2, 3, 2)), np.array([0, 1])))
@example(single((1.0, 0.0), (1.0, 0.0), (1.0, 1.0), (1.0, -1.0)))
def test_every_small_integer_problem_is_certified(problem: tuple[np.ndarray, np.ndarray]) -> None:
    assert_certified(*problem, max_margin(*problem))


@given(st.integers(1, 4), st.integers(2, 6), st.integers(1, 5), st.integers(0, 2**32), st.integers(-110, 110))
def test_every_feasible_gaussian_problem_is_certified(n: int, tokens: int, d: int, seed: int, scale: int) -> None:
    keys, alpha = feasible(n, tokens, d, seed)
    keys *= 10.0**scale
    solution = max_margin(keys, alpha)
    assert isinstance(solution, MaxMargin)
    assert_certified(keys, alpha, solution)


def test_degenerate_cases_abound_among_the_small_integer_problems() -> None:
    """Assert that the generator reaches the hard corners; otherwise the tests would prove nothing."""
    cases_met = set()
    for seed in range(300):
        keys, alpha = small_integers(seed)
        solution = max_margin(keys, alpha)
        assert_certified(keys, alpha, solution)
        if isinstance(solution, Infeasible):
            cases_met.add(("infeasible",))
        else:
            cases_met.add((f"independent {solution.independent}", f"complementary {solution.strictly_complementary}"))
            if solution.neighbours.sum() > keys.shape[2]:
                cases_met.add(("more neighbours than dimensions",))
            if not solution.neighbours.any(axis=1).all():
                cases_met.add(("input without neighbour",))
    kinds = itertools.product(("independent True", "independent False"), ("complementary True", "complementary False"))
    corners = {("infeasible",), ("more neighbours than dimensions",), ("input without neighbour",)}
    assert cases_met == corners | set(kinds)


@pytest.mark.parametrize("shape", [(1, 2, 1), (1, 6, 3), (3, 7, 2), (4, 6, 10), (10, 10, 30)])
@pytest.mark.parametrize("seed", range(3))
def test_the_solution_agrees_with_cvxpy_on_generic_problems(shape: tuple[int, int, int], seed: int) -> None:
    assert_agrees(*feasible(*shape, seed))


@pytest.mark.parametrize("seed", range(40))
def test_the_solution_agrees_with_cvxpy_on_degenerate_problems(seed: int) -> None:
    assert_agrees(*small_integers(seed))


@pytest.mark.parametrize("seed", range(20))
def test_required_margins_of_zero_give_the_relaxed_problem(seed: int) -> None:
    """Compute p_relax of Theorem 6: margin 1 at some inputs, 0 at the others."""
    keys, alpha = small_integers(seed) if seed % 2 else feasible(3, 4, 4, seed)
    required = np.zeros(len(alpha), dtype=np.int64)
    required[0] = 1
    solution = max_margin(keys, alpha, required=required)
    if isinstance(solution, MaxMargin):
        assert_certified(keys, alpha, solution, required)
    assert_agrees(keys, alpha, required)


def test_relaxation_of_figure_3b_ignores_the_input_that_is_no_support() -> None:
    keys = np.array([[[1.0, 1.0], [0.0, 0.0]], [[1.0, -1.0], [0.0, 0.0]], [[0.5, 1.5], [0.0, 0.0]]])
    alpha = np.zeros(3, dtype=np.int64)
    relaxed = max_margin(keys, alpha, required=np.array([1, 1, 0]))
    assert isinstance(relaxed, MaxMargin)
    assert relaxed.p.tolist() == [1.0, 0.0]
    assert solved(keys, alpha).p.tolist() != [1.0, 0.0]


def test_a_solution_known_by_hand_is_found() -> None:
    solution = solved(*single((3.0, 4.0)))
    assert solution.p.tolist() == [3 / 25, 4 / 25]
    assert solution.norm == pytest.approx(0.2, rel=2 * EPS)
    assert solution.margin == pytest.approx(5.0, rel=2 * EPS)
    assert solution.direction.tolist() == pytest.approx([0.6, 0.8], rel=4 * EPS)
    assert solution.neighbours_of(0).tolist() == [1]
    assert solution.kkt_residual <= 100 * EPS
    for array in (solution.alpha, solution.p, solution.duals, solution.margins, solution.neighbours):
        assert not array.flags.writeable


def test_all_copies_of_a_neighbour_are_neighbours() -> None:
    solution = solved(*single((1.0, 0.0), (1.0, 0.0), (1.0, 0.0)))
    assert solution.neighbours_of(0).tolist() == [1, 2, 3]
    assert not solution.independent
    assert solution.strictly_complementary


def test_a_dual_that_is_zero_in_every_dual_solution_is_proven_to_be_zero() -> None:
    solution = solved(*single((1.0, 0.0), (1.0, 1.0)))
    assert solution.p.tolist() == [1.0, 0.0]
    assert solution.neighbours_of(0).tolist() == [1, 2]
    assert solution.independent
    assert not solution.strictly_complementary


def test_the_largest_support_of_a_dual_solution_where_not_every_neighbour_has_a_dual() -> None:
    """Rows (1, 0, 0) and (1, ±1, 0) can all have positive duals; (1, 0, 1) and (1, 1, 2) cannot: no row cancels their
    last entry.
    """
    solution = solved(*single((1.0, 0.0, 0.0), (1.0, 1.0, 0.0), (1.0, -1.0, 0.0), (1.0, 0.0, 1.0), (1.0, 1.0, 2.0)))
    assert solution.neighbours_of(0).tolist() == [1, 2, 3, 4, 5]
    assert np.flatnonzero(solution.dual_support[0]).tolist() == [1, 2, 3]
    assert solution.supports < 3, "the dual solution at hand is smaller"
    assert not solution.strictly_complementary


def test_a_zero_dual_that_is_positive_in_another_dual_solution_is_recognised() -> None:
    solution = solved(*single((1.0, 0.0), (1.0, 1.0), (1.0, -1.0)))
    assert not solution.independent
    assert solution.strictly_complementary
    assert (solution.duals == 0).sum() > 1, "the basic dual solution has a zero beyond the one at α"


def test_of_tokens_on_one_line_with_the_chosen_one_only_the_nearest_is_a_neighbour() -> None:
    solution = solved(*single((1.0, 2.0), (2.0, 4.0), (0.5, 1.0)))
    assert solution.neighbours_of(0).tolist() == [3]


@pytest.mark.parametrize("excess", [3e-9, 2.0**-52])
def test_a_token_whose_margin_is_just_above_one_is_no_neighbour(excess: float) -> None:
    solution = solved(*single((1.0, 1.0), (1.0, -1.0), (1.0 + excess, 0.0)))
    assert solution.neighbours_of(0).tolist() == [1, 2]


def test_rows_come_from_the_keys_and_not_from_float_differences() -> None:
    """The row k_α − k_t = 1 + 2⁻⁶⁰ rounds to 1, yet its token is no neighbour; a row 1 − 2⁻⁶⁰ changes the solution."""
    for tiny, neighbours in ((2.0**-60, [1, 2]), (0.0, [1, 2, 3]), (-(2.0**-60), [3])):
        keys = np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [-tiny, 0.0]]])
        assert solved(keys, np.array([0])).neighbours_of(0).tolist() == neighbours


def test_att_svm_is_infeasible_if_the_chosen_token_is_in_the_hull_of_the_others() -> None:
    keys, alpha = single((1.0, 0.0), (-1.0, 1.0), (-1.0, -1.0))
    solution = max_margin(keys, alpha)
    assert isinstance(solution, Infeasible)
    assert_certified(keys, alpha, solution)
    assert solution.multipliers.tolist() == [[0.0, 0.5, 0.25, 0.25]]


def test_att_svm_is_feasible_if_the_chosen_token_is_barely_outside_the_hull_of_the_others() -> None:
    """The solution has the norm 2⁶⁰, which is out of reach of float solvers."""
    keys = np.array([[[0.0, 2.0**-60], [1.0, 0.0], [-1.0, 0.0]]])
    assert solved(keys, np.array([0])).p.tolist() == [0.0, 2.0**60]
    keys[0, 0, 1] = 0.0
    assert isinstance(max_margin(keys, np.array([0])), Infeasible)


def test_att_svm_is_infeasible_if_the_chosen_token_occurs_twice() -> None:
    keys = np.array([[[1.0, 2.0], [0.0, 0.0], [1.0, 2.0]]])
    solution = max_margin(keys, np.array([0]))
    assert isinstance(solution, Infeasible)
    assert solution.multipliers.tolist() == [[0.0, 0.0, 1.0]]


@pytest.mark.parametrize("exponent", [-400, -52, 1, 400])
def test_multiplying_keys_by_a_power_of_two_scales_the_solution_exactly(exponent: int) -> None:
    keys, alpha = feasible(3, 5, 4, 0)
    solution, scaled = solved(keys, alpha), solved(np.ldexp(keys, exponent), alpha)
    assert (np.ldexp(scaled.p, exponent) == solution.p).all()
    assert (scaled.margins == solution.margins).all()
    assert (scaled.neighbours == solution.neighbours).all()
    assert scaled.kkt_residual == solution.kkt_residual


@pytest.mark.parametrize("scale", [1e-120, 1e120])
def test_keys_of_extreme_scale_are_solved(scale: float) -> None:
    keys, alpha = feasible(4, 6, 10, 1)
    assert np.isfinite(solved(keys * scale, alpha).norm)


@pytest.mark.parametrize("seed", range(5))
def test_inputs_and_coordinates_of_very_different_scales_are_solved(seed: int) -> None:
    keys, alpha = feasible(3, 4, 4, seed)
    rng = np.random.default_rng(seed)
    solved(keys * 10.0 ** rng.integers(-60, 60, size=(3, 1, 1)), alpha)
    solved(keys * 10.0 ** rng.integers(-30, 30, size=4), alpha)


def test_a_solution_beyond_the_range_of_float64_is_refused() -> None:
    keys = np.array([[[1e-140, 0.0], [np.nextafter(1e-140, 0.0), 0.0]]])
    with pytest.raises(InvalidInput, match=r"keys: .*rescale"):
        max_margin(keys, np.array([0]))


@pytest.mark.parametrize("seed", range(12))
def test_exact_method_reaches_the_solution_from_any_start(seed: int) -> None:
    """The float guess from which the exact method starts may affect its time, but never its result."""
    keys, alpha = small_integers(seed) if seed % 2 else feasible(3, 4, 5, seed)
    rows = KeyRows(keys, alpha)
    bounds = np.ones(len(rows.inputs), dtype=np.int64)
    rng = np.random.default_rng(seed)
    starts = [np.zeros(len(bounds)), np.ones(len(bounds)), *rng.integers(0, 2, size=(4, len(bounds))) * 1.0]
    outcomes = [least_norm(rows, bounds, start) for start in starts]
    assert len({outcome.feasible for outcome in outcomes}) == 1
    if outcomes[0].feasible:
        points = [[fraction(fmpq(x, outcome.exact.rho)) for x in outcome.exact.point] for outcome in outcomes]
        assert all(point == points[0] for point in points)
        assert all((outcome.tight == outcomes[0].tight).all() for outcome in outcomes)


def test_the_independent_rows_are_the_first_that_span_the_rest() -> None:
    assert _independent(fmpz_mat([[1, 2], [2, 4], [0, 0], [1, 0], [0, 1]])) == [0, 3]


def test_products_that_underflow_decide_nothing() -> None:
    """If the second input is ignored, its margin, which has to be at least 0, is the sum of 1.625, −1.375 and −0.375
    units of the last place; these products round to 2, −1 and 0.
    """
    large, small = 2.0**400, 2.0**-137
    keys, alpha = np.zeros((2, 2, 4)), np.zeros(2, dtype=np.int64)
    keys[0, 0], keys[1, 0] = (large, small, small, small), (0.0, 1.625 * small, -1.375 * small, -0.375 * small)
    required = np.array([1, 0])
    solution = max_margin(keys, alpha, required=required)
    assert isinstance(solution, MaxMargin)
    assert solution.neighbours[1, 1]
    assert_certified(keys, alpha, solution, required)


def test_float_guess_is_right_on_generic_problems() -> None:
    """The exact method solves one linear system for each generic problem; otherwise its certificate would not
    be cheap.
    """
    for seed in range(20):
        solution = max_margin(*feasible(4, 6, 10, seed))
        assert isinstance(solution, MaxMargin)
        assert solution._outcome.steps == 1


def test_only_neighbours_decide_local_optimality() -> None:
    keys, alpha = single((1.0, 1.0), (1.0, -1.0), (1.0 + 3e-9, 0.0))
    solution = solved(keys, alpha)
    assert locally_optimal(solution, np.array([[1.0, 0.5, 0.5, 9.0]]))
    tie = np.array([[1.0, 1.0, np.nextafter(1.0, 0.0), 9.0]])
    assert not locally_optimal(solution, tie)
    assert offending_neighbours(solution, tie) == [(0, 1)]
    assert offending_neighbours(solution, np.array([[1.0, 2.0, 3.0, 0.0]])) == [(0, 1), (0, 2)]


# The tests below plant faults: each solution is wrong in one way, which check_kkt or check_farkas names.


def claim(solution: MaxMargin) -> tuple[list[Fraction], dict[Pair, Fraction], set[Pair]]:
    duals = {pair: fraction(x) for pair, x in solution.exact.duals.items()}
    return [fraction(x) for x in solution.exact.p], duals, pairs(solution.neighbours)


def test_the_kkt_check_catches_a_missing_constraint() -> None:
    keys, alpha = single((1.0, 0.0), (0.0, 1.0))
    p, duals, neighbours = claim(solved(keys[:, :2], alpha))
    assert check_kkt(keys, alpha, p, duals, neighbours) == {"feasibility"}


def test_the_kkt_check_catches_an_svm_with_a_bias() -> None:
    """The shortest p with k_iα·p + b ≥ 1 and k_it·p + b ≤ −1 is (4, 2), with bias b = −3; half of p has margins 2 and
    1.
    """
    keys = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 2.0], [0.0, 1.0]]])
    alpha = np.zeros(2, dtype=np.int64)
    p = [Fraction(2), Fraction(1)]
    duals = {(0, 1): Fraction(2), (1, 1): Fraction(1)}
    assert check_kkt(keys, alpha, p, duals, {(1, 1)}) == {"complementarity"}
    assert solved(keys, alpha).p.tolist() == [1.0, 1.0]


def test_the_kkt_check_catches_duals_of_the_wrong_sign() -> None:
    keys, alpha = single((1.0, 0.0), (1.0, 0.0))
    p, _, neighbours = claim(solved(keys, alpha))
    wrong = {(0, 1): Fraction(2), (0, 2): Fraction(-1)}
    assert check_kkt(keys, alpha, p, wrong, neighbours) == {"dual sign"}


def test_the_kkt_check_catches_a_wrong_norm_and_wrong_neighbours() -> None:
    keys, alpha = feasible(2, 4, 3, 0)
    p, duals, neighbours = claim(solved(keys, alpha))
    longer = [x * Fraction(1 + EPS) for x in p]
    assert check_kkt(keys, alpha, longer, duals, neighbours) == {"complementarity", "stationarity", "neighbours"}
    assert check_kkt(keys, alpha, p, duals, set()) == {"neighbours"}


def test_the_farkas_check_catches_a_wrong_proof_of_infeasibility() -> None:
    keys, alpha = single((1.0, 0.0), (-1.0, 0.0), (0.0, 1.0))
    half = Fraction(1, 2)
    assert check_farkas(keys, alpha, {(0, 1): half, (0, 2): half}) == set()
    assert check_farkas(keys, alpha, {(0, 1): half, (0, 3): half}) == {"combination"}
    assert check_farkas(keys, alpha, {(0, 1): half / 2, (0, 2): half / 2}) == {"sum"}


@pytest.mark.parametrize(
    ("keys", "alpha", "message"),
    [
        (np.zeros((2, 3, 2)), np.array([0, 3]), "alpha: 3 for input 1"),
        (np.zeros((2, 3, 2)), np.array([-1, 0]), "alpha: -1 for input 0"),
        (np.zeros((2, 1, 2)), np.array([0, 0]), "keys: T = 1"),
        (np.full((1, 2, 2), np.nan), np.array([0]), "keys: entry"),
        (np.full((1, 2, 2), 1e200), np.array([0]), "keys: magnitudes"),
    ],
)
def test_bad_input_is_refused(keys: np.ndarray, alpha: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        max_margin(keys, alpha)


def test_bad_required_margins_are_refused() -> None:
    keys, alpha = feasible(2, 3, 2, 0)
    with pytest.raises(InvalidInput, match="required: with all margins 0"):
        max_margin(keys, alpha, required=np.zeros(2, dtype=np.int64))
    with pytest.raises(InvalidInput, match="required: 2 for input 0"):
        max_margin(keys, alpha, required=np.array([2, 1]))


def test_alpha_of_wrong_shape_or_type_is_refused() -> None:
    keys, _ = feasible(2, 3, 2, 0)
    for alpha in (np.zeros(3, dtype=np.int64), np.zeros(2)):
        with pytest.raises((InvalidInput, TypeCheckError)):
            max_margin(keys, alpha)


def test_a_solution_has_a_one_line_and_a_notebook_representation() -> None:
    svm = max_margin([[[1, 0], [0, 1], [0, 0]], [[2, 0], [0, 0], [0, 0]]], [0, 0])
    assert isinstance(svm, MaxMargin)
    message = "‖p_mm‖ = 1, margin 1/‖p_mm‖ = 1, 2 of 4 tokens are SVM-neighbours, 1 support; exact"
    assert repr(svm) == f"MaxMargin({message})"
    shown = svm._repr_html_()
    assert "<td>SVM-neighbours</td><td>2 of 4</td>" in shown
    assert "<td>p_mm</td><td>1.0, 0.0</td>" in shown
    wide = max_margin([[[1.0] * 20, [0.0] * 20]], [0])
    assert isinstance(wide, MaxMargin)
    assert "0.05, … 20 entries</td>" in wide._repr_html_()
    assert repr(max_margin([[[0], [1], [-1]]], [0])).startswith("Infeasible(no p separates α")


def test_a_violation_by_one_part_in_2_to_the_60_is_detected() -> None:
    """Rows are (N, 1) and (N, 0): at the least-norm point of the first row, the second has margin 1 − 1/(N² + 1)."""
    large = 2**30
    rows = IntegerRows(fmpz_mat([[large, 1], [large, 0]]), 30)
    for guess in ([1.0, 0.0], [0.0, 1.0], [0.0, 0.0]):
        solution = least_norm(rows, np.array([1, 1]), np.array(guess))
        assert [fmpq(x, solution.exact.rho) for x in solution.exact.point] == [fmpq(1, large), fmpq(0)]
        assert solution.tight.tolist() == [True, True]


@pytest.mark.parametrize("off", [-1, 0, 1])
@pytest.mark.parametrize("seed", range(20))
def test_margins_that_cancel_are_decided_exactly(off: int, seed: int) -> None:
    """Two rows fix p = (1, 1/K); floats do not resolve the margin of the third, N + 1 − (N K − off)/K = 1 + off/K."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(2**44, 2**46)), int(rng.integers(2**19, 2**20))
    matrix = [[1, 0], [0, k], [n + 1, off - n * k]]
    solution = least_norm(IntegerRows(fmpz_mat(matrix), 0), np.array([1, 1, 1]), np.array([1.0, 1.0, 0.0]))
    assert solution.feasible
    p = [fraction(fmpq(x, solution.exact.rho)) for x in solution.exact.point]
    margins = [Fraction(a) * p[0] + Fraction(b) * p[1] for a, b in matrix]
    assert min(margins) >= 1
    assert solution.tight.tolist() == [x == 1 for x in margins]
    assert (p == [1, Fraction(1, k)]) == (off >= 0)


@pytest.mark.parametrize("seed", range(12))
def test_multipliers_of_tight_constraints_are_positive_from_any_start(seed: int) -> None:
    keys, alpha = small_integers(seed)
    rows = KeyRows(keys, alpha)
    bounds = np.ones(len(rows.inputs), dtype=np.int64)
    for start in (np.zeros(len(bounds)), np.ones(len(bounds)), np.random.default_rng(seed).random(len(bounds))):
        solution = least_norm(rows, bounds, start)
        assert solution.exact.over > 0
        assert all(x > 0 for x in solution.exact.u)


def test_integer_rows_in_floats_are_divided_by_their_power_of_two() -> None:
    assert IntegerRows(fmpz_mat([[3, -4]]), 2).floats.tolist() == [[0.75, -1.0]]


def test_required_margins_may_be_booleans_but_token_indices_may_not() -> None:
    keys, alpha = feasible(2, 3, 2, 0)
    whole = max_margin(keys, alpha, required=np.array([1, 0]))
    assert isinstance(whole, MaxMargin)
    same = max_margin(keys, alpha, required=np.array([True, False]))
    assert isinstance(same, MaxMargin)
    assert same.p.tolist() == whole.p.tolist()
    with pytest.raises((InvalidInput, TypeCheckError)):
        max_margin(keys, np.array([False, False]))
