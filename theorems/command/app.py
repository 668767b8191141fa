"""The ``theorems`` command: its subcommands, their options and their help.

Exit codes: 0 upheld, 1 falsified, 2 usage or bad input, 3 inconclusive, 130 Ctrl-C, 141 closed pipe, 143 SIGTERM or
SIGHUP.
What takes long to import (NumPy, Hypothesis, the statements) is imported by the command that needs it.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, get_type_hints

import typer

from theorems.command import subcommands
from theorems.core.exit_code import Exit

# Before NumPy is loaded: processes share the work, threads within one only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")


app = typer.Typer(
    pretty_exceptions_enable=False,
    help="The theorems of 'Max-Margin Token Selection in Attention Mechanism' as executable specifications.",
)


def _version(wanted: bool) -> bool:
    if wanted:
        from theorems.core.version import version

        print(version())
        raise typer.Exit(0)
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the command as a whole."""


def subcommand(function: Callable[[Any], int | None]) -> Callable[[Any], int | None]:
    """A subcommand: the dataclass that it takes has its name and its help, and the fields of that are its options."""
    kind = get_type_hints(function)["options"]
    hints = get_type_hints(kind, include_extras=True)

    def parse(**given: Any) -> int | None:
        return function(kind(**given))

    own = inspect.signature(kind).parameters.values()
    parse.__signature__ = inspect.Signature([one.replace(annotation=hints[one.name]) for one in own])  # type: ignore[attr-defined]
    parse.__annotations__ = hints
    name = re.sub(r"\B(?=[A-Z])", "-", kind.__name__.removesuffix("Options")).lower()
    app.command(name, help=inspect.getdoc(kind))(parse)
    return function


@subcommand
def list_all(options: subcommands.ListOptions) -> None:
    from theorems.command import describe

    describe.print_list(options)


@subcommand
def show(options: subcommands.ShowOptions) -> None:
    from theorems.command import describe

    describe.show(options.id)


@subcommand
def tolerances(options: subcommands.TolerancesOptions) -> None:
    from theorems.command import describe

    describe.print_tolerances(options)


@subcommand
def verify(options: subcommands.VerifyOptions) -> int:
    from theorems.command.verify import verify_and_report

    return verify_and_report(options)


@subcommand
def scoreboard(options: subcommands.ScoreboardOptions) -> int:
    from theorems.command.scoreboard import scoreboard_and_report

    return scoreboard_and_report(options)


@subcommand
def explain(options: subcommands.ExplainOptions) -> int:
    from theorems.command.explain import explain_and_report

    return explain_and_report(options)


@subcommand
def explore(options: subcommands.ExploreOptions) -> int:
    from theorems.command.explore import explore_and_serve

    return explore_and_serve(options)


@subcommand
def draws(options: subcommands.DrawnOptions) -> int:
    from theorems.command.draws import draw_and_report

    return draw_and_report(options)


@subcommand
def hunt(options: subcommands.HuntOptions) -> int:
    from theorems.command.hunting import hunt_and_report

    return hunt_and_report(options)


@subcommand
def replay(options: subcommands.ReplayOptions) -> int:
    from theorems.command.hunting import replay_and_report

    return replay_and_report(options)


@subcommand
def power(options: subcommands.PowerOptions) -> int:
    from theorems.command.power import power_and_report

    return power_and_report(options)


@subcommand
def counterexamples(options: subcommands.CounterexamplesOptions) -> int:
    from theorems.command.hunting import table_and_report

    return table_and_report(options)


@subcommand
def regime_map(options: subcommands.RegimeMapOptions) -> int:
    from theorems.command.regime_map import regime_map_and_report

    return regime_map_and_report(options)


@subcommand
def bench(options: subcommands.BenchOptions) -> int:
    from theorems.command.benchmark import bench_and_report

    return bench_and_report(options)


@subcommand
def figures(options: subcommands.FiguresOptions) -> int:
    from theorems.command.figures import figures_and_report

    return figures_and_report(options)


@subcommand
def report(options: subcommands.ReportOptions) -> int:
    from theorems.command.report import report_and_write

    return report_and_write(options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code. Wrong input, and output that nobody takes, are one sentence on standard
    error.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        with suppress(AttributeError, ValueError):
            getattr(sys, name).reconfigure(errors="replace")
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(args=given or ["--help"], prog_name="theorems", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0) if given else Exit.BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        return Exit.INTERRUPTED
    except SystemExit as stop:
        # typer turns a closed pipe (theorems list | head) into exit code 1, which means "falsified" here.
        if isinstance(stop.__context__, BrokenPipeError):
            return _close_output(Exit.BROKEN_PIPE)
        return Exit.BAD_INPUT if stop.code else Exit.UPHELD  # 0: shell completion
    except BrokenPipeError:
        return _close_output(Exit.BROKEN_PIPE)
    except Exception as error:
        return _complaint(error, given)


def _complaint(error: Exception, given: Sequence[str]) -> int:
    from reference_attention.errors import InvalidInput

    message = getattr(error, "format_message", None)  # the usage errors of typer, whichever click it carries
    if isinstance(error, InvalidInput) or callable(message):
        sentence = message() if callable(message) else str(error)
        missing = re.fullmatch(r"Missing option '(--[a-z-]+)'\.", sentence)
        if missing and given[1:] and not given[1].startswith("-"):
            sentence = f"{sentence[:-1]}; give {missing[1]} {given[1]}."
        _say(sentence)
        return Exit.INCONCLUSIVE if _is_process_death(error) else Exit.BAD_INPUT
    if isinstance(error, OSError) and error.filename is None:
        # Every file of ours that cannot be written is an InvalidInput.
        _say(f"standard output cannot be written ({error.strerror or error}).")
        return _close_output(Exit.BAD_INPUT)
    with suppress(OSError):
        traceback.print_exception(error)
    _say("internal error, nothing is concluded; please report it.")
    return Exit.INCONCLUSIVE


def _is_process_death(error: Exception) -> bool:
    from theorems.run.sandbox import ProcessDied

    return isinstance(error, ProcessDied)


def _say(sentence: str) -> None:
    with suppress(OSError):
        said, gap, to_paste = sentence.partition("\n\n")
        print(f"theorems: {' '.join(said.split())}{gap}{to_paste}", file=sys.stderr)


def _close_output(code: Exit) -> Exit:
    """What is still to be printed goes nowhere; otherwise Python complains of it at its end."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code
