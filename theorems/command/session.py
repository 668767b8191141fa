"""``theorems verify``: from its options to tables, files and an exit code."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console

from reference_attention.errors import InvalidInput
from reference_attention.files import check_writable, write_text
from theorems.command.junit import junit_xml
from theorems.core.claim import Verdict
from theorems.core.exit_code import Exit
from theorems.core.exit_rule import exit_of
from theorems.core.implementation import REFERENCE, Implementation
from theorems.core.on_kernel import OnKernel
from theorems.core.statement import Statement
from theorems.kernel.apart import headline_of, hints_of, json_of, kernel_under_test
from theorems.kernel.emitted_file import emitted_file, said_of_tests
from theorems.kernel.profiles import profile_named
from theorems.kernel.table import kernel_table, summary, was_tried
from theorems.library.results import Results
from theorems.registry.lookup import chosen_statements
from theorems.run.apart import Apart, apart, findings_of, units_of
from theorems.run.crew import PATIENCE
from theorems.run.engines.named import LOCAL, coordinator
from theorems.run.findings import Found
from theorems.run.identity import identity, of_data, of_implementation, of_statements
from theorems.run.journal import Journal, close
from theorems.run.known_failures import KnownFailures, checked_of, known_ids, read, written
from theorems.run.processes import Interrupted, run
from theorems.run.progress import watching
from theorems.run.reproduce import check_directory, save
from theorems.run.result import Result
from theorems.run.tables import (
    assumptions_table,
    console,
    print_branches,
    print_counts,
    print_failure,
    print_reasons,
    results_table,
)
from theorems.run.user_data import Given, load
from theorems.run.work import Workers


@dataclass(frozen=True)
class Request:
    """The options of ``theorems verify``;
    ``attention`` and ``dtype`` name a kernel to put in place of ``under_test``."""

    ids: tuple[str, ...]
    examples: int
    seed: int
    data: str | None
    json: Path | None
    out: Path
    jobs: int
    under_test: Implementation = REFERENCE
    attention: str | None = None
    dtype: str | None = None
    interface: str | None = None
    device: str | None = None
    profile: str | None = None
    engine: str = LOCAL
    resume: Path | None = None
    timeout: float | None = None
    patience: float = PATIENCE
    isolate: bool = True
    fail_fast: bool = False
    junit_xml: Path | None = None
    known_failures: Path | None = None
    write_known_failures: Path | None = None
    emit_test: Path | None = None


def verify_and_report(request: Request) -> int:
    """Run, write, print; returns the exit code.

    Raises:
        InvalidInput: unknown ids, data or targets that cannot be used; before anything runs.
    """
    for path in (request.json, request.junit_xml, request.write_known_failures, request.emit_test):
        if path is not None:
            check_writable(path)
    check_directory(request.out)
    with apart(request.jobs, request.patience) if request.isolate else nullcontext() as here:
        return _verified_and_reported(request, here)


def _verified_and_reported(request: Request, here: Apart | None) -> int:
    request = _with_kernel(_with_profile(request), here)
    given = None if request.data is None else load(request.data, request.seed, calls=True)
    chosen = _chosen(request, given)
    known = _known_failures(request, chosen)
    journal = journal_of(request, chosen, given)
    out, err = console(), console(stderr=True)
    if isinstance(request.under_test, OnKernel):
        out.print(headline_of(request.under_test), soft_wrap=True)
    if request.profile is not None:
        out.print(profile_named(request.profile).says(), soft_wrap=True)
    with coordinator(request.engine, lambda: run_of(request, chosen, given), request.resume) as engine:
        found = findings_of(given, chosen, here) if given else []
        if found:
            out.print(assumptions_table(found))
        results, interrupted = results_of(request, chosen, given, err, journal, here, known.reasons, engine)
    seen = checked_of(results)
    expected = known.expected(seen)
    hints = hints_of(request.under_test, results, here)
    # Files first: whoever reads the output may be gone.
    unknown = [result for result in results if result.id not in expected]
    reproduce = {result.id: _saved(result, request) for result in unknown if result.failure is not None}
    texts = [
        (request.json, as_json(request, results, found, expected)),
        (request.junit_xml, junit_xml(results, request.seed, expected)),
        (None if interrupted else request.write_known_failures, written(seen, _about(request), known.reasons)),
        (request.emit_test, emitted_file(request.attention, unknown, request.emit_test)),
    ]
    unwritten = _written((path, text) for path, text in texts if path is not None and text)
    _print_results(out, results, request, reproduce, hints, expected)
    if request.emit_test is not None:
        out.print(said_of_tests(unknown, request.emit_test), soft_wrap=True)
    for sentence in unwritten:
        err.print(f"theorems: {sentence}", soft_wrap=True)
    if interrupted:
        err.print("theorems: interrupted; what is not marked so was finished.", soft_wrap=True)
        return Exit.INTERRUPTED
    if unwritten:
        return Exit.BAD_INPUT
    code = exit_code_of(err, unknown) if unknown or not expected else Exit.UPHELD
    complaints = known.complaints(seen)
    for sentence in complaints:
        err.print(f"theorems: {sentence}", soft_wrap=True)
    return Exit.FALSIFIED if complaints and code is not Exit.BAD_INPUT else code


def _chosen(request: Request, given: Given | None) -> list[Statement]:
    """What is tried: on a kernel also what it is able to do, as far as its profile goes."""
    ids = request.ids or ((given.failed,) if given and given.failed else ())
    of_kernels = request.attention is not None and given is None
    chosen = chosen_statements(ids, of_kernels=of_kernels, subject=given.case if given else None)
    return chosen if request.profile is None else profile_named(request.profile).chosen(chosen)


def _with_profile(request: Request) -> Request:
    """The request with the number of examples of its profile.

    Raises:
        InvalidInput: an unknown profile, or one where there is nothing to leave out.
    """
    if request.profile is None:
        return request
    profile = profile_named(request.profile)
    if request.attention is None or request.ids or request.data:
        raise InvalidInput("--profile: says what is tried on a kernel; give --attention, and neither ids nor --data.")
    return replace(request, examples=profile.examples)


def _known_failures(request: Request, chosen: Sequence[Statement]) -> KnownFailures:
    if request.known_failures is None:
        return KnownFailures(Path())
    return read(request.known_failures, [*known_ids(), *(one.id for one in chosen)])


def _about(request: Request) -> str:
    what = request.attention or "theorems verify"
    return f"{what} on {request.data or f'{request.examples} examples, seed {request.seed}'}"


def journal_of(request: Request, chosen: Sequence[Statement], given: Given | None) -> Journal | None:
    """The journal of the run, if it has one.

    Raises:
        InvalidInput: it cannot be used.
    """
    return None if request.resume is None else Journal(request.resume, run_of(request, chosen, given))


def run_of(request: Request, chosen: Sequence[Statement], given: Given | None) -> dict[str, Any]:
    """What the results depend on."""
    return identity(
        "verify",
        **of_statements(chosen),
        examples=request.examples,
        seed=request.seed,
        data=of_data(given),
        kernel=of_implementation(request.under_test),
    )


def results_of(
    request: Request,
    chosen: Sequence[Statement],
    given: Given | None,
    err: Console,
    journal: Journal | None = None,
    here: Apart | None = None,
    known: Container[str] = (),
    engine: Workers | None = None,
) -> tuple[list[Result], bool]:
    """A result per statement, with progress on ``err``; and whether a signal ended it."""
    units = units_of(chosen, request.examples, request.seed, given, request.under_test, here)

    def falsified(result: Result) -> str:
        return "" if result.id in known else _falsified(result)

    enough = falsified if request.fail_fast else None
    workers = here.workers if here else None
    try:
        with watching(err, units) as watcher:
            timeout, patience = request.timeout, request.patience
            return run(
                units,
                request.jobs,
                watcher,
                journal=journal,
                timeout=timeout,
                enough=enough,
                patience=patience,
                workers=workers,
                engine=engine,
            ), False
    except Interrupted as stopped:
        return stopped.results, True
    finally:
        close(journal)


def _falsified(result: Result) -> str:
    return f"not finished, as {result.id} is falsified" if result.verdict is Verdict.FALSIFIED else ""


def _written(texts: Iterable[tuple[Path, str]]) -> list[str]:
    """Write files; a sentence for each that could not be written after all."""
    said = []
    for path, text in texts:
        try:
            write_text(path, text)
        except InvalidInput as error:
            said.append(str(error))
    return said


def _with_kernel(request: Request, here: Apart | None) -> Request:
    """The request with the attention kernel that it names as what is under test.

    Raises:
        InvalidInput: it cannot be loaded, or ``dtype`` is given without it.
    """
    if request.attention is None:
        said = {"dtype": "computes in", "interface": "is called by", "device": "runs on"}
        for option, what in said.items():
            if getattr(request, option) is not None:
                raise InvalidInput(f"--{option}: says what a kernel {what}; give the kernel with --attention.")
        if request.emit_test is not None:
            raise InvalidInput("--emit-test: writes tests of a kernel; give the kernel with --attention.")
        return request
    asked = request.dtype, here, request.interface, request.device
    return replace(request, under_test=kernel_under_test(request.attention, *asked))


def _print_results(
    out: Console,
    results: Sequence[Result],
    request: Request,
    reproduce: Mapping[str, str],
    hints: Sequence[str],
    expected: Mapping[str, str],
) -> None:
    on_kernel = isinstance(request.under_test, OnKernel)
    tried = [result for result in results if was_tried(result)] if on_kernel else results
    out.print(results_table(tried))
    if on_kernel:
        out.print(kernel_table(results))
    print_branches(out, tried)
    print_counts(out, tried)
    print_reasons(out, [result for result in tried if result.id not in expected])
    for id, reason in expected.items():
        out.print(f"{id}: falsified, as known: {reason}", soft_wrap=True)
    _print_failures(out, results, reproduce)
    for hint in hints:
        out.print(f"\n{hint}", soft_wrap=True)
    if isinstance(request.under_test, OnKernel):
        out.print(f"\n{summary(results, json_of(request.under_test))}", soft_wrap=True)


def _saved(result: Result, request: Request) -> str:
    """Write the failing case of a result; a line that says how to see it again."""
    assert result.failure is not None
    options = ""
    if isinstance(request.under_test, OnKernel):
        kernel = request.under_test.kernel
        options = f" --attention {shlex.quote(kernel.source)} --dtype {kernel.dtype}"
        options += f" --interface {request.interface}" if request.interface else ""
        options += f" --device {request.device}" if request.device else ""
    try:
        path = save(result.id, result.failure, request.out)
    except InvalidInput as error:
        return f"The case could not be written: {error}"
    return f"Reproduce with: theorems verify {shlex.quote(result.id)} --data {shlex.quote(str(path))}{options}"


def _print_failures(out: Console, results: Sequence[Result], reproduce: Mapping[str, str]) -> None:
    for result in results:
        if result.id in reproduce and result.failure is not None:
            print_failure(out, result, result.failure, reproduce[result.id])


def as_json(
    request: Request,
    results: Sequence[Result],
    found: Sequence[Found],
    expected: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The report as strict JSON; ``expected`` has why a statement is known to be falsified."""
    held = Results(
        tuple(results),
        request.examples,
        request.seed,
        request.data,
        request.under_test,
        tuple(found),
        known_failures=expected,
    )
    return held.to_json()


def exit_code_of(err: Console, results: Sequence[Result]) -> int:
    """What the results are worth to a program; a sentence on standard error where no table says why."""
    found = Results(tuple(results))
    if found.exit_code is Exit.BAD_INPUT:
        bad = next(result for result in results if result.bad_input)
        err.print(f"theorems: {bad.id}: {bad.bad_input}", soft_wrap=True)
        return Exit.BAD_INPUT
    return exit_code_said(err, {result.verdict for result in results}, "no statement applies to these data")


def exit_code_said(err: Console, verdicts: Set[Verdict], nothing: str) -> int:
    """The exit code of the verdicts; where all are not applicable, ``nothing`` says why on standard error."""
    if verdicts <= {Verdict.NOT_APPLICABLE}:
        err.print(f"theorems: nothing was checked: {nothing}.", soft_wrap=True)
    return exit_of(verdicts)
