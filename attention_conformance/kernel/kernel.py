"""An attention kernel of a user as an :class:`theorems.core.implementation.Implementation`.

Weights, risk and gradient are computed by calls of the kernel and by autograd. A kernel is a callable on torch tensors
with the signature of an :mod:`.interface` that returns softmax(q kᵀ) v. For an input i of T tokens with keys k_it and
scores γ_it, the calls and their results are:

- the softmax weights s_i are the kernel's output if the values are the T×T identity matrix;
- γ_iᵀ s_i is the kernel's output if the values are a single column, the scores over a power of two, so that none
  overflows;
- ∇L, the gradient of the risk, comes from the kernel's backward pass: each of the n inputs has its own copy of the
  query p, and the upstream gradient of output i is the slope ℓ'_i of the loss at input i (the mantissa of ℓ'_i; its
  power of two is put back in float64). The n gradients are added in float64.

Once the softmax saturates, the excess risk is below the spacing of the kernel's numbers; therefore the reference
computes the logarithm of the excess risk. The reference also solves the SVMs, which do not involve a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from attention_conformance.calls.answer import Answer, attend
from attention_conformance.calls.attention_call import Alignment, AttentionCall
from attention_conformance.interfaces import ALWAYS, INTERFACES
from attention_conformance.interfaces.interface import Interface, Parameters, Request, Returned, parameters_of
from attention_conformance.interfaces.reading import Reading, interface_of
from attention_conformance.kernel.answers import answer_to, request_of
from attention_conformance.kernel.call_adaptation import in_numbers_of, suit_call
from attention_conformance.kernel.callable_import import import_callable
from attention_conformance.kernel.compiled_answer import BY_COMPILER
from attention_conformance.kernel.kernel_call import run_request
from attention_conformance.kernel.kernel_implementation import KernelImplementation
from attention_conformance.kernel.queried_kernel import QueriedKernel
from attention_conformance.kernel.single_query import Held, attend_to, gradients_at, outputs_at, weights_at
from attention_conformance.kernel.sizes import LAYOUTS, Layout, Taken, is_power_of_four
from attention_conformance.kernel.torch_import import torch
from reference_attention.errors import InvalidInput
from reference_attention.loss import Array
from theorems.bounded.formats import FORMATS, HALF, Format
from theorems.core.kernel_use import KernelUse
from theorems.core.under_test import Refused

DTYPES: Mapping[str, torch.dtype] = MappingProxyType({name: getattr(torch, name) for name in FORMATS})
"""The dtypes of tensors that a kernel may be given."""
UNPICKLED = ("parameters", "make_complete")
"""Fields that are not pickled: a process that restores a kernel reads its parameters again."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """A callable under test, and how to call it; other processes import the callable by ``source``, if there is one.

    Attributes:
        call: the callable.
        name: MODULE:CALLABLE, or the callable's own name.
        source: MODULE:CALLABLE by which to import the callable; empty for an object that was passed in Python.
        dtype: the dtype of the tensors in calls, a key of :data:`DTYPES`.
        layout: the shapes of the tensors in calls.
        interface: the signature of the callable, with the purpose of each parameter.
        parameters: the defaults of the callable's parameters by name.
        declares: the capabilities of the kernel, such as causal masks, that are tested.
        computes_in: the number format whose rounding bounds the kernel's errors: that of ``dtype``, or a coarser
            format.
        alignment: the position of the causal diagonal if the numbers of queries and keys differ, as calls showed it.
        taken: the sizes and memory layouts that the kernel takes.
        fixed_scale: whether the kernel always scales logits by 1/√E, for queries of E columns.
        lse_multiple: the kernel pads the lengths of its log-sum-exps to multiples of this number; 1 for no padding.
        skips_below: weights smaller than this share of the largest may be left out, as the callable declares.
        queries_to_a_sum: the number of queries whose terms of dK and dV are added before the sum is rounded to
            ``dtype``; 0 if only the whole sum is rounded.
        many_queries: whether the kernel takes several queries per batch entry; otherwise each query gets a copy of the
            keys.
        differentiable: whether the kernel has a backward pass.
        not_compiled: the reason why ``torch.compile`` cannot compile the kernel; empty if compilation works or was not
            tried.
        device: the device of the tensors in calls.
        accounts: how each parameter is treated in the tests, see
            :class:`attention_conformance.kernel.parameters.Account`.
        reading: the meaning of the signature, if a decorator or simple calls told it.
        coarser: the number formats, coarser than that of ``dtype``, in which the kernel is also tried.
        not_tried: for each coarser format in which the kernel is not tried, the reason.
        operators: PyTorch's attention operators that the kernel calls, by number format, as far as they are observed.
        make_variant: a function that returns the kernel in another format.
        make_complete: a function that tries ``torch.compile`` and returns the kernel with the capabilities that this
            shows; None if it was tried already, or is not tried.
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
    coarser: tuple[str, ...] = ()
    not_tried: Mapping[str, str] = field(default_factory=dict)
    operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    make_variant: Callable[[Kernel, str], Kernel] | None = None
    make_complete: Callable[[], Kernel] | None = None
    last: dict[str, Held] = field(default_factory=dict, init=False, repr=False)
    made: dict[str, Kernel] = field(default_factory=dict, init=False, repr=False)
    changed_settings: list[str] = field(default_factory=list, init=False, repr=False)

    run = run_request
    request = request_of
    suit = suit_call
    in_own_numbers = in_numbers_of
    attend = attend_to
    weights = weights_at
    outputs = outputs_at
    gradients = gradients_at

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the interface by its name, and the callable only if there is no ``source`` by which to import it."""
        # An interface contains functions, so its name is pickled instead.
        state = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.init and field.name not in UNPICKLED
        }
        state["interface"] = self.interface.name
        return _restore, (state | {"call": None if self.source else self.call},)

    @property
    def complete(self) -> Kernel:
        """The kernel with the capabilities of ``torch.compile``, which is tried now if that was put off."""
        return self if self.make_complete is None else self.make_complete()

    @property
    def numbers(self) -> Format:
        """The number format in which the kernel computes."""
        return FORMATS[self.computes_in]

    @property
    def eps(self) -> float:
        """The distance between 1 and the next larger number in the format in which the kernel computes."""
        return self.numbers.eps

    def lacks(self, use: KernelUse) -> str:
        """Return why a statement that calls kernels cannot be checked on this kernel; empty if it can be checked."""
        if use.capability == "memory" and self.taken.contiguous:
            return "the kernel takes only contiguous tensors"
        if use.capability in FORMATS and use.capability not in self.coarser:
            return self.not_tried.get(use.capability, f"all other capabilities are checked in {self.dtype}")
        declares = self.complete.declares if use.capability in BY_COMPILER else self.declares
        if use.capability and use.capability not in declares:
            return "the kernel has no parameter for this capability"
        if use.differentiates and not self.differentiable:
            return "the statement needs a backward pass, and the kernel has none"
        if not use.capability and self.computes_in in HALF:
            return f"the bounds of {self.computes_in} cannot decide the statement: large logits have no digits there"
        if not use.capability and self.taken.keys > 1:
            return f"the kernel takes only numbers of keys that are multiples of {self.taken.keys}"
        if not use.capability and self.fixed_scale and not is_power_of_four(self.taken.width(4, quartic=True)):
            return "the kernel's scale is 1/√E, and it takes no width that is a power of four"
        return ""

    def in_format(self, name: str) -> Kernel:
        """Return the kernel for tensors of the number format ``name``, which it must take; the result is cached."""
        if name == self.dtype:
            return self
        if name not in self.made:
            assert self.make_variant is not None
            self.made[name] = self.make_variant(self, name)
        return self.made[name]

    def answer(self, call: AttentionCall) -> Answer:
        """Call the kernel forward and backward, and return its results and gradients in float64.

        Unlike the functions assigned to the class above, a method is pickled by name, as is needed here.

        Raises:
            Refused: the kernel raises an error.
            InvalidInput: the kernel does not return a tensor of the right shape and dtype.
        """
        return answer_to(self, call)

    def output(self, call: AttentionCall) -> Array | None:
        """Return the kernel's output for a call, without a backward pass; None if the kernel refuses the call."""
        try:
            return self.replace(differentiable=False).answer(call).output
        except (Refused, InvalidInput):
            return None

    def of_request(self, request: Request) -> Returned:
        """Return the kernel's results for a request, first split or padded to the sizes that the kernel takes."""
        B, H, L, E = request.query.shape
        M = request.value.shape[-1]
        if not self.many_queries and L > 1:
            # Each query becomes a head of its own, with a copy of the keys.
            query = request.query.reshape(B, H * L, 1, E)
            key, value = (x.repeat_interleave(L, dim=1) for x in (request.key, request.value))
            return Returned(self.attend(query, key, value).reshape(B, H, L, M))
        if self.layout.square and M != E:
            width = -(-M // E) * E
            padded = torch.nn.functional.pad(request.value, (0, width - M))
            parts = [self.run(replace(request, value=v)) for v in torch.split(padded, E, dim=-1)]
            return parts[0]._replace(output=torch.cat([part.output for part in parts], dim=-1)[..., :M])
        return self.run(request)

    def tensor(self, array: Array) -> torch.Tensor:
        """Return a float64 array as a tensor in the kernel's dtype, on its device.

        For a kernel in another process the tensor stays on the CPU, and that process copies it to the device.
        """
        return torch.tensor(np.asarray(array, dtype=np.float64)).to(DTYPES[self.dtype]).to(self.device)

    def as_implementation(self) -> KernelImplementation:
        """Return the implementation that has the kernel in place of the reference's softmax, risk and gradient."""
        replaced = {**QueriedKernel(self).replacements, attend: self.answer}
        return KernelImplementation(name=self.name, replaced=replaced, textbook_eps=self.eps, kernel=self)

    def replace(self, **changed: Any) -> Kernel:
        """Return the kernel with the attributes ``changed`` replaced."""
        return replace(self, **changed)


def _restore(state: dict[str, Any]) -> Kernel:
    call = import_callable(state["source"]) if state["call"] is None else state["call"]
    interface = INTERFACES[state["interface"]] if state["reading"] is None else interface_of(state["reading"])
    parts = {"call": call, "interface": interface, "parameters": parameters_of(call)}
    return Kernel(**state | parts)
