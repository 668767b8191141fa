"""NumPy's .npz, read warily: every header and size is looked at before an array is unpacked, nothing is unpickled.

A file that somebody cut, mended or made by hand may promise arrays larger than memory, names twice, or fewer entries
than it holds; such a file is refused as a whole, for an array that is silently missing changes what is verified.

References: NumPy, *numpy.lib.format*; PKWARE, *.ZIP File Format Specification*.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from reference_attention.errors import InvalidInput

LARGEST = 2**24
"""Entries that the arrays of a file may have together: 128 MiB of float64, so that the handful of copies that checking
them takes stays below a gigabyte. The exact decisions are hopeless long before.
"""
LONGEST_DESCRIPTOR = 24
"""Bytes that may stand between two members of an archive: a data descriptor."""
MOST_AXES = 32

Names = Callable[[Collection[str]], None]
"""Refuses names, before anything is unpacked."""


def read_npz(path: Path, file: BinaryIO, check_names: Names) -> dict[str, Any]:
    """The arrays by name, of an open file that sentences call by its path.

    Raises:
        InvalidInput: damaged, pickled, too large, or refused by ``check_names``.
        OSError: the file cannot be read.
    """
    if not zipfile.is_zipfile(file):
        raise InvalidInput(f"{path}: is damaged or no .npz file; write it with numpy.savez.")
    try:
        with zipfile.ZipFile(file) as archive:
            members = _members(path, archive)
            check_names(list(members))
            shapes = {name: _header(path, name, archive.open(one), one.file_size) for name, one in members.items()}
            if sum(map(math.prod, shapes.values())) > LARGEST:
                raise InvalidInput(f"{path}: unpacks to more than {LARGEST} numbers; give fewer inputs or tokens.")
            return {name: _array(archive.open(one)) for name, one in members.items()}
    except (InvalidInput, MemoryError, OSError):
        raise
    except Exception:  # zipfile, zlib and the parser of headers raise what they like on a damaged file
        raise InvalidInput(f"{path}: is damaged or no .npz file; write it again with numpy.savez.") from None


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The members by the name of their array; one after the other, so that none is left out of the directory."""
    found: dict[str, zipfile.ZipInfo] = {}
    end = 0
    for one in sorted(archive.infolist(), key=lambda one: one.header_offset):
        if not one.filename.endswith(".npy") or one.filename != one.orig_filename:
            raise InvalidInput(f"{path}: {one.filename!r} is not an array; write the file with numpy.savez.")
        name = one.filename.removesuffix(".npy")
        if name in found:
            raise InvalidInput(f"{path}: {name} occurs twice; write the file with numpy.savez.")
        if not 0 <= one.header_offset - end <= LONGEST_DESCRIPTOR:
            raise ValueError("the archive has bytes that its directory does not tell of")
        found[name] = one
        end = _end(archive, one)
    if not 0 <= archive.start_dir - end <= LONGEST_DESCRIPTOR:
        raise ValueError("the archive has bytes that its directory does not tell of")
    return found


def _end(archive: zipfile.ZipFile, one: zipfile.ZipInfo) -> int:
    """Where the member's data end: its header of 30 bytes, name and extra field come first."""
    assert archive.fp is not None
    archive.fp.seek(one.header_offset + 26)
    lengths = archive.fp.read(4)
    return (
        one.header_offset
        + 30
        + int.from_bytes(lengths[:2], "little")
        + int.from_bytes(lengths[2:], "little")
        + one.compress_size
    )


def _header(path: Path, name: str, file: Any, size: int) -> tuple[int, ...]:
    """The shape that the array's header promises, which must be what the member holds."""
    with file:
        shape, kind, length = _read_header(file)
    if kind.hasobject:
        raise InvalidInput(f"{path}: {name} holds pickled objects, which are never loaded; save it as a float64 array.")
    if len(shape) > MOST_AXES or any(type(axis) is not int or axis < 0 for axis in shape):
        raise ValueError(f"shape {shape}")
    if length + math.prod(shape) * kind.itemsize != size:
        raise ValueError(f"{name} has another size than its header says")
    return shape


def _read_header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, dtype, and the length of the header."""
    version = npy.read_magic(file)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
    shape, _, kind = read(file)
    return shape, kind, file.tell()


def _array(file: Any) -> Any:
    with file:
        return npy.read_array(file, allow_pickle=False)
