"""Options and arguments that several subcommands have, each written once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from theorems.command import completion
from theorems.run.pool import PATIENCE as PATIENCE

JOBS = min(2, os.cpu_count() or 1)
"""Processes unless told otherwise."""

_NAMED = "A .npz or .json file or a named dataset"


def same_seed(what: str) -> Any:
    """``--seed``, on which ``what`` depends."""
    return typer.Option(min=0, metavar="S", help=f"Same seed, same {what}.")


def examples_option(what: str, least: int = 1) -> Any:
    """``--examples``."""
    return typer.Option(min=least, metavar="N", help=f"Generated {what}.")


def processes(independent: str) -> Any:
    """``--jobs``, on which ``independent`` does not depend; a verb is part of it."""
    return typer.Option(min=1, metavar="N", help=f"Processes; {independent} not depend on it.")


def identifier(help: str, completion: Callable[[str], list[str]]) -> Any:
    """The id of one object, an argument."""
    return typer.Argument(metavar="ID", help=help, autocompletion=completion)


def identifiers(help: str, completion: Callable[[str], list[str]], what: str = "ID") -> Any:
    """Several, or none."""
    return typer.Argument(metavar=f"[{what}]...", help=help, autocompletion=completion)


def text(metavar: str, help: str, completion: Callable[[str], list[str]] | None = None) -> Any:
    """A word, or a file; perhaps one of those that a shell completes."""
    return typer.Option(metavar=metavar, help=help, autocompletion=completion)


def limit(help: str) -> Any:
    """Seconds."""
    return typer.Option(min=0.001, metavar="SECONDS", help=help)


def folder(help: str) -> Any:
    """``--out`` where several files are written."""
    return text("DIR", help)


def as_markdown(what: str) -> Any:
    """``--markdown``."""
    return typer.Option("--markdown", help=f"As {what}.")


def data(help: str) -> Any:
    """``--data``."""
    return text("FILE|NAME", help, completion.data)


def file(help: str) -> Any:
    """A file that is written."""
    return text("FILE", help)


Ids = Annotated[list[str] | None, identifiers("Statements, or path.py:name; all by default.", completion.ids)]
Examples = Annotated[int, examples_option("cases per statement")]
Jobs = Annotated[int, processes("the results do")]
Json = Annotated[Path | None, file("Write the results as JSON.")]
Data = Annotated[str | None, data(f"{_NAMED}.")]
DataNotGenerated = Annotated[str | None, data(f"{_NAMED} instead of generated cases.")]
Resume = Annotated[
    Path | None,
    file("Append what is finished to this journal, and do not do again what it holds; begins it if it is not there."),
]
Timeout = Annotated[float | None, limit("End a statement that takes longer; it is inconclusive.")]
CaseTimeout = Annotated[
    float, limit("End a statement of your file, or on your kernel, at a case that takes longer; it is inconclusive.")
]
LOCAL = "local"
Engine = Annotated[
    str,
    text(
        "local|dask://HOST:PORT",
        "Who works: processes here, or the workers of a Dask cluster; the results do not depend on it.",
        completion.engines,
    ),
]
KnownFailures = Annotated[Path | None, file("Ids with reasons: falsified as is known is no failure, upheld is one.")]
Isolate = Annotated[
    bool,
    typer.Option(
        "--isolate/--no-isolate", help="Your files and your kernel in processes of their own; not so for a debugger."
    ),
]
