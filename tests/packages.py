"""Python packages that contribute a paper, as pip would install them: a folder of modules, and metadata with an entry
point.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.places import ROOT

A_PAPER = ROOT / "examples" / "a_paper"
"""The template of such a package, which docs/publish.md explains."""

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
    """Make a package with a paper in the folder ``site``, and return the package's folder.

    Args:
        site: the folder in which packages are installed.
        package: the package's name.
        version: the package's version.
        entry: the name of the entry point; the package's name by default.
        value: the object to which the entry point refers; ``PACKAGE:PAPER`` by default.
        paper: source text of the arguments of ``Paper`` after title and source; the room ``PACKAGE.rooms`` by default.
        modules: the text of further modules, by file name.
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
    """Return the text of ``rooms.py``, a room with one statement, by file name."""
    return {"rooms.py": STATEMENT.format(id=id, assumption=assumption, before=before)}


def install_example(site: Path) -> None:
    """Install the template of a paper, unchanged, by a link."""
    folder = install(site, "a_paper", version="0.1.0")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.symlink_to(A_PAPER / "a_paper")


def run(site: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python with this checkout and the packages in ``site`` first on its path."""
    path = os.pathsep.join((str(ROOT), str(site)))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd or site, env=environment, capture_output=True, text=True, timeout=300)


def theorems(site: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``theorems`` with the packages in ``site`` installed."""
    return run(site, "-m", "theorems", *arguments, cwd=cwd)
