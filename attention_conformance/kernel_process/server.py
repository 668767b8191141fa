"""The kernel's process: it imports the kernel, calls it on tensors from the judging process, and returns the results.

The kernel's process knows neither the correct results, nor which claim a call tests, nor later calls. A storage is the
memory of one or more tensors.
"""

from __future__ import annotations

import inspect
import json
import os
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

from attention_conformance.interfaces import INTERFACES
from attention_conformance.interfaces.declaration import ATTRIBUTE
from attention_conformance.interfaces.interface import Parameters, parameters_of
from attention_conformance.interfaces.interface import Request as KernelRequest
from attention_conformance.interfaces.reading import interface_of
from attention_conformance.kernel.callable_import import import_callable
from attention_conformance.kernel.compiler import (
    BACKENDS,
    calls_other_library,
    compile_callable,
    number_of_graphs,
)
from attention_conformance.kernel.global_state import restore_settings
from attention_conformance.kernel.torch_import import torch
from attention_conformance.kernel_process.messages import (
    ATTRIBUTES,
    DTYPES,
    NAMES,
    CallMessage,
    Place,
    Request,
    read_exactly,
    receive_content,
    send,
)
from attention_conformance.kernel_process.reply import Reply, bytes_of, default_of, raised
from reference_attention.errors import InvalidInput
from theorems.run.worker import channel, single_threaded

MOST_MEMORY = 1 << 28
"""The limit in bytes of the storages that are kept, each for a storage at a certain address of the judging process."""


@dataclass(eq=False)
class Memory:
    """A storage that the kernel reads and perhaps writes, with a copy of the bytes that the judging process has for it.

    A storage of the judging process has the same storage in the kernel's process in every call: a kernel that remembers
    an address finds new numbers there, as it would in a single process.

    Attributes:
        own: the bytes of the storage.
        known: the bytes as the judging process has them.
    """

    own: torch.Tensor
    known: torch.Tensor

    def changed(self) -> bool:
        """Return whether the kernel has written other bytes to the storage."""
        return not torch.equal(self.own, self.known)


@dataclass(eq=False)
class Result:
    """The results of a call, kept until the judging process releases them.

    Attributes:
        tensors: the tensors among the results, in order.
        known: for each of these tensors, the bytes as the judging process has them.
        leaves: the arguments of the call that require a gradient.
        memory: the storages of the call's arguments.
    """

    tensors: list[torch.Tensor]
    leaves: list[torch.Tensor]
    memory: list[Memory]
    known: list[torch.Tensor] = field(default_factory=list)

    def add(self, x: Any, reply: Reply) -> Any:
        """Add a result to the answer; return what describes it there.

        The description is a list for a tensor, None for None, and the name of the type for another object.
        """
        if x is None:
            return None
        if not isinstance(x, torch.Tensor) or x.dtype not in NAMES:
            return f"a {type(x).__name__}"[:200]
        description, raw = reply.tensor(x)
        self.tensors.append(x)
        self.known.append(raw)
        return description


class Server:
    """The kernel together with the storages and results that its process keeps; one method for each kind of request."""

    def __init__(self, stream: BinaryIO) -> None:
        """Store the stream from which the bytes of storages are read."""
        self._stream = stream
        self._memory: OrderedDict[tuple[int, int], Memory] = OrderedDict()
        self._kept = 0
        self._results: dict[int, Result] = {}
        self._held: dict[int, torch.Tensor] = {}
        self._compiling = ExitStack()
        self._kernel: Callable[..., Any] = lambda: None
        self._compiled: Callable[..., Any] | None = None
        self._parameters: Parameters = {}

    def answer(self, request: Request, lengths: list[int], reply: Reply) -> None:
        """Carry out a request, whose storages have the given lengths in the stream, and fill in the reply."""
        for number in request.released:
            self._results.pop(number, None)
        memory = [self._receive(place, length) for place, length in zip(request.storages, lengths, strict=True)]
        if torch.get_num_threads() != request.threads:
            torch.set_num_threads(request.threads)
        changed_settings: list[str] = []
        try:
            if request.word == "call":
                self._call(request.arguments[0], memory, changed_settings, reply)
            elif request.word == "backward":
                number, upstream, *modes = request.arguments
                self._backward(number, upstream, modes, memory, changed_settings, reply)
            else:
                getattr(self, f"_{request.word}")(*request.arguments, reply)
        except InvalidInput as error:
            reply.fields = {"refused": str(error)}
        except (Exception, SystemExit) as error:
            reply.fields = raised(error)
        reply.fields["settings"] = list(dict.fromkeys(name[:200] for name in changed_settings))
        reply.fields["written"] = [*self._written(memory, reply)]

    def _receive(self, place: tuple[int, int], length: int) -> Memory:
        """Return the storage kept for ``place``, an address and a length, filled with the next bytes of the stream."""
        memory = self._memory.pop(place, None)
        if memory is None:
            memory = Memory(torch.empty(length, dtype=torch.uint8), torch.empty(0))
            self._kept += length
        self._memory[place] = memory
        while self._kept > MOST_MEMORY and len(self._memory) > 1:
            (_, size), _ = self._memory.popitem(last=False)
            self._kept -= size
        read_exactly(self._stream, memory.own.numpy())
        memory.known = memory.own.clone() if len(memory.known) != length else memory.known.copy_(memory.own)
        return memory

    def _written(self, memory: list[Memory], reply: Reply) -> Iterator[list[int]]:
        """Yield the kernel's changes of results and arguments that the judging process does not know yet.

        The arguments are those of the present request and of all calls whose results are kept. Each change has four
        numbers: the number of the kept result (0 for the present request), 0 for an argument or 1 for a returned
        tensor, the index of the argument's storage or of the tensor, and the index of the piece with the new bytes.
        """
        ids: set[int] = set()
        for number, arguments in ((0, memory), *((n, result.memory) for n, result in self._results.items())):
            for place, part in enumerate(arguments):
                if id(part) not in ids and part.changed():
                    part.known = part.own.clone()
                    yield [number, 0, place, reply.piece(part.known)]
                ids.add(id(part))
        for number, result in self._results.items():
            for place, (x, copy_of_result) in enumerate(zip(result.tensors, result.known, strict=True)):
                now = bytes_of(x)
                if not torch.equal(now, copy_of_result):
                    result.known[place] = now
                    yield [number, 1, place, reply.piece(now)]

    def _tensors(self, fields: Mapping[str, Any], memory: list[Memory]) -> tuple[dict[str, Any], list[torch.Tensor]]:
        """Return the fields with each Place replaced by the tensor there, and the tensors that require a gradient."""
        by_identity: dict[int, torch.Tensor] = {}
        leaves: list[torch.Tensor] = []

        def value_of(value: Any) -> Any:
            if not isinstance(value, Place):
                return value
            if id(value) not in by_identity:
                x = torch.empty(0, dtype=DTYPES[value.dtype])
                x.set_(memory[value.storage].own.untyped_storage(), value.offset, value.shape, value.strides)
                if value.requires_grad:
                    leaves.append(x.requires_grad_())
                    x = x if value.leaf else x.view_as(x)
                by_identity[id(value)] = x
            return by_identity[id(value)]

        return {name: value_of(value) for name, value in fields.items()}, leaves

    def _call(self, call: CallMessage, memory: list[Memory], changed_settings: list[str], reply: Reply) -> None:
        fields, leaves = self._tensors({**call.request, **call.constants}, memory)
        constants = {name: fields.pop(name) for name in call.constants}
        target = self._compiled if call.compiled and self._compiled is not None else self._kernel
        kernel = partial(target, **constants) if constants else target

        def on_contiguous(*arguments: Any, **options: Any) -> Any:
            given = {name: contiguous(x) for name, x in options.items()}
            return kernel(*map(contiguous, arguments), **given)

        is_name = isinstance(call.interface, str)
        interface = INTERFACES[call.interface] if is_name else interface_of(call.interface)
        recorded: Any = nullcontext()
        if call.profiles:
            from torch.autograd.profiler_legacy import profile

            recorded = profile()  # type: ignore[no-untyped-call]
        with (
            torch.set_grad_enabled(call.grad),
            self._modes(call),
            recorded as events,
            restore_settings(changed_settings),
        ):
            results = interface.call(
                on_contiguous if call.contiguous else kernel, KernelRequest(**fields), self._parameters
            )
        result = Result([], leaves, memory)
        reply.fields["results"] = [result.add(x, reply) for x in results]
        if call.profiles:
            names = sorted({event.name for event in events.function_events})
            reply.fields["operators"] = [name[:200] for name in names]
        self._results[call.result] = result

    def _modes(self, call: CallMessage) -> AbstractContextManager[Any]:
        modes = ExitStack()
        if call.inference:
            modes.enter_context(torch.inference_mode())
        if call.autocast:
            modes.enter_context(torch.autocast("cpu", dtype=DTYPES[call.autocast]))
        return modes

    def _backward(
        self,
        number: int,
        upstream: dict[str, Place],
        modes: list[bool],
        memory: list[Memory],
        changed_settings: list[str],
        reply: Reply,
    ) -> None:
        """Compute the gradients of the sum of upstream · results with respect to the arguments that require them.

        To differentiate the sum gives the kernel's backward pass a contiguous upstream gradient. An upstream gradient
        with another memory layout is passed to autograd directly, as in
        :func:`attention_conformance.kernel.answers._gradients`.
        """
        result = self._results[number]
        by_number, _ = self._tensors(upstream, memory)
        pairs = [(result.tensors[int(name)], u) for name, u in by_number.items()]
        plain = all(u.is_contiguous() for _, u in pairs)
        results = [(x * u).sum() if plain else x for x, u in pairs]
        grads = None if plain else [u for _, u in pairs]
        retain, create = modes
        options = {"retain_graph": retain, "create_graph": create, "allow_unused": True}
        with restore_settings(changed_settings):
            gradients = torch.autograd.grad(results, result.leaves, grads, **options)
        reply.fields["gradients"] = [None if x is None else reply.tensor(x)[0] for x in gradients]

    def _open(self, source: str, reply: Reply) -> None:
        """Import the kernel, and describe its parameters, attributes, file and type in the reply."""
        self._kernel = import_callable(source)
        self._parameters = parameters_of(self._kernel)
        try:
            file = inspect.getsourcefile(self._kernel) or ""
        except TypeError:
            file = ""
        reply.fields["parameters"] = [[name, default_of(value)] for name, value in self._parameters.items()]
        reply.fields["attributes"] = [
            [name, float(getattr(self._kernel, name))] for name in ATTRIBUTES if getattr(self._kernel, name, False)
        ]
        reply.fields["file"] = file
        reply.fields["told"] = json.dumps(getattr(self._kernel, ATTRIBUTE, None))
        reply.fields["type_name"] = type(self._kernel).__name__[:200]
        reply.fields["compiles"] = not calls_other_library(self._kernel)

    def _compile(self, state: Any, reply: Reply) -> None:
        self._compiled = self._compiling.enter_context(compile_callable(self._kernel, BACKENDS[state]))

    def _stop_compiling(self, reply: Reply) -> None:
        self._compiled = None
        self._compiling.close()

    def _graphs(self, reply: Reply) -> None:
        reply.fields["number"] = number_of_graphs()

    def _seed(self, seed: int, reply: Reply) -> None:
        torch.manual_seed(seed)

    def _fill(self, place: int, size: int, reply: Reply) -> None:
        self._held[place] = torch.full((size,), torch.nan, dtype=torch.float64)


def contiguous(x: Any) -> Any:
    """Return a contiguous tensor with the numbers of the tensor ``x``; return anything but a tensor unchanged."""
    return x.contiguous() if isinstance(x, torch.Tensor) else x


def serve() -> None:
    """Answer requests until standard input is closed."""
    incoming, outgoing = channel()
    this_process = os.getpid()
    single_threaded()
    server = Server(incoming)
    while True:
        try:
            number, content, lengths = receive_content(incoming)
        except EOFError:
            os._exit(0)
        reply = Reply()
        server.answer(pickle.loads(content), lengths, reply)
        if os.getpid() != this_process:  # the kernel forked the process, and this code runs in the copy
            os._exit(0)
        send(outgoing, number, json.dumps(reply.fields, allow_nan=False).encode(), reply.pieces)
