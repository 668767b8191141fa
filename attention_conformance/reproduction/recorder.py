"""A recorder of tensor operations as Python source, so that a test can repeat the operations.

An interface makes a call once under the recorder, which has a name for each tensor of the call. Afterwards the recorder
has Python expressions for the kernel's arguments in terms of these names, and for the output in terms of the kernel's
results. Tensors that do not depend on the named tensors are written as numbers.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from torch.overrides import TorchFunctionMode, resolve_name

from attention_conformance.interfaces.merge_functions import part_of
from attention_conformance.interfaces.signature_reading import flatten
from attention_conformance.kernel.torch_import import torch
from attention_conformance.reproduction.python_text import NotWritten, constant, indent, number, wrap

INFIX: Mapping[str, str] = MappingProxyType(
    {"add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@", "__and__": "&", "le": "<=", "ge": ">=", "gt": ">"}
)
"""The operator that stands in Python source for each of these methods of tensors."""
REFERENCE = re.compile(r"§(\d+)§")
"""The pattern of a reference, such as §3§, to the recorded step of that number in the expression of another step."""
FLEX = "from torch.nn.attention.flex_attention import"


@dataclass(eq=False)
class Step:
    """A recorded operation: a Python expression and its value.

    Attributes:
        text: the expression, with references to other steps.
        tensor: the value of the expression, kept alive so that no other tensor reuses its memory.
        depends: whether the value depends on a named tensor.
        is_call: whether the expression is a call of the kernel, which a test makes even if it does not use the value.
        is_short: whether the expression is inserted wherever its value is used, instead of assigned to a variable.
        why_not: the reason why the expression cannot be written in a test; empty if it can be written.
    """

    text: str
    tensor: Any = None
    depends: bool = True
    is_call: bool = False
    is_short: bool = False
    why_not: str = ""


@dataclass
class Recorder(TorchFunctionMode):
    """A context in which operations on tensors are recorded; its method ``call`` records calls of the kernel.

    Attributes:
        kernel: the kernel, a callable.
        callee: the kernel's name in the test.
        further: further arguments of the kernel, as source.
        steps: the recorded operations, in order.
        definitions: the statements that the test needs before the recorded operations, in order, as keys.
    """

    kernel: Callable[..., Any]
    callee: str = "kernel"
    further: str = ""
    steps: list[Step] = field(default_factory=list)
    definitions: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start without recorded tensors."""
        super().__init__()
        self._places: dict[Any, int] = {}

    def name(self, text: str, x: torch.Tensor) -> None:
        """Let the name ``text`` stand for the tensor ``x`` in all expressions."""
        self._add(Step(text, is_short=True), x)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Perform the operation ``func`` on tensors, and record it if it depends on a named tensor."""
        options, method = kwargs or {}, getattr(func, "__name__", "")
        tensors = [x for _, x in flatten((args, options)) if isinstance(x, torch.Tensor)]
        if not any(map(self._depends, tensors)):
            return func(*args, **options)
        step = self._step(lambda: self._operation(func, args, {k: x for k, x in options.items() if x is not None}))
        result = func(*args, **options)
        if method == "__setitem__" or (method.endswith("_") and not method.startswith("__")):
            self._add(Step("", why_not="a tensor that the interface changes"), args[0])
        elif not getattr(result, "is_nested", False) or tensors[0].is_nested:  # otherwise _nested writes the result
            self._add_results(step, result, is_new=method == "detach" or tensors[0].is_nested)
        return result

    def call(self, *arguments: Any, **options: Any) -> Any:
        """Call the kernel and return its results; record the call if an argument depends on a named tensor."""
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        try:
            tensors = [x for _, x in flatten((arguments, options)) if isinstance(x, torch.Tensor)]
            if not any(x.is_nested or self._depends(x) for x in tensors):
                return self.kernel(*arguments, **options)
            step = self._step(
                lambda: f"{self.callee}({self._arguments(arguments, options, self.further)})", is_call=True
            )
            result = self.kernel(*arguments, **options)
            self._add_results(step, result, is_new=True)
            return result
        finally:
            self.__enter__()  # type: ignore[no-untyped-call]

    def lines(self, results: Mapping[str, Any]) -> list[str]:
        """Return the statements of a function's body that computes ``results`` and returns these tensors by name.

        Raises:
            NotWritten: a step cannot be written in a test.
        """
        if not all(map(self._depends, results.values())):
            raise NotWritten("what the interface makes of what the kernel returned")
        last = f"return dict({', '.join(f'{name}={self._text(name, x)}' for name, x in results.items())})"
        counts = Counter(map(int, REFERENCE.findall(last)))
        for at, step in reversed([*enumerate(self.steps)]):
            if counts[at] or step.is_call:
                if step.why_not:
                    raise NotWritten(step.why_not)
                for k in map(int, REFERENCE.findall(step.text)):
                    counts[k] += counts[at] if step.is_short else 1
        calls = [at for at, step in enumerate(self.steps) if step.is_call]
        lines: list[str] = []
        texts: dict[str, str] = {}
        for at, step in enumerate(self.steps):
            text = REFERENCE.sub(lambda match: texts[match[1]], step.text) if counts[at] or step.is_call else ""
            if step.is_short or counts[at] == 1:
                texts[str(at)] = text
            elif text:
                texts[str(at)] = "found" if calls == [at] else f"x{len(lines)}"
                lines.append(f"{texts[str(at)]} = {text}" if counts[at] else text)
        return [*self.definitions, *lines, REFERENCE.sub(lambda match: texts[match[1]], last)]

    def _step(self, text: Callable[[], str], **further: Any) -> Step:
        try:
            return Step(text(), **further)
        except NotWritten as error:
            return Step("", why_not=str(error), **further)

    def _depends(self, x: Any) -> bool:
        at = self._places.get(id(x), self._places.get(_place(x)))
        return at is not None and self.steps[at].depends

    def _at(self, x: torch.Tensor) -> int:
        """Return the index of the step whose value is ``x``; for an unknown tensor, add a step with its numbers."""
        at = self._places.get(id(x), self._places.get(_place(x)))
        return self._add(Step(constant(x), depends=False), x) if at is None else at

    def _add(self, step: Step, x: Any = None) -> int:
        """Add a step whose value is ``x``, and return the index of the step."""
        step.tensor, at = x, len(self.steps)
        self.steps.append(step)
        if x is not None:
            self._places[id(x)] = self._places[_place(x)] = at
        return at

    def _add_results(self, step: Step, result: Any, is_new: bool) -> None:
        """Add the results of an operation as values of steps.

        Unless ``is_new``, a result that is a known tensor or an equal view of one is written as the known tensor.
        """
        base = self._add(step)
        for path, x in flatten(result):
            if isinstance(x, torch.Tensor):
                same = None if is_new else self._places.get(_place(x))
                at = "".join(f"[{place!r}]" for place in path)
                self._add(Step(f"§{base}§{at}" if same is None else f"§{same}§", is_short=True), x)

    def _operation(self, func: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> str:
        """Return the Python expression of an operation on tensors."""
        name = part_of.__name__ if func is part_of else resolve_name(func) or f"torch.Tensor.{func.__name__}"
        method = name.removeprefix("torch.Tensor.").replace("_nested_get_values", "values")
        if method == name:
            return f"{name}({self._arguments(args, options)})"
        receiver = self._text("", args[0])
        if method.endswith(".__get__"):
            return f"{receiver}.{method.removesuffix('.__get__')}"
        if method in INFIX and len(args) == 2:
            return f"({receiver} {INFIX[method]} {self._text('', args[1])})"
        if method == "__invert__":
            return f"~{receiver}"
        if method == "__getitem__":
            return f"{receiver}[{', '.join(map(self._index, args[1] if isinstance(args[1], tuple) else args[1:]))}]"
        return f"{receiver}.{method}({self._arguments(args[1:], options)})"

    def _index(self, x: Any) -> str:
        if isinstance(x, slice):
            ends = [x.start, x.stop] if x.step is None else [x.start, x.stop, x.step]
            return ":".join("" if end is None else str(end) for end in ends)
        return "..." if x is Ellipsis else self._text("", x)

    def _arguments(self, arguments: Sequence[Any], options: Mapping[str, Any], further: str = "") -> str:
        parts = [self._text("function", x) for x in arguments]
        parts += [f"{name}={self._text(name, x)}" for name, x in options.items()]
        return ", ".join(filter(None, [*parts, further]))

    def _text(self, name: str, x: Any) -> str:
        """Return the Python expression of an argument; ``name`` is the argument's name."""
        if isinstance(x, torch.Tensor):
            return self._nested(x) if x.is_nested and not self._depends(x) else f"§{self._at(x)}§"
        if type(x) in (tuple, list, torch.Size):
            inner = ", ".join(self._text(name, item) for item in x)
            return f"[{inner}]" if isinstance(x, list) else f"({inner},)" if len(x) == 1 else f"({inner})"
        if isinstance(x, float):
            return repr(float(x)) if abs(x) < torch.inf else number(x)
        if x is None or isinstance(x, bool | int | str | torch.dtype | torch.device):
            return repr(str(x) if isinstance(x, torch.device) else x)
        if isinstance(x, torch.nn.Module):
            return self._module(x)
        if type(x).__name__ == "AuxRequest":
            self.definitions[f"{FLEX} AuxRequest"] = None
            return "AuxRequest(lse=True)"
        if type(x).__name__ == "BlockMask":
            self.definitions[f"{FLEX} create_block_mask"] = None
            made_of = [self._function(name, x.mask_mod), *map(str, x.shape), "device=query.device"]
            return f"create_block_mask({', '.join(made_of)})"
        if inspect.isfunction(x):
            return self._function(name, x)
        raise NotWritten(f"an argument of type {type(x).__name__}")

    def _nested(self, x: Any) -> str:
        """Return the Python expression of a nested tensor that an interface built from packed sequences."""
        rows = x.transpose(1, 2)
        made_of = f"{self._text('', rows.values())}, {self._text('', rows.offsets())}"
        return f"torch.nested.nested_tensor_from_jagged({made_of}).transpose(1, 2)"

    def _function(self, name: str, function: Callable[..., Any]) -> str:
        """Add the definition of a function of positions that changes scores or hides keys; return its name.

        The function is called once to record what it computes.
        """
        names = [*inspect.signature(function).parameters]
        places = [torch.zeros((), dtype=torch.float64 if text == "score" else torch.int64) for text in names]
        for text, x in zip(names, places, strict=True):
            self.name(text, x)
        with self:
            result = function(*places)
        body = wrap("return " + self._in_one(f"§{self._at(result)}§"))
        self.definitions[f"\ndef {name}_at({', '.join(names)}):\n{indent([body])}\n"] = None
        return f"{name}_at"

    def _module(self, module: torch.nn.Module) -> str:
        """Add the definition of a module with the attributes of ``module`` to the test; return its name there."""
        self.definitions["module = torch.nn.Module()"] = None
        for name, x in vars(module).items():
            if not name.startswith("_") and name != "training":
                config = f'type("Config", (), {vars(x)!r})' if type(x).__name__ == "SimpleNamespace" else ""
                self.definitions[f"module.{name} = {config or self._in_one(self._text(name, x))}"] = None
        self.definitions[f"module.train({module.training})"] = None
        return "module"

    def _in_one(self, text: str) -> str:
        """Return an expression with the referenced steps' own expressions in place of all references."""
        return REFERENCE.sub(lambda match: self._in_one(self.steps[int(match[1])].text), text)


def _place(x: Any) -> Any:
    """Return a key that identifies a tensor's numbers in memory: address, shape, strides and dtype, or else an id."""
    try:
        place = 0 if x.is_nested else x.data_ptr()
    except (AttributeError, RuntimeError):  # within vmap
        place = 0
    strides = [stride for stride, n in zip(x.stride(), x.shape, strict=True) if n > 1] if place else ()
    return (place, x.shape, *strides, x.dtype) if place else id(x)
