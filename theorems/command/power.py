"""The subcommand ``theorems power``: from its options to tables and an exit code."""

from __future__ import annotations

from collections.abc import Sequence

from theorems.command.common import complain, resumable, run_units
from theorems.command.subcommands import PowerOptions
from theorems.core.exit_code import Exit
from theorems.faults import FAULTS, Fault, fault_named
from theorems.faults.power.power_tables import LEGEND, catchers, markdown, power_table, sizes_table
from theorems.faults.power.power_units import Column, FaultTrials, Smallest, shrinking_of
from theorems.run.identity import identity, of_headings
from theorems.run.registry.suite import statements
from theorems.run.sandbox import open_sandbox
from theorems.run.tables import console
from theorems.run.untrusted_calls import headings

LISTED = 12
"""Largest number of uncaught faults that the message names; the table has all of them."""


def power_and_report(options: PowerOptions) -> int:
    """Check the statements against planted faults, print which of them catches which fault, and return the exit code.

    Raises:
        InvalidInput: an id or a fault is unknown; raised before anything runs.
    """
    with open_sandbox(options.jobs) as sandbox:
        by_id = {heading.id: heading for heading in headings(tuple(options.ids or statements()), sandbox)}
        faults = list({name: fault_named(name) for name in options.faults or FAULTS}.values())
        names = tuple(fault.name for fault in faults)
        settings = {"examples": options.examples, "seed": options.seed, "faults": list(names)}
        with resumable(options, identity("power", **of_headings(list(by_id.values())), **settings)) as run_options:
            run_options |= {"pool": sandbox.pool}
            facing = [FaultTrials(id, names, options.examples, options.seed) for id in by_id]
            smallest: list[Smallest] = []
            columns, interrupted = run_units(facing, options.jobs, "statements", "faults", **run_options)
            shrinking = shrinking_of(faults, columns, options.examples, options.seed)
            if shrinking and not interrupted:
                smallest, interrupted = run_units(shrinking, options.jobs, "sizes", "statements", **run_options)
    if interrupted and options.markdown:
        complain("interrupted; a document with a partial table is not printed.")
        return Exit.INTERRUPTED
    if options.markdown:
        print(markdown(faults, columns, smallest, _command(options), by_id), end="")
    else:
        out = console()
        out.print(power_table(faults, columns))
        out.print(LEGEND, soft_wrap=True)
        if smallest:
            out.print(sizes_table([size for size in smallest if not size.failed]))
    if interrupted:
        complain("interrupted; cells marked · were not checked.")
        return Exit.INTERRUPTED
    return _exit_code(faults, columns)


def _command(options: PowerOptions) -> str:
    """Return the command line that prints the same tables as Markdown."""
    faults = (word for name in options.faults or () for word in ("--faults", name))
    other_options = ("--examples", str(options.examples), "--seed", str(options.seed), "--markdown")
    return " ".join(["theorems power", *(options.ids or ()), *faults, *other_options])


def _exit_code(faults: Sequence[Fault], columns: Sequence[Column]) -> int:
    wrong = "the correct implementation is falsified, so this statement's column of the table means nothing: "
    useless = [column for column in columns if column.failed or column.falsified]
    complain(*(f"{column.id}: {column.failed or wrong + column.falsified}" for column in useless))
    if useless:
        return Exit.INCONCLUSIVE
    escaped = [fault.name for fault in faults if not catchers(fault.name, columns)]
    if escaped:
        further = f" and {len(escaped) - LISTED} more, with 0 in the table" if len(escaped) > LISTED else ""
        complain(f"caught by no statement: {', '.join(escaped[:LISTED])}{further}.")
        return Exit.FALSIFIED
    return Exit.UPHELD
