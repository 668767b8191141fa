"""A session: it takes a request and produces events.

The command, the library, the check of a kernel and the report make a :class:`Request` and handle the events of its
:class:`Session`; tables, JSON, JUnit, progress and known failures are handlers.

Untrusted code (a kernel given by its name, a statement in somebody's file) crosses one boundary, the sandbox: its
processes load it and run the units, this process supervises them and sees plain data.
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
from theorems.run.untrusted_calls import findings_on, headings, hints_on, kernel_opened


@dataclass(frozen=True)
class Request:
    """Request to verify statements.

    Attributes:
        ids: statements; by default the statement that failed on ``given``, or all.
        examples: generated cases per statement.
        cases: generated cases of statements that are no capabilities of a kernel, if these have fewer.
        seed: seed of the generated cases; equal seeds give equal cases.
        given: data to check instead of generated cases.
        under_test: the reference, another implementation, or an attention kernel by its name.
        capabilities: whether "all statements" includes what attention kernels may be able to do.
        left_out: ids that are not among all statements.
        jobs: how many processes.
        timeout: seconds for a statement, or a part of its cases.
        patience: seconds for a case of untrusted code.
        isolate: whether untrusted code runs in other processes.
        engine: ``local``, or the address of an engine that does the work.
        journal: the file of finished results, to go on from.
        enough: says why to stop after a result; empty to go on.
        realistic: whether only cases as users have them are generated.
        relations: whether each case is checked again, changed by a relation.
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
    relations: bool = False
    cases: int | None = None


class Session:
    """One run of a request.

    Attributes:
        about: the description of the run, once it has started.
    """

    def __init__(self, request: Request) -> None:
        """Take the request; the description is empty until the run starts."""
        self.request = request
        self.about = Description()

    def events(self) -> Iterator[Event]:
        """Yield the events of the run as they happen.

        The first is :class:`Started`; then come ``CaseDone``, ``UnitDone`` and ``Notice``, at last ``Finished`` or
        ``Stopped``. Or ``Died`` comes alone. With one process, cases come when their unit is done; :meth:`run` passes
        them on at once.

        Raises:
            InvalidInput: the request cannot be used; before anything runs.
        """
        events: deque[Event] = deque()
        for _ in self._steps(events.append):
            while events:
                yield events.popleft()
        yield from events

    def run(self, *handlers: Handler) -> Finished | Stopped:
        """Run to the end; each handler is given each event as it happens.

        Args:
            *handlers: functions that are called with each event.

        Raises:
            InvalidInput: the request cannot be used; before anything runs.
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
        """Run to the end and return the last event, for callers from Python.

        Raises:
            InvalidInput, ProcessDied: as :meth:`run`.
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
                name, kernel, depends_on = kernel_opened(request.under_test, sandbox)
            except ProcessDied as error:
                handle(Died(str(error)))
                return
            chosen = self._select_headings(sandbox)
            run = self._identity(chosen, depends_on)
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
            except Interrupted as stopped:
                handle(Stopped(tuple(stopped.results)))
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
        """Return what the results depend on."""
        return identity(
            "verify",
            **of_headings(chosen),
            examples=self.request.examples,
            seed=self.request.seed,
            data=of_data(self.request.given),
            kernel=kernel,
            **({"realistic": True} if self.request.realistic else {}),
            **({"relations": True} if self.request.relations else {}),
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
                relations=request.relations,
                urgency=_urgency(heading),
            )
            for heading in chosen
        ]

    def _hints(self, results: list[Result], sandbox: Sandbox) -> tuple[str, ...]:
        falsified = any(result.verdict is Verdict.FALSIFIED for result in results)
        return hints_on(self.request.under_test, sandbox) if falsified else ()


def _urgency(heading: Heading) -> int:
    """Return how early a statement is checked: capabilities of a kernel first, and of these output, then gradients.

    Where an output is wrong the gradients are, too, and say less about the cause.
    """
    return _is_capability(heading) + {"kernel-output": 2, "kernel-gradients": 1}.get(heading.id, 0)


def _is_capability(heading: Heading) -> bool:
    return heading.kernel is not None and bool(heading.kernel.capability)
