"""Files that the page saves: the data as .npz, as .json and as a test, which the other commands read."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np

from generators.case import Case
from generators.layer_weights import STEPS, TRAINED
from generators.query_data import FACTORS
from generators.user_data import FURTHER, as_text
from reference_attention.files import from_json, numbers

TEST = '''"""Data of `theorems explore`, as a test; run it with pytest."""

import json

from theorems import verify

DATA = json.loads({text})


def test_statements_on_data():
    """None is falsified; `print(verify(...))` shows each with its tightest claim."""
    verify(DATA).raise_if_falsified()
'''


def as_json(case: Case) -> bytes:
    """Return the data as JSON that ``theorems verify --data`` reads."""
    return as_text(case).encode()


def as_npz(case: Case) -> bytes:
    """Return the data as an .npz file.

    Arrays that only some statements use and that have no name in such files, such as ``start_prompts``, are left out.
    """
    content: dict[str, Any] = from_json(as_text(case))
    further = content.pop("arrays", {})
    content |= {name: value for name, value in further.items() if name in (*FURTHER, *FACTORS, *TRAINED, STEPS)}
    arrays = {name: np.asarray(numbers(value)) for name, value in content.items()}
    target = io.BytesIO()
    np.savez(target, allow_pickle=False, **arrays)
    return target.getvalue()


def as_test(case: Case) -> bytes:
    """Return a test file for pytest that verifies the statements on the data."""
    lines = "\n".join(f"    {line + chr(10)!r}" for line in as_text(case).splitlines())
    return TEST.format(text=f"\n{lines}\n").encode()


def stem(case: Case) -> str:
    """Return a file name for the data, without an extension."""
    return re.sub(r"[^\w.-]+", "-", case.name.removesuffix(".json").removesuffix(".npz")).strip("-") or "data"
