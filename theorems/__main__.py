"""The ``theorems`` command.

Exit codes: 0 upheld, 1 falsified, 2 usage or bad input, 3 inconclusive, 130 Ctrl-C, 141 closed pipe.
What takes long to import (NumPy, Hypothesis, the statements) is imported by the command that needs it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from theorems.exit_code import Exit

# Before NumPy is loaded: processes share the work, threads within one only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")


app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="The theorems of 'Max-Margin Token Selection in Attention Mechanism' as executable specifications.",
)


def _version(wanted: bool) -> bool:
    if wanted:
        from theorems.version import version

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


@app.command("list")
def list_(
    data: Annotated[bool, typer.Option("--data", help="The named datasets instead.")] = False,
    assumptions: Annotated[bool, typer.Option("--assumptions", help="The assumptions only.")] = False,
) -> None:
    """List the statements, the definitions and the assumptions."""
    from theorems import describe
    from theorems.report_table import console

    if data or assumptions:
        console().print(describe.datasets() if data else describe.assumptions())
        return
    console().print(describe.statements_table())
    console().print(describe.definitions())
    console().print(describe.assumptions())


@app.command()
def show(id: Annotated[str, typer.Argument(metavar="ID", help="A statement or an assumption.")]) -> None:
    """Show a statement: text, source, assumptions, tolerances; or an assumption."""
    from theorems import describe
    from theorems.report_table import console

    describe.show(console(), id)


@app.command()
def tolerances(
    markdown: Annotated[bool, typer.Option("--markdown", help="As a Markdown table.")] = False,
) -> None:
    """Print every tolerance of the suite with its formula and its reason."""
    from theorems import describe
    from theorems.report_table import console

    if markdown:
        print(describe.tolerances_markdown())
    else:
        console().print(describe.tolerances_table())


@app.command()
def verify(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Statements; all by default.")] = None,
    examples: Annotated[int, typer.Option(min=1, metavar="N", help="Generated cases per statement.")] = 50,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Same seed, same cases.")] = 0,
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE|NAME", help="A .npz or .json file or a named dataset instead of generated cases."),
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JSON.")] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where failing cases are written.")] = Path("falsified"),
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Processes; the results do not depend on it.")] = min(
        2, os.cpu_count() or 1
    ),
) -> int:
    """Verify statements on generated cases, or on your data.

    Exact decisions and limits take time: with 400 tokens in 50 dimensions a statement about locally optimal
    tokens takes minutes, the others seconds.

    Exit code 0: all upheld, or not applicable with at least one upheld; 1: one is falsified; 2: bad input;
    3: inconclusive, or nothing could be tried.
    """
    from theorems.session import Request, verify_and_report

    return verify_and_report(Request(tuple(ids or ()), examples, seed, data, json, out, jobs))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code. Wrong input is one sentence on standard error."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(args=given or ["--help"], prog_name="theorems", standalone_mode=False)
        return int(code or 0) if given else Exit.BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        return Exit.INTERRUPTED
    except SystemExit as stop:
        # typer turns a closed pipe (theorems list | head) into exit code 1, which means "falsified" here.
        return _closed_pipe() if isinstance(stop.__context__, BrokenPipeError) else Exit.BAD_INPUT
    except BrokenPipeError:
        return _closed_pipe()
    except Exception as error:
        return _complaint(error)


def _complaint(error: Exception) -> int:
    from attention.errors import InvalidInput

    message = getattr(error, "format_message", None)  # the usage errors of typer, whichever click it carries
    if isinstance(error, InvalidInput) or callable(message):
        sentence = message() if callable(message) else str(error)
        print(f"theorems: {' '.join(sentence.split())}", file=sys.stderr)
        return Exit.BAD_INPUT
    traceback.print_exception(error)
    print("theorems: internal error, nothing is concluded; please report it.", file=sys.stderr)
    return Exit.INCONCLUSIVE


def _closed_pipe() -> int:
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return Exit.BROKEN_PIPE


if __name__ == "__main__":
    sys.exit(main())
