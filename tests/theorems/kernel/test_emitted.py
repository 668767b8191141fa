"""``--emit-test``: a file that fails on the kernel where this package is not installed, and passes on a right one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import theorems.run.verify
from examples.real_faults.gallery import GALLERY
from tests.places import ROOT
from tests.theorems.capabilities import planted_kernels
from tests.theorems.capabilities.test_planted import PLANTED as PLANTED_KERNELS
from theorems.core.claim import Verdict
from theorems.kernel.check import verify_kernel
from theorems.kernel.emitted_file import file_of
from theorems.kernel.loading import kernel_named
from theorems.run.result import Result

PLANTED = planted_kernels.__name__
RIGHT = {"plain": "with_plain", "sdpa": "with_sdpa", "flash": "with_flash"}
FAULTS = (
    "sum_not_corrected",
    "lse_scaled_twice",
    "dq_of_a_batch",
    "backward_without_mask",
    "heads_by_remainder",
    "window_sees_future",
    "output_strides",
    "backward_other_corner",
)
"""Of the gallery: an interface or an option each."""
REPAIRED = """
import torch
from examples.real_faults.attention import Tiled, with_flash, with_sdpa

warm = scale_of_keys_forgotten = root_of_keys = left_over = with_sdpa(Tiled)
writes_to_its_keys = nan_forward_alone = scaled_by_the_largest_value = one_unit_off = with_sdpa(Tiled)
cap_not_differentiated = with_flash(Tiled)


def unsteady(q, k, v, softmax_scale=None, deterministic=True):
    return cap_not_differentiated(q, k, v, softmax_scale)


def flat(query, keys, values):
    return torch.softmax(query @ keys.mT, dim=-1) @ values
"""
"""The planted kernels without their faults."""
DECOYS = ("theorems", "generators", "reference_attention", "max_margin_theorems")


@pytest.fixture(autouse=True)
def _little_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theorems.run.verify, "SHRINKING_CALLS", 10)


def falsified(source: str, capability: str, dtype: str = "float64", examples: int = 100) -> Result:
    """The result of a kernel that fails."""
    kernel = kernel_named(source, dtype)
    (result,) = verify_kernel(kernel, statements=[f"kernel-{capability}"], examples=examples)
    assert result.verdict is Verdict.FALSIFIED, result.reason
    assert result.failure is not None
    return result


def elsewhere(folder: Path, tests: Mapping[str, str], kernels: Mapping[str, str]) -> dict[str, bool]:
    """Whether each file of tests passes, run by pytest where nothing of ours can be imported.

    Args:
        folder: to be made.
        tests: name → text.
        kernels: path → text of modules that the tests import, beside the gallery.
    """
    (folder / "examples").mkdir(parents=True)
    shutil.copytree(ROOT / "examples" / "real_faults", folder / "examples" / "real_faults")
    for name in DECOYS:
        (folder / f"{name}.py").write_text("raise ImportError('not installed here')\n")
    for path, text in {**{f"test_{name}.py": text for name, text in tests.items()}, **kernels}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *(f"test_{x}.py" for x in tests)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    said = {
        name: [line.startswith("PASSED") for line in done.stdout.splitlines() if f" test_{name}.py::" in line]
        for name in tests
    }
    assert all(len(found) == 1 for found in said.values()), done.stdout
    return {name: found[0] for name, found in said.items()}


def emit(source: str, capability: str, dtype: str, file: str) -> str:
    result = falsified(source, capability, dtype)
    assert result.failure is not None
    assert result.failure.line.startswith(f"kernel-{capability}: ")
    assert result.failure.test.startswith(f"def test_{capability.replace('-', '_')}():")
    return file_of(source, [result.failure.test], file)


def test_it_fails_on_each_fault_and_passes_once_it_is_right(tmp_path: Path) -> None:
    chosen = [fault for fault in GALLERY if fault.name in FAULTS]
    tests = {
        fault.name: emit(f"{fault.kernel.__module__}:attention", fault.capability, "float64", f"test_{fault.name}.py")
        for fault in chosen
    } | {
        f"{name}_{dtype}": emit(f"{PLANTED}:{name}", capability, dtype, f"test_{name}_{dtype}.py")
        for capability, name, _, dtype in PLANTED_KERNELS
        if (name, dtype) != ("warm", "float64")
    }
    planted = Path(*PLANTED.split(".")).with_suffix(".py")
    wrong = {planted.as_posix(): (ROOT / planted).read_text(encoding="utf-8")}
    assert elsewhere(tmp_path / "wrong", tests, wrong) == dict.fromkeys(tests, False)
    right = {
        f"examples/real_faults/{fault.name}.py": (
            f"from examples.real_faults.attention import Tiled, {RIGHT[fault.interface]}\n\n"
            f"attention = {RIGHT[fault.interface]}(Tiled)\n"
        )
        for fault in chosen
    }
    assert elsewhere(tmp_path / "right", tests, right | {planted.as_posix(): REPAIRED}) == dict.fromkeys(tests, True)
