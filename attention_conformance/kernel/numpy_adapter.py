"""A NumPy function as a kernel on torch tensors, without a backward pass, so that no gradients are checked."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from attention_conformance.kernel.torch_import import torch


def on_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of torch tensors that calls ``function`` on NumPy arrays in the tensors' own memory.

    The returned function has the parameters of ``function``, by which its interface is recognised. Tensors of bfloat16,
    which NumPy does not have, raise TypeError.
    """

    @functools.wraps(function)
    def wrapper(*tensors: Any, **options: Any) -> Any:
        results = function(*map(_array, tensors), **{name: _array(value) for name, value in options.items()})
        return tuple(map(_tensor, results)) if isinstance(results, tuple | list) else _tensor(results)

    return wrapper


def _array(x: object) -> Any:
    return x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else x


def _tensor(x: object) -> Any:
    return torch.tensor(x) if isinstance(x, np.ndarray | np.generic) else x
