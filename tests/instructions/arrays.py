"""The bytes that NumPy requests, counted by a memory handler (NEP 49) before each request."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numpy._core import multiarray

_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_MALLOC = ctypes.PYFUNCTYPE(_POINTER, _POINTER, _SIZE)
_CALLOC = ctypes.PYFUNCTYPE(_POINTER, _POINTER, _SIZE, _SIZE)
_REALLOC = ctypes.PYFUNCTYPE(_POINTER, _POINTER, _POINTER, _SIZE)
_NAME = b"mem_handler"
_SET, _GET = 304, 305
"""Indices of PyDataMem_SetHandler and PyDataMem_GetHandler in NumPy's table of functions."""


class _Handler(ctypes.Structure):
    """The C structure PyDataMem_Handler, version 1."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", _POINTER),
        ("malloc", _MALLOC),
        ("calloc", _CALLOC),
        ("realloc", _REALLOC),
        ("free", _POINTER),
    )


def _python(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_pointer_of = _python("PyCapsule_GetPointer", _POINTER, ctypes.py_object, ctypes.c_char_p)
_capsule_of = _python("PyCapsule_New", ctypes.py_object, _POINTER, ctypes.c_char_p, _POINTER)
_keep_forever = _python("Py_IncRef", None, ctypes.py_object)
_table = ctypes.cast(_pointer_of(multiarray._ARRAY_API, None), ctypes.POINTER(_POINTER))
_handler = ctypes.PYFUNCTYPE(ctypes.py_object)(_table[_GET])
_set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(_table[_SET])


class Bytes:
    """A count of bytes."""

    def __init__(self) -> None:
        self.count = 0
        usual = _Handler.from_address(_pointer_of(_handler(), _NAME))
        assert usual.version == 1

        def malloc(context: int, size: int) -> Any:
            self.count += size
            return usual.malloc(context, size)

        def calloc(context: int, number: int, size: int) -> Any:
            self.count += number * size
            return usual.calloc(context, number, size)

        def realloc(context: int, pointer: int, size: int) -> Any:
            self.count += size
            return usual.realloc(context, pointer, size)

        # Memory is freed by NumPy's own function, since arrays outlive the count and even the interpreter.
        counting = (_MALLOC(malloc), _CALLOC(calloc), _REALLOC(realloc))
        handler = _Handler(b"counting", 1, usual.context, *counting, usual.free)
        _keep_forever(handler)
        self.capsule = _capsule_of(ctypes.addressof(handler), _NAME, None)


@contextmanager
def allocated() -> Iterator[Bytes]:
    """Count the bytes given to arrays of this thread within the block."""
    count = Bytes()
    before = _set_handler(count.capsule)
    try:
        yield count
    finally:
        _set_handler(before)
