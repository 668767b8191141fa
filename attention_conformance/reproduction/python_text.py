"""The Python source of numbers, tensors and statements in a test."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable
from typing import Any

import numpy as np

from attention_conformance.kernel.torch_import import torch

WIDTH = 112
"""The longest line of a test in characters, without its first indentation."""


class NotWritten(Exception):
    """Exception for a failure that cannot be written as a test; the message says what a test cannot contain."""


def number(x: float) -> str:
    """Return the shortest Python source of a float; −0 becomes 0."""
    if not math.isfinite(x):
        return "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"
    return repr(x + 0.0).removesuffix(".0")  # the sum turns −0 into 0


def array_text(x: Any) -> str:
    """Return the Python expression that creates a tensor with the entries of the array ``x``."""
    array = np.asarray(x)
    if array.dtype == bool or array.dtype.kind == "i":
        return f"torch.tensor({array.tolist()})"
    values = ", ".join(number(value) for value in array.ravel().tolist())
    return f"numbers({', '.join([f'[{values}]', *map(str, array.shape)])})"


def constant(x: torch.Tensor) -> str:
    """Return the Python expression that creates a tensor with the entries, dtype and device of ``x``."""
    try:
        tensor = x.detach().cpu()
        entries = re.sub(r"(?<=\d)\.0(?=[,\]])", "", str(tensor.tolist()))
    except (RuntimeError, NotImplementedError):
        raise NotWritten("a tensor without numbers") from None
    dtype = "" if tensor.dtype in (torch.bool, torch.int64) and tensor.numel() else f", dtype={tensor.dtype}"
    text = f"torch.tensor({entries}{dtype})"
    return text if x.device.type == "cpu" else f'{text}.to("{x.device}")'


def wrap(text: str) -> str:
    """Return a statement, broken between the arguments of a call if it is longer than a line."""
    whole = re.sub(r"\([^()\[\]]{,60}\)", lambda match: match[0].replace(" ", "\0"), text)
    lines = textwrap.fill(whole, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


def indent(lines: Iterable[str]) -> str:
    """Return the lines as one text, indented by four spaces as the body of a block."""
    return textwrap.indent("\n".join(lines), "    ", lambda line: bool(line.strip()))
