"""The capabilities of attention kernels, from their table, as statements."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import islice
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from attention_conformance.calls.answer import OnKernel
from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.calls.call_builder import build_call
from attention_conformance.calls.call_space import PLAIN, plans, size_of_array
from attention_conformance.claims.call_claims import examine
from attention_conformance.claims.capabilities import CAPABILITIES, Capability, options_on
from attention_conformance.claims.capability import Conclusion, capability_statement
from theorems.core.claim import Claim
from theorems.core.statement import Statement
from theorems.core.under_test import Refused

SCALED_DOWN = 1.5
"""Queries that become smaller by more than this factor were scaled down (by 2 or more), and not only rounded."""
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


def capability_of(statement: Statement) -> Capability:
    """Return the capability that a statement is about."""
    return next(capability for capability in CAPABILITIES if f"kernel-{capability.name}" == statement.id)


def _conclusion(capability: Capability) -> Conclusion:
    def conclusion(call: AttentionCall, under_test: OnKernel) -> Iterator[Claim]:
        if call.dtype:
            _check_captured(call, under_test.kernel)
        implementation = under_test.in_format(capability.format)
        return (claim for about, claim in examine(call, implementation) if capability.has(call, about, claim.name))

    conclusion.__module__ = examine.__module__  # whose tolerances apply
    return conclusion


def _from_data(capability: Capability, call: AttentionCall) -> Iterator[AttentionCall]:
    """Yield a user's call if the capability makes a claim about it."""
    if capability.differentiates and not call.wants:
        return
    if capability.is_base or capability.is_on(call) or (capability.everywhere and capability.agrees):
        yield call


def _check_captured(call: AttentionCall, kernel: Any) -> None:
    """Refuse a captured call that would have to be adapted to the kernel, as generated calls are.

    Raises:
        Refused: the kernel lacks an option of the call, or does not take the call's sizes or numbers.
    """
    lacking = next((name for name in options_on(call) if name not in kernel.complete.declares), None)
    if lacking == "default-scale":
        raise Refused("the kernel has no default scale; save scale, which is 1 if the logits are not scaled")
    if lacking is not None:
        raise Refused(f"the call needs {lacking}, for which the kernel has no parameter")
    given = kernel.in_own_numbers(call)
    if given.sizes != call.sizes:
        sizes = ", ".join(f"{axis} = {size}" for axis, size in given.sizes.items() if size != call.sizes[axis])
        raise Refused(f"the kernel does not take calls of these sizes; save a call with {sizes}")
    if np.max(np.abs(given.query)) < np.max(np.abs(call.query)) / SCALED_DOWN:
        raise Refused(f"products of queries and keys may overflow in {kernel.dtype}; give --dtype float32")


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
