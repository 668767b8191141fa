"""The template of a paper, built and installed in an empty environment: every command knows it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.installed.conftest import Installed, build, environment
from tests.packages import A_PAPER

ID = "ordered-logits-descend"
WITHOUT = ("ordered-logits", "well-behaved-loss")
SEVERAL = """
import sys
from theorems.command.app import main
for line in sys.argv[1:]:
    print(f"exit code {main(line.split())}")
"""


@pytest.fixture(scope="module")
def theirs(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return a separate environment with the suite and the package, made without a network."""
    top = tmp_path_factory.mktemp("a_paper")
    shutil.copytree(A_PAPER, top / "source", ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    python, packages = environment(top / "venv", installed.wheel, build("wheel", top / "source", top))
    return replace(installed, python=python, packages=packages)


@pytest.fixture
def theorems(theirs: Installed, tmp_path: Path) -> Callable[..., list[tuple[str, int]]]:
    """Return a function for output and exit code of commands in an empty folder, in one process, since starting takes
    longer.
    """

    def run(*commands: str) -> list[tuple[str, int]]:
        done = theirs.run(tmp_path, "python", "-c", SEVERAL, *commands)
        parts = done.stdout.split("exit code ")
        assert len(parts) == len(commands) + 1, done.stdout + done.stderr
        codes = [part.partition("\n") for part in parts[1:]]
        texts = [parts[0], *(rest for _, _, rest in codes)]
        return [(text, int(code)) for text, (code, _, _) in zip(texts, codes, strict=False)]

    return run


def test_the_command_and_its_processes_find_the_paper(theirs: Installed, tmp_path: Path) -> None:
    done = theirs.run(tmp_path, "theorems", "verify", ID, "--examples", "20", "--jobs", "2", "--resume", "run.jsonl")
    assert done.returncode == 0, done.stdout + done.stderr
    head = json.loads((tmp_path / "run.jsonl").read_text().splitlines()[0])["journal"]
    assert [(package, len(digest)) for package, digest in head["papers"].items()] == [("a-paper 0.1.0", 16)]


def test_the_installed_paper_is_imported_and_its_own_test_passes(theirs: Installed, tmp_path: Path) -> None:
    code = "import a_paper, theorems, pytest, sys; print(a_paper.__file__, theorems.__file__); sys.exit(pytest.main())"
    (tmp_path / "test_it.py").write_text((A_PAPER / "tests" / "test_ordered_logits.py").read_text())
    done = theirs.run(tmp_path, "python", "-c", code)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(str(theirs.packages) in file for file in done.stdout.splitlines()[0].split())
    assert "2 passed" in done.stdout


def test_the_paper_is_listed_and_shown_with_its_package(theorems: Callable[..., list[tuple[str, int]]]) -> None:
    printed_texts = theorems("list", f"show {ID}", "show ordered-logits", "list data")
    assert [code for _, code in printed_texts] == [0, 0, 0, 0]
    (listed, _), (shown, _), (assumption, _), (data, _) = printed_texts
    for message in (ID, "theorem-2", "tokens of larger logit k·p have no lower score"):
        assert message in listed
    assert "of the package a-paper 0.1.0" in shown
    assert "Chebyshev's identity" in shown
    assert f"Assumed by: {ID}" in assumption
    assert "three-ranks" in data


def test_the_paper_is_verified_and_explained_on_data(theorems: Callable[..., list[tuple[str, int]]]) -> None:
    verify, other, explain = theorems(
        f"verify {ID} --data three-ranks",
        f"verify {ID} --data figure-1a",
        "explain --data three-ranks",
    )
    assert verify[1] == 0
    assert "in every input scores grow with logits" in verify[0]
    assert "ordered-logits: no prompt p is given" in other[0]
    assert explain[1] == 0
    assert f"{ID}: a prompt that ranks tokens" in " ".join(explain[0].split())


def test_the_paper_s_statement_is_refuted_without_each_assumption(
    theorems: Callable[..., list[tuple[str, int]]], theirs: Installed
) -> None:
    recorded = theirs.packages / "a_paper" / "recorded"
    names = [f"{ID}-without-{item}.json" for item in WITHOUT]
    assert sorted(path.name for path in recorded.iterdir()) == names
    hunts = [f"hunt {ID} --without {item} --out . --record --cases 400" for item in WITHOUT]
    result = theorems(*hunts, *(f"replay {name}" for name in names), *(f"replay {recorded / name}" for name in names))
    assert [code for _, code in result] == [1] * 6
    assert "the risk rise" in result[0][0]


COUNTS = """
from theorems.counterexamples.assumption_table import pairs_in
print(*(one.run(len).status for one in pairs_in() if one.statement == sys.argv[-1]))
"""
CAUGHT = """
from theorems.core.check import check
from theorems.faults import fault_named
from theorems.run.registry.lookup import statement_named
from theorems.run.verify import draw_cases
wrong = fault_named("softmin").implementation
for statement in map(statement_named, sys.argv[1:]):
    cases = draw_cases(statement, 5, 0, every=False)
    print(any(check(statement, case, wrong).verdict == "falsified" for case in cases))
"""


def test_the_paper_s_fault_is_caught_and_its_counterexamples_replay(
    theorems: Callable[..., list[tuple[str, int]]], theirs: Installed, tmp_path: Path
) -> None:
    done = theirs.run(tmp_path, "python", "-c", f"import sys{CAUGHT}", ID, "lemma-5")
    assert done.stdout.split() == ["True", "True"], done.stderr
    done = theirs.run(tmp_path, "python", "-c", f"import sys{COUNTS}", ID)
    assert done.stdout.split() == ["refuted", "refuted"], done.stderr
