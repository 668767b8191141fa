"""The function that makes a capability (an option of attention kernels) a statement.

The statement claims that the kernel returns softmax attention for the rows of a call, with the right gradients
(:mod:`attention_conformance.calls.attention_rows`), within the rounding errors of the textbook formula in the kernel's
number format.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from hypothesis.strategies import SearchStrategy

from attention_conformance.calls.attention_call import AttentionCall
from theorems.core.claim import Claim
from theorems.core.kernel_use import KernelUse
from theorems.core.statement import Statement, alone

Conclusion = Callable[[AttentionCall, Any], Iterator[Claim]]
"""Function (call, implementation of type :class:`attention_conformance.calls.answer.OnKernel`) → claims."""


def capability_statement(
    name: str,
    title: str,
    text: str,
    *,
    calls: Callable[[], SearchStrategy[AttentionCall]],
    conclusion: Conclusion,
    claims: Mapping[str, str],
    says: str,
    differentiates: bool = False,
    from_data: Callable[[AttentionCall], Iterator[AttentionCall]] | None = None,
) -> Statement:
    """Make the statement ``kernel-NAME``, which a kernel that declares the capability has to satisfy.

    Args:
        name: the name by which a kernel declares the capability, one of those in
            :attr:`attention_conformance.interfaces.interface.Interface.options`.
        title: a few words on the content.
        text: the statement in full.
        calls: a Hypothesis strategy of calls.
        conclusion: a function (call, kernel) → claims.
        claims: the names of the claims, each with a description of the calls on which it is made.
        says: the property that is checked, as the report prints it.
        differentiates: whether the statement can be checked only with a backward pass.
        from_data: a function that yields a user's call if the capability concerns it; by default it yields every call.
    """
    return Statement(
        f"kernel-{name}",
        title,
        "definition of attention, and Lemma 3",
        (),
        calls,
        conclusion,
        inspect.cleandoc(text),
        from_data or alone,
        kernel=KernelUse(True, says, capability=name, differentiates=differentiates),
        claims=MappingProxyType(dict(claims)),
        about=AttentionCall,
    )
