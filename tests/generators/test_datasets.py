"""The named datasets are what the paper's figures need."""

from __future__ import annotations

import numpy as np
import pytest

from generators.assumptions import ASSUMPTIONS
from generators.datasets import ALIASES, DATASETS, dataset_named
from generators.problems import ALL_LOSSES
from reference_attention.errors import InvalidInput
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.flow import gradient_flow

HOLDING = {
    "figure-1a": {"single-input", "equal-non-optimal-scores", "separable", "locally-optimal"},
    "figure-1b": {"single-input", "distinct-scores", "separable", "locally-optimal", "general-position"},
    "figure-1c": {"equal-non-optimal-scores", "separable", "locally-optimal"},
    "figure-3a": {"optimal-tokens", "separable", "strict-optimum"},
    "figure-3b": {"optimal-support-tokens", "separable", "strict-optimum"},
    "figure-5": {"strict-optimum", "separable", "equal-non-optimal-scores"},
    "figure-8": {"equal-non-optimal-scores", "separable", "locally-optimal"},
    "digits": {"strict-optimum", "separable", "locally-optimal", "distinct-scores"},
}
FAILING = {
    "figure-1a": {"distinct-scores"},
    "figure-1b": {"equal-non-optimal-scores"},
    "figure-1c": {"single-input"},
    "figure-3a": {"positive-labels"},
    "figure-3b": {"optimal-tokens"},
    "figure-5": {"single-input"},
    "figure-8": {"single-input"},
    "digits": {"equal-non-optimal-scores", "positive-labels"},
}


@pytest.mark.parametrize("name", HOLDING)
def test_assumptions_of_the_figures(name: str) -> None:
    case = dataset_named(name)
    for id in HOLDING[name]:
        assert ASSUMPTIONS[id].check(case).holds is True, id
    for id in FAILING[name]:
        assert ASSUMPTIONS[id].check(case).holds is False, id


@pytest.mark.parametrize("name", [*DATASETS, *ALIASES])
def test_every_name_gives_a_consistent_case(name: str) -> None:
    case, again = dataset_named(name), dataset_named(name)
    assert case.name == ALIASES.get(name, name)
    assert case.dataset is not None
    assert np.array_equal(case.problem.keys, again.problem.keys)
    assert np.array_equal(case.dataset.problem.scores, case.problem.scores)
    assert case.problem.loss.name in ALL_LOSSES
    if "start_prompts" in case.arrays:
        assert case.arrays["start_prompts"].shape[1] == case.problem.d
    if name in DATASETS:
        assert (DATASETS[name].__doc__ or "").strip()


def test_figure_1b_has_a_locally_but_not_globally_optimal_token() -> None:
    case = dataset_named("figure-1b").but(alpha=np.array([1]))
    assert ASSUMPTIONS["locally-optimal"].check(case).holds
    assert case.problem.gaps(case.alpha).min() < 0
    # In Figure 1(a) the same token is no more than a non-optimal one.
    assert ASSUMPTIONS["locally-optimal"].check(dataset_named("figure-1a").but(alpha=np.array([1]))).holds is False


def test_figure_5_takes_every_c_and_both_losses() -> None:
    assert dataset_named("figure-5-c100").problem.scores.max() == 100
    assert dataset_named("figure-5-c3-correlation").problem.loss.name == "correlation"
    assert dataset_named("figure-5").problem.scores.max() == 10


def test_figure_8_shows_two_svm_directions_from_two_starts() -> None:
    case = dataset_named("figure-8")
    reached = []
    for start in case.arrays["start_prompts"]:
        end = gradient_flow(case.problem, start, norm=1e5).final
        alpha = np.argmax(case.problem.keys @ end, axis=1)
        solution = max_margin(case.problem.keys, alpha)
        assert isinstance(solution, MaxMargin)
        # Directions approach like 1/‖p‖; the constant is below ten here.
        assert np.linalg.norm(end / np.linalg.norm(end) - solution.direction) < 10 / 1e5
        assert ASSUMPTIONS["locally-optimal"].check(case.but(alpha=alpha.astype(np.int64))).holds
        reached.append(tuple(alpha))
    assert reached == [(0, 0), (0, 1)]


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="figure-1a"):
        dataset_named("figure-2")
