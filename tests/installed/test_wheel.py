"""The wheel contains all that its commands read, in any folder; the sdist contains all that its tests read."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.installed.conftest import Installed
from tests.places import ROOT

PACKAGES = ("max_margin_theorems", "attention_conformance", "theorems", "generators", "reference_attention")
KEPT = ("lemma-5-without-single-input.json", "lemma-11-without-strict-optimum.json")
RECORDED = ("counterexamples/*.json",)


def test_every_package_comes_from_the_wheel_and_is_typed(installed: Installed, tmp_path: Path) -> None:
    code = f"import {', '.join(PACKAGES)}; print(*(p.__file__ for p in ({', '.join(PACKAGES)})))"
    done = installed.run(tmp_path, "python", "-c", code)
    folders = [Path(file).parent for file in done.stdout.split()]
    assert folders == [installed.packages / name for name in PACKAGES], done.stderr
    assert all((folder / "py.typed").is_file() for folder in folders)


def test_the_wheel_has_all_records_and_no_tests(installed: Installed) -> None:
    recorded = installed.packages / "theorems" / "recorded"
    for kind in RECORDED:
        here = sorted(ROOT.glob(kind))
        assert here
        assert [path.read_bytes() for path in sorted(recorded.glob(kind))] == [path.read_bytes() for path in here]
    assert {path.name for path in installed.packages.iterdir() if path.suffix != ".pth"} - {
        path.name for path in installed.packages.glob("*.dist-info")
    } == set(PACKAGES)


def test_the_commands_list_and_verify_run_from_the_wheel(installed: Installed, tmp_path: Path) -> None:
    listed = installed.run(tmp_path, "theorems", "list")
    assert listed.returncode == 0, listed.stderr
    assert "theorem-2" in listed.stdout
    done = installed.run(tmp_path, "theorems", "verify", "lemma-3", "--examples", "5", "--json", "found.json")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert [statement["verdict"] for statement in report["statements"]] == ["upheld"]
    assert report["version"] != "not installed"


def test_the_commands_hunt_and_replay_run_from_the_wheel(installed: Installed, tmp_path: Path) -> None:
    done = installed.run(tmp_path, "theorems", "hunt", "lemma-11", "--without", "strict-optimum")
    assert done.returncode == 1, done.stderr
    (file,) = (tmp_path / "hunted").glob("*.json")
    assert installed.run(tmp_path, "theorems", "replay", str(file)).returncode == 1


@contextmanager
def only(folder: Path, names: tuple[str, ...]) -> Iterator[None]:
    """Remove files of other names from the folder within the block: to replay all of them takes a minute, and another
    test does.
    """
    aside = folder.with_name("aside")
    aside.mkdir()
    away = [path for path in folder.iterdir() if path.name not in names]
    for path in away:
        path.rename(aside / path.name)
    try:
        yield
    finally:
        for path in away:
            (aside / path.name).rename(path)
        aside.rmdir()


def test_without_a_folder_the_counterexamples_of_the_wheel_are_read(installed: Installed, tmp_path: Path) -> None:
    with only(installed.packages / "theorems" / "recorded" / "counterexamples", KEPT):
        done = installed.run(tmp_path, "theorems", "list", "counterexamples")
    assert done.returncode == 1  # the removed counterexamples are missing
    assert "lemma-4 without separable: not hunted" in done.stderr
    assert done.stdout.count(" refuted ") == len(KEPT)
    for name in KEPT:
        assert f"{name.removesuffix('.json').replace('-without-', ' without ')}: not hunted" not in done.stderr


def test_the_sdist_has_all_that_the_tests_read(installed: Installed) -> None:
    expected = {
        "conftest.py",
        "constraints.txt",
        "Makefile",
        "setup.py",
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    }
    for folder in (*PACKAGES, "tests", "counterexamples", "docs", "examples", "benchmarks"):
        kept = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        expected |= {str(path.relative_to(ROOT)) for path in kept}
    assert expected <= installed.sdist
    assert not [name for name in installed.sdist if name.endswith(".pyc")]


def test_the_sdist_has_every_file_of_the_repository(installed: Installed) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no repository to compare with")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in listed if (ROOT / name).exists() and name not in installed.sdist] == []
