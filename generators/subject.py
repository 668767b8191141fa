"""What one check of a statement looks at: a case of attention, a call of a kernel, or what another paper speaks of.

A paper whose data are none of keys and scores has a frozen dataclass of its own:

    @dataclass(frozen=True, eq=False)
    class Contexts(Subject, kind="contexts", noun="contexts with next tokens"):
        tokens: Int64[np.ndarray, "m d"]
        seed: int = 0
        name: str = "generated"

Its strategy draws it, its predicates and conclusions take it. It is written down by its fields, printed, and made
smaller without further ado; each of these is a method to replace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, replace
from types import MappingProxyType, UnionType
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from max_margin_theorems.papers import import_kinds
from reference_attention.errors import InvalidInput, suggest
from reference_attention.files import numbers
from reference_attention.npz import MOST_AXES
from reference_attention.problem import as_array, refuse_truth_values

Own = TypeVar("Own", bound="Subject")
"""Methods return their own class; checks of types at run time do not know ``Self`` there."""
KINDS: dict[str, type[Subject]] = {}
"""Papers' own kinds of data by the word that their files have."""
KIND = "kind"
"""The name of that word in a file."""
RECORD = ("case_of", "claim", KIND)
"""Names that stand in a file beside the fields."""


class Subject:
    """Base of what is drawn, checked, written down, read and printed; immutable.

    Attributes:
        kind: the word by which files tell it from others; empty of what the files of this package always held.
        noun: what it is, for a sentence.
        seed: drives what a conclusion draws; same seed, same points.
        name: where it comes from.
    """

    kind: ClassVar[str] = ""
    noun: ClassVar[str] = "data"
    seed: int
    name: str

    def __init_subclass__(cls, *, kind: str = "", noun: str = "") -> None:
        """Note the kind.

        Raises:
            InvalidInput: another class has it.
        """
        super().__init_subclass__()
        if not kind:
            return
        held = KINDS.get(kind)
        if held is not None and (held.__module__, held.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InvalidInput(
                f"kind: {kind!r} is both {_place(held)} and {_place(cls)}; choose another for one of them."
            )
        cls.kind, cls.noun = kind, noun or kind
        KINDS[kind] = cls

    def rng(self) -> np.random.Generator:
        """A fresh generator that depends on the seed alone."""
        return np.random.default_rng(self.seed)

    def normalise(self: Own) -> Own:
        """The same in units in which its numbers are of moderate size; by default as it is."""
        return self

    def replace(self: Own, **changed: object) -> Own:
        """This with some fields replaced."""
        return replace(self, **changed)  # type: ignore[type-var]

    @property
    def sizes(self) -> Mapping[str, int]:
        """What tables say of how large it is, by the letters of the paper."""
        return {}

    def named_values(self) -> dict[str, Any]:
        """What a file has: arrays, numbers, text, mappings of these; by default the fields that hold something."""
        held = {one.name: getattr(self, one.name) for one in _fields(self)}
        return {name: _to_write(value) for name, value in held.items() if value is not None}

    @classmethod
    def of_values(cls: type[Own], held: Mapping[str, Any], seed: int = 0, name: str = "data") -> Own:
        """What :meth:`named_values` wrote, or somebody's own file; ``__post_init__`` is to refuse what does not fit.

        Raises:
            InvalidInput: an unknown or a missing name, a value of another type.
        """
        known = {one.name: one for one in _fields(cls)}
        unknown = next((one for one in sorted({*held} - {*known, *RECORD})), None)
        if unknown is not None:
            raise InvalidInput(
                f"{name}: unknown name {unknown!r}.{suggest(unknown, known)} The names in {cls.noun} are"
                f" {', '.join(known)}."
            )
        needed = [one.name for one in known.values() if one.default is MISSING and one.default_factory is MISSING]
        missing = next((one for one in needed if one not in held), None)
        if missing is not None:
            raise InvalidInput(f"{name}: {missing} is missing; {cls.noun} have {', '.join(needed)}.")
        hints = get_type_hints(cls)
        values = {one: _read(one, held[one], hints[one]) for one in known if one in held}
        return cls(**{"seed": seed, "name": name} | values)

    def rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The columns and rows of a table for a reader; by default there is none."""
        return (), []

    def lines(self) -> list[str]:
        """Everything else for a reader, a line each."""
        held = {one.name: getattr(self, one.name) for one in _fields(self)}
        shown = {name: value for name, value in held.items() if value is not None and name != "name"}
        return [f"{name} {_to_show(value)}" for name, value in shown.items()]

    def explain(self) -> list[str]:
        """What happens on it, and why: the paragraphs that ``theorems explain`` begins with."""
        return []

    def simpler(self: Own) -> Iterator[Own]:
        """The same made simpler by one step, the simplest first: what a counterexample is made small by."""
        yield from ()


def kind_named(kind: Any) -> type[Subject]:
    """The class of data of that kind.

    Raises:
        InvalidInput: no paper that is installed has it.
    """
    word = kind.item() if isinstance(kind, np.ndarray) and kind.ndim == 0 else kind
    if word not in [*KINDS]:
        import_kinds()
    if not isinstance(word, str) or word not in KINDS:
        raise InvalidInput(f"kind: {word!r} is no kind of data; known are {', '.join(KINDS) or 'none'}.")
    return KINDS[word]


def written_array(value: Any) -> Any:
    """As JSON has it: nested lists lose the shape of an empty array, so it is said."""
    return value if np.size(value) else {"shape": np.shape(value)}


def empty_array(value: Mapping[str, Any]) -> np.ndarray:
    """An array without entries: {"shape": [0, 3]}.

    Raises:
        ValueError: anything else.
    """
    shape = value["shape"] if set(value) == {"shape"} else None
    if not isinstance(shape, list | tuple) or 0 not in shape or len(shape) > MOST_AXES:
        raise ValueError("no shape of an empty array")
    if not all(type(axis) is int and 0 <= axis < 2**31 for axis in shape):
        raise ValueError("axes are whole numbers")
    return np.zeros(shape)


def shown_array(values: Any) -> str:
    """The first entries of an array, to all digits."""
    entries = [repr(float(x)) for x in np.ravel(values)]
    shown = entries if len(entries) <= 8 else [*entries[:8], f"… {len(entries)} entries"]
    return ", ".join(shown) if np.ndim(values) == 0 else "(" + ", ".join(shown) + ")"


def _fields(of: Any) -> tuple[Any, ...]:
    return fields(of)


def _place(kind: type[Subject]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _to_write(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _to_write(one) for name, one in value.items()}
    return written_array(value) if isinstance(value, np.ndarray) else value


def _to_show(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_to_show(one)}" for name, one in value.items()) or "none"
    if isinstance(value, np.ndarray) and value.ndim > 1:
        return f"of shape {value.shape}: {shown_array(value)}"
    return shown_array(value) if isinstance(value, np.ndarray) else str(value)


def _read(name: str, value: Any, hint: Any) -> Any:
    """The value of a field of that declared type: arrays of its dtype and read-only, the rest as it is."""
    dtype = _dtype(hint)
    if dtype is None:
        value = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
        if isinstance(value, Mapping):
            return MappingProxyType({str(key): _array(key, one, np.dtype(np.float64)) for key, one in value.items()})
        if isinstance(hint, type) and not (isinstance(value, hint) and not (hint is int and isinstance(value, bool))):
            raise InvalidInput(f"{name}: must be {_WORDS.get(hint, hint.__name__)}.")
        return value
    return _array(name, value, dtype)


_WORDS = {int: "a whole number", str: "text", bool: "true or false", float: "a number"}


def _dtype(hint: Any) -> np.dtype[Any] | None:
    """Of an array, optional or not; None of anything else."""
    for one in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        names = getattr(one, "dtypes", None)
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
    made = raw.astype(dtype) if raw.dtype.kind in "fiub" else None
    if made is None or not np.array_equal(made, raw, equal_nan=dtype.kind == "f"):
        raise InvalidInput(f"{name}: dtype {raw.dtype} does not fit; give {dtype} numbers.")
    made.setflags(write=False)
    return made
