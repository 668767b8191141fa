"""Messages between the judging process, or judge, and the kernel's process.

A message is a content and pieces of raw bytes, such as those of tensors, preceded by their lengths. The judge pickles
the content of requests, since the kernel's process trusts the judge anyway. The content of answers is JSON. Every field
of an answer is checked, and nothing in an answer is unpickled, evaluated or looked up by name.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import IO, Any, NoReturn

from attention_conformance.kernel.torch_import import torch

_HEAD = struct.Struct("<IIQ")
"""The head of a message: the length of its content, how many pieces of raw bytes it has, and its serial number."""
_LENGTH = struct.Struct("<Q")
LARGEST_CONTENT = 1 << 23
"""The largest length of a message's content, in bytes: an answer may contain a test of a million characters."""
MOST_PIECES = 4096
LARGEST_PIECES = 1 << 33
"""The largest number of raw bytes in a message: more than the results and arguments of the largest call have."""
FLOATS = ("float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
OTHERS = ("bool", "uint8", "int8", "int16", "int32", "int64")
DTYPES: MappingProxyType[str, torch.dtype] = MappingProxyType(
    {name: getattr(torch, name) for name in (*FLOATS, *OTHERS)}
)
"""The dtypes that a tensor in a message may have, by name."""
NAMES = {dtype: name for name, dtype in DTYPES.items()}
ATTRIBUTES = ("batch_invariant", "zero_gradients_are_stopped", "skips_weights_below")
"""The attributes of a callable that the judge is told, since they declare properties of the kernel."""


class NotAnAnswer(BaseException):
    """Exception for a malformed answer of the kernel's process; ``except Exception`` does not catch it."""


class RaisedElsewhere(Exception):
    """Exception in the judge for an error that the kernel raised in its process.

    Attributes:
        name: the name of the error's type.
        missing: whether the error is a NotImplementedError, as PyTorch raises it if there is no backward pass.
        by_compiler: whether PyTorch's compiler raised the error.
    """

    def __init__(self, name: str, text: str, missing: bool, by_compiler: bool) -> None:
        """Store the properties of the error that the kernel's process reported."""
        super().__init__(text)
        self.name, self.missing, self.by_compiler = name, missing, by_compiler


def type_name(error: BaseException) -> str:
    """Return the name of an exception's type; for RaisedElsewhere, the name of the type in the kernel's process."""
    return error.name if isinstance(error, RaisedElsewhere) else type(error).__name__


class Bytes(bytearray):
    """Raw bytes of an answer; a tensor whose entries are these bytes keeps them, and the object ``owner``, alive."""

    owner: Any = None


@dataclass(frozen=True)
class Place:
    """The place of a tensor in one of the storages (pieces of memory) that a request sends.

    Attributes:
        storage: the index of the storage in the request.
        dtype: the name of the tensor's dtype.
        offset: the number of elements in the storage before the tensor's first element.
        shape, strides: the tensor's lengths and strides, counted in elements.
        leaf, requires_grad: the tensor's attributes ``is_leaf`` and ``requires_grad``.
    """

    storage: int
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    leaf: bool = True
    requires_grad: bool = False


@dataclass(frozen=True)
class CallMessage:
    """A call that the judge asks the kernel's process to make.

    Attributes:
        result: the number under which the kernel's process keeps the results of the call.
        request: the fields of a :class:`attention_conformance.interfaces.interface.Request` by name, with a
            :class:`Place` for each tensor.
        interface: the name of the kernel's interface, or the reading of its signature.
        constants: further arguments of the kernel, by name.
        contiguous: whether to make tensors contiguous before they are passed to the kernel.
        compiled: whether to call the kernel through ``torch.compile``.
        profiles: whether to send back the names of PyTorch's operators that the kernel calls.
        grad, inference: whether autograd's grad mode, and its inference mode, are on.
        autocast: the dtype of ``torch.autocast``; empty if autocast is off.
    """

    result: int
    request: dict[str, Any]
    interface: Any
    constants: dict[str, Any] = field(default_factory=dict)
    contiguous: bool = False
    compiled: bool = False
    profiles: bool = False
    grad: bool = False
    inference: bool = False
    autocast: str = ""


@dataclass(frozen=True)
class Request:
    """A request of the judge to the kernel's process.

    Attributes:
        word: the name of the action, a method of :class:`attention_conformance.kernel_process.server.Server`.
        arguments: the arguments of the action.
        storages: for each storage that is sent, its address in the judge's memory and its number of bytes, which
            together identify it.
        threads: the number of threads that PyTorch is to use.
        released: the numbers of kept results that the judge no longer needs.
    """

    word: str
    arguments: tuple[Any, ...] = ()
    storages: tuple[tuple[int, int], ...] = ()
    threads: int = 1
    released: tuple[int, ...] = ()


def send(stream: IO[bytes], number: int, content: bytes, pieces: Sequence[Any] = ()) -> None:
    """Write a message with a serial number, a content and pieces of raw bytes, and flush the stream.

    Raises:
        OSError: the other process does not read.
    """
    views = [memoryview(piece).cast("B") if len(piece) else b"" for piece in pieces]
    lengths = b"".join(_LENGTH.pack(len(view)) for view in views)
    stream.write(_HEAD.pack(len(content), len(views), number) + lengths + content)
    for view in views:
        stream.write(view)
    stream.flush()


def receive_content(stream: IO[bytes]) -> tuple[int, bytes, list[int]]:
    """Read the next message up to its content; return its serial number, its content, and the lengths of its pieces.

    Raises:
        EOFError: the other process has ended.
        NotAnAnswer: the lengths are too large for a message.
    """
    length, pieces, number = _HEAD.unpack(read_exactly(stream, bytearray(_HEAD.size)))
    if length > LARGEST_CONTENT or pieces > MOST_PIECES:
        refuse("its lengths")
    lengths = [_LENGTH.unpack(read_exactly(stream, bytearray(_LENGTH.size)))[0] for _ in range(pieces)]
    if sum(lengths) > LARGEST_PIECES:
        refuse("its lengths")
    return number, bytes(read_exactly(stream, bytearray(length))), lengths


def read_exactly(stream: IO[bytes], buffer: Any) -> Any:
    """Fill a buffer with the next bytes of the stream and return the buffer.

    Raises:
        EOFError: the stream ends before the buffer is full.
    """
    view = memoryview(buffer).cast("B") if len(buffer) else memoryview(b"")
    while len(view):
        count = stream.readinto(view)  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        view = view[count:]
    return buffer


def refuse(problem: str) -> NoReturn:
    """Raise NotAnAnswer with a message that names the malformed part of the answer."""
    raise NotAnAnswer(f"the kernel's process sent something that is no answer: {problem}")


class Answer:
    """An answer of the kernel's process, whose fields are checked when they are read.

    Attributes:
        pieces: the answer's pieces of raw bytes.
    """

    def __init__(self, content: bytes, pieces: list[Bytes]) -> None:
        """Parse the content of the answer.

        Raises:
            NotAnAnswer: the content is no JSON object.
        """
        try:
            fields = json.loads(content, parse_constant=refuse)
        except (ValueError, RecursionError):
            refuse("no JSON")
        if type(fields) is not dict:
            refuse("no object")
        self._fields: dict[str, Any] = fields
        self.pieces = pieces

    def has(self, name: str) -> bool:
        """Return whether the answer has the field ``name``."""
        return name in self._fields

    def flag(self, name: str) -> bool:
        """Return the value of a field, which must be true or false."""
        return bool(checked(self._fields.get(name), bool, name))

    def number(self, name: str) -> int:
        """Return the value of a field, which must be a whole number of at least 0."""
        return whole(self._fields.get(name), name)

    def text(self, name: str, longest: int = 4000) -> str:
        """Return the value of a field, which must be a string of at most ``longest`` characters."""
        return text(self._fields.get(name), name, longest)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the value of a field, which must be a list of strings."""
        return tuple(text(x, name, 200) for x in checked(self._fields.get(name), list, name))

    def items(self, name: str) -> list[Any]:
        """Return the value of a field, which must be a list; the caller has to check the list's items."""
        items: list[Any] = checked(self._fields.get(name), list, name)
        return items

    def field(self, name: str) -> Any:
        """Return the value of a field of any kind; the caller has to check the value."""
        return self._fields.get(name)

    def piece(self, number: Any, length: int) -> Bytes:
        """Return the piece of raw bytes with the given index, which must have the given length."""
        if type(number) is not int or not 0 <= number < len(self.pieces) or len(self.pieces[number]) != length:
            refuse("raw bytes of another length")
        return self.pieces[number]

    def tensor(self, described: Any) -> tuple[torch.Tensor, bool, Bytes | None]:
        """Return a tensor, whether autograd tracks it in the kernel's process, and the bytes that hold its entries.

        The tensor is described by a list: the name of its dtype, its shape, whether autograd tracks it, and the index
        of its piece of raw bytes.
        """
        items = checked(described, list, "a tensor")
        if len(items) != 4 or type(items[0]) is not str or items[0] not in DTYPES:
            refuse("the dtype of a tensor")
        shape = [whole(n, "a shape") for n in checked(items[1], list, "a shape")]
        dtype = DTYPES[items[0]]
        size = math.prod(shape)
        piece = self.piece(items[3], size * dtype.itemsize)
        if not size:
            return torch.empty(shape, dtype=dtype), bool(checked(items[2], bool, "a tensor")), None
        return torch.frombuffer(piece, dtype=dtype).view(shape), bool(checked(items[2], bool, "a tensor")), piece


def checked(value: Any, kind: type, name: str) -> Any:
    """Return a value if its type is exactly ``kind``, not a subclass; ``name`` says in a message what the value is.

    Raises:
        NotAnAnswer: the value has another type.
    """
    if type(value) is not kind:
        refuse(name)
    return value


def whole(value: Any, name: str) -> int:
    """Return a value if it is a whole number from 0 to 2⁴⁰; ``name`` says in a message what the value is.

    Raises:
        NotAnAnswer: the value is something else.
    """
    if type(value) is not int or not 0 <= value <= 1 << 40:
        refuse(name)
    return value


def text(value: Any, name: str, longest: int) -> str:
    """Return a value if it is a string of at most ``longest`` characters; ``name`` says what the value is.

    Raises:
        NotAnAnswer: the value is something else.
    """
    if type(value) is not str or len(value) > longest:
        refuse(name)
    return value
