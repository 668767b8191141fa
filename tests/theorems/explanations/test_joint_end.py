"""``theorems explain --train v``: the run agrees with plain numpy, and its end with Figure 3 of the paper."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from generators.datasets import dataset_named
from reference_attention.errors import InvalidInput
from theorems.command.app import main
from theorems.explanations import joint_end as module
from theorems.explanations.explanation import Explanation
from theorems.explanations.sentences import paragraphs
from theorems.library.explain import explain

RECORDED = 3
"""Number of records to compare, up to step 100; by step 1,000 plain exponentials underflow."""


def explained(data: Any) -> Explanation:
    it = explain(data, train="v")
    assert isinstance(it, Explanation)
    return it


@cache
def of_figure(name: str) -> Explanation:
    return explained(name)


def plain_run(X: np.ndarray, Y: np.ndarray, v: np.ndarray, p: np.ndarray, steps: int) -> list[tuple[Any, Any]]:
    """Return the iterates (v, p) of normalized descent with steps of 0.1, by the textbook formulas."""
    points = [(v, p)]
    for _ in range(steps):
        s = np.exp(X @ p - (X @ p).max(axis=1, keepdims=True))
        s /= s.sum(axis=1, keepdims=True)
        features, scores = np.einsum("nt,ntd->nd", s, X), X @ v
        output = features @ v
        slope = -Y / (1 + np.exp(Y * output))
        by_v = slope @ features
        by_p = np.einsum("n,nt,nt,ntd->d", slope, s, scores - output[:, None], X)
        v, p = v - 0.1 * by_v / np.linalg.norm(by_v), p - 0.1 * by_p / np.linalg.norm(by_p)
        points.append((v, p))
    return points


@pytest.mark.parametrize("name", ["figure-3a", "figure-3b"])
def test_the_run_agrees_with_plain_numpy(name: str) -> None:
    case = dataset_named(name)
    data = case.dataset
    assert data is not None
    assert data.W is None
    joint = of_figure(name).joint
    assert joint is not None
    assert joint.head_step == joint.prompt_step == 0.1
    points = plain_run(data.X, data.Y, data.v, np.zeros(data.X.shape[2]), 100)
    for k, step in enumerate(joint.iterations[:RECORDED].tolist()):
        v, p = points[step]
        assert joint.head_norms[k] == pytest.approx(np.linalg.norm(v), rel=1e-6)
        assert joint.prompt_norms[k] == pytest.approx(np.linalg.norm(p), rel=1e-6, abs=1e-12)
        assert not step or joint.tokens[k].tolist() == (data.X @ p).argmax(axis=1).tolist()
    assert joint.rows[0][3] == "ties"
    assert joint.since == 1
    v, p = points[100]
    assert joint.apart["v to v̄_mm"][2] == pytest.approx(1 - v[1] / np.linalg.norm(v), abs=1e-9)


def test_the_limits_of_figure_3_are_explained_in_words() -> None:
    """If all inputs are support vectors of the head's SVM, the prompt goes to p̄_mm, otherwise to p̄_relax, far from
    p̄_mm.
    """
    first, second = of_figure("figure-3a"), of_figure("figure-3b")
    assert first.joint is not None
    assert second.joint is not None
    assert first.joint.apart["p to p̄_mm"][-1] < 1e-7
    assert "p to p̄_relax" not in first.joint.apart
    assert second.joint.apart["p to p̄_relax"][-1] < 1e-7 < 0.01 < second.joint.apart["p to p̄_mm"][-1]
    limit_sentences = [
        next(words for words in paragraphs(it) if words.startswith("No theorem is about")) for it in (first, second)
    ]
    assert "By Theorem 5, whose assumption optimal-tokens holds, the minimisers converge" in limit_sentences[0]
    assert "By Theorem 6 the minimisers converge in direction to v̄_mm" in limit_sentences[1]
    assert all(
        "conjecture-joint-descent gives v̄_mm and p(c) as the limits, with c = lim ‖v‖/‖p‖, here about 1." in words
        for words in limit_sentences
    )


def test_a_faulty_gradient_changes_the_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the head ascends the gradient, it does not reach v̄_mm."""

    def uphill(*arguments: Any, head_step: float, **others: Any) -> Any:
        return joint_descent(*arguments, head_step=-head_step, **others)

    joint_descent = module.joint_descent
    monkeypatch.setattr(module, "joint_descent", uphill)
    joint = explained("figure-3b").joint
    assert joint is not None
    assert not joint.settled or joint.apart.get("v to v̄_mm", np.ones(1))[-1] > 0.1


def test_the_end_of_joint_training_is_undecided_if_no_head_separates_the_labels() -> None:
    same = [[[1.0, 0.0], [0.0, 1.0]]] * 2
    it = explained({"X": same, "Y": [1, -1], "v": [1.0, 0.5]})
    assert it.joint is not None
    assert not it.joint.settled
    assert any("Where they end is not decided." in words for words in paragraphs(it))


def test_a_change_of_the_tokens_unit_changes_only_step_sizes() -> None:
    case = dataset_named("figure-3b")
    assert case.dataset is not None
    X, Y, v = case.dataset.X, case.dataset.Y, case.dataset.v
    first, second = (explained({"X": X * unit, "Y": Y, "v": v / unit}).joint for unit in (1.0, 4.0))
    assert first is not None
    assert second is not None
    assert second.prompt_step == first.prompt_step / 4
    assert second.head_norms * 4 == pytest.approx(first.head_norms)
    assert all(second.apart[name] == pytest.approx(x, nan_ok=True) for name, x in first.apart.items())


def test_the_command_writes_the_joint_run(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "joint.json"
    assert main(["explain", "--data", "figure-3a", "--train", "v", "--json", str(target)]) == 0
    assert "Head and prompt trained together" in capsys.readouterr().out
    record = json.loads(target.read_text())["joint"]
    assert record["settled"] is True
    assert record["findings"]["optimal-tokens"]["holds"] is True
    assert record["apart"]["p to p̄_mm"][-1] < 1e-7


@pytest.mark.parametrize(
    ("data", "train", "message"),
    [
        (
            "figure-3a",
            "p",
            "--train: 'p' is not v, the only choice (the head); p and W are trained without this option.",
        ),
        (
            {"keys": [[[1, 0], [0, 1]]], "scores": [[1, 0]]},
            "v",
            "--train: keys and scores have no head; give X, Y and the head v",
        ),
        (
            {"X": [[[1, 0], [0, 1]]], "queries": [[1, 1]], "Y": [1], "v": [1, 0]},
            "v",
            "--train: W is trained here; give X, Y and the head v from which training starts, without queries.",
        ),
        (
            {"X": [[[1, 0], [0, 1]]], "Y": [1], "v": [1, 0], "loss": "exponential"},
            "v",
            "--train: joint descent needs the logistic loss, but the data have the exponential loss.",
        ),
    ],
)
def test_data_that_cannot_be_trained_are_refused_in_one_sentence(data: Any, train: str, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        explain(data, train=train)
    assert message in str(refused.value)
