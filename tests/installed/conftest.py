"""The project as a user has it: an sdist, a wheel of that sdist, and the wheel in an environment without
this checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.places import ROOT

NOT_SOURCES = (
    ".*cache",
    ".git",
    ".venv",
    ".hypothesis",
    ".benchmarks",
    "__pycache__",
    "*.egg-info",
    "build",
    "dist",
    "mutants",
)
"""Files that a fresh clone lacks: those left by an earlier build would hide what is missing from this build."""


@dataclass(frozen=True)
class Installed:
    """An environment in which only the wheel is installed.

    Attributes:
        sdist: the names of files in the sdist, without the folder that contains them all.
        python: the interpreter.
        packages: the folder ``site-packages``.
        wheel: the wheel that is installed.
    """

    sdist: frozenset[str]
    python: Path
    packages: Path
    wheel: Path

    def run(self, cwd: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command: ``theorems …`` is the console script, ``python …`` the interpreter, and this checkout is on no
        path.
        """
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
        expected = {**kept, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", **variables}
        program = [str(self.python.with_name(command[0])), *command[1:]]
        return subprocess.run(program, cwd=cwd, env=expected, capture_output=True, text=True, timeout=300)


def build(kind: str, source: Path, into: Path) -> Path:
    """Return the file that the build backend makes, called as pip and build call it."""
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(into)!r}))"
    process = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    return into / process.stdout.splitlines()[-1]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build and install the project once."""
    top = tmp_path_factory.mktemp("installed")
    shutil.copytree(ROOT, top / "clone", ignore=shutil.ignore_patterns(*NOT_SOURCES))
    sdist = build("sdist", top / "clone", top)
    with tarfile.open(sdist) as archive:
        archive.extractall(top / "unpacked", filter="data")
    (unpacked,) = (top / "unpacked").iterdir()
    names = frozenset(str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file())
    wheel = build("wheel", unpacked, top)

    python, packages = environment(top / "venv", wheel)
    return Installed(names, python, packages, wheel)


def environment(folder: Path, *wheels: Path) -> tuple[Path, Path]:
    """Return the interpreter and the site-packages of an environment with the given wheels."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=300)
    python = folder / "bin" / "python"
    install = ["pip", "--python", str(python), "install", "-qq", "--no-deps", "--no-index", *map(str, wheels)]
    subprocess.run([sys.executable, "-m", *install], check=True, timeout=300)
    packages = next((folder / "lib").glob("python*")) / "site-packages"
    # Dependencies come from the environment that runs this test. A .pth file does not run the .pth files found there,
    # so that no editable install comes along, and packages of this environment come first.
    lent = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "lent.pth").write_text("\n".join(lent))
    return python, packages
