"""``theorems explain``: from its options to tables, files and an exit code."""

from __future__ import annotations

from pathlib import Path

from reference_attention.files import check_writable, write_bytes, write_text
from theorems.core.exit_code import Exit
from theorems.explaining.content import write
from theorems.explaining.plot import check_kind
from theorems.library.explain import explain
from theorems.run.tables import console


def explain_and_report(data: str, starts: int, seed: int, json: Path | None, plot: Path | None) -> int:
    """Explain, print, write; returns the exit code.

    Raises:
        InvalidInput: data or targets that cannot be used; before anything runs.
    """
    if json is not None:
        check_writable(json)
    if plot is not None:
        check_kind(plot.suffix.removeprefix("."), "--plot")
        check_writable(plot)
    found = explain(data, starts=starts, seed=seed)
    write(found, console())
    if json is not None:
        write_text(json, found.to_json())
    if plot is not None:
        write_bytes(plot, found.plot(plot.suffix.removeprefix(".")))
    return Exit.UPHELD if found.is_decided else Exit.INCONCLUSIVE
