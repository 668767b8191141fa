"""An attention kernel as the implementation under test, with the information about the kernel that a run needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from attention_conformance.calls.answer import OnKernel, attend
from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.claims.capabilities import capability_of
from attention_conformance.kernel.diagnosis import diagnose
from attention_conformance.kernel.queried_kernel import QueriedKernel
from attention_conformance.kernel.report import describe_kernel, hints
from attention_conformance.kernel_process.remote_kernel import RemoteKernel
from generators.case import Case
from generators.subject import Subject
from reference_attention.risk import risk, scaled_gradient, softmax_weights
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import KernelUse
from theorems.core.under_test import KernelDescription

KERNEL_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "weights": softmax_weights,
    "risk": risk,
    "scaled_gradient": scaled_gradient,
    "attend": attend,
}
"""The reference's functions that a kernel replaces, by the functions' names in the results of a run."""


@dataclass(frozen=True)
class KernelImplementation(OnKernel):
    """A loaded kernel as the object that a run verifies (:class:`theorems.core.under_test.UnderTest`)."""

    recorded: ClassVar[Mapping[str, Callable[..., Any]]] = KERNEL_FUNCTIONS
    slow: ClassVar[bool] = True

    def bind_to_case(self, case: Subject) -> Implementation:
        """Return the implementation for a case.

        If the case trains a matrix W with a query token z_i for each input i, the kernel gets the queries W z_i.
        """
        if not isinstance(case, Case) or case.queried is None:
            return self
        outer_kernel = QueriedKernel(self.kernel, case.queried.keys, case.problem.keys)
        return self.replace(self.name, outer_kernel.replacements)

    def out_of_reach(self, use: KernelUse | None) -> str:
        """Return why a statement, whose use of kernels is ``use``, does not apply to the kernel; empty if it does."""
        if use is None:
            return ""
        return str(self.kernel.lacks(use)) if use.called else use.says

    def describe(self) -> KernelDescription:
        """Return the description of the kernel: its name, interface and number format."""
        return describe_kernel(self.kernel)

    def identity(self) -> str:
        """Return the kernel's name, its dtype, and a digest of the file that defines it."""
        from theorems.run.identity import digest_of_file  # check_call does not need it

        call = self.kernel.call
        try:
            file = call.file if isinstance(call, RemoteKernel) else inspect.getsourcefile(call) or ""
        except TypeError:
            file = ""
        fail_fast = " fail-fast" if self.fail_fast else ""
        return f"{self.kernel.name} {self.kernel.dtype} {digest_of_file(file) or 'built in'}{fail_fast}"

    def outcomes(
        self, statement: Any, examples: int, seed: int, part: int
    ) -> Iterator[tuple[Any, AttentionCall]] | None:
        """Return the outcomes of a capability on calls, or None if the statement is no capability of kernels.

        The calls are made once for all capabilities, and each capability looks at the same answers.
        """
        if statement.kernel is None or not statement.kernel.capability:
            return None
        from attention_conformance.claims.capability_view import view_of  # check_call does not need it, nor Hypothesis
        from theorems.run.verify import seed_of

        return view_of(statement, examples, seed_of("calls", seed, part) % 2**32, self).outcomes(examples)

    def explain(self, statement: Any, case: Subject) -> str:
        """Return where and by how much the results of a failing call are wrong, and a likely reason."""
        if not isinstance(case, AttentionCall):
            return ""
        capability = capability_of(statement.id)
        return diagnose(capability, case, self.in_format(capability.format))

    def hints(self) -> Sequence[str]:
        """Return a sentence for each frequent mistake of kernels that this kernel seems to have."""
        return tuple(hints(self.kernel))
