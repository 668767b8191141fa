"""The capabilities of the table as statements."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import islice

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from attention_conformance.calls.answer import OnKernel
from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.calls.call_building import build_call
from attention_conformance.calls.call_space import PLAIN, plans, size_of_array
from attention_conformance.claims.capabilities import CAPABILITIES, Capability
from attention_conformance.claims.capability import Conclusion, capability_statement
from attention_conformance.claims.examination import examine
from theorems.core.claim import Claim
from theorems.core.statement import Statement

EVERYTHING = frozenset(capability.name for capability in CAPABILITIES)
"""All capabilities that a kernel may declare."""


@cache
def capability_statements() -> dict[str, Statement]:
    """Return the statements by id, in the order of the table."""
    statements = [
        capability_statement(
            capability.name,
            capability.title,
            capability.text,
            calls=partial(_calls, capability),
            conclusion=_conclusion(capability),
            claims=capability.claims,
            says=capability.says,
            differentiates=capability.differentiates,
        )
        for capability in CAPABILITIES
    ]
    return {statement.id: statement for statement in statements}


def capability_of(statement: Statement) -> Capability:
    """Return the capability that a statement is about."""
    return next(capability for capability in CAPABILITIES if f"kernel-{capability.name}" == statement.id)


def _conclusion(capability: Capability) -> Conclusion:
    def conclusion(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
        implementation = under_test.in_format(capability.format)
        return (claim for about, claim in examine(call, implementation) if capability.has(call, about, claim.name))

    conclusion.__module__ = examine.__module__  # whose tolerances it has
    return conclusion


def _calls(capability: Capability) -> SearchStrategy[AttentionCall]:
    """Return a strategy of calls of a kernel that declares everything, restricted to those that use the capability.

    A kernel's own calls are built for its own space, :mod:`attention_conformance.claims.trials`.
    """

    def is_about(call: AttentionCall) -> bool:
        return capability.is_base or capability.everywhere or capability.is_on(call)

    return st.deferred(lambda: st.sampled_from([call for call in _all_calls() if is_about(call)]))


@cache
def _all_calls() -> tuple[AttentionCall, ...]:
    """Return a call of each plan of a cover, except plans without any option."""
    numbered = enumerate(islice(plans(EVERYTHING, 0, 2), size_of_array(EVERYTHING, 0, 2)))
    return tuple(build_call(plan, EVERYTHING, number, number) for number, plan in numbered if number >= len(PLAIN))
