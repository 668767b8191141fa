"""The pytest plugin in a user's test suite, which runs in a fork of this process or in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from attention_conformance.interfaces import ALWAYS
from attention_conformance.kernel import check, report  # noqa: F401 - with torch: once, and not in every child
from tests.child_process import in_a_fork
from tests.places import ROOT
from theorems.run.registry.suite import capabilities, on_a_kernel

KERNELS = """
import torch

def right(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v

def wrong(query, keys, values):
    return right(query / 2, keys, values)
"""


PLUGIN = ("-p", "max_margin_theorems.pytest_plugin", "-p", "no:cacheprovider")
"""Options with which pytest loads the plugin as an installed package would."""


def suite(folder: Path, test: str, config: str) -> None:
    """Write a test suite of one file, with kernels and a configuration, to a folder."""
    (folder / "my_kernels.py").write_text(KERNELS)
    (folder / "test_mine.py").write_text(test)
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = .\n{config}")


def run(tmp_path: Path, test: str, *options: str, config: str = "") -> subprocess.CompletedProcess[str]:
    """Run ``pytest`` on a suite of one file, in a fork of this process, which has imported torch and the package."""
    suite(tmp_path, test, config)
    given = [*PLUGIN, f"--rootdir={tmp_path}", *options]
    return in_a_fork(lambda: pytest.main(given), tmp_path, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})


def run_anew(tmp_path: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run ``pytest`` as :func:`run` does, but in a new process, which has imported nothing."""
    suite(tmp_path, test, "")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", *PLUGIN, *options]
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)


ALL = (
    "import my_kernels\n\ndef test_attention_is_softmax(max_margin_theorems):\n    max_margin_theorems(my_kernels.{})\n"
)
EACH = "import my_kernels\n\ndef test_attention(max_margin_theorem):\n    max_margin_theorem(my_kernels.{})\n"


def test_a_test_of_two_lines_passes_for_a_right_kernel(tmp_path: Path) -> None:
    process = run_anew(tmp_path, ALL.format("right"), "--max-margin-examples", "1")
    assert process.returncode == 0, process.stdout
    assert "1 passed" in process.stdout


def test_a_test_of_two_lines_fails_for_a_wrong_kernel_with_a_readable_case(tmp_path: Path) -> None:
    text = ALL.format("wrong").replace("wrong)", "wrong, statements=['lemma-3'], examples=10)")
    process = run(tmp_path, text)
    assert process.returncode == 1
    for message in (
        "AssertionError",
        "lemma-3",
        "falsified",
        "the smallest failing case found",
        "assert_kernel(",
    ):
        assert message in process.stdout


def test_the_fixture_max_margin_theorem_makes_a_test_of_each_statement(tmp_path: Path) -> None:
    process = run(tmp_path, EACH.format("right"), "--max-margin-examples", "1", "-v")
    assert process.returncode == 0, process.stdout
    assert "test_attention[lemma-3] PASSED" in process.stdout
    assert "test_attention[kernel-output] PASSED" in process.stdout
    assert "test_attention[kernel-causal] SKIPPED" in process.stdout
    tried = len(ALWAYS) + 3  # three: one for each coarser number format
    assert f"{tried + len(on_a_kernel())} passed, {len(capabilities()) - tried} skipped" in process.stdout


DECORATED = """
import my_kernels
from max_margin_theorems import parametrize_with_statements

@parametrize_with_statements({}, examples=1)
def test_attention(check):
    check()
"""


def test_the_decorator_makes_a_test_of_each_applicable_statement(tmp_path: Path) -> None:
    """Capabilities that the kernel does not declare have no test."""
    alone = DECORATED.format("my_kernels.right").replace(", examples=1", "")
    process = run(tmp_path, alone, "--collect-only", "-q", "--strict-markers")
    result = [line.partition("[")[2].rstrip("]") for line in process.stdout.splitlines() if "::test_attention[" in line]
    formats = ("float32", "bfloat16", "float16")
    own = [id for id in capabilities() if id.removeprefix("kernel-") in (*ALWAYS, *formats)]
    assert result == [*own, *on_a_kernel()]
    told = run(tmp_path, DECORATED.format("my_kernels.right"), "-k", "kernel-output or kernel-memory", "-v")
    assert told.returncode == 0, told.stdout
    assert "test_attention[kernel-memory] PASSED" in told.stdout
    assert "2 passed" in told.stdout


def test_a_decorated_test_fails_for_a_wrong_kernel_and_for_no_kernel(tmp_path: Path) -> None:
    wrong = DECORATED.format("'my_kernels:wrong', statements=['kernel-output', 'kernel-gradients']").replace(
        "=1", "=10"
    )
    process = run(tmp_path, wrong)
    assert process.returncode == 1
    assert "2 failed" in process.stdout
    assert "output at (b, h, l, m) = " in process.stdout
    none = run(tmp_path, DECORATED.format("3"))
    assert none.returncode == 1
    assert "test_attention[no-kernel]" in none.stdout
    assert "--attention: int is of type int and cannot be called" in none.stdout


def test_the_kernel_may_come_from_an_option_or_the_configuration(tmp_path: Path) -> None:
    text = "def test_it(max_margin_theorems):\n    max_margin_theorems(statements=['lemma-3'])\n"
    named = run(tmp_path, text, "--max-margin-attention", "my_kernels:right", "--max-margin-examples", "2")
    assert named.returncode == 0, named.stdout
    config = "max_margin_attention = my_kernels:right\nmax_margin_examples = 2\nmax_margin_dtype = float32\n"
    assert run(tmp_path, text, config=config).returncode == 0
    nothing = run(tmp_path, text)
    assert nothing.returncode == 1
    assert "pass a kernel to the fixture" in nothing.stdout


@pytest.mark.parametrize("kernel", ["3", "lambda q, k, v: None", "'my_kernels:nothing'"])
def test_the_fixture_fails_for_an_object_that_is_not_a_kernel(tmp_path: Path, kernel: str) -> None:
    process = run(tmp_path, f"def test_it(max_margin_theorems):\n    max_margin_theorems({kernel})\n")
    assert process.returncode == 1
    assert "AssertionError: --attention:" in process.stdout


def test_the_plugin_imports_nothing_where_it_is_not_used(tmp_path: Path) -> None:
    text = (
        "import sys\n\ndef test_nothing_is_imported():\n"
        "    heavy = {'torch', 'hypothesis', 'numpy', 'reference_attention', 'generators', 'theorems',\n"
        "             'attention_conformance'}\n"
        "    assert not heavy & set(sys.modules)\n"
    )
    process = run_anew(tmp_path, text)
    assert process.returncode == 0, process.stdout


def test_the_package_declares_the_plugin() -> None:
    assert 'max_margin_theorems = "max_margin_theorems.pytest_plugin"' in (ROOT / "pyproject.toml").read_text()
