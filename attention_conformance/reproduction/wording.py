"""Calls of functions of torch as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from attention_conformance.kernel.with_torch import torch
from attention_conformance.reproduction.steps import Step
from attention_conformance.reproduction.text import number

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
PRIVATE = {"_nested_view_from_jagged": "torch.nested.nested_tensor_from_jagged"}
"""Functions behind public ones, of which the first two arguments matter."""
DEFAULTS: Mapping[str, Mapping[str, Any]] = {"pad": {"mode": "constant", "value": None}, "split": {"dim": 0}}
FUNCTIONS = {"score_mod": "score_of", "mask_mod": "is_seen"}
"""What functions of these parameters are called in a test."""


class NotWritten(Exception):
    """No test can say it; the message says what."""


@dataclass
class Words:
    """What is said of values.

    Attributes:
        step_of: of a tensor.
        is_known: whether a tensor is one of the call, or made of those.
        objects: names of modules and functions that are spoken of.
    """

    step_of: Callable[[Any], Step]
    is_known: Callable[[Any], bool]
    objects: set[str] = field(default_factory=set)

    def of(self, x: Any, name: str = "", tight: bool = False) -> list[Any]:
        """Parts of the text of a value.

        Args:
            name: of the parameter that it is given to.
            tight: whether brackets are needed around operators.

        Raises:
            NotWritten: nobody knows how to say it.
        """
        if is_tensor(x):
            return [(self.step_of(x), tight)]
        if isinstance(x, tuple | list) and type(x) in (tuple, list, torch.Size):
            inner = [part for one in x for part in (*self.of(one), ", ")][:-1]
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
        raise NotWritten(f"an argument of type {type(x).__name__}")

    def _of_index(self, at: Any) -> list[Any]:
        if isinstance(at, tuple):
            return [part for one in at for part in (*self._of_index(one), ", ")][:-1]
        if at is Ellipsis:
            return ["..."]
        if isinstance(at, slice):
            ends = [("" if one is None else str(one)) for one in (at.start, at.stop)]
            return [":".join(ends) + (f":{at.step}" if at.step is not None else "")]
        return self.of(at)

    def of_function(self, where: str, own: str, args: Any, kwargs: Mapping[str, Any]) -> Step:
        """What a function of torch makes of its arguments.

        Args:
            where: the module or class that it is in.
            own: its name there.
        """
        if own == "__getitem__" and is_constant(args[1], True) and not self.is_known(args[1]):
            return Step((*self.of(args[0], tight=True), f".flatten(0, {args[1].dim() - 1})"))
        if own == "__getitem__":
            return Step((*self.of(args[0], tight=True), "[", *self._of_index(args[1]), "]"))
        if own == "neg":
            return Step(("-", *self.of(args[0], tight=True)), loose=True)
        if own == "__invert__":
            return Step(("~", *self.of(args[0], tight=True)), loose=True)
        if own in OPERATORS and len(args) == 2 and not kwargs:
            left, right = (self.of(x, tight=True) for x in args)
            return Step((*left, f" {OPERATORS[own]} ", *right), loose=True)
        if own in REVERSED:
            right, left = (self.of(x, tight=True) for x in args)
            return Step((*left, f" {REVERSED[own]} ", *right), loose=True)
        if own == "_nested_get_values":
            return Step((*self.of(args[0], tight=True), ".values()"))
        if own in PRIVATE:
            return Step((f"{PRIVATE[own]}(", *self.of(args[0]), ", ", *self.of(args[1]), ")"))
        options = {name: x for name, x in kwargs.items() if DEFAULTS.get(own, {}).get(name, self) is not x}
        if where.endswith("Tensor") or (where + "." + own).endswith("functional.split"):
            head, args = [*self.of(args[0], tight=True), "."], args[1:]
        else:
            head = ["torch.nn.functional." if where.endswith("nn.functional") else "torch." if where else ""]
        parts: list[Any] = [*head, f"{own}("]
        for name, x in (*((None, x) for x in args), *options.items()):
            parts += [f"{name}=" if name else "", *self.of(x), ", "]
        return Step((*(parts[:-1] if args or options else parts), ")"))


def is_tensor(x: Any) -> bool:
    """Whether it is one."""
    return isinstance(x, torch.Tensor)


def is_constant(x: Any, value: bool) -> bool:
    """Whether it is a mask that is true, or false, everywhere."""
    return is_tensor(x) and x.dtype == torch.bool and x.dim() > 0 and bool((x == value).all())
