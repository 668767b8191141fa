"""``theorems bench``: from its options to tables, a file and an exit code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from max_margin_theorems import stopping
from reference_attention.files import check_writable, to_json, write_text
from theorems.benchmark.rules import DEFAULT, rule_named
from theorems.benchmark.table import as_json, markdown, print_tables
from theorems.benchmark.timing import Ratio, ratios
from theorems.benchmark.work import Batch, Compared, Generated, Named, chunks, start_of
from theorems.core.claim import Verdict
from theorems.core.exit_code import Exit
from theorems.core.exit_rule import exit_of
from theorems.core.version import version
from theorems.run.identity import identity, of_data
from theorems.run.journal import Journal, close
from theorems.run.processes import Interrupted, run
from theorems.run.progress import watching
from theorems.run.tables import console
from theorems.run.user_data import load

DATA = ("figure-1a", "figure-1b", "figure-1c")
"""The data sets of the paper that are compared unless others are named; Figure 4 has those of 1(c)."""


@dataclass(frozen=True)
class BenchRequest:
    """The options of ``theorems bench``; ``examples`` is the number of generated problems."""

    data: tuple[str, ...]
    rules: tuple[str, ...]
    steps: int
    examples: int
    seed: int
    jobs: int
    json: Path | None
    markdown: bool
    time: bool
    resume: Path | None = None


def bench_and_report(request: BenchRequest) -> int:
    """Run and print; returns the exit code: 0, or 3 if there is nothing to compare on some data.

    Raises:
        InvalidInput: unknown rules, data that cannot be read, a file that cannot be written; before anything runs.
    """
    rules = tuple({rule_named(name).name: None for name in request.rules}) or DEFAULT
    sources = tuple(dict.fromkeys(request.data or DATA))
    held = {source: load(source, request.seed) for source in sources}
    if request.json is not None:
        check_writable(request.json)
    journal = None
    if request.resume is not None:
        data = {source: of_data(given) for source, given in held.items()}
        options = {"rules": rules, "steps": request.steps, "examples": request.examples, "seed": request.seed}
        journal = Journal(request.resume, identity("bench", data=data, **options))
    units: list[Named | Generated] = [Named(source, rules, request.steps) for source in sources]
    units += chunks(request.seed, request.examples, rules, request.steps)
    err = console(stderr=True)
    times: list[Ratio] = []
    interrupted = False
    try:
        with watching(err, units, what="problems", steps="rules") as watcher:
            batches = run(units, request.jobs, watcher, journal=journal)
        if request.time:
            with stopping.interruptible():
                times = _times(sources, rules, request)
    except Interrupted as stopped:
        batches, interrupted = stopped.results, True
    except KeyboardInterrupt:
        interrupted = True
    close(journal)
    named = [one for batch in batches[: len(sources)] for one in batch.compared]
    generated = [one for batch in batches[len(sources) :] for one in batch.compared]
    if request.json is not None and (named or generated):
        unfinished = [batch.id for batch in batches if batch.failed]
        write_text(request.json, _report(request, rules, named, generated, times, unfinished))
    if request.markdown:
        print(markdown(named, generated, request.steps, times), end="")
    else:
        print_tables(console(), named, generated, request.steps, times)
    for batch in batches:
        if batch.failed:
            err.print(f"theorems: {batch.id}: {batch.failed}", soft_wrap=True)
    if interrupted:
        err.print("theorems: interrupted; what is printed was finished.", soft_wrap=True)
        return Exit.INTERRUPTED
    return exit_of(_verdicts(batches, named, generated))


def _times(sources: Sequence[str], rules: Sequence[str], request: BenchRequest) -> list[Ratio]:
    """After everything else, in this process alone: nothing of this command runs beside it."""
    found: list[Ratio] = []
    for source in sources:
        case = load(source, request.seed).case
        found += ratios(source, case.problem, start_of(source, case), rules)
    return found


def _report(
    request: BenchRequest,
    rules: Sequence[str],
    named: Sequence[Compared],
    generated: Sequence[Compared],
    times: Sequence[Ratio],
    unfinished: Sequence[str],
) -> str:
    report = {
        "version": version(),
        "seed": request.seed,
        "examples": request.examples,
        "steps": request.steps,
        "rules": rules,
        **as_json(named, generated),
    }
    if unfinished:
        report["unfinished"] = unfinished
    if request.time:
        report["time"] = [
            {"data": one.data, "rule": one.rule, "beside": one.beside, "ratio": one.ratio} for one in times
        ]
    return to_json(report, indent=2) + "\n"


def _verdicts(batches: Sequence[Batch], named: Sequence[Compared], generated: Sequence[Compared]) -> Iterator[Verdict]:
    """Named data without a limit were not compared; a generated problem without one is passed over."""
    for batch in batches:
        if batch.failed:
            yield Verdict.INCONCLUSIVE
    for compared, without_limit in ((named, Verdict.INCONCLUSIVE), (generated, Verdict.NOT_APPLICABLE)):
        for one in compared:
            yield without_limit if one.no_limit else Verdict.UPHELD
