"""Shapes and dtypes in signatures are right: ``tests.shapes`` checks them with every statement on a small case."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.places import ROOT
from tests.shapes import INNER_LOOPS, modules


def test_shapes_in_signatures_are_right_in_every_statement() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.shapes"]
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr


def test_modules_exempt_from_the_check_exist() -> None:
    every = {*modules(), *INNER_LOOPS}
    assert all((ROOT / f"{name.replace('.', '/')}.py").exists() for name in every)
    assert len(modules()) > 200
