"""Rules in a user's own file: good ones are compared, bad ones reported in a sentence; none sets the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.places import ROOT
from theorems.benchmark.bench_units import Named
from theorems.benchmark.rules import rule_named
from theorems.command.app import main
from theorems.run.verify import nothing

FILE = """
import os
import numpy as np
from theorems.api import Optimiser, Theory

class Normalized(Optimiser):
    theory = Theory(norm=2, source="mine", exponent=1)
    def step(self, p, gradient):
        length = np.linalg.norm(gradient.direction)
        return p - gradient.direction / length

class Counting(Optimiser):
    def begin(self, setting):
        self.t = 0
        assert setting.start.shape == setting.shape == (setting.problem.d,)
    def step(self, p, gradient):
        self.t += 1
        return p - gradient.direction / self.t

class Short(Optimiser):
    def step(self, p, gradient):
        return p[:1]

class Text(Optimiser):
    def step(self, p, gradient):
        return ["a", "b"]

class Raises(Optimiser):
    def step(self, p, gradient):
        return p / {}["none"]

class Leaves(Optimiser):
    def step(self, p, gradient):
        raise SystemExit(0)

class Dies(Optimiser):
    def step(self, p, gradient):
        os._exit(0)

class Infinite(Optimiser):
    def step(self, p, gradient):
        return p * np.inf

class Stepless(Optimiser):
    pass

class Batched(Optimiser):
    batched = True
    def step(self, p, gradient):
        return p

class Sourceless(Optimiser):
    theory = "mine"
    def step(self, p, gradient):
        return p

class Flat(Optimiser):
    theory = Theory(norm=1)
    def step(self, p, gradient):
        return p

number = 3
"""
ON_FIGURE_1A = ["--data", "figure-1a", "--examples", "0", "--jobs", "1"]


@pytest.fixture(autouse=True)
def _with_a_file_of_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(FILE, encoding="utf-8")
    Path("broken.py").write_text("import nothing_of_this_name\n", encoding="utf-8")


def test_a_rule_of_a_file_is_listed_beside_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    rules = ["--rule", "mine.py:Normalized", "--rule", "normalized-1"]
    assert main(["bench", *ON_FIGURE_1A, *rules, "--steps", "60", "--json", "r.json"]) == 0
    report = json.loads(Path("r.json").read_text(encoding="utf-8"))
    mine, ours = report["data"][0]["rules"]
    assert mine["rule"] == "mine.py:Normalized"
    assert mine["iterations"] == ours["iterations"]  # both are the same rule
    assert mine["theory"]["source"] == "mine"
    assert "mine.py:Normalized" in capsys.readouterr().out


def test_a_run_starts_afresh_on_every_problem() -> None:
    rule = rule_named("mine.py:Counting")
    problem = Named("figure-1a", ("gd-1",), 1)._problems()[0][0]
    starts = np.array([[0.0, -1.0], [0.0, -1.0]])
    both = rule.run([problem, problem], starts, 5).points
    assert (both[:, 0] == both[:, 1]).all()
    assert (rule.run([problem], starts[:1], 5).points[:, 0] == both[:, 0]).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Short", "mine.py: step of Short returned float64 of shape (1,); return float64 of (2,)"),
        ("Text", "mine.py: step of Text returned <U1 of shape (2,); return float64 of (2,)"),
        ("Raises", "mine.py, line 30: KeyError: 'none'"),
        ("Leaves", "mine.py, line 34: SystemExit: 0"),
    ],
)
def test_a_rule_that_fails_is_reported_in_a_sentence(name: str, message: str) -> None:
    result = Named("figure-1a", (f"mine.py:{name}",), 5).run(nothing)
    assert result.failed == message
    assert result.compared == ()


def test_a_step_that_is_not_finite_ends_the_run() -> None:
    (run,) = Named("figure-1a", ("mine.py:Infinite",), 5).run(nothing).compared[0].rules
    assert not run.representable
    assert run.norm == 1.0  # the run stays at its start, (0, −1)


def test_a_rule_that_ends_its_process_loses_only_its_own_row(capsys: pytest.CaptureFixture[str]) -> None:
    rules = ["--rule", "mine.py:Dies", "--rule", "normalized-1", "--steps", "5", "--json", "r.json"]
    assert main(["bench", *ON_FIGURE_1A, *rules]) == 3
    printed = capsys.readouterr()
    assert "theorems: figure-1a, mine.py:Dies: the process that worked on it ended" in printed.err
    assert "after iteration 0" in printed.err
    assert "normalized-1" in printed.out
    assert json.loads(Path("r.json").read_text(encoding="utf-8"))["unfinished"] == ["figure-1a, mine.py:Dies"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("mine.py", "mine.py: name the rule as mine.py:NAME; the rules in the file are Normalized, Counting"),
        ("mine.py:None", "mine.py: has no rule 'None'; its rules are"),
        ("mine.py:number", "mine.py: 'number' is no class derived from theorems.api.Optimiser"),
        ("mine.py:Optimiser", "mine.py: 'Optimiser' is no class derived from"),
        ("mine.py:Stepless", "mine.py: Stepless has no step(self, p, gradient)"),
        ("mine.py:Batched", "mine.py: Batched.batched is set"),
        ("mine.py:Sourceless", "mine.py: Sourceless.theory is of type str"),
        ("mine.py:Flat", "mine.py: Flat.theory: norm is 1; give a finite number above 1"),
        ("none.py:Rule", "none.py: there is no such file; give PATH.py:NAME of a rule."),
        ("broken.py:Rule", "broken.py, line 1: ModuleNotFoundError"),
    ],
)
def test_an_unusable_file_is_refused(rule: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    from reference_attention.errors import InvalidInput

    with pytest.raises(InvalidInput) as refused:
        rule_named(rule)
    assert message in str(refused.value)


def test_the_command_refuses_a_bad_rule_file_with_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *ON_FIGURE_1A, "--rule", "mine.py:Stepless"]) == 2
    printed = capsys.readouterr()
    wanted = "mine.py: Stepless has no step(self, p, gradient); define it so that it returns the next p."
    assert printed.err.strip() == f"theorems: {wanted}"
    assert not printed.out


def test_the_example_has_the_largest_margin_in_its_own_norm() -> None:
    rule = f"{ROOT / 'examples' / 'sign_descent.py'}:SignDescent"
    result = Named("figure-1a", (rule, "normalized-1"), 1500).run(nothing)
    assert not result.failed
    sign, normalized = (run.margins for run in result.compared[0].rules)
    assert sign[1] > 0.98 > normalized[1]
    assert normalized[0] > 0.98 > sign[0]
