"""Options and arguments that several subcommands share."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from theorems.command import completion
from theorems.run.pool import PATIENCE as PATIENCE

LARGEST_SEED = 2**31 - 1
"""Largest seed that ``--seed fresh`` draws."""
JOBS = min(2, os.cpu_count() or 1)
"""Default number of processes: two, or one on a machine with one core."""


def same_seed(results: str) -> Any:
    """Return the option ``--seed``; ``results`` is the noun for what the seed determines, for the help text."""
    return typer.Option(min=0, metavar="S", help=f"Same seed, same {results}.")


def seed_or_fresh(what: str) -> Any:
    """Return the option ``--seed`` that also accepts "fresh"; ``what`` names, in the help, what the seed determines."""
    return typer.Option(parser=_seed, metavar="S", help=f'Same seed, same {what}; "fresh" draws a seed and prints it.')


def _seed(text: str | int) -> int:
    """Parse a seed: a whole number, or "fresh" for a random one.

    Raises:
        BadParameter: the text is neither a whole number nor "fresh".
    """
    if text == "fresh":
        return 1 + secrets.randbelow(LARGEST_SEED)
    try:
        seed = int(text)
    except ValueError:
        seed = -1
    if seed < 0:
        raise typer.BadParameter(f"{text} is not a seed; give a whole number, 0 or larger, or 'fresh'.")
    return seed


def examples_option(objects: str, least: int = 1) -> Any:
    """Return the option ``--examples``; ``objects`` is the noun for what is generated, for the help text."""
    return typer.Option(min=least, metavar="N", help=f"Generated {objects}.")


def processes(independent: str, least: int = 1, more: str = "") -> Any:
    """Return the option ``--jobs``; ``independent`` says what does not depend on it, such as "the results do"."""
    return typer.Option(min=least, metavar="N", help=f"Number of processes; {independent} not depend on it.{more}")


def identifier(help: str, completion: Callable[[str], list[str]]) -> Any:
    """Return an argument for the id of one object, such as a statement."""
    return typer.Argument(metavar="ID", help=help, autocompletion=completion)


def identifiers(help: str, completion: Callable[[str], list[str]], metavar: str = "ID") -> Any:
    """Return an argument for any number of ids, with the name ``metavar`` in the help text."""
    return typer.Argument(metavar=f"[{metavar}]...", help=help, autocompletion=completion)


def text(metavar: str, help: str, completion: Callable[[str], list[str]] | None = None, *names: str) -> Any:
    """Return an option with a text value, perhaps with completions for shells, or with other ``names``."""
    return typer.Option(*names, metavar=metavar, help=help, autocompletion=completion)


def limit(help: str) -> Any:
    """Return an option for a time limit in seconds."""
    return typer.Option(min=0.001, metavar="SECONDS", help=help)


def folder(help: str) -> Any:
    """Return the option ``--out`` for the folder of output files."""
    return text("DIR", help)


def data(help: str, *names: str) -> Any:
    """Return the option ``--data``; ``names`` replace this name."""
    return text("FILE|NAME", help, completion.data, *names)


def file(help: str) -> Any:
    """Return an option for an output file."""
    return text("FILE", help)


Ids = Annotated[list[str] | None, identifiers("Statements, or path.py:name; all by default.", completion.ids)]
Examples = Annotated[int, examples_option("cases per statement")]
Jobs = Annotated[int, processes("the results do")]
Json = Annotated[Path | None, file("Write the results as JSON.")]
DataNotGenerated = Annotated[str | None, data("A .npz or .json file or a named dataset instead of generated cases.")]
Resume = Annotated[
    Path | None,
    file("Append finished work to this journal and skip what it already holds; created if missing."),
]
Timeout = Annotated[float | None, limit("Stop a statement that takes longer; it is then inconclusive.")]
CaseTimeout = Annotated[
    float,
    limit("Stop a statement of your file, or on your kernel, if a case takes longer; it is then inconclusive."),
]
LOCAL = "local"
Engine = Annotated[
    str,
    text(
        "local|dask://HOST:PORT",
        "Where the work is done: processes here, or workers of a Dask cluster; the results do not depend on it.",
        completion.engines,
    ),
]
KnownFailures = Annotated[
    Path | None, file("Statements known to fail, with reasons: falsified is then expected, upheld is a failure.")
]
