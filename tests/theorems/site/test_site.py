"""The documentation site builds without a warning, loads nothing from elsewhere, has no dead link, and has every
statement.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.documents import blocks, commands
from tests.places import ROOT
from tests.session_cache import made_once
from tests.test_documents import check_names, parsed
from tests.theorems.site.html_pages import Page, dead_links, fetched, page, pages
from theorems.command.app import main
from theorems.core.exit_code import Exit
from theorems.counterexamples.weakened_statements import droppable
from theorems.faults import FAULTS
from theorems.report.evidence import RECORDS, signs
from theorems.report.record import read
from theorems.run.registry.suite import statements
from theorems.site.__main__ import main as write_site
from theorems.site.notebooks import NOTEBOOKS, read_notebook, write_notebook_pages
from theorems.site.source import contents, write_source
from theorems.site.statement_page import Evidence, statement_page

built_here = pytest.mark.skipif(find_spec("sphinx") is None, reason="needs the extra docs")
BUILD = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", str(ROOT / "docs" / "site")]
FRESH = os.environ | {"PYTHONPATH": str(ROOT)}


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*BUILD, source, site], env=FRESH, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(ROOT))  # for commands that notebooks run
        return made_once(tmp_path_factory, "site-source", lambda folder: write_source(folder / "source")) / "source"


@pytest.fixture(scope="module")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the site as `make docs` builds it."""

    def make(folder: Path) -> None:
        done = build(source, folder)
        assert (done.returncode, done.stderr) == (0, "")

    return made_once(tmp_path_factory, "site", make)


@pytest.fixture(scope="module")
def site(built: Path) -> dict[Path, Page]:
    return pages(built.resolve())


@pytest.fixture(scope="module")
def made(source: Path) -> dict[str, str]:
    """Return the generated source pages by name."""
    results = [path for folder in ("statements", "derivations") for path in sorted((source / folder).glob("*.md"))]
    return {path.relative_to(source).as_posix(): path.read_text(encoding="utf-8") for path in results}


@built_here
def test_no_link_is_dead(site: dict[Path, Page]) -> None:
    assert len(site) > len(statements())
    assert list(dead_links(site)) == []


@built_here
def test_nothing_is_loaded_from_elsewhere(built: Path, site: dict[Path, Page]) -> None:
    assert list(fetched(built, site)) == []


@built_here
def test_every_statement_has_its_page_with_its_claims(built: Path, site: dict[Path, Page]) -> None:
    for id, statement in statements().items():
        text = site[built.resolve() / "statements" / f"{id}.html"].text
        assert [name for name in statement.claims if name not in text] == [], id
        assert [without for without in droppable(statement) if f"Without {without}" not in text] == [], id


@built_here
def test_every_document_is_a_page_and_formulas_are_typeset(built: Path, site: dict[Path, Page]) -> None:
    names = [path.relative_to(ROOT) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))]
    pages_of = [built.resolve() / ("index" if str(name) == "README.md" else name.with_suffix("")) for name in names]
    assert [path for path in pages_of if path.with_name(f"{path.name}.html") not in site] == []
    trust = (built / "docs" / "trust.html").read_text(encoding="utf-8")
    assert trust.count("<math ") > 1
    assert not re.search(r"\$|sup>|\\\\", page(trust).text)
    assert "p<sub>mm</sub>" in (built / "FINDINGS.html").read_text(encoding="utf-8")


@built_here
@pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs the extra figures")
def test_every_notebook_is_a_page_with_its_output_and_pictures(built: Path, site: dict[Path, Page]) -> None:
    folder = built.resolve() / NOTEBOOKS
    for path in (ROOT / NOTEBOOKS).glob("*.ipynb"):
        shown = site[folder / f"{path.stem}.html"]
        cells = read_notebook(path)
        code = [line for cell in cells if cell.is_code for line in cell.source.splitlines()]
        assert [line for line in code if line not in shown.text] == []
        pictures = [file for file in shown.loads if "/_images/" in file and file.endswith(".svg")]
        assert [file for file in pictures if f"{path.stem}-{len(cells) - 1}-0" in file]
        for source in ("index.html", "docs/library.html"):
            assert [to for to in site[built.resolve() / source].links if to.endswith(f"notebooks/{path.stem}.html")]
    assert "theorem-2 does not apply: equal-non-optimal-scores" in site[folder / "my_data.html"].text


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs the extra figures")
def test_a_page_has_the_output_of_a_cell_and_an_error_in_a_cell_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "docs" / "notebooks" / "mine.ipynb"
    path.parent.mkdir(parents=True)
    sources = ("# Mine", "from pathlib import Path\nk = 1\nPath('here').touch()", "print(k + 1)", "1 / 0")
    cells = [{"cell_type": "code" if place else "markdown", "source": [text]} for place, text in enumerate(sources)]
    path.write_text(json.dumps({"cells": cells[:3]}), encoding="utf-8")
    assert write_notebook_pages(tmp_path / "site", tmp_path) == ["docs/notebooks/mine"]
    text = (tmp_path / "site" / "docs" / "notebooks" / "mine.md").read_text(encoding="utf-8")
    assert text.startswith("# Mine\n\n```python\n")
    assert "```python\nprint(k + 1)\n```\n\n```text\n2\n```\n" in text
    assert not Path("here").exists()
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    with pytest.raises(ZeroDivisionError):
        write_notebook_pages(tmp_path / "site", tmp_path)


def test_without_matplotlib_a_notebook_has_its_text_and_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("theorems.site.notebooks.find_spec", lambda name: None)
    for name in write_notebook_pages(tmp_path, ROOT):
        text = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
        assert "```python" in text
        assert "```text" not in text


@built_here
def test_a_link_to_a_missing_page_is_an_error(tmp_path: Path) -> None:
    nowhere = ("nothing.md", "#nothing", "../nothing.py", "nothing.svg")
    text = "\n\n".join(["# Title", *(f"[to]({link})" for link in nowhere[:3]), f"![]({nowhere[3]})"])
    (tmp_path / "index.md").write_text(text, encoding="utf-8")
    done = build(tmp_path, tmp_path / "html")
    assert done.returncode != 0
    assert [link for link in nowhere if link.lstrip("#") not in done.stderr] == []
    assert done.stderr.count("WARNING") == len(nowhere)


def test_a_dead_link_and_a_load_from_elsewhere_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#x">b</a><a href="c.html">c</a><a href="https://x.org">x</a><script src="//cdn.org/m.js">'
    )
    (tmp_path / "b.html").write_text('<p id="y">y</p>')
    (tmp_path / "s.css").write_text('@import "https://fonts.org/f.css"; a { background: url(data:x) }')
    result = pages(tmp_path)
    assert list(dead_links(result)) == ["a.html: b.html#x", "a.html: c.html"]
    assert list(fetched(tmp_path, result)) == ["a.html: //cdn.org/m.js", "s.css: https://fonts.org/f.css"]


def test_make_docs_builds_the_site_in_the_same_way_as_these_tests() -> None:
    process = subprocess.run(["make", "-n", "docs"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "-m theorems.site build/docs/source" in process.stdout
    assert " ".join(BUILD[3:-1]) + " docs/site build/docs/source build/docs/html" in process.stdout


def test_a_page_has_the_measured_slacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "verify.json"
    assert main(["verify", "lemma-10", "--examples", "2", "--json", str(path)]) == Exit.UPHELD
    record = json.loads(path.read_text(encoding="utf-8"))
    record["statements"][0]["claims"][0] |= {"worst_slack": -1.25e-7, "tolerance": 2.5e-7}
    path.write_text(json.dumps(record), encoding="utf-8")
    lemma = statements()["lemma-10"]
    shown = statement_page(lemma, Evidence(read(path), {}))
    name = record["statements"][0]["claims"][0]["name"]
    assert re.search(rf"^\| `{name}` \|.*\| 2 \| -1\.25e-07 \| 2\.5e-07 \|", shown, re.MULTILINE)
    assert "On 2 generated cases (seed 0): 2 upheld." in shown
    assert "There is no recorded run of this statement." in statement_page(
        statements()["lemma-9"], Evidence(read(path), {})
    )


def test_a_page_shows_the_counterexample_and_the_faults(made: dict[str, str]) -> None:
    shown = made["statements/theorem-2.md"]
    assert "| 1 | 0 |  | 0.0 | (-1.0, -2.0) |" in shown
    assert "$ theorems replay counterexamples/theorem-2-without-single-input.json" in shown
    named = [fault.name for fault in FAULTS.values() if fault.caught_by == "lemma-3"]
    assert len(named) > 5
    assert [name for name in named if f"| `{name}` |" not in made["statements/lemma-3.md"]] == []


def test_a_page_shows_the_recorded_table_of_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--faults", "sparsemax", "--faults", "svm-with-bias", "--examples", "2", "--markdown"]
    assert main(["power", "lemma-3", "lemma-11", *options]) == Exit.UPHELD
    (tmp_path / RECORDS).mkdir(parents=True)
    (tmp_path / RECORDS / "power.md").write_text(capsys.readouterr().out, encoding="utf-8")
    table = signs(tmp_path) or {}
    assert {name: row["lemma-3"] for name, row in table.items()} == {"sparsemax": "1", "svm-with-bias": ""}
    shown = statement_page(statements()["lemma-3"], Evidence(None, table))
    assert "It catches 1 of the 1 planted faults" in shown
    assert "| `sparsemax` |" in shown


def test_commands_shown_on_the_pages_can_be_run(made: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the ``show`` commands; ``replay`` commands name files that test_every_counterexample_replays replays."""
    monkeypatch.chdir(ROOT)
    kinds = set()
    for name, text in made.items():
        for block in blocks(name, text):
            for shown in commands(block) if block.language == "console" else ():
                sub, given = parsed(shown.command)
                check_names(sub, given)
                if sub == "replay":
                    assert Path(given["file"]).is_file()
                elif sub == "show":
                    assert main(shown.command.split()[1:]) == Exit.UPHELD
                kinds.add(sub)
    assert kinds == {"show", "verify", "replay"}


def test_a_document_outside_every_table_of_contents_becomes_a_guide() -> None:
    assert "docs/new\n" in contents(["README.md", "docs/new.md"]).partition("Statements")[0]


def test_only_a_folder_written_by_the_command_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("theorems.site.source.write_notebook_pages", lambda folder, root: [])
    source = tmp_path / "source"
    write_source(source)
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    for arguments in ([str(tmp_path)], [str(tmp_path / "mine.txt")], []):
        assert write_site(arguments) == Exit.BAD_INPUT
        assert capsys.readouterr().err.startswith("theorems: ")
    assert (tmp_path / "mine.txt").exists()
    (source / "old.md").write_text("# Old", encoding="utf-8")
    assert write_site([str(source)]) == Exit.UPHELD
    assert not (source / "old.md").exists()
