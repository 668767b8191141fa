"""Description of a run before the run begins; it is plain data, which can be read without loading untrusted code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from theorems.core.implementation import REFERENCE
from theorems.core.kernel_use import KernelUse
from theorems.core.statement import Statement
from theorems.core.under_test import KernelDescription
from theorems.run.findings import NamedFinding


@dataclass(frozen=True)
class Heading:
    """Heading of a statement: the fields of a statement that are not functions.

    Attributes:
        id, title, source, assumptions, kernel, file: as in :class:`theorems.core.statement.Statement`.
        own_assumptions: titles, by id, of the assumptions that the statement's own file or package defines.
        about: the noun for the cases on which the statement is checked, such as "attention calls".
        lost: how reading the statement's file ended the reading process; empty if the file was read.
    """

    id: str
    title: str
    source: str
    assumptions: tuple[str, ...] = ()
    kernel: KernelUse | None = None
    file: str = ""
    own_assumptions: Mapping[str, str] = field(default_factory=dict)
    lost: str = ""
    about: str = ""


def heading_of(statement: Statement) -> Heading:
    """Return the heading of a statement."""
    own_titles = {id: assumption.title for id, assumption in statement.own_assumptions.items()}
    return Heading(
        statement.id,
        statement.title,
        statement.source,
        statement.assumptions,
        statement.kernel,
        statement.file,
        own_titles,
        about=statement.about.noun,
    )


def lost_heading(id: str, why: str) -> Heading:
    """Return the heading of a statement whose file could not be read."""
    return Heading(id, "could not be loaded", "own", file=id.rpartition(":")[0], lost=why)


@dataclass(frozen=True)
class Description:
    """Description of a run: what is checked, and on which implementation and data.

    Attributes:
        statements: the headings of the requested statements, in the order of the request.
        implementation: the name of the implementation under test.
        kernel: the description of the attention kernel under test; None for the reference.
        examples: the number of generated cases per statement; None if data are checked instead.
        findings: the findings whether each assumption holds on the data; empty without data.
    """

    statements: tuple[Heading, ...] = ()
    implementation: str = REFERENCE.name
    kernel: KernelDescription | None = None
    examples: int | None = None
    findings: tuple[NamedFinding, ...] = ()
