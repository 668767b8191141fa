"""Another processor computes other last digits, but gives the same verdicts on the same cases.

Other processors are emulated: an environment variable makes OpenBLAS use the routines of another processor; a second
    one
makes NumPy leave out certain instructions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

from reference_attention.floats import EPS
from tests.places import ROOT

STATEMENTS = {"lemma-3": 8, "lemma-8": 6, "lemma-12": 8, "theorem-1": 2, "theorem-2": 1}
"""Statements, with the number of examples of each."""

SCRIPT = """
import json, sys
from theorems.run.registry.lookup import statement_named
from theorems.run.verify import draw_cases, verify_generated

found = {}
for id, examples in json.loads(sys.argv[1]).items():
    result = verify_generated(id, examples, 0)
    cases = [[case.problem.keys.tolist(), case.problem.scores.tolist(), case.problem.loss.name, case.seed]
             for case in draw_cases(statement_named(id), examples, 0)]
    claims = {claim.name: [str(claim.verdict), claim.cases] for claim in result.claims}
    found[id] = [str(result.verdict), {str(v): n for v, n in result.counts.items()}, claims, cases]
print(json.dumps(found))
"""


def _dispatched() -> str:
    """Return the instruction sets that NumPy uses here and can do without."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return " ".join(name for name in __cpu_dispatch__ if __cpu_features__.get(name))


@cache
def _found(variable: str, value: str) -> dict[str, list[Any]]:
    given = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | ({variable: value} if variable else {})
    command = [sys.executable, "-c", SCRIPT, json.dumps(STATEMENTS)]
    process = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return dict(json.loads(process.stdout))


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OPENBLAS_CORETYPE", "Prescott"), ("OPENBLAS_CORETYPE", "Haswell"), ("NPY_DISABLE_CPU_FEATURES", _dispatched())],
)
def test_cases_and_verdicts_do_not_depend_on_the_processor(variable: str, value: str) -> None:
    if not value:
        pytest.skip("NumPy uses no instructions here that it can do without")
    here, there = _found("", ""), _found(variable, value)
    for id in STATEMENTS:
        assert there[id][:3] == here[id][:3], id
        for first, second in zip(here[id][3], there[id][3], strict=True):
            assert first[2:] == second[2:]
            for ours, theirs in zip(first[:2], second[:2], strict=True):
                # Keys are sums of products, so between processors they differ by a few roundings of their size.
                scale = np.abs(ours).max()
                assert np.abs(np.array(ours) - np.array(theirs)).max() <= 64 * EPS * scale
