"""``theorems verify``: a request goes to a session, its events become tables, files and an exit code."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from reference_attention.errors import InvalidInput
from reference_attention.files import check_writable, write_text
from theorems.command.junit import junit_xml
from theorems.core.claim import Verdict
from theorems.core.exit_code import Exit
from theorems.core.exit_rule import exit_of
from theorems.core.implementation import REFERENCE
from theorems.kernel.profiles import profile_named
from theorems.kernel.reproducer_file import describe_tests, reproducer_file
from theorems.kernel.source import KernelSource
from theorems.kernel.table import kernel_table, summary, was_tried
from theorems.library.results import Results
from theorems.run.description import Description
from theorems.run.events import Event, Finished, Started, Stopped
from theorems.run.known_failures import KnownFailures, checked_statements, file_text, known_ids, read
from theorems.run.opening import UnderTest
from theorems.run.progress import show_progress
from theorems.run.reproduce import check_directory, save
from theorems.run.result import Result
from theorems.run.session import Request, Session
from theorems.run.tables import (
    assumptions_table,
    console,
    print_branches,
    print_counts,
    print_failure,
    print_reasons,
    results_table,
)


@dataclass(frozen=True)
class Outputs:
    """Where what a session finds goes, and what it is called there.

    Attributes:
        out: the folder for failing cases.
        json, junit_xml, write_known_failures, emit_test: files.
        known_failures: the file with failures that are known.
        fail_fast: whether to stop at the first statement that is falsified and not known to be.
        data: what the data are called; None for generated cases.
        attention: the options that name the kernel under test.
        profile: of the kernel.
    """

    out: Path
    json: Path | None = None
    junit_xml: Path | None = None
    known_failures: Path | None = None
    write_known_failures: Path | None = None
    emit_test: Path | None = None
    fail_fast: bool = False
    data: str | None = None
    attention: KernelSource | None = None
    profile: str | None = None

    def check(self) -> None:
        """That all can be written.

        Raises:
            InvalidInput: one cannot.
        """
        for path in (self.json, self.junit_xml, self.write_known_failures, self.emit_test):
            if path is not None:
                check_writable(path)
        check_directory(self.out)
        if self.emit_test is not None and self.attention is None:
            raise InvalidInput("--emit-test: writes tests of a kernel; give the kernel with --attention.")


def under_test_of(
    attention: str | None, dtype: str | None, interface: str | None, device: str | None
) -> tuple[UnderTest, KernelSource | None]:
    """The kernel of that name in place of the reference.

    Raises:
        InvalidInput: an option of a kernel without one.
    """
    if attention is not None:
        kernel = KernelSource(attention, dtype, interface, device)
        return kernel, kernel
    for option, value, what in (
        ("dtype", dtype, "computes in"),
        ("interface", interface, "is called by"),
        ("device", device, "runs on"),
    ):
        if value is not None:
            raise InvalidInput(f"--{option}: says what a kernel {what}; give the kernel with --attention.")
    return REFERENCE, None


def in_profile(request: Request, outputs: Outputs) -> Request:
    """The request with what the profile leaves out.

    Raises:
        InvalidInput: an unknown profile, or one where there is nothing to leave out.
    """
    if outputs.profile is None:
        return request
    profile = profile_named(outputs.profile)
    if outputs.attention is None or request.ids or request.given:
        raise InvalidInput("--profile: says what is tried on a kernel; give --attention, and neither ids nor --data.")
    return replace(request, examples=profile.examples, cases=profile.cases, left_out=profile.left_out)


def verify_and_report(request: Request, outputs: Outputs) -> int:
    """Run, write, print; returns the exit code.

    Raises:
        InvalidInput: unknown ids, data or targets that cannot be used; before anything runs.
    """
    outputs.check()
    report = Report(request.examples, request.seed, outputs)
    if outputs.fail_fast:
        request = replace(request, enough=report.enough)
    with show_progress(report.err) as progress:
        last = Session(request).run(report, progress)
    return report.end(last)


class Report:
    """Handles the events of a session: prints, writes files, decides on the exit code."""

    def __init__(self, examples: int, seed: int, outputs: Outputs) -> None:
        self.out, self.err = console(), console(stderr=True)
        self._examples, self._seed, self._outputs = examples, seed, outputs
        self._known = KnownFailures(Path())
        self._about = Description()

    def __call__(self, event: Event) -> None:
        """Print what is to be said before the run.

        Raises:
            InvalidInput: a file of known failures that cannot be used.
        """
        if not isinstance(event, Started):
            return
        about = self._about = event.about
        if self._outputs.known_failures is not None:
            ids = (one.id for one in about.statements)
            self._known = read(self._outputs.known_failures, [*known_ids(), *ids])
        if about.kernel is not None:
            self.out.print(about.kernel.headline, soft_wrap=True)
        if self._outputs.profile is not None:
            self.out.print(profile_named(self._outputs.profile).says(), soft_wrap=True)
        if about.findings:
            self.out.print(assumptions_table(about.findings))

    def enough(self, result: Result) -> str:
        """Why to stop after a result, with ``--fail-fast``."""
        if result.verdict is not Verdict.FALSIFIED or result.id in self._known.reasons:
            return ""
        return f"not finished, as {result.id} is falsified"

    def end(self, last: Finished | Stopped) -> int:
        """Write and print what was found; the exit code."""
        seen = checked_statements(last.results)
        expected = self._known.expected_failures(seen)
        unknown = [result for result in last.results if result.id not in expected]
        interrupted = isinstance(last, Stopped)
        # Files first: whoever reads the output may be gone.
        reproduce = {result.id: self._save(result) for result in unknown if result.failure is not None}
        found = Results(
            last.results,
            self._examples,
            self._seed,
            self._outputs.data,
            self._about,
            () if isinstance(last, Stopped) else last.hints,
            known_failures=expected,
        )
        outputs, source = self._outputs, self._outputs.attention
        texts = [
            (outputs.json, found.to_json()),
            (outputs.junit_xml, junit_xml(last.results, self._seed, expected)),
            (
                None if interrupted else outputs.write_known_failures,
                file_text(seen, self._describe_data(), self._known.reasons),
            ),
            (outputs.emit_test, reproducer_file(source.source if source else None, unknown, outputs.emit_test)),
        ]
        unwritten = _write((path, text) for path, text in texts if path is not None and text)
        self._print(found, reproduce)
        if outputs.emit_test is not None:
            self.out.print(describe_tests(unknown, outputs.emit_test), soft_wrap=True)
        self._complain(unwritten)
        if interrupted:
            self._complain(["interrupted; what is not marked so was finished."])
            return Exit.INTERRUPTED
        if unwritten:
            return Exit.BAD_INPUT
        code = exit_code_of(self.err, unknown) if unknown or not expected else Exit.UPHELD
        complaints = self._known.complaints(seen)
        self._complain(complaints)
        return Exit.FALSIFIED if complaints and code is not Exit.BAD_INPUT else code

    def _complain(self, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            self.err.print(f"theorems: {sentence}", soft_wrap=True)

    def _describe_data(self) -> str:
        what = self._outputs.attention.source if self._outputs.attention else "theorems verify"
        return f"{what} on {self._outputs.data or f'{self._examples} examples, seed {self._seed}'}"

    def _print(self, found: Results, reproduce: Mapping[str, str]) -> None:
        kernel = self._about.kernel
        tried = [result for result in found if kernel is None or was_tried(result)]
        self.out.print(results_table(tried))
        if kernel is not None:
            self.out.print(kernel_table(found.results, {one.id: one.kernel for one in self._about.statements}))
        print_branches(self.out, tried)
        print_counts(self.out, tried)
        print_reasons(self.out, [result for result in tried if result.id not in found.known_failures])
        for id, reason in found.known_failures.items():
            self.out.print(f"{id}: falsified, as known: {reason}", soft_wrap=True)
        for result in found:
            if result.id in reproduce and result.failure is not None:
                print_failure(self.out, result, result.failure, reproduce[result.id])
        for hint in found.hints:
            self.out.print(f"\n{hint}", soft_wrap=True)
        if kernel is not None:
            self.out.print(f"\n{summary(found.results, kernel.json)}", soft_wrap=True)

    def _save(self, result: Result) -> str:
        """Write the failing case of a result; a line that says how to see it again."""
        assert result.failure is not None
        options, kernel, source = "", self._about.kernel, self._outputs.attention
        if kernel is not None and source is not None:
            options = f" --attention {shlex.quote(kernel.source)} --dtype {kernel.dtype}"
            options += f" --interface {source.interface}" if source.interface else ""
            options += f" --device {source.device}" if source.device else ""
        try:
            path = save(result.id, result.failure, self._outputs.out)
        except InvalidInput as error:
            return f"The case could not be written: {error}"
        return f"Reproduce with: theorems verify {shlex.quote(result.id)} --data {shlex.quote(str(path))}{options}"


def _write(texts: Iterable[tuple[Path, str]]) -> list[str]:
    """Write files; a sentence for each that could not be written after all."""
    sentences = []
    for path, text in texts:
        try:
            write_text(path, text)
        except InvalidInput as error:
            sentences.append(str(error))
    return sentences


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
