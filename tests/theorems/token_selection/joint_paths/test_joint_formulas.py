"""Formulas of the statements on joint paths, by hand.

The head v = r v̄_mm + w has the offset w from the ray; the prompt p has norm at most R; Θ is the margin of the limiting
direction of p.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from generators.datasets import DATASETS
from reference_attention.paths.joint_risk import Joint, head_drops
from reference_attention.paths.joint_search import JointMinimum, joint_minimiser
from reference_attention.paths.scheduled_direction import scheduled_direction
from reference_attention.training.joint_descent import JointTrajectory
from theorems.bounded import exact
from theorems.core.claim import Claim, NotANumber, Refuted, Verdict
from theorems.core.implementation import REFERENCE, Replacements
from theorems.token_selection.joint_paths.conjecture_joint_descent import _claims, _rate, descent_settings
from theorems.token_selection.joint_paths.joint_constants import Sublevel, log_odds, odds_of_log, one_minus_cosine
from theorems.token_selection.joint_paths.joint_minimiser import JointMinimiser, has_digits
from theorems.token_selection.joint_paths.joint_sets import _log_losses
from theorems.token_selection.joint_paths.joint_setup import JointSetup, joint_setup, nonoptimality_bounds
from theorems.token_selection.joint_paths.joint_steps import joint_run
from theorems.token_selection.joint_paths.theorem_6_relaxed_joint_path import minimiser_claims

EPS = float(np.finfo(float).eps)


def is_right(found: Any, expected: list[float]) -> None:
    """Assert that bounded values contain the expected ones up to rounding, with errors of at most 1e-12."""
    due = np.array(expected)
    assert np.shape(found.value) == due.shape
    same = found.value == due  # infinities
    with np.errstate(invalid="ignore"):
        assert (same | (np.abs(found.value - due) <= found.error + 4 * EPS * np.abs(due))).all()
    assert (found.error[np.isfinite(due)] <= 1e-12).all()


def test_one_minus_cosine_to_an_axis_is_computed_without_cancellation() -> None:
    """1 − cos for (3, 10⁻⁹) is 10⁻¹⁸/18, without cancellation; it is 2 for a vector that points away from the axis."""
    w = np.array([[1.0, 4.0], [0.0, 1e-9], [0.0, 0.0], [-5.0, 1.0]])
    is_right(one_minus_cosine(exact(np.array([1.0, 0.0])), 3.0, w), [1 - math.sqrt(0.5), 1e-18 / 18, 0.0, 2.0])
    small = one_minus_cosine(exact(np.array([1.0, 0.0])), 3.0, w[1:2])
    assert small.value[0] == pytest.approx(1e-18 / 18, rel=1e-12, abs=0)


def test_the_log_odds_of_a_bound() -> None:
    """A bound of ¼ has odds of 3 to 1 against; for bounds outside (0, 1) the result is −∞."""
    is_right(log_odds(exact(np.array([0.25, 0.75]))), [math.log(3), -math.log(3)])
    assert (log_odds(exact(np.array([0.0, -0.5, 1.0, 1.5]))).value == -np.inf).all()


def test_bounds_on_the_weight_of_other_tokens_from_a_margin() -> None:
    """With margin log 3, two other tokens have together at most 2/5 of the weight, and a single one at least ¼."""
    upper, lower = nonoptimality_bounds(exact(np.array([math.log(3), 0.0])), 3)
    is_right(upper, [0.4, 2 / 3])
    is_right(lower, [0.25, 0.5])


@pytest.mark.parametrize(("log_bound", "due"), [(math.log(0.25), math.log(3)), (-0.5, math.log(math.exp(0.5) - 1))])
def test_the_log_odds_of_a_bound_given_by_its_logarithm(log_bound: float, due: float) -> None:
    result = odds_of_log(np.array([log_bound, 0.0, 0.5]))
    assert result == pytest.approx([due, -np.inf, -np.inf], rel=1e-14)


def leaning(norm: float, chord: float) -> list[float]:
    """Return a point of the given norm, at distance ``chord`` from the point of equal norm on the first axis."""
    along = norm - chord**2 / (2 * norm)
    return [along, math.sqrt(norm**2 - along**2)]


@pytest.mark.parametrize(("later", "verdict"), [(4.9, Verdict.UPHELD), (5.1, Verdict.FALSIFIED)])
def test_the_deviation_from_the_limiting_ray_may_at_most_double(later: float, verdict: Verdict) -> None:
    """A deviation of 2.5 at norm 10 may be up to 5 at norm 100; a deviation below one logit is always allowed."""
    points, axis = np.array([leaning(10.0, 2.5), leaning(100.0, later)]), np.array([1.0, 0.0])
    assert _rate("head-rate", points, axis, 1e3).verdict is verdict
    assert _rate("head-rate", points, axis, 1e-3).verdict is Verdict.UPHELD


def test_the_ratio_of_joint_descent_is_that_of_the_growth_of_norms() -> None:
    """The norm of v grows by 2.25 while that of p, once it is large enough to select tokens, grows by 12."""
    setup = joint_setup(DATASETS["figure-3b"]().normalise(), REFERENCE)
    requests: list[float] = []

    def seen(joint: Any, ratio: float) -> np.ndarray:
        requests.append(ratio)
        return scheduled_direction(joint, ratio)

    far = 100 * setup.separator.norm
    heads = np.linspace(3.0, 6.0, 5)[:, None] * setup.joint.svm.direction
    prompts = np.linspace(far - 4.0, far + 12.0, 5)[:, None] * setup.separator.direction
    _claims(setup, REFERENCE.replace("", {scheduled_direction: seen}), JointTrajectory(heads, prompts))
    assert requests == [pytest.approx(2.25 / 12)]


def test_a_run_that_is_too_short_and_one_with_nan_are_refuted() -> None:
    case = DATASETS["figure-3b"]().normalise()
    setup = joint_setup(case, REFERENCE)
    asked = replace(descent_settings(case, setup.joint, setup.separator), steps=3)
    heads, prompts = np.repeat(asked.head[None], 4, axis=0), np.repeat(asked.prompt[None], 4, axis=0)
    for short in (JointTrajectory(heads[:3], prompts), JointTrajectory(heads, prompts[:3])):
        claims = list(joint_run(setup.joint, REFERENCE, short, asked))
        assert len(claims) == 2
        assert Verdict.FALSIFIED in {claim.verdict for claim in claims}
    for k in (0, 1):
        both = [heads.copy(), prompts.copy()]
        both[k][2] = np.nan
        with pytest.raises(NotANumber):
            list(joint_run(setup.joint, REFERENCE, JointTrajectory(*both), asked))


def setup_3b() -> JointSetup:
    return joint_setup(DATASETS["figure-3b"]().normalise(), REFERENCE)


def limits_of(setup: JointSetup, replaced: Replacements | None = None) -> list[Claim]:
    """Return the claims on the pair (v, p) of least risk at R = 20/Θ and r = e^{RΘ/2}."""
    starts = np.stack([setup.separator.direction, setup.target.direction])
    R, rate = 20 / setup.target.margin, setup.target.margin
    other = REFERENCE.replace("other", replaced)
    at = JointMinimiser.of(setup, other, lambda R: R * rate / 2, R, starts, "limit-direction")
    return list(minimiser_claims(at))


def test_a_reported_minimiser_is_refuted_by_a_pair_of_lower_risk() -> None:
    """The pair (v, p) under test has the opposite prompt, −p."""

    def lost(*arguments: Any) -> JointMinimum:
        minimiser = joint_minimiser(*arguments)
        return replace(minimiser, path=replace(minimiser.path, prompts=-minimiser.path.prompts))

    *_, claim = limits_of(setup_3b(), {joint_minimiser: lost})
    assert (claim.name, claim.verdict) == ("path-is-lowest", Verdict.FALSIFIED)
    assert "the reference finds a pair of lower risk" in claim.detail


def test_a_head_at_which_another_token_scores_as_much_leaves_the_limit_undecided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def level(joint: Joint, log_r: float, w: Any) -> tuple[Any, Any]:
        sign, size = head_drops(joint, log_r, w)
        return 0 * sign, size

    monkeypatch.setattr("theorems.token_selection.joint_paths.joint_minimiser.head_drops", level)
    last = limits_of(setup_3b())[-1]
    assert (last.name, last.verdict) == ("limit-direction", Verdict.INCONCLUSIVE)
    assert "scores at least as much" in last.undecided


def test_outputs_of_a_head_need_six_correct_bits() -> None:
    """Outputs count as known if ‖w‖ max‖token‖ (d + 8) eps ≤ 1/64; the largest norm is that of a token, not of a
    column.
    """
    joint = setup_3b().joint
    longest = float(np.linalg.norm(joint.tokens, axis=2).max())
    w = np.array([2.0**-6 / (longest * 10 * EPS), 0.0])
    assert longest != pytest.approx(float(np.linalg.norm(joint.tokens, axis=1).max()), rel=1e-3)
    assert has_digits(joint, w * (1 - 1e-9))
    assert not has_digits(joint, w * (1 + 1e-9))


def test_the_spread_is_the_largest_norm_of_a_token_across_the_head() -> None:
    setup = setup_3b()
    sides = setup.sides.value[setup.joint.svm.support]
    result = setup.spread.value
    assert result == pytest.approx(max(math.hypot(*side) for input in sides for side in input))
    assert np.linalg.norm(sides, axis=-2).max() != pytest.approx(result, rel=1e-3)


@pytest.mark.parametrize(("loss", "known"), [(0.9, True), (1.5, False)])
def test_a_head_of_unknown_direction_gives_no_bounds(loss: float, known: bool) -> None:
    """If the bound on 1 − cos(v, v_mm) exceeds 1, the bounds on tokens of other inputs are vacuous."""
    setup = setup_3b()
    level = Sublevel(setup, REFERENCE, 10.0, 50.0, 50.0 * setup.target.direction)
    level.__dict__["head_loss"] = exact(np.float64(loss))
    others = ~setup.joint.svm.support
    assert np.isfinite(level.other_bounds.value[others]).any() == known


def test_logarithms_of_logistic_losses_agree_with_plain_formulas_over_the_whole_range() -> None:
    """Compare log log(1 + e^{−u}) with plain formulas, for u from −800 to 500."""
    u = np.array([-800.0, -1.0, 0.0, 1.0, 500.0])
    result = _log_losses(exact(np.zeros(5)), exact(u))
    assert result.value == pytest.approx([math.log(math.log1p(math.exp(-x))) if x > -700 else math.log(-x) for x in u])


@pytest.mark.parametrize("part", ["prompts", "offsets"])
def test_a_reported_minimiser_with_too_large_norms_is_refuted(part: str) -> None:
    """The pair under test has a prompt of norm 2R, or a head of norm 2r."""

    def longer(*arguments: Any) -> JointMinimum:
        minimum = joint_minimiser(*arguments)
        direction = arguments[0].svm.direction * np.exp(minimum.path.log_head_radii[0])
        by = {"prompts": 2 * minimum.path.prompts, "offsets": 2 * minimum.path.offsets + direction}
        return replace(minimum, path=replace(minimum.path, **{part: by[part]}))

    [claim] = limits_of(setup_3b(), {joint_minimiser: longer})
    assert (claim.name, claim.verdict) == ("path-is-in-the-balls", Verdict.FALSIFIED)


def test_a_reported_minimiser_for_another_radius_is_refuted() -> None:
    def nearer(joint: Joint, schedule: Any, R: float, starts: Any) -> JointMinimum:
        return joint_minimiser(joint, schedule, R / 2, starts)

    with pytest.raises(Refuted, match="instead of"):
        limits_of(setup_3b(), {joint_minimiser: nearer})
