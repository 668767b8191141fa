"""The file that ``--emit-test`` writes: the textbook formula in float64, and a test for each falsified capability."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attention_conformance.kernel.callable_import import MODEL
from theorems.core.claim import Verdict
from theorems.run.result import Result

HEAD = '''"""Calls on which {source} is wrong, as theorems verify --attention found them.

Needs only torch and the kernel: pytest {file}, or python {file}.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, os.getcwd())  # where the kernel was found
{kernel}

'''
TAIL = """

if __name__ == "__main__":
    failed = 0
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            try:
                test()
            except Exception as error:
                failed = 1
                print(f"{name}: {type(error).__name__}: {error}")
    sys.exit(failed)
"""


def reproducer_file(source: str | None, results: Sequence[Result], file: Path | None) -> str:
    """Return the text of ``file``, with the tests in ``results`` of the kernel ``source``; empty without tests."""
    tests = [result.failure.test for result in results if result.failure is not None and result.failure.test]
    return file_of(source, tests, file.name) if source and tests and file is not None else ""


def describe_tests(results: Sequence[Result], file: Path) -> str:
    """Return a text that says for which results ``file`` has tests, and why it has none for the other failures."""
    falsified = [result for result in results if result.verdict is Verdict.FALSIFIED and result.failure is not None]
    written = [result.id for result in falsified if result.failure is not None and result.failure.test]
    without = {
        result.id: result.failure.no_test or "a statement of the paper, whose test would need this package"
        for result in falsified
        if result.failure is not None and not result.failure.test
    }
    text = f"{file}: fails for {', '.join(written)}; run it with pytest {file}" if written else f"{file}: not written"
    if not falsified:
        text += ", as nothing is falsified"
    return "\n".join([f"{text}.", *(f"no test of {id}: {why}." for id, why in without.items())])


def file_of(source: str, tests: Sequence[str], file: str) -> str:
    """Return the text of a Python file that contains the given tests of a kernel.

    Args:
        source: the kernel, as MODULE:CALLABLE or path.py:CALLABLE.
        tests: the source of each test function.
        file: the name of the file, for its docstring.
    """
    from attention_conformance.kernel.reproducer import functions_of  # only this function needs torch

    module, _, path = source.partition(":")
    import_line = f"from {module} import {path} as kernel  # noqa: E402"
    within = f"import {module} as where  # noqa: E402\n\nkernel = where.{path}"
    if module.endswith(".py"):
        within = f"import runpy  # noqa: E402\n\nwhere = runpy.run_path({module!r})\nkernel = where[{path!r}]"
        model = f"{within}(*where['get_init_inputs']()).eval()"
    else:
        model = f"{within}(*where.get_init_inputs()).eval()"
    kernel = within if "." in path or module.endswith(".py") else import_line
    head = HEAD.format(source=source, file=file, kernel=model if path == MODEL else kernel)
    return head + functions_of(tests) + "".join(f"\n\n{test}\n" for test in tests) + TAIL
