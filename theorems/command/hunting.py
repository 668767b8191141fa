"""``theorems hunt`` and ``theorems replay``: from options to tables, files and exit codes."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.text import Text

from max_margin_theorems import signals
from reference_attention.errors import InvalidInput
from reference_attention.files import check_writable, from_json, to_json, write_text
from theorems.core.exit_code import Exit
from theorems.core.version import version
from theorems.hunting.entries import weakened_named
from theorems.hunting.examine import examine, in_own_units
from theorems.hunting.journal import HuntJournal
from theorems.hunting.printing import hunt_progress, print_counterexample, print_examined, print_nothing, rows_table
from theorems.hunting.record import load, save
from theorems.hunting.rounds import RoundsResult, rounds_of
from theorems.hunting.search import ROUND, Effort, Hunt, Observation
from theorems.hunting.table import Status, as_json, markdown, pairs_in
from theorems.library.hunt import Hunted
from theorems.run.description import Heading, heading_of
from theorems.run.engines.coordinator import OVER
from theorems.run.engines.named import LOCAL, coordinator
from theorems.run.identity import identity, of_headings
from theorems.run.journal import Journal, close
from theorems.run.pool import PATIENCE
from theorems.run.progress import show_progress, totals_of
from theorems.run.registry.user_file import is_in_a_file
from theorems.run.reproduce import check_directory
from theorems.run.sandbox import open_sandbox
from theorems.run.schedule import Interrupted, run
from theorems.run.tables import case_lines, case_table, console
from theorems.run.verify import Progress, nothing


@dataclass(frozen=True)
class HuntRequest:
    """The options of ``theorems hunt``.

    Attributes:
        cases: at most so many, ``None`` for as many as the time allows.
        record: write NAME.json also if nothing is found, with what was tried: an entry of ``counterexamples/``.
        seen, spent: the first rounds, looked through elsewhere, and the seconds of that.
    """

    id: str
    without: str
    seconds: float
    seed: int
    out: Path
    cases: int | None = None
    record: bool = False
    json: Path | None = None
    resume: Path | None = None
    patience: float = PATIENCE
    isolate: bool = True
    engine: str = LOCAL
    seen: RoundsResult | None = None
    spent: float = 0.0


def hunt_and_report(request: HuntRequest) -> int:
    """Hunt, print, write; 1 if a counterexample was found, 0 if none, 3 if no case could be decided.

    Raises:
        InvalidInput: unknown ids, a directory that cannot be used; before anything runs.
        ProcessDied: the statement stands in a file, which ended the process that it ran in.
    """
    if request.engine != LOCAL:
        check_directory(request.out)
        began = time.monotonic()
        seen, interrupted = search_rounds(request)
        if interrupted or (seen.failed and not seen.has_counterexample):
            console(stderr=True).print(f"theorems: {seen.id}: {seen.failed}; nothing is concluded.", soft_wrap=True)
            return Exit.INTERRUPTED if interrupted else Exit.INCONCLUSIVE
        request = replace(request, seen=seen, spent=time.monotonic() - began)
    if is_in_a_file(request.id) and request.isolate:
        with open_sandbox(1, request.patience) as sandbox:
            code, text = sandbox.call(Hunting(request, sys.stdout.isatty()), settles=True)
        sys.stdout.write(text)
        return code
    return hunt_here(request)


class _Text(io.StringIO):
    """What is printed, for a terminal if that is where it goes in the end."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@dataclass(frozen=True)
class Hunting:
    """A hunt as a whole in another process, which has the statement and its cases."""

    request: HuntRequest
    terminal: bool

    def run(self, progress: Progress) -> tuple[int, str]:
        """The exit code, and what is to be printed; a signal ends it with what is finished, as it does everywhere."""
        signals.listen()
        signals.let_through()
        own, sys.stdout = sys.stdout, _Text(self.terminal)
        try:
            return hunt_here(self.request, progress), sys.stdout.getvalue()
        finally:
            sys.stdout = own

    def where(self, done: int) -> str:
        """The case."""
        return f"hunting {self.request.id}, case {done + 1}"


@dataclass(frozen=True)
class Weakening:
    """Look for the statement without the assumption."""

    id: str
    without: str

    def run(self, progress: Progress) -> Heading:
        """The heading of the statement."""
        return heading_of(weakened_named(self.id, self.without).statement)

    def where(self, done: int) -> str:
        """That it is loaded."""
        return f"loading {self.id.rpartition(':')[0]}"


def search_rounds(request: HuntRequest) -> tuple[RoundsResult, bool]:
    """What the workers of an engine saw of the rounds of a hunt, and whether a signal ended it.

    The time of a hunt ends a search that has found nothing; once something is found, the rounds before are finished.

    Raises:
        InvalidInput: unknown ids, or an engine that cannot be used.
    """
    weakening = Weakening(request.id, request.without)
    if is_in_a_file(request.id) and request.isolate:
        with open_sandbox(1, request.patience) as sandbox:
            heading = sandbox.call(weakening)
    else:
        heading = weakening.run(nothing)
    about = _run_of(request, heading)
    work, found = rounds_of(request.id, request.without, request.seed, request.cases), False
    ends = time.monotonic() + request.seconds

    def enough(seen: RoundsResult) -> str:
        nonlocal found
        found = found or seen.has_counterexample
        return ""

    def over() -> bool:
        return not found and time.monotonic() > ends

    err = console(stderr=True)
    journal = None if request.resume is None else Journal(request.resume, about)
    try:
        with (
            coordinator(request.engine, about, request.resume) as engine,
            show_progress(err, totals_of([work]), what="hunts", steps="cases") as progress,
        ):
            assert engine is not None
            engine.until = over
            [seen] = run([work], 1, progress, journal=journal, enough=enough, patience=request.patience, engine=engine)
    except Interrupted as stopped:
        return stopped.results[0], True
    finally:
        close(journal)
    if seen.failed != OVER:
        return seen, False
    # Nothing was found, and rounds that are not finished count for nothing.
    finished = tuple(filter(None, seen.rounds))
    why = "" if finished else f"no round of {ROUND} cases was finished in {request.seconds:g} s"
    return replace(seen, rounds=finished, failed=why), False


def _run_of(request: HuntRequest, heading: Heading) -> dict[str, Any]:
    return identity("hunt", **of_headings([heading]), without=request.without, seed=request.seed)


def hunt_here(request: HuntRequest, progress: Progress = nothing) -> int:
    """The same in this process; ``progress`` is called with the number of cases looked at."""
    weakened = weakened_named(request.id, request.without)
    check_directory(request.out)
    if request.json is not None:
        check_writable(request.json)
    journal = (
        None if request.resume is None else Journal(request.resume, _run_of(request, heading_of(weakened.statement)))
    )
    # What comes after rounds that were looked through elsewhere is no beginning of a hunt here.
    kept = HuntJournal(journal if request.seen is None else None)
    rounds, known = _as_known(request, kept.known)
    out, err = console(), console(stderr=True)
    interrupted = False
    with hunt_progress(err, weakened.name, request.seconds) as show:

        def watch(effort: Effort) -> None:
            progress(effort.tried)
            show(effort)

        hunt = Hunt(
            weakened,
            request.seed,
            request.seconds,
            watch,
            cases=request.cases,
            known=known,
            note=kept.note,
            rounds=rounds,
            spent=request.spent,
        )
        try:
            with signals.interruptible():
                hunt.run()
        except KeyboardInterrupt:
            interrupted = True
        kept.write()
        close(journal)
        hunt.settle()
    hunted = Hunted.by(hunt)
    if request.json is not None:
        write_text(request.json, _json(hunted, interrupted))
    if hunted.examined is None:
        print_nothing(out, hunt, interrupted)
        if request.record and not interrupted:
            save(weakened, hunted.record(), request.out, name=f"{weakened.name}.json")
        if interrupted:
            return Exit.INTERRUPTED
        return Exit.INCONCLUSIVE if hunt.effort.nothing_decided else Exit.UPHELD
    path = save(weakened, hunted.record(), request.out, name=f"{weakened.name}.json" if request.record else "")
    print_counterexample(out, hunt, hunted.examined, path)
    if interrupted:
        err.print(
            "theorems: interrupted while it was made smaller; what is written is a counterexample.", soft_wrap=True
        )
        return Exit.INTERRUPTED
    return Exit.FALSIFIED


def _as_known(
    request: HuntRequest, kept: Sequence[Observation]
) -> tuple[Sequence[Sequence[Observation]], Sequence[Observation]]:
    """Whole rounds that were looked through, and the cases of the one after them."""
    if request.seen is None or not request.seen.rounds:
        return (), kept
    # A counterexample has to be drawn once more; a round that was cut short is gone on with.
    if request.seen.has_counterexample or (request.cases is not None and request.cases < ROUND):
        return request.seen.rounds[:-1], request.seen.rounds[-1]
    return request.seen.rounds, ()


def _json(hunted: Hunted, interrupted: bool) -> str:
    effort = hunted.effort
    about = {
        "version": version(),
        "statement": hunted.weakened.statement.id,
        "without": hunted.weakened.without,
        "seed": hunted.seed,
        "found": hunted.has_counterexample,
        "interrupted": interrupted,
        "cases": effort.tried,
        "decided": effort.decided,
        "undecided": effort.undecided,
        "largest_violation": effort.best,
    }
    return to_json(about | {"record": from_json(hunted.record())}, indent=2) + "\n"


def replay_and_report(path: Path, json: Path | None = None) -> int:
    """Check a counterexample again, from its data alone: 1 if it still falsifies, 0 if it does not, 3 if undecided.

    Raises:
        InvalidInput: a file that is no counterexample, a target that cannot be written.
    """
    if json is not None:
        check_writable(json)
    record = load(path)
    seen = examine(record.weakened, record.case, guided=False, claim=record.claim)
    made = [claim.name for claim in seen.claims]
    if made and record.claim not in made:
        raise InvalidInput(f"{path}: claim {record.claim!r} is none of this case, which has {', '.join(made)}.")
    seen = in_own_units(record.weakened, record.case, seen)
    if json is not None:
        about = {
            "version": version(),
            "statement": record.weakened.statement.id,
            "without": record.weakened.without,
            "claim": record.claim,
            "refuted": seen.is_counterexample,
            "undecided": seen.undecided,
            "reason": seen.refusal,
        }
        write_text(json, to_json(about, indent=2) + "\n")
    out = console()
    print_examined(out, record.weakened, seen)
    out.print(case_table(record.case))
    for line in case_lines(record.case):
        out.print(Text(f"  {line}"), soft_wrap=True)
    if seen.is_counterexample:
        return Exit.FALSIFIED
    out.print(Text(f"not a counterexample: {seen.refusal}"), soft_wrap=True)
    return Exit.INCONCLUSIVE if seen.undecided else Exit.UPHELD


def table_and_report(directory: Path, as_markdown: bool, jobs: int = 1, json: Path | None = None) -> int:
    """The table statement × assumption; 0 if every pair is accounted for, 1 if not.

    Raises:
        InvalidInput: a folder or a target that cannot be used.
    """
    if json is not None:
        check_writable(json)
    out, err = console(), console(stderr=True)
    units = pairs_in(directory)
    try:
        with show_progress(err, totals_of(units), what="pairs", steps="replays") as progress:
            found = run(units, jobs, progress)
    except Interrupted:
        err.print("theorems: interrupted; nothing is printed of a part of the table.", soft_wrap=True)
        return Exit.INTERRUPTED
    if json is not None:
        write_text(json, to_json({"version": version(), "pairs": as_json(found)}, indent=2) + "\n")
    if as_markdown:
        print(markdown(found), end="")
    else:
        out.print(rows_table(found))
    bad = [row for row in found if row.status in (Status.HOLE, Status.DOES_NOT_REPLAY)]
    for row in bad:
        err.print(f"theorems: {row.id}: {row.status}. {row.said}", soft_wrap=True)
    return Exit.FALSIFIED if bad else Exit.UPHELD
