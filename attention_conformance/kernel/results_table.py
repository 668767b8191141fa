"""Tables and JSON on a kernel: the statements that were checked on it, their results, and options that fail together.

Each falsified capability has a smallest failing call; the options of such a call fail together. This module does not
import torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.claims.capabilities import TRIED, options_on
from generators.user_data import subject_of
from reference_attention.files import from_json
from theorems.core.claim import WORST_FIRST, Verdict
from theorems.core.kernel_use import KernelUse
from theorems.run.registry.suite import capabilities
from theorems.run.result import Failure, Result
from theorems.run.tables import column_table


def kernel_table(results: Sequence[Result], uses: Mapping[str, KernelUse | None]) -> Table:
    """Return a table of the statements, each with what it checks on a kernel, then the skipped statements by reason.

    Args:
        results: the results of the statements.
        uses: how each statement uses kernels, by the statement's id.
    """
    table = column_table("statement", "on this kernel")
    for result in (result for result in results if result.was_tried):
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
    """Return a line with the kernel's verdict, number format, untested parameters, and number of statements tried."""
    checked = [result for result in results if result.was_tried]
    verdict = next((v for v in WORST_FIRST if any(r.verdict is v for r in checked)), Verdict.NOT_APPLICABLE)
    begun = [result for result in checked if result.was_begun]
    able = sum(result.id in capabilities() for result in begun)
    counts = f"{able} capabilities and {len(begun) - able} statements"
    others = [name for name, state in kernel.get("formats", {}).items() if state != TRIED]
    skipped = f"; not tried in {', '.join(others)}" if others else ""
    through = "" if kernel["differentiable"] else "; it has no backward pass, gradients are unchecked"
    not_tested_names = [name for name, treatment in kernel.get("parameters", {}).items() if treatment == "not tested"]
    untested = f"; not tested: {', '.join(not_tested_names)}" if not_tested_names else ""
    return f"{verdict}; computes in {kernel['computes_in']}{through}{untested}{skipped}: {counts} tried"


def score_json(results: Sequence[Result]) -> dict[str, Any]:
    """Return a score between 0 and 1 for ``--json``, which may be a reward in training, and the marks that it averages.

    Each capability that was tried has a mark under "parts": 1 if it is upheld, else 0. The score is the mean of the
    marks, but 0 if the output is wrong.
    """
    tried = [result for result in results if result.id in capabilities() and result.was_tried]
    parts = {result.id.removeprefix("kernel-"): int(result.verdict is Verdict.UPHELD) for result in tried}
    is_wrong = not parts or any(r.id == "kernel-output" and r.verdict is Verdict.FALSIFIED for r in tried)
    return {"value": 0.0 if is_wrong else sum(parts.values()) / len(parts), "parts": parts}


def capabilities_json(results: Sequence[Result]) -> list[dict[str, str]]:
    """Return the verdict on each capability of the kernel, for ``--json``."""
    return [
        {"name": result.id.removeprefix("kernel-"), "verdict": str(result.verdict), "reason": result.reason}
        for result in results
        if result.id in capabilities()
    ]


def failing_combinations(results: Iterable[Result]) -> list[list[str]]:
    """Return the sets of options that smallest failing calls use, without sets that contain another such set.

    A larger set tells nothing new: if two options fail together, they also fail with a third option. The empty set
    stands for calls without any option; every set contains it, but is not left out for this reason.
    """
    failed = [result.failure for result in results if result.failure and result.failure.verdict is Verdict.FALSIFIED]
    failing = dict.fromkeys(frozenset(options_on(call)) for failure in failed if (call := call_of(failure)) is not None)
    return [sorted(names, key=_place) for names in failing if not any(other < names for other in failing if other)]


def call_of(failure: Failure) -> AttentionCall | None:
    """Return the call on which a kernel failed; None if the failing case is no call of attention."""
    case = subject_of(from_json(failure.case))
    return case if isinstance(case, AttentionCall) else None


def in_words(combinations: Sequence[Collection[str]]) -> str:
    """Return a sentence that lists combinations of options that fail together; empty if there are none."""
    texts = [" + ".join(names) if names else "calls without any option" for names in combinations]
    return f"smallest failing combinations: {'; '.join(texts)}" if texts else ""


def _place(name: str) -> int:
    return list(capabilities()).index(f"kernel-{name}")
