"""The subcommand ``theorems verify``: from its options to a session, whose events become tables and files."""

from __future__ import annotations

import io
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from generators.user_data import Given, load
from reference_attention.errors import InvalidInput
from reference_attention.files import check_directory
from theorems.command.common import check_targets, complain, exit_code_of, write_files
from theorems.command.subcommands import VerifyOptions
from theorems.core.claim import Verdict
from theorems.core.exit_code import Exit
from theorems.core.implementation import REFERENCE
from theorems.core.under_test import UnderTest
from theorems.library.results import Results
from theorems.run.description import Description
from theorems.run.events import Event, Finished, Started, Stopped
from theorems.run.kernel_suite import kernel_suite
from theorems.run.known_failures import KnownFailures, file_text, known_ids, read
from theorems.run.progress import show_progress
from theorems.run.reproduce import save
from theorems.run.result import Result
from theorems.run.session import Request, Session
from theorems.run.tables import (
    assumptions_table,
    console,
    print_branches,
    print_counts,
    print_failures,
    print_reasons,
    results_table,
)

OUTPUT = "kernel-output"
"""The capability that every kernel has: its output on calls without options, too."""


def verify_and_report(options: VerifyOptions) -> int:
    """Verify the statements, write the files, print the results, and return the exit code.

    Raises:
        InvalidInput: an id is unknown, the data cannot be used or a file cannot be written; raised before anything
            runs.
    """
    request = request_of(options)
    check_targets(options.json, options.write_known_failures)
    check_directory(options.out, "failing cases")
    report = Report(request.examples, options)
    if options.fail_fast:
        request = replace(request, enough=report.enough)
    with show_progress(console(stderr=True)) as progress:
        last = Session(request).run(report, progress)
    return report.end(last)


def _ids_with_output(options: VerifyOptions, data: Given | None) -> tuple[str, ...]:
    """Return the ids, with a kernel's output if they name options of a kernel, which may hide behind a wrong output."""
    ids = tuple(options.ids or ())
    adds = data is None and OUTPUT not in ids and any(id.startswith("kernel-") for id in ids)
    return (OUTPUT, *ids) if adds else ids


def request_of(options: VerifyOptions) -> Request:
    """Return the request for a session that the options describe.

    Raises:
        InvalidInput: the data cannot be used, the profile is unknown, or options contradict each other, such as an
            option for kernels without ``--attention``.
    """
    for name, property in (("dtype", "number format"), ("interface", "signature"), ("device", "device")):
        if options.attention is None and getattr(options, name) is not None:
            raise InvalidInput(f"--{name} sets the {property} of a kernel; give the kernel with --attention.")
    data = None if options.data is None else load(options.data, options.seed, calls=options.attention is not None)
    request = Request(
        _ids_with_output(options, data) if options.attention else tuple(options.ids or ()),
        options.examples,
        options.seed,
        data,
        _kernel(options, options.dtype or (data and data.case.number_format) or None) or REFERENCE,
        capabilities=options.attention is not None and data is None,
        jobs=max(1, options.jobs),
        timeout=options.timeout,
        patience=options.case_timeout,
        isolate=options.jobs > 0,
        engine=options.engine,
        journal=options.resume,
        realistic=options.realistic,
    )
    if options.profile is None:
        return request
    profile = kernel_suite().profile_named(options.profile)
    if options.attention is None or data:
        raise InvalidInput(
            "--profile selects checks of a kernel; give the kernel with --attention, and leave out --data."
        )
    return replace(
        request,
        examples=profile.examples,
        cases=profile.cases,
        left_out=profile.left_out,
        patience=max(request.patience, profile.patience),
    )


def _kernel(options: VerifyOptions, dtype: str | None) -> UnderTest | None:
    if options.attention is None:
        return None
    deep = options.profile is not None and kernel_suite().profile_named(options.profile).deep
    # With --fail-fast, neither a known failure nor a failure of a capability outside the given ids ends the run.
    fail_fast = options.fail_fast and options.known_failures is None and not options.ids
    return kernel_suite().under_test_of(
        options.attention,
        dtype,
        options.interface,
        options.device,
        deep=deep,
        fail_fast=fail_fast,
    )


SHORT = 20
"""Largest number of lines that ``--fail-fast`` prints."""


class Report:
    """Handler of the events of ``theorems verify``: it prints and writes the results and computes the exit code."""

    def __init__(self, examples: int, options: VerifyOptions) -> None:
        """Take the number of examples per statement and the options."""
        self.out = console()
        self._examples, self._options = examples, options
        self._known = KnownFailures(Path())
        self._about = Description()
        self._saved: dict[str, Path] = {}

    def __call__(self, event: Event) -> None:
        """When the session starts, read the file of known failures and print the first lines; ignore every other event.

        Raises:
            InvalidInput: the file of known failures cannot be used.
        """
        if not isinstance(event, Started):
            return
        about = self._about = event.about
        if self._options.known_failures is not None:
            ids = (heading.id for heading in about.statements)
            self._known = read(self._options.known_failures, [*known_ids(), *ids])
        if not self._options.fail_fast:
            self._print_opening()

    def _print_opening(self) -> None:
        """Print the kernel and the profile, the seed unless it is 0, and which assumptions hold on the data."""
        about = self._about
        if about.kernel is not None:
            self.out.print(about.kernel.headline, soft_wrap=True)
        if self._options.profile is not None:
            profile = kernel_suite().profile_named(self._options.profile)
            self.out.print(profile.says(self._options.ids or ()), soft_wrap=True)
        if self._options.seed:
            self.out.print(
                f"seed {self._options.seed}; to draw the same cases again, give --seed {self._options.seed}",
                soft_wrap=True,
            )
        if about.findings:
            self.out.print(assumptions_table(about.findings))

    def enough(self, result: Result) -> str:
        """Return the reason why ``--fail-fast`` stops the run after this result; return an empty string to go on."""
        if result.verdict is not Verdict.FALSIFIED or result.id in self._known.reasons:
            return ""
        return f"stopped because {result.id} is falsified"

    def end(self, last: Finished | Stopped) -> int:
        """Write and print the results of the last event, and return the exit code."""
        expected = self._known.expected_failures(last.results)
        unknown = [result for result in last.results if result.id not in expected]
        # Write the files before printing: printing fails if the reader of the output has ended.
        reproduce = {result.id: self._save(result) for result in unknown if result.failure is not None}
        options, kernel = self._options, self._options.attention
        hints = last.hints if isinstance(last, Finished) else ()
        results = Results(last.results, self._examples, options.seed, options.data, self._about, hints, expected)
        texts = [(options.json, results.to_json())]
        if isinstance(last, Finished):
            data = options.data or f"{self._examples} examples, seed {options.seed}"
            known_failures_text = file_text(
                last.results, f"{kernel or 'theorems verify'} on {data}", self._known.reasons
            )
            texts.append((options.write_known_failures, known_failures_text))
        unwritten = write_files((path, text) for path, text in texts if path is not None and text)
        first = next((result for result in unknown if result.verdict is Verdict.FALSIFIED), None)
        if options.fail_fast and first is not None:
            self._print_first(first, reproduce, results.hints)
        else:
            if options.fail_fast:
                self._print_opening()
            self._print(results, reproduce)
        complain(*unwritten)
        if isinstance(last, Stopped):
            complain("interrupted; statements that are not marked as interrupted are finished.")
            return Exit.INTERRUPTED
        if unwritten:
            return Exit.BAD_INPUT
        code = exit_code_of(unknown) if unknown or not expected else Exit.UPHELD
        complaints = self._known.complaints(last.results)
        complain(*complaints)
        return Exit.FALSIFIED if complaints and code is not Exit.BAD_INPUT else code

    def _print_first(self, result: Result, reproduce: Mapping[str, str], hints: Sequence[str]) -> None:
        """Print the falsified statement that ended the run, in at most :data:`SHORT` lines."""
        kernel = self._about.kernel
        text = io.StringIO()
        whole = Console(file=text, markup=False, emoji=False, highlight=False, width=160)
        if kernel is not None:
            whole.print(kernel.headline.partition("\n")[0], soft_wrap=True)
        if result.failure is None:
            print_reasons(whole, [result])
        else:
            print_failures(whole, [result], lambda result: reproduce[result.id])
        for hint in hints:
            whole.print(hint, soft_wrap=True)
        lines = [line.rstrip() for line in text.getvalue().splitlines() if line.strip()]
        last_lines = [
            *self._test_to_paste([result]).splitlines(),
            f"falsified: {result.id}; with --fail-fast, the other statements are stopped or not printed",
        ]
        if len(lines) > SHORT - len(last_lines):
            again = [line for line in lines if line.startswith("  Reproduce with")]
            room = SHORT - len(last_lines) - 1 - len(again)
            lines = [
                *lines[:room],
                f"  … {len(lines) - room - len(again)} more lines are shown without --fail-fast",
                *again,
            ]
        for line in (*lines, *last_lines):
            self.out.print(line, soft_wrap=True)

    def _print(self, results: Results, reproduce: Mapping[str, str]) -> None:
        kernel = self._about.kernel
        begun = [result for result in results.results if result.was_begun]
        results_to_print = [result for result in begun if kernel is None or result.was_tried]
        self.out.print(results_table(results_to_print))
        if len(begun) < len(results.results):
            self.out.print(f"not begun: {len(results.results) - len(begun)} more statements", soft_wrap=True)
        if kernel is not None:
            self.out.print(
                kernel_suite().kernel_table(begun, {heading.id: heading.kernel for heading in self._about.statements})
            )
        print_branches(self.out, results_to_print)
        print_counts(self.out, results_to_print)
        print_reasons(self.out, [result for result in results_to_print if result.id not in results.known_failures])
        for id, reason in results.known_failures.items():
            self.out.print(f"{id}: falsified, as known: {reason}", soft_wrap=True)
        print_failures(
            self.out, (result for result in results if result.id in reproduce), lambda result: reproduce[result.id]
        )
        for hint in results.hints:
            self.out.print(f"\n{hint}", soft_wrap=True)
        if test := self._test_to_paste([result for result in results if result.id in reproduce]):
            self.out.print(f"\n{test}", soft_wrap=True)
        if kernel is not None:
            self.out.print(f"\n{kernel_suite().closing_lines(results.results, kernel.json)}", soft_wrap=True)

    def _test_to_paste(self, results: Sequence[Result]) -> str:
        """Return a test of the saved calls on which the kernel is wrong; empty if there is none."""
        falsified = [result.id for result in results if result.verdict is Verdict.FALSIFIED]
        calls = {id: self._saved[id] for id in falsified if id in self._saved and self._saved[id].suffix == ".npz"}
        return kernel_suite().test_to_paste(self._about.kernel.source, calls) if calls and self._about.kernel else ""

    def _save(self, result: Result) -> str:
        """Write the failing case of a result to a file, and return the line that says how to reproduce it."""
        assert result.failure is not None
        chosen, kernel = self._options, self._about.kernel
        options, content = "", None
        if kernel is not None:
            content = kernel_suite().call_file(result.id, result.failure, kernel.json, chosen.interface, chosen.device)
            options = f" --attention {shlex.quote(kernel.source)} --dtype {kernel.dtype}"
            options += f" --interface {chosen.interface}" if chosen.interface else ""
            options += f" --device {chosen.device}" if chosen.device else ""
        try:
            path = self._saved[result.id] = save(result.id, content or result.failure.case, self._options.out)
        except InvalidInput as error:
            return f"The failing case could not be written: {error}"
        return f"Reproduce with: theorems verify {shlex.quote(result.id)} --data {shlex.quote(str(path))}{options}"
