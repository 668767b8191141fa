"""Measures of the size and simplicity of the project, which CONTRIBUTING.md lists in a table.

``python -m tests.facts`` prints the table, ``python -m tests.facts --write`` puts it into CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from statistics import median

from tests.documents import ELSEWHERE, documents, read, without_blocks
from tests.places import ROOT
from tests.test_layers import FILES, files_graph, room_of
from theorems.command.app import app
from theorems.core.implementation import Implementation
from theorems.counterexamples.weakened_statements import entries

WING = "attention_conformance"
LATER_PAPERS = ("transformers_as_svms", "next_token", "steepest_descent", "adaptive_methods")
NOT_COUNTED = {"CHANGELOG.md"}
MARK = "<!-- printed -->"
"""The comment in a document that precedes a table printed by a command."""
HEAD = "| | now | goal |\n|---|---|---|"
PLACE = re.compile(rf"{MARK}\n+{re.escape(HEAD)}\n(?:\|.*\n)*")
INEQUALITY = re.compile(r"\b(?:at_least|at_most|equal|is_equal|Claim)\(")
"""A pattern for a call that makes a claim."""


def words(document: str) -> int:
    """Count the words of a document as :func:`count_words` does."""
    return count_words(read(document))


def count_words(text: str) -> int:
    """Count the words of a text outside printed tables and blocks of commands or code."""
    prose = re.sub(rf"{MARK}\n(?:\|.*\n|\n)*", "", without_blocks(text))
    return len(re.findall(r"\S*\w\S*", prose))


def lines(paths: Iterable[Path]) -> int:
    """Count the lines of the given files."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def files_in(*packages: str) -> list[Path]:
    """Return the source files of the named packages."""
    return [path for name, path in FILES.items() if f"{name}.".startswith(tuple(f"{package}." for package in packages))]


def importers(package: str) -> set[str]:
    """Return the modules that import a package and lie outside it, tests not included."""
    inside = f"{package}."
    graph = files_graph().items()
    return {name for name, others in graph if any(f"{o}.".startswith(inside) for o in others)} - {
        name for name in FILES if f"{name}.".startswith(inside)
    }


def heads() -> Iterator[tuple[int, int, int]]:
    """Yield, for each file with a statement, the number of lines of imports, and the line numbers of the statement's
    ``def`` and of its first claim.
    """
    for path in files_in("theorems"):
        text = path.read_text(encoding="utf-8")
        if not re.search(r"^@statement\(", text, re.MULTILINE):
            continue
        body = ast.parse(text).body
        imports = sum(
            node.end_lineno - node.lineno + 1 for node in body if isinstance(node, ast.Import | ast.ImportFrom)
        )
        defined = next(node.lineno for node in body if isinstance(node, ast.FunctionDef) and node.decorator_list)
        numbered = enumerate(text.splitlines(), start=1)
        yield imports, defined, next((k for k, line in numbered if k > defined and INEQUALITY.search(line)), 0)


def single_users(package: str) -> int:
    """Count the files of a package that exactly one other room (package) imports, and no file of the package itself."""
    graph = files_graph()
    users = {name: {room_of(user) for user, others in graph.items() if name in others} for name in FILES}
    inside = [name for name in FILES if name.startswith(f"{package}.")]
    return sum(len(users[name] - {package}) == 1 and package not in users[name] for name in inside)


def of_all_papers(name: str) -> list[Path]:
    """Return the files of ``theorems.NAME`` and of each later paper's package NAME, which adds to it."""
    return [
        path
        for place in ("theorems", *(f"theorems.{paper}" for paper in LATER_PAPERS))
        for path in files_in(f"{place}.{name}")
    ]


def table() -> str:
    """Return the measures as a Markdown table; a count that nearly every change moves is given as an upper bound."""
    read_by_people = sum(words(document) for document in {*documents(), *ELSEWHERE} - NOT_COUNTED)
    imports, defined, claimed = (round(median(column)) for column in zip(*heads(), strict=True))
    from_outside = " / ".join(
        str(len({room_of(name) for name in importers(f"theorems.{paper}")})) for paper in LATER_PAPERS
    )
    faults, without = of_all_papers("faults"), of_all_papers("without")
    text = "\n".join(path.read_text(encoding="utf-8") for path in faults)
    options = sum(len(command.callback.__annotations__) for command in app.registered_commands if command.callback)
    engine = [name for name in importers(WING) if room_of(name) != "max_margin_theorems"]
    tests = (ROOT / "tests").rglob("*.py")
    rows: Iterable[tuple[str, object, str]] = (
        ("lines of the product", _below(lines(FILES.values()), 500), "≤ 78,000"),
        ("of these in `attention_conformance`", _below(lines(files_in(WING)), 500), "≤ 11,000"),
        ("files of the engine and of papers that import it", len(engine), "0"),
        (
            "rooms that import *Transformers as SVMs* / next tokens / steepest descent / adaptive methods from outside",
            from_outside,
            "0 each",
        ),
        ("fields of `Implementation`", len(fields(Implementation)), "≤ 8"),
        ("classes of faults", len(re.findall(r"^class ", text, re.MULTILINE)), "≤ 15"),
        ("lines of faults", _below(lines(faults), 100), "≤ 3,800"),
        ("weakened statements: lines per entry", round(lines(without) / len(entries())), "≤ 35"),
        (
            "a statement: lines of imports, line of `def`, line of the first claim (medians)",
            f"{imports}, {defined}, {claimed}",
            "≤ 14, ≤ 45, ≤ 90",
        ),
        ("files of `theorems/curves` with one user", single_users("theorems.curves"), "0"),
        ("commands", len(app.registered_commands), "≤ 11"),
        ("options of all commands", options, "≤ 80"),
        ("words of prose in the documents", _below(read_by_people, 500), "≤ 18,000"),
        ("lines of tests", _below(lines(tests), 500), "≤ 42,000"),
    )
    return "\n".join([HEAD, *(f"| {what} | {now} | {goal} |" for what, now, goal in rows)]) + "\n"


def _below(count: int, step: int) -> str:
    return f"< {(count // step + 1) * step:,}"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        made = PLACE.sub(lambda _: f"{MARK}\n\n{table()}", read("CONTRIBUTING.md"))
        (ROOT / "CONTRIBUTING.md").write_text(made, encoding="utf-8")
    else:
        print(table(), end="")
