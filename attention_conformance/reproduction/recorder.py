"""A recorder of tensor operations as text, so that a test can repeat them.

An interface is run once on the tensors of a call, which have names. The recorder then has expressions for the kernel's
arguments in terms of these names, and for the output in terms of the kernel's results. Tensors that do not depend on
the named tensors are written as numbers.
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
"""The operator for each name of a method."""
REFERENCE = re.compile(r"§(\d+)§")
"""The pattern of a reference to a step in the text of another step."""
FLEX = "from torch.nn.attention.flex_attention import"


@dataclass(eq=False)
class Step:
    """A recorded operation: an expression and its value.

    Attributes:
        text: the expression, with references to other steps.
        tensor: its value, kept alive so that no other tensor reuses its memory.
        depends: whether it depends on a named tensor.
        is_call: whether it is a call of the kernel, which the test makes even if no other step uses its value.
        is_short: whether its text is inserted wherever it is used, instead of assigned to a variable.
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
    """A context that records operations, and a stand-in for the kernel that records its calls.

    Attributes:
        kernel: the kernel.
        callee: the kernel's name in the test.
        further: further arguments of the kernel, as text.
    """

    kernel: Callable[..., Any]
    callee: str = "kernel"
    further: str = ""
    steps: list[Step] = field(default_factory=list)
    definitions: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin without recorded tensors."""
        super().__init__()
        self._places: dict[Any, int] = {}

    def name(self, text: str, x: torch.Tensor) -> None:
        """Give a name to a tensor."""
        self._add(Step(text, is_short=True), x)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Perform an operation, and record it if it depends on a named tensor."""
        options, method = kwargs or {}, getattr(func, "__name__", "")
        tensors = [x for _, x in flatten((args, options)) if isinstance(x, torch.Tensor)]
        if not any(map(self._depends, tensors)):
            return func(*args, **options)
        step = self._step(lambda: self._operation(func, args, {k: x for k, x in options.items() if x is not None}))
        result = func(*args, **options)
        if method == "__setitem__" or (method.endswith("_") and not method.startswith("__")):
            self._add(Step("", why_not="a tensor that the interface changes"), args[0])
        elif not getattr(result, "is_nested", False) or tensors[0].is_nested:  # else its rows are recorded
            self._add_results(step, result, is_new=method == "detach" or tensors[0].is_nested)
        return result

    def call(self, *arguments: Any, **options: Any) -> Any:
        """Call the kernel, and record the call if an argument depends on a named tensor."""
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
        """Return the statements of a function that returns these tensors by name.

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
        """Return the number of the step that makes a tensor; for an unknown tensor, add a step with its numbers."""
        at = self._places.get(id(x), self._places.get(_place(x)))
        return self._add(Step(constant(x), depends=False), x) if at is None else at

    def _add(self, step: Step, x: Any = None) -> int:
        """Add a step and the tensor that it makes; return the step's number."""
        step.tensor, at = x, len(self.steps)
        self.steps.append(step)
        if x is not None:
            self._places[id(x)] = self._places[_place(x)] = at
        return at

    def _add_results(self, step: Step, result: Any, is_new: bool) -> None:
        """Add the results of an operation; unless ``is_new``, write a view equal to a known tensor as that tensor."""
        base = self._add(step)
        for path, x in flatten(result):
            if isinstance(x, torch.Tensor):
                same = None if is_new else self._places.get(_place(x))
                at = "".join(f"[{place!r}]" for place in path)
                self._add(Step(f"§{base}§{at}" if same is None else f"§{same}§", is_short=True), x)

    def _operation(self, func: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> str:
        """Return the text of an operation."""
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
        """Return the text of an argument."""
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
        """Return the text of a nested tensor that an interface made of packed numbers."""
        rows = x.transpose(1, 2)
        made_of = f"{self._text('', rows.values())}, {self._text('', rows.offsets())}"
        return f"torch.nested.nested_tensor_from_jagged({made_of}).transpose(1, 2)"

    def _function(self, name: str, function: Callable[..., Any]) -> str:
        """Record a score or mask function, by calling it once, as a definition in the test; return its name."""
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
        """Record a module as a definition of a module with the same attributes in the test; return its name."""
        self.definitions["module = torch.nn.Module()"] = None
        for name, x in vars(module).items():
            if not name.startswith("_") and name != "training":
                config = f'type("Config", (), {vars(x)!r})' if type(x).__name__ == "SimpleNamespace" else ""
                self.definitions[f"module.{name} = {config or self._in_one(self._text(name, x))}"] = None
        self.definitions[f"module.train({module.training})"] = None
        return "module"

    def _in_one(self, text: str) -> str:
        """Return an expression with names in place of all references to steps."""
        return REFERENCE.sub(lambda match: self._in_one(self.steps[int(match[1])].text), text)


def _place(x: Any) -> Any:
    """Return a key that identifies a tensor: its address and strides, or its object's id if it has no address."""
    try:
        place = 0 if x.is_nested else x.data_ptr()
    except (AttributeError, RuntimeError):  # within vmap
        place = 0
    strides = [stride for stride, n in zip(x.stride(), x.shape, strict=True) if n > 1] if place else ()
    return (place, x.shape, *strides, x.dtype) if place else id(x)
