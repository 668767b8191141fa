"""Which statements called a kernel, and what they say of it; torch is not needed for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from theorems.core.claim import WORST_FIRST, Verdict
from theorems.core.on_kernel import KernelUse
from theorems.run.registry.suite import capabilities
from theorems.run.result import Result
from theorems.run.tables import column_table


def kernel_table(results: Sequence[Result], uses: Mapping[str, KernelUse | None]) -> Table:
    """Statement, what is checked on the kernel; then what is not, one row per reason.

    Args:
        uses: what statements call of a kernel, by id.
    """
    table = column_table("statement", "on this kernel")
    for result in (one for one in results if one.was_tried):
        use = uses.get(result.id)
        table.add_row(Text(result.id, no_wrap=True), use.says if use and use.called else "")
    reasons: dict[str, list[str]] = {}
    for result in results:
        if not result.was_tried:
            reasons.setdefault(result.reason, []).append(result.id)
    for reason, ids in reasons.items():
        table.add_row(Text(", ".join(ids), "dim"), f"not applicable: {reason}")
    return table


def summary(results: Sequence[Result], kernel: Mapping[str, Any]) -> str:
    """The verdict on the kernel in a line, with what it computes in."""
    tried = [result for result in results if result.was_tried]
    verdict = next((v for v in WORST_FIRST if any(r.verdict is v for r in tried)), Verdict.NOT_APPLICABLE)
    able = sum(result.id in capabilities() for result in tried)
    counts = f"{able} capabilities and {len(tried) - able} statements"
    through = "" if kernel["differentiable"] else "; it has no backward pass, gradients are unchecked"
    left = [name for name, one in kernel.get("parameters", {}).items() if one == "not tested"]
    untested = f"; not tested: {', '.join(left)}" if left else ""
    return f"{verdict}; computes in {kernel['computes_in']}{through}{untested}: {counts} tried"


def capabilities_json(results: Sequence[Result]) -> list[dict[str, str]]:
    """What the kernel is able to do, for ``--json``."""
    return [
        {"name": result.id.removeprefix("kernel-"), "verdict": str(result.verdict), "reason": result.reason}
        for result in results
        if result.id in capabilities()
    ]
