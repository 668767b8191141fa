"""Papers are packages found by entry points, ours included; an unusable package is reported in a sentence that names
it.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import generators.datasets
from generators.assumptions import ASSUMPTIONS
from max_margin_theorems import papers as module
from max_margin_theorems.papers import GROUP, Paper, papers
from reference_attention.errors import InvalidInput
from tests.packages import install, install_example, run, stated, theorems
from tests.places import ROOT
from theorems import faults
from theorems.core.check import check
from theorems.core.implementation import REFERENCE
from theorems.run import identity
from theorems.run.registry import suite
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.suite import paper_of, statements

DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]
ORDER = ("token-selection", "transformers-as-svms", "steepest-descent", "adaptive-methods", "next-tokens")
OURS = [name for name in ORDER if name in DECLARED]
"""Our papers that are present, in the order of the suite."""
FAULT = """
from theorems.api import REFERENCE, Fault, FaultKind

F = Fault("{}", FaultKind.RUN, "", "few-tokens", lambda size: REFERENCE)
"""
ENGINE = ("core", "run", "command", "counterexamples", "faults")
"""Packages that must not name any paper."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder on the import path, in which packages can be installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    before = {*sys.modules}
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in {*sys.modules} - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


def installed() -> list[Paper]:
    """Return the papers that are installed now."""
    return list(papers.__wrapped__())


def refusal(function: Callable[[], Any]) -> str:
    """Return the sentence of the InvalidInput that a function raises."""
    with pytest.raises(InvalidInput) as error:
        function()
    return str(error.value)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that makes the currently installed papers known to all modules."""

    def make_known() -> None:
        result = tuple(installed())
        for place in (module, suite, faults):
            monkeypatch.setattr(place, "papers", lambda: result)

    return make_known


def test_our_papers_are_declared_in_the_public_entry_point_group() -> None:
    ours = [item for item in papers() if not item.package]
    assert {item.name for item in ours} == {*DECLARED}
    assert [item.name for item in ours] == OURS
    assert all(item.title and item.source for item in ours)


def test_a_checkout_reads_its_own_pyproject_rather_than_installed_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "entry_points", lambda group: [])
    assert [paper.name for paper in installed() if not paper.package] == OURS


def test_without_a_checkout_our_papers_come_from_the_metadata(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "max_margin_theorems_", entry="mine", value="theorems.steepest_descent:PAPER")
    install(site, "a_paper")
    (site / "max_margin_theorems_-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: max-margin-theorems\nVersion: 1.0\n"
    )
    results = [item for item in module.entry_points(group=GROUP) if item.name in ("mine", "a-paper")]
    monkeypatch.setattr(module, "entry_points", lambda group: results)
    for checkout in (site / "nothing.toml", site / "pyproject.toml"):
        monkeypatch.setattr(module, "CHECKOUT", checkout)
        assert [(item.name, item.package) for item in installed()] == [("mine", ""), ("a-paper", "a-paper 1.0")]
        (site / "pyproject.toml").write_text('[project]\nname = "somebody-elses"\n')
    monkeypatch.setattr(module, "entry_points", lambda group: results[1:] if results[0].name == "mine" else results[:1])
    assert refusal(installed).startswith("papers: the installed max-margin-theorems declares no papers;")


def test_other_papers_come_after_ours_by_name_and_after_those_they_build_on(site: Path) -> None:
    for name, after in (("b_paper", "('c-paper', 'not-here')"), ("c_paper", "()"), ("a_paper", "('token-selection',)")):
        install(site, name, paper=f"'{name}.rooms', after={after}")
    results = [paper.name for paper in installed() if paper.package]
    assert results == ["a-paper", "c-paper", "b-paper"]
    assert next(paper.package for paper in installed() if paper.package) == "a-paper 1.0"


def test_papers_that_build_on_each_other_are_listed_nevertheless(site: Path) -> None:
    for name, after in (("b_paper", "('c-paper',)"), ("c_paper", "('b-paper',)")):
        install(site, name, paper=f"'{name}.rooms', after={after}")
    assert [paper.name for paper in installed() if paper.package] == ["b-paper", "c-paper"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a_paper:NOTHING", "TypeError: NOTHING of SITE/a_paper/__init__.py is not a Paper"),
        ("a_paper:Paper", "TypeError: Paper of SITE/a_paper/__init__.py is not a Paper"),
        ("no_such_package:PAPER", "ModuleNotFoundError: No module named 'no_such_package'"),
    ],
)
def test_the_error_on_an_entry_point_without_a_paper_names_the_package(site: Path, value: str, reason: str) -> None:
    install(site, "a_paper", value=value)
    message = refusal(installed)
    assert message.replace(str(site), "SITE") == (
        f"the paper 'a-paper' of the package a-paper 1.0 cannot be used ({reason}); correct the package, or uninstall"
        " it with pip uninstall a-paper."
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def (", "SyntaxError: invalid syntax"),
        (stated(id="Not Kebab")["rooms.py"], "statement: the id 'Not Kebab' is not kebab-case"),
        (stated(assumption="separable")["rooms.py"], "assumption: 'separable' is one of the suite's"),
        (stated()["rooms.py"] + "\nfew_too = __import__('dataclasses').replace(few)", "few-tokens is defined twice"),
    ],
)
def test_the_error_on_a_module_that_cannot_be_read_names_the_package(
    site: Path, known: Callable[[], None], text: str, reason: str
) -> None:
    install(site, "a_paper", modules={"rooms.py": text})
    known()
    message = refusal(statements.__wrapped__)
    assert message.startswith("the paper 'a-paper' of the package a-paper 1.0 cannot be used (")
    assert reason in message
    assert message.count("cannot be used") == 1


def test_the_command_reports_a_broken_package_in_one_sentence_and_exits_with_2(site: Path) -> None:
    """Otherwise a run of all statements would leave out some, and yet be upheld."""
    install(site, "a_paper", modules={"rooms.py": "import no_such_library"})
    process = theorems(site, "list")
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith("theorems: the paper 'a-paper' of the package a-paper 1.0 cannot be used (Module")
    assert process.stderr.count("\n") == 1


def test_the_error_on_a_file_that_hides_a_package_names_the_file(site: Path, tmp_path: Path) -> None:
    install(site, "a_paper")
    here = tmp_path / "here"
    here.mkdir()
    (here / "a_paper.py").write_text("")
    process = theorems(site, "list", "assumptions", cwd=here)
    assert process.returncode == 2
    assert f"PAPER of {here / 'a_paper.py'} is not a Paper" in process.stderr
    assert "a-paper 1.0" in process.stderr


def test_the_error_on_an_id_in_two_packages_names_both(site: Path, known: Callable[[], None]) -> None:
    for name in ("a_paper", "b_paper"):
        install(site, name, modules=stated(assumption=f"of-{name[0]}"))
    known()
    both = "both the package a-paper 1.0 and the package b-paper 1.0 have 'few-tokens'"
    assert both in refusal(statements.__wrapped__)


def test_a_package_s_statement_with_an_id_of_this_suite_is_refused(site: Path, known: Callable[[], None]) -> None:
    install(site, "a_paper", modules=stated(id="lemma-5"))
    known()
    message = refusal(statements.__wrapped__)
    assert message.startswith("statements: both this suite and the package a-paper 1.0 have 'lemma-5';")


def test_the_error_on_a_paper_in_two_packages_names_both(site: Path) -> None:
    install(site, "a_paper", entry="mine")
    install(site, "b_paper", entry="mine")
    assert refusal(installed).startswith(
        "papers: the package a-paper 1.0 and the package b-paper 1.0 have a paper 'mine'"
    )


def test_names_of_assumptions_faults_definitions_and_data_are_unique(
    site: Path, known: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = FAULT.format("same")
    for name in ("a_paper", "b_paper"):
        further = f"'{name}.rooms', faults='{name}.faults', data='{name}.data:DATA', definitions='{name}.data:DATA'"
        files = {"faults.py": fault, "data.py": "DATA = {'same': int}", **stated(id=f"few-{name[0]}")}
        install(site, name, paper=further, modules=files)
    known()
    both = statements.__wrapped__()
    monkeypatch.setattr(suite, "statements", lambda: both)
    for function, what in (
        (suite.assumptions.__wrapped__, "assumptions"),
        (suite.definitions.__wrapped__, "definitions"),
        (faults._all_faults.__wrapped__, "faults"),
        (module.named_data, "data"),
    ):
        assert refusal(function).startswith(f"{what}: both the package a-paper 1.0 and the package b-paper 1.0 have ")


def test_two_faults_with_the_same_name_in_a_paper_are_refused(site: Path, known: Callable[[], None]) -> None:
    twice = f"{FAULT.format('same')}\nG = Fault('same', FaultKind.RISK, '', 'few-tokens', lambda size: REFERENCE)"
    install(site, "a_paper", paper="'a_paper.rooms', faults='a_paper.faults'", modules={"faults.py": twice, **stated()})
    known()
    assert "two faults are named 'same', one of them in a_paper.faults" in refusal(faults._all_faults.__wrapped__)


def test_a_package_s_fault_and_data_with_names_of_this_suite_are_refused(
    site: Path, known: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = FAULT.format("temperature")
    further = "'a_paper.rooms', faults='a_paper.faults', data='a_paper.data:DATA'"
    files = {"faults.py": fault, "data.py": "DATA = {'figure-1a': int}"}
    install(site, "a_paper", paper=further, modules=files)
    known()
    assert "both this suite and the package a-paper 1.0 have 'temperature'" in refusal(faults._all_faults.__wrapped__)
    monkeypatch.setattr(generators.datasets, "named_data", module.named_data)
    assert "a paper's dataset 'figure-1a' has the name of one of this suite's" in refusal(generators.datasets.all_data)


def test_data_that_are_not_a_mapping_are_refused(site: Path, known: Callable[[], None]) -> None:
    install(site, "a_paper", paper="'a_paper.rooms', data='a_paper.data:DATA'", modules={"data.py": "DATA = 3"})
    known()
    assert "a_paper.data:DATA is a int, not a mapping" in refusal(module.named_data)


def test_a_paper_of_one_module_is_found_with_its_own_assumption(
    site: Path, known: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "a_paper", modules=stated())
    known()
    result = statements.__wrapped__()
    monkeypatch.setattr(suite, "statements", lambda: result)
    paper = paper_of(result["few-tokens"])
    assert paper is not None
    assert (paper.title, paper.place) == ("Title of a_paper", "the package a-paper 1.0")
    assert [*result][-1] == "few-tokens"
    ours = {id for id in suite.assumptions() if id not in ASSUMPTIONS}
    assert {*suite.assumptions.__wrapped__()} == {*ASSUMPTIONS, *ours, "few"}
    assert paper_of(statement_named("kernel-output")) is None
    assert {one.name for id in statements() if (one := paper_of(statement_named(id)))} >= {*OURS}


def test_digests_of_runs_depend_on_installed_papers(
    site: Path, known: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When an installed paper has changed, a journal or results of a cluster must not be reused."""
    before = identity.surroundings()
    folder = install(site, "a_paper", modules={"rooms.py": "x = 1"})
    result = tuple(installed())
    monkeypatch.setattr(identity, "papers", lambda: result)
    monkeypatch.setattr(identity, "_papers", identity._papers.__wrapped__)
    first = identity.surroundings()
    assert {*first} - {*before} <= {"papers"}
    assert [*first["papers"]] == ["a-paper 1.0"]
    assert identity.difference(first) == ""
    (folder / "rooms.py").write_text("x = 2")
    assert identity.surroundings()["papers"] != first["papers"]
    assert identity.difference(first).startswith("has another a-paper 1.0 (")
    monkeypatch.setattr(identity, "papers", lambda: ())
    assert identity.difference(first).startswith("has another a-paper 1.0 (None there, ")


def test_pool_processes_and_completion_know_an_installed_paper(site: Path) -> None:
    install_example(site)
    process = theorems(site, "verify", "ordered-logits-descend", "lemma-10", "--examples", "3", "--jobs", "2")
    assert process.returncode == 0, process.stdout + process.stderr
    code = "from theorems.command import completion as c; print(c.ids('ordered'), c.data('three'))"
    process = run(site, "-c", code)
    assert process.stdout.split("\n")[0] == "['ordered-logits-descend'] ['three-ranks']", process.stderr


def names_of(paper: Paper) -> set[str]:
    """Return the ids and module names that code which depends on the paper would contain."""
    return {paper.name, f"{paper.statements}.", f'"{paper.statements}"', *([paper.prefix] if paper.prefix else ())}


def test_packages_that_serve_all_papers_name_none() -> None:
    """Files of planted faults are about statements and may name ids."""
    told = {name for paper in papers() if not paper.package for name in names_of(paper)}
    assert "theorems.token_selection." in told
    files = [file for room in ENGINE for file in sorted((ROOT / "theorems" / room).rglob("*.py"))]
    assert len(files) > 80
    for file in files:
        if file.parent.name == "faults" and file.stem.endswith("_faults"):
            continue
        text = file.read_text()
        assert [name for name in told if name in text] == [], file
        imports = [node.module or "" for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
        rooms = tuple(paper.statements for paper in papers())
        assert [name for name in imports if name.startswith(rooms)] == [], file


def test_the_error_on_an_entry_point_without_metadata_names_the_entry_point() -> None:
    assert module._package_of(EntryPoint("x", "y:Z", GROUP)) == "without a name"


def test_the_report_of_an_exception_in_a_package_names_the_package(
    site: Path, known: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = stated()["rooms.py"].replace("    yield", "    1 / 0\n    yield")
    install(site, "a_paper", modules={"rooms.py": broken})
    known()
    one = statements.__wrapped__()["few-tokens"]
    case = generators.datasets.dataset_named("figure-1a")
    assert check(one, case, REFERENCE).reason == "a-paper 1.0: ZeroDivisionError: division by zero"
