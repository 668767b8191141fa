"""A kernel of the scoreboard: which of the capabilities it has, and what it does wrong."""

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
    """What came of a capability.

    Attributes:
        name: of the capability, without ``kernel-``.
        verdict: not-applicable where the kernel has no parameter for it.
        says: the smallest failing call in words, or why it is not upheld; empty if it is.
        test: a test function that fails for it; empty if there is none.
        branches: which of the possibilities that it leaves open were seen.
    """

    name: str
    verdict: Verdict
    says: str = ""
    test: str = ""
    branches: str = ""


@dataclass(frozen=True)
class Row:
    """What came of a kernel.

    Attributes:
        name: of the entry.
        version: of its library; empty where it is not installed.
        cells: in the order of the suite; none where it could not be tested.
        why: it could not; a sentence.
        computes_in: the numbers that its results are within the rounding of.
        differentiable: whether its gradients are tested.
        examples: calls of each capability.
        seconds: that its statements took.
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
    """The capabilities of a kernel; a sentence in their place where its library is missing, or it is no kernel.

    Args:
        request: how to try them.

    Raises:
        KeyboardInterrupt: a signal came.
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


def request_of(entry: Entry, examples: int, seed: int, jobs: int, timeout: float | None, patience: float) -> Request:
    """All capabilities on that kernel, in processes of their own."""
    ids, examples = tuple(capabilities()), min(examples, entry.examples or examples)
    return Request(ids, examples, seed, under_test=entry.source, jobs=jobs, timeout=timeout, patience=patience)


def cell_of(result: Result) -> Cell:
    """What a result says of a capability."""
    failure = result.failure if result.verdict is Verdict.FALSIFIED else None
    says = (failure.line or failure.sentence) if failure else result.reason
    branches = "; ".join(claim.branches_in_words for claim in result.claims if claim.branches)
    name = result.id.removeprefix(PREFIX)
    says = " ".join(says.split()).removeprefix(f"{result.id}: ")
    return Cell(name, result.verdict, says, failure.test if failure else "", branches)
