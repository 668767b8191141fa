"""``theorems explain`` with trained weights: their attention agrees with plain numpy, and the flow from them is
followed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from generators.datasets import dataset_named
from generators.layer_weights import checkpoints_of
from generators.user_data import as_text, case_of, subject_of
from reference_attention.errors import InvalidInput
from reference_attention.files import from_json
from theorems.command.app import main
from theorems.explanations.content import sections
from theorems.explanations.explanation import Explanation
from theorems.explanations.layer_state import layer_state
from theorems.explanations.sentences import paragraphs
from theorems.library.explain import explain

RNG = np.random.default_rng(1)
TOKENS = {"X": RNG.normal(size=(3, 4, 3)), "v": 3 * RNG.normal(size=3), "Y": np.array([1, -1, 1])}
QUERIES = TOKENS | {"queries": RNG.normal(size=(3, 2))}
NOT_LOCAL = {"keys": [[[1, 0], [0, 1], [0, 0]]], "scores": [[1, 2, 0]]}
"""Both other tokens are neighbours of token 0, and token 1 has a higher score."""
Optimiser = Callable[[list[torch.Tensor]], torch.optim.Optimizer]


def sgd(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1.0)


def adam(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.05)


def trained(names: str, optimiser: Optimiser, steps: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Train p, W or K and Q on the data in torch, as a user would, and return the weights."""
    generator = torch.Generator().manual_seed(seed)
    X, Y, v, z = (torch.tensor(QUERIES[key]).double() for key in ("X", "Y", "v", "queries"))
    shapes = {"p": [(3,)], "W": [(3, 2)], "KQ": [(3, 2), (2, 2)]}[names]
    weights = [
        (0.3 * torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_() for shape in shapes
    ]
    rule = optimiser(weights)
    for _ in range(steps):
        at = {"p": lambda: X @ weights[0], "W": lambda: torch.einsum("ntd,de,ne->nt", X, weights[0], z)}
        logits = at[names]() if names in at else torch.einsum("ntd,dm,em,ne->nt", X, *weights, z)
        output = torch.einsum("nt,ntd,d->n", torch.softmax(logits, 1), X, v)
        rule.zero_grad()
        torch.nn.functional.softplus(-Y * output).mean().backward()
        rule.step()
    return dict(zip({"p": ["p"], "W": ["W_trained"], "KQ": ["K_trained", "Q_trained"]}[names], weights, strict=True))


LAYERS = [
    ("p", sgd, 10),
    ("p", adam, 40),
    ("W", sgd, 10),
    ("W", adam, 60),
    ("KQ", sgd, 10),
    ("KQ", adam, 60),
    ("KQ", adam, 9),
]


def rows_of(names: str, alpha: np.ndarray) -> np.ndarray:
    """Return k_α − k_t for every t ≠ α, shape (n (T − 1), d); if W or K and Q are trained, keys are vec(x zᵀ)."""
    X, z = QUERIES["X"], QUERIES["queries"]
    keys = X if names == "p" else np.einsum("ntd,ne->ntde", X, z).reshape(3, 4, -1)
    return np.concatenate([keys[i, alpha[i]] - np.delete(keys[i], alpha[i], 0) for i in range(3)])


def max_margin_direction(rows: np.ndarray) -> np.ndarray:
    """Return argmin ‖p‖ subject to rows p ≥ 1 (Lawson and Hanson's least distance programming)."""
    system = np.vstack([rows.T, np.ones(len(rows))])
    target = np.eye(len(system))[-1]
    rest = system @ nnls(system, target, maxiter=10_000)[0] - target
    return np.asarray(-rest[:-1] / rest[-1])


@pytest.mark.parametrize(("names", "optimiser", "steps"), LAYERS)
def test_the_explanation_of_a_trained_layer_agrees_with_plain_numpy(
    names: str, optimiser: Optimiser, steps: int
) -> None:
    weights = trained(names, optimiser, steps)
    arrays = {key: value.detach().numpy() for key, value in weights.items()}
    it = explain((TOKENS if names == "p" else QUERIES) | weights)
    layer = it.layer
    assert layer is not None
    matrix = arrays["p"][:, None] if names == "p" else arrays.get("W_trained", 0)
    matrix = arrays["K_trained"] @ arrays["Q_trained"].T if names == "KQ" else matrix
    z = np.ones((3, 1)) if names == "p" else QUERIES["queries"]
    logits = np.einsum("ntd,de,ne->nt", QUERIES["X"], matrix, z)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    alpha = logits.argmax(axis=1)
    assert layer.tokens.tolist() == alpha.tolist()
    assert layer.softmax == pytest.approx(softmax, rel=1e-12)
    assert layer.off == pytest.approx([softmax[i].sum() - softmax[i, alpha[i]] for i in range(3)], rel=1e-9)
    assert layer.margins == pytest.approx(logits.max(axis=1, keepdims=True) - logits, abs=1e-13)
    rows, vector = rows_of(names, alpha), matrix.ravel()
    solution = max_margin_direction(rows)
    [first, *nuclear] = layer.in_norms
    assert first.norm == pytest.approx(np.linalg.norm(vector))
    assert first.margin == pytest.approx((rows @ vector).min() / np.linalg.norm(vector))
    assert first.largest == pytest.approx(1 / np.linalg.norm(solution))
    cosine = vector @ solution / np.linalg.norm(vector) / np.linalg.norm(solution)
    assert first.one_minus_cosine == pytest.approx(1 - cosine, abs=1e-12)
    scores = QUERIES["Y"][:, None] * (QUERIES["X"] @ QUERIES["v"])
    below = np.concatenate([scores[i, alpha[i]] > np.delete(scores[i], alpha[i]) for i in range(3)])
    assert layer.chosen is not None
    assert layer.chosen.locally_optimal == bool(below[rows @ solution < 1 + 1e-9].all())
    assert len(nuclear) == (names != "p")
    for of_w in nuclear:
        W = cp.Variable((3, 2))
        least = cp.Problem(cp.Minimize(cp.normNuc(W)), [rows @ cp.vec(W, order="C") >= 1]).solve()
        size = np.linalg.svd(matrix, compute_uv=False).sum()
        assert of_w.share == pytest.approx((rows @ vector).min() / size * least, rel=1e-3)
        cosine = vector @ W.value.ravel() / np.linalg.norm(vector) / np.linalg.norm(W.value)
        assert of_w.one_minus_cosine == pytest.approx(1 - cosine, abs=2e-3)


@pytest.mark.parametrize(("names", "optimiser", "steps"), [layer for layer in LAYERS if layer[1] is sgd])
def test_the_flow_selects_the_tokens_that_longer_training_selects(names: str, optimiser: Optimiser, steps: int) -> None:
    """Trained W, and K with Q, leave the tokens of ten steps later on; p keeps tokens that are only locally optimal."""
    data = TOKENS if names == "p" else QUERIES
    it, later = (explain(data | trained(names, optimiser, many)) for many in (steps, 1500))
    assert it.selection is not None
    assert it.layer is not None
    assert later.layer is not None
    ends = it.ends[-1].selects if names == "KQ" else tuple(it.selection.alpha.tolist())
    assert ends == tuple(later.layer.tokens.tolist())
    assert (names == "p") == (ends == tuple(it.layer.tokens.tolist()))
    paragraph = paragraphs(it)[1]
    assert ("It keeps the tokens" if names == "p" else "It leaves the tokens of largest weight in 1 of 3") in paragraph
    assert (names == "p") == (it.selection is not it.optimal)
    assert ("The flow on the factors K and Q ends (norm reached)" in paragraph) == (names == "KQ")


def words(it: Explanation) -> str:
    return " ".join(paragraphs(it))


def test_a_choice_that_is_not_locally_optimal_names_the_neighbour() -> None:
    it = explain(NOT_LOCAL | {"p": [20, 1]})
    assert it.layer is not None
    assert not it.layer.chosen.locally_optimal  # type: ignore[union-attr]
    assert (
        "not locally optimal (Definition 2, decided exactly): token 1 of input 0, a neighbour of token 0, scores 2, not"
        in words(it)
    )
    others = np.exp(-19) + np.exp(-20)
    assert it.layer.off == pytest.approx([others / (1 + others)], rel=1e-14, abs=0)
    assert "1 − s, the weight of all other tokens, is largest at input 0: 7.66e-09" in words(it)


def test_a_weight_below_the_range_of_floats_is_not_called_zero() -> None:
    it = explain(NOT_LOCAL | {"p": [5000, 1]})
    assert "is largest at input 0: 1e-308" in words(it)
    assert "< 1e-308" in str(sections(it)[0])
    assert "The gradient there has norm 1e-2172: steps of gradient descent in float64 hardly move it." in words(it)


def test_the_flow_on_factors_starts_at_the_trained_factors() -> None:
    """Factors K and Q with one column keep W = K Qᵀ at rank 1, while the flow on W has rank 2."""
    it = explain(QUERIES | {"K_trained": [[1.0], [2], [0]], "Q_trained": [[1.0], [-1]]})
    assert [(end.trained, end.rank) for end in it.ends] == [("W", 2), ("(K, Q)", 1)]
    assert "The flow on the factors K and Q ends (norm reached) with the largest weights at [" in words(it)
    wide = explain(QUERIES | {"K_trained": np.ones((3, 70)), "Q_trained": np.ones((2, 70))})
    assert "not followed, as they have 350 entries, more than 300; it may end at other tokens" in words(wide)


def test_ties_and_zero_weights_select_nothing_and_have_no_direction() -> None:
    tied = explain(NOT_LOCAL | {"p": [1, 1]})
    assert tied.layer is not None
    assert (tied.layer.tied_inputs.tolist(), tied.layer.chosen, tied.layer.in_norms) == ([0], None, ())
    assert "exactly equal, to tokens [0, 1] of input 0: tied tokens have no max-margin direction" in words(tied)
    constant = explain({"keys": NOT_LOCAL["keys"], "scores": [[1, 1, 1]], "p": [2, 1]})
    assert "the flow stays at its start, where the gradient is zero" in words(constant)
    zero = explain(QUERIES | {"K_trained": np.zeros((3, 1)), "Q_trained": np.zeros((2, 1))})
    assert "The trained W = K Qᵀ is 0: all tokens of an input have the same weight, and nothing is selected." in words(
        zero
    )
    assert "NaN" not in zero.to_json()


def test_the_flow_from_a_given_start_is_reported_beside_that_from_the_trained_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On Figure 1(b), the flow from p(0) = (3, 0) selects token 1, which is only locally optimal, that from p
    token 0.
    """
    problem = dataset_named("figure-1b").problem
    data, record = tmp_path / "trained.npz", tmp_path / "said.json"
    np.savez(data, keys=problem.keys, scores=problem.scores, p=[-1.0, 4.0], p0=[3.0, 0.0])
    assert main(["explain", "--data", str(data), "--json", str(record)]) == 0
    shown = capsys.readouterr().out
    assert "From the trained p the flow selects the optimal token, 0 (GMM). It keeps the tokens of largest weight." in (
        " ".join(shown.split())
    )
    assert "The flow from p(0) = (3, 0) selects [1]." in " ".join(shown.split())
    content: dict[str, Any] = json.loads(record.read_text())
    assert (content["trained"]["weights"], content["trained"]["tokens"], content["trained"]["locally_optimal"]) == (
        "p",
        [0],
        True,
    )
    assert content["trained"]["in_norms"][0]["share"] < 1
    assert (content["flow_from_start"]["selects"], content["flow"]["selects"]) == ([1], [0])
    assert content["flow"]["start"] == [-1.0, 4.0]


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ({"p": [1, 2]}, "p: the data have queries, so W is trained, not p; give W_trained of shape (3, 2)."),
        ({"W_trained": np.ones((2, 3))}, "W_trained: shape (2, 3) is that of its transpose; give W_trained.T"),
        ({"K_trained": np.ones((5, 3)), "Q_trained": np.ones((2, 5))}, "give K_trained.T, of shape (3, 5)."),
        ({"K_trained": np.ones((3, 5))}, "Q_trained is missing; K_trained and Q_trained are needed together."),
        ({"K_trained": np.ones((3, 5)), "Q_trained": np.ones((2, 4))}, "Q_trained: shape (2, 4) has length 4 along"),
        ({"W_trained": [[np.nan, 1]] * 3}, "W_trained: entry (0, 0) is nan; replace NaN and infinite entries."),
        ({"W_trained": np.ones((3, 2)), "p": [1]}, "p and W_trained are both trained weights; give p, or with queries"),
        ({"W_trained": [["a", "b"]] * 3}, "W_trained: dtype <U1 is not real numeric"),
    ],
)
def test_weights_that_do_not_fit_are_refused_in_one_sentence(
    weights: dict[str, Any], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.npz"
    np.savez(file, **QUERIES, **weights)
    assert main(["explain", "--data", str(file)]) == 2
    shown = capsys.readouterr()
    assert sentence in shown.err
    assert (shown.err.count("\n"), shown.out) == (1, "")


def test_trained_w_needs_queries_and_each_query_of_an_input_is_an_input_of_its_own() -> None:
    with pytest.raises(InvalidInput, match="W_trained: weights of logits x·W z need the queries z; add queries"):
        explain(TOKENS | {"W_trained": np.ones((3, 2))})
    queries, W = np.arange(12.0).reshape(3, 2, 2) - 5, np.array([[1.0, -1], [0.5, 2], [0, 1]])
    several = explain(TOKENS | {"queries": queries, "Y": np.ones((3, 2)), "W_trained": W})
    assert several.layer is not None
    for i, k in np.ndindex(3, 2):
        assert several.layer.tokens[2 * i + k] == np.argmax(np.array(TOKENS["X"])[i] @ W @ queries[i, k])


def test_trained_weights_survive_files_and_changes_of_units(tmp_path: Path) -> None:
    """A case is written to a file with its trained weights; other units of the keys do not change softmax weights."""
    case = case_of(QUERIES | trained("KQ", sgd, 10) | {"X": 16 * QUERIES["X"]})
    first = checkpoints_of(case)
    assert first is not None
    again = checkpoints_of(subject_of(from_json(as_text(case))))  # type: ignore[arg-type]
    assert again is not None
    assert np.array_equal(again.last.matrix, first.last.matrix)
    small = case.normalise()
    state, other = (
        layer_state(of, weights.last) for of in (case, small) if (weights := checkpoints_of(of)) is not None
    )
    assert np.array_equal(state.margins, other.margins)
