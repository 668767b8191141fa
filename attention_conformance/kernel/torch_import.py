"""Import torch for the modules that call kernels; if it is missing, say how to install it.

torch belongs to the extra ``kernels`` of this package, so it may be missing.
"""

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
