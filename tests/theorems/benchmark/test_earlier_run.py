"""``theorems bench --compare`` reports every difference in counts of steps, and only compares runs of equal options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from theorems.benchmark.earlier_run import Verdict, comparison_rows
from theorems.command.app import main

OPTIONS = ["--data", "figure-1a", "--rule", "normalized-1", "--steps", "60", "--examples", "1", "--jobs", "1"]


pytestmark = pytest.mark.usefixtures("own_directory")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the JSON of a run with :data:`OPTIONS`."""
    path = tmp_path_factory.mktemp("bench") / "then.json"
    assert main(["bench", *OPTIONS, "--json", str(path)]) == 0
    return path.read_text(encoding="utf-8")


def report(iterations: dict[str, int | None], quartiles: list[int | None], missing: int) -> dict[str, Any]:
    summary = [{"rule": "r", "quartiles": {"0.1": quartiles}, "not_within": {"0.1": missing}}]
    data = [{"name": "d", "rules": [{"rule": "r", "iterations": iterations}]}]
    return {"data": data, "generated": {"summary": summary}}


@pytest.mark.parametrize(
    ("then", "now", "verdict"),
    [
        (5, 5, Verdict.SAME),
        (None, None, Verdict.SAME),
        (5, 4, Verdict.BETTER),
        (None, 9, Verdict.BETTER),
        (5, 6, Verdict.WORSE),
        (9, None, Verdict.WORSE),
    ],
)
def test_a_changed_count_of_steps_is_better_or_worse(then: int | None, now: int | None, verdict: Verdict) -> None:
    before, after = (report({"0.1": 3, "0.01": count}, [1, 2, 3], 0) for count in (then, now))
    named, generated = comparison_rows(before, after)
    assert (named.verdict, generated.verdict) == (verdict, Verdict.SAME)
    assert bool(named.changes) == (verdict is not Verdict.SAME)


def test_fewer_steps_at_one_level_and_more_at_another_are_worse() -> None:
    row = comparison_rows(report({"0.1": 3, "0.01": 9}, [1, 2, 3], 0), report({"0.1": 2, "0.01": 10}, [1, 2, 3], 0))[0]
    assert row.verdict is Verdict.WORSE
    assert row.changes == "0.1: 3 → 2; 0.01: 9 → 10"


def test_generated_problems_are_compared_as_one_row() -> None:
    before = report({"0.1": 3}, [1, 2, None], 4)
    for quartiles, missing, verdict in (
        ([1, 2, None], 5, Verdict.WORSE),
        ([1, 3, None], 4, Verdict.WORSE),
        ([1, 2, 9], 4, Verdict.BETTER),
    ):
        assert comparison_rows(before, report({"0.1": 3}, quartiles, missing))[1].verdict is verdict  # type: ignore[arg-type]


def test_rows_in_only_one_of_two_runs_are_new_or_not_run() -> None:
    before, after = report({"0.1": 3}, [1, 2, 3], 0), report({"0.1": 3}, [1, 2, 3], 0)
    after["data"][0]["rules"][0]["rule"] = "other"
    assert [row.verdict for row in comparison_rows(before, after)] == [Verdict.NEW, Verdict.SAME, Verdict.NOT_RUN]


def test_an_equal_run_is_the_same_and_a_slower_one_is_worse(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("then.json").write_text(written, encoding="utf-8")
    assert main(["bench", *OPTIONS, "--compare", "then.json"]) == 0
    output = capsys.readouterr().out.partition("against then.json")[2]
    assert output.count("same") == 2
    assert "worse" not in output
    better = json.loads(written)
    better["data"][0]["rules"][0]["iterations"]["0.01"] -= 1
    Path("then.json").write_text(json.dumps(better), encoding="utf-8")
    assert main(["bench", *OPTIONS, "--compare", "then.json"]) == 1
    (line,) = (line for line in capsys.readouterr().out.splitlines() if " worse " in line)
    assert line.split() == ["figure-1a", "normalized-1", "worse", "0.01:", "16", "→", "17"]


def altered(values: dict[str, Any], how: str) -> Any:
    """Return a report with one entry changed."""
    if how == "steps":
        values["steps"] = 61
    elif how == "seed":
        values["seed"] = 1
    elif how == "content":
        values["data"][0]["content"] = "0" * 16
    elif how == "a count":
        values["data"][0]["rules"][0]["iterations"]["0.1"] = "four"
    elif how == "data":
        del values["data"]
    elif how == "a list":
        return [values]
    return values


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("steps", "was written with --steps 61, not 60; give the same"),
        ("seed", "was written with --seed 1, not 0; give the same"),
        ("content", "has other data called figure-1a"),
        ("a count", "was not written by theorems bench --json"),
        ("data", "was not written by theorems bench --json"),
        ("a list", "is not a JSON object"),
    ],
)
def test_a_report_with_other_options_is_refused(
    how: str, message: str, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("then.json").write_text(json.dumps(altered(json.loads(written), how)), encoding="utf-8")
    assert main(["bench", *OPTIONS, "--compare", "then.json"]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert not printed.out
