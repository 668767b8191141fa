"""The joint risk, its derivatives and its parts on inputs of every kind, against 80-digit arithmetic and definitions.

Notation: L is the joint risk of a head r v̄_mm + w and a prompt p, L_α its value where the chosen tokens α are
selected; v̄_mm is the unit vector of the max-margin head, Γ its margin, and r and R are the radii of head and prompt; u
is the output times the label.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from reference_attention.paths.joint_curvature import excess_curvature, joint_curvature
from reference_attention.paths.joint_newton import JointObjective, PromptObjective, Spheres, complement
from reference_attention.paths.joint_risk import (
    Joint,
    excess_gradient,
    head_drops,
    joint_gradient,
    log_losses,
    log_moves,
    log_slopes,
    relative_log_risk,
    retract,
    signed_logsumexp,
)
from reference_attention.svm.label_svm import LabelSvm, label_svm

EPS = float(np.finfo(float).eps)
H = mpmath.mpf(2) ** -70
"""Step of the difference quotients in 80 digits: its square is far below the spacing of floats, but far above 80
digits.
"""


def joint() -> Joint:
    """Return a problem of five inputs with four tokens in three dimensions, and keys in six; v̄_mm = (0, 1, 0) and Γ =
    1/2, exactly.
    """
    rng = np.random.default_rng(3)
    tokens, keys = rng.normal(size=(5, 4, 3)), rng.normal(size=(5, 4, 6))
    alpha = np.array([0, 3, 1, 2, 0])
    tokens[np.arange(5), alpha] = [(0.5, 0.5, 0), (-0.5, 0.5, 0), (0, 0.5, 0.5), (0, 0.5, -0.5), (0.25, 0.75, 0.125)]
    svm = label_svm(tokens[np.arange(5), alpha])
    assert isinstance(svm, LabelSvm)
    assert svm.direction.tolist() == [0, 1, 0]
    assert svm.margin == 0.5
    return Joint(tokens, keys, alpha, svm)


def exact_log_risk(joint: Joint, log_r: float, w: list[mpmath.mpf], p: list[mpmath.mpf], over: bool) -> mpmath.mpf:
    """Return log L + rΓ in 80 digits, or log(L − L_α) + rΓ if ``over``."""
    r = mpmath.exp(mpmath.mpf(log_r))
    v = [w[0], r + w[1], w[2]]
    total = mpmath.mpf(0)
    for z, keys, best in zip(joint.tokens, joint.keys, joint.alpha, strict=True):
        s = [mpmath.exp(mpmath.fdot(map(mpmath.mpf, k), p)) for k in keys]
        out = [mpmath.fdot(map(mpmath.mpf, token), v) for token in z]
        total += mpmath.log1p(mpmath.exp(-mpmath.fdot(s, out) / mpmath.fsum(s)))
        total -= mpmath.log1p(mpmath.exp(-out[best])) if over else 0
    return mpmath.log(total / len(joint.tokens)) + r / 2


def derivatives(
    f: Callable[[list[mpmath.mpf]], mpmath.mpf], x: np.ndarray, *, twice: bool = True
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the value, the gradient and, if ``twice``, the second derivative, by difference quotients."""
    at, m = [mpmath.mpf(float(v)) for v in x], len(x)

    def moved(*steps: tuple[int, int]) -> mpmath.mpf:
        y = list(at)
        for j, sign in steps:
            y[j] += sign * H
        return f(y)

    middle, up, down = f(at), [moved((j, 1)) for j in range(m)], [moved((j, -1)) for j in range(m)]
    gradient = np.array([float((a - b) / (2 * H)) for a, b in zip(up, down, strict=True)])
    second = np.full((m, m), math.nan)
    for j in range(m) if twice else ():
        for k in range(j + 1):
            both = moved((j, 1), (k, 1)) + moved((j, -1), (k, -1)) + 2 * middle - up[j] - down[j] - up[k] - down[k]
            second[j, k] = second[k, j] = float(both / (2 * H * H))
    return float(middle), gradient, second


@pytest.mark.parametrize(("log_r", "size"), [(-0.5, 0.5), (1.5, 1.0), (3.5, 3.0), (4.5, 0.1)])
def test_risk_and_excess_have_these_derivatives(log_r: float, size: float) -> None:
    problem, rng = joint(), np.random.default_rng(7)
    w, p = rng.normal(size=3) * 0.3, size * rng.normal(size=6)
    with mpmath.workdps(80):
        value, slope, curvature = derivatives(
            lambda x: exact_log_risk(problem, log_r, x[:3], x[3:], False), np.append(w, p)
        )
        over, by_p, second = derivatives(
            lambda x: exact_log_risk(problem, log_r, [mpmath.mpf(float(v)) for v in w], x, True), p
        )
    # The tolerance allows for the rounding of exponents of size r, relative to the largest term.
    r = 1 + math.exp(log_r)
    result, by_head, by_prompt = joint_gradient(problem, log_r, w, p)
    assert result == pytest.approx(value, abs=64 * EPS * r)
    assert np.append(by_head, by_prompt) == pytest.approx(slope, abs=64 * EPS * r * np.abs(slope).max())
    assert excess_gradient(problem, log_r, w, p)[0] == pytest.approx(over, abs=64 * EPS * r)
    assert excess_gradient(problem, log_r, w, p)[1] == pytest.approx(by_p, abs=64 * EPS * r * np.abs(by_p).max())
    third, fourth = (
        joint_curvature(problem, log_r, w, p),
        excess_curvature(problem, log_r, w, head_drops(problem, log_r, w), p),
    )
    assert third[:2] == (pytest.approx(value, abs=64 * EPS * r), pytest.approx(slope, abs=1e-10 * np.abs(slope).max()))
    assert third[2] == pytest.approx(curvature, abs=256 * EPS * r * np.abs(curvature).max())
    assert fourth[:2] == (pytest.approx(over, abs=64 * EPS * r), pytest.approx(by_p, abs=1e-10 * np.abs(by_p).max()))
    assert fourth[2] == pytest.approx(second, abs=256 * EPS * r * np.abs(second).max())


def on_spheres(s: Spheres, y: np.ndarray, tau: np.ndarray, p: np.ndarray, across: np.ndarray) -> tuple[np.ndarray, ...]:
    q = p + across @ tau
    return s.offset(y), q * (s.R / np.linalg.norm(q))


@pytest.mark.parametrize(("log_r", "R"), [(0.2, 0.7), (1.0, 2.0), (2.0, 5.0)])
def test_derivatives_on_the_spheres_are_tangential(log_r: float, R: float) -> None:
    problem, rng, h = joint(), np.random.default_rng(11), 1e-4
    s = Spheres(problem, log_r, R, complement(problem.svm.direction))
    y, p = 0.4 * math.exp(log_r) * np.array([0.6, -0.8]), rng.normal(size=6)
    p *= R / np.linalg.norm(p)
    w = s.offset(y)
    together, alone = JointObjective(s), PromptObjective(s, w)
    for function, e in ((together, 2), (alone, 0)):
        at = function.local(y[:e], p)
        assert at.across.T @ np.column_stack([at.across, p]) == pytest.approx(np.eye(5, 6), abs=16 * EPS * (1 + R))

        def value(
            x: np.ndarray, function: JointObjective | PromptObjective = function, e: int = e, at: object = at
        ) -> float:
            moved, q = on_spheres(s, np.append(y[:e] + x[:e], np.zeros(2 - e)), x[e:], p, at.across)
            return (
                float(relative_log_risk(problem, log_r, moved, problem.log_weights(q)))
                if e
                else float(function.values(y[:0], q))
            )

        axes = h * np.eye(e + 5)
        slope = np.array([value(x) - value(-x) for x in axes]) / (2 * h)
        mixed = [[value(a + b) + value(-a - b) - value(a - b) - value(b - a) for a in axes] for b in axes]
        # Central differences err by h² times a fourth derivative, of order R, and by the rounding of values of size r
        # over h².
        assert at.value == pytest.approx(value(np.zeros(e + 5)), abs=64 * EPS * math.exp(log_r))
        assert at.slope == pytest.approx(slope, abs=1e-6)
        assert at.second == pytest.approx(np.array(mixed) / (4 * h * h), abs=1e-5)
    assert JointObjective(s, moves=False).local(y, p).slope == pytest.approx(together.local(y, p).slope[:2], abs=1e-12)
    kept = PromptObjective(s, w, orthogonal_to=problem.rows[problem.others][:2]).local(y[:0], p)
    assert kept.across.shape == (6, 3)
    assert problem.rows[problem.others][:2] @ kept.across == pytest.approx(np.zeros((2, 3)), abs=64 * EPS)
    own = alone.local(y[:0], p)
    change = own.across.T @ kept.across
    assert kept.slope == pytest.approx(change.T @ own.slope, abs=1e-12)
    assert kept.second == pytest.approx(change.T @ own.second @ change, abs=1e-11)


def test_a_batch_of_pairs_gives_the_values_of_each_pair() -> None:
    problem, rng = joint(), np.random.default_rng(5)
    w, p = rng.normal(size=(2, 3, 3)), 2 * rng.normal(size=(2, 3, 6))
    logs = problem.log_weights(p)
    s = Spheres(problem, 1.0, 2.0, complement(problem.svm.direction))
    y = rng.normal(size=(2, 3, 2)) * 2
    whole = {
        "risk": relative_log_risk(problem, 1.0, w, logs),
        "q": problem.log_nonoptimality(logs),
        "retracted": retract(problem, 1.0, 3 * w),
        "offset": s.offset(s.shorten(y)),
        "excess": PromptObjective(s, w[0, 0]).values(y[..., :0], p),
    }
    for i in np.ndindex(2, 3):
        weights = problem.log_weights(p[i])
        each = {
            "risk": relative_log_risk(problem, 1.0, w[i], weights),
            "q": problem.log_nonoptimality(weights),
            "retracted": retract(problem, 1.0, 3 * w[i]),
            "offset": s.offset(s.shorten(y[i])),
            "excess": PromptObjective(s, w[0, 0]).values(y[i][:0], p[i]),
        }
        for name, found in whole.items():
            assert found[i] == pytest.approx(each[name], rel=1e-13, abs=1e-13), name


def test_rows_drops_and_weights_agree_with_the_tokens() -> None:
    problem, p = joint(), np.array([0.3, -1.0, 2.0, 0.5, 0.0, 1.0])
    assert problem.longest_row == pytest.approx(
        max(float(np.linalg.norm(k[a] - x)) for k, a in zip(problem.keys, problem.alpha, strict=True) for x in k)
    )
    size = Spheres(problem, 1.0, 1.0, np.eye(3, 2)).size
    assert size == pytest.approx(max(float(np.linalg.norm(z)) for z in problem.tokens.reshape(-1, 3)))
    drops = problem.chosen_tokens[:, None, 1] - problem.tokens[:, :, 1]
    assert problem.drops == pytest.approx(drops, abs=EPS)
    w = np.array([0.5, -1.0, 2.0])
    expected = drops * math.e + problem.sides @ w
    sign, log_size = head_drops(problem, 1.0, w)
    assert sign * np.exp(log_size) == pytest.approx(expected, abs=64 * EPS)
    logs = problem.log_weights(p)
    moves = log_moves((sign, log_size), logs)
    assert moves[0] * np.exp(moves[1]) == pytest.approx(np.exp(logs) * expected, abs=64 * EPS)
    for signs, sizes in ((sign, log_size), moves):
        assert (signs[~problem.others] == 0).all()
        assert (sizes[~problem.others] == -math.inf).all()
    # Logits are of the size of thousands, in favour of the chosen tokens or against them.
    for far in (1e3 * p, -1e3 * p):
        assert np.exp(problem.log_weights(far)).sum(axis=-1) == pytest.approx(1)


def test_logarithms_and_signs_of_sums_of_signed_exponentials_are_right() -> None:
    sign = np.array([[1.0, -1.0, 0.0], [-1.0, 0.0, -1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    size = np.array([[1000.0, 999.0, 2000.0], [-3.0, 5.0, -2.0], [1.0, 2.0, 3.0], [-math.inf] * 3])
    signs, logs = signed_logsumexp(sign, size)
    assert signs.tolist() == [1, -1, 0, 0]
    expected = [1000 + math.log1p(-1 / math.e), math.log(math.exp(-3) + math.exp(-2)), -math.inf, -math.inf]
    assert logs == pytest.approx(expected, rel=8 * EPS)


@pytest.mark.parametrize("u", [-40.0, -3.0, 0.0, 5.0, 20.0, 29.0, 32.0, 40.0, 100.0, 250.0])
def test_log_losses_keep_the_digits_by_which_they_differ_from_those_of_the_exponential(u: float) -> None:
    problem = joint()
    log_r = math.log(2 * max(u, 1.0))
    r_margin = math.exp(log_r) * 0.5
    with mpmath.workdps(300):
        h = float(mpmath.log(mpmath.log1p(mpmath.exp(-mpmath.mpf(u)))) + mpmath.mpf(u))
    # E = u − rΓ is an exact difference; h = log(log(1 + e^{−u})) + u is the log of the loss, relative to e^{−u}.
    E = np.array([u - r_margin])
    result = float(log_losses(problem, log_r, E)[0] + E[0])
    assert result == pytest.approx(h, abs=8 * EPS * (1 + abs(u)))
    assert log_slopes(problem, log_r, E)[0] + E[0] == pytest.approx(
        -math.log1p(math.exp(-u)), abs=8 * EPS * (1 + abs(u))
    )
    if u > 30:
        # h = −e^{−u}/2 (1 + O(e^{−u})); where E = 0 no other term is left.
        alone = float(log_losses(problem, math.log(2 * u), np.zeros(1))[0])
        assert alone == pytest.approx(-math.exp(-math.exp(math.log(2 * u)) / 2) / 2, rel=1e-12, abs=0)


@pytest.mark.parametrize("log_r", [0.0, 2.0, 40.0])
def test_retracted_heads_are_the_nearest_in_the_ball_along_v_mm(log_r: float) -> None:
    problem, rng, r = joint(), np.random.default_rng(2), math.exp(log_r)
    sideways = rng.normal(size=(50, 3)) * np.array([1, 0, 1])
    sideways *= (r * np.geomspace(1e-20, 3.0, 50) / np.linalg.norm(sideways, axis=1))[:, None]
    for along in (10 * r, 0.0, -0.5 * r, -10 * r):
        w = sideways + along * problem.svm.direction
        result = retract(problem, log_r, w)
        size = np.linalg.norm(sideways, axis=1)
        across = sideways * np.minimum(1, r / size)[:, None]
        ratio = np.minimum(1, size / r)
        root = np.sqrt((1 - ratio) * (1 + ratio))
        # ‖r v̄_mm + w‖ ≤ r means |r + v̄_mm·w| ≤ r root; the nearest point of that chord is expected.
        expected = np.clip(along, -r * (1 + root), -r * ratio**2 / (1 + root))
        # An error in the ratio next to 1 is magnified by the square root.
        assert result[:, [0, 2]] == pytest.approx(across[:, [0, 2]], rel=16 * EPS, abs=0)
        assert result[:, 1] == pytest.approx(expected, rel=1e-7, abs=0)


def test_parts_of_heads_across_v_mm_are_shortened_to_less_than_the_radius() -> None:
    s = Spheres(joint(), 1.0, 1.0, complement(np.array([0.0, 1.0, 0.0])))
    y = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    assert s.shorten(y) == pytest.approx(np.array([[0.6, 0.8], [0, 0], [0, 0]]) * 0.99 * math.e + y * [[0], [1], [1]])
    heads = math.e * s.joint.svm.direction + s.offset(s.shorten(y))
    assert np.linalg.norm(heads, axis=1) == pytest.approx(math.e, rel=16 * EPS)
    assert heads @ s.basis == pytest.approx(s.shorten(y), rel=16 * EPS)


def test_retracted_heads_are_in_the_ball_in_any_direction() -> None:
    rng = np.random.default_rng(8)
    tokens = rng.normal(size=(2, 2, 4))
    svm = label_svm(tokens[:, 0])
    assert isinstance(svm, LabelSvm)
    w = 1e9 * svm.direction + rng.normal(size=(5, 4))
    heads = 10 * svm.direction + retract(Joint(tokens, tokens, np.zeros(2, dtype=np.int64), svm), math.log(10.0), w)
    # The part across v̄_mm is of size 1 and must not carry the rounding, 1e-7, of the part along v̄_mm that was
    # removed.
    assert (np.linalg.norm(heads, axis=1) <= 10 * (1 + 2.0**-48)).all()


def test_where_all_tokens_of_an_input_are_equal_the_excess_is_reported_as_not_positive() -> None:
    given = joint()
    same = Joint(np.repeat(given.chosen_tokens[:, None], 4, axis=1), given.keys, given.alpha, given.svm)
    for found in (
        excess_gradient(same, 1.0, np.ones(3), np.ones(6)),
        excess_curvature(same, 1.0, np.ones(3), head_drops(same, 1.0, np.ones(3)), np.ones(6)),
    ):
        assert found[0] == math.inf
        assert all((np.asarray(x) == 0).all() for x in found[1:])
    s = Spheres(same, 1.0, 2.0, complement(same.svm.direction))
    assert PromptObjective(s, np.zeros(3)).values(np.zeros(0), np.ones(6)) == math.inf
