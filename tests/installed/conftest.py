"""The project as somebody else has it: sdist, wheel of that sdist, both in an environment without this checkout."""

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
"""What a fresh clone does not have: files left by an earlier build would hide what is missing from this one."""


@dataclass(frozen=True)
class Installed:
    """An environment whose only package of its own is the wheel.

    Attributes:
        sdist: the names in it, without the folder that they all lie in.
        python: its interpreter.
        packages: its site-packages.
        wheel: what is installed in it.
    """

    sdist: frozenset[str]
    python: Path
    packages: Path
    wheel: Path

    def run(self, cwd: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """``theorems …`` is the console script, ``python …`` the interpreter; this checkout is on no path."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
        expected = {**kept, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", **variables}
        program = [str(self.python.with_name(command[0])), *command[1:]]
        return subprocess.run(program, cwd=cwd, env=expected, capture_output=True, text=True, timeout=300)


def build(kind: str, source: Path, into: Path) -> Path:
    """The file that the build backend makes, as pip and build call it."""
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(into)!r}))"
    process = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    return into / process.stdout.splitlines()[-1]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Built and installed once."""
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
    """An environment with these wheels: its interpreter, and its site-packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=300)
    python = folder / "bin" / "python"
    install = ["pip", "--python", str(python), "install", "-qq", "--no-deps", "--no-index", *map(str, wheels)]
    subprocess.run([sys.executable, "-m", *install], check=True, timeout=300)
    packages = next((folder / "lib").glob("python*")) / "site-packages"
    # The dependencies of the environment that runs this test; a .pth file does not run those in there, so that no
    # editable install comes along, and what lies in this environment comes first.
    lent = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "lent.pth").write_text("\n".join(lent))
    return python, packages
