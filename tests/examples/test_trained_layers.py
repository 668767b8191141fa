"""The layers of examples/trained_layers.py: the explanation of each, compared with numbers computed in plain NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from examples.trained_layers import DATA, LAYERS, RULES, Layer, explained, report_of, settled_tokens, weights_of
from theorems import explain

FAST = (
    Layer("p", "iris", "sgd"),
    Layer("p", "sentences", "adam"),
    Layer("p", "digits", "sgd"),
    Layer("pv", "iris", "sgd"),
    Layer("module", "iris", "adam"),
)
ALL = [pytest.param(layer, marks=[] if layer in FAST else pytest.mark.nightly, id=layer.name) for layer in LAYERS]


def numbers_of(layer: Layer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return softmax weights (n, T), the rows k_α − k_t (m, d) for the tokens α of largest weight, and the
    prompt (d,).
    """
    arguments = layer.train()
    data: dict[str, Any] = arguments["data"]
    module = arguments.get("module")
    if module is None:
        weights = weights_of(data)
        matrix = (
            data["K_trained"] @ data["Q_trained"].T if "K_trained" in data else data.get("W_trained", data.get("p"))
        )
    else:
        X, z = (torch.tensor(data[name]) for name in ("X", "queries"))
        weights = module(z[:, None], X, X)[1][:, 0].detach().numpy()
        query, key = module.in_proj_weight.detach().numpy()[:8].reshape(2, 4, 4)
        matrix = key.T @ query / 2
    z = data.get("queries", np.ones((len(data["X"]), 1)))
    keys = np.einsum("ntd,ne->ntde", data["X"], z).reshape(*data["X"].shape[:2], -1)
    kept = data.get("mask", np.ones(weights.shape, dtype=bool))
    best = weights.argmax(axis=1)
    rows = [keys[i, best[i]] - keys[i, t] for i, t in np.argwhere(kept) if t != best[i]]
    return weights, np.array(rows), np.ravel(matrix)


def largest_margin(rows: np.ndarray) -> float:
    """Return max min(rows p)/‖p‖ by Lawson and Hanson's least distance programming."""
    system = np.vstack([rows.T, np.ones(len(rows))])
    target = np.eye(len(system))[-1]
    rest = system @ nnls(system, target, maxiter=10_000)[0] - target
    return float(1 / np.linalg.norm(rest[:-1] / rest[-1]))


def check_numbers(state: Any, layer: Layer) -> None:
    weights, rows, matrix = numbers_of(layer)
    assert state.softmax == pytest.approx(weights, rel=1e-9, abs=1e-15)
    assert state.tokens.tolist() == weights.argmax(axis=1).tolist()
    assert state.off == pytest.approx(np.sort(weights, axis=1)[:, :-1].sum(axis=1), rel=1e-9)
    norm = np.linalg.norm(matrix)
    assert state.in_norms[0].norm == pytest.approx(norm)
    assert state.in_norms[0].margin == pytest.approx((rows @ matrix).min() / norm, rel=1e-9)
    assert state.in_norms[0].largest == pytest.approx(largest_margin(rows), rel=1e-6)


@pytest.mark.parametrize("layer", ALL)
def test_the_explanation_of_a_trained_layer_agrees_with_numpy(layer: Layer) -> None:
    assert report_of(layer) == LAYERS[layer]
    check_numbers(explained(layer).layer, layer)


def test_training_ends_at_the_tokens_of_the_flow_unless_its_steps_are_long() -> None:
    assert {expected.training for expected in LAYERS.values()} == {"", "there", "with shorter steps", "not settled"}
    assert [layer.name for layer in LAYERS if LAYERS[layer].training == "with shorter steps"] == ["p-iris-sign"]


SETTLING = [
    pytest.param(layer, marks=[] if layer.rule == "sign" else pytest.mark.nightly, id=layer.name)
    for layer in LAYERS
    if (layer.trained, layer.data) == ("p", "iris") and LAYERS[layer].training in ("there", "with shorter steps")
]


@pytest.mark.parametrize("layer", SETTLING)
def test_the_explanation_with_the_rule_of_training_ends_at_the_tokens_of_training(layer: Layer) -> None:
    """The rules include the sign rule, whose steps lead to other tokens than the flow."""
    [end] = explain(layer.train()["data"], rules=[f"{layer.rule}-{RULES[layer.rule][0]:g}"]).rules  # type: ignore[union-attr]
    tokens = settled_tokens(layer)
    assert tokens is not None
    assert (end.settled, end.tokens) == (True, tuple(tokens.tolist()))
    assert end.like_flow is (layer.rule != "sign")


@pytest.mark.nightly
def test_training_that_has_not_settled_continues_to_the_tokens_of_the_flow() -> None:
    """Adam on W has had a weight of 0.93 on other tokens from step 2,000 to 4,000."""
    layer = Layer("W", "iris", "adam")
    early, *late = (weights_of(layer.train(steps)["data"]) for steps in (4_000, 8_000, 16_000))
    assert early.max(axis=1).min() > 0.9
    selects = explained(layer).path.selects.tolist()
    assert [weights.argmax(axis=1).tolist() == selects for weights in (early, *late)] == [False, True, True]
    assert late[-1].max(axis=1).min() > 0.99


def test_the_comparison_fails_for_numbers_of_another_layer() -> None:
    layer = FAST[0]
    with pytest.raises(AssertionError):
        check_numbers(explained(layer).layer, replace(layer, seed=1))


def test_the_layers_use_every_rule_data_set_and_kind_of_weights() -> None:
    assert {layer.rule for layer in LAYERS} == {*RULES}
    assert {layer.data for layer in LAYERS} == {*DATA}
    assert {layer.trained for layer in LAYERS} == {"p", "W", "KQ", "pv", "module"}
    assert len({layer.name for layer in LAYERS}) == len(LAYERS) == 20
