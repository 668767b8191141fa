"""A call as text: what the kernel is given, and where in what it returns the output is, in a function of a test.

The interface calls the kernel on numbers of which no two are equal: what the kernel is given then, and what the
interface makes of what it returned, shows by its numbers what it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.interfaces.interface import Request, Returned
from attention_conformance.interfaces.merging import COMBINE, MERGE_STATE, parts_of
from attention_conformance.interfaces.mla import MLA
from attention_conformance.kernel.answers import masks_of
from attention_conformance.kernel.memory_layout import FURTHER_LEAVES, memory_of, place_tensor
from attention_conformance.kernel.with_torch import torch
from attention_conformance.reproduction.objects import KNOWN, object_lines
from attention_conformance.reproduction.tensor_expressions import distinct_numbers, text_of
from attention_conformance.reproduction.tensors import OPTIONS
from attention_conformance.reproduction.text import NotWritten, constant, indent, number, wrap
from reference_attention.errors import InvalidInput

OWN = ("query", "key", "value")


@dataclass
class Recorder:
    """Wrapper of a kernel that records its arguments as text, and returns distinct numbers in its place.

    Attributes:
        call: the kernel.
        named: tensors by the expression that makes them.
        callee: the name of the kernel in the test.
        further: further arguments of the kernel, as text.
        start: where the distinct numbers of its results begin, see :func:`.tensor_expressions.distinct_numbers`.
    """

    call: Callable[..., Any]
    named: dict[str, torch.Tensor]
    callee: str = "kernel"
    further: str = ""
    start: int = 0
    results: dict[str, torch.Tensor] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)
    objects: set[str] = field(default_factory=set)
    number_of_calls: int = 0
    why: str = ""
    is_about: bool = False
    order: str = ""

    def __call__(self, *given: Any, **options: Any) -> Any:
        """Call the kernel, and record the call if tensors of the tested call are among its arguments."""
        self.is_about, parts = False, [""]
        try:
            for self.order in ("", ".transpose(1, 2)"):
                parts = [self._argument_text("constant", x) for x in given]
                parts += [f"{name}={self._argument_text(name, x)}" for name, x in options.items()]
                if not any(".transpose(1, 2)" in part for part in parts):
                    break
            parts += [self.further] if self.further else []
        except NotWritten as error:  # an interface takes exceptions for the kernel's
            self.why = str(error)
        before = {name: x.clone() for name, x in options.items() if isinstance(x, torch.Tensor)}
        result = self.call(*given, **options)
        if self.is_about:
            name, self.number_of_calls = f"found_{self.number_of_calls}", self.number_of_calls + 1
            self.lines.append(f"{name} = {self.callee}({', '.join(parts)})")
            result = self._with_distinct_numbers(result, name)
            for option, x in before.items():
                if not torch.equal(x, options[option]) and option not in self.named:  # where the output is written to
                    options[option].copy_(self._with_distinct_numbers(options[option], option))
        return result

    def _argument_text(self, name: str, x: Any) -> str:
        """Return the text of an argument."""
        if isinstance(x, torch.Tensor):
            return self._tensor(name, x)
        if type(x) in (tuple, list, torch.Size):
            inner = ", ".join(self._argument_text(name, item) for item in x)
            return f"[{inner}]" if isinstance(x, list) else f"({inner},)" if len(x) == 1 else f"({inner})"
        if isinstance(x, torch.nn.Module):
            name = "module"
        elif x is None or isinstance(x, bool | int | str | torch.dtype):
            return repr(x)
        elif isinstance(x, float):
            return repr(x) if np.isfinite(x) else number(x)
        elif isinstance(x, torch.device):
            return repr(str(x))
        elif type(x).__name__ == "AuxRequest":
            self.lines.insert(0, "from torch.nn.attention.flex_attention import AuxRequest")
            return "AuxRequest(lse=True)"
        elif not callable(x) and type(x).__name__ != "BlockMask":
            raise NotWritten(f"an argument of type {type(x).__name__}")
        self.objects.add(name)
        return KNOWN.get(name, name)

    def _tensor(self, name: str, x: torch.Tensor) -> str:
        if x.is_nested:
            rows: Any = x.transpose(1, 2)
            starts = self._tensor("starts", rows.offsets())
            made_of = f"{self._tensor(name, rows.values())}, {starts}"
            return f"torch.nested.nested_tensor_from_jagged({made_of}).transpose(1, 2)"
        expression = text_of(x, self.named | self.results, self.order)
        if expression:
            self.is_about = True
            return expression
        text = constant(x)
        if text not in self.constants:
            taken = {*self.named, *self.constants.values()}
            self.constants[text] = f"{name}_{len(taken)}" if name in taken else name
        return self.constants[text]

    def _with_distinct_numbers(self, result: Any, name: str) -> Any:
        """Return a result of the kernel with distinct numbers in it, by which it is recognised later."""
        if isinstance(result, Mapping):
            return {at: self._with_distinct_numbers(item, f"{name}[{at!r}]") for at, item in result.items()}
        if isinstance(result, tuple | list):
            new = [self._with_distinct_numbers(item, f"{name}[{at}]") for at, item in enumerate(result)]
            return type(result)(*new) if hasattr(result, "_fields") else new
        if not isinstance(result, torch.Tensor) or not result.is_floating_point():
            return result
        if result.is_nested:
            rows: Any = result.transpose(1, 2)
            new_rows = self._with_distinct_numbers(rows.values(), f"{name}.transpose(1, 2).values()")
            return torch.nested.nested_tensor_from_jagged(new_rows, rows.offsets()).transpose(1, 2)
        self.results[name] = distinct_numbers(tuple(result.shape), self.start).to(result)
        self.start += result.numel()
        return self.results[name]


@dataclass(frozen=True, eq=False)
class Calling:
    """A call as a function of a test, which the test's ``run`` calls.

    Attributes:
        kernel: a :class:`attention_conformance.kernel.kernel.Kernel`.
        call: in its numbers.
        renamed: what tensors are called that are not called by their own names.
        further: text of arguments that the kernel is given beside.
        callee: what the kernel is called.
        weights: whether the weights that it returns matter.
        is_forward: whether nobody looks at gradients.
        looked_at: names of gradients, of sinks and a bias among them, that somebody looks at.
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
        """Return those of q, k and v whose gradients are asked for."""
        return self.call.wants if self.kernel.differentiable else ""

    def made(self, attend: str = "attend", **options: str) -> str:
        """Return the text of a call of ``run`` with that function."""
        arguments = [attend, *(self.renamed.get(name, name) for name in OWN)]
        if self.wants and not self.is_forward:
            upstreams = ["upstream", *(["lse_upstream"] if self.call.lse_upstream is not None else [])]
            arguments += [self.renamed.get(name, name) for name in upstreams]
            options |= {f"d{name}": name for name, gradient in FURTHER_LEAVES.items() if gradient in self.looked_at}
        options |= {"wants": f'"{self.wants}"'} if self.wants != "qkv" else {}
        return f"run({', '.join([*arguments, *(f'{name}={text}' for name, text in options.items())])})"

    def function(self, name: str = "attend") -> str:
        """Return the function, which returns the output by name, and what else is looked at."""
        return f"\ndef {name}(query, key, value):\n{indent(self.forward)}\n"

    @cached_property
    def forward(self) -> Sequence[str]:
        """Return the body of the function."""
        recorder, returned = self._record()
        results = dict(recorder.results)
        if recorder.number_of_calls > 1:
            for at in ("", "[0]", "[1]"):
                each = [f"found_{k}{at}" for k in range(recorder.number_of_calls)]
                if all(x in results for x in each) and len({results[x].shape for x in each}) == 1:
                    results[f"torch.stack([{', '.join(each)}])"] = torch.stack([results[x] for x in each])
            every = [x.flatten().to(returned.output) for x in recorder.results.values()]
            results[f"torch.cat([x.flatten() for x in ({', '.join(recorder.results)})])"] = torch.cat(every)
        looked_at = {"output": returned.output}
        if self.call.log_sum_exp or self.call.lse_upstream is not None:
            looked_at["lse"] = returned.log_sum_exp
        if self.weights:
            looked_at["weights"] = returned.weights
        made = {name: text_of(x, results, recorder.order) for name, x in looked_at.items()}
        if not all(made.values()):
            raise NotWritten("what the interface makes of what the kernel returned")
        last = f"return dict({', '.join(f'{name}={text}' for name, text in made.items())})"
        if recorder.number_of_calls == 1:
            last = last.replace("found_0", "found")
            call = recorder.lines.pop().removeprefix("found_0 = ")
            is_once = last.count("found") == 1
            last = last.replace("found", call) if is_once else last
            recorder.lines += [] if is_once else [f"found = {call}"]
        constants = [f"{name} = {expression}" for expression, name in recorder.constants.items()]
        objects = object_lines(self.call, recorder.objects)
        return [*map(wrap, constants), *objects, *map(wrap, [*recorder.lines, last])]

    def _name(self, name: str) -> str:
        """Return the name of an array in the function, whose arguments have names of their own."""
        return name if name in OWN else self.renamed.get(name, name)

    def _record(self) -> tuple[Recorder, Returned]:
        """Call the kernel on distinct numbers; return the recorded call, and what the interface makes of the result."""
        kernel, call = self.kernel, self.call
        new, start = {}, 0
        for name in OWN:
            new[name] = distinct_numbers(getattr(call, name).shape, start).numpy()
            start += new[name].size
        new |= {"value": new["key"][..., : call.sizes["M"]]} if call.shared else {}
        other = call.replace(**new)
        tensors = {
            name: place_tensor(kernel.tensor(getattr(other, name)), memory_of(name, call)).tensor for name in OWN
        }
        masks = {name: mask.tensor for name, mask in masks_of(kernel, call).items()}
        request = kernel.request(other, tensors, masks)
        known = {name: x for name in (*OWN, *OPTIONS) if (x := getattr(request, name, None)) is not None}
        named = {self._name(name): x for name, x in known.items() if name != "lengths"}
        recorder = Recorder(kernel.call, named, self.callee, self.further, start)
        self._name_what_interfaces_make(recorder, request)
        try:
            with torch.no_grad():
                returned = kernel.replace(call=recorder).of_request(request)
        except InvalidInput as error:
            raise NotWritten(f"what it raises when it is called again ({error})") from None
        if recorder.why:
            raise NotWritten(recorder.why)
        if self.renamed and recorder.objects - {"module"}:
            raise NotWritten("functions of places for one entry of a batch alone")
        return recorder, returned

    def _name_what_interfaces_make(self, recorder: Recorder, request: Request) -> None:
        """Name what some interfaces make of the tensors of a call: parts to merge, tensors in one, a mask to add."""
        named, q, k, v = recorder.named, request.query, request.key, request.value
        if self.kernel.interface in (MERGE_STATE, COMBINE):
            own = request.parts.tolist() if request.parts is not None else []
            places = [[t for t, n in enumerate(own) if n == part] for part in range(request.number_of_parts)]
            scale = q.shape[-1] ** -0.5 if request.scale is None else request.scale
            seen = "" if request.visible is None else f", visible={self._name('visible')}[..., at]"
            recorder.lines += [
                f"places = {places}",
                "q, k, v = (x.double() for x in (query, key, value))",
                f"parts = [attention(q, k[:, :, at], v[:, :, at], scale={scale!r}{seen}) for at in places]",
                "wide = torch.promote_types(query.dtype, torch.float32)",
                "parts = [(output.to(query.dtype), lse.to(wide)) for output, lse, _ in parts]",
            ]
            parts = parts_of(request)
            named |= {f"parts[{at}][{n}]": x for at, part in enumerate(parts) for n, x in enumerate(part)}
            named |= {f"torch.stack([part[{n}] for part in parts])": torch.stack([x[n] for x in parts]) for n in (0, 1)}
        if self.kernel.interface is MLA and not self.call.shared:
            named["torch.cat([value, key], dim=-1)"] = torch.cat([v, k], dim=-1)
            named[f"torch.nn.functional.pad(query, ({v.shape[-1]}, 0))"] = torch.nn.functional.pad(q, (v.shape[-1], 0))
        for of in (OWN, OWN[1:]):
            tensors = [getattr(request, name).transpose(1, 2) for name in of]
            if tensors[0].shape == tensors[1].shape == tensors[-1].shape:
                stacked = f"torch.stack([x.transpose(1, 2) for x in ({', '.join(of)})], dim=2)"
                named[stacked] = torch.stack(tensors, dim=2)
        if request.visible is not None:
            seen = self._name("visible")
            for filler, hidden in (("-inf", -torch.inf), ("torch.finfo(query.dtype).min", torch.finfo(q.dtype).min)):
                mask = q.new_zeros(request.visible.shape).masked_fill(~request.visible, hidden)
                named[f"query.new_zeros({seen}.shape).masked_fill(~{seen}, {filler})"] = mask
        named["torch.cat([x.flatten() for x in (query, key, value)])"] = torch.cat([x.flatten() for x in (q, k, v)])
