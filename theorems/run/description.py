"""What is to be known of a run before it begins, as plain data: whoever has it need not load untrusted code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from theorems.core.implementation import REFERENCE
from theorems.core.on_kernel import KernelDescription, KernelUse
from theorems.core.statement import Statement
from theorems.core.tolerances import Tolerance
from theorems.run.findings import NamedFinding
from theorems.run.registry.suite import tolerances_of


@dataclass(frozen=True)
class Heading:
    """What stands at the head of a statement, without what can be called.

    Attributes:
        id, title, source, assumptions, kernel, file, survives: as of the :class:`theorems.core.statement.Statement`.
        own_assumptions: titles of the assumptions that are not the suite's, by id.
        tolerances: those that its file declares; of a statement in a file only.
        about: what its cases are.
        lost: why its file could not be read, where reading it ended the process.
    """

    id: str
    title: str
    source: str
    assumptions: tuple[str, ...] = ()
    kernel: KernelUse | None = None
    file: str = ""
    survives: Mapping[str, str] = field(default_factory=dict)
    own_assumptions: Mapping[str, str] = field(default_factory=dict)
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    lost: str = ""
    about: str = ""


def heading_of(statement: Statement) -> Heading:
    """The heading of a statement."""
    own = {id: one.title for id, one in statement.own_assumptions.items()}
    return Heading(
        statement.id,
        statement.title,
        statement.source,
        statement.assumptions,
        statement.kernel,
        statement.file,
        dict(statement.survives),
        own,
        tolerances_of(statement) if statement.file else {},
        about=statement.about.noun,
    )


def lost_heading(id: str, why: str) -> Heading:
    """Of a statement whose file could not be read."""
    return Heading(id, "could not be loaded", "own", file=id.rpartition(":")[0], lost=why)


@dataclass(frozen=True)
class Description:
    """What a run is about.

    Attributes:
        statements: in the order asked for.
        implementation: the name of what is under test.
        kernel: the attention kernel under test; None for the reference.
        examples: generated cases of each statement; None on data.
        findings: which assumptions hold on the data.
    """

    statements: tuple[Heading, ...] = ()
    implementation: str = REFERENCE.name
    kernel: KernelDescription | None = None
    examples: int | None = None
    findings: tuple[NamedFinding, ...] = ()
