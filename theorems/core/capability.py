"""What an attention kernel can do, each a statement of its own: its calls are shared, its claims are derived.

The rows of a call are the paper's problem; what is claimed is that the kernel returns their softmax attention and its
gradients (:mod:`theorems.rounding.attention_rows`), within the rounding of the textbook formula in its own numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from hypothesis.strategies import SearchStrategy

from generators.attention_call import AttentionCall
from theorems.core.claim import Claim
from theorems.core.on_kernel import KernelUse
from theorems.core.statement import Statement, alone

Conclusion = Callable[[AttentionCall, Any], Iterator[Claim]]
"""Takes a call, and what is under test, a :class:`theorems.core.on_kernel.OnKernel`."""


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
) -> Statement:
    """The statement ``kernel-NAME``.

    Args:
        name: what a kernel declares, among :attr:`attention_conformance.interfaces.interface.Interface.options`.
        title: in a few words.
        text: what is claimed.
        calls: a strategy of calls.
        conclusion: (call, kernel) → claims.
        claims: the claims that it may make, and when.
        says: what of the kernel is checked, for a reader of the report.
        differentiates: whether nothing is left of it without a backward pass.
    """
    return Statement(
        f"kernel-{name}",
        title,
        "definition of attention, and Lemma 3",
        (),
        calls,
        conclusion,
        inspect.cleandoc(text),
        alone,
        kernel=KernelUse(True, says, capability=name, differentiates=differentiates),
        claims=MappingProxyType(dict(claims)),
        about=AttentionCall,
    )
