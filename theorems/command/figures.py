"""The subcommand ``theorems figures``: from its options to files and an exit code."""

from __future__ import annotations

from reference_attention.errors import InvalidInput
from reference_attention.files import check_directory, from_json, make_directory, to_json, write_bytes, write_text
from theorems.command.common import check_targets, complain, run_units
from theorems.command.subcommands import FiguresOptions
from theorems.core.claim import Verdict
from theorems.core.exit_code import Exit
from theorems.core.exit_rule import exit_of
from theorems.figures.figure import Figure, Settings
from theorems.figures.figure_files import FORMATS, check_matplotlib, path_of, render_figure
from theorems.figures.figure_units import Computed, sheets
from theorems.figures.registry import figures_named
from theorems.run.tables import column_table, console


def figures_and_report(options: FiguresOptions) -> int:
    """Compute the figures, write and draw them, and return the exit code: 0, or 3 if a figure could not be computed.

    Raises:
        InvalidInput: a name or format is unknown, matplotlib is not installed, or the directory cannot be written;
            raised before anything runs.
    """
    figures = figures_named(options.names or ())
    if options.kind not in FORMATS:
        raise InvalidInput(f"--format: {options.kind!r} is not one of {', '.join(FORMATS)}.")
    check_matplotlib()
    check_directory(options.out, "the figures")
    make_directory(options.out)
    check_targets(*(path_of(options.out, figure, ending) for figure in figures for ending in (options.kind, "json")))

    units = sheets(figures, Settings(options.trials, options.seed))
    computed, interrupted = run_units(units, options.jobs, "figures", "pieces")
    by_name = {name: result for unit, result in zip(units, computed, strict=True) for name in unit.names}
    computed_figures = [figure for figure in figures if not by_name[figure.name].failed]
    for figure in computed_figures:
        _write(figure, by_name[figure.name], options)
    out = console()
    rows = [(figure.name, figure.plain_title, f"{figure.stem}.{options.kind}, .json") for figure in computed_figures]
    out.print(column_table("figure", "shows", f"files in {options.out}", rows=rows))
    if interrupted:
        complain("interrupted; the files listed were written.")
        return Exit.INTERRUPTED
    complain(*(f"{result.id}: {result.failed}" for result in computed if result.failed))
    return exit_of(Verdict.INCONCLUSIVE if result.failed else Verdict.UPHELD for result in computed)


def _write(figure: Figure, result: Computed, options: FiguresOptions) -> None:
    text = to_json({"figure": figure.name, "title": figure.plain_title, **result.numbers})
    write_text(path_of(options.out, figure, "json"), text + "\n")
    # Draw the numbers that the JSON file has, so that file and drawing cannot differ.
    write_bytes(path_of(options.out, figure, options.kind), render_figure(figure, from_json(text), options.kind))
