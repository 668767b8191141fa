"""Packages with papers as pip would install them: a folder with modules and metadata, which is put on the path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.places import ROOT

A_PAPER = ROOT / "examples" / "a_paper"
"""The template that docs/publish.md explains."""

STATEMENT = '''
from collections.abc import Iterator

from theorems.api import Assumption, Case, Claim, Finding, Form, Implementation, at_least, statement

{before}

def small(case: Case) -> Finding:
    """There are at most five tokens."""
    return Finding(case.problem.T <= 5, f"T = {{case.problem.T}}")


@statement("{id}", assumptions=(Assumption("{assumption}", "few tokens", "own", small),))
def few(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """T ≤ 5."""
    yield at_least("few", Form.EXACT, 5.0, float(case.problem.T), rounding=0.0, why="exact")
'''


def install(
    site: Path,
    package: str,
    *,
    version: str = "1.0",
    entry: str = "",
    value: str = "",
    paper: str = "",
    modules: dict[str, str] | None = None,
) -> Path:
    """Make the package's folder in ``site``, and return it.

    Args:
        entry: name of its entry point, that of the package by default.
        value: what it refers to, ``PACKAGE:PAPER`` by default.
        paper: arguments of its Paper beside title and source; empty for a paper without a room.
        modules: further files by name.
    """
    entry, value = entry or package.replace("_", "-"), value or f"{package}:PAPER"
    info = site / f"{package}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[max_margin_theorems.papers]\n{entry} = {value}\n")
    folder = site / package
    folder.mkdir()
    made = f'PAPER = Paper("Title of {package}", "somewhere", {paper or repr(f"{package}.rooms")})\n'
    (folder / "__init__.py").write_text(f"from max_margin_theorems.papers import Paper\n\n{made}")
    for name, text in {"rooms.py": "", **(modules or {})}.items():
        (folder / name).write_text(text)
    return folder


def stated(id: str = "few-tokens", assumption: str = "few", before: str = "") -> dict[str, str]:
    """Return the modules of a room with one statement."""
    return {"rooms.py": STATEMENT.format(id=id, assumption=assumption, before=before)}


def install_example(site: Path) -> None:
    """Install the template unchanged."""
    folder = install(site, "a_paper", version="0.1.0")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.symlink_to(A_PAPER / "a_paper")


def run(site: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python with this checkout and the packages; installed metadata of ours are hidden."""
    path = os.pathsep.join((str(ROOT), str(site)))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd or site, env=environment, capture_output=True, text=True, timeout=300)


def theorems(site: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return run(site, "-m", "theorems", *arguments, cwd=cwd)
