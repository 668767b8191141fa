"""What an interface does with tensors, written down as it happens: the lines from a call's tensors to the kernel's
arguments, and from what it returned to its output.

PyTorch tells a :class:`torch.overrides.TorchFunctionMode` every function that is called on a tensor. Those on tensors
of the call are lines; others (starts of sequences, tables of pages) are made of sizes alone, and are their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Any

from torch.overrides import TorchFunctionMode, resolve_name

from reference_attention.errors import InvalidInput
from theorems.kernel.interfaces.interface import Request, Returned
from theorems.kernel.reproducing.text import number, wrap
from theorems.kernel.with_torch import torch


class NotWritten(Exception):
    """No test can say it; the message says what."""


@dataclass(eq=False)
class Step:
    """A value, and the text that makes it of others.

    Attributes:
        parts: text, and the values in it; of a pair the second says whether it needs brackets there.
        loose: whether the text has an operator outside of all brackets.
        name: what it is called if it gets a line of its own.
        leaf: whether it is there already.
    """

    parts: tuple[Any, ...]
    loose: bool = False
    name: str = "x"
    leaf: bool = False
    number: int = 0

    def inputs(self) -> Iterator[Step]:
        """What it is made of, each as often as it is used."""
        return (part[0] for part in self.parts if isinstance(part, tuple))


OPERATORS = {
    "mul": "*",
    "add": "+",
    "sub": "-",
    "matmul": "@",
    "div": "/",
    "true_divide": "/",
    "__truediv__": "/",
    "gt": ">",
    "ge": ">=",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
    "__eq__": "==",
    "__and__": "&",
    "__or__": "|",
    "__sub__": "-",
    "__mul__": "*",
    "__add__": "+",
    "__matmul__": "@",
    "bitwise_and": "&",
}
REVERSED = {"__rsub__": "-", "__rtruediv__": "/", "__rdiv__": "/", "__rmul__": "*", "__radd__": "+"}
SAME_IF_NOTHING_CHANGES = ("reshape", "view", "expand", "to", "contiguous", "cpu", "double", "expand_as", "flatten")
PRIVATE = {"_nested_view_from_jagged": "torch.nested.nested_tensor_from_jagged"}
"""Functions behind public ones, of which the first two arguments matter."""
DEFAULTS: Mapping[str, Mapping[str, Any]] = {"pad": {"mode": "constant", "value": None}, "split": {"dim": 0}}
FUNCTIONS = {"score_mod": "score_of", "mask_mod": "is_seen"}
"""What functions of these parameters are called in a test."""
SHORT, LONG = 24, 60
"""Characters of a value that is used more than once, or once, and has no line of its own."""


@dataclass
class Recorder(TorchFunctionMode):
    """The values of a call by the tensors that hold them.

    Attributes:
        kernel: what is called; what happens in it is not looked at.
        further: text of arguments that every call of it has.
    """

    kernel: Callable[..., Any]
    further: str = ""
    steps: dict[int, tuple[Any, Step]] = field(default_factory=dict)
    constants: dict[int, tuple[Any, Step]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)
    objects: set[str] = field(default_factory=set)
    why: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def hold(self, x: Any, step: Step) -> None:
        """That tensor is the value of that step."""
        step.number = next(self.numbers)
        self.steps[id(x)] = (x, step)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        if _is_tensor(found) or (isinstance(found, tuple | list) and any(map(_is_tensor, found))):
            known = [x for x in _tensors((args, kwargs)) if id(x) in self.steps]
            if known:
                self._note(func, args, kwargs, found, known[0])
        return found

    def call(self, *given: Any, **options: Any) -> Any:
        """The kernel, and a note of what it was given."""
        parts: list[Any] = ["kernel("]
        for name, x in (*((None, x) for x in given), *options.items()):
            parts += [f"{name}=" if name else "", *self._text(x, name or ""), ", "]
            if name and _is_tensor(x) and id(x) in self.constants:
                self.constants[id(x)][1].name = name
        is_about = any(id(x) in self.steps for x in _tensors((given, options)))
        if self.further:
            parts += [self.further, ", "]
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        try:
            found = self.kernel(*given, **options)
        finally:
            self.__enter__()  # type: ignore[no-untyped-call]
        if is_about:
            self._hold_result(found, Step((*parts[:-1], ")"), name="found"))
        return found

    def _note(self, func: Any, args: Any, kwargs: Mapping[str, Any], found: Any, root: Any) -> None:
        name = (resolve_name(func) or func.__name__).rpartition(".")
        own = func.__self__.__name__ if name[2] == "__get__" else name[2]
        first = args[0] if args else root
        if found is first or self._changes_nothing(own, args, found):
            if id(first) in self.steps:
                self.steps[id(found)] = (found, self.steps[id(first)][1])
            return
        if (own.endswith("_") and not own.endswith("__")) or own == "__setitem__":
            self._refuse(f"{own} of a tensor of the call")
        base = self.steps[id(root)][1].name.partition("_")[0]
        step = (
            Step((*self._text(first, tight=True), f".{own}"))
            if name[2] == "__get__"
            else self._of_function(name[0], own, args, kwargs)
        )
        step.name = base if name[0] or own.startswith("_") else own.partition("_")[0]
        if own == "unbind" and isinstance(found, tuple):
            axis = args[1] if len(args) > 1 else kwargs.get("dim", 0)
            for k, one in enumerate(found):
                at = ", ".join([":"] * axis + [str(k)])
                self.hold(one, Step((*self._text(args[0], tight=True), f"[{at}]"), name=base))
            return
        self._hold_result(found, step)

    def _changes_nothing(self, own: str, args: Any, found: Any) -> bool:
        """Whether what a function returns are the numbers that it was given first."""
        other = args[1] if len(args) > 1 else None
        if own == "masked_fill":
            return id(other) not in self.steps and _is_constant(other, False)
        if own in ("mul", "div"):
            return isinstance(other, float) and other == 1.0
        return (own == "repeat_interleave" and other == 1) or (
            own in SAME_IF_NOTHING_CHANGES and _is_same(found, args[0])
        )

    def _hold_result(self, found: Any, step: Step) -> None:
        if not isinstance(found, tuple | list):
            if _is_tensor(found):
                self.hold(found, step)
            return
        step.number = next(self.numbers)
        for k, one in enumerate(found):
            if _is_tensor(one):
                self.hold(one, Step(((step, True), f"[{k}]"), name=f"{step.name}_{k}"))

    def _of_function(self, where: str, own: str, args: Any, kwargs: Mapping[str, Any]) -> Step:
        if own == "__getitem__" and _is_constant(args[1], True) and id(args[1]) not in self.steps:
            return Step((*self._text(args[0], tight=True), f".flatten(0, {args[1].dim() - 1})"))
        if own == "__getitem__":
            return Step((*self._text(args[0], tight=True), "[", *self._index(args[1]), "]"))
        if own == "neg":
            return Step(("-", *self._text(args[0], tight=True)), loose=True)
        if own == "__invert__":
            return Step(("~", *self._text(args[0], tight=True)), loose=True)
        if own in OPERATORS and len(args) == 2 and not kwargs:
            left, right = (self._text(x, tight=True) for x in args)
            return Step((*left, f" {OPERATORS[own]} ", *right), loose=True)
        if own in REVERSED:
            right, left = (self._text(x, tight=True) for x in args)
            return Step((*left, f" {REVERSED[own]} ", *right), loose=True)
        if own == "_nested_get_values":
            return Step((*self._text(args[0], tight=True), ".values()"))
        if own in PRIVATE:
            return Step((f"{PRIVATE[own]}(", *self._text(args[0]), ", ", *self._text(args[1]), ")"))
        options = {name: x for name, x in kwargs.items() if DEFAULTS.get(own, {}).get(name, self) is not x}
        if where.endswith("Tensor") or (where + "." + own).endswith("functional.split"):
            head, args = [*self._text(args[0], tight=True), "."], args[1:]
        else:
            head = ["torch.nn.functional." if where.endswith("nn.functional") else "torch." if where else ""]
        parts: list[Any] = [*head, f"{own}("]
        for name, x in (*((None, x) for x in args), *options.items()):
            parts += [f"{name}=" if name else "", *self._text(x), ", "]
        return Step((*(parts[:-1] if args or options else parts), ")"))

    def _text(self, x: Any, name: str = "", tight: bool = False) -> list[Any]:
        """Parts of the text of a value."""
        if _is_tensor(x):
            return [(self.step_of(x), tight)]
        if isinstance(x, tuple | list) and type(x) in (tuple, list, torch.Size):
            inner = [part for one in x for part in (*self._text(one), ", ")][:-1]
            if isinstance(x, list):
                return ["[", *inner, "]"]
            return ["(", *inner, ",)" if len(x) == 1 else ")"]
        if isinstance(x, float):
            return [repr(x) if x - x == 0 else number(x)]
        if isinstance(x, torch.nn.Module):
            self.objects.add("module")
            return ["module"]
        if x is None or isinstance(x, bool | int | str | torch.dtype):
            return [repr(x)]
        if isinstance(x, torch.device):
            return [repr(str(x))]
        if callable(x) or type(x).__name__ == "BlockMask":
            self.objects.add(name)
            return [FUNCTIONS.get(name, name)]
        if type(x).__name__ == "AuxRequest":
            self.objects.add("AuxRequest")
            return ["AuxRequest(lse=True)"]
        self._refuse(f"an argument of type {type(x).__name__}")
        raise AssertionError

    def _index(self, at: Any) -> list[Any]:
        if isinstance(at, tuple):
            return [part for one in at for part in (*self._index(one), ", ")][:-1]
        if at is Ellipsis:
            return ["..."]
        if isinstance(at, slice):
            ends = [("" if one is None else str(one)) for one in (at.start, at.stop)]
            return [":".join(ends) + (f":{at.step}" if at.step is not None else "")]
        return self._text(at)

    def _refuse(self, why: str) -> None:
        self.why = why  # whoever calls the kernel takes exceptions for its own
        raise NotWritten(why)

    def step_of(self, x: Any) -> Step:
        """Of a tensor."""
        if id(x) in self.steps:
            return self.steps[id(x)][1]
        if id(x) not in self.constants:
            self.constants[id(x)] = (x, constant(x))
            self.constants[id(x)][1].number = next(self.numbers)
        return self.constants[id(x)][1]


def constant(x: torch.Tensor) -> Step:
    """The numbers of a tensor that is made of sizes alone."""
    held = x.detach().cpu()
    said = _nested_list(held.tolist())
    inferred = held.dtype in (torch.bool, torch.int64) and held.numel()
    text = f"torch.tensor({said})" if inferred else f"torch.tensor({said}, dtype={held.dtype})"
    text += "" if x.device.type == "cpu" else f'.to("{x.device}")'
    return Step((text,), name="at")


def _nested_list(held: Any) -> str:
    if isinstance(held, list):
        return f"[{', '.join(map(_nested_list, held))}]"
    return number(held) if isinstance(held, float) else repr(held)


def lines_of(results: Mapping[str, Step]) -> list[str]:
    """The statements that make the results, by name, in the order of what happened."""
    order, uses = _reached(results.values())
    said: dict[Step, str] = {}
    taken = {*results, *(step.parts[0] for step in order if step.leaf)}
    lines: list[str] = []
    own = {id(step): name for name, step in results.items() if not step.leaf}
    for step in order:
        if step.leaf:
            said[step] = step.parts[0]
            continue
        text = "".join(part if isinstance(part, str) else _operand(part[0], part[1], said) for part in step.parts)
        said[step] = text
        if id(step) in own:
            said[step] = own[id(step)]
        elif len(text) > (SHORT if uses[step] > 1 else LONG) and (uses[step] > 1 or not text.startswith("kernel(")):
            base = step.name.rstrip("_0123456789")
            said[step] = next(x for k in count() if (x := f"{base}_{k}" if k else base) not in taken)
            taken.add(said[step])
        if said[step] is not text:
            lines.append(wrap(f"{said[step]} = {text}"))
    return lines + [f"{name} = {said[step]}" for name, step in results.items() if step.leaf]


def _operand(step: Step, tight: bool, said: Mapping[Step, str]) -> str:
    text = said[step]
    return f"({text})" if tight and step.loose and not text.isidentifier() else text


def _reached(results: Any) -> tuple[Sequence[Step], dict[Step, int]]:
    """What the results are made of, in the order of what happened, and how often each is used."""
    uses: dict[Step, int] = {}
    left = list(results)
    seen: list[Step] = []
    while left:
        step = left.pop()
        uses[step] = uses.get(step, 0) + 1
        if uses[step] == 1:
            seen.append(step)
            left += step.inputs()
    return sorted(seen, key=lambda step: step.number), uses


def _is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def _is_constant(x: Any, value: bool) -> bool:
    """Whether it is a mask that is true, or false, everywhere."""
    return _is_tensor(x) and x.dtype == torch.bool and x.dim() > 0 and bool((x == value).all())


def _is_same(found: Any, x: Any) -> bool:
    if not (_is_tensor(found) and _is_tensor(x)) or x.is_nested or found.shape != x.shape or found.dtype != x.dtype:
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


def record(kernel: Any, request: Request, named: Mapping[str, str], further: str = "") -> tuple[Recorder, Returned]:
    """A kernel called as it always is, and what happened.

    Args:
        kernel: a :class:`theorems.kernel.kernel.Kernel`.
        request: with the tensors of a call.
        named: what they are called in the test, by the names of the request; those without are numbers.
        further: text of arguments that the kernel is given beside.
    """
    recorder = Recorder(kernel.call, further)
    for one in fields(request):
        x = getattr(request, one.name)
        if isinstance(x, torch.Tensor) and one.name in named:
            recorder.hold(x, Step((named[one.name],), name=one.name, leaf=True))
    with recorder:
        try:
            returned = kernel.replace(call=recorder.call).of_request(request)
        except InvalidInput as error:
            raise NotWritten(recorder.why or f"what it raises when it is called again ({error})") from None
    return recorder, returned
