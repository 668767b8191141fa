"""The capabilities of attention kernels, from their table, as statements."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import islice

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from attention_conformance.calls.answer import OnKernel
from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.calls.call_builder import build_call
from attention_conformance.calls.call_space import PLAIN, plans, size_of_array
from attention_conformance.claims.call_claims import examine
from attention_conformance.claims.capabilities import CAPABILITIES, Capability
from attention_conformance.claims.capability import Conclusion, capability_statement
from theorems.core.claim import Claim
from theorems.core.statement import Statement

EVERYTHING = frozenset(capability.name for capability in CAPABILITIES)
"""All capabilities that a kernel may declare."""


@cache
def capability_statements() -> dict[str, Statement]:
    """Return the statements by id, in the order of the table of capabilities."""
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
            from_data=partial(_from_data, capability),
        )
        for capability in CAPABILITIES
    ]
    return {statement.id: statement for statement in statements}


def _conclusion(capability: Capability) -> Conclusion:
    def conclusion(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
        return capability.claims_on(call, under_test)

    conclusion.__module__ = examine.__module__  # whose tolerances apply
    return conclusion


def _from_data(capability: Capability, call: AttentionCall) -> Iterator[AttentionCall]:
    """Yield a user's call if the capability makes a claim about it."""
    if capability.differentiates and not call.wants:
        return
    if capability.is_base or capability.is_on(call) or (capability.everywhere and capability.agrees):
        yield call


def _calls(capability: Capability) -> SearchStrategy[AttentionCall]:
    """Return a strategy for calls that use the capability, for a kernel that declares all capabilities.

    For a real kernel :mod:`attention_conformance.claims.trials` makes the calls.
    """

    def is_about(call: AttentionCall) -> bool:
        return capability.is_base or capability.everywhere or capability.is_on(call)

    return st.deferred(lambda: st.sampled_from([call for call in _all_calls() if is_about(call)]))


@cache
def _all_calls() -> tuple[AttentionCall, ...]:
    """Return a call for each plan that covers pairs of options, without the plans that have no option."""
    numbered = enumerate(islice(plans(EVERYTHING, 0, 2), size_of_array(EVERYTHING, 0, 2)))
    return tuple(build_call(plan, EVERYTHING, number, number) for number, plan in numbered if number >= len(PLAIN))
