"""``theorems figures``: from its options to files and an exit code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reference_attention.errors import InvalidInput
from reference_attention.files import check_writable, from_json, to_json, write_bytes, write_text
from theorems.core.claim import Verdict
from theorems.core.exit_code import Exit
from theorems.core.exit_rule import exit_of
from theorems.figures.drawing import FORMATS, check_matplotlib, path_of, render_figure
from theorems.figures.figure import Figure, Settings
from theorems.figures.images import cifar_10
from theorems.figures.registry import FIGURES, figures_named, missing, missing_sentence
from theorems.figures.work import Computed, sheets
from theorems.run.engines.named import LOCAL, coordinator
from theorems.run.identity import identity
from theorems.run.journal import Journal, close
from theorems.run.progress import show_progress, totals_of
from theorems.run.schedule import Interrupted, run
from theorems.run.tables import column_table, console


@dataclass(frozen=True)
class FiguresRequest:
    """The options of ``theorems figures``."""

    names: tuple[str, ...]
    out: Path
    kind: str
    trials: int
    seed: int
    jobs: int
    epochs: int = 120
    cifar10: Path | None = None
    resume: Path | None = None
    engine: str = LOCAL


def figures_and_report(request: FiguresRequest) -> int:
    """Compute, draw, write; returns the exit code: 0, or 3 if a figure could not be computed.

    Raises:
        InvalidInput: unknown names or formats, no matplotlib, a directory that cannot be written; before anything runs.
    """
    figures = figures_named(request.names)
    if request.kind not in FORMATS:
        raise InvalidInput(f"--format: {request.kind!r} is not one of {', '.join(FORMATS)}.")
    check_matplotlib()
    _make(request.out)
    for one in figures:
        for ending in (request.kind, "json"):
            check_writable(path_of(request.out, one, ending))
    if request.cifar10 is not None:
        cifar_10(request.cifar10)

    options: dict[str, Any] = {"trials": request.trials, "seed": request.seed, "epochs": request.epochs}
    if request.cifar10 is not None:
        options["cifar10"] = str(request.cifar10.resolve())
    about = identity("figures", figures=sorted({one.name for one in figures}), **options)
    journal = None if request.resume is None else Journal(request.resume, about)
    settings = Settings(
        request.trials, request.seed, epochs=request.epochs, cifar10=request.cifar10, checkpoints=request.out
    )
    units = sheets(figures, settings)
    out, err = console(), console(stderr=True)
    interrupted = False
    try:
        with (
            coordinator(request.engine, about, request.resume) as engine,
            show_progress(err, totals_of(units), what="figures", steps="epochs") as progress,
        ):
            computed = run(units, request.jobs, progress, journal=journal, engine=engine)
    except Interrupted as stopped:
        computed, interrupted = stopped.results, True
    close(journal)
    by_name = {name: found for unit, found in zip(units, computed, strict=True) for name in unit.names}
    table = column_table("figure", "shows", f"files in {request.out}")
    for one in figures:
        if not by_name[one.name].failed:
            _write(one, by_name[one.name], request)
            table.add_row(one.name, one.plain_title, f"{one.stem}.{request.kind}, .json")
    out.print(table)
    lacking = [] if request.names else [one for one in FIGURES.values() if missing(one)]
    if lacking:
        out.print(f"Left out: {missing_sentence(lacking)}", soft_wrap=True)
    if interrupted:
        err.print("theorems: interrupted; what is listed was written.", soft_wrap=True)
        return Exit.INTERRUPTED
    for found in computed:
        if found.failed:
            err.print(f"theorems: {found.id}: {found.failed}", soft_wrap=True)
    return exit_of(Verdict.INCONCLUSIVE if found.failed else Verdict.UPHELD for found in computed)


def _make(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise InvalidInput(f"{directory}: is not a directory; give another one for the figures.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{directory}: cannot be made ({error.strerror or error}).") from None


def _write(one: Figure, found: Computed, request: FiguresRequest) -> None:
    text = to_json({"figure": one.name, "title": one.plain_title, **found.numbers})
    write_text(path_of(request.out, one, "json"), text + "\n")
    # What is drawn is what the file holds.
    write_bytes(path_of(request.out, one, request.kind), render_figure(one, from_json(text), request.kind))
