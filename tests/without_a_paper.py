"""A clone of the project without one of the later papers, in which all other tests are run.

``python -m tests.without_a_paper transformers_as_svms [PYTEST ARGUMENTS]`` deletes the paper's folders, its tests, and
its line in ``pyproject.toml``. It runs every night for each of the later papers. The tests of documents are left out,
since documents describe all papers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.places import ROOT

PAPERS = ("transformers_as_svms", "steepest_descent", "next_token", "adaptive_methods")
"""The papers that no other part of the project needs."""
NEEDED_BY = {"steepest_descent": ("adaptive_methods",)}
"""For a paper, the papers that need it and are deleted with it."""
FOLDERS = ("theorems", "generators", "tests/theorems", "tests/generators")
"""The folders in which a paper may have its own package or module."""


def delete_slice(paper: str, root: Path) -> None:
    """Delete the folders of a paper and its line in ``pyproject.toml``.

    Raises:
        ValueError: ``pyproject.toml`` has no line for the paper.
    """
    for other in NEEDED_BY.get(paper, ()):
        delete_slice(other, root)
    delete_records(paper, root)
    for folder in FOLDERS:
        shutil.rmtree(root / folder / paper, ignore_errors=True)
        (root / folder / f"{paper}.py").unlink(missing_ok=True)
    project = root / "pyproject.toml"
    lines = project.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if f'"theorems.{paper}:' not in line]
    if len(kept) != len(lines) - 1:
        raise ValueError(f"pyproject.toml has {len(lines) - len(kept)} lines for {paper}, expected 1")
    project.write_text("".join(kept), encoding="utf-8")


def delete_records(paper: str, root: Path) -> None:
    """Delete what is stored about a paper's statements: counterexamples, numbers for tests, rows of documents."""
    text = "".join(path.read_text(encoding="utf-8") for path in (root / "theorems" / paper).rglob("*.py"))
    ids = re.findall(r'^@statement\(\n    "([\w-]+)"', text, re.MULTILINE)
    for id in ids:
        for path in (*root.glob(f"counterexamples/{id}-without-*.json"), *root.glob(f"tests/**/kept/{id}.json")):
            path.unlink()
    line = re.compile(rf"^\| `?({'|'.join(ids)})`? \|")
    path = root / "docs" / "verify.md"
    kept = [item for item in path.read_text(encoding="utf-8").splitlines(keepends=True) if not line.match(item)]
    path.write_text("".join(kept), encoding="utf-8")


def run_without(paper: str, arguments: Sequence[str]) -> int:
    """Run pytest in a clone of the last commit without the paper and return its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "copy"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(root)], check=True)
        delete_slice(paper, root)
        subprocess.run(["git", "add", "--all"], cwd=root, check=True)  # some tests copy all files that git lists
        command = [sys.executable, "-m", "pytest", "--ignore=tests/test_documents.py", *arguments]
        return subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in PAPERS:
        sys.exit(f"usage: python -m tests.without_a_paper {{{','.join(PAPERS)}}} [pytest arguments]")
    sys.exit(run_without(sys.argv[1], sys.argv[2:]))
