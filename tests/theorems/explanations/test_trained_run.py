"""Checkpoints of a training run: their explanation agrees with plain numpy, and faulty ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generators.layer_weights import checkpoints_of
from generators.user_data import as_text, case_of, subject_of
from reference_attention.errors import InvalidInput
from reference_attention.files import from_json
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.command.app import main
from theorems.explanations.content import sections
from theorems.explanations.explanation import Explanation
from theorems.explanations.sentences import paragraphs
from theorems.library.explain import explain

FIGURE = {"keys": np.array([[[-0.1, 1.0], [1.0, 0.0], [0.0, 0.0]]]), "scores": np.array([[1.0, 0.9, 0.0]])}
RNG = np.random.default_rng(2)
QUERIES = {"X": RNG.normal(size=(3, 4, 3)), "queries": RNG.normal(size=(3, 2)), "v": RNG.normal(size=3)}
QUERIES |= {"Y": np.array([1, -1, 1])}
STEPS = [0, 10, 20, 100, 500]


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def descend(keys: np.ndarray, scores: np.ndarray, p: np.ndarray, eta: float, at: list[int]) -> np.ndarray:
    """Return the iterates of gradient descent on p after the given numbers of steps, with the logistic loss."""
    points = []
    for step in range(max(at) + 1):
        if step in at:
            points.append(p)
        s = softmax(keys @ p)
        output = (s * scores).sum(axis=1)
        slope = -1 / (1 + np.exp(output))
        p = p - eta * np.einsum("n,nt,nt,ntd->d", slope, s, scores - output[:, None], keys) / len(keys)
    return np.array(points)


def vectors(data: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return keys and scores; for data with queries, the keys vec(x zᵀ) and the scores Y v·x."""
    if "keys" in data:
        return data["keys"], data["scores"]
    n, T, _ = data["X"].shape
    return (
        np.einsum("ntd,ne->ntde", data["X"], data["queries"]).reshape(n, T, -1),
        data["Y"][:, None] * (data["X"] @ data["v"]),
    )


def p_run() -> tuple[Explanation, np.ndarray]:
    points = descend(*vectors(FIGURE), np.array([1.0, 0.5]), 2.0, STEPS)
    it = explain(FIGURE | {"p": points, "steps": STEPS})
    assert isinstance(it, Explanation)
    return it, points


def w_run() -> tuple[Explanation, np.ndarray]:
    points = descend(*vectors(QUERIES), np.full(6, 0.1), 1.0, STEPS)
    it = explain(QUERIES | {"W_trained": points.reshape(-1, 3, 2), "steps": STEPS})
    assert isinstance(it, Explanation)
    return it, points


@pytest.mark.parametrize(("made", "data"), [(p_run, FIGURE), (w_run, QUERIES)])
def test_a_run_agrees_with_plain_numpy(made: Any, data: dict[str, Any]) -> None:
    it, points = made()
    run, (keys, _) = it.run, vectors(data)
    alpha = (keys @ points[-1]).argmax(axis=1)
    assert run.tokens.tolist() == [(keys @ p).argmax(axis=1).tolist() for p in points]
    assert run.about.alpha.tolist() == alpha.tolist() == it.layer.tokens.tolist()
    assert run.steps.tolist() == STEPS
    svm = max_margin(keys, alpha)
    assert isinstance(svm, MaxMargin)
    others = np.arange(keys.shape[1]) != alpha[:, None]
    for k, p in enumerate(points):
        norm = np.linalg.norm(p)
        logits = keys @ p
        gaps = np.take_along_axis(logits, alpha[:, None], axis=1) - logits
        assert run.norms[k] == pytest.approx(norm)
        assert run.margins[k] == pytest.approx(gaps[others].min() / norm)
        assert run.off[k] == pytest.approx((softmax(logits) * others).sum(axis=1))
        assert run.apart[k] == pytest.approx(1 - p @ svm.direction / norm, abs=1e-12)
    assert run.largest == pytest.approx(svm.margin)
    assert run.margins[-1] == pytest.approx(it.layer.in_norms[0].margin)


def test_gradient_descent_with_small_steps_approaches_the_flow() -> None:
    """At equal norms, gradient descent of step size 1/50 has the direction of the flow; of step size 2 it has not."""
    begin = np.array([1.0, 0.5])
    small = descend(*vectors(FIGURE), begin, 0.02, [0, 2000, 10000])
    run = explain(FIGURE | {"p": small}).run
    assert run is not None
    assert run.apart == pytest.approx(run.flow_apart, rel=2e-3)
    large, _ = p_run()
    assert large.run is not None
    assert large.run.apart[1] != pytest.approx(large.run.flow_apart[1], rel=2e-3)
    assert large.run.flow.selects is not None
    assert large.run.flow.selects.tolist() == [0]


def test_the_explanation_says_when_the_tokens_changed() -> None:
    it, _ = p_run()
    assert it.run is not None
    since = it.run.steps[it.run.since]
    assert since == 100
    words = paragraphs(it)[1]
    assert words.startswith("The run of 5 checkpoints goes from norm 1.12 at step 0 to")
    assert "Its final tokens have had the largest weight since step 100." in words
    assert words.endswith("In the limit, this flow selects the final tokens of the run.")
    table = next(section for section in sections(it) if section.caption.startswith("The run of training"))
    assert [row[0] for row in table.rows] == ["0", "10", "20", "100", "500"]
    assert [row[2] for row in table.rows] == ["[1]", "[1]", "[1]", "[0]", "[0]"]


def test_a_run_that_ends_at_other_tokens_than_the_flow_is_reported() -> None:
    """From p = (9, 0) the flow keeps token 1, while the run, by another rule, ends at token 0."""
    it = explain(FIGURE | {"p": [[9, 0], [1, 2], [1, 4]]})
    assert it.run is not None
    assert it.run.steps.tolist() == [0, 1, 2]
    assert it.run.words.endswith("In the limit, this flow selects [1], other tokens than the run ends with.")
    changed = explain(FIGURE | {"p": [[9, 0], [1, 4]]}).run
    assert changed is not None
    assert "Its tokens of largest weight still changed before the last checkpoint." in changed.words


def test_a_checkpoint_with_weights_0_has_no_direction() -> None:
    it = explain(FIGURE | {"p": [[0, 0], [0, 4]]})
    assert it.run is not None
    assert it.run.ties.tolist() == [True, False]
    assert np.isnan(it.run.apart[0])
    assert it.run.rows[0][2:] == ("ties", "0.667", "", "", "")
    tied = explain(FIGURE | {"p": [[0, 4], [0, 0]]})
    assert tied.run is not None
    assert "At its end several tokens of an input have the largest weight." in tied.run.words
    assert "NaN" in tied.to_json()


def test_checkpoints_can_be_factors_be_many_and_come_from_files(tmp_path: Path) -> None:
    K, Q = RNG.normal(size=(40, 3, 2)), RNG.normal(size=(40, 2, 2))
    it = explain(QUERIES | {"K_trained": K, "Q_trained": Q})
    assert it.run is not None
    assert len(it.run.rows) == 16
    assert it.run.norms == pytest.approx([np.linalg.norm(k @ q.T) for k, q in zip(K, Q, strict=True)])
    case = case_of(QUERIES | {"K_trained": K, "Q_trained": Q, "steps": np.arange(0, 400, 10)})
    again = checkpoints_of(subject_of(from_json(as_text(case))))  # type: ignore[arg-type]
    assert again is not None
    assert np.array_equal(again.arrays["K_trained"], K)
    assert again.steps[-1] == 390
    np.savez(tmp_path / "run.npz", **FIGURE, p=p_run()[1], steps=STEPS)
    targets = [tmp_path / name for name in ("run.json", "run.svg")]
    assert (
        main(["explain", "--data", str(tmp_path / "run.npz"), "--json", str(targets[0]), "--plot", str(targets[1])])
        == 0
    )
    assert json.loads(targets[0].read_text())["run"]["steps"] == STEPS
    drawn = targets[1].read_bytes()
    assert drawn.startswith(b"<?xml")
    assert drawn != explain(FIGURE | {"p": p_run()[1][-1]}).plot("svg")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"p": [[1, 2]]}, "p: has 1 checkpoint(s) along its first axis; leave out the first axis."),
        ({"p": np.ones((1001, 2))}, "p: has 1001 checkpoint(s) along its first axis; give 2 to 1000 of them"),
        ({"p": np.ones((3, 4))}, "checkpoint 0: p: shape (4,) has length 4 along axis 0"),
        ({"p": [[1, 2], [1, np.nan]]}, "checkpoint 1: p: entry (1,) is nan"),
        ({"p": [[1, 2], [True, 1]]}, "p: true and false are no numbers"),
        ({"p": [[1, 2], [2, 1]], "steps": [5, 5]}, "steps: entry 1 is 5; give increasing numbers, all at least 0."),
        ({"p": [[1, 2], [2, 1]], "steps": [-1, 5]}, "steps: entry 0 is -1; give increasing numbers, all at least 0."),
        ({"p": [[1, 2], [2, 1]], "steps": [1, 2, 3]}, "steps: shape (3,) has length 3"),
        ({"p": [1, 2], "steps": [1]}, "steps: p has no axis of checkpoints; add it in front, or leave out steps."),
        ({"steps": [1]}, "steps: no weights at these steps; give p, or with queries W_trained"),
        ({"p": np.ones((2, 2, 2))}, "p: shape (2, 2, 2) has 3 dimension(s)"),
    ],
)
def test_checkpoints_that_do_not_fit_are_refused_in_one_sentence(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        case_of(FIGURE | changed)
    assert message in str(refused.value)


def test_factors_that_do_not_fit_are_refused_in_one_sentence() -> None:
    K, Q = np.ones((3, 3, 2)), np.ones((2, 2, 2))
    with pytest.raises(InvalidInput, match="Q_trained: has 2 checkpoints, but K_trained has 3; give the same number"):
        case_of(QUERIES | {"K_trained": K, "Q_trained": Q})
    with pytest.raises(InvalidInput, match=r"shape \(3, 3, 2\) has 3 dimension\(s\)"):
        case_of(QUERIES | {"K_trained": K, "Q_trained": Q[0]})
