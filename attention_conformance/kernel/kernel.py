"""Somebody's attention kernel as an :class:`theorems.core.implementation.Implementation`:
weights, risk, gradient by autograd.

A kernel is a callable on torch tensors with the signature of an :mod:`.interface`, that returns softmax(q kᵀ) v.
Everything here is linear bookkeeping around calls of it:

- weights are the kernel on the identity as values, m = T;
- γ_iᵀ s_i is the kernel on the scores as values, m = 1, divided by a power of two so that no score overflows;
- ∇L is the kernel's own backward pass: each input has a copy of the query, its upstream gradient is the slope ℓ'_i
  of the loss at the kernel's own output (mantissa only; the power of two is put back in float64), and the n gradients
  are added in float64.

A log-excess risk is below the spacing of the kernel's numbers as soon as the softmax saturates: it stays the
reference's. So do the SVMs, which have nothing to do with a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from attention_conformance.interfaces import ALWAYS, INTERFACES
from attention_conformance.interfaces.by_name import interface_of
from attention_conformance.interfaces.interface import Interface, Parameters, Request, Returned, parameters_of
from attention_conformance.interfaces.reading import Reading
from attention_conformance.kernel.answering import answer_to, request_of
from attention_conformance.kernel.diagnosis import diagnose
from attention_conformance.kernel.importing import import_callable
from attention_conformance.kernel.layout import LAYOUTS, Layout
from attention_conformance.kernel.points import Held, attend_to, gradients_at, outputs_at, weights_at
from attention_conformance.kernel.queries import OuterKernel, PromptKernel
from attention_conformance.kernel.report import describe_kernel, hints
from attention_conformance.kernel.running import run_request
from attention_conformance.kernel.sizes import Taken, is_power_of_four
from attention_conformance.kernel.suiting import in_numbers_of, suit_call
from attention_conformance.kernel.with_torch import torch
from generators.attention_call import Alignment, AttentionCall
from reference_attention.loss import Array, Loss
from theorems.bounded.formats import FORMATS, HALF, Format
from theorems.core.on_kernel import Answer, KernelUse, OnKernel

DTYPES: Mapping[str, torch.dtype] = MappingProxyType({name: getattr(torch, name) for name in FORMATS})
"""What a kernel may be given."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """A callable and how to call it; travels to other processes by ``source`` if it has one.

    Attributes:
        call: the callable.
        name: MODULE:CALLABLE, or what the object calls itself.
        source: MODULE:CALLABLE to import it by; empty for an object that was handed over.
        dtype: of the tensors that it is given, a key of :data:`DTYPES`.
        layout: which shapes it is given.
        interface: its signature.
        parameters: those that it has, and their defaults.
        declares: its capabilities.
        computes_in: the numbers that its results are within the rounding of; those of ``dtype``, or coarser ones.
        alignment: of causality where L ≠ T, as it was found to be.
        taken: sizes and tensors that it takes.
        fixed_scale: whether its scale is 1/√E, and nobody can say otherwise.
        lse_multiple: its log-sum-exps have lengths that are multiples of that.
        skips_below: weights smaller than this share of the largest may be left out, as the callable declares.
        queries_to_a_sum: over so many dK and dV are summed before they are rounded to ``dtype``; 0 for all of them.
        many_queries: whether it takes more than one query to an input; else each gets a copy of the keys.
        differentiable: whether it has a backward pass.
        not_compiled: why ``torch.compile`` does not take it; empty if it does, or was not asked.
        device: where its tensors live.
        accounts: what becomes of each of its parameters, :class:`attention_conformance.kernel.parameters.Account`.
        reading: how it is called, where its interface was found out.
    """

    call: Callable[..., Any]
    name: str
    source: str = ""
    dtype: str = "float64"
    layout: Layout = LAYOUTS[0]
    interface: Interface = INTERFACES["plain"]
    parameters: Parameters = field(default_factory=dict)
    declares: frozenset[str] = frozenset(ALWAYS)
    computes_in: str = "float64"
    alignment: Alignment = Alignment.TOP_LEFT
    taken: Taken = field(default_factory=Taken)
    fixed_scale: bool = False
    lse_multiple: int = 1
    skips_below: float = 0.0
    queries_to_a_sum: int = 0
    many_queries: bool = True
    differentiable: bool = True
    not_compiled: str = ""
    device: str = "cpu"
    accounts: Mapping[str, str] = field(default_factory=dict)
    reading: Reading | None = None
    last: dict[str, Held] = field(default_factory=dict, init=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        # An interface is a constant, and holds functions; it travels by name.
        held = {one.name: getattr(self, one.name) for one in fields(self) if one.init and one.name != "parameters"}
        held["interface"] = self.interface.name
        return _restore, (held | {"call": None if self.source else self.call},)

    @property
    def numbers(self) -> Format:
        """What it computes in."""
        return FORMATS[self.computes_in]

    @property
    def eps(self) -> float:
        """Spacing of the kernel's numbers at one."""
        return self.numbers.eps

    def lacks(self, use: KernelUse) -> str:
        """Why a statement that calls kernels does not call this one; empty if it does."""
        if use.capability == "memory" and self.taken.contiguous:
            return "it takes contiguous tensors alone"
        if use.capability and use.capability not in self.declares:
            return "the kernel has no parameter for it"
        if use.differentiates and not self.differentiable:
            return "it needs a backward pass, and the kernel has none"
        if not use.capability and self.computes_in in HALF:
            return f"the bounds of {self.computes_in} say nothing of it: logits of a few hundred have no digits there"
        if not use.capability and self.taken.one_head:
            return f"it takes {self.taken} alone"
        if not use.capability and self.taken.keys > 1:
            return f"it takes keys in multiples of {self.taken.keys} alone"
        if not use.capability and self.fixed_scale and not is_power_of_four(self.taken.width(4, quartic=True)):
            return "its scale is 1/√E, and no width that it takes is a power of four"
        return ""

    def attend(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """The kernel on (B, n, 1, d), (B, n, T, d), (B, n, T, m), in its layout → (B, n, 1, m).

        Raises:
            InvalidInput: it raises, or returns something else.
        """
        return attend_to(self, query, keys, values)

    def run(self, request: Request) -> Returned:
        """What the kernel itself returns: output (B, H, L, M), log-sum-exp (B, H, L), if it was asked for that, and
        weights (B, H, L, T), if it returns them.

        Raises:
            InvalidInput: it raises, or returns something else.
        """
        return run_request(self, request)

    def answer(self, call: AttentionCall) -> Answer:
        """One call, forward and backward, in float64.

        Raises:
            Refused: the kernel raises.
            InvalidInput: it returns something that is no tensor of the shape or dtype that is due.
        """
        return answer_to(self, call)

    def of_request(self, request: Request) -> Returned:
        """The kernel on a request; in shapes that it takes, if it takes no others."""
        B, H, L, E = request.query.shape
        M = request.value.shape[-1]
        if not self.many_queries and L > 1:
            # One query to an input: each query is an input of its own, with a copy of the keys.
            query = request.query.reshape(B, H * L, 1, E)
            key, value = (x.repeat_interleave(L, dim=1) for x in (request.key, request.value))
            return Returned(self.attend(query, key, value).reshape(B, H, L, M))
        if self.layout.square and M != E:
            width = -(-M // E) * E
            padded = torch.nn.functional.pad(request.value, (0, width - M))
            parts = [self.run(replace(request, value=v)) for v in torch.split(padded, E, dim=-1)]
            return parts[0]._replace(output=torch.cat([one.output for one in parts], dim=-1)[..., :M])
        return self.run(request)

    def request(
        self, call: AttentionCall, given: Mapping[str, torch.Tensor], masks: Mapping[str, torch.Tensor]
    ) -> Request:
        """The call with these tensors, query, key and value by name, and masks, as they lie in memory."""
        return request_of(self, call, given, masks)

    def suit(self, call: AttentionCall) -> AttentionCall:
        """The call in sizes that the kernel takes, with options that its signature can say."""
        return suit_call(self, call)

    def in_own_numbers(self, call: AttentionCall) -> AttentionCall:
        """The call as the kernel takes it, its tensors rounded to the kernel's numbers."""
        return in_numbers_of(self, call)

    def tensor(self, array: Array) -> torch.Tensor:
        """A float64 array in the kernel's dtype, where it wants its tensors."""
        return torch.tensor(np.asarray(array, dtype=np.float64)).to(DTYPES[self.dtype]).to(self.device)

    def weights(self, keys: Array, queries: Array) -> Array:
        """s_i = softmax(K_i q_i), (*b, n, T), of queries (*b, n or 1, d)."""
        return weights_at(self, keys, queries)

    def outputs(self, keys: Array, scores: Array, queries: Array) -> Array:
        """γ_iᵀ s_i, (*b, n), of queries (*b, n or 1, d)."""
        return outputs_at(self, keys, scores, queries)

    def gradients(self, keys: Array, scores: Array, loss: Loss, queries: Array) -> tuple[Array, Array]:
        """Of each ℓ(γ_iᵀ s_i) in its query, (*b, n, d), and log of its unit, (*b,)."""
        return gradients_at(self, keys, scores, loss, queries)

    def as_implementation(self) -> OnKernel:
        """The kernel in place of the reference's softmax, risk and gradient."""
        asked = PromptKernel(self)
        return OnKernel(
            name=self.name,
            weights=asked.weights,
            risk=asked.risk,
            scaled_gradient=asked.scaled_gradient,
            textbook_eps=self.eps,
            kernel=self,
            attend=self.answer,
            explained=diagnose,
            on_queries=partial(OuterKernel, self),
            described=partial(describe_kernel, self),
            hints=partial(hints, self),
        )

    def replace(self, **changed: Any) -> Kernel:
        """This kernel, called otherwise."""
        return replace(self, **changed)


def _restore(held: dict[str, Any]) -> Kernel:
    call = import_callable(held["source"]) if held["call"] is None else held["call"]
    interface = INTERFACES[held["interface"]] if held["reading"] is None else interface_of(held["reading"])
    found = {"call": call, "interface": interface, "parameters": parameters_of(call)}
    return Kernel(**held | found)
