"""The search for the joint minimiser: from any start it reaches the limit that Theorem 6 names."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference_attention.paths import joint_search
from reference_attention.paths.joint_minimisers import follow_from
from reference_attention.paths.joint_newton import Spheres, complement
from reference_attention.paths.joint_path import Branch, begin_branch
from reference_attention.paths.joint_risk import Joint, relative_log_risk
from reference_attention.paths.joint_search import joint_minimiser, selecting
from reference_attention.svm.label_svm import LabelSvm, label_svm
from tests.reference_attention.paths.test_joint_newton import worse
from tests.reference_attention.paths.test_joint_risk import figure_3


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("ratio", "limit"), [(1.0, (1.0, 0.0)), (4.0, (1.0, 0.0))])
def test_the_lowest_pair_of_figure_3b_points_at_p_relax(seed: int, ratio: float, limit: tuple[float, float]) -> None:
    joint, R = figure_3((0.5, 1.5)), 2.0**24
    starts = np.random.default_rng(seed).normal(size=(16, 2))
    minimiser = joint_minimiser(joint, lambda R: math.log(ratio * R), R, starts)
    # The distance between the minimiser and its limit is O(log R), before division by R.
    assert minimiser.path.prompts[0] / R == pytest.approx(limit, abs=64 / R)
    assert list(minimiser.risks) == sorted(minimiser.risks)


def test_a_start_that_selects_other_tokens_does_not_change_the_minimiser() -> None:
    joint, R = figure_3((0.5, 1.0)), 2.0**20
    away = np.array([[-1.0, 0.1]])
    both = np.vstack([away, np.random.default_rng(0).normal(size=(16, 2))])
    lowest = joint_minimiser(joint, math.log, R, both)
    assert (joint.rows[joint.others] @ lowest.path.prompts[0] > 0).all()


def narrow(k: int = 4) -> Joint:
    """Return inputs whose chosen tokens are ahead only in a narrow cone around (1, …, 1): rows e_j − 0.3
    Σ_{i≠j} e_i.
    """
    rows = 1.3 * np.eye(k) - 0.3
    keys = np.stack([rows, np.zeros_like(rows)], axis=1)
    tokens = np.stack([np.tile([1.0, 0.0], (k, 1)), np.zeros((k, 2))], axis=1)
    svm = label_svm(tokens[:, 0])
    assert isinstance(svm, LabelSvm)
    return Joint(tokens, keys, np.zeros(k, dtype=np.int64), svm)


def test_starts_are_moved_into_the_cone_of_prompts_that_select_the_chosen_tokens() -> None:
    joint = narrow()
    starts = np.random.default_rng(1).normal(size=(64, 4))
    met = [u for u in starts if (joint.rows[joint.others] @ u > 0).all()]
    assert len(met) < 2, "the cone is met at random, and the test tells nothing"
    for u in starts:
        moved = selecting(joint, u / np.linalg.norm(u))
        assert moved.shape == (1, 4)
        assert np.linalg.norm(moved) == pytest.approx(1)
        assert (joint.rows[joint.others] @ moved[0] > 0).all()


def test_no_start_is_returned_where_no_prompt_selects_the_chosen_tokens() -> None:
    joint = narrow()
    keys = joint.keys.copy()
    keys[1, 0] = -keys[0, 0]
    assert selecting(Joint(joint.tokens, keys, joint.alpha, joint.svm), np.array([1.0, 0, 0, 0])).shape == (0, 4)


def test_tokens_and_keys_need_not_have_the_same_dimension() -> None:
    given, starts = worse(), np.random.default_rng(0).normal(size=(3, 6))
    minimiser = joint_minimiser(given, math.log1p, 20.0, starts)
    assert minimiser.path.prompts.shape == (1, 6)
    assert minimiser.path.offsets.shape == (1, 3)
    assert np.linalg.norm(minimiser.path.prompts[0]) == pytest.approx(20.0)
    w, p = minimiser.path.offsets[0], minimiser.path.prompts[0]
    risk = relative_log_risk(given, math.log1p(20.0), w, given.log_weights(p))
    # The minimiser is polished to the last digit after the branches were compared.
    assert minimiser.risks[0] - 1e-2 <= risk <= minimiser.risks[0] + 1e-12
    for path in follow_from(given, math.log1p, (20.0,), 1.0, starts[0], seed=0):
        assert path[-1].p.shape == (6,)
    branch = begin_branch(given, complement(given.svm.direction), math.log1p, 2.0, starts[0])
    w = branch.spheres.offset(branch.y)
    lowest = relative_log_risk(given, branch.spheres.log_r, w, given.log_weights(branch.p))
    assert branch.rank == lowest + given.output_rounding(w)


@pytest.mark.parametrize(
    ("ranks", "left", "taken"),
    [
        ((0.0, 1e-10, 5.0), (1.0, 0.0, 0.0), 1),
        ((0.0, 1e-10, 5.0), (0.0, 1.0, 0.0), 0),
        ((0.0, 1e-10, 5.0), (0.0, 0.0, 0.0), 0),
        ((0.0, 1e-6, 5.0), (1.0, 0.0, 0.0), 0),
    ],
)
def test_of_several_branches_the_lowest_converged_one_is_taken(
    ranks: tuple[float, ...], left: tuple[float, ...], taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    joint, R = figure_3((0.5, 1.5)), 4.0
    spheres = Spheres(joint, math.log(R), R, complement(joint.svm.direction))
    branches = [Branch(spheres, np.zeros(1), np.full(2, float(k)), rest) for k, rest in enumerate(left)]
    for branch, rank in zip(branches, ranks, strict=True):
        branch.__dict__["rank"] = rank
    monkeypatch.setattr(joint_search, "_lowest", lambda *_: branches[::-1])
    monkeypatch.setattr(joint_search, "begin_branch", lambda *_: None)
    monkeypatch.setattr(joint_search, "advance_branch", lambda *arguments, **_: arguments[3])
    monkeypatch.setattr(joint_search, "polish_branch", lambda branch: branch)
    minimiser = joint_minimiser(joint, math.log, R, np.eye(2))
    assert minimiser.path.prompts[0].tolist() == [taken, taken]
    assert minimiser.risks == ranks


@pytest.mark.parametrize("seed", range(3))
def test_directions_that_no_logit_depends_on_are_not_searched(seed: int) -> None:
    joint, R = figure_3((0.5, 1.5)), 2.0**24
    keys = np.concatenate([joint.keys, np.zeros((*joint.keys.shape[:2], 2))], axis=-1)
    turned = keys @ np.linalg.qr(np.random.default_rng(seed).normal(size=(4, 4)))[0]
    starts = np.random.default_rng(seed).normal(size=(16, 4))
    least = joint_minimiser(joint, math.log, R, starts[:, :2]).risks[0]
    for wider in (keys, turned):
        above = Joint(joint.tokens, wider, joint.alpha, joint.svm)
        span = above.span_basis
        assert span is not None
        path = joint_minimiser(above, math.log, R, starts).path
        assert path.prompts[0] @ span @ span.T / R == pytest.approx(path.prompts[0] / R, abs=1e-14)
        assert joint_minimiser(above, math.log, R, starts).risks[0] == pytest.approx(least, abs=1e-6)


def test_a_head_whose_risk_is_mere_rounding_is_not_the_lowest() -> None:
    """Far across v̄_mm the output at a support is mere rounding, say −1e14, and so is the risk."""
    joint = figure_3((0.5, 1.5))
    basis = complement(joint.svm.direction)
    spheres = Spheres(joint, 200.0, 2.0**20, basis)
    prompt = spheres.R * joint.unit_prompt(np.array([1.0, 0.1]))
    assert (joint.rows[joint.others] @ prompt > 0).all()
    far = [Branch(spheres, sign * 1e25 * np.ones(basis.shape[1]), prompt, 0.0) for sign in (1.0, -1.0)]
    near = Branch(spheres, np.zeros(basis.shape[1]), prompt, 0.0)
    assert all(branch.rank > near.rank for branch in far)
