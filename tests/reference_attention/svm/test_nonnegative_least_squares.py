"""Non-negative least squares on problems where SciPy's solver ends the interpreter or raises."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

import attention_conformance
import generators
import reference_attention
import theorems
from reference_attention.svm.nonnegative_least_squares import nonnegative_least_squares


def test_weights_and_residual_are_those_found_by_hand() -> None:
    u, residual = nonnegative_least_squares(np.eye(2), np.array([3.0, -4.0]))
    assert u == pytest.approx([3, 0])
    assert residual == pytest.approx(4)


@pytest.mark.parametrize("columns", [0, 1, 5])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_without_rows_or_columns_the_residual_is_the_length_of_the_target(rows: int, columns: int) -> None:
    u, residual = nonnegative_least_squares(np.zeros((rows, columns)), np.full(rows, 2.0))
    assert u.tolist() == [0.0] * columns
    assert residual == pytest.approx(2 * math.sqrt(rows))


def test_a_failed_solver_has_an_infinite_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nonnegative_least_squares(np.full((2, 2), np.nan), np.ones(2))[1] == math.inf

    def stop(*arguments: object) -> None:
        raise RuntimeError("too many iterations")

    monkeypatch.setattr("reference_attention.svm.nonnegative_least_squares.nnls", stop)
    assert nonnegative_least_squares(np.eye(2), np.ones(2))[1] == math.inf


def test_only_one_module_calls_the_solver_of_scipy() -> None:
    packages = (attention_conformance, reference_attention, generators, theorems)
    files = [path for package in packages for path in Path(package.__path__[0]).rglob("*.py")]
    call = re.compile(r"^from scipy.*\bnnls\b|optimize\.nnls\(", re.MULTILINE)
    users = [path.name for path in files if call.search(path.read_text())]
    assert users == ["nonnegative_least_squares.py"]
