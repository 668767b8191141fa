"""Options of a kernel that fail together: those that the smallest failing calls of its capabilities have in common."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.claims.capabilities import options_on
from generators.user_data import subject_of
from reference_attention.files import from_json
from theorems.core.claim import Verdict
from theorems.run.registry.suite import capabilities
from theorems.run.result import Failure, Result


def failing_combinations(results: Iterable[Result]) -> list[list[str]]:
    """Return the options of the smallest failing calls, without combinations that contain another one.

    If two options fail together, they also fail with a third. An empty combination stands for calls without any option.
    """
    failed = [result.failure for result in results if result.failure and result.failure.verdict is Verdict.FALSIFIED]
    failing = dict.fromkeys(frozenset(options_on(call)) for failure in failed if (call := call_of(failure)) is not None)
    return [sorted(names, key=_place) for names in failing if not any(other < names for other in failing if other)]


def call_of(failure: Failure) -> AttentionCall | None:
    """Return the call that failed; None if the failure was a case of another kind."""
    case = subject_of(from_json(failure.case))
    return case if isinstance(case, AttentionCall) else None


def in_words(combinations: Sequence[Collection[str]]) -> str:
    """Describe the combinations for a reader; empty if there are none."""
    texts = [" + ".join(names) if names else "calls without any option" for names in combinations]
    return f"what fails, made as small as it gets: {'; '.join(texts)}" if texts else ""


def _place(name: str) -> int:
    return list(capabilities()).index(f"kernel-{name}")
