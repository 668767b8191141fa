"""The ``theorems`` command: its subcommands, their options and their help.

Exit codes: 0 upheld, 1 falsified, 2 usage or bad input, 3 inconclusive, 130 Ctrl-C, 141 closed pipe, 143 SIGTERM or
SIGHUP.
Slow imports (NumPy, Hypothesis, the statements) are left to the subcommand that needs them.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, cast, get_type_hints

import typer

from max_margin_theorems.extensions import object_at
from theorems.command import subcommands
from theorems.core.exit_code import Exit

# Set this before NumPy is loaded: work is divided among processes, and threads within them would slow it down.
os.environ.setdefault("OMP_NUM_THREADS", "1")


app = typer.Typer(
    pretty_exceptions_enable=False,
    help="The theorems of 'Max-Margin Token Selection in Attention Mechanism' as executable specifications.",
)


def _version(requested: bool) -> bool:
    if requested:
        from theorems.core.version import version

        print(version())
        raise typer.Exit(0)
    return requested


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Read the options of the command itself, which precede the subcommand."""


def add_subcommand(kind: type[Any], place: str) -> None:
    """Add a subcommand to the command.

    Args:
        kind: the dataclass of the subcommand's options; its name and docstring give the subcommand's name and help.
        place: ``module:NAME`` of the function that takes the options; the module is imported when the subcommand is
            called.
    """
    hints = get_type_hints(kind, include_extras=True)

    def parse(**values: Any) -> int | None:
        return cast("int | None", object_at(place)(kind(**values)))

    parameters = inspect.signature(kind).parameters.values()
    annotated = [parameter.replace(annotation=hints[parameter.name]) for parameter in parameters]
    parse.__signature__ = inspect.Signature(annotated)  # type: ignore[attr-defined]
    parse.__annotations__ = hints
    name = re.sub(r"\B(?=[A-Z])", "-", kind.__name__.removesuffix("Options")).lower()
    app.command(name, help=inspect.getdoc(kind))(parse)


SUBCOMMANDS: tuple[tuple[type[Any], str], ...] = (
    (subcommands.ListOptions, "listings:print_list"),
    (subcommands.ShowOptions, "listings:show"),
    (subcommands.VerifyOptions, "verify:verify_and_report"),
    (subcommands.ExplainOptions, "explain:explain_and_report"),
    (subcommands.HuntOptions, "counterexamples:hunt_and_report"),
    (subcommands.ReplayOptions, "counterexamples:replay_and_report"),
    (subcommands.BenchOptions, "benchmark:bench_and_report"),
    (subcommands.FiguresOptions, "figures:figures_and_report"),
)
"""For each subcommand, the class of its options, and the function in :mod:`theorems.command` that takes them."""

for options, function in SUBCOMMANDS:
    add_subcommand(options, f"theorems.command.{function}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with the arguments (by default those of the process) and return its exit code.

    Bad input, and output that cannot be written, are reported in one sentence on standard error.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed this stream
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        with suppress(AttributeError, ValueError):
            getattr(sys, name).reconfigure(errors="replace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(args=words or ["--help"], prog_name="theorems", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0) if words else Exit.BAD_INPUT
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
        return _complaint(error, words)


def _complaint(error: Exception, words: Sequence[str]) -> int:
    from reference_attention.errors import InvalidInput

    message = getattr(error, "format_message", None)  # typer's usage errors have this method
    if isinstance(error, InvalidInput) or callable(message):
        sentence = message() if callable(message) else str(error)
        missing = re.fullmatch(r"Missing option '(--[a-z-]+)'( / '--[a-z-]+')?\.", sentence)
        if missing:
            has_value = words[1:] and not words[1].startswith("-")
            sentence = f"Missing option '{missing[1]}'{f'; give {missing[1]} {words[1]}' if has_value else ''}."
        _say(sentence)
        return Exit.INCONCLUSIVE if _is_process_death(error) else Exit.BAD_INPUT
    if isinstance(error, OSError) and error.filename is None:
        # A file that cannot be written raises InvalidInput, so this error concerns standard output.
        _say(f"standard output cannot be written ({error.strerror or error}).")
        return _close_output(Exit.BAD_INPUT)
    with suppress(OSError):
        traceback.print_exception(error)
    _say("internal error; nothing is concluded. Please report it with the lines above.")
    return Exit.INCONCLUSIVE


def _is_process_death(error: Exception) -> bool:
    from theorems.run.sandbox import ProcessDied

    return isinstance(error, ProcessDied)


def _say(sentence: str) -> None:
    with suppress(OSError):
        text, gap, to_paste = sentence.partition("\n\n")
        print(f"theorems: {' '.join(text.split())}{gap}{to_paste}", file=sys.stderr)


def _close_output(code: Exit) -> Exit:
    """Discard the output that is still buffered, lest Python print an error when it exits; return ``code``."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code
