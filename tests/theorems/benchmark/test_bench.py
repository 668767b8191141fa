"""``theorems bench``: its counts of steps are right, repeatable, and equal to those in docs/benchmarks.md."""

from __future__ import annotations

import json
import math
import pickle
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generators.datasets import dataset_named
from generators.random_trials import random_trial
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from tests.places import ROOT
from theorems.benchmark.bench_tables import parts
from theorems.benchmark.bench_units import Generated, Named, chunks, units
from theorems.benchmark.comparison import Comparison, merge
from theorems.benchmark.measurements import Kind, Limit, first_within, limit_of
from theorems.benchmark.optimisers.gradient_descent import log_step
from theorems.benchmark.proven_bound import proven_bound
from theorems.benchmark.rules import DEFAULT, rule_named
from theorems.benchmark.summary import spread, summaries
from theorems.command.app import main
from theorems.command.benchmark import DATA
from theorems.core.implementation import REFERENCE
from theorems.faults import fault_named
from theorems.figures.bench_plot import is_noisy, panels_of, render_plot, running_median
from theorems.run.verify import nothing

DOCUMENT = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")


pytestmark = pytest.mark.usefixtures("own_directory")


def documented_counts() -> dict[tuple[str, str], list[str]]:
    """Return the counts of steps in the table of docs/benchmarks.md, by data and rule."""
    table = DOCUMENT.partition("stays at or below each level\n")[2].partition("\nlimit: ")[0]
    rows = (line.split() for line in table.splitlines() if line.strip().startswith("figure-1"))
    return {(row[0], row[1]): row[3:9] for row in rows}


def counted(name: str, rule: str, steps: int, **options: Any) -> list[str]:
    one = Named(name, (rule,), steps, **options).run(nothing).compared[0]
    return ["-" if count is None else str(count) for count in one.rules[0].iterations] if one.rules else []


CAP = 1800
QUICK = [
    ("figure-1a", "normalized-1"),
    ("figure-1b", "gd-1"),
    ("figure-1c", "flow-1"),
    ("figure-1b", "mirror-1.5-1"),
    ("figure-1c", "normalized-mirror-1.5-0.1"),
]


@pytest.mark.parametrize(("name", "rule"), QUICK)
def test_the_document_has_the_counts_of_the_command(name: str, rule: str) -> None:
    assert set(documented_counts()) == {(data, item) for data in DATA for item in DEFAULT}
    within = [cell if cell != "-" and int(cell) <= CAP else "-" for cell in documented_counts()[name, rule]]
    assert counted(name, rule, CAP) == within


@pytest.mark.parametrize("fault", ["temperature", "detached-normaliser"])
def test_a_wrong_gradient_is_noticed(fault: str) -> None:
    wrong = fault_named(fault).implementation
    result = counted("figure-1a", "normalized-1", 300, under_test=wrong)
    assert result != counted("figure-1a", "normalized-1", 300)


def test_a_run_reaches_a_level_of_error_when_it_stays_below_it() -> None:
    iterations = np.array([0, 10, 20, 30])
    assert first_within(np.array([0.5, 0.05, 0.2, 0.05]), iterations, 0.1) == 30
    assert first_within(np.array([math.nan, 0.05, 0.1, 0.05]), iterations, 0.1) == 10
    assert first_within(np.array([0.05] * 4), iterations, 0.1) == 0
    assert first_within(np.array([0.05, 0.05, 0.05, math.nan]), iterations, 0.1) is None


def test_quartiles_count_runs_that_never_reach_a_level_as_infinite() -> None:
    result = spread([5, None, 3, None, 4])
    assert result.quartiles == (4, 5, None)
    assert result.not_within == 2
    assert spread([None, None]).quartiles == (None, None, None)


def test_a_run_is_compared_with_the_limit_of_the_flow_from_the_same_start() -> None:
    problem = dataset_named("figure-1b").problem
    local, best = (limit_of(problem, np.array([0.0, c])) for c in (-1.0, 1.0))
    assert isinstance(local, Limit)
    assert isinstance(best, Limit)
    assert (local.kind, best.kind) == (Kind.LOCAL, Kind.GLOBAL)
    assert local.svm.direction.tolist() == [1.0, 0.0]


def opposed() -> Problem:
    """Return two inputs that pull in opposite directions, so that the flow ends at p = 0."""
    return Problem(np.array([[[1.0], [0.0]], [[-1.0], [0.0]]]), np.array([[1.0, 0.0], [1.0, 0.0]]))


def test_a_finite_stationary_point_is_no_limit_direction(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(limit_of(opposed(), np.array([0.5])), str)
    np.savez("opposed.npz", keys=opposed().keys, scores=opposed().scores, p0=np.array([0.5]))
    assert main(["bench", "--data", "opposed.npz", "--examples", "0", "--jobs", "1"]) == 3
    assert "no limit" in capsys.readouterr().out


def test_units_of_work_are_pure_functions_that_can_be_pickled() -> None:
    unit = Generated(3, 1, 2, ("normalized-1",), 50)
    there, here = pickle.loads(pickle.dumps(unit)).run(nothing), unit.run(nothing)
    assert there.compared == here.compared
    assert there.compared[0].name == "generated 2"


def test_a_problem_does_not_depend_on_how_many_are_drawn() -> None:
    units = chunks(3, 25, ("gd-1",), 50)
    assert [(unit.first, unit.last) for unit in units] == [(0, 10), (10, 20), (20, 25)]
    one, again, other = (random_trial(seed, 10, 7).problem for seed in (3, 3, 4))
    assert np.array_equal(one.keys, again.keys)
    assert not np.array_equal(one.keys, other.keys)
    assert np.linalg.norm(one.keys, axis=-1) == pytest.approx(1.0, rel=1e-12)


def test_mirror_descent_is_compared_with_the_max_margin_direction_in_its_norm() -> None:
    rule = "normalized-mirror-3-1"
    result = Named("figure-1a", (rule, "normalized-1", "adam-0.1"), 1000).run(nothing).compared[0]
    (power,) = result.powers
    assert power.norm == 3.0
    # Only the constraint k·p ≥ 1 with k = (−0.1, 1) is tight, so the solution of least ℓ3 norm has |p_j| ∝ √|k_j|.
    due = np.sqrt([0.1, 1.0]) * [-1, 1]
    assert power.direction == pytest.approx(due / np.linalg.norm(due), abs=1e-9)
    mirrored, normalized, adam = result.rules
    assert mirrored.one_minus_cosine < 1e-4 < 1 - np.dot(power.direction, result.limit)
    assert normalized.one_minus_cosine < 1e-5
    assert (mirrored.theory.limit, normalized.theory.limit, adam.theory.limit) == ("ℓ3", "ℓ2", "unknown")
    assert mirrored.at_most is None  # the limit direction in the ℓ3 norm is not along the gradient
    assert adam.at_most is None


def test_margins_are_reported_as_shares_of_the_largest_margin() -> None:
    result = Named("figure-1a", ("normalized-1", "normalized-mirror-9-1"), 1000).run(nothing).compared[0]
    euclidean, boxed = result.rules[0].margins
    assert euclidean == pytest.approx(1.0, abs=1e-4)
    # For p_mm ∝ (−0.1, 1) the margin divided by ‖p‖_∞ is 1.01; the largest possible value is 1.1.
    assert boxed == pytest.approx(1.01 / 1.1, rel=1e-3)
    assert max(item for run in result.rules for item in run.margins) <= 1 + 1e-12
    assert result.rules[1].margins[1] > boxed


def test_rates_are_fitted_to_the_iterates_of_the_run() -> None:
    result = Named("figure-1c", ("normalized-1", "gd-1"), 2000).run(nothing).compared[0]
    normalized, plain = (run.rate for run in result.rules)
    assert normalized is not None
    assert plain is not None
    assert (normalized.against, plain.against) == ("t", "log t")
    assert normalized.exponent == pytest.approx(1.0, abs=0.05)  # p(t) = u(t) p_mm + O(1), and u(t) grows like t


def test_rules_from_files_run_as_separate_units_of_work_and_join_the_table() -> None:
    result = units(["figure-1a"], ["a.py:B", "gd-1", "normalized-1"], 9, 0, 12)
    assert [unit.id for unit in result] == [
        "figure-1a",
        "figure-1a, a.py:B",
        "generated 1-10",
        "generated 11-12",
        "generated 1-10, a.py:B",
        "generated 11-12, a.py:B",
    ]
    assert [unit.foreign for unit in result] == [False, True, False, False, True, True]
    parts = [Named("figure-1a", (rule,), 5).run(nothing).compared[0] for rule in ("gd-1", "normalized-mirror-3-1")]
    (whole,) = merge(parts, ["normalized-mirror-3-1", "gd-1"])
    assert [run.rule for run in whole.rules] == ["normalized-mirror-3-1", "gd-1"]
    assert [power.norm for power in whole.powers] == [3.0]


def test_the_drawing_has_a_curve_per_rule_and_equal_bytes_each_time() -> None:
    rules = ("gd-1", "normalized-1")
    named = list(Named("figure-1a", rules, 30).run(nothing).compared)
    generated = list(Generated(0, 0, 3, rules, 30).run(nothing).compared)
    first, second = panels_of(named, generated)
    assert (first[0], second[0]) == ("figure-1a", "median of 3 generated problems")
    assert list(first[1]) == list(rules)
    t, distance = first[1]["normalized-1"]
    assert (t[0], t[-1]) == (1, 30)
    assert distance[-1] == pytest.approx(math.sqrt(2 * named[0].rules[1].one_minus_cosine), rel=1e-12)
    assert second[1]["gd-1"][0].tolist() == t.tolist()
    middle = sorted(math.sqrt(2 * item.rules[0].one_minus_cosine) for item in generated)[1]
    assert second[1]["gd-1"][1][-1] == pytest.approx(middle, rel=1e-12)
    assert render_plot(named, [], Path("a.png")) == render_plot(named, [], Path("a.png"))


def test_a_noisy_curve_has_a_running_median_and_a_smooth_one_has_none() -> None:
    rng, smooth = np.random.default_rng(0), np.geomspace(1, 1e-4, 61)
    noisy = smooth * np.exp(rng.normal(size=61))
    assert is_noisy(noisy)
    assert not is_noisy(smooth)
    assert not is_noisy(np.concatenate([[np.nan], smooth[:30], smooth[30::-1]]))
    median = running_median(noisy)
    assert median[30] == np.median(noisy[26:35])
    assert median[0] == np.median(noisy[:5])
    assert np.abs(np.diff(np.log(median))).mean() < np.abs(np.diff(np.log(noisy))).mean() / 3
    assert np.isnan(running_median(np.full(9, np.nan))).all()


def test_the_command_writes_the_drawing(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--data", "figure-1a", "--rule", "normalized-1", "--steps", "20", "--examples", "0", "--jobs", "1"]
    assert main(["bench", *options, "--plot", "runs.png"]) == 0
    assert Path("runs.png").read_bytes().startswith(b"\x89PNG")


def test_a_rule_that_has_not_converged_is_not_counted_as_selecting_other_tokens() -> None:
    result = Named("figure-1a", ("gd-1",), 3).run(nothing).compared[0]
    assert not result.rules[0].selects_limit
    (summary,) = summaries([result])
    assert (summary.other_tokens, summary.not_yet) == (0, 1)
    assert summaries([Comparison("none", (0.0,), no_limit="stationary")]) == []


def test_proven_bounds_lie_above_the_measurements_and_are_not_trivial() -> None:
    rules = ("normalized-1", "gd-1/L")
    normalized, plain = Named("figure-1a", rules, 300).run(nothing).compared[0].rules
    assert plain.at_most is None  # the direction has not converged yet
    assert normalized.at_most is not None
    assert normalized.one_minus_cosine <= normalized.at_most < 0.1
    longer = Named("figure-1a", rules[:1], 600).run(nothing).compared[0].rules[0]
    assert longer.at_most is not None
    assert longer.at_most < 0.6 * normalized.at_most  # log t/t


def test_local_limits_and_tied_scores_have_no_proven_bound() -> None:
    (local,) = Named("figure-1b", ("normalized-1",), 300).run(nothing).compared[0].rules
    assert local.at_most is None
    tied = Problem(np.array([[[1.0], [0.0], [1.0]]]), np.array([[1.0, 0.0, 1.0]]))
    svm = max_margin(dataset_named("figure-1a").problem.keys, np.array([0]))
    assert isinstance(svm, MaxMargin)
    assert proven_bound(tied, svm, np.ones((3, 1))) is None


def test_the_proven_bound_fails_for_a_wrong_run() -> None:
    """The run keeps half its norm as distance from the limit's ray: it has turned less than its growth requires."""
    problem = dataset_named("figure-1a").problem
    limit = limit_of(problem, np.array([0.0, -1.0]))
    assert isinstance(limit, Limit)
    beside = np.array([limit.svm.direction[1], -limit.svm.direction[0]])
    points = np.arange(20.0, 400.0)[:, None] * (limit.svm.direction + 0.5 * beside)
    bound = proven_bound(problem, limit.svm, points)
    assert bound is not None
    assert bound < 1 - 1 / math.sqrt(1.25)


def test_bench_prints_and_writes_the_same_for_the_same_options(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--data", "figure-8", "--rule", "gd-1/L", "--steps", "40", "--examples", "1", "--jobs", "1"]
    printed = []
    for name in ("a.json", "b.json"):
        assert main(["bench", *options, "--json", name]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()
    report = json.loads(Path("a.json").read_text(encoding="utf-8"))
    assert len(report["generated"]["problems"]) == 1
    assert report["data"][0]["selects"] == [0, 0]
    assert main(["bench", *options, "--seed", "1", "--json", "b.json"]) == 0
    assert Path("a.json").read_bytes() != Path("b.json").read_bytes()


def test_ctrl_c_prints_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("theorems.benchmark.comparison.limit_of", lambda *arguments: signal.raise_signal(signal.SIGINT))
    assert main(["bench", "--jobs", "1", "--json", "b.json"]) == 130
    captured = capsys.readouterr()
    assert "interrupted" in captured.err
    assert not captured.out
    assert not Path("b.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rule", "adam"], "--rule: 'adam' is none of gd-ETA, gd-1/L, normalized-ETA"),
        (["--rule", "gd--1"], "with ETA > 0, Q > 1, 0 ≤ B1 < 1 and 0 ≤ B2 < 1"),
        (["--rule", "normalized-nan"], "with ETA > 0, Q > 1, 0 ≤ B1 < 1 and 0 ≤ B2 < 1"),
        (["--rule", "normalized-1/L"], "with ETA > 0, Q > 1, 0 ≤ B1 < 1 and 0 ≤ B2 < 1"),
        (["--rule", "normalized-mirror"], "'normalized-mirror' is none of"),
        (["--rule", "mirror-1-0.1"], "Q > 1"),
        (["--rule", "mirror-3"], "'mirror-3' is none of"),
        (["--rule", "mirror-inf-1"], "'mirror-inf-1' is none of"),
        (["--rule", "polyak-1"], "'polyak-1' is none of"),
        (["--plot", "runs.txt"], "--plot: runs.txt has another ending than svg, png, pdf"),
        (["--plot", "no/where.svg"], "there is no directory no"),
        (["--compare", "none.json"], "--compare: none.json: there is no such file"),
        (["--compare", "none.npz"], "--compare: none.npz does not end in .json"),
        (["--data", "figure-99"], "'figure-99' is neither a file"),
        (["--data", "none.npz"], "there is no such file"),
        (["--json", "no/where.json"], "there is no directory no"),
        (["--steps", "0"], "'--steps'"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert not printed.out


def test_the_number_in_a_rule_s_name_is_its_step_size() -> None:
    problem = dataset_named("figure-1a").problem
    start = np.array([[0.0, -1.0]])
    assert log_step(problem, rule_named("gd-1/L").step, REFERENCE) == -problem.log_smoothness
    steps = [rule_named(name).run([problem], start, 1).points[1, 0] - start[0] for name in ("normalized-0.5", "gd-0.5")]
    assert np.linalg.norm(steps[0]) == pytest.approx(0.5, rel=1e-12)
    gradient = problem_gradient(problem, start[0])
    assert steps[1] == pytest.approx(-0.5 * gradient, rel=1e-12)


def problem_gradient(problem: Problem, p: np.ndarray) -> np.ndarray:
    """Return ∇L(p) as one array."""
    from reference_attention.risk import scaled_gradient

    gradient = scaled_gradient(problem.keys, problem.scores, problem.loss, p)
    return np.asarray(gradient.direction) * math.exp(float(gradient.log_scale))


def test_w_is_compared_with_both_svms_and_its_factors_converge_to_the_nuclear_norm_solution() -> None:
    batch = Named("tsvm-paths-5", ("normalized-1", "normalized-factored-0.1"), 1500).run(lambda done: None)
    by_w, by_factors = (run.nuclear for run in batch.compared[0].rules)
    assert by_w is not None
    assert by_factors is not None
    assert by_w[1] > 0.09
    assert by_factors[1] < 0.01
    assert by_factors[0] < 1e-3 < by_w[0]
    assert "excess of the nuclear norm" in str([*parts(batch.compared, (), 1500)])


def test_a_prompt_is_not_compared_with_a_nuclear_norm() -> None:
    batch = Named("figure-1a", ("normalized-1",), 10).run(lambda done: None)
    assert batch.compared[0].rules[0].nuclear is None
    assert "nuclear" not in str([*parts(batch.compared, (), 10)])
