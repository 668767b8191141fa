"""What is asked of untrusted code before and after a run: calls in a sandbox, with plain data as answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from generators.user_data import Given
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import KernelByName, KernelDescription, OnKernel
from theorems.run.description import Heading, heading_of, lost_heading
from theorems.run.findings import NamedFinding, findings
from theorems.run.identity import of_implementation
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.user_file import is_in_a_file
from theorems.run.sandbox import ProcessDied, Sandbox

UnderTest = Implementation | KernelByName
Opened = tuple[str, KernelDescription | None, str | None]
"""The name of what is under test, what is to be said of a kernel, and what the results depend on."""


def describe_implementation(under_test: UnderTest) -> Opened:
    """All of it; a kernel by its name is loaded, and tried once."""
    if isinstance(under_test, KernelByName):
        under_test = under_test.load()
    kernel = under_test.described() if isinstance(under_test, OnKernel) else None
    return under_test.name, kernel, of_implementation(under_test)


def kernel_opened(under_test: UnderTest, sandbox: Sandbox) -> Opened:
    """The same of a kernel that may be given by its name.

    Raises:
        InvalidInput: it cannot be loaded, or is no kernel.
        ProcessDied: importing it or trying it once ended the process.
    """
    if not isinstance(under_test, KernelByName):
        return describe_implementation(under_test)
    sandbox.call(f"--attention: loading {under_test.source}", _import_kernel, under_test)
    return sandbox.call(f"--attention: the probe of {under_test.source}", describe_implementation, under_test)


def _import_kernel(kernel: KernelByName) -> None:
    kernel.find()


def load_heading(id: str) -> Heading:
    """Read the file of a statement."""
    return heading_of(statement_named(id))


def headings(ids: Sequence[str], sandbox: Sandbox) -> list[Heading]:
    """The headings of statements, each once; of one whose file ends the process that reads it, why.

    Raises:
        InvalidInput: an unknown id, a file that cannot be used.
    """
    found: dict[str, Heading] = {}
    lost: dict[str, str] = {}
    for id in ids:
        file = id.rpartition(":")[0]
        if not is_in_a_file(id):
            one = load_heading(id)
        elif file in lost:
            one = lost_heading(id, lost[file])
        else:
            try:
                one = sandbox.call(f"loading {file}", load_heading, id)
            except ProcessDied as error:
                lost[file] = error.why
                one = lost_heading(id, error.why)
        found[one.id] = one
    return list(found.values())


def findings_on(given: Given, chosen: Sequence[Heading], sandbox: Sandbox) -> list[NamedFinding]:
    """Which assumptions of the statements hold on data; of predicates that end their process, how."""
    chosen = [one for one in chosen if one.about == given.case.noun]
    found = findings(given, (), {id for one in chosen for id in one.assumptions})
    seen: set[tuple[str, str]] = set()  # of an installed paper one assumption is that of several statements
    for one in chosen:
        own = {id for id in one.own_assumptions if (one.file, id) not in seen}
        seen |= {(one.file, id) for id in own}
        if own:
            try:
                said = sandbox.call("its predicates", _own_findings, one.id, given)
                found += [each for each in said if each.id in own]
            except ProcessDied as error:
                found += [NamedFinding(id, one.own_assumptions[id], None, error.why) for id in sorted(own)]
    return found


def _own_findings(id: str, given: Given) -> list[NamedFinding]:
    """On the assumptions that stand in the file of a statement."""
    found = findings(given, [replace(statement_named(id), assumptions=())])
    return [one._replace(exact=dict(one.exact)) for one in found]


def hints_on(under_test: UnderTest, sandbox: Sandbox) -> tuple[str, ...]:
    """What may be wrong with a kernel that is falsified; nothing where asking ends the process."""
    if not isinstance(under_test, KernelByName):
        return _hints(under_test)
    try:
        return sandbox.call("what may be wrong", _hints, under_test)
    except ValueError:  # InvalidInput
        return ()


def _hints(under_test: UnderTest) -> tuple[str, ...]:
    if isinstance(under_test, KernelByName):
        under_test = under_test.load()
    return tuple(under_test.hints()) if isinstance(under_test, OnKernel) else ()
