"""Figures tsvm-directions and tsvm-factored: gradient flow on W and on (K, Q), and the two SVMs to which they converge.

tsvm-directions shows one data set, for which W^mm (least Frobenius norm) and W_⋆ (least nuclear norm) attend along
different directions W z_i. tsvm-factored shows random trials: the excess of ‖W‖_⋆ over its minimum for the same margin,
as ‖W‖_⋆ grows.

Source: *Transformers as Support Vector Machines*, figures of gradient descent paths and of local convergence, notebooks
visualization2 and local_converge. Here flows replace the normalized descents; they start at W = 0, or K = I and Q = 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float64

from generators.datasets import dataset_named
from generators.transformers_as_svms.query_trials import query_trial
from reference_attention.query_dataset import QueryDataset
from reference_attention.risk import scaled_gradient
from reference_attention.svm.max_margin import Infeasible, max_margin
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from reference_attention.training.factored_flow import factored_flow
from reference_attention.training.flow import gradient_flow
from theorems.figures import style
from theorems.figures.figure import Figure, Numbers, Settings

DATA = "tsvm-paths-5"
SIZES = np.geomspace(1.0, 1e6, 25)
"""The values of ‖W‖_⋆, or of ‖W‖_F for the flow on W, at which flows are recorded."""
INPUTS, TOKENS, DIMENSION = 3, 4, 4
MOST_TRIALS = 20
QUARTILES = (0.25, 0.5, 0.75)
WAYS = {"W": style.BLUE, "(K, Q)": style.RED}


def _flows(data: QueryDataset, settings: Settings) -> dict[str, Float64[np.ndarray, "r d e"]]:
    """Return W along the flow on W and along the flow on (K, Q)."""
    gradient, problem, (d, e) = settings.under_test[scaled_gradient], data.problem, data.shape
    by_w = gradient_flow(problem, np.zeros(d * e), norm=float(SIZES[-1]), record=SIZES, gradient=gradient)
    # As K = I and Q = 0 at the start, ½(‖K‖² + ‖Q‖²) exceeds ‖W‖_⋆ by at most ½‖KᵀK − QᵀQ‖_⋆ = d/2.
    roots, start = np.sqrt(2 * SIZES + d), (np.eye(d), np.zeros((e, d)))
    by_factors = factored_flow(data, *start, norm=float(roots[-1]), record=roots, gradient=gradient)
    return {"W": by_w.points[1:].reshape(-1, d, e), "(K, Q)": by_factors.W[1:]}


def direction_numbers(settings: Settings) -> Numbers:
    """Return the tokens, and the W z_i of the solutions of both SVMs and of the points of both flows."""
    data = dataset_named(DATA).queried
    assert data is not None
    svm = settings.under_test[max_margin](data.problem.exact_keys, data.problem.optimal)
    nuclear = settings.under_test[nuclear_max_margin](data.keys, data.problem.optimal)
    assert not isinstance(svm, Infeasible)
    assert isinstance(nuclear, NuclearMaxMargin)

    def attended_ways(W: Float64[np.ndarray, "*b d e"]) -> list[Any]:
        ways = np.einsum("...de,ne->...nd", W, data.queries)
        sizes = np.linalg.norm(ways, axis=-1, keepdims=True)
        # Draw a length as log10(1 + length), so that the start and norms of a million fit in one picture.
        return (ways / np.where(sizes > 0, sizes, 1.0) * np.log10(1 + sizes)).tolist()

    flows = _flows(data, settings)
    return {
        "data": DATA,
        "X": data.X.tolist(),
        "optimal": data.problem.optimal.tolist(),
        "limits": {"W": attended_ways(1e6 * svm.p.reshape(data.shape)), "(K, Q)": attended_ways(1e6 * nuclear.W)},
        "ways": {name: attended_ways(W) for name, W in flows.items()},
        "norms": {
            "frobenius": [svm.norm, float(np.linalg.svd(svm.p.reshape(data.shape), compute_uv=False).sum())],
            "nuclear": [float(np.linalg.norm(nuclear.W)), nuclear.norm],
        },
    }


def draw_directions(figure: Any, numbers: Numbers) -> None:
    """Draw a panel per input: W z_i along both flows, and dashed the W z_i of the solutions of both SVMs."""
    panels = figure.subplots(1, len(numbers["X"]))
    reach = 1.1 * max(float(np.abs(way).max()) for way in numbers["ways"].values())
    for i, axes in enumerate(panels):
        style.plane(axes, -reach, reach, -reach, reach, label=rf"(Wz_{i + 1})")
        for name, color in WAYS.items():
            axes.plot(*zip(*([0, 0], *(way[i] for way in numbers["ways"][name])), strict=True), color=color, zorder=2)
            style.ray(axes, (np.array(numbers["limits"][name][i]) / reach).tolist(), 2 * reach, color, width=1.0)
        for t, token in enumerate(numbers["X"][i]):
            best = t == numbers["optimal"][i]
            place = np.array(token) * reach / 2
            axes.plot(*place, "*" if best else "s", color=style.GREEN if best else style.ORANGE, zorder=5)
        axes.set_title(f"query {i + 1}")
    for k, (name, label) in enumerate((("W", r"$W$, to $W^{\rm mm}$"), ("(K, Q)", r"$(K,Q)$, to $W_\star$"))):
        style.name(panels[0], -0.95 * reach, (0.9 - 0.14 * k) * reach, label, WAYS[name])
    style.name(panels[1], -0.95 * reach, 0.9 * reach, r"length: $\log_{10}(1+\|Wz\|)$; tokens not to scale", style.GREY)


def trial_numbers(settings: Settings) -> Numbers:
    """Return quartiles of ‖W‖_⋆/(m(W) C_⋆) − 1 at each ‖W‖_⋆, over trials where both flows select the same tokens.

    C_⋆ is the least nuclear norm of a W with margins of at least 1.
    """
    trials, curves = min(settings.trials, MOST_TRIALS), []
    for k in range(trials):
        data = query_trial(settings.seed, INPUTS, TOKENS, DIMENSION, k)
        flows = _flows(data, settings)
        alphas = [data.problem.selection_at(W[-1].ravel()) for W in flows.values()]
        svm = settings.under_test[nuclear_max_margin](data.keys, alphas[0])
        whole = all(len(W) == len(SIZES) for W in flows.values())
        if whole and np.array_equal(alphas[0], alphas[1]) and isinstance(svm, NuclearMaxMargin) and svm.unique:
            curves.append([_excess(data, W, alphas[0], svm.norm) for W in flows.values()])
    excesses = np.array(curves).reshape(-1, len(WAYS), len(SIZES))
    return {
        "trials": trials,
        "seed": settings.seed,
        "compared": len(excesses),
        "sizes": SIZES.tolist(),
        "quartiles": {
            name: np.quantile(excesses[:, k], QUARTILES, axis=0, method="inverted_cdf").tolist()
            if len(excesses)
            else None
            for k, name in enumerate(WAYS)
        },
    }


def _excess(data: QueryDataset, W: Float64[np.ndarray, "r d e"], alpha: Any, norm: float) -> list[float]:
    """Return ‖W‖_⋆/(m(W) C_⋆) − 1 at each point, capped at 1000; 1000 if a margin is not positive.

    C_⋆, the argument ``norm``, is the least nuclear norm of a W with margins of at least 1.
    """
    problem, others = data.problem, np.arange(data.X.shape[1]) != alpha[:, None]
    rows = (np.take_along_axis(problem.keys, alpha[:, None, None], axis=1) - problem.keys)[others]
    least = (W.reshape(len(W), -1) @ rows.T).min(axis=1)
    sizes = np.linalg.svd(W, compute_uv=False).sum(axis=1)
    return [min(1e3, s / (m * norm) - 1) if m > 0 else 1e3 for s, m in zip(sizes.tolist(), least.tolist(), strict=True)]


def draw_trials(figure: Any, numbers: Numbers) -> None:
    """Draw the medians of both flows, with quartiles, on logarithmic axes."""
    axes = figure.subplots()
    for name, color in WAYS.items():
        if numbers["quartiles"][name] is not None:
            low, middle, high = numbers["quartiles"][name]
            axes.fill_between(numbers["sizes"], low, high, color=color, alpha=0.15, linewidth=0)
            axes.plot(numbers["sizes"], middle, color=color)
            place = math.sqrt(middle[-1] * middle[-6])
            label = f"${name}$" if name == "W" else "$(K,Q)$"
            style.name(axes, numbers["sizes"][-6], place, f"flow on {label}", color, ha="right")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(1e-5, 1e1)
    axes.set_xlabel(r"$\|W\|_\star$ (for the flow on $W$: $\|W\|_F$)")
    axes.set_ylabel(r"$\|W\|_\star/(m(W)\,C_\star)-1$")


FIGURES = [
    Figure(
        "tsvm-directions",
        "the two directions of one data set: flow on $W$ and on $(K,Q)$",
        (7.2, 3.9),
        direction_numbers,
        draw_directions,
    ),
    Figure(
        "tsvm-factored",
        "random trials: how far $W$ is from the least nuclear norm, for flows on $W$ and on $(K,Q)$",
        (5.6, 3.8),
        trial_numbers,
        draw_trials,
    ),
]
