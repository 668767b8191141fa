"""The capabilities of the table as statements."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import islice

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from attention_conformance.claims.examination import examine
from attention_conformance.claims.table import CAPABILITIES, Capability
from generators.attention_call import AttentionCall
from generators.call_building import build_call
from generators.call_space import PLAIN, plans, size_of_array
from theorems.core.capability import Conclusion, capability_statement
from theorems.core.claim import Claim
from theorems.core.on_kernel import OnKernel
from theorems.core.statement import Statement

EVERYTHING = frozenset(one.name for one in CAPABILITIES)
"""What a kernel may declare."""


@cache
def capability_statements() -> dict[str, Statement]:
    """By id, in the order of the table."""
    made = [
        capability_statement(
            one.name,
            one.title,
            one.text,
            calls=partial(_calls, one),
            conclusion=_conclusion(one),
            claims=one.claims,
            says=one.says,
            differentiates=one.differentiates,
        )
        for one in CAPABILITIES
    ]
    return {one.id: one for one in made}


def capability_of(statement: Statement) -> Capability:
    """What a statement of the table is about."""
    return next(one for one in CAPABILITIES if f"kernel-{one.name}" == statement.id)


def _conclusion(capability: Capability) -> Conclusion:
    def conclusion(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
        return (claim for about, claim in examine(call, under_test) if capability.has(call, about, claim.name))

    conclusion.__module__ = examine.__module__  # whose tolerances it has
    return conclusion


def _calls(capability: Capability) -> SearchStrategy[AttentionCall]:
    """Calls of a kernel that declares everything; those that make use of the capability.

    A kernel's own calls are made for its own space, :mod:`attention_conformance.claims.trials`.
    """

    def is_about(call: AttentionCall) -> bool:
        return capability.is_base or capability.everywhere or capability.is_on(call)

    return st.deferred(lambda: st.sampled_from([call for call in _all_calls() if is_about(call)]))


@cache
def _all_calls() -> tuple[AttentionCall, ...]:
    """One of each plan of a cover."""
    numbered = enumerate(islice(plans(EVERYTHING, 0, 2), size_of_array(EVERYTHING, 0, 2)))
    return tuple(build_call(plan, EVERYTHING, number, number) for number, plan in numbered if number >= len(PLAIN))
