"""Torch is needed only for kernels: without torch all statements are verified, and a kernel is refused in one
sentence.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.installed.conftest import Installed
from theorems.run.registry.suite import statements

EXTRAS = ("torch", "matplotlib", "cvxpy", "mpmath", "beartype", "pytest")
"""Packages that an installation without extras may lack."""
SENTENCE = (
    "attention kernels compute on torch tensors, and torch is not installed;"
    ' pip install "max-margin-theorems[kernels]".'
)


BLOCKED = f"""import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""
"""Source text that makes the extras look as if they were not installed: none can be imported."""


@pytest.fixture
def without(tmp_path: Path) -> str:
    """Return a folder for PYTHONPATH that keeps processes from importing the extras."""
    folder = tmp_path / "blocked"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLOCKED, encoding="utf-8")
    return str(folder)


def test_every_statement_is_verified_without_torch(installed: Installed, tmp_path: Path, without: str) -> None:
    assert installed.run(tmp_path, "python", "-c", "import torch", PYTHONPATH=without).returncode == 1
    given = ["--examples", "1", "--jobs", "2", "--json", "found.json"]
    done = installed.run(tmp_path, "theorems", "verify", *given, PYTHONPATH=without)
    report = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["statements"]
    assert [item["id"] for item in report] == list(statements())
    # A statement with several outcomes may be undecided after one example, but none may be falsified.
    assert {item["verdict"] for item in report} <= {"upheld", "not-applicable"}, done.stdout
    assert {"lemma-1", "theorem-1", "theorem-6"} <= {item["id"] for item in report if item["verdict"] == "upheld"}


def test_without_torch_a_kernel_is_refused_in_one_sentence(installed: Installed, tmp_path: Path, without: str) -> None:
    given = ["verify", "lemma-3", "--attention", "attention:attend", "--dtype", "float32"]
    done = installed.run(tmp_path, "theorems", *given, PYTHONPATH=without)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"theorems: {SENTENCE}\n")


def test_without_torch_the_pytest_plugin_refuses_a_kernel_in_the_same_sentence(
    installed: Installed, tmp_path: Path, without: str
) -> None:
    Path(without, "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    (tmp_path / "test_mine.py").write_text(
        "def test_mine(max_margin_theorems):\n    max_margin_theorems(lambda q, k, v: v)\n"
    )
    given = ["-m", "pytest", "-p", "no:cacheprovider", "test_mine.py"]
    done = installed.run(tmp_path, "python", *given, PYTHONPATH=without)
    assert done.returncode == 1
    assert f"\n{SENTENCE}\n" in done.stdout
    assert "Error" not in done.stdout
