"""Messages between the judging process and the kernel's process: a content and raw bytes, preceded by their lengths.

The judge pickles requests, since the kernel's process trusts the judge anyway. Answers are JSON and bytes. Every
field of an answer is checked, and nothing in it is unpickled, evaluated or looked up by name.
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
"""The length of the content, the number of pieces of raw bytes, and the number of the message."""
_LENGTH = struct.Struct("<Q")
LARGEST_CONTENT = 1 << 23
"""The largest content of an answer, in bytes: a test may have a million characters."""
MOST_PIECES = 4096
LARGEST_PIECES = 1 << 33
"""The largest number of raw bytes of an answer: more than the results and inputs of the largest call."""
FLOATS = ("float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
OTHERS = ("bool", "uint8", "int8", "int16", "int32", "int64")
DTYPES: MappingProxyType[str, torch.dtype] = MappingProxyType(
    {name: getattr(torch, name) for name in (*FLOATS, *OTHERS)}
)
"""The dtypes of tensors that are sent."""
NAMES = {dtype: name for name, dtype in DTYPES.items()}
ATTRIBUTES = ("batch_invariant", "zero_gradients_are_stopped", "skips_weights_below")
"""Attributes by which a callable declares a property."""


class NotAnAnswer(BaseException):
    """A malformed answer of the kernel's process; ``except Exception`` does not catch it."""


class RaisedElsewhere(Exception):
    """Exception for an error that the kernel raised in its process.

    Attributes:
        name: the name of the type of the exception.
        missing: whether the exception means that there is no backward pass.
        by_compiler: whether PyTorch's compiler raised it.
    """

    def __init__(self, name: str, text: str, missing: bool, by_compiler: bool) -> None:
        """Take the attributes of the exception in the kernel's process."""
        super().__init__(text)
        self.name, self.missing, self.by_compiler = name, missing, by_compiler


def type_name(error: BaseException) -> str:
    """Return the name of an exception's type; for RaisedElsewhere, the name of the type in the kernel's process."""
    return error.name if isinstance(error, RaisedElsewhere) else type(error).__name__


class Bytes(bytearray):
    """Raw bytes of an answer; a tensor made from them keeps them, and their ``owner``, alive."""

    owner: Any = None


@dataclass(frozen=True)
class Place:
    """The place of a tensor in one of the storages of a request.

    Attributes:
        storage: the number of the storage in the request.
        dtype: the name of the dtype.
        offset: the number of elements in the storage before the tensor's first element.
        shape, strides: in elements.
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
    """One call of the kernel.

    Attributes:
        result: the number under which the kernel's process keeps its results.
        request: the fields of a :class:`attention_conformance.interfaces.interface.Request`, tensors as places.
        interface: the name of the interface, or a reading.
        constants: further arguments, by name.
        contiguous: whether the kernel is given contiguous tensors.
        compiled: whether the kernel is called through ``torch.compile``.
        records: whether everything that the kernel returns is sent back, and not only the results in use.
        profiles: whether the names of PyTorch's operators are sent back.
        grad, inference: the modes of autograd.
        autocast: the dtype of autocast; empty if autocast is off.
    """

    result: int
    request: dict[str, Any]
    interface: Any
    constants: dict[str, Any] = field(default_factory=dict)
    contiguous: bool = False
    compiled: bool = False
    records: bool = False
    profiles: bool = False
    grad: bool = False
    inference: bool = False
    autocast: str = ""


@dataclass(frozen=True)
class Request:
    """A request of the judge.

    Attributes:
        word: the name of the action.
        arguments: the arguments of the action.
        storages: for each storage, its address in the judge's memory and its number of bytes; both identify it.
        threads: the number of PyTorch's threads.
        released: the numbers of results that the judge no longer refers to.
    """

    word: str
    arguments: tuple[Any, ...] = ()
    storages: tuple[tuple[int, int], ...] = ()
    threads: int = 1
    released: tuple[int, ...] = ()


def send(stream: IO[bytes], number: int, content: bytes, pieces: Sequence[Any] = ()) -> None:
    """Write one message and flush the stream.

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
    """Return the number of the next message, its content, and the lengths of the pieces that follow.

    Raises:
        EOFError: the other process has ended.
        NotAnAnswer: the lengths are not those of a message.
    """
    length, pieces, number = _HEAD.unpack(read_exactly(stream, bytearray(_HEAD.size)))
    if length > LARGEST_CONTENT or pieces > MOST_PIECES:
        refuse("its lengths")
    lengths = [_LENGTH.unpack(read_exactly(stream, bytearray(_LENGTH.size)))[0] for _ in range(pieces)]
    if sum(lengths) > LARGEST_PIECES:
        refuse("its lengths")
    return number, bytes(read_exactly(stream, bytearray(length))), lengths


def read_exactly(stream: IO[bytes], buffer: Any) -> Any:
    """Fill a buffer from the stream and return it.

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
    """Raise NotAnAnswer with a message on the problem."""
    raise NotAnAnswer(f"the kernel's process sent something that is no answer: {problem}")


class Answer:
    """An answer of the kernel's process, read field by field.

    Attributes:
        pieces: its raw bytes.
    """

    def __init__(self, content: bytes, pieces: list[Bytes]) -> None:
        """Parse the content.

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
        """Return whether the answer has a field."""
        return name in self._fields

    def flag(self, name: str) -> bool:
        """Return a field that is true or false."""
        return bool(checked(self._fields.get(name), bool, name))

    def number(self, name: str) -> int:
        """Return a field that is a whole number."""
        return whole(self._fields.get(name), name)

    def text(self, name: str, longest: int = 4000) -> str:
        """Return a field that is a string."""
        return text(self._fields.get(name), name, longest)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a field that is a list of strings."""
        return tuple(text(x, name, 200) for x in checked(self._fields.get(name), list, name))

    def items(self, name: str) -> list[Any]:
        """Return a field that is a list; the caller has to check its items."""
        items: list[Any] = checked(self._fields.get(name), list, name)
        return items

    def field(self, name: str) -> Any:
        """Return the value of a field; the caller has to check it."""
        return self._fields.get(name)

    def piece(self, number: Any, length: int) -> Bytes:
        """Return the raw bytes with the given number, if they have the given length."""
        if type(number) is not int or not 0 <= number < len(self.pieces) or len(self.pieces[number]) != length:
            refuse("raw bytes of another length")
        return self.pieces[number]

    def tensor(self, described: Any) -> tuple[torch.Tensor, bool, Bytes | None]:
        """Return a described tensor, whether autograd tracks it in the kernel's process, and its bytes.

        A description is a list: the name of a dtype, the shape, whether autograd tracks the tensor, the number of its
        raw bytes.
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
    """Return a value if its type is exactly ``kind``.

    Raises:
        NotAnAnswer: the value is another one.
    """
    if type(value) is not kind:
        refuse(name)
    return value


def whole(value: Any, name: str) -> int:
    """Return a value if it is a number from 0 to 2⁴⁰.

    Raises:
        NotAnAnswer: the value is another one.
    """
    if type(value) is not int or not 0 <= value <= 1 << 40:
        refuse(name)
    return value


def text(value: Any, name: str, longest: int) -> str:
    """Return a value if it is a string of at most `longest` characters.

    Raises:
        NotAnAnswer: the value is another one.
    """
    if type(value) is not str or len(value) > longest:
        refuse(name)
    return value
