"""Named arrays in files: read NumPy's .npz and JSON, write strict JSON, never unpickle.

JSON keeps every float64 (Python prints the shortest decimal that reads back to the same float). It has no NaN or
infinity; they are written as the strings "NaN", "Infinity" and "-Infinity" and read back as floats.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from reference_attention.errors import InvalidInput
from reference_attention.npz import Names, read_npz

LARGEST_FILE = 2**28
"""Largest size in bytes of a .npz file: enough for as many numbers as :data:`reference_attention.npz.LARGEST`
allows."""
LARGEST_TEXT = 2**25
"""Largest size in bytes of a text file; in memory, JSON takes up to thirty times its length (as a text of many
``[],``)."""

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _any_names(names: Collection[str]) -> None:
    """Accept all names."""


def read_named_values(path: Path, check_names: Names = _any_names) -> dict[str, Any]:
    """Return the values of a .npz or .json file by name: arrays; from JSON also text, numbers and nested objects.

    Args:
        path: the file, whose name ends in .npz or .json.
        check_names: a function that receives all names before any array is unpacked, and raises InvalidInput if one of
            them cannot be used.

    Raises:
        InvalidInput: the file does not exist, is of another kind, is damaged, contains pickled objects, or is too
            large.
    """
    if path.suffix not in (".npz", ".json"):
        raise InvalidInput(f"{path}: the name must end in .npz or .json.")
    if path.suffix == ".json":
        values = _read_json(path)
        check_names(list(values))
        return values
    with open_regular(path, "a .npz or .json file", LARGEST_FILE, "give fewer inputs or tokens") as file:
        return read_npz(path, file, check_names)


@contextmanager
def open_regular(path: Path, expected: str, largest: int, otherwise: str) -> Iterator[BinaryIO]:
    """Yield a user's file, opened for reading, if it is a regular file (or a link to one) and not too large.

    Args:
        path: the file.
        expected: what the file should be, for messages, for example "a text file".
        largest: largest allowed size in bytes.
        otherwise: what the user can do if the file is too large, for messages.

    Raises:
        InvalidInput: the file does not exist, is a directory, a device or a pipe, is larger than ``largest`` or than
            memory, or cannot be read, whether the error occurs at opening or while the caller reads.
    """
    try:
        # Without this flag, opening a pipe that has no writer would block.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise InvalidInput(f"{path}: is not a regular file; give {expected}.")
            if os.fstat(handle).st_size > largest:
                raise InvalidInput(f"{path}: is larger than {largest} bytes; {otherwise}.")
            yield file
    except FileNotFoundError:
        raise InvalidInput(f"{path}: there is no such file; give {expected}.") from None
    except IsADirectoryError:
        raise InvalidInput(f"{path}: is a directory; give {expected}.") from None
    except MemoryError:
        raise InvalidInput(f"{path}: does not fit into memory; {otherwise}.") from None
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror or error}); give {expected}.") from None
    except ValueError as error:  # raised for a name with a null character, which no file can have
        if isinstance(error, InvalidInput) or "null" not in str(error):
            raise
        raise InvalidInput(f"{path}: cannot be read ({error}); give {expected}.") from None


def read_bytes(path: Path, expected: str, largest: int = LARGEST_TEXT, otherwise: str = "give a smaller file") -> bytes:
    """Return the content of a user's file as bytes; the arguments are those of :func:`open_regular`.

    Raises:
        InvalidInput: as :func:`open_regular`.
    """
    with open_regular(path, expected, largest, otherwise) as file:
        return file.read(largest)


def read_text(path: Path, expected: str, largest: int = LARGEST_TEXT, otherwise: str = "give a smaller file") -> str:
    """Return the content of a user's UTF-8 file; the arguments are those of :func:`open_regular`.

    Raises:
        InvalidInput: as :func:`open_regular`, or the file is not UTF-8.
    """
    content = read_bytes(path, expected, largest, otherwise)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"{path}: is not UTF-8 text; save it as UTF-8, or give {expected}.") from None


def _read_json(path: Path) -> dict[str, Any]:
    text = read_text(path, "a .npz or .json file", LARGEST_TEXT, "write it as .npz")
    try:
        return from_json(text)
    except MemoryError:
        raise InvalidInput(f"{path}: does not fit into memory; give fewer inputs or tokens.") from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInput(f"{path}: is not a JSON object of named arrays ({reason}).") from None


def from_json(text: str) -> dict[str, Any]:
    """Return the object that a JSON text represents.

    Raises:
        ValueError: the text is not JSON, is not an object, or gives a name twice.
    """
    values = json.loads(text, object_pairs_hook=_without_repetition)
    if not isinstance(values, dict):
        raise ValueError(f"it holds a {type(values).__name__}, not an object")
    return values


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dict; raise ValueError where a name occurs twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name occurs twice")
    return values


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Return arrays, numbers, text, lists and mappings as strict JSON, without a newline at the end."""
    text = json.dumps(_plain(value), allow_nan=False, ensure_ascii=False, indent=indent)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _plain(value: Any) -> Any:
    """Return a value in the types that JSON has: lists in place of arrays, strings in place of NaN and infinities."""
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in "biuf" and np.isfinite(value).all():
            return value.tolist()  # JSON can represent all of these values
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def numbers(value: Any) -> Any:
    """Return a value read from JSON with the strings "NaN", "Infinity" and "-Infinity" replaced by floats."""
    if isinstance(value, list):
        return [numbers(entry) for entry in value]
    return NOT_FINITE.get(value, value) if isinstance(value, str) else value


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all; a device or pipe is written to directly.

    Raises:
        InvalidInput: the target cannot be written.
    """
    # Python represents bytes of a file name that are not UTF-8 by surrogates, which UTF-8 cannot encode.
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a binary file completely or not at all, like :func:`write_text`."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(content)
            return
        check_writable(path)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".theorems-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
            os.chmod(name, mode)
            os.replace(name, path.resolve())
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
        flush_directory(path.resolve().parent)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written ({error.strerror or error}).") from None


def flush_directory(directory: Path) -> None:
    """Flush the list of a directory's files to disk, if the operating system supports it."""
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_writable(path: Path) -> None:
    """Refuse an output file that cannot be written, before hours of work are spent on its content.

    Raises:
        InvalidInput: the path is a directory, lies in a directory that does not exist, or may not be written.
    """
    try:
        if path.is_dir():
            raise InvalidInput(f"{path}: is a directory; give the name of a file.")
        if not path.parent.is_dir():
            raise InvalidInput(f"{path}: there is no directory {path.parent}; make it first.")
        if path.exists():
            writable = os.access(path, os.W_OK) and (not path.is_file() or _accepts_files(path.parent))
        else:
            writable = _accepts_files(path.parent)
    except OSError as error:  # raised, for example, for a name that is too long
        raise InvalidInput(f"{path}: cannot be written ({error.strerror or error}); give another name.") from None
    if not writable:
        raise InvalidInput(f"{path}: cannot be written; check the permissions of {path.parent}.")


def check_directory(directory: Path, purpose: str) -> None:
    """Refuse an output directory that is a file, before anything runs; ``purpose`` names the output in the message.

    Raises:
        InvalidInput: the path exists and is no directory.
    """
    try:
        is_usable = directory.is_dir() or not directory.exists()
    except OSError as error:
        raise InvalidInput(f"{directory}: cannot be used for {purpose} ({error.strerror or error}).") from None
    if not is_usable:
        raise InvalidInput(f"{directory}: is not a directory; give another one for {purpose}.")


def make_directory(directory: Path) -> None:
    """Make a directory unless it exists.

    Raises:
        InvalidInput: the directory cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{directory}: cannot be made ({error.strerror or error}).") from None


def write_in(directory: Path, name: str, content: str | bytes) -> Path:
    """Write a text or binary file into a directory, which is made if necessary, and return its path.

    ``*`` in the name is replaced by a hash of the content, so that equal contents give the same file.

    Raises:
        InvalidInput: the file cannot be written.
    """
    make_directory(directory)
    data = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
    path = directory / name.replace("*", hashlib.sha256(data).hexdigest()[:10])
    write_bytes(path, data)
    return path


def _accepts_files(directory: Path) -> bool:
    # Permissions do not show whether a file can be created (for example on a read-only file system), so create one.
    try:
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False
