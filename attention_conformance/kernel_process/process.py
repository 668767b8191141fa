"""The kernel's process as the judging process (the judge) uses it: requests, answers, the kernel's writes to tensors.

If the kernel changes its arguments, or later changes results of earlier calls, the judge's copies of these tensors are
changed in the same way, so that claims can find the changes in the copies.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from attention_conformance.kernel.torch_import import torch
from attention_conformance.kernel_process.messages import (
    NAMES,
    Answer,
    Bytes,
    Place,
    RaisedElsewhere,
    Request,
    checked,
    read_exactly,
    receive_content,
    refuse,
    send,
)
from reference_attention.errors import InvalidInput
from theorems.run.worker import end_as

PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; from attention_conformance.kernel_process.server import serve; serve()"
)
"""The Python program of the kernel's process, which takes over the import path of this process."""
PIPE = 1 << 20
"""The capacity of a pipe in bytes, if the system lets us set it: tensors are larger than the usual 2¹⁶ bytes."""
CLOSING = 5.0
"""The time in seconds to wait for the end of a kernel's process that has closed its output."""


class KernelProcess:
    """A process of one kernel, which starts with the first request.

    If the kernel's process ends, the judging process ends with the same exit code or signal, so that its supervisor
    reports the code and the case.

    Attributes:
        retains_graphs: whether autograd's graphs must be kept after the current backward pass, to be used again.
    """

    def __init__(self, end: Callable[[int], NoReturn] = end_as) -> None:
        """Store the function ``end``, which is called with the exit code if the kernel's process ends."""
        self._end = end
        self._process: subprocess.Popen[bytes] | None = None
        self.retains_graphs = False
        self._number = 0
        self._released: list[int] = []
        self._results: weakref.WeakValueDictionary[int, Result] = weakref.WeakValueDictionary()

    def request(
        self, word: str, *arguments: Any, storages: Sequence[torch.Tensor] = (), changes: list[str] | None = None
    ) -> Answer:
        """Send a request and return its answer.

        Args:
            word: the name of the action, a method of :class:`attention_conformance.kernel_process.server.Server`.
            *arguments: the arguments of the action.
            storages: the memory of the arguments' tensors, as tensors of bytes, which is sent with the request.
            changes: a list to which the names of settings that the kernel changed are appended.

        Raises:
            RaisedElsewhere: the kernel raised an error.
            InvalidInput: the suite's own code in the kernel's process refused the input.
            NotAnAnswer: the process sent a malformed answer.
        """
        released, self._released = tuple(self._released), []
        places = tuple((x.data_ptr(), len(x)) for x in storages)
        content = pickle.dumps(Request(word, arguments, places, torch.get_num_threads(), released))
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        self._number += 1
        try:
            send(process.stdin, self._number, content, [x.numpy() for x in storages])
            number, content, lengths = receive_content(process.stdout)
            pieces = [read_exactly(process.stdout, Bytes(length)) for length in lengths]
        except (EOFError, OSError):
            self._gone(process)
        if number != self._number:
            refuse("an answer to another request")
        answer = Answer(content, pieces)
        self._write(answer, storages)
        if changes is not None:
            changes += answer.texts("settings")
        if answer.has("refused"):
            raise InvalidInput(answer.text("refused", 100_000))
        if answer.has("raised"):
            raise RaisedElsewhere(
                answer.text("raised"), answer.text("text"), answer.flag("missing"), answer.flag("by_compiler")
            )
        return answer

    def keep(self, result: Result) -> None:
        """Register the results of a call, so that the kernel's later changes of results or arguments are copied."""
        self._results[result.number] = result

    def release(self, number: int) -> None:
        """Let the next request tell the kernel's process that it may release the results of the call ``number``."""
        self._released.append(number)

    def close(self) -> None:
        """End the kernel's process."""
        if self._process is not None:
            self._process.kill()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()
            self._process.wait()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            command = [sys.executable, "-c", PROGRAM, *sys.path]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            with suppress(ImportError, AttributeError, OSError):
                import fcntl

                for stream in (self._process.stdin, self._process.stdout):
                    fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, PIPE)  # type: ignore[arg-type, attr-defined, unused-ignore]
        return self._process

    def _gone(self, process: subprocess.Popen[bytes]) -> NoReturn:
        """End the judging process in the way in which the kernel's process has ended."""
        try:
            code = process.wait(CLOSING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            refuse("it closed its output")
        self._end(code)

    def _write(self, answer: Answer, storages: Sequence[torch.Tensor]) -> None:
        """Copy the changes that the kernel made in arguments and earlier results to the judge's tensors."""
        for entry in answer.items("written"):
            items = checked(entry, list, "what was written")
            if len(items) != 4 or any(type(n) is not int for n in items):
                refuse("what was written")
            number, returned, place, piece = items
            result = self._results.get(number)
            if number and result is None:
                continue  # the judge no longer has the results
            if returned:
                buffers = [] if result is None else result.buffers
                if not 0 <= place < len(buffers):
                    refuse("what was written")
                buffer = buffers[place]()
                if buffer is not None:
                    buffer[:] = answer.piece(piece, len(buffer))
            else:
                parts = storages if result is None else result.storages
                if not 0 <= place < len(parts):
                    refuse("what was written")
                part = parts[place]
                if len(part):
                    part.copy_(torch.frombuffer(answer.piece(piece, len(part)), dtype=torch.uint8))


class Result:
    """The results of a call, which the kernel's process keeps as long as a tensor or graph of the judge uses them.

    Attributes:
        number: the number under which the kernel's process keeps the results.
        storages: the memory of the call's arguments, as tensors of bytes.
        buffers: for each returned tensor, a weak reference to its bytes.
    """

    def __init__(self, process: KernelProcess, number: int, storages: Sequence[torch.Tensor]) -> None:
        """Store the kernel's process, the number of the results, and the memory of the arguments."""
        self.process, self.number, self.storages = process, number, storages
        self.buffers: list[Callable[[], Bytes | None]] = []

    def __del__(self) -> None:
        """Release the results in the kernel's process."""
        self.process.release(self.number)

    def backward(
        self, upstream: Mapping[int, torch.Tensor], of_leaves: Sequence[torch.Tensor], changes: list[str]
    ) -> list[torch.Tensor | None]:
        """Return the gradients of the sum of upstream · results with respect to the tensors ``of_leaves``.

        Args:
            upstream: the upstream gradients, by the index of the result.
            of_leaves: the tensors, in the order of the gradients; a tensor without a gradient gets None.
            changes: a list to which the names of settings that the kernel changed are appended.
        """
        request = Sent()
        places = {str(number): request.place(u) for number, u in upstream.items()}
        graph = torch.is_grad_enabled()
        answer = self.process.request(
            "backward",
            self.number,
            places,
            self.process.retains_graphs,
            graph,
            storages=request.storages,
            changes=changes,
        )
        described = answer.items("gradients")
        if len(described) != len(of_leaves):
            refuse("the number of gradients")
        gradients: list[torch.Tensor | None] = []
        for entry, leaf in zip(described, of_leaves, strict=True):
            gradient = None if entry is None else answer.tensor(entry)[0]
            if gradient is not None and (gradient.shape != leaf.shape or gradient.dtype != leaf.dtype):
                refuse("a gradient of another shape")
            gradients.append(gradient)
        return gradients


class Sent:
    """The storages (pieces of memory) of the tensors in a request, each of them once."""

    def __init__(self) -> None:
        """Create an empty collection of storages."""
        self.storages: list[torch.Tensor] = []
        self._numbers: dict[int, int] = {}
        self._places: dict[int, tuple[Place, torch.Tensor]] = {}

    def place(self, x: torch.Tensor) -> Place:
        """Add a tensor's storage if it is new; return the tensor's place, the same object for the same tensor."""
        if id(x) not in self._places:
            storage = x.untyped_storage()
            if storage.data_ptr() not in self._numbers:
                self._numbers[storage.data_ptr()] = len(self.storages)
                with torch.inference_mode(False), torch.no_grad():
                    self.storages.append(torch.empty(0, dtype=torch.uint8).set_(storage))
            place = Place(
                self._numbers[storage.data_ptr()],
                NAMES[x.dtype],
                int(x.storage_offset()),
                tuple(x.shape),
                x.stride(),
                x.is_leaf,
                x.requires_grad,
            )
            self._places[id(x)] = place, x
        return self._places[id(x)][0]

    @property
    def leaves(self) -> list[torch.Tensor]:
        """The tensors that require a gradient, in the order in which they were added."""
        return [x for place, x in self._places.values() if place.requires_grad]
