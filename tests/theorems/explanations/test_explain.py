"""``theorems explain``: known facts about data are reported, exact numbers are exact, bad input gives a sentence."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import fmpq

from generators.datasets import dataset_named
from reference_attention.errors import InvalidInput
from reference_attention.exact import to_float
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import Infeasible
from theorems.command.app import main
from theorems.core.claim import Verdict
from theorems.explanations import selection
from theorems.explanations.content import MOST_TOKENS, sections
from theorems.explanations.explanation import Explanation
from theorems.explanations.sentences import headline, paragraphs
from theorems.library.explain import explain
from theorems.library.verify import verify

OPPOSED = {"keys": [[[1, 0], [0, 0]], [[-1, 0], [0, 0]]], "scores": [[1, 0], [1, 0]], "p0": [2, 0]}
"""Two inputs that pull p equally in opposite directions: the flow goes to 0, and no p separates."""
BETWEEN = {"keys": [[[0, 0], [1, 0], [-1, 0]]], "scores": [[1, 0.5, 0]]}
"""The optimal token lies between two others; at the minimiser p of the risk, it shares the weight with one of these."""
TWICE = {"keys": [[[1, 0], [1, 0], [0, 1]]], "scores": [[1, 1, 0]]}
"""Two equal copies of the optimal token."""
WIDE = {"keys": np.random.default_rng(1).normal(size=(14, 20, 16)), "scores": np.eye(20)[:14] * 3 + 0.1}
"""More inputs and tokens than fit on a screen."""


@cache
def on(name: str, starts: int = 0, seed: int = 0) -> Explanation:
    return explain(name, starts=starts, seed=seed)


@cache
def local() -> Explanation:
    """Explain the data of Figure 1(b) from a start near the token that is only locally optimal."""
    return explain(dataset_named("figure-1b").replace(start=np.array([3.0, 0.0])))


def applying(it: Explanation) -> set[str]:
    return {item.id for item in it.statements if item.applies}


def test_a_start_near_a_token_that_is_only_locally_optimal_selects_it() -> None:
    it = local()
    assert it.selection is not None
    assert it.selection.alpha.tolist() == [1]
    assert it.optimal.alpha.tolist() == [0]
    assert it.selection.locally_optimal
    assert it.locally_optimal is not None
    assert [item.alpha.tolist() for item in it.locally_optimal] == [[0], [1]]
    best, taken, last = it.tokens
    assert (best.selected, best.globally_optimal, best.locally_optimal) == (False, True, True)
    assert (taken.selected, taken.globally_optimal, taken.locally_optimal) == (True, False, True)
    assert (last.selected, last.globally_optimal, last.locally_optimal, last.neighbour) == (False, False, False, True)
    assert (last.margin, last.dual) == (1.0, 1.0)
    assert taken.margin is None
    assert taken.weights[-1] > 1 - 1e-12
    # p_mm = (1, 0) of token 1 gives margin 1 over the key (0, 0) and 1.1 over the key (−0.1, 1).
    assert best.margin == pytest.approx(1.1)
    message = (
        "the flow selects the locally optimal token 1 (LMM): token 1 of input 0 scores 0.9, below the 1 of token 0"
    )
    assert headline(it) == f"from p(0) = (3, 0) {message}"
    assert it.entry is not None
    assert "Theorem 3 names this limit" in paragraphs(it)[0]
    assert "theorem-2" not in applying(it)
    assert {"theorem-1", "theorem-3"} <= applying(it)


def test_one_input_with_equal_scores_has_its_limit_from_theorem_2() -> None:
    it = on("figure-1a")
    assert it.selection is it.optimal
    assert "Theorem 2 names this limit for every start" in paragraphs(it)[0]
    assert "theorem-2" in applying(it)
    assert it.path.flow.one_minus_cosine(it.selection.svm.p)[-1] < 1e-11  # type: ignore[union-attr]


def test_with_several_inputs_the_limit_depends_on_the_start() -> None:
    it = on("figure-8", 4)
    selected = [item.selects.tolist() for item in it.others if item.selects is not None]
    assert sorted(map(tuple, selected)) == [(0, 0), (0, 1), (0, 1), (0, 1)]
    assert it.locally_optimal is not None
    assert [item.alpha.tolist() for item in it.locally_optimal] == [[0, 0], [0, 1]]
    assert "the theorem names no limit direction" in " ".join(paragraphs(it))
    assert "3 end at [0, 1], 1 end at [0, 0]" in paragraphs(it)[0]


def test_random_starts_depend_only_on_the_seed() -> None:
    again, other = explain("figure-1b", starts=1, seed=3), explain("figure-1b", starts=1, seed=4)
    assert again.to_json() == explain("figure-1b", starts=1, seed=3).to_json()
    assert not np.array_equal(again.others[0].start, other.others[0].start)
    assert np.array_equal(again.path.flow.points, other.path.flow.points)


def test_a_flow_that_goes_to_zero_selects_nothing() -> None:
    it = explain(OPPOSED)
    assert headline(it) == "from p(0) = (2, 0) the flow converges to p = 0 and selects nothing"
    assert it.is_decided
    assert it.selection is None
    assert it.about is None
    assert not any(token.selected for token in it.tokens)
    assert [token.weights[-1] for token in it.tokens] == pytest.approx([0.5] * 4)
    assert isinstance(it.optimal.svm, Infeasible)
    assert "they have no max-margin direction (GMM)" in paragraphs(it)[0]
    assert not any(id.startswith("theorem") for id in applying(it))


def test_a_flow_to_a_finite_point_reports_that_point() -> None:
    it = explain(BETWEEN)
    assert headline(it).startswith("from p(0) = 0 the flow converges to a prompt of norm ")
    assert it.path.stationary
    assert isinstance(it.optimal.svm, Infeasible)
    assert {token.token for token in it.tokens if token.weights[-1] > 0.2} == {0, 1}


def test_with_a_constant_risk_the_flow_stays_and_selects_nothing() -> None:
    it = explain({"keys": [[[1, 0], [0, 1]]], "scores": [[1, 1]]})
    assert headline(it) == "from p(0) = 0 the flow stays at its start, where the gradient is zero, and selects nothing"
    assert all(token.globally_optimal for token in it.tokens)
    assert "NaN" not in it.to_json()


def test_a_tie_is_reported_as_a_tie() -> None:
    it = explain(TWICE)
    assert headline(it) == "from p(0) = 0 the flow ties tokens [0, 1] of input 0, exactly"
    assert [token.selected for token in it.tokens] == [True, True, False]
    assert [token.weights[-1] for token in it.tokens[:2]] == [0.5, 0.5]
    assert it.selection is None
    assert it.is_decided
    assert "theorem-8" in applying(it)
    assert not {"theorem-1", "theorem-2", "theorem-3"} & applying(it)


def test_the_explanation_names_undecided_assumptions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(selection, "limit_of_flow", lambda problem, flow: "the solver gave up")
    path = tmp_path / "undecided.json"
    assert main(["explain", "--data", "figure-1b", "--json", str(path)]) == 3
    assert "undecided: the solver gave up" in capsys.readouterr().out
    record = json.loads(path.read_text())
    assert record["flow"]["undecided"] == "the solver gave up"
    assert {token["selected"] for token in record["tokens"]} == {None}


@pytest.mark.parametrize("name", ["figure-1a", "figure-1b", "figure-8"])
def test_applicable_statements_are_those_that_verify_checks(name: str) -> None:
    for result in verify(name, "lemma-3", "lemma-4", "lemma-5", "lemma-11", "lemma-14"):
        assert (result.id in applying(on(name))) == (result.verdict is not Verdict.NOT_APPLICABLE), result.id


def test_tokens_given_in_the_data_are_explained_too() -> None:
    it = explain({"keys": [[[-0.1, 1], [1, 0], [0, 0]]], "scores": [[1, 0.9, 0]], "alpha": [1]})
    assert [item.name for item in it.choices] == ["optimal", "given"]
    assert it.choices[1].locally_optimal
    assert {checked.of for checked in it.assumptions} >= {"optimal", "selected"}


def test_the_json_has_an_exact_solution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check p_mm = Σ λ (k_α − k_t) and every margin ≥ 1 over the rationals in the file."""
    path = tmp_path / "explained.json"
    assert main(["explain", "--data", "figure-1c", "--json", str(path)]) == 0
    assert "selects the optimal token of every input (GMM)" in capsys.readouterr().out
    record: dict[str, Any] = json.loads(path.read_text())
    problem = dataset_named("figure-1c").problem
    assert (record["n"], record["T"], record["d"], len(record["tokens"])) == (3, 7, 2, 21)
    [one] = record["directions"]
    p = [fmpq(*map(int, x.split("/"))) if "/" in x else fmpq(int(x)) for x in one["exact"]["p"]]
    assert [to_float(x) for x in p] == one["p"]
    total = [fmpq(0)] * 2
    for pair, text in one["exact"]["duals"].items():
        i, t = map(int, pair.split(","))
        weight = fmpq(*map(int, text.split("/")))
        for k in range(2):
            a, b = (fmpq(*float(problem.keys[i, s, k]).as_integer_ratio()) for s in (one["alpha"][i], t))
            total[k] += weight * (a - b)
    assert total == p
    assert [["‖p_mm‖²" in str(result) for result in group] for group in record["assumptions"].values()] != []
    assert record["flow"]["records"][-1]["one_minus_cosine"]["optimal"] < 1e-9
    assert record["flow"]["cone"]["entered_at"] >= record["flow"]["cone"]["radius"]
    kinds = {
        "input": int,
        "token": int,
        "score": float,
        "selected": bool,
        "globally_optimal": bool,
        "locally_optimal": bool | None,
        "margin": float | None,
        "neighbour": bool,
        "dual": float,
        "weights": list,
    }
    for token in record["tokens"]:
        assert set(token) == set(kinds)
        assert all(isinstance(token[name], kind) for name, kind in kinds.items())
    assert {one["id"] for one in record["statements"] if one["applies"]} == applying(on("figure-1c"))


def test_large_data_give_tables_of_limited_size() -> None:
    it = explain(WIDE)
    table = sections(it)[0]
    assert len(table.rows) <= 13 * (MOST_TOKENS + 1)
    assert any("4 more" in row for row in table.rows)
    assert "2 more inputs" in table.rows[-1]
    assert max(map(len, str(it).splitlines())) <= 120


def test_a_notebook_shows_the_same_explanation() -> None:
    shown = explain(TWICE)._repr_html_()
    assert shown.count("<table>") == len(sections(explain(TWICE)))
    assert "ties tokens [0, 1]" in shown
    assert "‖p_mm‖" in shown
    assert repr(on("figure-1a")) == "Explanation(from p(0) = 0 the flow selects the optimal token, 0 (GMM))"


@pytest.mark.parametrize("name", ["figure-8", "space"])
def test_drawings_of_data_with_two_and_more_dimensions_are_reproducible(name: str, tmp_path: Path) -> None:
    path = tmp_path / "drawn.svg"
    if name == "space":
        it = explain(Problem(np.eye(3)[None], [[1, 0.5, 0]]))
        path.write_bytes(it.plot("svg"))
    else:
        it = on(name)
        assert main(["explain", "--data", name, "--plot", str(path)]) == 0
    assert path.read_bytes() == it.plot("svg")
    assert path.read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["figure-8"], "Missing option '--data'; give --data figure-8."),
        (["--data", "no-such"], "neither a file that ends in .npz, .json or .txt nor a named dataset"),
        (["--data", "figure-1a", "--plot", "a.gif"], "--plot: 'gif' is not a supported file format"),
        (["--data", "figure-1a", "--plot", "nowhere/a.svg"], "there is no directory nowhere"),
        (["--data", "figure-1a", "--json", "nowhere/a.json"], "there is no directory nowhere"),
        ([], "Missing option '--data'"),
        (["--data", "figure-1a", "--starts", "-1"], "--starts"),
    ],
)
def test_bad_input_is_one_sentence(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *options]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert not shown.out


def test_bad_input_in_python_is_one_sentence() -> None:
    with pytest.raises(InvalidInput, match="starts, seed: give numbers of at least 0"):
        explain("figure-1a", starts=-1)
    with pytest.raises(InvalidInput, match="not a supported file format"):
        on("figure-1a").plot("gif")
    with pytest.raises(InvalidInput, match="scores is missing"):
        explain({"keys": [[[1, 0], [0, 1]]]})
