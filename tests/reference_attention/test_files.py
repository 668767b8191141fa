"""Reading and writing files: exact and strict, and every kind of bad file is refused in one sentence."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import warnings
import zipfile
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from reference_attention import files, npz
from reference_attention.errors import LONGEST_LINE, InvalidInput, printable
from reference_attention.files import check_writable, from_json, numbers, read_named_values, to_json, write_text


@given(hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=4), elements=st.floats()))
@example(np.array([math.inf, -math.inf, math.nan, -0.0, 5e-324]))
def test_json_keeps_every_float(array: np.ndarray) -> None:
    text = to_json({"a": array})
    assert "NaN" not in text.replace('"NaN"', "")
    assert "Infinity" not in text.replace('"Infinity"', "").replace('"-Infinity"', "")
    record = np.array(numbers(from_json(text)["a"]))
    assert record.dtype == np.float64 or not record.size  # NumPy would also read floats in strings
    back = record.astype(np.float64)
    np.testing.assert_array_equal(back, array)
    same = np.isnan(array) | (np.signbit(back) == np.signbit(array))
    assert same.all()


def test_arrays_written_to_an_npz_file_are_read_back(tmp_path: Path) -> None:
    arrays = {"X": np.arange(12.0).reshape(2, 3, 2), "loss": np.array("logistic"), "alpha": np.array([0, 2])}
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    back = read_named_values(tmp_path / "a.npz")
    assert set(back) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype


def _savez(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


def _zip(*members: str | bytes) -> bytes:
    """Return a zip archive of alternating names and contents."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that a name occurs twice
        for name, content in zip(members[::2], members[1::2], strict=True):
            archive.writestr(str(name), content)
    return buffer.getvalue()


def _header(shape: str) -> bytes:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


BAD = {
    "truncated.npz": (_savez(X=np.zeros(100))[:-40], "damaged"),
    "corrupt.npz": (_savez(X=np.zeros(100)).replace(b"\0" * 64, b"\1" * 64), "damaged"),
    "empty.npz": (b"", "damaged"),
    "array.npz": (_npy(), "numpy.savez"),
    "text.npz": (b"keys, scores", "damaged"),
    "pickled.npz": (_savez(X=np.array([{}, []], dtype=object)), "pickled"),
    "other.npz": (_zip("readme.txt", b"hello"), "not an array"),
    "cut.npz": (_zip("X.npy", _npy()[:-8]), "damaged"),
    "huge.npz": (_zip("X.npy", _header("(1000000000000000,)")), "damaged"),
    "unclosed.npz": (_zip("X.npy", _header("(2, 3")), "damaged"),
    "half-axis.npz": (_zip("X.npy", _header("(2.5, 3)")), "damaged"),
    "negative.npz": (_zip("X.npy", _header("(-1, -3)") + b"\0" * 24), "damaged"),
    "repeated.npz": (_zip("X.npy", _npy(), "X.npy", _npy()), "twice"),
    "half.json": (b'{"X": [1, 2', "JSON"),
    "list.json": (b"[1, 2]", "not an object"),
    "twice.json": (b'{"X": 1, "X": 2}', "twice"),
    "bytes.json": (b"\xff\xfe\x00", "UTF-8"),
    "deep.json": (b"[" * 100_000, "JSON"),
    "digits.json": (b'{"X": ' + b"1" * 10_000 + b"}", "JSON"),
    "array.npy": (_npy(), ".npz or .json"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    content, expected = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput) as refusal:
        read_named_values(tmp_path / name)
    message = str(refusal.value)
    assert name in message
    assert expected in message
    assert "\n" not in message


def test_a_pickle_in_a_file_is_not_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "exploded"),)

    array = np.empty(1, dtype=object)
    array[0] = Bomb()
    (tmp_path / "bomb.npz").write_bytes(_savez(X=array))
    with pytest.raises(InvalidInput, match="pickled"):
        read_named_values(tmp_path / "bomb.npz")
    assert not (tmp_path / "exploded").exists()
    np.load(tmp_path / "bomb.npz", allow_pickle=True)["X"]  # without protection, the pickle would run
    assert (tmp_path / "exploded").exists()


def test_missing_files_and_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.npz").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    for name, message in {"none.npz": "no such file", "folder.npz": "directory", "pipe.json": "regular"}.items():
        with pytest.raises(InvalidInput, match=message):
            read_named_values(tmp_path / name)


def test_numbers_beyond_the_floats_are_read_as_infinite_and_infinities_are_written_by_name() -> None:
    assert from_json('{"x": 1e999}')["x"] == float("inf")
    with pytest.raises(ValueError, match="JSON compliant"):
        json.dumps(float("inf"), allow_nan=False)
    assert to_json([float("inf"), float("-inf"), float("nan")]) == '["Infinity", "-Infinity", "NaN"]'


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    write_text(target, "one")
    write_text(target, "two ≥ one")
    assert target.read_text(encoding="utf-8") == "two ≥ one"
    with pytest.raises(AttributeError):
        write_text(target, 3)  # type: ignore[arg-type]
    assert target.read_text(encoding="utf-8") == "two ≥ one"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_text_is_written_into_a_pipe_which_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()


def test_arrays_with_more_entries_than_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros(1000), small=np.zeros(5, dtype=np.int8))
    monkeypatch.setattr(npz, "LARGEST", 1005)
    assert set(read_named_values(tmp_path / "a.npz")) == {"X", "small"}
    monkeypatch.setattr(npz, "LARGEST", 1004)
    with pytest.raises(InvalidInput, match="unpacks to more than 1004 numbers"):
        read_named_values(tmp_path / "a.npz")


def test_names_of_members_are_refused_before_the_archive_is_unpacked(tmp_path: Path) -> None:
    def refuse(names: Collection[str]) -> None:
        raise InvalidInput(f"names {sorted(names)}")

    (tmp_path / "a.npz").write_bytes(_zip("Z.npy", b"not even an array"))
    with pytest.raises(InvalidInput, match=r"names \['Z'\]"):
        read_named_values(tmp_path / "a.npz", refuse)


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_an_archive_whose_directory_omits_a_member_is_refused_as_damaged(tmp_path: Path, kept: int) -> None:
    """If the directory omits one of three entries, NumPy would read two arrays and silently lose the third."""
    whole = _savez(X=np.zeros(3), Y=np.ones(2), start=np.zeros(2))
    begin = whole.index(b"PK\x01\x02")
    end = whole.index(b"PK\x05\x06")
    entries = [b"PK\x01\x02" + item for item in whole[begin:end].split(b"PK\x01\x02")[1:]]
    del entries[kept]
    directory = b"".join(entries)
    tail = bytearray(whole[end:])
    tail[8:12] = (2).to_bytes(2, "little") * 2
    tail[12:16] = len(directory).to_bytes(4, "little")
    (tmp_path / "a.npz").write_bytes(whole[:begin] + directory + bytes(tail))
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert len(archive.namelist()) == 2
    with pytest.raises(InvalidInput, match="damaged"):
        read_named_values(tmp_path / "a.npz")


def test_characters_beyond_ascii_are_written_unchanged_in_json() -> None:
    assert to_json({"θ": "‖p‖ ≥ 1"}) == '{"θ": "‖p‖ ≥ 1"}'


def test_a_new_file_has_the_usual_permissions_and_a_replaced_one_keeps_its_own(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    mask = os.umask(0o022)
    try:
        write_text(target, "one")
        assert target.stat().st_mode & 0o777 == 0o644
        for mode in (0o600, 0o751):
            target.chmod(mode)
            write_text(target, "two")
            assert target.stat().st_mode & 0o777 == mode
    finally:
        assert os.umask(mask) == 0o022


@pytest.mark.parametrize("lacking", ["file", "directory"])
def test_a_file_is_replaced_only_where_both_it_and_its_directory_may_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    target = tmp_path / "out.json"
    target.write_text("one")
    check_writable(target)
    # Permissions are simulated, because the superuser, who may run the tests, can write anywhere.
    monkeypatch.setattr(files.os, "access", lambda path, mode: lacking != "file")
    monkeypatch.setattr(files, "_accepts_files", lambda directory: lacking != "directory")
    with pytest.raises(InvalidInput, match=r"cannot be written; check the permissions of "):
        check_writable(target)


def test_a_failure_while_writing_is_reported_in_the_words_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(InvalidInput, match=r"out\.json: cannot be written \(No space left on device\)\.$"):
        write_text(tmp_path / "out.json", "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["", "missing/out.json", "file/out.json"])
def test_targets_that_cannot_be_written_are_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "file").write_text("")
    for refused in (check_writable, lambda path: write_text(path, "x")):
        with pytest.raises(InvalidInput):
            refused(tmp_path / target)


def _with_gaps(between: int, behind: int, name: str, extra: int) -> bytes:
    """Return an archive of two members with the given numbers of bytes between them and after the second; the first has
    the given name and an extra field of the given size.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        assert archive.fp is not None
        first = zipfile.ZipInfo(f"{name}.npy")
        first.extra = b"\x99\x99" + (extra - 4).to_bytes(2, "little") + bytes(extra - 4) if extra else b""
        archive.writestr(first, _npy())
        for gap, second in ((between, "Y.npy"), (behind, None)):
            archive.fp.write(bytes(gap))
            archive.start_dir = archive.fp.tell()
            if second:
                archive.writestr(second, _npy())
    return buffer.getvalue()


@pytest.mark.parametrize(("name", "extra"), [("X", 0), ("X" * 300, 0), ("X", 40), ("X" * 300, 300)])
def test_gaps_between_members_of_an_archive_may_hold_a_data_descriptor_and_no_more(
    tmp_path: Path, name: str, extra: int
) -> None:
    for between, behind in ((0, 0), (24, 24)):
        (tmp_path / "a.npz").write_bytes(_with_gaps(between, behind, name, extra))
        assert set(read_named_values(tmp_path / "a.npz")) == {name, "Y"}
    for between, behind in ((25, 0), (0, 25)):
        (tmp_path / "a.npz").write_bytes(_with_gaps(between, behind, name, extra))
        with pytest.raises(InvalidInput, match="damaged"):
            read_named_values(tmp_path / "a.npz")


def test_empty_arrays_and_headers_of_version_2_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", none=np.zeros((0, 2)), one=np.zeros((1, 1)))
    assert {name: array.shape for name, array in read_named_values(tmp_path / "a.npz").items()} == {
        "none": (0, 2),
        "one": (1, 1),
    }
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.arange(3.0), version=(2, 0))
    (tmp_path / "b.npz").write_bytes(_zip("X.npy", buffer.getvalue()))
    assert read_named_values(tmp_path / "b.npz")["X"].tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(("shape", "read"), [((1,) * 32, True), ((1,) * 33, False), ("(True, 3)", False)])
def test_arrays_with_more_than_32_axes_or_non_integer_shapes_are_refused(
    tmp_path: Path, shape: tuple[int, ...] | str, read: bool
) -> None:
    if isinstance(shape, str):
        (tmp_path / "a.npz").write_bytes(_zip("X.npy", _header(shape) + bytes(24)))
    else:
        np.savez(tmp_path / "a.npz", X=np.ones(shape))
    if read:
        assert read_named_values(tmp_path / "a.npz")["X"].shape == shape
    else:
        with pytest.raises(InvalidInput, match="damaged"):
            read_named_values(tmp_path / "a.npz")


@pytest.mark.parametrize(("limit", "name"), [("LARGEST_FILE", "a.npz"), ("LARGEST_TEXT", "a.json")])
def test_files_up_to_the_limit_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(_savez(X=np.zeros(3)) if path.suffix == ".npz" else b'{"X": [0, 0, 0]}')
    size = path.stat().st_size
    monkeypatch.setattr(files, limit, size)
    assert len(read_named_values(path)["X"]) == 3
    monkeypatch.setattr(files, limit, size - 1)
    with pytest.raises(InvalidInput, match=f"is larger than {size - 1} bytes"):
        read_named_values(path)


def test_a_directory_that_accepts_no_files_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The permissions need not show that: root has them on a read-only file system."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    check_writable(tmp_path / "out.json")
    monkeypatch.setattr(files.tempfile, "TemporaryFile", refuse)
    with pytest.raises(InvalidInput, match="cannot be written"):
        check_writable(tmp_path / "out.json")


def test_an_array_of_text_is_written_as_text() -> None:
    assert to_json(np.array(["a", "b"])) == '["a", "b"]'


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("step", ["tempfile.mkstemp", "os.fdopen", "os.fsync", "os.chmod", "os.replace"])
def test_wherever_writing_fails_the_file_is_either_the_old_or_the_new_one(
    tmp_path: Path, step: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")

    def failing(*arguments: object, **named: object) -> object:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(f"reference_attention.files.{step}", failing)
        with pytest.raises(InvalidInput, match=rf"a\.json: cannot be written \({os.strerror(number)}\)\."):
            write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    write_text(path, "new")
    assert path.read_text() == "new"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a b.json", "a b.json"),
        ("α\u00a0β", "α\u00a0β"),
        ("\x1b[2J\r\n", "\\x1b[2J\\r\\n"),
        ("a\udcff\u202e\u2028", "a\\udcff\\u202e\\u2028"),
        ("x" * 100_000, "x" * 200 + "…" + "x" * 199),
    ],
)
def test_names_in_files_are_printed_short_and_escaped(name: str, shown: str) -> None:
    assert printable(name) == shown
    assert str(InvalidInput(f"{name}: no.")) == printable(f"{name}: no.", lines=True)
    assert len(printable(f"{name} " * 1000)) <= LONGEST_LINE


def test_names_that_are_not_utf_8_are_read_back_unchanged(tmp_path: Path) -> None:
    value = {"name": "a\udcffb", "α": 1}
    write_text(tmp_path / "a.json", to_json(value))
    assert read_named_values(tmp_path / "a.json") == value
