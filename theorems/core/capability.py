"""What an attention kernel can do, each a statement of its own: its calls come from a strategy, its claims are derived.

The rows of a call are the paper's problem; what is claimed is that the kernel returns their softmax attention and its
gradients (:mod:`theorems.rounding.attention_rows`), within the rounding of the textbook formula in its own numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from hypothesis.strategies import SearchStrategy

from generators.attention_call import AttentionCall
from theorems.core.claim import Claim, until_undecided
from theorems.core.on_kernel import KernelUse, OnKernel
from theorems.core.statement import Statement, alone

Conclusion = Callable[[AttentionCall, OnKernel], Iterator[Claim]]


def capability(
    name: str,
    title: str,
    *,
    calls: Callable[[], SearchStrategy[AttentionCall]],
    claims: Mapping[str, str],
    says: str,
    differentiates: bool = False,
) -> Callable[[Conclusion], Statement]:
    """Make the decorated conclusion the statement ``kernel-NAME``; its docstring states it.

    Args:
        name: what a kernel declares, a key of :attr:`theorems.kernel.interface.Interface.declares`.
        title: in a few words.
        calls: a strategy of calls.
        claims: the claims that it may make, and when.
        says: what of the kernel is checked, for a reader of the report.
        differentiates: whether nothing is left of it without a backward pass.
    """

    def decorate(conclusion: Conclusion) -> Statement:
        return Statement(
            f"kernel-{name}",
            title,
            "definition of attention, and Lemma 3",
            (),
            calls,
            until_undecided(conclusion),
            inspect.cleandoc(conclusion.__doc__ or ""),
            alone,
            kernel=KernelUse(True, says, capability=name, differentiates=differentiates),
            claims=MappingProxyType(dict(claims)),
            about=AttentionCall,
        )

    return decorate
