"""Conversion of results to JSON and back: numbers keep their exact values, and nothing is pickled."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from cattrs.gen import make_dict_unstructure_fn, override
from cattrs.preconf.json import make_converter

from reference_attention.files import NOT_FINITE, to_json
from theorems.run.findings import NamedFinding
from theorems.run.pool import MessageHandler, NoResult
from theorems.run.result import Failure, Result

_CONVERTER = make_converter()
_CONVERTER.register_structure_hook(type(None), lambda value, _: None)
_CONVERTER.register_structure_hook_func(lambda kind: kind is object, lambda value, _: value)


def _finding(value: Any, _: Any) -> NamedFinding:
    id, title, holds, evidence, exact = value
    if not (all(isinstance(text, str) for text in (id, title, evidence)) and holds in (True, False, None)):
        raise ValueError("not a finding")
    return NamedFinding(id, title, holds, evidence, dict(exact))


_CONVERTER.register_structure_hook(NamedFinding, _finding)


def _holds_numbers(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType) and float in get_args(kind)


def _number(value: Any, kind: Any) -> Any:
    """Read, from JSON, a value whose type is float or a union with float; inf and NaN are strings in JSON."""
    others = [member for member in get_args(kind) if member not in (int, float, type(None))]
    if isinstance(value, str) and value in NOT_FINITE:
        return NOT_FINITE[value]
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    if not others:
        raise ValueError("not a number")
    others_type: Any = Union[tuple(others)]  # noqa: UP007 — the members are known at run time only
    return _CONVERTER.structure(value, others_type)


_CONVERTER.register_structure_hook_func(_holds_numbers, _number)


def _omit_defaults(kind: type, *names: str) -> None:
    """Omit fields of a class from JSON while they have their defaults, so that older journals stay readable."""
    rules = {name: override(omit_if_default=True) for name in names}
    # The comment "type: ignore" is needed because mypy takes the rules for other keywords of make_dict_unstructure_fn.
    _CONVERTER.register_unstructure_hook(kind, make_dict_unstructure_fn(kind, _CONVERTER, **rules))  # type: ignore[arg-type]


_omit_defaults(Failure, "parts")
_omit_defaults(Result, "parts")


def encode(result: Any) -> Any:
    """Convert a dataclass to dictionaries, lists, strings and numbers."""
    return _CONVERTER.unstructure(result)


def plain(result: Any) -> Any:
    """Convert a dataclass to plain JSON values: NumPy's numbers become Python's, inf and NaN become strings."""
    return json.loads(to_json(encode(result)))


def decode(stored: Any, kind: Any) -> Any:
    """Return the value of type ``kind`` that the JSON values ``stored`` describe.

    Raises:
        ValueError: ``stored`` does not describe a value of this type.
    """
    try:
        structured = _CONVERTER.structure(stored, kind)
        # The converter accepts numbers written as text, and missing fields; the comparison refuses both.
        if plain(structured) == stored:
            return structured
    except Exception:
        pass
    raise ValueError("holds a value that is not a result")


def decode_result(unit: Any, stored: Any) -> Any:
    """Return the result of a unit of work from its JSON values.

    Raises:
        ValueError: the JSON is not a result, is the result of another unit, or has numbers that contradict each other.
    """
    return _fitting(unit, decode(stored, get_type_hints(type(unit).run)["return"]))


def decode_so_far(unit: Any, stored: Any) -> Any:
    """Return the result of a unit's finished steps, its ``so_far``, from the JSON values.

    Raises:
        ValueError: the JSON is not such a result, is of another unit, or has numbers that contradict each other.
    """
    return _fitting(unit, decode(stored, get_type_hints(type(unit))["so_far"]))


def _fitting(unit: Any, decoded: Any) -> Any:
    check = getattr(decoded, "misfit", None)
    if check is not None and (why := check(unit.id, unit.total)):
        raise ValueError(f"holds a result with inconsistent numbers ({why})")
    return decoded


def decoding(unit: Callable[[int], Any], on_message: MessageHandler) -> MessageHandler:
    """Wrap a handler of a pool's messages so that it receives results instead of their JSON values.

    Args:
        unit: a function that returns the unit of work with a given number.
        on_message: the handler that receives results.

    Returns:
        A handler for :meth:`theorems.run.pool.Pool.work`. It raises :class:`theorems.run.pool.NoResult` if the JSON is
        not a result of the unit.
    """

    def handle_decoded(number: int, word: str, value: Any) -> None:
        try:
            if word == "so far":
                value = decode_so_far(unit(number), value)
            elif word == "finished":
                value = decode_result(unit(number), value)
        except ValueError:
            raise NoResult from None
        on_message(number, word, value)

    return handle_decoded
