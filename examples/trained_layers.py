"""Twenty small attention layers trained in torch, and what `theorems explain` must report on each.

The data are handwritten digits, irises, or sentences of different lengths with a mask. A layer trains a prompt p, a
matrix W of key-query weights, its factors K and Q with W = K Qᵀ, or a PyTorch module, by one of five update rules;
sometimes the head v is trained, too.

    python -m examples.trained_layers                # one line for each layer
    python -m examples.trained_layers p-iris-adam    # the full explanation of one layer

`LAYERS` lists the layers with the expected reports; `tests/examples/test_trained_layers.py` compares the expected with
the actual reports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_iris
from torch import Tensor

from generators.datasets import dataset_named
from theorems import explain
from theorems.explanations.selection import chosen_tokens

LATER = 40
"""Training is continued to this multiple of the layer's number of steps."""
SETTLED = 0.9
"""The least softmax weight of each input's selected token for a run to count as settled.

The run must also have selected the same tokens after half of its steps.
"""
SHORTER = 10
"""The factor by which steps are shortened if continued training ends at other tokens than the gradient flow.

Training is then continued once more from the trained weights.
"""
WORDS = "the film was not good bad great dull but story acting fine"
SENTENCES = (
    ("the film was great", 1),
    ("dull story", -1),
    ("the story was bad but acting fine", 1),
    ("not good", -1),
    ("great story", 1),
    ("the acting was dull", -1),
)
TONE = {"good": 1.0, "great": 1.5, "fine": 0.75, "bad": -1.0, "dull": -1.5, "not": -1.25}
"""The score of each word that has a tone (0 for others); a word's score is the last coordinate of its embedding."""

Rule = Callable[[Tensor, Tensor, dict[str, Any]], Tensor]
"""The type of update rules: (weights, gradient, state of the rule) → a step, yet to be multiplied by the step size."""


def adam(_: Tensor, gradient: Tensor, state: dict[str, Any]) -> Tensor:
    """Return the direction of a step of Adam, with PyTorch's default coefficients and ε."""
    t = state["t"] = state.get("t", 0) + 1
    state["m"] = 0.9 * state.get("m", 0) + 0.1 * gradient
    state["v"] = 0.999 * state.get("v", 0) + 0.001 * gradient**2
    return state["m"] / (1 - 0.9**t) / ((state["v"] / (1 - 0.999**t)).sqrt() + 1e-8)


def muon(_: Tensor, gradient: Tensor, state: dict[str, Any]) -> Tensor:
    """Return the direction of a step of Muon: U Vᵀ, for the singular value decomposition U Σ Vᵀ of the momentum."""
    state["m"] = 0.95 * state.get("m", 0) + gradient
    U, _, Vh = torch.linalg.svd(state["m"], full_matrices=False)
    return U @ Vh


RULES: dict[str, tuple[float, Rule]] = {
    "sgd": (1.0, lambda _, gradient, state: gradient),
    "normalized": (0.05, lambda _, gradient, state: gradient / gradient.norm()),
    "sign": (0.02, lambda _, gradient, state: gradient.sign()),
    "adam": (0.02, adam),
    "muon": (0.02, muon),
}
"""The update rules by name, each with the step size by which the rule's direction is multiplied."""


@cache
def iris() -> dict[str, np.ndarray]:
    """Return six inputs of five irises, the tokens; an input's label says whether its first flower is a setosa."""
    features, kinds = load_iris(return_X_y=True)
    features = np.round((features - features.mean(axis=0)) / features.std(axis=0), 2)
    order = np.random.default_rng(0).permutation(150)[:30]
    X, Y = features[order].reshape(6, 5, 4), np.where(kinds[order].reshape(6, 5)[:, 0] == 0, 1.0, -1.0)
    return {"X": X, "Y": Y, "v": np.array([-0.5, 0.5, -1.0, -1.0]), "queries": np.round(X.mean(axis=1), 2)}


@cache
def sentences() -> dict[str, np.ndarray]:
    """Return the words of each sentence as tokens of five coordinates, labels, a head, queries, and a padding mask.

    The mask is False for padding; the query of a sentence is its last word.
    """
    rng = np.random.default_rng(2)
    of_word = {word: np.append(np.round(rng.normal(size=4), 2), TONE.get(word, 0.0)) for word in WORDS.split()}
    length = max(len(text.split()) for text, _ in SENTENCES)
    X, mask = np.zeros((len(SENTENCES), length, 5)), np.zeros((len(SENTENCES), length), dtype=bool)
    for i, (text, _) in enumerate(SENTENCES):
        for t, word in enumerate(text.split()):
            X[i, t], mask[i, t] = of_word[word], True
    last = X[np.arange(len(X)), mask.sum(axis=1) - 1]
    Y, v = np.array([float(label) for _, label in SENTENCES]), np.array([0.0, 0, 0, 0, 1])
    return {"X": X, "Y": Y, "v": v, "mask": mask, "queries": last}


@cache
def digits() -> dict[str, np.ndarray]:
    """Return the data named ``digits``: images of ones and sevens, each with four patches as tokens."""
    data = dataset_named("digits").dataset
    assert data is not None
    return {"X": data.X, "Y": data.Y, "v": data.v}


DATA = {"iris": iris, "sentences": sentences, "digits": digits}


@dataclass(frozen=True)
class Layer:
    """A layer to train.

    Attributes:
        trained: what is trained: ``p``, ``W``, ``KQ`` (the factors K and Q), ``pv`` (prompt and head), or ``module``
            (torch.nn.MultiheadAttention).
        data: the name of the data in :data:`DATA`.
        rule: the name of the update rule in :data:`RULES`.
        steps: the number of steps of training.
        seed: the seed of the random weights at which training starts.
    """

    trained: str
    data: str
    rule: str
    steps: int = 100
    seed: int = 0

    @property
    def name(self) -> str:
        """The layer's name, such as ``p-iris-adam``."""
        return f"{self.trained}-{self.data}-{self.rule}" + f"-{self.seed}" * bool(self.seed)

    @property
    def given(self) -> dict[str, np.ndarray]:
        """The data on which the layer is trained; without queries if a trained prompt takes their place."""
        data = DATA[self.data]()
        return {k: x for k, x in data.items() if k != "queries" or self.trained not in ("p", "pv")}

    def train(self, steps: int | None = None, shorter: int = 1) -> dict[str, Any]:
        """Train the layer, and return the arguments of ``explain``: data with weights, or data and a module.

        Args:
            steps: the number of steps; by default :attr:`steps`.
            shorter: the factor by which steps after the first ``self.steps`` are shortened and made more numerous.
        """
        data = self.given
        if self.trained == "module":
            return self._module(steps or self.steps)
        generator = torch.Generator().manual_seed(self.seed)
        d, e = data["X"].shape[2], data["queries"].shape[1] if "queries" in data else 1
        sizes = [(d, 2), (e, 2)] if self.trained == "KQ" else [(d, e)]
        weights = [0.1 * torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]
        head = torch.tensor(data["v"])
        trained = [*weights, head] if self.trained == "pv" else weights
        step, rule = RULES[self.rule]
        states: list[dict[str, Any]] = [{} for _ in trained]
        total = self.steps + shorter * ((steps or self.steps) - self.steps)
        for number in range(total):
            eta = step if number < self.steps else step / shorter
            for array in trained:
                array.requires_grad_()
            W = weights[0] if len(weights) == 1 else weights[0] @ weights[1].T
            gradients = torch.autograd.grad(_risk(data, W, head), trained)
            with torch.no_grad():
                moved = [x - eta * rule(x, g, s) for x, g, s in zip(trained, gradients, states, strict=True)]
            trained, weights, head = moved, moved[: len(weights)], moved[-1] if self.trained == "pv" else head
        arrays = [array.detach().numpy() for array in weights]
        names = {"W": ["W_trained"], "KQ": ["K_trained", "Q_trained"]}.get(self.trained, ["p"])
        arrays = [arrays[0][:, 0]] if names == ["p"] else arrays
        return {"data": data | {"v": head.detach().numpy()} | dict(zip(names, arrays, strict=True))}

    def _module(self, steps: int) -> dict[str, Any]:
        """Train PyTorch's MultiheadAttention, followed by a linear map to one output, by torch.optim.Adam."""
        torch.manual_seed(self.seed)
        data = self.given
        X, z, Y = (torch.tensor(data[name]) for name in ("X", "queries", "Y"))
        module = torch.nn.MultiheadAttention(X.shape[2], 1, bias=False, batch_first=True, dtype=torch.float64)
        reading = torch.nn.Linear(X.shape[2], 1, bias=False, dtype=torch.float64)
        optimiser = torch.optim.Adam([*module.parameters(), *reading.parameters()], lr=RULES["adam"][0])
        hidden = None if "mask" not in data else torch.tensor(~data["mask"])
        for _ in range(steps):
            output = reading(module(z[:, None], X, X, key_padding_mask=hidden)[0])[:, 0, 0]
            optimiser.zero_grad()
            torch.nn.functional.softplus(-Y * output).mean().backward()
            optimiser.step()
        values = module.in_proj_weight[2 * X.shape[2] :]
        v = (reading.weight @ module.out_proj.weight @ values)[0].detach().numpy()
        return {"data": data | {"v": v}, "module": module}


def _risk(data: dict[str, np.ndarray], W: Tensor, head: Tensor) -> Tensor:
    """Return the mean logistic loss of a layer with logits xᵀ W z for tokens x and a query z, or xᵀ p without z."""
    X, Y = torch.tensor(data["X"]), torch.tensor(data["Y"])
    z = torch.tensor(data["queries"]) if "queries" in data else torch.ones((len(Y), 1), dtype=torch.float64)
    logits = torch.einsum("ntd,de,ne->nt", X, W, z)
    if "mask" in data:
        logits = logits.masked_fill(~torch.tensor(data["mask"]), -torch.inf)
    output = torch.einsum("nt,ntd,d->n", torch.softmax(logits, 1), X, head)
    return torch.nn.functional.softplus(-Y * output).mean()


@dataclass(frozen=True)
class LayerReport:
    """The report of ``theorems explain`` on a trained layer, and the effect of continued training.

    Attributes:
        optimal: the number of inputs whose optimal token has the largest weight.
        local: whether the tokens of largest weight are locally optimal.
        flow: whether the gradient flow, continued from the trained weights, ``keeps`` or ``leaves`` the tokens of
            largest weight, or ``undecided``; for a layer that trains K and Q, the flow of (K, Q), not of W.
        training: where training with 40 times as many steps ends: ``there`` (at the tokens that the flow selects),
            ``with shorter steps`` (at these tokens, but only with shorter steps), ``elsewhere``, or ``not settled``;
            empty if the flow is undecided, or if the head is also trained, which changes the flow.
    """

    optimal: int
    local: bool
    flow: str
    training: str = ""


def report_of(layer: Layer) -> LayerReport:
    """Explain a trained layer and continue its training; return the report."""
    it = explained(layer)
    state, scores = it.layer, it.case.problem.scores
    optimal = int((scores[np.arange(len(scores)), state.tokens] == scores.max(axis=1)).sum())
    local = state.chosen is not None and state.chosen.locally_optimal
    by_factors = it.ends[-1] if layer.trained == "KQ" else None
    selects = it.path.selects
    if by_factors is not None:
        selects = np.array(by_factors.selects) if by_factors.grows else None
    if selects is None:
        return LayerReport(optimal, local, "undecided")
    flow = "keeps" if np.array_equal(selects, state.tokens) else "leaves"
    if layer.trained in ("pv", "module"):
        return LayerReport(optimal, local, flow)
    tokens = settled_tokens(layer)
    if tokens is None:
        return LayerReport(optimal, local, flow, "not settled")
    if np.array_equal(tokens, selects):
        return LayerReport(optimal, local, flow, "there")
    tokens = settled_tokens(layer, SHORTER)
    return LayerReport(optimal, local, flow, "with shorter steps" if np.array_equal(tokens, selects) else "elsewhere")


def settled_tokens(layer: Layer, shorter: int = 1) -> np.ndarray | None:
    """Return the token that each input selects after continued training; None if the selection has not settled.

    A selection of tokens that are not locally optimal has not settled, however large their weights are: training will
    move on to an SVM-neighbour with a higher score. For K and Q this may take 10⁹ times as many steps.
    """
    half, end = (weights_of(layer.train(LATER * layer.steps // part, shorter)["data"]) for part in (2, 1))
    tokens = end.argmax(axis=1)
    changing = end.max(axis=1).min() < SETTLED or (half.argmax(axis=1) != tokens).any()
    problem = explained(layer).case.problem
    if changing or not chosen_tokens(problem, "end", tokens).locally_optimal:
        return None
    return tokens


@cache
def explained(layer: Layer) -> Any:
    """Train the layer, and return what ``theorems.explain`` says about it."""
    arguments = layer.train()
    return explain(arguments.pop("data"), **arguments)


def weights_of(data: dict[str, Any]) -> np.ndarray:
    """Return the softmax weights (n, T) of a trained layer, computed in NumPy; the weight of padding is zero."""
    W = data["K_trained"] @ data["Q_trained"].T if "K_trained" in data else data.get("W_trained")
    logits = data["X"] @ data["p"] if W is None else np.einsum("ntd,de,ne->nt", data["X"], W, data["queries"])
    logits = np.where(data.get("mask", "there"), logits, -np.inf)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


LAYERS = {
    Layer("p", "iris", "sgd"): LayerReport(2, True, "leaves", "not settled"),
    Layer("p", "iris", "normalized"): LayerReport(2, True, "leaves", "there"),
    Layer("p", "iris", "sign"): LayerReport(2, True, "leaves", "with shorter steps"),
    Layer("p", "iris", "adam"): LayerReport(2, True, "leaves", "not settled"),
    Layer("p", "iris", "muon"): LayerReport(2, False, "leaves", "there"),
    Layer("p", "sentences", "sgd"): LayerReport(6, True, "keeps", "there"),
    Layer("p", "sentences", "normalized"): LayerReport(6, True, "keeps", "there"),
    Layer("p", "sentences", "sign"): LayerReport(6, True, "keeps", "there"),
    Layer("p", "sentences", "adam"): LayerReport(6, True, "keeps", "there"),
    Layer("p", "digits", "sgd"): LayerReport(7, False, "leaves", "not settled"),
    Layer("p", "digits", "adam"): LayerReport(6, False, "leaves", "not settled"),
    Layer("W", "iris", "sgd"): LayerReport(4, False, "leaves", "not settled"),
    Layer("W", "iris", "adam"): LayerReport(4, False, "leaves", "not settled"),
    Layer("W", "iris", "muon"): LayerReport(4, False, "leaves", "not settled"),
    Layer("W", "sentences", "normalized"): LayerReport(6, True, "keeps", "there"),
    Layer("W", "sentences", "sign"): LayerReport(6, True, "keeps", "there"),
    Layer("KQ", "iris", "sgd"): LayerReport(3, False, "leaves", "not settled"),
    Layer("KQ", "iris", "adam"): LayerReport(3, False, "leaves", "not settled"),
    Layer("pv", "iris", "sgd"): LayerReport(4, False, "leaves"),
    Layer("module", "iris", "adam"): LayerReport(4, False, "leaves"),
}
"""The trained layers, each with the expected report."""


def main(names: Sequence[str]) -> None:
    """Print one line for each layer or, if names of layers are given, the explanations of these layers."""
    for layer in LAYERS:
        if layer.name in names:
            print(explained(layer))
        elif not names:
            print(f"{layer.name:24}{report_of(layer)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
