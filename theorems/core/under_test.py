"""The interface between a run and an implementation under test; the default methods are those of the reference.

An attention kernel overrides these methods (``attention_conformance.kernel.kernel_implementation``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from generators.subject import Subject
from theorems.core.kernel_use import KernelUse


class Refused(Exception):
    """Exception: the code under test refuses a case because it does not support the sizes or options of the case."""


@dataclass(frozen=True)
class KernelDescription:
    """An attention kernel under test, as reports describe it.

    Attributes:
        name: the name of the kernel.
        source: ``MODULE:CALLABLE``.
        dtype: the number format in which the kernel computes.
        headline: a line of text with the called function, its signature and its number format.
        json: the same content for the JSON of ``--json``.
    """

    name: str
    source: str
    dtype: str
    headline: str
    json: Mapping[str, object]


class UnderTest:
    """Base class of the objects that runs verify: an implementation, or the name of one.

    Attributes:
        by_name: whether the object is only a name; the code behind the name is untrusted, and is loaded in the process
            that runs it.
        source: the name, ``MODULE:CALLABLE``.
        recorded: the functions of the code under test whose calls are recorded, by their names in results. If there are
            any, a claim counts only if it comes after a recorded call, and a statement that makes no such call is not
            applicable.
        slow: whether calls take so long that failing cases are made smaller in fewer steps.
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
        """Return the implementation to use on this case; for a kernel, it may depend on the case."""
        return self

    def out_of_reach(self, use: KernelUse | None) -> str:
        """Return why a statement with this use of kernels does not concern the code under test; else empty."""
        return "is about an attention kernel: give one with --attention" if use and use.capability else ""

    def describe(self) -> KernelDescription | None:
        """Return the description of a kernel for reports; None for other implementations."""
        return None

    def identity(self) -> str:
        """Return a text that identifies everything about the code under test on which results depend."""
        return type(self).__name__

    def outcomes(self, statement: Any, examples: int, seed: int, part: int) -> Iterator[tuple[Any, Subject]] | None:
        """Yield outcomes and cases, if this object makes its own cases; cases on which the statement fails are shrunk.

        Return None if the statement is to be checked on cases that its strategy draws.
        """
        return None

    def explain(self, statement: Any, case: Subject) -> str:
        """Return one line that says where the code is wrong on this case, by how much, and perhaps why."""
        return ""

    def hints(self) -> Sequence[str]:
        """Return possible causes of a failure of the code under test, for reports of a falsified run."""
        return ()
