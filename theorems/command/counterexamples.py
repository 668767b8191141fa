"""The subcommands ``theorems hunt``, ``replay`` and ``list counterexamples``, which print tables and write files."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

from rich.text import Text

from max_margin_theorems import signals
from reference_attention.errors import InvalidInput
from reference_attention.files import check_directory
from theorems.command.common import complain, resumable, run_units
from theorems.command.options import JOBS
from theorems.command.subcommands import HuntOptions, ReplayOptions
from theorems.core.exit_code import Exit
from theorems.counterexamples.assumption_table import Status, pairs_in
from theorems.counterexamples.check import examine, in_own_units
from theorems.counterexamples.console_output import (
    hunt_progress,
    print_counterexample,
    print_examined,
    print_nothing,
    rows_table,
)
from theorems.counterexamples.journal import HuntJournal
from theorems.counterexamples.record import load, save
from theorems.counterexamples.rounds import RoundsResult, rounds_of
from theorems.counterexamples.search import ROUND, Effort, Hunt
from theorems.counterexamples.weakened_statements import weakened_named
from theorems.library.hunt import Hunted
from theorems.run.description import Heading, heading_of
from theorems.run.engines.coordinator import LOCAL, OVER
from theorems.run.identity import identity, of_headings
from theorems.run.journal import open_journal
from theorems.run.registry.lookup import select_statements
from theorems.run.registry.user_file import is_in_a_file
from theorems.run.sandbox import open_sandbox
from theorems.run.tables import console, print_case
from theorems.run.verify import Progress, nothing


def hunt_and_report(options: HuntOptions) -> int:
    """Hunt, print and write; return 1 if a counterexample was found, 0 if none was, 3 if no case could be decided.

    Raises:
        InvalidInput: an id is unknown or a directory cannot be used; raised before the hunt begins.
        ProcessDied: the code of a statement in a user's file ended its process.
    """
    searched, spent = None, 0.0
    if options.engine != LOCAL:
        check_directory(options.out, "failing cases")
        began = time.monotonic()
        searched, interrupted = search_rounds(options)
        if interrupted or (searched.failed and not searched.has_counterexample):
            complain(f"{searched.id}: {searched.failed}; nothing is concluded.")
            return Exit.INTERRUPTED if interrupted else Exit.INCONCLUSIVE
        spent = time.monotonic() - began
    if is_in_a_file(options.id):
        with open_sandbox(1) as sandbox:
            arguments = (options, searched, spent)
            code, text = sandbox.call(
                lambda done: f"hunting {options.id}, case {done + 1}", hunt_there, *arguments, long=True
            )
        console().print(text, soft_wrap=True, end="")
        return Exit(code)
    return hunt_here(options, searched=searched, spent=spent)


def hunt_there(
    options: HuntOptions, searched: RoundsResult | None, spent: float, progress: Progress
) -> tuple[int, str]:
    """Run :func:`hunt_here` in a process of the sandbox, for a statement in a user's file.

    Returns:
        The exit code and the text to print; if a signal ended the hunt, those of the result so far.
    """
    signals.listen()
    signals.let_through()
    with redirect_stdout(io.StringIO()) as output:
        return hunt_here(options, progress, searched, spent), output.getvalue()


def load_weakening(id: str, without: str) -> Heading:
    """Return the heading (the fields that are not functions) of a statement without the assumption ``without``."""
    return heading_of(weakened_named(id, without).statement)


def search_rounds(options: HuntOptions) -> tuple[RoundsResult, bool]:
    """Search the rounds of cases of a hunt on a cluster; return the result, and whether a signal ended the search.

    After ``--seconds`` the search ends, unless it has met a counterexample. If it has, all rounds before the one with
    the counterexample are finished, so that for any number of workers the first counterexample is reported.

    Raises:
        InvalidInput: an id is unknown, or the engine cannot be used.
    """
    with open_sandbox(1, isolates=is_in_a_file(options.id)) as sandbox:
        file = options.id.rpartition(":")[0]
        heading = sandbox.call(f"loading {file}", load_weakening, options.id, options.without)
    work, is_refuted = rounds_of(options.id, options.without, options.seed, options.cases), False
    ends = time.monotonic() + options.seconds

    def enough(result: RoundsResult) -> str:
        nonlocal is_refuted
        is_refuted = is_refuted or result.has_counterexample
        return ""

    with resumable(options, _identity(options, heading)) as run_options:
        run_options["engine"].until = lambda: not is_refuted and time.monotonic() > ends
        run_options |= {"enough": enough}
        [result], interrupted = run_units([work], 1, "hunts", "cases", **run_options)
    if interrupted or result.failed != OVER:
        return result, interrupted
    # If the time ends without a counterexample, only the finished rounds count.
    finished = tuple(filter(None, result.rounds))
    why = "" if finished else f"no round of {ROUND} cases was finished in {options.seconds:g} s"
    return replace(result, rounds=finished, failed=why), False


def _identity(options: HuntOptions, heading: Heading) -> dict[str, Any]:
    return identity("hunt", **of_headings([heading]), without=options.without, seed=options.seed)


def hunt_here(
    options: HuntOptions, progress: Progress = nothing, searched: RoundsResult | None = None, spent: float = 0.0
) -> int:
    """Run a hunt in this process, print and write the result, and return the exit code.

    Args:
        options: the options of the command.
        progress: called with the number of examined cases.
        searched: the result of the first rounds of cases, if a cluster has searched them; else None.
        spent: the seconds that this search on the cluster took.
    """
    weakened = weakened_named(options.id, options.without)
    check_directory(options.out, "failing cases")
    interrupted = False
    with (
        open_journal(options.resume, _identity(options, heading_of(weakened.statement))) as journal,
        hunt_progress(console(stderr=True), weakened.name, options.seconds) as show,
    ):
        # A journal must begin with the hunt's first cases. If a cluster has searched these, this process keeps no
        # journal.
        hunt_journal = HuntJournal(journal if searched is None else None)
        rounds, observations = ((), hunt_journal.known) if searched is None else searched.as_known(options.cases)

        def watch(effort: Effort) -> None:
            progress(effort.tried)
            show(effort)

        search_options: dict[str, Any] = {
            "known": observations,
            "note": hunt_journal.note,
            "rounds": rounds,
            "spent": spent,
        }
        hunt = Hunt(weakened, options.seed, options.seconds, watch, cases=options.cases, **search_options)
        try:
            with signals.interruptible():
                hunt.run()
        except KeyboardInterrupt:
            interrupted = True
        hunt_journal.write()
        hunt.settle()
    hunted = Hunted.by(hunt)
    name = f"{weakened.name}.json" if options.record else ""
    path = None
    if hunted.has_counterexample or (name and not interrupted):
        path = save(weakened, hunted.record(), options.out, name=name)
    if hunted.examined is None:
        print_nothing(console(), hunt, interrupted)
        verdict = Exit.INCONCLUSIVE if hunted.effort.nothing_decided else Exit.UPHELD
        return Exit.INTERRUPTED if interrupted else verdict
    assert path is not None
    print_counterexample(console(), hunt, hunted.examined, path)
    if interrupted:
        complain("interrupted while shrinking; the file holds a counterexample, perhaps not the smallest.")
        return Exit.INTERRUPTED
    return Exit.FALSIFIED


def replay_and_report(options: ReplayOptions) -> int:
    """Check from its data alone whether a case is still a counterexample; return 1 if it is, 0 if not, 3 if undecided.

    Raises:
        InvalidInput: the file is not a counterexample.
    """
    record = load(options.file)
    weakened = record.weakened
    examined = examine(weakened, record.case, guided=False, claim=record.claim)
    names = [claim.name for claim in examined.claims]
    if names and record.claim not in names:
        raise InvalidInput(
            f"{options.file}: {record.claim!r} is not a claim on this case; its claims are {', '.join(names)}."
        )
    examined = in_own_units(weakened, record.case, examined)
    out = console()
    print_examined(out, weakened, examined)
    print_case(out, record.case)
    if examined.is_counterexample:
        return Exit.FALSIFIED
    out.print(Text(f"not a counterexample: {examined.refusal}"), soft_wrap=True)
    return Exit.INCONCLUSIVE if examined.undecided else Exit.UPHELD


def table_and_report(ids: Sequence[str]) -> int:
    """Replay the recorded counterexamples of statements, by default of all, and print a table of the results.

    Return 0 if every pair of a statement and an assumption has a counterexample that replays, or needs none; else 1.

    Raises:
        InvalidInput: an id is unknown, or a file is not a counterexample.
    """
    chosen_ids = {statement.id for statement in select_statements(ids)}
    units = [pair for pair in pairs_in() if pair.statement in chosen_ids]
    rows, interrupted = run_units(units, JOBS, "pairs", "replays")
    if interrupted:
        complain("interrupted; a partial table is not printed.")
        return Exit.INTERRUPTED
    console().print(rows_table(rows))
    missing = [row for row in rows if row.status in (Status.HOLE, Status.DOES_NOT_REPLAY)]
    complain(*(f"{row.id}: {row.status}. {row.explanation}" for row in missing))
    return Exit.FALSIFIED if missing else Exit.UPHELD
