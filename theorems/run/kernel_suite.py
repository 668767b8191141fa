"""Protocol of the conformance suite for attention kernels; an installed extension implements it."""

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
from theorems.run.result import Failure, Result


@runtime_checkable
class Profile(Protocol):
    """Protocol of a selection of the checks of a kernel, named by ``--profile``."""

    @property
    def examples(self) -> int:
        """Number of calls of the kernel on which each capability is checked."""

    @property
    def cases(self) -> int:
        """Number of cases on which each statement of a paper is checked."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """Ids of the statements that are not checked."""

    @property
    def deep(self) -> bool:
        """Return whether checks that take long are included."""

    @property
    def patience(self) -> float:
        """Smallest time limit for one case, in seconds."""

    def says(self, ids: Sequence[str] = ()) -> str:
        """Say what the profile leaves out or adds if the statements ``ids`` (by default all) are checked."""


@runtime_checkable
class KernelSuite(Protocol):
    """Protocol of the functions that a module needs to implement ``--attention``."""

    def under_test_of(
        self,
        kernel: Any,
        dtype: str | None = None,
        interface: str | None = None,
        device: str | None = None,
        *,
        deep: bool = False,
        fail_fast: bool = False,
    ) -> UnderTest:
        """Return the object under test for a kernel, given as a Python object or as the text ``MODULE:CALLABLE``.

        Raises:
            InvalidInput: the object is not an attention kernel.
        """

    def profile_named(self, name: str) -> Profile:
        """Return the profile with this name.

        Raises:
            InvalidInput: there is no such profile.
        """

    def kernel_table(self, results: Sequence[Result], uses: Mapping[str, KernelUse | None]) -> Table:
        """Return a table with the verdict of each capability of kernels, and of each statement that calls a kernel."""

    def closing_lines(self, results: Sequence[Result], kernel: Mapping[str, Any]) -> str:
        """Return the lines at the end of a report on a kernel."""

    def report_json(self, results: Sequence[Result]) -> dict[str, Any]:
        """Return the entries about the kernel that ``--json`` writes besides the kernel's description."""

    def call_file(
        self, id: str, failure: Failure, kernel: Mapping[str, Any], interface: str | None, device: str | None
    ) -> bytes | None:
        """Return a .npz file of the call that failed, with the options of the run; None if no call failed."""

    def test_to_paste(self, source: str, files: Mapping[str, Path]) -> str:
        """Return the source of tests of a kernel on the calls in the files, by the id of the statement that failed."""


@cache
def kernel_suite() -> KernelSuite:
    """Return the module that implements the conformance suite for attention kernels.

    Raises:
        InvalidInput: no installed package has such a module.
    """
    places = [extension.kernels for extension in extensions() if extension.kernels]
    if not places:
        raise InvalidInput("--attention: no installed package tests kernels; install attention_conformance.")
    suite: Any = importlib.import_module(places[0])
    return suite
