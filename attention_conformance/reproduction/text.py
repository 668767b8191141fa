"""Numbers and lines as Python text."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

DRAWN = '''def drawn(seed, *shape):
    """Whole numbers from -3 to 3, in float64."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).double()
'''
"""The function by which a test draws its numbers."""

WIDTH = 116


def number(x: float) -> str:
    """As short as it reads back."""
    if not math.isfinite(x):
        return "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"
    return repr(x + 0.0).removesuffix(".0")  # −0 is 0


def tensor(name: str, x: Any) -> str:
    """The line that makes an array."""
    array = np.asarray(x)
    if array.dtype == bool or array.dtype.kind == "i":
        return wrap(f"{name} = torch.tensor({array.tolist()})")
    values = ", ".join(number(one) for one in array.ravel().tolist())
    return wrap(f"{name} = numbers({', '.join([f'[{values}]', *map(str, array.shape)])})")


def wrap(text: str) -> str:
    """A statement in lines that are short enough: broken between its arguments, if each of these is."""
    if len(text) <= WIDTH - 4:
        return text
    whole = _arguments(text)
    if max(map(len, whole)) > WIDTH - 10:
        whole = text.split(" ")
    lines = [whole[0]]
    for part in whole[1:]:
        if len(lines[-1]) + 1 + len(part) <= WIDTH - 4:
            lines[-1] += f" {part}"
        else:
            lines.append(f"    {part}")
    # A line can be broken within brackets alone.
    return "\n".join(lines) if all(_depth("\n".join(lines[:k])) > 0 for k in range(1, len(lines))) else text


def _arguments(text: str) -> list[str]:
    """The text cut behind the commas of its outermost brackets."""
    found, begun, depth = [], 0, 0
    for k, one in enumerate(text):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(one, 0)
        if one == " " and text[k - 1] == "," and depth == 1:
            found.append(text[begun:k])
            begun = k + 1
    return [*found, text[begun:]]


def _depth(text: str) -> int:
    """How many brackets are open at its end; its strings have none."""
    return len(re.findall(r"[([{]", text)) - len(re.findall(r"[)\]}]", text))


def indent(lines: Iterable[str], by: int = 1) -> str:
    """The lines as the body of something."""
    return textwrap.indent("\n".join(lines), "    " * by, lambda line: bool(line.strip()))


def names(of: Iterable[str]) -> str:
    """A tuple on the left of an assignment, of one or more."""
    held = list(of)
    return f"{held[0]}," if len(held) == 1 else ", ".join(held)


def for_each(of: Sequence[str], does: str) -> str:
    """The statement that does the same to each, which the text calls x."""
    if len(of) == 1:
        own = re.sub(r"(?<![.\w])x(?!\w)", of[0], does)
        return wrap(f"{of[0]} = {own}")
    return wrap(f"{', '.join(of)} = ({does} for x in ({', '.join(of)}))")


def quote_all(of: Iterable[str]) -> str:
    """A tuple of strings."""
    return "(" + names(f'"{one}"' for one in of) + ")"
