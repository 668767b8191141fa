"""The subcommand ``theorems bench``: from its options to tables, files and an exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from generators.user_data import attention_case, load
from reference_attention.files import from_json, to_json, write_bytes
from theorems.benchmark.bench_json import as_json
from theorems.benchmark.bench_tables import comparison_table, print_tables
from theorems.benchmark.bench_units import Batch, Named, units
from theorems.benchmark.comparison import Comparison, merge
from theorems.benchmark.earlier_run import Verdict as Compare
from theorems.benchmark.earlier_run import check_comparable, comparison_rows, earlier
from theorems.benchmark.optimisers.user_rules import load_rule
from theorems.benchmark.rules import DEFAULT, expand_rules, rule_named
from theorems.command.common import check_targets, complain, run_units, write_report
from theorems.command.subcommands import BenchOptions
from theorems.core.claim import Verdict
from theorems.core.exit_code import Exit
from theorems.core.exit_rule import exit_of
from theorems.figures.bench_plot import check_kind, render_plot
from theorems.run.identity import identity, of_data, of_files
from theorems.run.journal import open_journal
from theorems.run.registry.user_file import is_in_a_file, parts_of
from theorems.run.sandbox import Sandbox, open_sandbox
from theorems.run.tables import console

DATA = ("figure-1a", "figure-1b", "figure-1c")
"""Names of the default data: the paper's Figures 1(a), 1(b) and 1(c); Figure 4 has the same data as Figure 1(c)."""


def bench_and_report(options: BenchOptions) -> int:
    """Run the optimisers (rules) on the data, print the tables, and return the exit code.

    The exit code is 1 if a row of the table is worse than in the earlier run that ``--compare`` names; 3 if some data
    have no limit direction, or a rule in a user's file failed; else 0.

    Raises:
        InvalidInput: a rule is unknown, data cannot be read or a file cannot be written; raised before anything runs.
    """
    rules = expand_rules(options.rule or DEFAULT)
    foreign = [rule for rule in rules if is_in_a_file(rule)]
    for rule in rules:
        if rule not in foreign:
            rule_named(rule)
    contents = {}
    for source in options.data or DATA:
        given = load(source, options.seed)
        attention_case(given)
        contents[source] = of_data(given)
    check_targets(options.json)
    if options.plot is not None:
        check_kind(options.plot)
    check_targets(options.plot)
    earlier_report = None
    if options.compare is not None:
        earlier_report = earlier(options.compare)
        now = {"steps": options.steps, "seed": options.seed, "examples": options.examples, "contents": contents}
        check_comparable(earlier_report, now, options.compare)
    with open_sandbox(options.jobs) as sandbox:
        for rule in foreign:
            sandbox.call(f"loading {parts_of(rule)[0]}", load_rule, rule)
        return _bench(options, rules, contents, earlier_report, sandbox)


def _bench(
    options: BenchOptions,
    rules: tuple[str, ...],
    contents: Mapping[str, str | None],
    earlier_report: Mapping[str, Any] | None,
    sandbox: Sandbox,
) -> int:
    sources, rules_of_suite = tuple(contents), [rule for rule in rules if not is_in_a_file(rule)]
    settings = {"rules": rules, "steps": options.steps, "examples": options.examples, "seed": options.seed}
    files = of_files(parts_of(rule)[0] for rule in rules if is_in_a_file(rule))
    work = units(sources, rules, options.steps, options.seed, options.examples)
    steps = "rules" if len(rules_of_suite) == len(rules) else "steps"
    with open_journal(options.resume, identity("bench", data=contents, **settings, **files)) as journal:
        batches, interrupted = run_units(work, options.jobs, "problems", steps, journal=journal, pool=sandbox.pool)
    by_kind: tuple[list[Batch], list[Batch]] = ([], [])
    for unit, batch in zip(work, batches, strict=False):
        by_kind[not isinstance(unit, Named)].append(batch)
    named, generated = (
        merge((comparison for batch in batches for comparison in batch.compared), rules) for batches in by_kind
    )
    report = {
        "seed": options.seed,
        "examples": options.examples,
        "steps": options.steps,
        "rules": rules,
        **as_json(named, generated, contents),
    }
    if unfinished := [batch.id for batch in batches if batch.failed]:
        report["unfinished"] = unfinished
    if named or generated:
        write_report(options.json, **report)
        if options.plot is not None:
            write_bytes(options.plot, render_plot(named, generated, options.plot))
    print_tables(console(), named, generated, options.steps)
    worse = earlier_report is not None and not interrupted and _print_comparison(earlier_report, report, options)
    complain(*(f"{batch.id}: {batch.failed}" for batch in batches if batch.failed))
    if interrupted:
        complain("interrupted; only finished problems are printed.")
        return Exit.INTERRUPTED
    return Exit.FALSIFIED if worse else exit_of(_verdicts(batches, named, generated))


def _print_comparison(earlier_report: Mapping[str, Any], report: Mapping[str, Any], options: BenchOptions) -> bool:
    """Print each row beside the same row of the earlier run, and return whether a row is worse than it was then."""
    rows = comparison_rows(earlier_report, from_json(to_json(report)))
    console().print(comparison_table(rows, str(options.compare)), soft_wrap=True)
    return any(row.verdict is Compare.WORSE for row in rows)


def _verdicts(
    batches: Sequence[Batch], named: Sequence[Comparison], generated: Sequence[Comparison]
) -> Iterator[Verdict]:
    """Yield one verdict for each comparison of the rules on one problem, for the exit code.

    Named data without a limit direction are inconclusive; generated problems without a limit direction do not count.
    """
    for batch in batches:
        if batch.failed:
            yield Verdict.INCONCLUSIVE
    for compared, without_limit in ((named, Verdict.INCONCLUSIVE), (generated, Verdict.NOT_APPLICABLE)):
        for comparison in compared:
            yield without_limit if comparison.no_limit else Verdict.UPHELD
