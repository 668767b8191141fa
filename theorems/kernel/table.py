"""Which statements called a kernel, and what they say of it; torch is not needed for that."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from theorems.core.claim import Verdict
from theorems.registry.lookup import statement_named
from theorems.run.result import Result
from theorems.run.tables import column_table


def was_tried(result: Result) -> bool:
    """Whether the kernel was called, or something else than not-applicable came out."""
    return bool(result.touched) or result.verdict is not Verdict.NOT_APPLICABLE


def kernel_table(results: Sequence[Result]) -> Table:
    """Statement, functions called, what is checked on the kernel; then what is not, one row per reason."""
    table = column_table("statement", "called", "on this kernel")
    for result in filter(was_tried, results):
        use = statement_named(result.id).kernel
        table.add_row(
            Text(result.id, no_wrap=True),
            ", ".join(result.touched) or "nothing",
            use.says if use and use.called else "",
        )
    reasons: dict[str, list[str]] = {}
    for result in results:
        if not was_tried(result):
            reasons.setdefault(result.reason, []).append(result.id)
    for reason, ids in reasons.items():
        table.add_row(", ".join(ids), Text("nothing", "dim"), f"not applicable: {reason}")
    return table
