"""The interface between a run and an implementation under test; the default methods serve the reference.

An attention kernel overrides these methods (``attention_conformance.kernel.kernel_implementation``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from generators.subject import Subject
from theorems.core.kernel_use import KernelUse


class Refused(Exception):
    """Exception: the code under test refuses a case, because it does not support the case's sizes or options."""


class Explanation(NamedTuple):
    """An explanation of a failure, for the maintainer of the code under test.

    Attributes:
        line: one line on where the code is wrong, by how much, and perhaps why.
        test: the source of a test function that fails on the code.
        no_test: the reason why there is no such test.
    """

    line: str = ""
    test: str = ""
    no_test: str = ""


@dataclass(frozen=True)
class KernelDescription:
    """An attention kernel under test, as reports describe it.

    Attributes:
        name: the name of the kernel.
        source: ``MODULE:CALLABLE``.
        dtype: the number format that it computes in.
        headline: the function that is called, its signature, and its number format, in words.
        json: the same content as JSON values, for ``--json``.
    """

    name: str
    source: str
    dtype: str
    headline: str
    json: Mapping[str, object]


class UnderTest:
    """Base class of the object that a run verifies: an implementation, or the name of an implementation.

    Attributes:
        by_name: whether the object is only a name; the code behind the name is untrusted, and is loaded in the process
            that runs it.
        source: the name, ``MODULE:CALLABLE``.
        recorded: the functions whose calls are recorded, by their names in results. If there are any, a claim counts
            only if it comes after a recorded call, and a statement without a recorded call is not about the code under
            test.
        slow: whether a call takes so long that failing cases are shrunk in fewer steps.
    """

    by_name: ClassVar[bool] = False
    source: str = ""
    recorded: ClassVar[Mapping[str, Callable[..., Any]]] = MappingProxyType({})
    slow: ClassVar[bool] = False

    def prepare(self) -> None:
        """Import the suite's modules that a run of this object needs, before untrusted code's time limit begins."""

    def find(self) -> None:
        """Import the code that the name refers to.

        Raises:
            InvalidInput: the code cannot be imported.
        """

    def load(self) -> Any:
        """Return the implementation; for a name, import the code, once per process.

        Raises:
            InvalidInput: the code cannot be imported or cannot be tested.
        """
        return self

    def bind_to_case(self, case: Subject) -> Any:
        """Return the implementation to use on this case."""
        return self

    def out_of_reach(self, use: KernelUse | None) -> str:
        """Return why a statement does not concern the code under test; empty if the statement does concern it."""
        return "is about an attention kernel: give one with --attention" if use and use.capability else ""

    def describe(self) -> KernelDescription | None:
        """Return the description of a kernel for reports; None for other implementations."""
        return None

    def identity(self) -> str:
        """Return a text that identifies all that results depend on: the implementation's name and parts."""
        return type(self).__name__

    def outcomes(self, statement: Any, examples: int, seed: int, part: int) -> Iterator[tuple[Any, Subject]] | None:
        """Yield outcome and case for each case that this object makes; a case on which the statement fails is shrunk.

        Return None if the statement is to be checked on cases that its strategy draws.
        """
        return None

    def explain(self, statement: Any, case: Subject) -> Explanation:
        """Return an explanation, for the maintainer, of why this case falsifies a statement."""
        return Explanation()

    def hints(self) -> Sequence[str]:
        """Return possible causes of the failure, once the implementation is falsified."""
        return ()
