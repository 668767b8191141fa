"""The functions by which :mod:`theorems.run` uses this package (see :class:`theorems.run.kernel_suite.KernelSuite`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attention_conformance.calls.call_text import npz_of
from attention_conformance.claims.capabilities import capability_of
from attention_conformance.kernel.kernel_source import under_test_of
from attention_conformance.kernel.profiles import profile_named
from attention_conformance.kernel.results_table import (
    call_of,
    capabilities_json,
    failing_combinations,
    in_words,
    kernel_table,
    score_json,
    summary,
)
from reference_attention.files import from_json
from theorems.run.result import Failure, Result

__all__ = [
    "call_file",
    "closing_lines",
    "kernel_table",
    "profile_named",
    "report_json",
    "test_to_paste",
    "under_test_of",
]


def call_file(
    id: str, failure: Failure, kernel: Mapping[str, Any], interface: str | None, device: str | None
) -> bytes | None:
    """Return a .npz file of the call that failed, with the options of the run; None if no call failed.

    Args:
        id: the id of the statement.
        failure: the failure.
        kernel: the description of the kernel in JSON.
        interface: the option ``--interface``.
        device: the option ``--device``.
    """
    call = call_of(failure)
    if call is None:
        return None
    dtype = kernel["dtype"] if kernel["dtype"] == kernel["computes_in"] else "auto"
    return npz_of(
        call,
        case_of=id,
        claim=from_json(failure.case).get("claim"),
        kernel_dtype=capability_of(id).format or dtype,
        kernel_interface=interface,
        kernel_device=device,
    )


def test_to_paste(source: str, files: Mapping[str, Path]) -> str:
    """Return the source of a test for each file of a failing call, by the id of the statement that failed."""
    module, _, path = source.partition(":")
    by_name = all(name.isidentifier() for name in (*module.split("."), *path.split("."))) and module[-3:] != ".py"
    kernel = path if by_name else f'"{source}"'
    imports = [f"from {module} import {path.partition('.')[0]}"] * by_name
    tests = (
        f'def test_{id.replace("-", "_")}(): check_call({kernel}, "{file.as_posix()}")' for id, file in files.items()
    )
    return "\n".join(["from attention_conformance import check_call", *imports, *tests])


def report_json(results: Sequence[Result]) -> dict[str, Any]:
    """Return the entries that ``--json`` adds to a kernel's description: verdicts, failing options and a score."""
    return {
        "capabilities": capabilities_json(results),
        "fails_with": failing_combinations(results),
        "score": score_json(results),
    }


def closing_lines(results: Sequence[Result], kernel: Mapping[str, Any]) -> str:
    """Return the last lines of a kernel's report: the options that fail together, and the verdict on the kernel."""
    return "\n".join(filter(None, (in_words(failing_combinations(results)), summary(results, kernel))))
