"""Damaged files: each kind of file that the command reads is damaged at random, and must be read or refused in one
sentence.

Users' files may be cut, edited by hand, or written by another program.

    $ python -m tests.fuzz [COUNT [SEED]]     damages and reads COUNT files of every kind; prints how many were read
                                              and refused, the seconds of the slowest, and the memory used
"""

from __future__ import annotations

import io
import json
import random
import resource
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from generators.user_data import load
from reference_attention.errors import InvalidInput
from tests.places import ROOT
from theorems.counterexamples import record as hunted
from theorems.library.explain import explain

LONGEST = 10.0
"""Seconds that reading one file may take."""
MOST_MEMORY = 2**30
"""Bytes of memory that the process may use at most."""

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2.5, 1e308, 1e999, float("nan"), 2**53 + 1, 10**400, "", "x", "NaN", "Infinity"),
    *(
        "logistic",
        "théorème",
        "a" * 10_000,
        [],
        {},
        [[]],
        [[], [1]],
        [[1, 2], [3]],
        [None],
        ["1"],
        [[[[[1]]]]],
        [1e400],
    ),
    *({"shape": [2, 2]}, {"shape": [400_000_000]}, {"shape": [0, 3]}, {"shape": [2.5, 0]}, {"shape": [0] * 99}),
    *({"shape": "0"}, {"shape": [0], "foo": 1}, {"shape": [0, -1]}, {"shape": [0, 2**70]}, {"dtype": "O"}),
)
"""Values of unexpected types, shapes and sizes, which replace values in a file."""


@dataclass(frozen=True)
class Kind:
    """A kind of file that the command reads.

    Attributes:
        suffix: the suffix of the file's name.
        seeds: contents of undamaged files.
        mutated: returns a damaged copy of a content.
        read: reads a file as the command does; raises :class:`InvalidInput` to refuse the file.
    """

    suffix: str
    seeds: tuple[bytes, ...]
    mutated: Callable[[random.Random, bytes], bytes]
    read: Callable[[Path], object]


@dataclass
class Outcome:
    """The outcome of reading many damaged files of one kind.

    Attributes:
        read, refused: the number of files that were read, and of those that were refused.
        wrong: a line for each file that was refused without one clear sentence, made the command fail, or took too
            long.
        slowest: the seconds that reading the slowest file took.
    """

    read: int = 0
    refused: int = 0
    wrong: list[str] | None = None
    slowest: float = 0.0


def bytes_changed(rng: random.Random, content: bytes) -> bytes:
    """Return a content with bits flipped, with bytes replaced, cut out or repeated, or with the end cut off."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(max(1, len(data)))
        length = rng.choice((1, 2, 8, 64))
        what = rng.randrange(5)
        if what == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif what == 1:
            data[at : at + length] = rng.randbytes(length)
        elif what == 2:
            del data[at : at + length]
        elif what == 3:
            data[at:at] = data[at : at + length]
        else:
            del data[rng.randrange(max(1, len(data))) :]
    return bytes(data)


def npz_changed(rng: random.Random, content: bytes) -> bytes:
    """Return a new archive in which one array's name, header or data is changed, or an archive with changed bytes."""
    if rng.random() < 0.5:
        return bytes_changed(rng, content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(entry.filename, archive.read(entry)) for entry in archive.infolist()]
    at = rng.randrange(len(members))
    name, data = members[at]
    what = rng.randrange(5)
    if what == 0:
        name = rng.choice(
            (name[1:], name.lower(), name + "x", name.replace(".", "\0."), "../" + name, "seed.npy", "W.npy")
        )
    elif what == 1:
        begin, end = data.index(b"{"), data.index(b"\n")
        header = bytes_changed(rng, data[begin:end])[: end - begin].ljust(end - begin)
        data = data[:begin] + header + data[end:]
    elif what == 2:
        shape = rng.choice(("(2.5, 3)", "(-1,)", "(10**15,)", "(2**62, 2**62)", "(2, 3", "2", "('a',)", "()", "[2]"))
        preamble = f"{{'descr': {rng.choice(DESCRIPTORS)}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
        data = b"\x93NUMPY\x01\x00" + len(preamble).to_bytes(2, "little") + preamble + data[-48:]
    elif what == 3:
        odd: Any = rng.choice((np.array([None]), np.array("x"), np.array(["a"]), np.zeros((0, 2)), np.ones(3, "c8")))
        buffer = io.BytesIO()
        np.save(buffer, odd, allow_pickle=True)
        data = buffer.getvalue()
    else:
        data = bytes_changed(rng, data)
    members[at] = (name, data)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for member, packed in members:
            archive.writestr(member or "x", packed)
    return buffer.getvalue()


DESCRIPTORS = ("'<f8'", "'<i8'", "'O'", "'<U9'", "'|b1'", "'V8'", "[('a', '<f8')]", "'<M8[s]'", "'nonsense'", "3")


def json_changed(rng: random.Random, content: bytes) -> bytes:
    """Return JSON in which values are replaced, or names changed, dropped or added, or JSON with changed bytes."""
    if rng.random() < 0.3:
        return bytes_changed(rng, content)
    value = json.loads(content)
    for _ in range(rng.choice((1, 1, 1, 3))):
        parent = rng.choice(list(_containers(value)))
        if not parent:
            continue
        key: Any = rng.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
        what = rng.randrange(4)
        if what == 0:
            parent[key] = _odd(rng)
        elif what == 1:
            del parent[key]
        elif isinstance(parent, dict):
            renamed = rng.choice((key[1:], key + "s", key.upper(), "unknown"))
            parent[renamed] = parent.pop(key) if what == 2 else _odd(rng)
        else:
            parent.insert(key, parent[key] if what == 2 else _odd(rng))
    return json.dumps(value).encode()


def _odd(rng: random.Random) -> Any:
    return deepcopy(rng.choice(ODD))


def _containers(parent: Any) -> Iterator[Any]:
    if isinstance(parent, dict | list):
        yield parent
        for value in parent.values() if isinstance(parent, dict) else parent:
            yield from _containers(value)


def python_changed(rng: random.Random, content: bytes) -> bytes:
    """Return Python source in which lines or words are dropped, repeated or replaced, or source with changed bytes."""
    if rng.random() < 0.2:
        return bytes_changed(rng, content)
    lines = content.split(b"\n")
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(lines))
        what = rng.randrange(4)
        if what == 0:
            del lines[at]
        elif what == 1:
            lines.insert(rng.randrange(len(lines)), lines[at])
        elif what == 2:
            words = lines[at].split(b" ")
            del words[rng.randrange(len(words))]
            lines[at] = b" ".join(words)
        else:
            lines[at] = lines[at].replace(b"statement", rng.choice((b"None", b"1 / 0", b"exit()", b"statement()")))
    return b"\n".join(lines)


def _npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _counterexamples() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted((ROOT / "counterexamples").glob("*.json"))[::4])


def _data(path: Path) -> object:
    return load(str(path), 0)


def _npz_data(path: Path) -> object:
    """Read a damaged archive; assert that no array of the undamaged one was lost silently."""
    case = load(str(path), 0).case
    if case.dataset is not None:
        assert case.dataset.W is not None, "read without W"
        assert case.start is not None, "read without p0"
        assert case.alpha is not None, "read without alpha"
    else:
        assert "q" in case.arrays, "read without q"
    return case


def _explained(path: Path) -> object:
    """Return all that ``theorems explain`` prints and writes for a file, except for a picture."""
    explanation = explain(str(path))
    return str(explanation), explanation.to_json()


def _replayed(path: Path) -> object:
    record = hunted.read(path)
    return record if "none_found" in record else hunted.load(path)


X, Y, V = np.arange(12.0).reshape(2, 3, 2) % 5, np.array([1.0, -1.0]), np.array([1.0, 0.5])
JSON_DATA = {
    "X": X.tolist(),
    "Y": [1, -1],
    "v": [1, 0.5],
    "W": [[1, 0], [0, 1]],
    "loss": "logistic",
    "alpha": [0, 1],
    "p0": [0.5, 0.0],
    "seed": 3,
    "arrays": {"u": [1.0, 2.0], "none": {"shape": [0, 2]}},
}


def kinds() -> dict[str, Kind]:
    """Return every kind of file that the command reads, by name."""
    data = _npz(X=X, Y=Y, v=V, W=np.eye(2), p0=np.zeros(2), alpha=np.array([0, 1]))
    pair = _npz(keys=X, scores=np.arange(6.0).reshape(2, 3), loss=np.array("exponential"), q=np.ones(2))
    example = (ROOT / "examples" / "rate.py").read_bytes()
    return {
        "npz": Kind(".npz", (data, pair), npz_changed, _npz_data),
        "json": Kind(".json", (json.dumps(JSON_DATA).encode(),), json_changed, _data),
        "explain-npz": Kind(".npz", (data, pair), npz_changed, _explained),
        "explain-json": Kind(".json", (json.dumps(JSON_DATA).encode(),), json_changed, _explained),
        "replay": Kind(".json", _counterexamples(), json_changed, _replayed),
        "module": Kind(".py", (example,), python_changed, _module),
    }


def _module(path: Path) -> object:
    from theorems.run.registry.user_file import _load

    return _load(str(path), str(path.resolve()), path.read_bytes())


def fuzzed(kind: Kind, count: int, seed: int, folder: Path) -> Outcome:
    """Damage and read ``count`` files of a kind, one after the other, and return the outcome."""
    outcome = Outcome(wrong=[])
    assert outcome.wrong is not None
    for k in range(count):
        rng = random.Random(f"{seed} {k}")
        path = folder / f"file{kind.suffix}"
        path.write_bytes(kind.mutated(rng, rng.choice(kind.seeds)))
        began = time.monotonic()
        try:
            kind.read(path)
            outcome.read += 1
        except InvalidInput as refusal:
            outcome.refused += 1
            message = str(refusal)
            if "\n" in message or not message.strip() or len(message) > 1000:
                outcome.wrong.append(f"{k}: refused with {message[:2000]!r}")
        except BaseException as error:
            outcome.wrong.append(f"{k}: {type(error).__name__}: {error}")
        took = time.monotonic() - began
        outcome.slowest = max(outcome.slowest, took)
        if took > LONGEST:
            outcome.wrong.append(f"{k}: took {took:.0f} s")
    return outcome


def memory() -> int:
    """Return the largest number of bytes of memory that this process has used so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(count: int, seed: int) -> int:
    wrong = 0
    made = kinds()
    before = memory()
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in made.items():
            outcome = fuzzed(kind, count, seed, Path(folder))
            assert outcome.wrong is not None
            print(f"{name}: {outcome.read} read, {outcome.refused} refused, slowest {outcome.slowest:.2f} s")
            for line in outcome.wrong[:20]:
                print(f"  {line}")
            wrong += len(outcome.wrong)
    print(f"memory: {before / 2**20:.0f} MiB before, {memory() / 2**20:.0f} MiB at most")
    return int(wrong > 0 or memory() > MOST_MEMORY)


if __name__ == "__main__":
    raise SystemExit(main(*[int(x) for x in sys.argv[1:]] or (100, 0)))
