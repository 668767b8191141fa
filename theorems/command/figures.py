"""``theorems figures``: from its options to files and an exit code."""

from __future__ import annotations

from typing import Any

from reference_attention.errors import InvalidInput
from reference_attention.files import check_directory, from_json, make_directory, to_json, write_bytes, write_text
from theorems.command.common import check_targets, complain, resumable, run_units
from theorems.command.subcommands import FiguresOptions
from theorems.core.claim import Verdict
from theorems.core.exit_code import Exit
from theorems.core.exit_rule import exit_of
from theorems.figures.drawing import FORMATS, check_matplotlib, path_of, render_figure
from theorems.figures.figure import Figure, Settings
from theorems.figures.images import cifar_10
from theorems.figures.registry import FIGURES, figures_named, missing, missing_sentence
from theorems.figures.work import Computed, sheets
from theorems.run.identity import identity
from theorems.run.tables import column_table, console


def figures_and_report(options: FiguresOptions) -> int:
    """Compute, draw, write; returns the exit code: 0, or 3 if a figure could not be computed.

    Raises:
        InvalidInput: unknown names or formats, no matplotlib, a directory that cannot be written; before anything runs.
    """
    figures = figures_named(options.names or ())
    if options.kind not in FORMATS:
        raise InvalidInput(f"--format: {options.kind!r} is not one of {', '.join(FORMATS)}.")
    check_matplotlib()
    check_directory(options.out, "the figures")
    make_directory(options.out)
    check_targets(*(path_of(options.out, one, ending) for one in figures for ending in (options.kind, "json")))
    if options.cifar10 is not None:
        cifar_10(options.cifar10)

    about: dict[str, Any] = {"trials": options.trials, "seed": options.seed, "epochs": options.epochs}
    if options.cifar10 is not None:
        about["cifar10"] = str(options.cifar10.resolve())
    settings = Settings(
        options.trials, options.seed, epochs=options.epochs, cifar10=options.cifar10, checkpoints=options.out
    )
    units = sheets(figures, settings)
    with resumable(options, identity("figures", figures=sorted({one.name for one in figures}), **about)) as how:
        computed, interrupted = run_units(units, options.jobs, "figures", "epochs", **how)
    by_name = {name: found for unit, found in zip(units, computed, strict=True) for name in unit.names}
    drawn = [one for one in figures if not by_name[one.name].failed]
    for one in drawn:
        _write(one, by_name[one.name], options)
    out = console()
    rows = [(one.name, one.plain_title, f"{one.stem}.{options.kind}, .json") for one in drawn]
    out.print(column_table("figure", "shows", f"files in {options.out}", rows=rows))
    lacking = [] if options.names else [one for one in FIGURES.values() if missing(one)]
    if lacking:
        out.print(f"Left out: {missing_sentence(lacking)}", soft_wrap=True)
    if interrupted:
        complain("interrupted; what is listed was written.")
        return Exit.INTERRUPTED
    complain(*(f"{found.id}: {found.failed}" for found in computed if found.failed))
    return exit_of(Verdict.INCONCLUSIVE if found.failed else Verdict.UPHELD for found in computed)


def _write(one: Figure, found: Computed, options: FiguresOptions) -> None:
    text = to_json({"figure": one.name, "title": one.plain_title, **found.numbers})
    write_text(path_of(options.out, one, "json"), text + "\n")
    # What is drawn is what the file holds.
    write_bytes(path_of(options.out, one, options.kind), render_figure(one, from_json(text), options.kind))
