"""The tables of ``theorems power``, for a terminal and for a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from rich.table import Table
from rich.text import Text

from max_margin_theorems.papers import papers
from theorems.faults import Fault, fault_named
from theorems.faults.power.power_units import Column, Smallest
from theorems.faults.power.trial import Cell, FaultOutcome
from theorems.faults.survival_reasons import why_survived
from theorems.run.description import Heading
from theorems.run.registry.suite import statements
from theorems.run.tables import column_table, markdown_table

SIGNS = {FaultOutcome.MISSED: "–", FaultOutcome.UNDECIDED: "?", FaultOutcome.UNMOVED: "=", FaultOutcome.UNTOUCHED: ""}
STYLES = {
    FaultOutcome.CAUGHT: "green",
    FaultOutcome.MISSED: "red",
    FaultOutcome.UNDECIDED: "yellow",
    FaultOutcome.UNMOVED: "dim",
    FaultOutcome.UNTOUCHED: "dim",
}
LEGEND = (
    "A number: caught, after this many examples. –: not caught. ?: no claim was falsified, but one was undecided."
    " =: the faulty function is called, but no claim depends on its result. Empty: the faulty function is not called."
)


def short(id: str) -> str:
    """Return a short heading: T2 for ``theorem-2``, L12 for ``lemma-12``, initials for other ids.

    Initials are those of the id's words, without the paper's prefix. If two statements have the same initials, more
    letters of the last word are added for the later one.
    """
    return _headings().get(id) or _initials(id)


@cache
def _headings() -> dict[str, str]:
    headings: dict[str, str] = {}
    for id in statements():
        last = id.rpartition("-")[2]
        longer = (_initials(id) + last[1:k] for k in range(1, len(last) + 1))
        headings[id] = next((heading for heading in longer if heading not in headings.values()), id)
    return headings


def _initials(id: str) -> str:
    kind, _, rest = id.partition("-")
    if rest.isdigit():
        return kind[0].upper() + rest
    prefix = next((paper.prefix for paper in papers() if paper.prefix and id.startswith(paper.prefix)), "")
    return "".join(word[0] for word in id.removeprefix(prefix).split("-")).upper()


def cell_text(cell: Cell | None) -> str:
    """Return the text of a cell of the table; ``·`` if the fault was not tried yet."""
    if cell is None:
        return "·"
    return str(cell.examples) if cell.outcome is FaultOutcome.CAUGHT else SIGNS[cell.outcome]


def catchers(name: str, columns: Sequence[Column]) -> list[str]:
    """Return the ids of the statements, one per column, that catch the fault."""
    return [c.id for c in columns if name in c.cells and c.cells[name].outcome is FaultOutcome.CAUGHT]


def power_table(faults: Sequence[Fault], columns: Sequence[Column]) -> Table:
    """Return the table of faults (rows) by statements (columns)."""
    table = column_table("fault", *(short(column.id) for column in columns), "caught by")
    for fault in faults:
        cells = [column.cells.get(fault.name) for column in columns]
        styled = [Text(cell_text(cell), STYLES[cell.outcome] if cell else "dim") for cell in cells]
        count = len(catchers(fault.name, columns))
        table.add_row(Text(fault.name, no_wrap=True), *styled, Text(str(count), "" if count else "bold red"))
    return table


def sizes_table(smallest: Sequence[Smallest]) -> Table:
    """Return the table of the smallest size at which each fault is still caught."""
    return column_table("fault", "what is made smaller", "planted", "still caught", "by", rows=size_rows(smallest))


def size_rows(smallest: Sequence[Smallest]) -> list[tuple[str, str, str, str, str]]:
    """Return, for each fault, name, unit, planted size, smallest size caught, and the statement that catches it."""
    rows = []
    for sizes in smallest:
        fault = fault_named(sizes.id)
        best = sizes.best
        by, size = ("none", "") if best is None else (best[0], power_of_ten(best[1]))
        rows.append((sizes.id, fault.unit, power_of_ten(fault.size), size, by))
    return rows


def power_of_ten(size: float) -> str:
    """Return a size in short notation, such as 1e-3."""
    return f"{size:g}" if size >= 1 else f"{size:.1g}" if size >= 1e-3 else f"{size:.0e}".replace("e-0", "e-")


def markdown(
    faults: Sequence[Fault],
    columns: Sequence[Column],
    smallest: Sequence[Smallest],
    command: str,
    headings: Mapping[str, Heading],
) -> str:
    """Return all tables as a Markdown document; ``headings`` maps ids of statements to their :class:`Heading`."""
    head = ["fault", "in", *(short(column.id) for column in columns)]
    rows = [[f"`{f.name}`", str(f.kind), *(cell_text(column.cells.get(f.name)) for column in columns)] for f in faults]
    parts = [
        "# Planted faults that are caught",
        f"Which statement catches which planted fault. Printed by `{command}`; do not edit.",
        _reference(columns),
        LEGEND,
        markdown_table(head, rows),
        ", ".join(f"{short(column.id)}: `{column.id}`" for column in columns) + ".",
    ]
    if smallest:
        parts += [
            "## How small a fault is still caught",
            "For each fault with a size: the smallest power of ten that is still caught. Tried are the statement that"
            " the"
            " fault names as its catcher, and the three others that catch the planted fault after the fewest examples.",
            markdown_table(
                ["fault", "what is made smaller", "planted", "still caught", "by"],
                [[f"`{row[0]}`", *row[1:4], f"`{row[4]}`"] for row in size_rows(smallest)],
            ),
        ]
    heads = ["fault", "is", "caught by", "on the claim"]
    parts += ["## The faults", markdown_table(heads, _fault_rows(faults, columns))]
    spared = _missed_faults(faults, columns, headings)
    if spared:
        parts += ["## Why a fault is not caught", markdown_table(["because", "upheld", "under"], spared)]
    return "\n\n".join(parts) + "\n"


def _reference(columns: Sequence[Column]) -> str:
    upheld, cases = sum(c.reference for c in columns), sum(c.cases for c in columns)
    wrong = ", ".join(c.id for c in columns if c.falsified)
    falsified = f"falsified by {wrong}, whose columns are meaningless" if wrong else "falsified on none"
    return (
        f"The correct implementation was upheld on {upheld} of the {cases} cases of the {len(columns)} statements, and"
        f" {falsified}; cases on which it is not upheld are not used to catch faults."
    )


def _fault_rows(faults: Sequence[Fault], columns: Sequence[Column]) -> list[list[str]]:
    rows = []
    for fault in faults:
        first = min(
            ((c.cells[fault.name].examples, k) for k, c in enumerate(columns) if c.id in catchers(fault.name, columns)),
            default=None,
        )
        claim = "" if first is None else f"`{columns[first[1]].cells[fault.name].claim}` of `{columns[first[1]].id}`"
        rows.append([f"`{fault.name}`", fault.says, _statements(len(catchers(fault.name, columns))), claim])
    return rows


def _statements(count: int) -> str:
    return "1 statement" if count == 1 else f"{count} statements"


def _missed_faults(
    faults: Sequence[Fault], columns: Sequence[Column], headings: Mapping[str, Heading]
) -> list[list[str]]:
    """Return rows of: a reason, the statements upheld for this reason, and the faults under which they are upheld."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for fault in faults:
        for column in columns:
            cell = column.cells.get(fault.name)
            if cell and cell.outcome in (FaultOutcome.MISSED, FaultOutcome.UNDECIDED):
                fallback = f"undecided there: {cell.why}" if cell.why else "not explained"
                heading, open_one = headings[column.id], cell.outcome is FaultOutcome.UNDECIDED
                reason = why_survived(fault, heading.id, heading.survives, open_one) or fallback
                reasons.setdefault(reason, {}).setdefault(fault.name, []).append(short(column.id))
    return [row for reason, spared in reasons.items() for row in _spared_rows(reason, spared)]


def _spared_rows(reason: str, spared: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return rows of: the reason, statements, and the faults under which just these statements are upheld.

    ``spared`` maps each fault to the short headings of the statements that are upheld under it.
    """
    faults: dict[str, list[str]] = {}
    for fault, columns in spared.items():
        faults.setdefault(", ".join(columns), []).append(f"`{fault}`")
    return [[reason, columns, ", ".join(names)] for columns, names in faults.items()]
