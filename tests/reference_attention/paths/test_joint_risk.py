"""The joint risk against 60-digit arithmetic, its gradients, the joint path and joint descent (Figure 3).

Notation: L is the joint risk of a head r v̄_mm + w and a prompt p, L_α its value where the chosen tokens are selected;
v̄_mm is the unit vector of the max-margin head, Γ its margin, Θ the prompt's; r and R are the radii of head and prompt.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest

from reference_attention import risk
from reference_attention.losses import LOSSES
from reference_attention.paths import joint_path as paths
from reference_attention.paths.joint_curvature import excess_curvature, joint_curvature
from reference_attention.paths.joint_path import GROWTH, descend_at_radius, head_at, joint_path, prompt_at
from reference_attention.paths.joint_risk import (
    Joint,
    excess_gradient,
    head_drops,
    joint_gradient,
    relative_log_risk,
    retract,
)
from reference_attention.paths.scheduled_direction import critical_ratio, scheduled_direction
from reference_attention.svm.label_svm import LabelSvm, label_svm, relaxed_max_margin
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from reference_attention.training.joint_descent import JointTrajectory, head_gradient, joint_descent

EPS = float(np.finfo(float).eps)


def figure_3(third: tuple[float, float]) -> Joint:
    """Return the joint problem of Figure 3 with the given third optimal token."""
    labels = np.array([1.0, -1.0, 1.0])
    X = np.zeros((3, 2, 2))
    X[:, 0] = [(1.0, 1.0), (1.0, -1.0), third]
    tokens = labels[:, None, None] * X
    svm = label_svm(tokens[:, 0])
    assert isinstance(svm, LabelSvm)
    return Joint(tokens, X, np.zeros(3, dtype=np.int64), svm)


def exact_log_risk(joint: Joint, log_r: float, w: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """Return log L + rΓ and log(L − L_α) + rΓ, with 60 digits beyond those of e^{−rΓ}; v̄_mm is exactly (0, 1)."""
    with mpmath.workdps(60 + int(math.exp(log_r))):
        r = mpmath.exp(mpmath.mpf(log_r))
        v = [mpmath.mpf(float(w[0])), r + mpmath.mpf(float(w[1]))]
        risk, at = mpmath.mpf(0), mpmath.mpf(0)
        for z, keys in zip(joint.tokens, joint.keys, strict=True):
            logits = [sum(mpmath.mpf(float(a)) * mpmath.mpf(float(b)) for a, b in zip(k, p, strict=True)) for k in keys]
            s = [mpmath.exp(x) for x in logits]
            out = [sum(a * mpmath.mpf(float(b)) for a, b in zip(v, token, strict=True)) for token in z]
            u = sum(a * b for a, b in zip(s, out, strict=True)) / sum(s)
            risk += mpmath.log1p(mpmath.exp(-u)) / len(joint.tokens)
            at += mpmath.log1p(mpmath.exp(-out[0])) / len(joint.tokens)
        return float(mpmath.log(risk) + r), float(mpmath.log(risk - at) + r)


@pytest.mark.parametrize("third", [(0.5, 1.0), (0.5, 1.5)])
@pytest.mark.parametrize("log_r", [-1.0, 1.0, 3.0, 4.0, 6.0])
@pytest.mark.parametrize("scale", [1.0, 4.0, 10.0, 40.0])
def test_logarithms_of_risk_and_excess_agree_with_those_of_60_digit_arithmetic(
    third: tuple[float, float], log_r: float, scale: float
) -> None:
    joint = figure_3(third)
    w, p = np.array([0.3, -0.01]), scale * np.array([0.97, 0.2])
    risk, excess = exact_log_risk(joint, log_r, w, p)
    # Logits are of size 2·scale: weights have a relative error of about 2 eps, which is multiplied by the exponent of a
    # loss.
    assert float(relative_log_risk(joint, log_r, w, joint.log_weights(p))) == pytest.approx(risk, abs=1e-12, rel=1e-13)
    assert excess_gradient(joint, log_r, w, p)[0] == pytest.approx(excess, abs=1e-12, rel=1e-13)


@pytest.mark.parametrize("log_r", [0.3, 3.0])
def test_gradients_of_the_joint_risk_are_difference_quotients(log_r: float) -> None:
    joint = figure_3((0.5, 1.5))
    w, p, h = np.array([0.2, -0.3]), np.array([1.5, 0.4]), 1e-6
    _, by_w, by_p = joint_gradient(joint, log_r, w, p)
    by_excess = excess_gradient(joint, log_r, w, p)[1]
    for k, e in enumerate(np.eye(2)):
        moved = (joint_gradient(joint, log_r, w + h * e, p)[0] - joint_gradient(joint, log_r, w - h * e, p)[0]) / (
            2 * h
        )
        turned = (joint_gradient(joint, log_r, w, p + h * e)[0] - joint_gradient(joint, log_r, w, p - h * e)[0]) / (
            2 * h
        )
        beyond = (excess_gradient(joint, log_r, w, p + h * e)[0] - excess_gradient(joint, log_r, w, p - h * e)[0]) / (
            2 * h
        )
        # Central differences err by h² times a third derivative, which is below 1e3, and by eps/h.
        assert [by_w[k], by_p[k], by_excess[k]] == pytest.approx([moved, turned, beyond], abs=2e-9)


@pytest.mark.parametrize(("log_r", "p"), [(0.0, (0.3, 0.2)), (0.3, (2.0, 1.0)), (3.0, (1.5, 0.4))])
def test_curvatures_of_the_joint_risk_are_second_derivatives(log_r: float, p: tuple[float, float]) -> None:
    joint, h = figure_3((0.5, 1.5)), 1e-5
    # The head prefers the other token of input 2, which therefore contributes a negative excess.
    w, prompt = np.array([1.5, -0.2]), np.array(p)
    value, by_p, second = excess_curvature(joint, log_r, w, head_drops(joint, log_r, w), prompt)
    assert (value, *by_p) == pytest.approx((lambda x: (x[0], *x[1]))(excess_gradient(joint, log_r, w, prompt)))
    both, gradient, whole = joint_curvature(joint, log_r, w, prompt)
    expected, by_w, by_prompt = joint_gradient(joint, log_r, w, prompt)
    assert (both, *gradient) == pytest.approx((expected, *by_w, *by_prompt), rel=64 * EPS, abs=64 * EPS)
    x = np.concatenate([w, prompt])
    for j, e in enumerate(np.eye(4)):
        up, down = (np.concatenate(joint_gradient(joint, log_r, *np.split(x + s * h * e, 2))[1:]) for s in (1, -1))
        # Central differences err by h² times a third derivative of up to r³.
        assert whole[:, j] == pytest.approx((up - down) / (2 * h), abs=1e-6)
    for j, e in enumerate(np.eye(2)):
        up, down = (excess_gradient(joint, log_r, w, prompt + s * h * e)[1] for s in (1, -1))
        assert second[:, j] == pytest.approx((up - down) / (2 * h), abs=1e-6)


def test_heads_are_retracted_into_the_ball() -> None:
    joint = figure_3((0.5, 1.0))
    w = np.array([[0.0, 0.0], [3.0, 5.0], [1e9, 0.0], [0.5, -1.0], [0.0, -1e9]])
    inside = retract(joint, math.log(10.0), w)
    heads = 10.0 * joint.svm.direction + inside
    # The radius is given as log 10: e^{log r} carries log r roundings, and the norm another d.
    assert (np.linalg.norm(heads, axis=1) <= 10.0 * (1 + 2.0**-49)).all()
    assert np.array_equal(inside[[0, 3]], w[[0, 3]])
    rng = np.random.default_rng(0)
    svm = label_svm(rng.normal(size=(2, 3)))
    assert isinstance(svm, LabelSvm)
    turned, many = replace(joint, svm=svm), 20 * rng.normal(size=(4, 3))
    each = [retract(turned, math.log(10.0), w) for w in many]
    assert retract(turned, math.log(10.0), many) == pytest.approx(np.array(each), rel=16 * EPS)


def test_support_sets_are_decided_exactly() -> None:
    near = np.nextafter(1.0, 2.0)
    svm = label_svm(np.array([[1.0, 1.0], [-1.0, 1.0], [0.0, near]]))
    assert isinstance(svm, LabelSvm)
    assert svm.support.tolist() == [True, True, False]
    assert svm.slack[2] == near - 1.0
    tied = label_svm(np.array([[1.0, 1.0], [-1.0, 1.0], [0.0, 1.0]]))
    assert isinstance(tied, LabelSvm)
    assert tied.support.all()
    assert tied.strictly_complementary
    assert (tied.duals > 0).all()
    assert isinstance(label_svm(np.array([[1.0, 0.0], [-1.0, 0.0]])), Infeasible)


def test_the_relaxed_solution_of_figure_3b_is_that_found_by_hand() -> None:
    joint = figure_3((0.5, 1.5))
    assert joint.svm.support.tolist() == [True, True, False]
    relaxed, separator = (
        relaxed_max_margin(joint.keys, joint.alpha, joint.svm.support),
        max_margin(joint.keys, joint.alpha),
    )
    assert isinstance(relaxed, MaxMargin)
    assert isinstance(separator, MaxMargin)
    assert relaxed.p.tolist() == [1.0, 0.0]
    assert separator.p.tolist() == [1.25, 0.25]
    assert critical_ratio(joint, relaxed) == 1.0
    for ratio, end in ((0.0, separator), (1.0, relaxed), (50.0, relaxed)):
        # Bisection is exact to the last digit; the least-squares problem has a condition number below 10.
        assert scheduled_direction(joint, ratio) == pytest.approx(end.direction, abs=1e-14)


@pytest.mark.parametrize("start", [(1.0, 0.3), (-1.0, 0.2), (0.0, -1.0)])
def test_the_path_does_not_depend_on_its_start(start: tuple[float, float]) -> None:
    joint = figure_3((0.5, 1.0))
    path = joint_path(joint, lambda R: math.log(R), np.array([1e2, 1e4, 1e6]), np.array(start))
    other = joint_path(joint, lambda R: math.log(R), np.array([1e2, 1e4, 1e6]), np.array([0.9, 0.1]))
    # Gradients of 1e-10 are divided by a curvature of Θ/R = 1e-6, and lengths by R; logits of 1e6 have errors of 1e-10.
    assert path.prompts / path.radii[:, None] == pytest.approx(other.prompts / path.radii[:, None], abs=1e-9)
    assert (path.residuals < 1e-6).all()


@pytest.mark.parametrize("most_steps", [0, 1, 3, 24])
def test_intermediate_radii_grow_by_a_factor_up_to_the_requested_one(
    most_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    visited: list[float] = []
    minimised = paths._minimise

    def watched(*args: Any) -> Any:
        visited.append(args[0].R)
        return minimised(*args)

    monkeypatch.setattr(paths, "_minimise", watched)
    # The radius r = e^{1.5 R} outgrows the margin, so that a lost token costs many orders of magnitude; early steps are
    # not shortened for it.
    path = joint_path(
        figure_3((0.5, 1.5)), lambda R: 1.5 * R, np.array([30.0]), np.array([1.0, 0.3]), most_steps=most_steps
    )
    assert np.linalg.norm(path.prompts, axis=1) == pytest.approx([30.0])
    on_the_way = visited[1:-1]
    assert visited[-1] == 30.0
    assert len(on_the_way) == min(most_steps, 2)
    assert on_the_way == [visited[0] * GROWTH ** (k + 1) for k in range(len(on_the_way))]


def test_late_steps_of_the_path_continue_along_the_secant(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    minimised = paths._minimise

    def watched(*args: Any) -> Any:
        result = minimised(*args)
        steps.append((args[0].R, args[2], result[1]))
        return result

    monkeypatch.setattr(paths, "_minimise", watched)
    joint_path(figure_3((0.5, 1.0)), math.log, np.array([1e5]), np.array([1.0, 0.3]))
    (before, _, p), (R, start, end) = steps[-2:]
    # The digits of L do not depend on p, and therefore cannot distinguish the secant from a mere lengthening of p.
    assert np.linalg.norm(start - end) < 0.5 * np.linalg.norm(p * (R / before) - end)


def test_the_joint_path_is_followed_where_r_grows_faster_than_the_margin() -> None:
    with np.errstate(over="ignore"):  # r is e^{1500}
        path = joint_path(figure_3((0.5, 1.5)), lambda R: 1.5 * R, np.array([10.0, 1e3]), np.array([1.0, 0.3]))
    # The limit is p_relax, because the third input is no support.
    assert path.prompts / path.radii[:, None] == pytest.approx(np.array([[1.0, 0.0]] * 2), abs=1e-6)
    assert (path.residuals < 1e-6).all()


@pytest.mark.parametrize("idle", [0, 2])
def test_a_prompt_that_ties_the_tokens_of_an_input_without_influence_is_moved_off_the_tie(idle: int) -> None:
    given, R = figure_3((0.5, 2.5)), 2.0**32
    joint = replace(given, keys=np.pad(given.keys, ((0, 0), (0, 0), (0, idle))))
    # With half its weight on the other token the third input's output still exceeds rΓ by r/2: its loss has no
    # influence, and head and prompt are minimised in turn.
    row = given.rows[2, 1]
    tie = np.append([row[1], -row[0]], np.zeros(idle))
    with np.errstate(over="ignore", invalid="ignore"):  # second derivatives across the tie
        path = descend_at_radius(joint, math.log, R, tie, np.zeros(2))
    assert path.prompts[0] / R == pytest.approx(np.eye(2 + idle)[0], abs=1e-9)
    assert path.residuals[0] < 1e-9


def test_a_one_dimensional_head_stays_along_v_mm() -> None:
    tokens, keys = np.array([[[1.0], [0.0]], [[2.0], [-1.0]]]), np.zeros((2, 2, 2))
    keys[:, 0] = np.eye(2)
    svm = label_svm(tokens[:, 0])
    assert isinstance(svm, LabelSvm)
    path = joint_path(Joint(tokens, keys, np.zeros(2, dtype=np.int64), svm), math.log, np.array([1e2]), np.ones(2))
    assert not path.offsets.any()
    assert (path.residuals < 1e-6).all()


@pytest.mark.parametrize(("log_r", "p"), [(3.0, (1.0, 0.3)), (1.0, (2.0, -0.5)), (-0.5, (0.3, 0.2))])
def test_no_head_of_the_same_norm_beats_head_at(log_r: float, p: tuple[float, float]) -> None:
    joint, r = figure_3((0.5, 1.5)), math.exp(log_r)
    logs, best = joint.log_weights(np.array(p)), head_at(joint, log_r, np.array(p))
    assert np.linalg.norm(r * joint.svm.direction + best) == pytest.approx(r, rel=16 * EPS)
    angles = np.linspace(-np.pi, np.pi, 2001)
    offsets = r * (np.stack([np.cos(angles), np.sin(angles)], axis=1) - joint.svm.direction)
    others = relative_log_risk(joint, log_r, offsets, np.broadcast_to(logs, (len(angles), *logs.shape)))
    assert relative_log_risk(joint, log_r, best, logs) <= others.min() + 64 * EPS


@pytest.mark.parametrize("start", [(1.0, 0.3), (1.0, 0.9), (0.5, 0.5)])
def test_the_prompt_for_a_fixed_head_is_stationary_from_far_away(start: tuple[float, float]) -> None:
    joint, w, R = figure_3((0.5, 1.5)), np.array([0.3, -0.2]), 50.0
    p = prompt_at(joint, 3.0, R, w, np.array(start))
    assert np.linalg.norm(p) == pytest.approx(R, rel=4 * EPS)
    slope = excess_gradient(joint, 3.0, w, p)[1]
    # The tolerance is the one at which Newton's method stops, GRADIENT.
    assert np.linalg.norm(slope - (slope @ p) * p / R**2) <= 1e-10


@pytest.mark.parametrize(("third", "relaxed"), [((0.5, 1.0), False), ((0.5, 1.5), True)])
def test_joint_descent_from_the_papers_start_gives_figure_3(third: tuple[float, float], relaxed: bool) -> None:
    """Normalized descent with η = 0.1 from p = (0, −1), v = (−1, 0) gives Figures 3(a) and 3(b); in 3(c) both
    probabilities reach 1.
    """
    joint = figure_3(third)
    run = from_the_papers_start(joint, steps=1000, head_step=0.1)
    solution = relaxed_max_margin(joint.keys, joint.alpha, joint.svm.support)
    assert isinstance(solution, MaxMargin)
    deviations = []
    for k in (200, 1000):
        v, p = run.heads[k], run.prompts[k]
        deviations.append(float(np.linalg.norm(p / np.linalg.norm(p) - solution.direction)) * float(np.linalg.norm(p)))
        assert float(v @ joint.svm.direction) / float(np.linalg.norm(v)) > 1 - 1e-4
    # The prompt's deviation from its limit is O(1/R): times R it stays below half a logit and does not grow (measured:
    # 0.33 and 0.30).
    assert max(deviations) < 0.5
    weights = np.exp(joint.log_weights(run.prompts[[0, 200]]))[:, :, 0]
    features = np.einsum("knt,ntd->knd", np.exp(joint.log_weights(run.prompts[[0, 200]])), joint.tokens)
    logistic = 1 / (1 + np.exp(-np.einsum("knd,kd->kn", features, run.heads[[0, 200]])))
    assert weights[0].mean() < 0.6
    assert logistic[0].mean() < 0.6
    assert weights[1].min() > 1 - 1e-3
    assert logistic[1].min() > 1 - 1e-6
    assert relaxed == bool((~joint.svm.support).any())


def from_the_papers_start(joint: Joint, steps: int, head_step: float) -> JointTrajectory:
    """Run joint descent with η_p = 0.1 from the start of Figure 3: p = (0, −1), v = (−1, 0)."""
    v, p = np.array([-1.0, 0.0]), np.array([0.0, -1.0])
    return joint_descent(joint.tokens, joint.keys, v, p, steps=steps, head_step=head_step, prompt_step=0.1)


def test_descent_with_another_ratio_of_steps_ends_between_p_mm_and_p_relax() -> None:
    """With η_v = η_p/2, Figure 3(b) follows the path along r = R/2, which ends 0.099 from p_mm and from p_relax."""
    joint = figure_3((0.5, 1.5))
    run = from_the_papers_start(joint, steps=1000, head_step=0.05)
    v, p = run.heads[-1], run.prompts[-1]
    ratio = float(np.linalg.norm(v) / np.linalg.norm(p))
    unit = p / np.linalg.norm(p)
    assert np.linalg.norm(unit - scheduled_direction(joint, ratio)) * np.linalg.norm(p) < 0.5
    assert min(np.linalg.norm(unit - scheduled_direction(joint, c)) for c in (0.0, 1.0)) > 0.09


def test_the_prompt_of_joint_descent_can_select_tokens_that_are_not_optimal() -> None:
    """With η_v = 0.02 and η_p = 0.1, Figure 3(b) from the paper's start selects other tokens; the head ends 45° from
    v_mm.
    """
    joint = figure_3((0.5, 1.5))
    run = from_the_papers_start(joint, steps=2000, head_step=0.02)
    v = run.heads[-1]
    assert float(v @ joint.svm.direction) / float(np.linalg.norm(v)) < 0.75
    assert float(np.exp(joint.log_nonoptimality(joint.log_weights(run.prompts[-1])).max())) > 0.5


def test_where_the_prompt_ties_tokens_the_head_of_joint_descent_does_not_tend_to_v_mm() -> None:
    """The direction p_relax ties input 2; normalized steps keep crossing the tie, and the head settles 0.21 away from
    v̄_mm.
    """
    tokens = np.array(
        [
            [[0.34375, 0.03125, 0.03125], [0.5, 0.0, 0.0]],
            [[1.0, -0.25, -0.75], [-0.5, 0.0, -0.75]],
            [[0.375, -0.25, 0.5], [1.0, -0.75, -0.75]],
            [[0.5, 0.0, 0.0], [0.4625, 0.009375, -0.00625]],
            [[0.5, 0.0, 0.0], [0.421875, -0.015625, 0.015625]],
        ]
    )
    keys = np.array([-1.0, 1.0, -1.0, -1.0, 1.0])[:, None, None] * tokens / 2
    keys[0, 0] = (-0.234375, -0.015625, -0.015625)
    keys[1:3] = [[[0.5, 0.125, 0.375], [1.0, 0.0, 0.375]], [[-0.4375, 0.125, -0.25], [1.0, 0.375, 0.375]]]
    keys[3:, 1] = [(-0.234375, -0.0046875, 0.003125), (0.2109375, -0.0078125, 0.0078125)]
    alpha = np.array([1, 0, 1, 0, 0])
    svm = label_svm(tokens[np.arange(5), alpha])
    separator = max_margin(keys, alpha)
    assert isinstance(svm, LabelSvm)
    assert isinstance(separator, MaxMargin)
    joint = Joint(tokens, keys, alpha, svm)
    step = 0.1 * separator.norm
    run = joint_descent(
        tokens,
        keys,
        svm.direction / svm.margin,
        np.array([0.01, -0.01, 0.03]),
        steps=4000,
        head_step=2 * separator.margin / svm.margin * step,
        prompt_step=step,
    )
    away = [float(np.linalg.norm(v / np.linalg.norm(v) - svm.direction)) for v in run.heads[[2000, 4000]]]
    assert min(away) > 0.2
    assert away[1] > away[0] / 2
    assert float(np.exp(joint.log_nonoptimality(joint.log_weights(run.prompts[2000:])).max())) > 0.5
    v, p = run.heads[-1], run.prompts[-1]
    between = scheduled_direction(joint, float(np.linalg.norm(v) / np.linalg.norm(p)))
    assert np.linalg.norm(p / np.linalg.norm(p) - between) < 0.01


def test_a_joint_step_is_along_both_gradients_of_the_risk() -> None:
    rng = np.random.default_rng(0)
    tokens, keys, v, p = rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 4, 5)), rng.normal(size=2), rng.normal(size=5)
    logistic = LOSSES["logistic"]
    by_head, by_prompt = np.zeros(2), np.zeros(5)
    h = 1e-6
    for by, at in ((by_head, v), (by_prompt, p)):
        for j in range(at.size):
            risks = []
            for step in (h, -h):
                at[j] += step
                risks.append(float(risk.risk(keys, tokens @ v, logistic, p)))
                at[j] -= step
            by[j] = (risks[0] - risks[1]) / (2 * h)
    result = head_gradient(tokens, risk.softmax_weights(keys, p), v)
    # Central differences err by h² times a third derivative, and by rounding divided by h.
    assert np.exp(result.log_scale) * result.direction == pytest.approx(by_head, abs=1e-9)
    steps: dict[str, float] = {"head_step": 0.5, "prompt_step": 0.25}
    plain = joint_descent(tokens, keys, v, p, steps=1, normalized=False, **steps)
    assert (plain.heads[0] == v).all()
    assert (plain.prompts[0] == p).all()
    assert plain.heads[1] == pytest.approx(v - 0.5 * by_head, abs=1e-9)
    assert plain.prompts[1] == pytest.approx(p - 0.25 * by_prompt, abs=1e-9)
    unit = joint_descent(tokens, keys, v, p, steps=1, **steps)
    assert unit.heads[1] == pytest.approx(v - 0.5 * by_head / np.linalg.norm(by_head), abs=1e-8)
    assert unit.prompts[1] == pytest.approx(p - 0.25 * by_prompt / np.linalg.norm(by_prompt), abs=1e-8)


@pytest.mark.parametrize("normalized", [False, True])
def test_a_joint_step_from_a_head_of_zero_moves_only_the_head(normalized: bool) -> None:
    tokens = np.random.default_rng(1).normal(size=(2, 3, 2))
    run = joint_descent(
        tokens, tokens, np.zeros(2), np.ones(2), steps=1, head_step=0.1, prompt_step=0.1, normalized=normalized
    )
    assert (run.prompts[1] == 1).all()
    assert run.heads[1].any()


@pytest.mark.parametrize("ratio", [0.0, 0.2, 5.0])
def test_the_scheduled_direction_is_zero_in_a_coordinate_in_which_all_keys_agree(ratio: float) -> None:
    joint = figure_3((0.5, 1.5))
    wider = Joint(joint.tokens, np.pad(joint.keys, ((0, 0), (0, 0), (0, 1))), np.zeros(3, dtype=np.int64), joint.svm)
    expected = np.append(scheduled_direction(joint, ratio), 0.0)
    assert scheduled_direction(wider, ratio) == pytest.approx(expected, abs=1e-12)
