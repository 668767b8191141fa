"""The named datasets satisfy what the paper's figures require."""

from __future__ import annotations

import numpy as np
import pytest

from generators.assumptions import ASSUMPTIONS
from generators.datasets import ALIASES, DATASETS, dataset_named
from reference_attention.errors import InvalidInput
from reference_attention.losses import DRAWN_LOSSES
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
    "tsvm-paths-3": {"queries-given", "strict-optimum", "separable", "independent-rows"},
    "tsvm-paths-5": {"queries-given", "strict-optimum", "separable", "distinct-scores"},
    "tsvm-sphere": {"queries-given", "strict-optimum", "separable", "independent-rows"},
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
    "tsvm-paths-3": {"single-input"},
    "tsvm-paths-5": {"independent-rows"},
    "tsvm-sphere": {"equal-non-optimal-scores"},
}


@pytest.mark.parametrize("name", HOLDING)
def test_named_datasets_satisfy_the_assumptions_of_their_figures(name: str) -> None:
    case = dataset_named(name)
    for id in HOLDING[name]:
        assert ASSUMPTIONS[id].check(case).holds is True, id
    for id in FAILING[name]:
        assert ASSUMPTIONS[id].check(case).holds is False, id


@pytest.mark.parametrize("name", [*DATASETS, *ALIASES])
def test_every_named_dataset_is_a_consistent_case(name: str) -> None:
    case, again = dataset_named(name), dataset_named(name)
    assert case.name == ALIASES.get(name, name)
    data = case.queried or case.dataset
    assert data is not None
    assert np.array_equal(case.problem.keys, again.problem.keys)
    assert np.array_equal(data.problem.scores, case.problem.scores)
    assert case.problem.loss.name in DRAWN_LOSSES
    if "start_prompts" in case.arrays:
        assert case.arrays["start_prompts"].shape[1] == case.problem.d
    if name in DATASETS:
        assert (DATASETS[name].__doc__ or "").strip()


@pytest.mark.parametrize(("name", "seed", "noise", "T"), [("tsvm-paths-3", 1, 0.3, 3), ("tsvm-paths-5", 3, 0.5, 5)])
def test_the_data_of_the_notebook_are_those_of_their_generator(name: str, seed: int, noise: float, T: int) -> None:
    torch = pytest.importorskip("torch")
    drawn = torch.Generator().manual_seed(seed)
    v = torch.randn(2, generator=drawn)
    X = noise * torch.randn((2, T, 2), generator=drawn)
    if T == 3:
        X += torch.tensor([[[-1.0, 0.0]], [[1.0, 0.0]]])
    else:
        X[:, 1:] += torch.tensor([-1.0, 0.0])
        X[:, 0] = torch.tensor([[1.0, 0.5], [1.0, -0.5]])
    Z = torch.randn((2, 2), generator=drawn)
    data = dataset_named(name).queried
    assert data is not None
    assert np.array_equal(data.X, X.double().numpy())
    assert np.array_equal(data.queries, (Z / torch.norm(Z, dim=-1, keepdim=True)).double().numpy())
    assert np.array_equal(data.v, (v / torch.norm(v)).double().numpy())
    assert dataset_named(name).problem.factors is None, "products are exact"


def test_figure_1b_has_a_locally_but_not_globally_optimal_token() -> None:
    case = dataset_named("figure-1b").replace(alpha=np.array([1]))
    assert ASSUMPTIONS["locally-optimal"].check(case).holds
    assert case.problem.gaps(case.alpha).min() < 0
    # In Figure 1(a) the same token is not even locally optimal.
    assert ASSUMPTIONS["locally-optimal"].check(dataset_named("figure-1a").replace(alpha=np.array([1]))).holds is False


def test_figure_5_accepts_every_c_and_both_losses() -> None:
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
        # The distance of directions from their limit is a constant, here below ten, divided by ‖p‖.
        assert np.linalg.norm(end / np.linalg.norm(end) - solution.direction) < 10 / 1e5
        assert ASSUMPTIONS["locally-optimal"].check(case.replace(alpha=alpha.astype(np.int64))).holds
        reached.append(tuple(alpha))
    assert reached == [(0, 0), (0, 1)]


def test_an_unknown_name_of_a_dataset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="figure-1a"):
        dataset_named("figure-2")
