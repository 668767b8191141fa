"""A cautious reader of NumPy's .npz: it checks headers and sizes before it unpacks arrays, and never unpickles.

A .npz file is a zip archive with one member per array. A file that was truncated, repaired or made by hand may announce
arrays larger than memory, give a name twice, or list fewer members than it contains. Such a file is refused as a whole,
because an array that is silently missing changes what is verified.

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
"""Largest total number of entries of all arrays in a file. In float64 they take 128 MiB, so that the few copies that
checks make stay below a gigabyte. Exact decisions become infeasible at far smaller sizes."""
LONGEST_DESCRIPTOR = 24
"""Largest number of bytes between two members of an archive: the length of a data descriptor, which may follow a
member."""
MOST_AXES = 32

Names = Callable[[Collection[str]], None]
"""A function that receives the names of all arrays before they are unpacked, and raises if a name cannot be used."""


def read_npz(path: Path, file: BinaryIO, check_names: Names) -> dict[str, Any]:
    """Return the arrays of an open .npz file by name; ``path`` names the file in messages.

    Raises:
        InvalidInput: the file is damaged, pickled or too large, or ``check_names`` refuses it.
        OSError: the file cannot be read.
    """
    at = ""
    if not zipfile.is_zipfile(file):
        raise InvalidInput(f"{path}: is damaged or no .npz file; write it with numpy.savez.")
    try:
        with zipfile.ZipFile(file) as archive:
            members = _members(path, archive)
            check_names(list(members))
            numbers = 0
            for at, member in members.items():
                numbers += math.prod(_header(path, at, archive.open(member), member.file_size))
            if numbers > LARGEST:
                raise InvalidInput(f"{path}: unpacks to more than {LARGEST} numbers; give fewer inputs or tokens.")
            arrays = {}
            for at, member in members.items():
                arrays[at] = _array(archive.open(member))
            return arrays
    except (InvalidInput, MemoryError, OSError):
        raise
    except Exception:  # zipfile, zlib and the parser of headers raise exceptions of many types for a damaged file
        what = f"{at} is damaged" if at else "is damaged or no .npz file"
        raise InvalidInput(f"{path}: {what}; write the file again with numpy.savez.") from None


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the members of the archive by the name of their array.

    Members must follow one another without a gap; otherwise the archive's directory may lack a member.
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
    """Return the offset at which a member ends, after its header of 30 bytes, name, extra field and data."""
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
    """Return the shape in an array's header, after checking that the member's size in bytes fits it exactly."""
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
    """Return the shape and the dtype that the header of an open .npy file gives, and the header's length in bytes."""
    version = npy.read_magic(file)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
    shape, _, kind = read(file)
    return shape, kind, file.tell()


def _array(file: Any) -> Any:
    """Return the array in an open member of the archive, without unpickling."""
    with file:
        return npy.read_array(file, allow_pickle=False)
