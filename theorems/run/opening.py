"""What is asked of untrusted code before and after a run: calls that a sandbox makes, with plain data as answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from generators.user_data import Given, as_text, subject_of
from reference_attention.files import from_json
from theorems.core.implementation import Implementation
from theorems.core.on_kernel import KernelByName, KernelDescription, OnKernel
from theorems.run.description import Heading, heading_of, lost_heading
from theorems.run.findings import NamedFinding, findings
from theorems.run.identity import of_implementation
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.user_file import is_in_a_file
from theorems.run.sandbox import ProcessDied, Sandbox
from theorems.run.verify import Progress, nothing

UnderTest = Implementation | KernelByName
Opened = tuple[str, KernelDescription | None, str | None]
"""The name of what is under test, what is to be said of a kernel, and what the results depend on."""


@dataclass(frozen=True)
class Loading:
    """Read the file of a statement."""

    id: str

    def run(self, progress: Progress) -> Heading:
        """Its heading."""
        return heading_of(statement_named(self.id))

    def where(self, done: int) -> str:
        """That it is loaded."""
        return f"loading {self.id.rpartition(':')[0]}"


@dataclass(frozen=True)
class Probing:
    """Import a kernel, and try it once."""

    kernel: KernelByName

    def prepare(self) -> None:
        """What is ours."""
        self.kernel.prepare()

    def run(self, progress: Progress) -> Opened:
        """Its name, what is to be said of it, and what its results depend on."""
        self.kernel.find()
        progress(1)
        return describe_implementation(self.kernel.load())

    def where(self, done: int) -> str:
        """Whether it is imported."""
        return f"--attention: {'the probe of' if done else 'loading'} {self.kernel.source}"


@dataclass(frozen=True)
class Predicates:
    """Check the assumptions that stand in the file of a statement, on a case given as text."""

    id: str
    case: str

    def run(self, progress: Progress) -> list[NamedFinding]:
        """The findings."""
        statement = replace(statement_named(self.id), assumptions=())
        found = findings(Given(subject_of(from_json(self.case))), [statement])
        return [one._replace(exact=dict(one.exact)) for one in found]

    def where(self, done: int) -> str:
        """In them."""
        return "its predicates"


@dataclass(frozen=True)
class Hints:
    """Ask a kernel that is falsified what may be wrong with it."""

    kernel: KernelByName

    def prepare(self) -> None:
        """What is ours."""
        self.kernel.prepare()

    def run(self, progress: Progress) -> tuple[str, ...]:
        """Sentences."""
        return tuple(self.kernel.load().hints())

    def where(self, done: int) -> str:
        """In them."""
        return "what may be wrong"


def describe_implementation(under_test: Implementation) -> Opened:
    """The name of what is under test, what is to be said of a kernel, and what the results depend on."""
    kernel = under_test.described() if isinstance(under_test, OnKernel) else None
    return under_test.name, kernel, of_implementation(under_test)


def kernel_opened(under_test: UnderTest, sandbox: Sandbox | None) -> Opened:
    """The same of a kernel that may be given by its name.

    Raises:
        InvalidInput: it cannot be loaded, or is no kernel.
        ProcessDied: importing it or trying it once ended the process.
    """
    if not isinstance(under_test, KernelByName):
        return describe_implementation(under_test)
    return Probing(under_test).run(nothing) if sandbox is None else sandbox.call(Probing(under_test))


def headings(ids: tuple[str, ...], sandbox: Sandbox | None) -> list[Heading]:
    """The headings of statements, each once; of one whose file ends the process that reads it, why.

    Raises:
        InvalidInput: an unknown id, a file that cannot be used.
    """
    found: dict[str, Heading] = {}
    lost: dict[str, str] = {}
    for id in ids:
        if sandbox is None or not is_in_a_file(id):
            one = heading_of(statement_named(id))
        else:
            file = id.rpartition(":")[0]
            try:
                one = lost_heading(id, lost[file]) if file in lost else sandbox.call(Loading(id))
            except ProcessDied as error:
                one = lost_heading(id, lost.setdefault(file, error.why))
        found[one.id] = one
    return list(found.values())


def findings_on(given: Given, chosen: list[Heading], sandbox: Sandbox | None) -> list[NamedFinding]:
    """Which assumptions of the statements hold on data; of predicates that end their process, how."""
    own = [one for one in chosen if one.own_assumptions]
    if sandbox is None:
        return findings(given, [statement_named(one.id) for one in chosen])
    found = findings(given, (), {id for one in chosen for id in one.assumptions})
    for one in own:
        try:
            found += sandbox.call(Predicates(one.id, as_text(given.case, case_of="sent")))
        except ProcessDied as error:
            found += [NamedFinding(id, title, None, error.why) for id, title in one.own_assumptions.items()]
    return found


def hints_on(under_test: UnderTest, sandbox: Sandbox | None) -> tuple[str, ...]:
    """What may be wrong with a kernel that is falsified; nothing where asking ends the process."""
    if isinstance(under_test, OnKernel):
        return tuple(under_test.hints())
    if not isinstance(under_test, KernelByName):
        return ()
    try:
        return Hints(under_test).run(nothing) if sandbox is None else sandbox.call(Hints(under_test))
    except ValueError:  # InvalidInput
        return ()
