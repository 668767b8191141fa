"""Calls of untrusted code before and after a run, in a sandbox (another process) that returns plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from generators.user_data import Given
from theorems.core.under_test import KernelDescription, UnderTest
from theorems.run.description import Heading, heading_of, lost_heading
from theorems.run.findings import NamedFinding, findings
from theorems.run.identity import of_implementation
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.user_file import is_in_a_file
from theorems.run.sandbox import ProcessDied, Sandbox

ImplementationSummary = tuple[str, KernelDescription | None, str | None]
"""The implementation's name, the description of a kernel (or None), and a text that identifies what is under test (or
None)."""


def describe_implementation(under_test: UnderTest) -> ImplementationSummary:
    """Load and describe the implementation under test; call a kernel given by its name once, to learn its interface."""
    implementation = under_test.load()
    return implementation.name, implementation.describe(), of_implementation(implementation)


def describe_in_sandbox(under_test: UnderTest, sandbox: Sandbox) -> ImplementationSummary:
    """Describe the implementation under test; a kernel given by its name is loaded and called in the sandbox.

    Raises:
        InvalidInput: the implementation cannot be loaded, or is not a kernel.
        ProcessDied: importing the kernel, or calling it once, ended the sandbox's process.
    """
    if not under_test.by_name:
        return describe_implementation(under_test)
    sandbox.call(f"--attention: loading {under_test.source}", _import_kernel, under_test)
    return sandbox.call(f"--attention: the probe of {under_test.source}", describe_implementation, under_test)


def _import_kernel(kernel: UnderTest) -> None:
    kernel.find()


def load_heading(id: str) -> Heading:
    """Return a statement's heading (its fields that are not functions); run the user's file that defines it, if any."""
    return heading_of(statement_named(id))


def headings(ids: Sequence[str], sandbox: Sandbox) -> list[Heading]:
    """Return the headings of statements, each statement once.

    If running a user's file ends its process, the attribute ``lost`` of the headings from that file says how it ended.

    Raises:
        InvalidInput: an id is unknown, or a file cannot be used.
    """
    by_id: dict[str, Heading] = {}
    lost: dict[str, str] = {}
    for id in ids:
        file = id.rpartition(":")[0]
        if not is_in_a_file(id):
            heading = load_heading(id)
        elif file in lost:
            heading = lost_heading(id, lost[file])
        else:
            try:
                heading = sandbox.call(f"loading {file}", load_heading, id)
            except ProcessDied as error:
                lost[file] = error.why
                heading = lost_heading(id, error.why)
        by_id[heading.id] = heading
    return list(by_id.values())


def findings_on(data: Given, chosen: Sequence[Heading], sandbox: Sandbox) -> list[NamedFinding]:
    """Return, for each assumption of the statements, the finding whether it holds on the data.

    If the predicate of an assumption ends the process that evaluates it, the finding says how the process ended.
    """
    chosen = [heading for heading in chosen if heading.about == data.case.noun]
    all_findings = findings(data, (), {id for heading in chosen for id in heading.assumptions})
    checked: set[tuple[str, str]] = set()  # several statements of one paper may share an assumption
    for heading in chosen:
        own_ids = {id for id in heading.own_assumptions if (heading.file, id) not in checked}
        checked |= {(heading.file, id) for id in own_ids}
        if own_ids:
            try:
                own_findings = sandbox.call("its predicates", _own_findings, heading.id, data)
                all_findings += [finding for finding in own_findings if finding.id in own_ids]
            except ProcessDied as error:
                all_findings += [
                    NamedFinding(id, heading.own_assumptions[id], None, error.why) for id in sorted(own_ids)
                ]
    return all_findings


def _own_findings(id: str, data: Given) -> list[NamedFinding]:
    """Return the findings for the assumptions that the statement's own file or package defines."""
    own_findings = findings(data, [replace(statement_named(id), assumptions=())])
    return [finding._replace(exact=dict(finding.exact)) for finding in own_findings]


def hints_on(under_test: UnderTest, sandbox: Sandbox) -> tuple[str, ...]:
    """Return possible reasons why a kernel was falsified; return none if looking for them ends the kernel's process."""
    if not under_test.by_name:
        return _hints(under_test)
    try:
        return sandbox.call("what may be wrong", _hints, under_test)
    except ValueError:  # InvalidInput
        return ()


def _hints(under_test: UnderTest) -> tuple[str, ...]:
    return tuple(under_test.load().hints())
