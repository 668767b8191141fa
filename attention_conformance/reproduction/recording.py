"""What an interface does with tensors, written down as it happens: the lines from a call's tensors to the kernel's
arguments, and from what it returned to its output.

PyTorch tells a :class:`torch.overrides.TorchFunctionMode` every function that is called on a tensor. Those on tensors
of the call are lines; others (starts of sequences, tables of pages) are made of sizes alone, and are their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any

from torch.overrides import TorchFunctionMode, resolve_name

from attention_conformance.interfaces.interface import Request, Returned
from attention_conformance.kernel.with_torch import torch
from attention_conformance.reproduction.steps import Step, constant
from attention_conformance.reproduction.wording import NotWritten, Words, is_constant, is_tensor
from reference_attention.errors import InvalidInput

SAME_IF_NOTHING_CHANGES = ("reshape", "view", "expand", "to", "contiguous", "cpu", "double", "expand_as", "flatten")
"""Functions that may return the numbers that they were given."""


@dataclass
class Recorder(TorchFunctionMode):
    """The values of a call by the tensors that hold them.

    Attributes:
        kernel: what is called; what happens in it is not looked at.
        further: text of arguments that every call of it has.
        callee: what it is called.
    """

    kernel: Callable[..., Any]
    further: str = ""
    callee: str = "kernel"
    steps: dict[int, tuple[Any, Step]] = field(default_factory=dict)
    constants: dict[int, tuple[Any, Step]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)
    why: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self.words = Words(self.step_of, lambda x: id(x) in self.steps)

    def hold(self, x: Any, step: Step) -> None:
        """That tensor is the value of that step."""
        step.number = next(self.numbers)
        self.steps[id(x)] = (x, step)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        if is_tensor(found) or (isinstance(found, tuple | list) and any(map(is_tensor, found))):
            known = [x for x in _tensors((args, kwargs)) if id(x) in self.steps]
            if known and not self.why:
                self._try(self._note, func, args, kwargs, found, known[0])
        return found

    def _try(self, does: Callable[..., Any], *given: Any) -> Any:
        """What cannot be written is told afterwards: whoever calls the kernel takes exceptions for its own."""
        try:
            return does(*given)
        except NotWritten as error:
            self.why = str(error)
            return None

    def call(self, *given: Any, **options: Any) -> Any:
        """The kernel, and a note of what it was given."""
        parts = self._try(self._parts_of_call, given, options)
        is_about = any(id(x) in self.steps for x in _tensors((given, options)))
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        try:
            found = self.kernel(*given, **options)
        finally:
            self.__enter__()  # type: ignore[no-untyped-call]
        if is_about and parts:
            self._hold_result(found, Step(tuple(parts), name="found"))
        return found

    def _parts_of_call(self, given: Any, options: Mapping[str, Any]) -> list[Any]:
        parts: list[Any] = []
        for name, x in (*((None, x) for x in given), *options.items()):
            parts += [f"{name}=" if name else "", *self.words.of(x, name or ""), ", "]
            if name and is_tensor(x) and id(x) in self.constants:
                self.constants[id(x)][1].name = name
        return [f"{self.callee}(", *([*parts, self.further] if self.further else parts[:-1]), ")"]

    def _note(self, func: Any, args: Any, kwargs: Mapping[str, Any], found: Any, root: Any) -> None:
        name = (resolve_name(func) or func.__name__).rpartition(".")
        own = func.__self__.__name__ if name[2] == "__get__" else name[2]
        first = args[0] if args else root
        if found is first or self._changes_nothing(own, args, found):
            if id(first) in self.steps:
                self.steps[id(found)] = (found, self.steps[id(first)][1])
            return
        if (own.endswith("_") and not own.endswith("__")) or own == "__setitem__":
            raise NotWritten(f"{own} of a tensor of the call")
        base = self.steps[id(root)][1].name.partition("_")[0]
        step = (
            Step((*self.words.of(first, tight=True), f".{own}"))
            if name[2] == "__get__"
            else self.words.of_function(name[0], own, args, kwargs)
        )
        step.name = base if name[0] or own.startswith("_") else own.partition("_")[0]
        if own == "unbind" and isinstance(found, tuple):
            axis = args[1] if len(args) > 1 else kwargs.get("dim", 0)
            for k, one in enumerate(found):
                at = ", ".join([":"] * axis + [str(k)])
                self.hold(one, Step((*self.words.of(args[0], tight=True), f"[{at}]"), name=base))
            return
        self._hold_result(found, step)

    def _changes_nothing(self, own: str, args: Any, found: Any) -> bool:
        """Whether what a function returns are the numbers that it was given first."""
        other = args[1] if len(args) > 1 else None
        if own == "masked_fill":
            return id(other) not in self.steps and is_constant(other, False)
        if own in ("mul", "div"):
            return isinstance(other, float) and other == 1.0
        return (own == "repeat_interleave" and other == 1) or (
            own in SAME_IF_NOTHING_CHANGES and _is_same(found, args[0])
        )

    def _hold_result(self, found: Any, step: Step) -> None:
        if not isinstance(found, tuple | list):
            if is_tensor(found):
                self.hold(found, step)
            return
        step.number = next(self.numbers)
        for k, one in enumerate(found):
            if is_tensor(one):
                self.hold(one, Step(((step, True), f"[{k}]"), name=f"{step.name}_{k}"))

    def step_of(self, x: Any) -> Step:
        """Of a tensor."""
        if id(x) in self.steps:
            return self.steps[id(x)][1]
        if id(x) not in self.constants:
            self.constants[id(x)] = (x, constant(x))
            self.constants[id(x)][1].number = next(self.numbers)
        return self.constants[id(x)][1]


def _is_same(found: Any, x: Any) -> bool:
    if not (is_tensor(found) and is_tensor(x)) or x.is_nested or found.shape != x.shape or found.dtype != x.dtype:
        return False
    try:
        return bool(found.stride() == x.stride() and found.data_ptr() == x.data_ptr() and found.device == x.device)
    except RuntimeError:  # of one without memory of its own, as under vmap
        return False


def _tensors(held: Any) -> Iterator[Any]:
    if isinstance(held, torch.Tensor):
        yield held
    elif isinstance(held, Mapping):
        yield from _tensors(list(held.values()))
    elif isinstance(held, tuple | list):
        for one in held:
            yield from _tensors(one)


def record(
    kernel: Any, request: Request, named: Mapping[str, str], further: str = "", callee: str = "kernel"
) -> tuple[Recorder, Returned]:
    """A kernel called as it always is, and what happened.

    Args:
        kernel: a :class:`attention_conformance.kernel.kernel.Kernel`.
        request: with the tensors of a call.
        named: what they are called in the test, by the names of the request; those without are numbers.
        further: text of arguments that the kernel is given beside.
        callee: what it is called in the test.
    """
    recorder = Recorder(kernel.call, further, callee)
    for one in fields(request):
        x = getattr(request, one.name)
        if isinstance(x, torch.Tensor) and one.name in named:
            recorder.hold(x, Step((named[one.name],), name=one.name, leaf=True))
    with recorder:
        try:
            returned = kernel.replace(call=recorder.call).of_request(request)
        except InvalidInput as error:
            raise NotWritten(f"what it raises when it is called again ({error})") from None
    if recorder.why:
        raise NotWritten(recorder.why)
    return recorder, returned
