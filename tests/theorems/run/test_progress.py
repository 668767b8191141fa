"""The progress lines of a run."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from theorems.core.claim import Verdict
from theorems.core.under_test import KernelDescription
from theorems.run.description import Description
from theorems.run.events import Started, UnitDone
from theorems.run.progress import Lines
from theorems.run.result import Result

KERNEL = KernelDescription("mine", "mine", "float64", "", {})


@pytest.mark.parametrize(("kernel", "lines"), [(KERNEL, 2), (None, 3)])
def test_progress_skips_statements_that_never_call_the_kernel(kernel: KernelDescription | None, lines: int) -> None:
    stream = io.StringIO()
    print_line = Lines(Console(file=stream, width=100), 3, "examples")
    print_line(Started(Description(kernel=kernel)))
    print_line(UnitDone(Result("kernel-output", "", counts={Verdict.UPHELD: 3}, touched=("attend",))))
    print_line(UnitDone(Result("lemma-10", "", counts={Verdict.NOT_APPLICABLE: 1}, generated=False)))
    print_line(
        UnitDone(Result("kernel-causal", "", counts={Verdict.NOT_APPLICABLE: 1}, generated=False, touched=("attend",)))
    )
    assert len(stream.getvalue().splitlines()) == lines
    assert ("lemma-10" in stream.getvalue()) is (kernel is None)
