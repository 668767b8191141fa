"""The construction of an answer in the kernel's process: fields of JSON, and pieces of raw bytes for tensors."""

from __future__ import annotations

import sys
from typing import Any

from attention_conformance.interfaces.interface import Mark
from attention_conformance.kernel.torch_import import torch
from attention_conformance.kernel_process.messages import NAMES


class Reply:
    """An answer under construction, with fields of JSON by name, and pieces of raw bytes."""

    def __init__(self) -> None:
        """Create an answer without fields and without raw bytes."""
        self.fields: dict[str, Any] = {}
        self.pieces: list[Any] = []

    def piece(self, raw: torch.Tensor) -> int:
        """Add a piece of raw bytes, and return its index."""
        self.pieces.append(raw.numpy())
        return len(self.pieces) - 1

    def tensor(self, x: torch.Tensor) -> tuple[list[Any], torch.Tensor]:
        """Add a tensor; return the list that describes it in the answer, and a copy of its bytes."""
        raw = bytes_of(x)
        return [NAMES[x.dtype], list(x.shape), bool(x.requires_grad), self.piece(raw)], raw


def bytes_of(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of the bytes of a tensor, in the order of its entries."""
    # The copy is contiguous whatever the strides of x are. To copy a lazy tensor is also to evaluate it.
    copy = torch.empty(tuple(x.shape), dtype=x.dtype)
    copy.copy_(x.detach())
    return copy.reshape(-1).view(torch.uint8)


def raised(error: BaseException) -> dict[str, Any]:
    """Return the fields of an answer that describe an exception which the kernel raised."""
    compiler = sys.modules.get("torch._dynamo.exc")
    return {
        "raised": type(error).__name__[:200],
        "text": str(error)[:4000],
        "missing": isinstance(error, NotImplementedError),
        "by_compiler": compiler is not None and isinstance(error, compiler.TorchDynamoException),
    }


def default_of(value: Any) -> list[Any]:
    """Return a description of a parameter's default: its kind and value, or, for most objects, the name of its type."""
    if value is Mark.REQUIRED:
        return ["required"]
    if isinstance(value, torch.dtype) and value in NAMES:
        return ["dtype", NAMES[value]]
    if isinstance(value, tuple | list):
        return ["tuple", [default_of(part) for part in value]]
    if value is None or type(value) in (bool, int, str):
        return ["value", value if not isinstance(value, int | str) or len(str(value)) < 200 else None]
    if isinstance(value, float):
        return ["float", float(value).hex()]
    return ["other", type(value).__name__[:200]]
