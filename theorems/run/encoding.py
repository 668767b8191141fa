"""Conversion of results to JSON and back: numbers are exact, nothing is pickled."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from cattrs.gen import make_dict_unstructure_fn, override
from cattrs.preconf.json import make_converter

from reference_attention.files import NOT_FINITE, to_json
from theorems.run.findings import NamedFinding
from theorems.run.pool import NoResult, Tell
from theorems.run.result import Failure, Result

_CONVERTER = make_converter()
_CONVERTER.register_structure_hook(type(None), lambda value, _: None)
_CONVERTER.register_structure_hook_func(lambda kind: kind is object, lambda value, _: value)


def _finding(value: Any, _: Any) -> NamedFinding:
    id, title, holds, evidence, exact = value
    if not (all(isinstance(text, str) for text in (id, title, evidence)) and holds in (True, False, None)):
        raise ValueError("no finding")
    return NamedFinding(id, title, holds, evidence, dict(exact))


_CONVERTER.register_structure_hook(NamedFinding, _finding)


def _holds_numbers(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType) and float in get_args(kind)


def _number(value: Any, kind: Any) -> Any:
    """Return a number or another member of a union; numbers that are not finite are strings in JSON."""
    others = [member for member in get_args(kind) if member not in (int, float, type(None))]
    if isinstance(value, str) and value in NOT_FINITE:
        return NOT_FINITE[value]
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    if not others:
        raise ValueError("no number")
    several: Any = Union[tuple(others)]  # noqa: UP007 — of a tuple of members
    return _CONVERTER.structure(value, several)


_CONVERTER.register_structure_hook_func(_holds_numbers, _number)


def _omit_defaults(kind: type, *names: str) -> None:
    """Omit fields of a class from its JSON while they have their defaults, so that older journals stay readable."""
    rules = {name: override(omit_if_default=True) for name in names}
    # mypy takes the rules for the keywords beside them.
    _CONVERTER.register_unstructure_hook(kind, make_dict_unstructure_fn(kind, _CONVERTER, **rules))  # type: ignore[arg-type]


_omit_defaults(Failure, "parts")
_omit_defaults(Result, "parts")


def encode(result: Any) -> Any:
    """Return a dataclass as dictionaries, lists, strings and numbers."""
    return _CONVERTER.unstructure(result)


def plain(result: Any) -> Any:
    """Return a dataclass as plain JSON values: numbers are Python's own, and those that are not finite are strings."""
    return json.loads(to_json(encode(result)))


def decode(stored: Any, kind: Any) -> Any:
    """Return the value of type ``kind`` that was stored as JSON.

    Raises:
        ValueError: the JSON is no value of that type.
    """
    try:
        structured = _CONVERTER.structure(stored, kind)
        # The converter makes text of numbers, and fills in what is missing.
        if plain(structured) == stored:
            return structured
    except Exception:
        pass
    raise ValueError("holds a result that is none")


def decode_result(unit: Any, stored: Any) -> Any:
    """Return the result of a unit from its JSON.

    Raises:
        ValueError: it is no result, is the result of another unit, or its numbers do not fit each other.
    """
    return _fitting(unit, decode(stored, get_type_hints(type(unit).run)["return"]))


def decode_so_far(unit: Any, stored: Any) -> Any:
    """Return the finished work of a unit, its ``so_far``, from its JSON.

    Raises:
        ValueError: as :func:`decode_result`.
    """
    return _fitting(unit, decode(stored, get_type_hints(type(unit))["so_far"]))


def _fitting(unit: Any, decoded: Any) -> Any:
    check = getattr(decoded, "misfit", None)
    if check is not None and (why := check(unit.id, unit.total)):
        raise ValueError(f"holds a result whose numbers do not fit ({why})")
    return decoded


def decoding(unit: Callable[[int], Any], tell: Tell) -> Tell:
    """Wrap ``tell`` so that it is given results in place of their JSON.

    The function that is returned is called with the words of a pool about units.

    Raises:
        NoResult: raised by the function that is returned, where a process sent no result.
    """

    def tell_decoded(number: int, word: str, value: Any) -> None:
        try:
            if word == "so far":
                value = decode_so_far(unit(number), value)
            elif word == "finished":
                value = decode_result(unit(number), value)
        except ValueError:
            raise NoResult from None
        tell(number, word, value)

    return tell_decoded
