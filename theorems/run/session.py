"""Session: one run of a request to verify statements, which produces events.

The command, the library and the check of a kernel make a :class:`Request` and handle the events of its
:class:`Session`; tables, JSON, progress and known failures are handlers of events.

Untrusted code (a kernel given by its name, a statement in a user's file) runs only in the sandbox, whose processes load
it and run the units of work; the process with the session supervises them and receives plain data.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generators.user_data import Given
from reference_attention.errors import InvalidInput
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.core.under_test import UnderTest
from theorems.run.description import Description, Heading
from theorems.run.engines.coordinator import LOCAL, coordinator
from theorems.run.events import Died, Event, Finished, Handler, Started, Stopped
from theorems.run.identity import identity, of_data, of_headings
from theorems.run.journal import open_journal
from theorems.run.pool import PATIENCE
from theorems.run.registry.lookup import select_statements
from theorems.run.result import Result
from theorems.run.sandbox import ProcessDied, Sandbox, open_sandbox
from theorems.run.schedule import Interrupted, run_stepwise
from theorems.run.statement_unit import Unit
from theorems.run.untrusted_calls import describe_in_sandbox, findings_on, headings, hints_on


@dataclass(frozen=True)
class Request:
    """Request to verify statements.

    Attributes:
        ids: ids of statements. If empty: the statement that failed on ``given``, if ``given`` is a stored failing case,
            otherwise all statements.
        examples: the number of generated cases per statement.
        seed: the seed of the generated cases; equal seeds give equal cases.
        given: user data to check instead of generated cases; None for generated cases.
        under_test: the reference, another implementation, or an attention kernel by its name.
        capabilities: whether the capabilities of attention kernels are verified, too, if ``ids`` is empty.
        left_out: ids of statements that are not verified if ``ids`` is empty.
        jobs: the largest number of processes.
        timeout: the time limit in seconds for a statement, or for a part of its cases.
        patience: the time limit in seconds for one case, if untrusted code is run.
        isolate: whether untrusted code runs in other processes.
        engine: ``local``, or the address of the cluster that runs the units of work.
        journal: the file to which finished results are appended, and from which an earlier run continues.
        enough: function of a statement's result that returns the reason to stop the run, or an empty string to go on.
        realistic: whether only cases that resemble users' data are generated.
        cases: the number of generated cases for each statement of a paper, where ``examples`` counts the calls for each
            capability of a kernel; None to use ``examples`` for both.
    """

    ids: tuple[str, ...] = ()
    examples: int = 50
    seed: int = 0
    given: Given | None = None
    under_test: UnderTest = REFERENCE
    capabilities: bool = False
    left_out: tuple[str, ...] = ()
    jobs: int = 1
    timeout: float | None = None
    patience: float = PATIENCE
    isolate: bool = True
    engine: str = LOCAL
    journal: Path | None = None
    enough: Callable[[Result], str] | None = None
    realistic: bool = False
    cases: int | None = None


class Session:
    """One run of a request to verify statements.

    Attributes:
        about: the description of the run; empty until the run has started.
    """

    def __init__(self, request: Request) -> None:
        """Take the request to run."""
        self.request = request
        self.about = Description()

    def events(self) -> Iterator[Event]:
        """Yield the events of the run as they happen.

        The events are :class:`Started`, then any number of ``CaseDone``, ``UnitDone`` and ``Notice``, and last
        ``Finished`` or ``Stopped``; or only ``Died``. With one process, the ``CaseDone`` events of a unit of work are
        yielded only when the unit is done, while :meth:`run` passes them to its handlers at once.

        Raises:
            InvalidInput: the request cannot be used; raised before any case is checked.
        """
        events: deque[Event] = deque()
        for _ in self._steps(events.append):
            while events:
                yield events.popleft()
        yield from events

    def run(self, *handlers: Handler) -> Finished | Stopped:
        """Run the session to its end and return the last event; call each handler with each event as it happens.

        Args:
            *handlers: functions that take one event.

        Raises:
            InvalidInput: the request cannot be used; raised before any case is checked.
            ProcessDied: untrusted code ended the process that loaded it.
        """
        last: Event | None = None

        def handle(event: Event) -> None:
            nonlocal last
            last = event
            for handler in handlers:
                handler(event)

        for _ in self._steps(handle):
            pass
        if isinstance(last, Died):
            raise ProcessDied(last.sentence)
        assert isinstance(last, Finished | Stopped)
        return last

    def finish(self) -> Finished:
        """Run the session to its end without handlers and return the last event, for callers from Python.

        Raises:
            InvalidInput: the request cannot be used; raised before any case is checked.
            ProcessDied: untrusted code ended the process that loaded it.
            KeyboardInterrupt: a signal came.
        """
        last = self.run()
        if isinstance(last, Stopped):
            raise KeyboardInterrupt
        return last

    def _steps(self, handle: Handler) -> Generator[None, None, None]:
        request = self.request
        with open_sandbox(request.jobs, request.patience, request.isolate) as sandbox:
            try:
                name, kernel, kernel_identity = describe_in_sandbox(request.under_test, sandbox)
            except ProcessDied as error:
                handle(Died(str(error)))
                return
            chosen = self._select_headings(sandbox)
            run = self._identity(chosen, kernel_identity)
            try:
                with (
                    open_journal(request.journal, run) as journal,
                    coordinator(request.engine, run, request.journal) as engine,
                ):
                    data, examples = request.given, request.examples
                    all_findings = () if data is None else tuple(findings_on(data, chosen, sandbox))
                    self.about = Description(tuple(chosen), name, kernel, None if data else examples, all_findings)
                    handle(Started(self.about))
                    yield
                    results = yield from run_stepwise(
                        self._units(chosen),
                        request.jobs,
                        handle,
                        journal=journal,
                        timeout=request.timeout,
                        enough=request.enough,
                        patience=request.patience,
                        pool=sandbox.pool,
                        engine=engine,
                    )
            except Interrupted as error:
                handle(Stopped(tuple(error.results)))
                return
            handle(Finished(tuple(results), self._hints(results, sandbox)))

    def _select_headings(self, sandbox: Sandbox) -> list[Heading]:
        request = self.request
        data = request.given
        ids = request.ids or ((data.failed,) if data and data.failed else ())
        if not ids:
            candidates = select_statements((), of_kernels=request.capabilities, subject=data.case if data else None)
            ids = tuple(heading.id for heading in candidates if heading.id not in request.left_out)
        chosen = headings(ids, sandbox)
        if data and request.ids and not any(heading.lost or heading.about == data.case.noun for heading in chosen):
            raise InvalidInput(
                f"--data: {data.case.name} holds {data.case.noun}, and {chosen[0].id} is about {chosen[0].about};"
                " give data of that kind, or another statement."
            )
        if data and data.case.too_large:
            raise InvalidInput(f"--data: {data.case.too_large}")
        return chosen

    def _identity(self, chosen: list[Heading], kernel: str | None) -> dict[str, Any]:
        """Return the identity of the run: everything on which its results depend."""
        return identity(
            "verify",
            **of_headings(chosen),
            examples=self.request.examples,
            seed=self.request.seed,
            data=of_data(self.request.given),
            kernel=kernel,
            **({"realistic": True} if self.request.realistic else {}),
            **({"cases": self.request.cases} if self.request.cases else {}),
        )

    def _units(self, chosen: list[Heading]) -> list[Unit]:
        request = self.request
        return [
            Unit(
                heading.id,
                request.examples if _is_capability(heading) else request.cases or request.examples,
                request.seed,
                request.given,
                request.under_test,
                lost=heading.lost,
                isolated=request.isolate,
                title=heading.title,
                realistic=request.realistic,
                urgency=_urgency(heading),
            )
            for heading in chosen
        ]

    def _hints(self, results: list[Result], sandbox: Sandbox) -> tuple[str, ...]:
        falsified = any(result.verdict is Verdict.FALSIFIED for result in results)
        return hints_on(self.request.under_test, sandbox) if falsified else ()


def _urgency(heading: Heading) -> int:
    """Return the priority of a statement's unit of work (larger numbers run sooner).

    It is 3 for the output of a kernel, 2 for its gradients, 1 for other capabilities, and 0 otherwise. The output comes
    first because a wrong output makes the gradients wrong, too, and these say less about the cause.
    """
    return _is_capability(heading) + {"kernel-output": 2, "kernel-gradients": 1}.get(heading.id, 0)


def _is_capability(heading: Heading) -> bool:
    return heading.kernel is not None and bool(heading.kernel.capability)
