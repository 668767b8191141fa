"""Results as JSON has them, and back: numbers are exact, nothing is pickled."""

from __future__ import annotations

from typing import Any, get_type_hints

from cattrs.gen import make_dict_unstructure_fn, override
from cattrs.preconf.json import make_converter

from reference_attention.files import to_json
from theorems.run.result import Failure, Result

_CONVERTER = make_converter()


def _omit_defaults(kind: type, *names: str) -> None:
    """Fields that are written only where they hold something: a journal from before they were there stays readable."""
    rules = {name: override(omit_if_default=True) for name in names}
    # mypy takes the rules for the keywords beside them.
    _CONVERTER.register_unstructure_hook(kind, make_dict_unstructure_fn(kind, _CONVERTER, **rules))  # type: ignore[arg-type]


_omit_defaults(Failure, "parts")
_omit_defaults(Result, "parts")


def encode(result: Any) -> Any:
    """A dataclass as dictionaries, lists, texts and numbers."""
    return _CONVERTER.unstructure(result)


def decode(held: Any, kind: Any) -> Any:
    """The dataclass of that type.

    Raises:
        ValueError: it is none.
    """
    try:
        found = _CONVERTER.structure(held, kind)
    except Exception:
        raise ValueError("holds a result that is none") from None
    # The converter makes text of numbers, and fills in what is missing.
    if to_json(_CONVERTER.unstructure(found)) != to_json(held):
        raise ValueError("holds a result that is none")
    return found


def decode_result(unit: Any, stored: Any) -> Any:
    """Return the result of a unit from its JSON.

    Raises:
        ValueError: it is none, is that of another unit, or its numbers do not fit each other.
    """
    return _fitting(unit, decode(stored, get_type_hints(type(unit).run)["return"]))


def decode_so_far(unit: Any, stored: Any) -> Any:
    """Return what need not be done again of a unit from its JSON.

    Raises:
        ValueError: as :func:`decode_result`.
    """
    return _fitting(unit, decode(stored, get_type_hints(type(unit))["so_far"]))


def _fitting(unit: Any, decoded: Any) -> Any:
    check = getattr(decoded, "misfit", None)
    if check is not None and (why := check(unit.id, unit.total)):
        raise ValueError(f"holds a result whose numbers do not fit ({why})")
    return decoded
