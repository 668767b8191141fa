"""``theorems explain --rule``: the end of a rule from the same start, whether it has settled, and the limit
in theory.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from generators.datasets import dataset_named
from reference_attention.errors import InvalidInput
from theorems.command.app import main
from theorems.explanations import rule_ends
from theorems.explanations.content import sections
from theorems.library.explain import explain

DATA = {"keys": [[[-0.1, 1], [1, 0], [0, 0]]], "scores": [[1, 0.9, 0]], "p": [4.0, 2.0]}
"""The data of Figure 1(b), with a p that gives token 1 the largest weight; the flow then moves to token 0."""


def normalized(p: np.ndarray, steps: int) -> np.ndarray:
    """Return p after steps of length 1/10 against the gradient of the logistic loss, in plain numpy."""
    (keys,), (scores,) = np.array(DATA["keys"]), np.array(DATA["scores"])
    for _ in range(steps):
        s = np.exp(keys @ p) / np.exp(keys @ p).sum()
        uphill = keys.T @ (s * (scores - s @ scores))
        p = p + 0.1 * uphill / np.linalg.norm(uphill)
    return p


def test_a_rule_is_followed_from_the_trained_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_ends, "STEPS", 150)
    monkeypatch.setattr(rule_ends, "EVERY", 1)
    [end] = explain(DATA, rules=["normalized-0.1"]).rules  # type: ignore[union-attr]
    path = [normalized(np.array(DATA["p"]), steps) for steps in range(0, 151, 10)]
    assert end.norm == pytest.approx(np.linalg.norm(path[-1]), rel=1e-9)
    logits = np.array(path) @ np.array(DATA["keys"])[0].T
    last_other = 10 * int(np.flatnonzero(logits.argmax(axis=1) != 0)[-1])
    assert (end.tokens, end.like_flow) == ((0,), True)
    assert last_other < end.since <= last_other + 10
    unit = np.array([-0.1, 1]) / np.hypot(0.1, 1)
    assert end.one_minus_cosine == pytest.approx(1 - path[-1] @ unit / end.norm, abs=1e-12)
    assert end.settled


def test_an_unsettled_run_is_not_reported_as_selecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """After ten short steps from 0 no token has half of the weight."""
    monkeypatch.setattr(rule_ends, "STEPS", 10)
    monkeypatch.setattr(rule_ends, "EVERY", 1)
    it = explain(dataset_named("figure-1b"), rules=["gd-0.01"])
    [end] = it.rules  # type: ignore[union-attr]
    assert not end.settled
    assert "gd-0.01 has not settled yet (largest weights at [0] since step 0, 1 − s up to 0.67)" in end.words
    assert end.row[3] == "0, not settled"
    assert "left the range of float64" in replace(end, representable=False).words
    assert "other tokens than the flow" in replace(end, off=0.1, like_flow=False).words


def test_gradient_descent_on_tokens_that_are_not_locally_optimal_has_not_settled() -> None:
    """Token 1 has nearly all weight for 20,000 steps, but its only neighbour scores higher and gains weight slowly."""
    data = {"keys": [[[0, 0], [4, 0]]], "scores": [[1, 0]], "p": [2.0, 0.0]}
    gd, mirror = explain(data, rules=["gd-1e-6", "mirror-1.5-1e-6"]).rules  # type: ignore[union-attr]
    assert (gd.tokens, gd.since, gd.locally_optimal) == ((1,), 0, False)
    assert gd.off < rule_ends.CHOSEN
    assert not gd.settled
    assert (
        "gd-1e-6 has not settled yet (largest weights at [1] since step 0, 1 − s up to 0.00034, not locally" in gd.words
    )
    assert mirror.settled


def test_rules_are_in_a_table_and_an_unknown_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    it = explain(DATA, rules=["adam-0.1", "mirror-1.5-1"])
    assert "adam-0.1 gives the largest weight to [0], the same as the flow" in it.rules[0].words  # type: ignore[index]
    [table] = [table for table in sections(it) if table.caption.startswith("Rules from")]  # type: ignore[arg-type]
    assert [row[0] for row in table.rows] == ["adam-0.1", "mirror-1.5-1"]
    assert main(["explain", "--data", "figure-1b", "--rule", "adam"]) == 2
    assert "--rule: 'adam' is none of gd-ETA" in capsys.readouterr().err
    with pytest.raises(InvalidInput, match="run the file with theorems bench"):
        explain(DATA, rules=["mine.py:Rule"])
