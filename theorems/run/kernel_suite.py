"""The conformance suite for attention kernels, which an extension brings, as a protocol that the engine knows."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rich.table import Table

from max_margin_theorems.extensions import extensions
from reference_attention.errors import InvalidInput
from theorems.core.kernel_use import KernelUse
from theorems.core.under_test import UnderTest
from theorems.run.result import Result


@runtime_checkable
class Profile(Protocol):
    """Selection of what is tried on a kernel, as ``--profile`` names it."""

    @property
    def examples(self) -> int:
        """Number of calls for each capability."""

    @property
    def cases(self) -> int:
        """Number of cases for each statement of a paper."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """Ids of the statements that are not tried."""

    @property
    def deep(self) -> bool:
        """True if checks that take long are included."""

    @property
    def patience(self) -> float:
        """Seconds that a case is given at least."""

    def says(self, ids: Sequence[str] = ()) -> str:
        """Describe for a reader what the profile leaves out, or adds, if these statements or all are tried."""


@runtime_checkable
class KernelSuite(Protocol):
    """Functions of a module that offers ``--attention``."""

    def under_test_of(
        self,
        kernel: Any,
        dtype: str | None = None,
        interface: str | None = None,
        device: str | None = None,
        *,
        deep: bool = False,
    ) -> UnderTest:
        """Return the object under test for a kernel, which is given as an object or as ``MODULE:CALLABLE``.

        Raises:
            InvalidInput: the object is no kernel.
        """

    def profile_named(self, name: str) -> Profile:
        """Return the profile of that name.

        Raises:
            InvalidInput: there is no such profile.
        """

    def kernel_table(self, results: Sequence[Result], uses: Mapping[str, KernelUse | None]) -> Table:
        """Return a table of each statement's verdict on the kernel."""

    def closing_lines(self, results: Sequence[Result], kernel: Mapping[str, Any]) -> str:
        """Return the last lines of a report."""

    def report_json(self, results: Sequence[Result]) -> dict[str, Any]:
        """Return the entries of ``--json`` about the kernel, beside its description."""

    def reproducer_file(self, source: str | None, results: Sequence[Result], file: Path | None) -> str:
        """Return the source of a test file whose tests fail on the kernel; empty where there are none."""

    def describe_tests(self, results: Sequence[Result], file: Path) -> str:
        """Describe which tests were written, and which were not."""


@cache
def kernel_suite() -> KernelSuite:
    """Return the conformance suite for attention kernels.

    Raises:
        InvalidInput: no installed package has one.
    """
    places = [extension.kernels for extension in extensions() if extension.kernels]
    if not places:
        raise InvalidInput("--attention: no installed package tests kernels; install attention_conformance.")
    suite: Any = importlib.import_module(places[0])
    return suite
