"""``--emit-test``: a file that, without this package installed, fails on the wrong kernel and passes on a right one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import attention_conformance.claims.call_shrinker
import theorems.run.verify
from attention_conformance.kernel.check import verify_kernel
from attention_conformance.kernel.kernel_loader import kernel_named
from attention_conformance.kernel.reproducer_file import file_of
from attention_conformance.kernel.sizes import Taken
from examples.real_faults.gallery import TILED_FAULTS
from tests.attention_conformance.claims import planted_kernels
from tests.attention_conformance.claims.test_planted_kernels import PLANTED as PLANTED_KERNELS
from tests.attention_conformance.kernel.test_emitted_tests import ROWS
from tests.places import ROOT
from theorems.command.app import main
from theorems.core.claim import Verdict
from theorems.run.result import Result

PLANTED = planted_kernels.__name__
FAULTS = ("sum_not_corrected", "lse_scaled_twice", "output_strides")
"""Names of faults in the gallery, each of another interface or option."""
RUN_HERE = {(row.wrong, row.dtype) for row in ROWS}
"""Wrong kernels, each with a number format, whose emitted tests are already run by test_emitted_tests, which also
checks the imports of these tests.
"""
REPAIRED = """
import torch
from examples.real_faults.attention import Tiled, with_sdpa

warm = zeros_forward_alone = one_unit_off = with_sdpa(Tiled)


def nan_of_other_rows(query, key, value, attn_mask=None, scale=None):
    logits = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    return torch.softmax(logits.masked_fill(~attn_mask, -torch.inf), dim=-1) @ value


nan_of_other_entries = nan_of_other_rows  # NaN without a gradient
"""
"""Source text of a module that has the planted kernels' names, but not their faults."""
DECOYS = ("theorems", "generators", "reference_attention", "max_margin_theorems", "attention_conformance")


@pytest.fixture(autouse=True)
def _little_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theorems.run.verify, "SHRINKING_CALLS", 4)


def falsified(source: str, capability: str, dtype: str = "float64", examples: int = 20) -> Result:
    """Return the result of testing a capability of a wrong kernel, which must be falsified."""
    kernel = kernel_named(source, dtype)
    (result,) = verify_kernel(kernel, statements=[f"kernel-{capability}"], examples=examples)
    assert result.verdict is Verdict.FALSIFIED, result.reason
    assert result.failure is not None
    return result


def elsewhere(folder: Path, tests: Mapping[str, str], kernels: Mapping[str, str]) -> dict[str, bool]:
    """Return, for each test, whether its file passes under pytest where this package cannot be imported.

    Args:
        folder: the folder that is made for all files.
        tests: the text of each test file, by the test's name.
        kernels: the text of the modules that the tests import besides the gallery, by path.
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
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    output = {
        name: [line.startswith("PASSED") for line in process.stdout.splitlines() if f" test_{name}.py::" in line]
        for name in tests
    }
    assert all(len(result) == 1 for result in output.values()), process.stdout
    return {name: result[0] for name, result in output.items()}


def emit(source: str, capability: str, dtype: str, file: str) -> str:
    result = falsified(source, capability, dtype)
    assert result.failure is not None
    assert result.failure.line.startswith(f"kernel-{capability}: ")
    assert result.failure.test.startswith(f"def test_{capability.replace('-', '_')}():")
    return file_of(source, [result.failure.test], file)


def test_an_emitted_test_fails_on_the_fault_and_passes_on_the_repaired_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_conformance.claims.call_shrinker, "TRIALS", 40)
    monkeypatch.setattr(Taken, "may_be_huge", False)  # no calls with 65,537 keys, which take twenty seconds
    chosen = [fault for fault in TILED_FAULTS if fault.name in FAULTS]
    tests = {
        fault.name: emit(
            f"{fault.kernel.__module__}:{fault.name}", fault.capability, "float64", f"test_{fault.name}.py"
        )
        for fault in chosen
    } | {
        f"{name}_{dtype}": emit(f"{PLANTED}:{name}", capability, dtype, f"test_{name}_{dtype}.py")
        for capability, name, _, dtype in PLANTED_KERNELS
        if (name, dtype) != ("warm", "float64") and (f"{PLANTED}:{name}", dtype) not in RUN_HERE
    }
    planted = Path(*PLANTED.split(".")).with_suffix(".py")
    wrong = {planted.as_posix(): (ROOT / planted).read_text(encoding="utf-8")}
    assert elsewhere(tmp_path / "wrong", tests, wrong) == dict.fromkeys(tests, False)
    imported = "from examples.real_faults.attention import tiled, tiled_plain, tiled_sdpa\n\n"
    right = {
        f"{module.replace('.', '/')}.py": imported
        + "".join(
            f"{statement.name} = {statement.right.__name__}\n"
            for statement in chosen
            if statement.kernel.__module__ == module
        )
        for module in {fault.kernel.__module__ for fault in chosen}
    }
    assert elsewhere(tmp_path / "right", tests, right | {planted.as_posix(): REPAIRED}) == dict.fromkeys(tests, True)


def test_the_command_writes_the_test_file_and_lists_its_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["--attention", f"{PLANTED}:one_unit_off", "--examples", "3", "--jobs", "0", "--dtype", "float64"]
    assert main(["verify", "kernel-output", "kernel-gradients", *given, "--emit-test", "test_mine.py"]) == 1
    output = capsys.readouterr().out
    assert "test_mine.py: fails for kernel-output, kernel-gradients; run it with pytest test_mine.py." in output
    text = Path("test_mine.py").read_text(encoding="utf-8")
    assert text.count("def test_") == 2
    assert f"from {PLANTED} import one_unit_off as kernel" in text
    compile(text, "test_mine.py", "exec")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.run(
        [sys.executable, "test_mine.py"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 1
    assert [line.partition(" at ")[0] for line in process.stdout.splitlines()] == [
        "test_output: AssertionError: output",
        "test_gradients: AssertionError: dQ",
    ]


def test_without_a_falsified_kernel_statement_no_test_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    right = ["--attention", "examples.real_faults.attention:tiled", "--examples", "1", "--jobs", "0"]
    assert main(["verify", "kernel-scale", *right, "--emit-test", "test_mine.py"]) == 0
    assert "test_mine.py: not written, as nothing is falsified." in capsys.readouterr().out
    assert not Path("test_mine.py").exists()
    assert main(["verify", "kernel-scale", "--emit-test", "test_mine.py"]) == 2
    assert "--emit-test writes tests of a kernel; give the kernel with --attention." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "capability", "dtype", "message"),
    [
        ("unsteady", "repeated-calls", "float64", "the same call twice gives other bits; perhaps the order of a sum"),
        (
            "writes_to_its_keys",
            "memory",
            "float64",
            "the kernel writes to its arguments, or beside them; no single option explains it.",
        ),
        ("nan_forward_alone", "empty-rows", "float64", "rows that see no key are neither all 0 nor all NaN; "),
        ("scale_of_keys_forgotten", "scale", "float64", "dK at (b, g, t, e) = ("),
        ("scale_of_keys_forgotten", "scale", "float64", "perhaps the backward pass lacks the factor scale"),
        ("one_unit_off", "exact-weights", "bfloat16", "output at (b, h, l, m) = (0, 0, 0, "),
    ],
)
def test_the_diagnosis_says_where_by_how_much_and_perhaps_why(
    name: str, capability: str, dtype: str, message: str
) -> None:
    result = falsified(f"{PLANTED}:{name}", capability, dtype)
    assert result.failure is not None
    assert message in result.failure.line
    assert result.as_json()["diagnosis"] == result.failure.line
    assert "\n" not in result.failure.line


def test_the_diagnosis_recognises_base_two_and_a_running_maximum_that_starts_too_high() -> None:
    lines = []
    for name, capability in (
        ("log_sum_exp:lse_in_base_two", "log-sum-exp"),
        ("softmax_and_strides:finite_first_maximum", "output"),
    ):
        result = falsified(f"examples.real_faults.{name}", capability)
        assert result.failure is not None
        lines.append(result.failure.line)
    assert "perhaps the logarithm is to the base 2" in lines[0]
    assert "all far below 0: a running maximum that does not start at −∞" in lines[1]
