"""The page's functions without a browser: changes of data, what is drawn and saved, compared with exact solutions."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from generators.case import Case
from generators.datasets import dataset_named
from generators.user_data import as_text, load
from reference_attention.errors import InvalidInput
from reference_attention.problem import Problem
from reference_attention.risk import risk, softmax_weights
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from reference_attention.training.descent import gradient_descent, normalized_gradient_descent
from reference_attention.training.flow import gradient_flow
from theorems.benchmark.rules import rule_named
from theorems.core.recorded_files import COUNTEREXAMPLES
from theorems.explore import downloads
from theorems.explore.data_sources import counterexamples, datasets, state_in_file, state_named
from theorems.explore.exact_solutions import round_norm, solve
from theorems.explore.link import LONGEST, NAME, pack, unpack_link
from theorems.explore.picture_parts import parts_of, say_selected
from theorems.explore.plane_columns import Columns, band, contours, rays, tokens, trained
from theorems.explore.runs import RECORDS, RULES, SMOOTH_STEPS, Run
from theorems.explore.state import MOST_STARTS, REACHES, state_of
from theorems.explore.time_columns import frames, matrices

SIZES = ["figure-8", "figure-1c", "figure-3a", "digits", "tsvm-paths-3"]


def columns(name: str) -> dict[str, Columns]:
    return {k: held for part, _ in parts_of(state_of(dataset_named(name))) for k, held in part.columns.items()}


@pytest.mark.parametrize("name", SIZES)
def test_tokens_agree_with_the_data_and_neighbours_with_the_exact_solution(name: str) -> None:
    state = state_of(dataset_named(name))
    problem, solved = state.case.problem, solve(state)
    drawn = tokens(state, solved)
    svm = max_margin(problem.exact_keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    assert drawn["score"] == problem.scores.ravel().tolist()
    assert [item == "neighbour" for item in drawn["is"]] == svm.neighbours.ravel().tolist()
    assert [item == "chosen" for item in drawn["is"]] == [
        t == svm.alpha[i] for i in range(problem.n) for t in range(problem.T)
    ]
    axes = solved.view.axes
    assert np.allclose(axes @ axes.T, np.eye(2))
    assert np.allclose(np.stack([drawn["x"], drawn["y"]], axis=1), state.tokens.reshape(-1, axes.shape[1]) @ axes.T)


@pytest.mark.parametrize("name", SIZES)
def test_the_chosen_token_and_its_neighbours_lie_on_the_edges_of_the_margin_band(name: str) -> None:
    """As p_mm lies in the plane, the edges are level sets of k·p_mm: one has the chosen token, one the neighbours."""
    state = state_of(dataset_named(name))
    solved = solve(state)
    drawn, lines = tokens(state, solved), band(state, solved)
    for edge, role in (("chosen token", "chosen"), ("margin 1: SVM-neighbours", "neighbour")):
        k = lines["edge"].index(edge)
        (x0, x1), (y0, y1) = lines["xs"][k], lines["ys"][k]
        normal = np.array([y0 - y1, x1 - x0]) / np.hypot(x1 - x0, y1 - y0)
        for row in range(len(drawn["x"])):
            if drawn["input"][row] == state.token[0]:
                apart = abs(normal @ (np.array([drawn["x"][row] - x0, drawn["y"][row] - y0])))
                assert (apart < 1e-9 * solved.view.extent) == (drawn["is"][row] == role)


def test_the_drawn_directions_belong_to_optimal_and_locally_optimal_tokens() -> None:
    state = state_of(dataset_named("figure-8"))
    drawn = rays(solve(state))
    assert drawn["kind"] == ["GMM", "LMM"]
    assert drawn["alpha"] == ["[0, 0]", "[0, 1]"]
    assert np.allclose(drawn["norm"], [np.sqrt(10), 1])
    ends = np.array([[xs[1], ys[1]] for xs, ys in zip(drawn["xs"], drawn["ys"], strict=True)])
    assert np.allclose(ends / np.linalg.norm(ends, axis=1)[:, None], [[0.1**0.5, 0.9**0.5], [1, 0]])


def test_runs_agree_with_the_reference() -> None:
    state = state_of(dataset_named("figure-8"))
    problem, norm = state.case.problem, 7.0
    result = {rule: follow(state, norm) for rule, follow in RULES.items()}
    assert all(len(runs) == 2 for runs in result.values())
    assert np.array_equal(
        result["gradient descent"][1].points,
        gradient_descent(problem, state.starts, steps=SMOOTH_STEPS, record_every=SMOOTH_STEPS // RECORDS).points[:, 1],
    )
    assert np.array_equal(
        result["normalized descent"][0].points,
        normalized_gradient_descent(problem, state.starts, steps=200, step=7 / 200, record_every=4).points[:, 0],
    )
    flow = gradient_flow(problem, state.starts[0], norm=norm)
    assert np.allclose(result["flow"][0].points[-1], flow.final, atol=1e-6)
    signs = np.diff(result["sign descent"][0].points, axis=0)
    assert np.abs(signs).max() <= 4 * norm / 200 / np.sqrt(2) * (1 + 1e-9)
    muon = rule_named(f"muon-{norm / 200!r}").run([problem] * 2, state.starts, 200, record_every=4)
    assert np.array_equal(result["Muon"][1].points, muon.points[:, 1])


def test_the_slider_s_frames_have_the_weights_and_margins_of_the_run() -> None:
    state = state_of(dataset_named("figure-1b")).but(rule="gradient descent")
    solved = solve(state)
    run = RULES["gradient descent"](state, solved.view.norm)[0]
    drawn = frames(state, solved, run)
    keys = state.case.problem.keys
    assert np.array_equal(drawn["weights"], np.asarray(softmax_weights(keys, run.points))[:, 0])
    assert [row[0] for row in drawn["margins"]] == [None] * len(run.points)
    p = run.points[-1]
    assert drawn["margins"][-1][2] == pytest.approx(float((keys[0, 0] - keys[0, 2]) @ p / np.linalg.norm(p)))


def test_contours_are_level_sets_of_the_risk() -> None:
    state = state_of(dataset_named("figure-1b"))
    view, problem = solve(state).view, state.case.problem
    drawn = contours(state, view)
    assert len(set(drawn["risk"])) == 9
    for xs, ys, level in zip(drawn["xs"], drawn["ys"], drawn["risk"], strict=True):
        at = np.stack([xs, ys], axis=1) / view.unit
        result = np.asarray(risk(problem.keys, problem.scores, problem.loss, at))
        assert np.abs(result - level).max() < 0.02  # the contours are interpolated on a coarse grid


def test_matrices_show_both_solutions_and_the_end_of_the_run() -> None:
    state = state_of(dataset_named("tsvm-paths-3"))
    solved = solve(state)
    run = RULES["flow"](state, solved.view.norm)[0]
    drawn = matrices(state, solved, run)
    queried = state.case.queried
    assert queried is not None
    least = nuclear_max_margin(queried.keys, state.case.problem.optimal)
    svm = solved.about.solution
    assert isinstance(least, NuclearMaxMargin)
    assert svm is not None
    shown = np.array(drawn["matrices"]["shown"]).reshape(3, -1)
    assert np.array_equal(shown, [svm.p, least.W.ravel(), run.points[-1]])
    assert "rank" in drawn["titles"]["text"][0]


@pytest.mark.parametrize("name", SIZES)
def test_a_token_moved_in_the_plane_is_where_it_was_dropped(name: str) -> None:
    state = state_of(dataset_named(name))
    view = solve(state).view
    place = np.array([0.3, -0.7])
    moved = state.with_token(0, 1, view.move_token(state.tokens[0, 1], place))
    assert np.allclose(view.place_tokens(moved.tokens[0, 1]), place)
    assert np.array_equal(np.delete(moved.tokens.reshape(-1, view.axes.shape[1]), 1, axis=0),
                          np.delete(state.tokens.reshape(-1, view.axes.shape[1]), 1, axis=0))  # fmt: skip
    started = state.with_start(0, view.move_prompt(state.starts[0], place))
    assert np.allclose(view.place_prompts(started.starts[0]), place)
    assert moved.case.name == f"{name} (edited)"
    assert moved.with_token(0, 0, moved.tokens[0, 0]).case.name == f"{name} (edited)"


def test_scores_can_be_edited_only_where_tokens_do_not_determine_them() -> None:
    followed = state_of(dataset_named("figure-3a"))
    moved = followed.with_token(0, 0, np.array([1.0, 3.0]))
    assert moved.case.problem.scores[0, 0] == 3
    with pytest.raises(InvalidInput, match="scores: computed"):
        followed.with_score(0, 0, 1.0)
    given = state_of(dataset_named("figure-8")).with_score(0, 1, 1.0)
    assert given.case.problem.scores.tolist() == [[1, 1], [1, 0]]
    assert given.case.dataset is not None
    assert np.array_equal(given.case.dataset.problem.scores, given.case.problem.scores)
    with pytest.raises(InvalidInput, match="finite"):
        given.with_score(0, 0, float("nan"))


def test_starts_can_be_added_and_removed() -> None:
    state = state_of(dataset_named("figure-8"))
    more = state.with_starts(4)
    assert len({tuple(row) for row in more.starts.tolist()}) == 4
    assert np.array_equal(more.with_starts(2).starts, state.starts)
    for count in (0, MOST_STARTS + 1):
        with pytest.raises(InvalidInput, match="starts: give a number between 1 and"):
            state.with_starts(count)
    recorded = state_named("theorem-2-without-single-input")
    assert recorded.case.start is not None
    assert np.array_equal(recorded.with_start(0, np.ones(2)).case.start, [1, 1])


def test_tokens_that_no_prompt_separates_are_reported() -> None:
    problem = Problem(np.array([[[1.0, 0], [0, 0], [3, 0]]]), np.array([[1.0, 0, 0]]))
    state = state_of(Case(problem))
    parts = [part for part, _ in parts_of(state)]
    assert "No p separates" in parts[0].words["plane"]
    assert parts[0].columns["band"]["xs"] == []
    assert parts[0].columns["tokens"]["margin"] == [None] * 3


@pytest.mark.parametrize("keys", [np.zeros((1, 2, 1)), np.zeros((2, 3, 4)), np.ones((1, 3, 2))])
def test_a_picture_is_drawn_of_data_with_equal_keys(keys: np.ndarray) -> None:
    scores = np.tile(np.arange(keys.shape[1], dtype=float), (len(keys), 1))
    parts = [part for part, _ in parts_of(state_of(Case(Problem(keys, scores))))]
    assert [part.name for part in parts] == ["tokens", "runs", "contours"]


@pytest.mark.parametrize("name", [*SIZES, "theorem-2-without-single-input"])
def test_a_saved_state_is_read_back(name: str, tmp_path: Path) -> None:
    state = state_named(name)
    for file, content in (("a.json", downloads.as_json(state.case)), ("a.npz", downloads.as_npz(state.case))):
        (tmp_path / file).write_bytes(content)
        result = load(str(tmp_path / file), 0).case
        assert np.array_equal(result.problem.keys, state.case.problem.keys)
        assert np.array_equal(result.problem.scores, state.case.problem.scores)
        assert (result.start is None) == (state.case.start is None)
        assert np.array_equal(state_in_file(file, content).tokens, state.tokens)
    test = tmp_path / "test_saved.py"
    test.write_bytes(downloads.as_test(state.case))
    compile(test.read_text(encoding="utf-8"), str(test), "exec")


def test_a_saved_pytest_file_passes(tmp_path: Path) -> None:
    test = tmp_path / "test_saved.py"
    test.write_bytes(downloads.as_test(dataset_named("figure-1a")))
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    assert subprocess.run(run, check=False, capture_output=True).returncode == 0


def test_a_link_contains_the_whole_state() -> None:
    state = state_named("figure-8").with_starts(3).but(token=(1, 1), alpha=(0, 1), reach=REACHES[2], rule="Muon")
    result = unpack_link(f"http://127.0.0.1:5006/secret/?{NAME}={pack(state)}")
    assert as_text(result.case) == as_text(state.case)
    assert np.array_equal(result.starts, state.starts)
    assert (result.token, result.alpha, result.reach, result.rule) == ((1, 1), (0, 1), REACHES[2], "Muon")
    assert state_named(f"?{NAME}={pack(state)}").token == (1, 1)


def test_data_too_long_for_an_address_give_no_link() -> None:
    rng = np.random.default_rng(0)
    assert pack(state_of(Case(Problem(rng.normal(size=(10, 10, 20)), rng.normal(size=(10, 10)))))) == ""
    assert len(pack(state_named("digits"))) <= LONGEST


def test_a_damaged_link_is_refused_in_a_sentence() -> None:
    whole = pack(state_named("figure-8"))
    for damaged in (whole[:-9], whole[::-1], "AAAA", ""):
        with pytest.raises(InvalidInput, match=r"^link: "):
            unpack_link(damaged)


def test_a_link_with_indices_beyond_its_data_is_refused() -> None:
    state = state_named("figure-8")
    elsewhere = {"token": (5, 0), "alpha": (0, 7), "reach": 3.0, "rule": "other", "starts": np.zeros((1, 3))}
    for name, value in elsewhere.items():
        with pytest.raises(InvalidInput, match=r"^link: "):
            unpack_link(pack(state.but(**{name: value})))


def test_every_recorded_counterexample_and_dataset_can_be_opened() -> None:
    assert len(counterexamples()) > 0.75 * len([*COUNTEREXAMPLES.glob("*.json")]) > 0
    for name in (*counterexamples(), *datasets()):
        state = state_named(name)
        assert tokens(state, solve(state))["x"], name


def test_tokens_in_one_place_share_a_label() -> None:
    keys = np.array([[[0.0, 0], [1, 0], [1, 0], [0, 1]], [[0.0, 0], [1, 0], [0.999, 0], [1, 1]]])
    state = state_of(Case(Problem(keys, np.array([[1.0, 0, 0, 0]] * 2))))
    labels = tokens(state, solve(state))["label"]
    assert labels == ["0·0, 1·0", "0·1, 0·2, 1·1, 1·2", "", "0·3", "", "", "", "1·3"]
    many = state_of(Case(Problem(np.zeros((1, 7, 2)), np.zeros((1, 7)))))
    assert tokens(many, solve(many))["label"][0] == "0·0, 0·1, 0·2 and 4 more"


def test_hover_text_names_missing_numbers() -> None:
    state = state_of(dataset_named("figure-8"))
    drawn = tokens(state, solve(state))
    assert [says.startswith("none, it is chosen") for says in drawn["margin_says"]] == [
        role == "chosen" for role in drawn["is"]
    ]
    inseparable = state_of(Case(Problem(np.array([[[1.0, 0], [0, 0], [3, 0]]]), np.array([[1.0, 0, 0]]))))
    drawn = tokens(inseparable, solve(inseparable))
    assert drawn["margin_says"] == ["none, it is chosen", *["none: there is no p_mm"] * 2]
    assert drawn["dual_says"] == ["none: there is no p_mm"] * 3


def test_a_small_move_of_a_token_keeps_the_scale_of_prompts() -> None:
    state = state_of(dataset_named("figure-8"))
    moved = state.with_token(0, 1, state.tokens[0, 1] + 0.01)
    before, after = solve(state), solve(moved)
    assert before.about.solution is not None
    assert after.about.solution is not None
    assert before.about.solution.norm != after.about.solution.norm
    assert before.view.norm == after.view.norm >= state.reach * before.about.solution.norm
    assert [round_norm(x) for x in (0.013, 0.02, 4.99, 5.0, 51.0, 0.0)] == pytest.approx([0.02, 0.02, 5, 5, 100, 0])


def test_axes_are_named_after_p_mm_only_where_it_exists() -> None:
    keys = np.array([[[1.0, 0, 0], [0, 0, 0], [3, 0, 0]], [[0, 1.0, 1], [0, 1, 0], [2, 0, 1]]])
    state = state_of(Case(Problem(keys, np.array([[1.0, 0, 0], [1, 0, 0]]))))
    solved = solve(state)
    assert solved.about.solution is None
    assert solved.view.names[0] == "along the flow's end"
    assert solve(state_named("digits")).view.names[0] == "along p_mm"


def test_a_sentence_names_the_currently_selected_tokens() -> None:
    state = state_of(dataset_named("figure-8"))
    solved = solve(state)
    runs = RULES["flow"](state, solved.view.norm)
    descriptions = [say_selected(state, solved, run) for run in runs]
    selected = [state.case.problem.selection_at(run.points[-1]).tolist() for run in runs]
    for sentence, alpha in zip(descriptions, selected, strict=True):
        assert f"selects tokens {alpha[0]}, {alpha[1]} (one per input)" in sentence
        assert ("), the optimal ones," in sentence) == (alpha == [0, 0])
        assert ("locally optimal but not" in sentence) == (alpha == [0, 1])
    still = Run("flow", 0, np.zeros((1, 2)), np.zeros(1, dtype=np.int64), "")
    assert say_selected(state, solved, still) == "Now: p = 0, so every token has the same weight."
    short = replace(still, points=np.array([[0.5, 1.5]]))
    assert "so other tokens still count" in say_selected(state, solved, short)
    between = replace(still, points=np.array([[0.0, 1e-3]]))
    assert say_selected(state, solved, between).endswith(
        "selects no token of input 0: none has a softmax weight above 1/2, the largest is 0.5."
    )
    far = replace(still, points=np.array([[20.0, 60.0]]))
    assert say_selected(state, solved, far).endswith("with softmax weights of at least 0.999.")


@pytest.mark.parametrize("p", [[0.5, 0.25], [500.0, 250.0]])
def test_trained_weights_are_drawn_at_their_place_or_at_the_edge(p: list[float]) -> None:
    case = dataset_named("figure-8").replace(arrays={"p": np.array(p)})
    state = state_of(case)
    view = solve(state).view
    drawn = trained(state, view)
    assert drawn["norm"] == [pytest.approx(np.linalg.norm(p))]
    assert drawn["y"][0] == pytest.approx(drawn["x"][0] / 2)
    place = view.place_prompts(np.array(p))
    assert drawn["x"][0] == pytest.approx(min(place[0], view.extent))
    assert drawn["selects"] == [", ".join(map(str, case.problem.selection_at(np.array(p)).tolist()))]
    assert trained(state_of(dataset_named("figure-8")), view)["x"] == []
    with pytest.raises(InvalidInput, match="p: "):
        state_of(case.replace(arrays={"p": np.zeros(3)}))


def test_checkpoints_are_drawn_in_order() -> None:
    run = np.array([[0.0, 0.1], [0.2, 0.3], [0.5, 0.25]])
    state = state_of(dataset_named("figure-8").replace(arrays={"p": run, "steps": np.array([0.0, 10.0, 25.0])}))
    view = solve(state).view
    drawn = trained(state, view)
    np.testing.assert_allclose(np.column_stack([drawn["x"], drawn["y"]]), view.place_prompts(run))
    assert drawn["name"] == ["p at step 0", "p at step 10", "p at step 25"]
