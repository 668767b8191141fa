"""The tool that plants faults: which it makes, that they are in force when tests run, and what it says of them."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.making import OUTSIDE, all_mutants, chosen, mutants_of
from tests.mutants.page import argued
from tests.places import ROOT

TOY = '''
"""A module: 1 + 2."""
from functools import cached_property, wraps

LIMIT = 3


def loud(function):
    @wraps(function)
    def inner(*arguments):
        return function(*arguments)

    return inner


class Square:
    def __init__(self, side: float) -> None:
        self.side = side

    @cached_property
    def area(self) -> float:
        return self.side * self.side


@loud
def within(x: float) -> bool:
    if x < 0:
        raise ValueError(f"{x + 1} is negative")
    return x <= LIMIT


def count(n: int) -> int:
    k = 0
    while k < n:
        k += len("a")
    return k


def unseen(a: int) -> int:
    return a + 1
'''
TESTS = """
from toy import shapes
from toy.shapes import count, within

def test_area():
    assert shapes.Square(3.0).area == 9.0

def test_within():
    assert within(3) and not within(4)

def test_count():
    assert count(2) == 2

def test_that_fails():
    assert False
"""

CONFTEST = """
import pytest

# As every module of an installed distribution that has a plugin: pytest would import it with its own finder.
pytest.register_assert_rewrite("toy")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    files = {"toy/__init__.py": "", "toy/shapes.py": TOY, "conftest.py": CONFTEST, "tests/toy/test_shapes.py": TESTS}
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    return tmp_path


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The tool on the toy."""
    command = [sys.executable, "-m", "tests.mutants", "--resume", "run.jsonl", "--part", "toy", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def outcomes(folder: Path) -> dict[str, tuple[str, str]]:
    """Outcome and test by change."""
    lines = [json.loads(line) for line in (folder / "run.jsonl").read_text(encoding="utf-8").splitlines()]
    results = [line["result"] for line in lines if "result" in line]
    return {one["change"]: (one["outcome"], one["by"]) for one in results}


def test_a_run_on_a_toy(checkout: Path) -> None:
    first = run(checkout)
    assert first.returncode == 0, first.stderr
    found = outcomes(checkout)
    tests = "tests/toy/test_shapes.py::test_"
    assert found["return self.side [-*-]{+/+} self.side"] == ("killed", f"{tests}area")
    assert found["return x [-<=-]{+<+} LIMIT"] == ("killed", f"{tests}within")
    assert found["if x [-<-]{+<=+} 0:"] == ("survived", "1 tests")
    assert found['k [-+=-]{+-=+} len("a")'] == ("timeout", f"{tests}count")
    assert found["LIMIT = [-3-]{+4+}"] == ("killed", f"{tests}within")
    assert found["return a [-+-]{+-+} 1"] == ("survived", "0 tests")

    journal = (checkout / "run.jsonl").read_bytes()
    again = run(checkout)
    assert "0 to face" in again.stdout
    assert (checkout / "run.jsonl").read_bytes() == journal

    document = run(checkout, "--markdown").stdout
    survivors = [change for change, (outcome, _) in found.items() if outcome == "survived"]
    assert all(f"`` {change} ``" in document for change in survivors)
    assert f"{len(found)} of {len(found)} mutants were faced" in document

    path = checkout / "tests" / "toy" / "test_shapes.py"
    path.write_text(TESTS + "\n\ndef test_zero():\n    assert within(0)\n    assert shapes.unseen(1) == 2\n")
    run(checkout, "--again", "--known", "known.json")
    found = outcomes(checkout)
    assert found["if x [-<-]{+<=+} 0:"] == ("killed", f"{tests}zero")
    assert found["return a [-+-]{+-+} 1"] == ("killed", f"{tests}zero")

    # Without the journal, what is known is faced again where a function, or what stands in none, was changed.
    (checkout / "run.jsonl").unlink()
    changed = TOY.replace("a + 1", "a + 2")
    (checkout / "toy" / "shapes.py").write_text(changed, encoding="utf-8")
    run(checkout, "--known", "known.json")
    own = {one.change for one in mutants_of("shapes.py", changed) if one.function in (OUTSIDE, "unseen")}
    assert set(outcomes(checkout)) == own
    held = json.loads((checkout / "known.json").read_text(encoding="utf-8"))["toy/shapes.py"]
    assert {name.split()[0] for name in held} == {one.function for one in mutants_of("shapes.py", changed)}
    assert next(letters for name, letters in held.items() if name.startswith("count ")).count("t") == 1


def test_a_journal_of_another_run_is_refused(checkout: Path) -> None:
    (checkout / "run.jsonl").write_text('{"journal": {"command": "mutants", "part": "other"}}\n')
    refused = run(checkout)
    assert refused.returncode == 2
    assert "the journal of another run (part: other there, toy here)" in refused.stderr


def test_what_is_changed() -> None:
    found = mutants_of("toy.py", TOY)
    assert len({one.id for one in found}) == len(found)
    for one in found:
        changed = ast.parse(one.applied(TOY))
        assert ast.dump(changed) != ast.dump(ast.parse(TOY)), one.change
    functions = {one.change: one.function for one in found}
    assert functions["LIMIT = [-3-]{+4+}"] == OUTSIDE
    assert functions["return self.side [-*-]{+/+} self.side"] == "Square.area"
    assert not any("negative" in change or "A module" in change for change in functions)


def test_a_sample_is_that_of_its_seed() -> None:
    every = list(all_mutants(ROOT, "reference_attention/exact.py"))
    drawn = [[one.id for one in chosen(iter(every), 0.5, seed)] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert 0.2 * len(every) < len(drawn[0]) < 0.8 * len(every)


def test_every_reason_is_of_a_mutant() -> None:
    """A reason of a line that was changed since is none."""
    reasons = argued()
    files = {file for file, _, _ in reasons}
    known = {one.place for file in files for one in all_mutants(ROOT, file)}
    assert sorted(set(reasons) - known) == []
