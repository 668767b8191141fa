"""A call of the kernel as lines of a test: what its interface gives it, forward and backward, in its state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from attention_conformance.kernel.answering import masks_of
from attention_conformance.kernel.placing import (
    FURTHER_LEAVES,
    memory_of,
    place_tensor,
    with_a_mask,
    with_other_options,
)
from attention_conformance.kernel.trace import Trace
from attention_conformance.kernel.with_torch import torch
from attention_conformance.reproduction.flex_text import flex_lines
from attention_conformance.reproduction.module_text import module_lines
from attention_conformance.reproduction.placement import OPTIONS
from attention_conformance.reproduction.recording import Recorder, record
from attention_conformance.reproduction.steps import lines_of
from attention_conformance.reproduction.text import for_each, indent, names, wrap
from attention_conformance.reproduction.wording import NotWritten
from generators.attention_call import AttentionCall, Memory, State
from theorems.core.on_kernel import Answer

OWN = ("query", "key", "value")
INDEX = {Memory.BROADCAST: "[:1]", Memory.HEADS: "[:, :1]"}
"""Of an expanded tensor, what is there in memory."""


@dataclass(frozen=True, eq=False)
class Calling:
    """A call, written down.

    Attributes:
        kernel: a :class:`attention_conformance.kernel.kernel.Kernel`.
        call: in its numbers.
        answer: what it returned.
        renamed: what tensors are called that are not called by their own names.
        further: text of arguments that the kernel is given beside.
        callee: what the kernel is called.
        weights: whether the weights that it returns matter.
        is_forward: whether nobody looks at gradients.
        looked_at: names of gradients, of sinks and a bias among them, that somebody looks at.
    """

    kernel: Any
    call: AttentionCall
    answer: Answer | None = None
    renamed: tuple[tuple[str, str], ...] = ()
    further: str = ""
    callee: str = "kernel"
    weights: bool = False
    is_forward: bool = False
    looked_at: tuple[str, ...] = ()

    @cached_property
    def _record(self) -> tuple[Recorder, Any]:
        kernel, call = self.kernel, self.call
        held = {
            name: place_tensor(kernel.tensor(getattr(call, name)), memory_of(name, call)).tensor.requires_grad_(
                name[0] in self.wants
            )
            for name in OWN
        }
        masks = {name: one.tensor for name, one in masks_of(kernel, call).items()}
        request = kernel.request(call, held, masks)
        named = {name: name for name in (*OWN, *OPTIONS) if name not in ("lengths", "lse_upstream")}
        if call.dropout:
            torch.manual_seed(call.seed)
        return record(kernel, request, named | dict(self.renamed), self.further, self.callee)

    @property
    def wants(self) -> str:
        """Of q, k and v, those whose gradients are asked for."""
        return self.call.wants if self.kernel.differentiable else ""

    @cached_property
    def forward(self) -> Sequence[str]:
        """Lines that make :attr:`returns` of query, key and value."""
        recorder, returned = self._record
        steps = {"output": recorder.step_of(returned.output)}
        if "lse" in self.returns:
            steps["lse"] = recorder.step_of(returned.log_sum_exp)
        if "weights" in self.returns:
            steps["weights"] = recorder.step_of(returned.weights)
        return [*self._before(recorder.words.objects), *lines_of(steps)]

    def _before(self, objects: set[str]) -> Iterator[str]:
        """What the kernel is given beside tensors and numbers."""
        call = self.call
        known = {"module", "score_mod", "mask_mod", "block_mask", "AuxRequest"}
        if objects - known:
            raise NotWritten(f"its argument {min(objects - known)}")
        if "module" in objects:
            yield from module_lines(call)
        if self.renamed and objects & {"score_mod", "mask_mod", "block_mask"}:
            raise NotWritten("functions of places for one entry of a batch alone")
        yield from flex_lines(call, objects)

    @cached_property
    def returns(self) -> Sequence[str]:
        """What a forward pass makes."""
        lse = self.call.log_sum_exp or self.call.lse_upstream is not None
        return ["output", *(["lse"] if lse else []), *(["weights"] if self.weights else [])]

    @cached_property
    def leaves(self) -> dict[str, str]:
        """The names of gradients, and of what has them."""
        if not self.wants or self.is_forward:
            return {}
        found = {f"d{name[0]}": name for name in OWN if name[0] in self.wants}
        looked_at = (name for name, gradient in FURTHER_LEAVES.items() if gradient in self.looked_at)
        return found | {f"d{name}": name for name in looked_at}

    def backward(self, upstream: str = "upstream", again: bool = False) -> Iterator[str]:
        """Lines that make the gradients of :attr:`leaves`.

        Args:
            upstream: text of the upstream gradient.
            again: whether there is another backward pass through the graph.
        """
        if not self.leaves:
            return
        results, upstreams = "output", upstream
        if self.call.lse_upstream is not None and not again and self._record[1].log_sum_exp.requires_grad:
            to = "" if self.kernel.dtype == "float64" else ".to(lse.dtype)"
            results, upstreams = "(output, lse)", f"({upstream}, lse_upstream{to})"
        gradients = [getattr(self.answer, name, None) for name in GRADIENTS]
        given = [x for x in gradients if x is not None]
        nan = self.answer is not None and np.isnan(self.answer.output).all()
        if given and all(np.isnan(x).all() for x in given) and not nan:
            yield 'assert output.requires_grad, "no gradient: autograd does not know of its inputs"'
        unused = ", allow_unused=True" if any(np.isnan(x).all() or not x.any() for x in given) else ""
        retain = ", retain_graph=True" if again else ""
        leaves = f"({names(self.leaves.values())})"
        grad = f"torch.autograd.grad({results}, {leaves}, {upstreams}{retain}{unused})"
        yield wrap(grad if again else f"{names(self.leaves)} = {grad}")

    def further_leaves(self) -> Iterator[str]:
        """Sinks and a bias, where somebody looks at their gradients."""
        return (f"{name}.requires_grad_()" for name in self.leaves.values() if name not in OWN)

    def inline(self) -> Iterator[str]:
        """One call, and nothing around it."""
        yield from self.further_leaves()
        own = [name for name in self.leaves.values() if name in OWN]
        if own:
            yield for_each(own, "x.requires_grad_()")
        yield from self._without_gradients(self.forward)
        yield from self.backward()

    def _without_gradients(self, lines: Sequence[str]) -> Iterator[str]:
        if self.wants or not self.kernel.differentiable:
            yield from lines
        else:
            yield "with torch.no_grad():"
            yield indent(lines)

    def function(self, name: str, arguments: str = "query, key, value") -> Iterator[str]:
        """A function that makes a forward pass."""
        yield f"\ndef {name}({arguments}):"
        yield indent([*self._without_gradients(self.forward), f"return {', '.join(self.returns)}"])
        yield ""

    def run(self, name: str = "run", arguments: str = "query, key, value") -> Iterator[str]:
        """A function that makes a forward and a backward pass; it returns :attr:`results`."""
        body: list[str] = []
        own = [one for one in self.leaves.values() if one in OWN]
        if own:
            body.append(for_each(own, "x.detach().requires_grad_()"))
        body += [*self._without_gradients(self.forward), *self.backward()]
        yield f"\ndef {name}({arguments}):"
        yield indent([*body, f"return {names(self.results)}"])
        yield ""

    @property
    def results(self) -> list[str]:
        """What a forward and a backward pass make."""
        return [*self.returns, *self.leaves]

    def in_its_state(self) -> Iterator[str]:
        """Lines that make :attr:`results`, with what else happens around the call."""
        state, made = self.call.state, ", ".join(self.returns)
        if state is State.ONCE or (state is State.SECOND_BACKWARD and not self.leaves):
            yield from self.inline()
            return
        yield from self.further_leaves()
        if state is State.TWICE:
            yield from self.run()
            yield "run(query, key, value)"
            yield f"{names(self.results)} = run(query, key, value)"
        elif state is State.OVERWRITTEN:
            yield from self._overwritten()
        elif state is State.AFTER_ANOTHER:
            yield from self._after_another()
        else:
            yield from self._around_the_backward_pass(state, made)

    def _overwritten(self) -> Iterator[str]:
        """Another call whose tensors and masks lie where those of this one do."""
        call = self.call
        held = {name: f"{name}{INDEX.get(memory_of(name, call), '')}" for name in OWN}
        masks = {
            name: f"{name}{self._own_part(name)}" for name in ("visible", "bias") if getattr(call, name) is not None
        }
        there = ", ".join([*held.values(), *masks.values()])
        yield from self.run()
        yield f"there = [{there}]"
        yield "numbers_of = [x.clone() for x in there]"
        yield "for x in there[:3]:  # other numbers in their place"
        yield "    x.copy_(-x.flip(2))"
        if masks:
            yield "for x in there[3:]:"
            yield "    x.copy_(x.flip(-1))"
        yield "run(query, key, value)"
        yield "for x, own in zip(there, numbers_of):"
        yield "    x.copy_(own)"
        yield f"{names(self.results)} = run(query, key, value)"

    def _after_another(self) -> Iterator[str]:
        """A call of the same sizes before it."""
        other = self.kernel.interface.expressible(with_a_mask(self.call, self.kernel.declares))
        if other.visible is not self.call.visible:
            L, T = other.visible.shape[-2:]
            yield f"visible = torch.ones({L}, {T}, dtype=torch.bool).tril()"
        yield from self.run()
        yield from Calling(self.kernel, other.replace(wants="")).function("before")
        yield "before(*(-x.detach().flip(2) for x in (query, key, value)))"
        yield f"{names(self.results)} = run(query, key, value)"

    def _own_part(self, mask: str) -> str:
        """The index of what is there in memory of a mask that is expanded."""
        if self.call.mask_memory is not Memory.BROADCAST:
            return ""
        own = getattr(self.call, mask).shape
        return f"[{', '.join(['0'] * (4 - len(own)) + [':1' if size == 1 else ':' for size in own])}]"

    def _around_the_backward_pass(self, state: State, made: str) -> Iterator[str]:
        yield from self.function("forward")
        own = [one for one in self.leaves.values() if one in OWN]
        if own:
            yield for_each(own, "x.detach().requires_grad_()")
        yield f"{made} = forward(query, key, value)"
        if state is State.INTERLEAVED:
            other = Calling(self.kernel, self.kernel.interface.expressible(with_other_options(self.call)))
            name = "forward" if other.forward == self.forward else "with_other_options"
            if name != "forward":
                yield from other.function(name)
            others = "(-x.detach().flip(2)).requires_grad_(x.requires_grad) for x in (query, key, value)"
            yield f"{name}(*({others}))  # other numbers, before anybody looks at these"
        elif state is State.SECOND_BACKWARD:
            yield from self.backward("-upstream.flip(2)", again=True)
        else:
            raise NotWritten(f"the state {state}")
        yield from self.backward()


GRADIENTS = ("query_gradient", "key_gradient", "value_gradient", "sink_gradient", "bias_gradient")


def calling_of(found: Trace, call: AttentionCall | None = None, **further: Any) -> Calling:
    """The call that falsifies, or another one of those, written down."""
    answer = next((a for a in reversed(found.answers) if a is not None), None)
    looked_at = tuple(entry.claim for entry in found.entries)
    return Calling(found.kernel, found.call if call is None else call, answer, looked_at=looked_at, **further)
