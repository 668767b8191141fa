"""A kernel in another process, as the judging process (the judge) calls it.

Tensors are sent to the kernel's process, and only data come back. Autograd works across the two processes: the backward
pass of a call is a second message.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from itertools import count
from types import MappingProxyType
from typing import Any, NoReturn

from attention_conformance.interfaces.declaration import check_fields
from attention_conformance.interfaces.interface import Interface, Mark, Parameters, Returned
from attention_conformance.interfaces.interface import Request as KernelRequest
from attention_conformance.interfaces.reading import Reading
from attention_conformance.kernel.torch_import import torch
from attention_conformance.kernel_process.messages import (
    ATTRIBUTES,
    DTYPES,
    NAMES,
    Answer,
    CallMessage,
    checked,
    refuse,
    text,
)
from attention_conformance.kernel_process.process import KernelProcess, Result, Sent

_NUMBERS = count(1)
"""The source of the numbers under which the kernel's process keeps the results of calls."""


class _Graph(torch.autograd.Function):
    """A call of the kernel as a function of autograd, from the tensors that require gradients to the results."""

    @staticmethod
    def forward(
        ctx: Any,
        result: Result,
        outputs: list[torch.Tensor],
        differentiable: list[bool],
        changes: list[str],
        *leaves: Any,
    ) -> tuple[torch.Tensor, ...]:
        ctx.result, ctx.leaves, ctx.changes = result, [x.detach() for x in leaves], changes
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(x for x, is_known in zip(outputs, differentiable, strict=True) if not is_known))
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor | None) -> tuple[Any, ...]:
        by_number = {number: u for number, u in enumerate(upstream) if u is not None}
        if not by_number:
            return (None,) * (4 + len(ctx.leaves))
        return None, None, None, None, *ctx.result.backward(by_number, ctx.leaves, ctx.changes)


class RemoteKernel:
    """The callable of a :class:`attention_conformance.kernel.kernel.Kernel` that runs in another process.

    Attributes:
        process: the process in which the kernel runs.
        source: the kernel's name, MODULE:CALLABLE.
        parameters: the defaults of the kernel's parameters, by name.
        type_name: the name of the callable's type.
        told: the fields of the callable's decorator; None without a decorator.
        file: the file that defines the callable, of which a digest is made; empty if there is none.
        compiles: whether the callable may be PyTorch code, which ``torch.compile`` can compile.
    """

    def __init__(self, source: str, process: KernelProcess | None = None) -> None:
        """Import the kernel in its own process, a new one if none is given.

        Raises:
            InvalidInput: the kernel's process cannot import the kernel.
        """
        self.source = source
        self.process = process or KernelProcess()
        answer = self.process.request("open", source)
        self.parameters: Parameters = MappingProxyType(dict(map(_parameter, answer.items("parameters"))))
        self.file = answer.text("file")
        self.type_name = answer.text("type_name")
        self.told = _told(answer.text("told"))
        self.compiles = answer.flag("compiles")
        for entry in answer.items("attributes"):
            name, value = _pair(entry)
            if name not in ATTRIBUTES or type(value) is not float:
                refuse("an attribute")
            setattr(self, name, value)
        self._constants: dict[str, Any] = {}
        self._compiled = False
        self._operators: set[str] | None = None

    def __call__(self, *arguments: Any, **options: Any) -> NoReturn:
        """Raise TypeError, since a kernel in another process is called by :meth:`run`."""
        raise TypeError("a kernel in another process can only be called by a request")

    def _with(self, **changed: Any) -> RemoteKernel:
        other = object.__new__(RemoteKernel)
        other.__dict__.update(self.__dict__ | {f"_{name}": value for name, value in changed.items()})
        return other

    def with_constants(self, **constants: Any) -> RemoteKernel:
        """Return the kernel, called with the further keyword arguments ``constants`` in every call."""
        return self._with(constants=self._constants | constants)

    def profiled(self, operators: set[str]) -> RemoteKernel:
        """Return the kernel, which then also adds the names of PyTorch's operators that it calls to ``operators``."""
        return self._with(operators=operators)

    @contextmanager
    def compiled(self, state: Any) -> Iterator[RemoteKernel]:
        """Yield the kernel, compiled by ``torch.compile`` in its own process as the state of a call requires."""
        self.process.request("compile", state)
        try:
            yield self._with(compiled=True)
        finally:
            self.process.request("stop_compiling")

    def number_of_graphs(self) -> int:
        """Return the number of graphs that ``torch.compile`` has compiled in the kernel's process."""
        return self.process.request("graphs").number("number")

    def seed(self, seed: int) -> None:
        """Set PyTorch's seed in the kernel's process."""
        self.process.request("seed", seed)

    def fill(self, place: int, size: int) -> None:
        """Put a tensor of ``size`` NaN into slot ``place`` of the kernel's process, and free the slot's former one."""
        self.process.request("fill", place, size)

    def run(
        self,
        interface: Interface,
        reading: Reading | None,
        request: KernelRequest,
        *,
        contiguous: bool = False,
        changes: list[str] | None = None,
    ) -> Returned:
        """Return the kernel's results for a request, which the interface turns into arguments in the kernel's process.

        Args:
            interface: the kernel's interface.
            reading: the meaning of the kernel's signature, if a decorator or simple calls told it.
            request: the request.
            contiguous: whether the kernel takes only contiguous tensors.
            changes: a list to which the names of settings that the kernel changes, also in its backward pass, are
                appended.

        Raises:
            RaisedElsewhere: the kernel raises an error.
        """
        request_tensors = Sent()
        changes = [] if changes is None else changes

        def sendable(value: Any) -> Any:
            return request_tensors.place(value) if isinstance(value, torch.Tensor) else value

        values = {f.name: sendable(getattr(request, f.name)) for f in fields(request)}
        constants = {name: sendable(value) for name, value in self._constants.items()}
        number = next(_NUMBERS)
        type_here = request.query.device.type
        has_autocast = torch.is_autocast_enabled(type_here)
        call = CallMessage(
            number,
            values,
            interface.name if reading is None else reading,
            constants,
            contiguous=contiguous,
            compiled=self._compiled,
            profiles=self._operators is not None,
            grad=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            autocast=NAMES[torch.get_autocast_dtype(type_here)] if has_autocast else "",
        )
        answer = self.process.request("call", call, storages=request_tensors.storages, changes=changes)
        if self._operators is not None:
            self._operators |= {*answer.texts("operators")}
        result = Result(self.process, number, request_tensors.storages)
        self.process.keep(result)
        return _returned(answer, result, request_tensors.leaves if torch.is_grad_enabled() else [], changes)


def _returned(answer: Answer, result: Result, leaves: list[torch.Tensor], changes: list[str]) -> Returned:
    """Return the results that an answer describes; a result other than a tensor becomes an :class:`Other`."""
    described = answer.items("results")
    if len(described) != len(Returned._fields):
        refuse("the number of results")
    results: list[Any] = [None] * len(described)
    places, outputs, differentiable = [], [], []
    for place, entry in enumerate(described):
        if type(entry) is str:
            results[place] = Other(text(entry, "a type", 200))
        elif entry is not None:
            x, is_known, piece = answer.tensor(entry)
            if piece is not None:
                piece.owner = result
            result.buffers.append(_nothing if piece is None else weakref.ref(piece))
            places.append(place)
            outputs.append(x)
            differentiable.append(is_known)
    if leaves and any(differentiable):
        outputs = [*_Graph.apply(result, outputs, differentiable, changes, *leaves)]  # type: ignore[no-untyped-call]
    for place, x in zip(places, outputs, strict=True):
        results[place] = x
    return Returned(*results)


def _nothing() -> None:
    """Return None: this function stands in place of a weak reference for a tensor without entries."""


class Other:
    """A result of the kernel that is not a tensor.

    Attributes:
        kind: the name of the result's type, for messages.
    """

    def __init__(self, kind: str) -> None:
        """Store the name of the result's type."""
        self.kind = kind


class Default:
    """A parameter's default value, of which the judge knows only the name of the type."""

    def __init__(self, name: str) -> None:
        """Store the name of the default's type."""
        self.name = name


def _pair(entry: Any) -> tuple[str, Any]:
    items = checked(entry, list, "a pair")
    if len(items) != 2:
        refuse("a pair")
    return text(items[0], "a name", 200), items[1]


def _parameter(entry: Any) -> tuple[str, Any]:
    name, default = _pair(entry)
    return name, _default(default)


def _told(described: str) -> dict[str, Any] | None:
    """Return the fields of a decorator that the kernel's process describes, after checking them."""
    try:
        told = json.loads(described)
    except ValueError:
        refuse("a decorator")
    if told is not None:
        check_fields(checked(told, dict, "a decorator"))
    return told


def _default(entry: Any) -> Any:
    items = checked(entry, list, "a default")
    kind, value = [*items, None][:2]
    if kind == "required":
        return Mark.REQUIRED
    if kind == "tuple":
        return tuple(map(_default, checked(value, list, "a default")))
    if kind == "value" and (value is None or type(value) in (bool, int, str)):
        return value
    try:
        return DTYPES[value] if kind == "dtype" else float.fromhex(value) if kind == "float" else Default(str(value))
    except (KeyError, TypeError, ValueError, OverflowError):
        refuse("a default")


@cache
def remote_kernel(source: str) -> RemoteKernel:
    """Return the kernel that ``source`` names, run in a process of its own; the result is cached.

    Raises:
        InvalidInput: the kernel cannot be imported.
    """
    return RemoteKernel(source)
