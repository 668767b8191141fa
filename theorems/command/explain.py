"""``theorems explain``: from its options to tables, files and an exit code."""

from __future__ import annotations

from shlex import quote

from reference_attention.files import write_bytes, write_text
from theorems.command.common import check_targets
from theorems.command.subcommands import ExplainOptions
from theorems.core.exit_code import Exit
from theorems.explaining.explanation import Explanation
from theorems.explaining.plot import check_kind
from theorems.library.explain import explain
from theorems.run.tables import console


def explain_and_report(options: ExplainOptions) -> int:
    """Explain, print, write; returns the exit code.

    Raises:
        InvalidInput: data or targets that cannot be used; before anything runs.
    """
    kind = options.plot.suffix.removeprefix(".") if options.plot else ""
    check_targets(options.json)
    if options.plot is not None:
        check_kind(kind, "--plot")
    check_targets(options.plot)
    found = explain(options.data, starts=options.starts, seed=options.seed)
    found.write(console())
    if isinstance(found, Explanation):
        console().print(f"To drag its tokens: theorems explore --data {quote(options.data)}", soft_wrap=True)
    if options.json is not None:
        write_text(options.json, found.to_json())
    if options.plot is not None:
        write_bytes(options.plot, found.plot(kind))
    return Exit.UPHELD if found.is_decided else Exit.INCONCLUSIVE
