"""Expressions of tensors: a tensor as a rearrangement of a named one that has the same numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

import numpy as np

from attention_conformance.kernel.with_torch import torch
from attention_conformance.reproduction.printed_functions import pick
from attention_conformance.reproduction.text import number

Named = Mapping[str, torch.Tensor]
"""Tensors by the text that makes them."""
ORDERS: Mapping[int, Mapping[str, tuple[int, ...]]] = {
    5: {"": (0, 1, 2, 3, 4), ".transpose(2, 3)": (0, 1, 3, 2, 4)},
    4: {
        "": (0, 1, 2, 3),
        ".transpose(1, 2)": (0, 2, 1, 3),
        ".permute(2, 0, 1, 3)": (2, 0, 1, 3),
        ".permute(1, 2, 0, 3)": (1, 2, 0, 3),
        ".transpose(2, 3)": (0, 1, 3, 2),
    },
    3: {"": (0, 1, 2), ".transpose(1, 2)": (0, 2, 1)},
    2: {"": (0, 1), ".T": (1, 0)},
    1: {"": (0,)},
}
FACTORS = {math.log(2): "math.log(2)", 1 / math.log(2): "1 / math.log(2)"}


def distinct_numbers(shape: tuple[int, ...], start: int) -> torch.Tensor:
    """Return numbers no two of which are equal; up to 3072 of them differ in half precision, too."""
    k = torch.arange(start, start + math.prod(shape)).double()
    mantissa = 1 + k // 8 * 37 % 128 / 128 + k // 3072 / 2**20  # its first digits differ, too, which 8 bits keep
    return (mantissa * 2.0 ** (k % 8 - 4 + 8 * ((k // 1024 + 1) % 3 - 1))).reshape(shape)


def text_of(x: torch.Tensor, named: Named, order: str = "") -> str:
    """Return the expression that makes a tensor of a named one; empty if it is a rearrangement of none.

    Args:
        x: the tensor.
        named: tensors of which no two numbers are equal.
        order: of axes, to be preferred where others give the same.
    """
    usable = {text: y for text, y in named.items() if y.is_floating_point() == x.is_floating_point()}
    memory = x.untyped_storage().data_ptr()  # what is in the same memory comes first
    usable = dict(sorted(usable.items(), key=lambda pair: pair[1].untyped_storage().data_ptr() != memory))
    for text, y in usable.items():
        for expression, view in _views(text, y, x.shape, order):
            if torch.equal(view.to(x.dtype).double(), x.double()):
                return expression + _suffix(view, x)
            if x.dtype == torch.bool and torch.equal(~view, x):
                return f"~{expression}"
    for text, y in usable.items():
        if x.is_floating_point() and (expression := _picked(text, y, x)):
            return expression + ("" if y.dtype == x.dtype else f".to({x.dtype})")
    for text, y in usable.items():
        for expression, view in _views(text, y, x.shape, order):
            if x.is_floating_point() and (factor := _factor(view.double(), x.double())):
                return f"({expression} * {FACTORS[factor]})" + _suffix(view, x)
    return ""


def _views(text: str, x: torch.Tensor, shape: torch.Size, order: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the views of a tensor that have that shape, each with its expression."""
    orders = [(text + expression, x.permute(axes)) for expression, axes in ORDERS.get(x.dim(), {}).items()]
    orders.sort(key=lambda pair: (pair[1].shape != shape, pair[0] != text + order))
    for expression, y in orders:
        if y.shape == shape:
            yield expression, y
        elif y.numel() == math.prod(shape):
            yield f"{expression}.reshape{tuple(shape)}", y.reshape(shape)
        elif len(shape) == y.dim() and y.shape[:-1] == shape[:-1] and y.shape[-1] > shape[-1]:
            yield f"{expression}[..., :{shape[-1]}]", y[..., : shape[-1]]
        elif all(n in (1, m) for n, m in zip(y.shape[::-1], shape[::-1], strict=False)) and y.dim() <= len(shape):
            yield f"{expression}.expand{tuple(shape)}", y.expand(shape)
        for k, row in enumerate(y if y.dim() > 1 else ()):
            if row.shape == shape:
                yield f"{expression}[{k}]", row


def _suffix(y: torch.Tensor, x: torch.Tensor) -> str:
    contiguous = ".contiguous()" if x.is_contiguous() and not y.is_contiguous() else ""
    return contiguous + ("" if y.dtype == x.dtype else f".to({x.dtype})")


def _factor(y: torch.Tensor, x: torch.Tensor) -> float:
    """Return the known number that y is multiplied by in x; 0 if there is none."""
    return next((factor for factor in FACTORS if torch.allclose(y * factor, x, rtol=1e-2)), 0.0)


def _picked(text: str, y: torch.Tensor, x: torch.Tensor) -> str:
    """Return the expression that picks the rows or entries of x from those of y; all others are one number."""
    rows = [(text, y)] if y.dim() == 3 else []
    if y.dim() == 4:
        rows.append((f"{text}.transpose(1, 2).flatten(0, 1)", y.transpose(1, 2).flatten(0, 1)))
    swapped = [(x, "")] + ([(x.transpose(1, 2), ".transpose(1, 2)")] if x.dim() == 4 else [])
    for expression, whole in (*rows, (text if y.dim() == 1 else f"{text}.flatten()", y.flatten())):
        row = whole.shape[1:]
        places = {_bits(entry.to(x.dtype)): k for k, entry in enumerate(whole)}
        for wanted, back in swapped:
            leading = wanted.shape[: wanted.dim() - len(row)]
            if wanted.shape[len(leading) :] != row or len(places) < len(whole):
                continue
            flat = wanted.reshape(-1, *row)
            indices = [places.get(_bits(entry), -1) for entry in flat]
            fillers = [entry for k, entry in zip(indices, flat, strict=True) if k < 0]
            rest = {float(value) for entry in fillers for value in entry.ravel().tolist()}
            if len(rest) > 1 or (places and indices and max(indices) < 0):
                continue
            at = np.array(indices).reshape(tuple(leading)).tolist()
            at = re.sub(r"-1(, -1){3,}", lambda run: f"*[-1] * {run[0].count('-1')}", str(at))
            filler = f", {number(rest.pop())}" if rest and rest != {0.0} else ""
            return f"{pick.__name__}({expression}, {at}{filler}){back}"
    return ""


def _bits(x: torch.Tensor) -> bytes:
    return np.asarray(x.double()).tobytes()
