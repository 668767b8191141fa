"""Which options of a kernel fail together: what the smallest failing calls of its capabilities have in common."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from attention_conformance.claims.table import options_on
from generators.attention_call import AttentionCall
from generators.user_data import subject_of
from reference_attention.files import from_json
from theorems.core.claim import Verdict
from theorems.run.registry.suite import capabilities
from theorems.run.result import Failure, Result


def failing_combinations(results: Iterable[Result]) -> list[list[str]]:
    """The options of the smallest failing calls, each without those that hold another one: what fails with two
    options fails with three. An empty one stands for calls without any option.
    """
    failed = [one.failure for one in results if one.failure and one.failure.verdict is Verdict.FALSIFIED]
    found = dict.fromkeys(frozenset(options_on(call)) for failure in failed if (call := call_of(failure)) is not None)
    return [sorted(one, key=_place) for one in found if not any(other < one for other in found if other)]


def call_of(failure: Failure) -> AttentionCall | None:
    """The call that failed; None if it was a case of another kind."""
    case = subject_of(from_json(failure.case))
    return case if isinstance(case, AttentionCall) else None


def in_words(combinations: Sequence[Collection[str]]) -> str:
    """For a reader; empty if there are none."""
    said = [" + ".join(one) if one else "calls without any option" for one in combinations]
    return f"what fails, made as small as it gets: {'; '.join(said)}" if said else ""


def _place(name: str) -> int:
    return list(capabilities()).index(f"kernel-{name}")
