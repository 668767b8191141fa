"""A cautious reader of NumPy's .npz: headers and sizes are checked before arrays are unpacked; nothing is unpickled.

A file that was truncated, repaired or made by hand may promise arrays larger than memory, give a name twice, or list
fewer entries than it contains. Such a file is refused as a whole, because an array that is silently missing changes the
claims that are verified.

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
"""Largest total number of entries of the arrays of a file: 128 MiB of float64, so that the handful of copies that
checking takes stays below a gigabyte. Exact decisions become infeasible at far smaller sizes."""
LONGEST_DESCRIPTOR = 24
"""Largest number of bytes between two members of an archive: the length of a data descriptor."""
MOST_AXES = 32

Names = Callable[[Collection[str]], None]
"""A function of the arrays' names that raises if a name cannot be used; called before arrays are unpacked."""


def read_npz(path: Path, file: BinaryIO, check_names: Names) -> dict[str, Any]:
    """Return the arrays of an open file by name; messages refer to the file by its path.

    Raises:
        InvalidInput: the file is damaged, pickled or too large, or ``check_names`` refuses it.
        OSError: the file cannot be read.
    """
    if not zipfile.is_zipfile(file):
        raise InvalidInput(f"{path}: is damaged or no .npz file; write it with numpy.savez.")
    try:
        with zipfile.ZipFile(file) as archive:
            members = _members(path, archive)
            check_names(list(members))
            shapes = {
                name: _header(path, name, archive.open(member), member.file_size) for name, member in members.items()
            }
            if sum(map(math.prod, shapes.values())) > LARGEST:
                raise InvalidInput(f"{path}: unpacks to more than {LARGEST} numbers; give fewer inputs or tokens.")
            return {name: _array(archive.open(member)) for name, member in members.items()}
    except (InvalidInput, MemoryError, OSError):
        raise
    except Exception:  # zipfile, zlib and the parser of headers raise exceptions of many types for a damaged file
        raise InvalidInput(f"{path}: is damaged or no .npz file; write it again with numpy.savez.") from None


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the members by the name of their array.

    Members must follow one another without a gap, so that no member is missing from the directory.
    """
    members: dict[str, zipfile.ZipInfo] = {}
    end = 0
    for member in sorted(archive.infolist(), key=lambda member: member.header_offset):
        if not member.filename.endswith(".npy") or member.filename != member.orig_filename:
            raise InvalidInput(f"{path}: {member.filename!r} is not an array; write the file with numpy.savez.")
        name = member.filename.removesuffix(".npy")
        if name in members:
            raise InvalidInput(f"{path}: {name} occurs twice; write the file with numpy.savez.")
        if not 0 <= member.header_offset - end <= LONGEST_DESCRIPTOR:
            raise ValueError("the archive has bytes that its directory does not list")
        members[name] = member
        end = _end(archive, member)
    if not 0 <= archive.start_dir - end <= LONGEST_DESCRIPTOR:
        raise ValueError("the archive has bytes that its directory does not list")
    return members


def _end(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Return the offset at which a member ends: its header of 30 bytes, its name, its extra field and its data."""
    assert archive.fp is not None
    archive.fp.seek(member.header_offset + 26)
    lengths = archive.fp.read(4)
    return (
        member.header_offset
        + 30
        + int.from_bytes(lengths[:2], "little")
        + int.from_bytes(lengths[2:], "little")
        + member.compress_size
    )


def _header(path: Path, name: str, file: Any, size: int) -> tuple[int, ...]:
    """Return the shape that the array's header promises, after checking that the member has exactly that size."""
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
    """Return the shape, the dtype, and the length of the header."""
    version = npy.read_magic(file)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
    shape, _, kind = read(file)
    return shape, kind, file.tell()


def _array(file: Any) -> Any:
    """Return the array in an open member of the archive, without unpickling."""
    with file:
        return npy.read_array(file, allow_pickle=False)
