"""A check of the JSON of ``theorems verify`` against the schema in the package."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator

VALIDATOR = Draft202012Validator(
    json.loads(resources.files("theorems.library").joinpath("verify.schema.json").read_text())
)


def read_results(text: str) -> dict[str, Any]:
    """Return the values in a text, which must be strict JSON that the schema allows."""

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is not JSON")

    values: dict[str, Any] = json.loads(text, parse_constant=refuse)
    VALIDATOR.validate(values)
    return values
