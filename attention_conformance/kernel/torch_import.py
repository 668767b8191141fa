"""Import torch for the modules that call kernels, or raise one sentence: only the extra ``kernels`` needs it."""

from __future__ import annotations

from reference_attention.errors import InvalidInput

try:
    import torch as torch
except ModuleNotFoundError as _error:
    if _error.name != "torch":
        raise
    raise InvalidInput(
        "attention kernels compute on torch tensors, and torch is not installed;"
        ' pip install "max-margin-theorems[kernels]".'
    ) from None
