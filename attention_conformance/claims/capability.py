"""Capabilities of attention kernels, each a statement of its own: they share calls, and their claims are derived.

The rows of a call are the paper's problem. The statement claims that the kernel returns their softmax attention and
its gradients (:mod:`attention_conformance.calls.attention_rows`), within the rounding of the textbook formula in the
kernel's numbers.
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
"""(call, implementation under test, a :class:`attention_conformance.calls.answer.OnKernel`) → claims."""


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
        name: the name that a kernel declares, among
            :attr:`attention_conformance.interfaces.interface.Interface.options`.
        title: a few words on the content.
        text: the statement in full.
        calls: a Hypothesis strategy of calls.
        conclusion: (call, kernel) → claims.
        claims: the claims by name, and when each is made.
        says: the property that is checked, as the report prints it.
        differentiates: whether the statement can be checked only with a backward pass.
        from_data: yields a user's call if the capability concerns it; by default yields every call.
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
