"""The interface of an implementation under test to a run, beyond its functions; defaults are those of the reference.

An attention kernel replaces them (``attention_conformance.kernel.kernel_implementation``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from generators.subject import Subject
from theorems.core.kernel_use import KernelUse


class Refused(Exception):
    """Raised where the code under test refuses a case: sizes or options that it says it does not support."""


class Explanation(NamedTuple):
    """An explanation of a failure, for the maintainer of the code under test.

    Attributes:
        line: where it is wrong, by how much, perhaps why.
        test: the source of a test function that fails for it.
        no_test: why there is none.
    """

    line: str = ""
    test: str = ""
    no_test: str = ""


@dataclass(frozen=True)
class KernelDescription:
    """An attention kernel under test, as reports describe it.

    Attributes:
        name: of the kernel.
        source: ``MODULE:CALLABLE``.
        dtype: the number format that it computes in.
        headline: the function that is called, how it is called, and in which numbers.
        json: the same for ``--json``.
    """

    name: str
    source: str
    dtype: str
    headline: str
    json: Mapping[str, object]


class UnderTest:
    """Base class of objects to verify: an implementation, or the name of one that a process loads before it calls it.

    Attributes:
        by_name: whether it is a name: the code that it names is untrusted, and is loaded in the process that runs it.
        source: the name, ``MODULE:CALLABLE``.
        recorded: the functions of which calls are recorded, by the names that results give them. Where there are any,
            only claims made after such a call count, and a statement that makes none says nothing about the code under
            test.
        slow: whether a call takes so long that failing cases are made smaller in fewer steps.
    """

    by_name: ClassVar[bool] = False
    source: str = ""
    recorded: ClassVar[Mapping[str, Callable[..., Any]]] = MappingProxyType({})
    slow: ClassVar[bool] = False

    def prepare(self) -> None:
        """Import the suite's own modules that it needs, before the time of untrusted code runs."""

    def find(self) -> None:
        """Import the code that a name stands for.

        Raises:
            InvalidInput: it cannot be imported.
        """

    def load(self) -> Any:
        """Return the implementation; for a name, the one that it stands for, imported and tried once in a process.

        Raises:
            InvalidInput: it cannot be imported, or is nothing that can be tested.
        """
        return self

    def bind_to_case(self, case: Subject) -> Any:
        """Return the implementation under test on this case."""
        return self

    def out_of_reach(self, use: KernelUse | None) -> str:
        """Return why a statement says nothing about the code under test; empty if it does."""
        return "is about an attention kernel: give one with --attention" if use and use.capability else ""

    def describe(self) -> KernelDescription | None:
        """Return the description of a kernel for reports; None for anything else."""
        return None

    def identity(self) -> str:
        """Return a text on which results depend: the name of the implementation, and its parts."""
        return type(self).__name__

    def outcomes(self, statement: Any, examples: int, seed: int, part: int) -> Iterator[tuple[Any, Subject]] | None:
        """Yield the outcome of a statement on each of its own cases, with that case, or the smallest that fails.

        Return None to have the statement checked on the cases that its strategy draws.
        """
        return None

    def explain(self, statement: Any, case: Subject) -> Explanation:
        """Explain to the maintainer why this case falsifies a statement."""
        return Explanation()

    def hints(self) -> Sequence[str]:
        """Return possible causes of the error, once the implementation is falsified."""
        return ()
