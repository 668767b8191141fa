"""The row of a kernel in the scoreboard: the verdict on each of its capabilities."""

from __future__ import annotations

from dataclasses import dataclass

from attention_conformance.scoreboard.entry import Entry
from reference_attention.errors import InvalidInput
from theorems.core.claim import Verdict
from theorems.run.events import Handler, Stopped
from theorems.run.registry.suite import capabilities
from theorems.run.result import Result
from theorems.run.sandbox import ProcessDied
from theorems.run.session import Request, Session

PREFIX = "kernel-"


@dataclass(frozen=True)
class Cell:
    """The result for one capability of a kernel.

    Attributes:
        name: the name of the capability, without ``kernel-``.
        verdict: the verdict; not-applicable if the kernel has no parameter for the capability.
        says: a sentence on the smallest failing call, or on why the capability is not upheld; empty if it is upheld.
        test: the source of a test function that fails on the kernel; empty if there is none.
        branches: the conventions that the kernel follows, where the capability allows several.
    """

    name: str
    verdict: Verdict
    says: str = ""
    test: str = ""
    branches: str = ""


@dataclass(frozen=True)
class Row:
    """The results for one kernel.

    Attributes:
        name: the kernel's name in the list.
        version: the version of the kernel's library; empty if the library is not installed.
        cells: the results for all capabilities, in the order of the suite; none if the kernel could not be tested.
        why: a sentence on why the kernel could not be tested; empty if it was tested.
        computes_in: the number format whose rounding bounds the kernel's errors.
        differentiable: whether the kernel's gradients are tested.
        examples: the number of calls of each capability.
        seconds: the time in seconds that the checks took.
    """

    name: str
    version: str
    cells: tuple[Cell, ...] = ()
    why: str = ""
    computes_in: str = ""
    differentiable: bool = True
    examples: int = 0
    seconds: float = 0.0


def row_of(entry: Entry, request: Request, handle: Handler) -> Row:
    """Test a kernel and return its row; if the kernel cannot be loaded, the row says why and has no cells.

    Args:
        entry: the kernel.
        request: the run that tests the kernel's capabilities.
        handle: the function that handles the events of the run.

    Raises:
        KeyboardInterrupt: the process received a signal.
    """
    if not entry.version:
        return Row(entry.name, "", why=f"{entry.library} is not installed")
    session = Session(request)
    try:
        last = session.run(handle)
    except (InvalidInput, ProcessDied) as error:
        return Row(entry.name, entry.version, why=str(error))
    if isinstance(last, Stopped):
        raise KeyboardInterrupt
    about = session.about.kernel
    assert about is not None
    return Row(
        entry.name,
        entry.version,
        tuple(map(cell_of, last.results)),
        computes_in=str(about.json["computes_in"]),
        differentiable=bool(about.json["differentiable"]),
        examples=request.examples,
        seconds=round(sum(result.seconds for result in last.results), 1),
    )


def request_of(entry: Entry, examples: int, seed: int, jobs: int) -> Request:
    """Return the request for a run that tests all capabilities of a kernel, in ``jobs`` processes."""
    ids, examples = tuple(capabilities()), min(examples, entry.examples or examples)
    return Request(ids, examples, seed, under_test=entry.source, jobs=jobs)


def cell_of(result: Result) -> Cell:
    """Return the cell of a scoreboard for the result of a capability."""
    failure = result.failure if result.verdict is Verdict.FALSIFIED else None
    sentence = (failure.line or failure.sentence) if failure else result.reason
    branches = "; ".join(claim.branches_in_words for claim in result.claims if claim.branches)
    name = result.id.removeprefix(PREFIX)
    sentence = " ".join(sentence.split()).removeprefix(f"{result.id}: ")
    return Cell(name, result.verdict, sentence, failure.test if failure else "", branches)
