"""What a unit depends on, as a digest: the address of its result, wherever that was computed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from reference_attention.files import to_json
from theorems.run.journal import key_of

OF_THE_RUN = ("statements", "examples", "faults", "figures")
"""What an identity says of all units together; each unit has its own share of it among its fields."""
BESIDE = ("so_far", "lost", "isolated", "title")
"""Fields of a unit that its result does not depend on."""
_PLAIN = (str, int, float, bool, type(None), tuple)


def address(unit: Any, run: Mapping[str, Any]) -> str:
    """The address of the result of a unit.

    Args:
        unit: a dataclass; its plain fields count, what need not be done again does not.
        run: :func:`theorems.run.identity.identity`, with sources, libraries, data and kernel.
    """
    shared = {name: value for name, value in run.items() if name not in OF_THE_RUN}
    own = {one.name: getattr(unit, one.name) for one in fields(unit) if one.name not in BESIDE}
    plain = {name: value for name, value in own.items() if isinstance(value, _PLAIN)}
    text = to_json({"run": shared, "unit": key_of(unit), "fields": plain})
    return hashlib.sha256(text.encode()).hexdigest()[:32]
