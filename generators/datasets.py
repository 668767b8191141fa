"""Named datasets: the first paper's figures, handwritten digits, and the second paper's notebooks.

Each dataset is a function without arguments that returns a :class:`Case`; the starting points of a figure are the array
``start_prompts`` (k, d) of the case. All entries are decimals or binary fractions of few digits, or float32 numbers.

References: *Max-Margin Token Selection in Attention Mechanism*, Figures 1, 3, 4, 5 and 8, Appendix E.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from generators.query_datasets import QUERY_DATASETS
from max_margin_theorems.papers import named_data
from reference_attention.errors import InvalidInput
from reference_attention.losses import loss_named
from reference_attention.problem import Dataset, Problem

FIGURE_1_STARTS = (1.0, 0.5, 0.0, -0.5, -1.0, -1.5)
"""The values c of the starts p(0) = (0, c) in Figures 1(a) and 1(b)."""
CLUSTER_SEED = 0
"""The seed of the clusters of Figure 1(c); with it, ATT-SVM of the optimal tokens is feasible."""
FIGURE_5_SCORES = (*range(1, 11), 100)
"""The values of the score C in the variants of Figure 5."""


def _case(name: str, data: Dataset, starts: list[tuple[float, ...]], **arrays: list[float]) -> Case:
    by_name = {key: np.array(value) for key, value in arrays.items()}
    if starts:
        by_name["start_prompts"] = np.array(starts)
    return Case(data.problem, dataset=data, arrays=MappingProxyType(by_name), name=name)


def _from_scores(
    name: str,
    keys: Float64[np.ndarray, "n T d"],
    scores: Float64[np.ndarray, "n T"],
    starts: list[tuple[float, ...]],
    loss: str = "logistic",
) -> Case:
    """Make a case with tokens (key, score), the head v along the last axis, and a W that maps each token to its key."""
    return _case(name, Dataset.realising(Problem(keys, scores, loss_named(loss))), starts)


def _figure_1(name: str, scores: tuple[float, float, float]) -> Case:
    keys = np.array([[(-0.1, 1.0), (1.0, 0.0), (0.0, 0.0)]])
    return _from_scores(name, keys, np.array([scores]), [(0.0, c) for c in FIGURE_1_STARTS])


def figure_1a() -> Case:
    """Figure 1(a): one input, the optimal token (−0.1, 1) and two others of equal score.

    Source: Section 2.1; tokens (−0.1, 1), (1, 0), (0, 0) with scores 1, 0.9, 0.9. The paper's W = diag(1,
    1, 0) is used without its zero row, so that p lies in the plane of the figure. There are six starts (0, c).
    """
    return _figure_1("figure-1a", (1.0, 0.9, 0.9))


def figure_1b() -> Case:
    """Figure 1(b): one input, token (−0.1, 1) globally and (1, 0) locally optimal.

    Source: Section 2.2; as Figure 1(a) with scores 1, 0.9, 0.
    """
    return _figure_1("figure-1b", (1.0, 0.9, 0.0))


def figure_1c(name: str = "figure-1c") -> Case:
    """Figures 1(c), 4(a), 4(b): three inputs of seven tokens in Gaussian clusters.

    Source: Section 5; n = 3, T = 7, the optimal token near (1, 0) with score 1, three tokens near (−1, 1) and three
    near (−0.5, −0.5) with score 0.5, standard deviation 0.2. The paper gives no seed; ours is :data:`CLUSTER_SEED`,
    with which the optimal tokens are separable. Keys are rounded to multiples of 2^−10. Training starts at p = 0.
    """
    centres = np.array([(1.0, 0.0)] + 3 * [(-1.0, 1.0)] + 3 * [(-0.5, -0.5)])
    noise = 0.2 * np.random.default_rng(CLUSTER_SEED).standard_normal((3, 7, 2))
    keys = np.round((centres + noise) * 1024) / 1024
    scores = np.tile([1.0] + 6 * [0.5], (3, 1))
    return _from_scores(name, keys, scores, [(0.0, 0.0)])


def _figure_3(name: str, third: tuple[float, float]) -> Case:
    X = np.zeros((3, 2, 2))
    X[:, 0] = [(1.0, 1.0), (1.0, -1.0), third]
    data = Dataset(X, np.array([1.0, -1.0, 1.0]), np.array([0.0, 1.0]))
    return _case(name, data, [(0.0, -1.0)], start_head=[-1.0, 0.0])


def figure_3a() -> Case:
    """Figures 3(a), 3(c): joint training in which every input supports the head v_mm = (0, 1).

    Source: Section 3; n = 3, T = d = 2, optimal tokens (1, 1), (1, −1), (0.5, 1), labels 1, −1, 1, every
    other token zero. Training starts at p = (0, −1), v = (−1, 0) (arrays ``start_prompts``,
    ``start_head``); the head of the dataset is v_mm, so that the optimal tokens have the highest scores.
    """
    return _figure_3("figure-3a", (0.5, 1.0))


def figure_3b() -> Case:
    """Figure 3(b): joint training in which the third input does not support the head.

    Source: Section 3; as Figure 3(a) with (0.5, 1.5) for the third optimal token.
    """
    return _figure_3("figure-3b", (0.5, 1.5))


def figure_5(c: int = 10, loss: str = "logistic", name: str = "figure-5") -> Case:
    """Figure 5, C = 10, logistic loss: two inputs whose scores C and 1 pull p in different directions.

    Source: Appendix E; n = T = 2, keys (1, 1) with score C and (1, −1) with score 1, the other tokens zero.
    """
    keys = np.zeros((2, 2, 2))
    keys[:, 0] = [(1.0, 1.0), (1.0, -1.0)]
    return _from_scores(name, keys, np.array([(float(c), 0.0), (1.0, 0.0)]), [(0.0, 0.0)], loss)


def figure_8() -> Case:
    """Figure 8: two inputs of two tokens whose two starts reach two SVM directions.

    Source: Appendix E; the paper does not give the numbers, these are ours. The inputs have keys (1, 0) and (−2, 1) of
    score 1, and a zero key of score 0 each. The optimal tokens have p_mm = (1, 3), reached from (0, 1). The choice
    α = (0, 1), with the zero token at the second input, has p_mm = (1, 0), reached from (3, 0). The other token of the
    second input has margin 2, so it is no SVM-neighbour, and α is locally optimal. So Theorem 2 needs n = 1, even under
    Assumption B.
    """
    keys = np.zeros((2, 2, 2))
    keys[:, 0] = [(1.0, 0.0), (-2.0, 1.0)]
    return _from_scores("figure-8", keys, np.array([(1.0, 0.0), (1.0, 0.0)]), [(0.0, 1.0), (3.0, 0.0)])


def digits() -> Case:
    """Handwritten ones and sevens: eight 8×8 images, four 4×4 patches each as tokens.

    Source: scikit-learn's ``load_digits`` (from the UCI ML repository), the first four images of
    each class, grey levels 0 … 16 as multiples of 1/16, labels −1 (ones) and +1 (sevens). The head is a
    logistic regression on the mean patch of each image, rounded to multiples of 1/64; eight images are few
    enough for the optimal patches to be separable in their 16 dimensions.
    """
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    bunch = load_digits()
    chosen = np.concatenate([np.flatnonzero(bunch.target == digit)[:4] for digit in (1, 7)])
    labels = np.where(bunch.target[chosen] == 1, -1.0, 1.0)
    images = bunch.images[chosen] / 16
    patches = images.reshape(8, 2, 4, 2, 4).transpose(0, 1, 3, 2, 4).reshape(8, 4, 16)
    fitted = LogisticRegression(C=10, max_iter=1000).fit(patches.mean(axis=1), labels)
    head = np.round(fitted.coef_[0] * 64) / 64
    return _case("digits", Dataset(patches, labels, head), [])


def _variant_of_figure_5(c: int, loss: str, name: str) -> Callable[[], Case]:
    build = partial(figure_5, c, loss, name)
    build.__doc__ = f"Figure 5, C = {c}, {loss} loss."
    return build


def _figure_4() -> Case:
    """Figure 4: the data of Figure 1(c)."""
    return figure_1c("figure-4")


DATASETS: dict[str, Callable[[], Case]] = {
    "figure-1a": figure_1a,
    "figure-1b": figure_1b,
    "figure-1c": figure_1c,
    "figure-3a": figure_3a,
    "figure-3b": figure_3b,
    "figure-4": _figure_4,
    "figure-5": figure_5,
    **{
        name: _variant_of_figure_5(c, loss, name)
        for loss, suffix in (("logistic", ""), ("correlation", "-correlation"))
        for c in FIGURE_5_SCORES
        for name in [f"figure-5-c{c}{suffix}"]
    },
    "figure-8": figure_8,
    "digits": digits,
    **QUERY_DATASETS,
}
"""The named datasets."""

ALIASES = {"figure-3c": "figure-3a", "figure-4a": "figure-4", "figure-4b": "figure-4"}
"""Other names of datasets → the names in :data:`DATASETS`."""


NAMES = (*DATASETS, *ALIASES)
"""The names that :func:`dataset_named` knows."""


def all_data() -> dict[str, Callable[[], Any]]:
    """Return the named datasets of this suite and of all installed papers.

    Raises:
        InvalidInput: a dataset of an installed paper has a name that is already in use.
    """
    further = named_data()
    duplicate = next((name for name in further if name in NAMES), None)
    if duplicate is not None:
        raise InvalidInput(
            f"data: a paper's dataset {duplicate!r} has the name of one of this suite's; rename the paper's dataset."
        )
    return DATASETS | further


def dataset_named(name: str) -> Any:
    """Return the named dataset.

    Raises:
        InvalidInput: for an unknown name; the message lists the known names.
    """
    full_name = ALIASES.get(name, name)
    if full_name not in DATASETS and full_name not in all_data():
        raise InvalidInput(f"dataset: {name!r} is not one of {', '.join((*all_data(), *ALIASES))}.")
    return all_data()[full_name]() if full_name not in DATASETS else DATASETS[full_name]()
