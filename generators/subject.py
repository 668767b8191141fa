"""The base class of the data of one check: a case of attention, a call of a kernel, or data of another paper.

A paper whose data are not keys and scores defines a frozen dataclass for its data:

    @dataclass(frozen=True, eq=False)
    class Contexts(Subject, kind="contexts", noun="contexts with next tokens"):
        tokens: Int64[np.ndarray, "m d"]
        seed: int = 0
        name: str = "generated"

The paper's strategies draw instances of this class; the paper's predicates and conclusions take such an instance. The
methods that write the data to a file, print the data or simplify them use the fields, and can be overridden.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from types import MappingProxyType, UnionType
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from max_margin_theorems.extensions import import_formats
from max_margin_theorems.papers import import_kinds
from reference_attention.errors import InvalidInput, suggest
from reference_attention.files import numbers
from reference_attention.npz import MOST_AXES
from reference_attention.problem import as_array, refuse_truth_values

Own = TypeVar("Own", bound="Subject")
"""The type of data in methods that return data of the same class; the run-time type checks do not support ``Self``."""
KINDS: dict[str, type[Subject]] = {}
"""For each kind of data that papers define, named by a word in the data's files, the class of the data."""
KIND = "kind"
"""The name under which a file holds the kind of its data."""
RECORD = ("case_of", "claim", KIND)
"""The names that a file may hold besides the fields of its data."""


class Subject:
    """Base class of the data of one check, which are drawn, checked, written, read and printed; immutable.

    Attributes:
        kind: the word that distinguishes files of the class from others; empty for the data of this package.
        noun: the name of the kind of data in a sentence.
        seed: the seed of what a statement's conclusion draws at random.
        name: the source of the data, for the report.
    """

    kind: ClassVar[str] = ""
    noun: ClassVar[str] = "data"
    seed: int
    name: str

    def __init_subclass__(cls, *, kind: str = "", noun: str = "") -> None:
        """Register the subclass under its kind.

        Raises:
            InvalidInput: another class has the same kind.
        """
        super().__init_subclass__()
        if not kind:
            return
        namesake = KINDS.get(kind)
        if namesake is not None and (namesake.__module__, namesake.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InvalidInput(
                f"kind: {kind!r} is the kind of {_place(namesake)} and {_place(cls)}; choose another for one of them."
            )
        cls.kind, cls.noun = kind, noun or kind
        KINDS[kind] = cls

    def rng(self) -> np.random.Generator:
        """Return a new random generator that depends only on the seed."""
        return np.random.default_rng(self.seed)

    def unfit_for(self, assumptions: Collection[str]) -> str:
        """Return why statements with the given assumptions do not apply to the data; an empty text if they do."""
        return ""

    def normalise(self: Own) -> Own:
        """Return the data scaled so that their numbers are of moderate size; by default the data are unchanged."""
        return self

    def replace(self: Own, **changed: object) -> Own:
        """Return the data with some fields replaced."""
        return replace(self, **changed)  # type: ignore[type-var]

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes of the data for tables, by the letters that the paper uses."""
        return {}

    @property
    def too_large(self) -> str:
        """Return why the data are too large for statements to be verified on them; "" if they are not too large."""
        return ""

    @property
    def number_format(self) -> str:
        """The number format in which a kernel is called on the data by default; empty for the kernel's own format."""
        return ""

    @property
    def explained_in(self) -> float:
        """Return the estimated time of :meth:`explain` in seconds; 0 if the time is short."""
        return 0.0

    def named_values(self) -> dict[str, Any]:
        """Return the values to write to a file by name: arrays, numbers, texts, and mappings of these.

        By default the values are the fields that are not None.
        """
        values = {field.name: getattr(self, field.name) for field in _fields(self)}
        return {name: _to_write(value) for name, value in values.items() if value is not None}

    @classmethod
    def of_values(cls: type[Own], contents: Mapping[str, Any], seed: int = 0, name: str = "data") -> Own:
        """Return the data with the given values by name, from :meth:`named_values` or from a file that a user wrote.

        The method ``__post_init__`` of the class has to refuse values that do not fit together.

        Raises:
            InvalidInput: an unknown or a missing name, or a value of a wrong type.
        """
        field_by_name = {field.name: field for field in _fields(cls)}
        unknown = next((key for key in sorted({*contents} - {*field_by_name, *RECORD})), None)
        if unknown is not None:
            raise InvalidInput(
                f"{name}: unknown name {unknown!r}.{suggest(unknown, field_by_name)} The names in {cls.noun} are"
                f" {', '.join(field_by_name)}."
            )
        required = [
            field.name
            for field in field_by_name.values()
            if field.default is MISSING and field.default_factory is MISSING
        ]
        missing = next((key for key in required if key not in contents), None)
        if missing is not None:
            raise InvalidInput(f"{name}: {missing} is missing; {cls.noun} have {', '.join(required)}.")
        hints = get_type_hints(cls)
        values = {key: _read(key, contents[key], hints[key]) for key in field_by_name if key in contents}
        return cls(**{"seed": seed, "name": name} | values)

    def rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return the column heads and the rows of a table to print; by default there is no table."""
        return (), []

    def lines(self) -> list[str]:
        """Return the lines to print below the table of :meth:`rows`."""
        values = {field.name: getattr(self, field.name) for field in _fields(self)}
        present = {name: value for name, value in values.items() if value is not None and name != "name"}
        return [f"{name} {_to_show(value)}" for name, value in present.items()]

    def explain(self) -> list[str]:
        """Return the paragraphs on training on the data with which ``theorems explain`` begins."""
        return []

    def simpler(self: Own) -> Iterator[Own]:
        """Yield data that are simpler by one step, the simplest first, for a search for small counterexamples."""
        yield from ()


@dataclass(frozen=True)
class FileFormat:
    """The format of files that hold data of one class, but no :data:`KIND`.

    Attributes:
        data: the class of the data.
        marker: a name that all files of this format hold, and no other files.
        read: the function (named values, name of the file) → data.
        write: the function (data, further entries of the file by name) → JSON.
        command: the command that accepts such files, if only one does.
    """

    data: type[Any]
    marker: str
    read: Callable[[Mapping[str, Any], str], Any]
    write: Callable[..., str]
    command: str = ""


FORMATS: dict[str, FileFormat] = {}
"""The registered formats by their markers."""


def format_of(data: Any) -> FileFormat | None:
    """Return the format of data, or of a file with the names ``data``; None if no registered format fits."""
    import_formats()
    if isinstance(data, Mapping | set | frozenset):
        return next((FORMATS[marker] for marker in FORMATS if marker in data), None)
    return next((file_format for file_format in FORMATS.values() if isinstance(data, file_format.data)), None)


def kind_named(kind: Any) -> type[Subject]:
    """Return the class of the data of a kind.

    Raises:
        InvalidInput: no installed paper defines this kind.
    """
    word = kind.item() if isinstance(kind, np.ndarray) and kind.ndim == 0 else kind
    if word not in [*KINDS]:
        import_kinds()
    if not isinstance(word, str) or word not in KINDS:
        raise InvalidInput(f"kind: {word!r} is no kind of data; known are {', '.join(KINDS) or 'none'}.")
    return KINDS[word]


def written_array(value: Any) -> Any:
    """Return the array to write as JSON; for an empty array a mapping with the shape, which nested lists would lose."""
    return value if np.size(value) else {"shape": np.shape(value)}


def empty_array(value: Mapping[str, Any]) -> np.ndarray:
    """Return the empty array of a mapping such as {"shape": [0, 3]}.

    Raises:
        ValueError: the mapping does not have the form of the example.
    """
    shape = value["shape"] if set(value) == {"shape"} else None
    if not isinstance(shape, list | tuple) or 0 not in shape or len(shape) > MOST_AXES:
        raise ValueError("no shape of an empty array")
    if not all(type(axis) is int and 0 <= axis < 2**31 for axis in shape):
        raise ValueError("axes are whole numbers")
    return np.zeros(shape)


def shown_array(values: Any) -> str:
    """Format the first eight entries of an array with all digits."""
    entries = [repr(float(x)) for x in np.ravel(values)]
    texts = entries if len(entries) <= 8 else [*entries[:8], f"… {len(entries)} entries"]
    return ", ".join(texts) if np.ndim(values) == 0 else "(" + ", ".join(texts) + ")"


def _fields(cls: Any) -> tuple[Any, ...]:
    return fields(cls)


def _place(kind: type[Subject]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _to_write(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _to_write(entry) for name, entry in value.items()}
    return written_array(value) if isinstance(value, np.ndarray) else value


def _to_show(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_to_show(entry)}" for name, entry in value.items()) or "none"
    if isinstance(value, np.ndarray) and value.ndim > 1:
        return f"of shape {value.shape}: {shown_array(value)}"
    return shown_array(value) if isinstance(value, np.ndarray) else str(value)


def _read(name: str, value: Any, hint: Any) -> Any:
    """Return the value of a field with type ``hint``: an array read-only with the declared dtype, others unchanged."""
    dtype = _dtype(hint)
    if dtype is None:
        value = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
        if isinstance(value, Mapping):
            return MappingProxyType(
                {str(key): _array(key, entry, np.dtype(np.float64)) for key, entry in value.items()}
            )
        if isinstance(hint, type) and not (isinstance(value, hint) and not (hint is int and isinstance(value, bool))):
            raise InvalidInput(f"{name}: must be {_WORDS.get(hint, hint.__name__)}.")
        return value
    return _array(name, value, dtype)


_WORDS = {int: "a whole number", str: "text", bool: "true or false", float: "a number"}


def _dtype(hint: Any) -> np.dtype[Any] | None:
    """Return the dtype of the type hint of an array, or of an array or None; None for any other type hint."""
    for member in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        names = getattr(member, "dtypes", None)
        if isinstance(names, tuple | list) and names:
            return np.dtype(names[0])
    return None


def _array(name: str, value: Any, dtype: np.dtype[Any]) -> np.ndarray:
    if dtype.kind != "b":
        refuse_truth_values(name, value)
    try:
        raw = (
            empty_array(value) if isinstance(value, Mapping) else as_array(name, numbers(value), "of one length a row")
        )
    except (ValueError, TypeError, OverflowError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{name}: is not an array; give nested lists of numbers of equal length.") from None
    array = raw.astype(dtype) if raw.dtype.kind in "fiub" else None
    if array is None or not np.array_equal(array, raw, equal_nan=dtype.kind == "f"):
        raise InvalidInput(f"{name}: dtype {raw.dtype} does not fit; give {dtype} numbers.")
    array.setflags(write=False)
    return array
