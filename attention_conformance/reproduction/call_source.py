"""The source of a test's function that calls the kernel: the arguments, and how to get the output from the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.kernel.answers import masks_of
from attention_conformance.kernel.memory_layout import FURTHER_LEAVES, memory_of, place_tensor
from attention_conformance.kernel.torch_import import torch
from attention_conformance.reproduction.python_text import NotWritten, indent, wrap
from attention_conformance.reproduction.recorder import Recorder
from attention_conformance.reproduction.tensors import OPTIONS
from reference_attention.errors import InvalidInput

OWN = ("query", "key", "value")


@dataclass(frozen=True, eq=False)
class Calling:
    """A function in a test that calls the kernel; the test passes the function to ``printed_functions.run``.

    Attributes:
        kernel: a :class:`attention_conformance.kernel.kernel.Kernel`.
        call: the call, with tensors rounded to the kernel's number format.
        renamed: an expression in the test for each tensor of the call whose name in the test is not its own.
        further: the source of further arguments of the kernel.
        callee: the kernel's name in the test.
        weights: whether the test uses the returned attention weights.
        is_forward: whether the test computes no gradients.
        looked_at: the names of the claims that the test checks; they decide whether sinks and bias need gradients.
    """

    kernel: Any
    call: AttentionCall
    renamed: Mapping[str, str] = field(default_factory=dict)
    further: str = ""
    callee: str = "kernel"
    weights: bool = False
    is_forward: bool = False
    looked_at: tuple[str, ...] = ()

    @property
    def wants(self) -> str:
        """The letters, among q, k and v, of the tensors whose gradients the call requests."""
        return self.call.wants if self.kernel.differentiable else ""

    def made(self, attend: str = "attend", **options: str) -> str:
        """Return the source of a call of ``run`` with the function named ``attend`` and the arguments ``options``."""
        arguments = [attend, *(self.renamed.get(name, name) for name in OWN)]
        if self.wants and not self.is_forward:
            upstreams = ["upstream", *(["lse_upstream"] if self.call.lse_upstream is not None else [])]
            arguments += [self.renamed.get(name, name) for name in upstreams]
            options |= {f"d{name}": name for name, gradient in FURTHER_LEAVES.items() if gradient in self.looked_at}
        options |= {"wants": f'"{self.wants}"'} if self.wants != "qkv" else {}
        return f"run({', '.join([*arguments, *(f'{name}={text}' for name, text in options.items())])})"

    def function(self, name: str = "attend") -> str:
        """Return the source of the function, which returns by name the output and other results that checks use."""
        return f"\ndef {name}(query, key, value):\n{indent(self.forward)}\n"

    @cached_property
    def forward(self) -> Sequence[str]:
        """The body of the function, as source."""
        kernel, call = self.kernel, self.call
        tensors = {name: place_tensor(kernel.tensor(getattr(call, name)), memory_of(name, call)).tensor for name in OWN}
        masks = {name: mask.tensor for name, mask in masks_of(kernel, call).items()}
        request = kernel.request(call, tensors, masks)
        recorder = Recorder(kernel.call, self.callee, self.further)
        for name in (*OWN, *OPTIONS):
            if name != "lengths" and getattr(request, name, None) is not None:
                recorder.name(name if name in OWN else self.renamed.get(name, name), getattr(request, name))
        try:
            with torch.no_grad(), recorder:
                returned = kernel.replace(call=recorder.call).of_request(request)
        except InvalidInput as error:
            raise NotWritten(f"what it raises when it is called again ({error})") from None
        looked_at = {"output": returned.output}
        if call.log_sum_exp or call.lse_upstream is not None:
            looked_at["lse"] = returned.log_sum_exp
        if self.weights:
            looked_at["weights"] = returned.weights
        return [line if "\n" in line else wrap(line) for line in recorder.lines(looked_at)]
