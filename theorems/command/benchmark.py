"""``theorems bench``: from its options to tables, files and an exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generators.user_data import load
from max_margin_theorems import signals
from reference_attention.files import check_writable, from_json, to_json, write_bytes, write_text
from theorems.benchmark.against import Verdict as Compare
from theorems.benchmark.against import check_comparable, comparison_rows, earlier
from theorems.benchmark.comparison import Comparison, merge
from theorems.benchmark.optimisers.users import LoadingRule
from theorems.benchmark.record import as_json
from theorems.benchmark.rules import DEFAULT, rule_named
from theorems.benchmark.table import comparison_table, markdown, print_tables
from theorems.benchmark.timing import Ratio, ratios
from theorems.benchmark.work import Batch, Named, start_of, units
from theorems.core.claim import Verdict
from theorems.core.exit_code import Exit
from theorems.core.exit_rule import exit_of
from theorems.core.version import version
from theorems.figures.optimisers import check_kind, render_plot
from theorems.run.identity import identity, of_data, of_files
from theorems.run.journal import Journal, close
from theorems.run.pool import PATIENCE
from theorems.run.progress import show_progress, totals_of
from theorems.run.registry.user_file import is_in_a_file, parts_of
from theorems.run.sandbox import Sandbox, open_sandbox
from theorems.run.schedule import Interrupted, run
from theorems.run.tables import console

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
    plot: Path | None = None
    compare: Path | None = None
    patience: float = PATIENCE


def bench_and_report(request: BenchRequest) -> int:
    """Run and print; returns the exit code: 0, 1 if a row is worse than that of ``compare``, or 3 if there is nothing
    to compare on some data, or a rule of somebody's file failed.

    Raises:
        InvalidInput: unknown rules, data that cannot be read, a file that cannot be written; before anything runs.
    """
    rules = tuple(dict.fromkeys(request.rules)) or DEFAULT
    foreign = [rule for rule in rules if is_in_a_file(rule)]
    for rule in rules:
        if rule not in foreign:
            rule_named(rule)
    sources = tuple(dict.fromkeys(request.data or DATA))
    contents = {source: of_data(load(source, request.seed)) for source in sources}
    if request.json is not None:
        check_writable(request.json)
    if request.plot is not None:
        check_kind(request.plot)
        check_writable(request.plot)
    then = None
    if request.compare is not None:
        then = earlier(request.compare)
        now = {"steps": request.steps, "seed": request.seed, "examples": request.examples, "contents": contents}
        check_comparable(then, now, request.compare)
    with open_sandbox(request.jobs, request.patience) as sandbox:
        for rule in foreign:
            sandbox.call(LoadingRule(rule))
        return _bench(request, rules, sources, contents, then, sandbox)


def _bench(
    request: BenchRequest,
    rules: tuple[str, ...],
    sources: tuple[str, ...],
    contents: Mapping[str, str | None],
    then: Mapping[str, Any] | None,
    sandbox: Sandbox,
) -> int:
    journal = None
    if request.resume is not None:
        options = {"rules": rules, "steps": request.steps, "examples": request.examples, "seed": request.seed}
        files = of_files(parts_of(rule)[0] for rule in rules if is_in_a_file(rule))
        journal = Journal(request.resume, identity("bench", data=contents, **options, **files))
    work = units(sources, rules, request.steps, request.seed, request.examples)
    err = console(stderr=True)
    times: list[Ratio] = []
    interrupted = False
    batches: list[Batch] = []
    try:
        steps = "steps" if any(map(is_in_a_file, rules)) else "rules"
        with show_progress(err, totals_of(work), what="problems", steps=steps) as progress:
            patience, pool = request.patience, sandbox.pool
            batches = run(work, request.jobs, progress, journal=journal, patience=patience, pool=pool)
        if request.time:
            with signals.interruptible():
                times = _times(sources, [rule for rule in rules if not is_in_a_file(rule)], request)
    except Interrupted as stopped:
        batches, interrupted = stopped.results, True
    except KeyboardInterrupt:
        interrupted = True
    close(journal)
    by_kind: tuple[list[Batch], list[Batch]] = ([], [])
    for unit, batch in zip(work, batches, strict=False):
        by_kind[not isinstance(unit, Named)].append(batch)
    named, generated = (merge((one for batch in some for one in batch.compared), rules) for some in by_kind)
    report = _report(request, rules, named, generated, contents, times, [one.id for one in batches if one.failed])
    if request.json is not None and (named or generated):
        write_text(request.json, report)
    if request.plot is not None and (named or generated):
        write_bytes(request.plot, render_plot(named, generated, request.plot))
    if request.markdown:
        print(markdown(named, generated, request.steps, times), end="")
    else:
        print_tables(console(), named, generated, request.steps, times)
    worse = then is not None and not interrupted and _say_what_changed(then, report, request)
    for batch in batches:
        if batch.failed:
            err.print(f"theorems: {batch.id}: {batch.failed}", soft_wrap=True)
    if interrupted:
        err.print("theorems: interrupted; what is printed was finished.", soft_wrap=True)
        return Exit.INTERRUPTED
    return Exit.FALSIFIED if worse else exit_of(_verdicts(batches, named, generated))


def _say_what_changed(then: Mapping[str, Any], report: str, request: BenchRequest) -> bool:
    """Print the rows against those of ``--compare``; whether one is worse."""
    rows = comparison_rows(then, from_json(report))
    console().print(comparison_table(rows, str(request.compare), request.markdown), soft_wrap=True)
    return any(row.verdict is Compare.WORSE for row in rows)


def _times(sources: Sequence[str], rules: Sequence[str], request: BenchRequest) -> list[Ratio]:
    """After everything else, in this process alone: nothing of this command runs beside it, and no file of a user's."""
    found: list[Ratio] = []
    for source in sources if rules else ():
        case = load(source, request.seed).case
        found += ratios(source, case.problem, start_of(source, case), rules)
    return found


def _report(
    request: BenchRequest,
    rules: Sequence[str],
    named: Sequence[Comparison],
    generated: Sequence[Comparison],
    contents: Mapping[str, str | None],
    times: Sequence[Ratio],
    unfinished: Sequence[str],
) -> str:
    report = {
        "version": version(),
        "seed": request.seed,
        "examples": request.examples,
        "steps": request.steps,
        "rules": rules,
        **as_json(named, generated, contents),
    }
    if unfinished:
        report["unfinished"] = unfinished
    if request.time:
        report["time"] = [
            {"data": one.data, "rule": one.rule, "beside": one.beside, "ratio": one.ratio} for one in times
        ]
    return to_json(report, indent=2) + "\n"


def _verdicts(
    batches: Sequence[Batch], named: Sequence[Comparison], generated: Sequence[Comparison]
) -> Iterator[Verdict]:
    """Named data without a limit were not compared; a generated problem without one is passed over."""
    for batch in batches:
        if batch.failed:
            yield Verdict.INCONCLUSIVE
    for compared, without_limit in ((named, Verdict.INCONCLUSIVE), (generated, Verdict.NOT_APPLICABLE)):
        for one in compared:
            yield without_limit if one.no_limit else Verdict.UPHELD
