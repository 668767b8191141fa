"""The functions by which :mod:`theorems.run` uses this package (see :class:`theorems.run.kernel_suite.KernelSuite`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attention_conformance.kernel.kernel_source import under_test_of
from attention_conformance.kernel.profiles import profile_named
from attention_conformance.kernel.reproducer_file import describe_tests, reproducer_file
from attention_conformance.kernel.results_table import (
    capabilities_json,
    failing_combinations,
    in_words,
    kernel_table,
    score_json,
    summary,
)
from theorems.run.result import Result

__all__ = [
    "closing_lines",
    "describe_tests",
    "kernel_table",
    "profile_named",
    "report_json",
    "reproducer_file",
    "under_test_of",
]


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
