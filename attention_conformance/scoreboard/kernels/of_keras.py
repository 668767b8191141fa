"""The function keras.ops.dot_product_attention with the backend torch, which Keras chooses when it is imported."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "torch"

from typing import Any

from torch import Tensor


def on_torch(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    scale: float | None = None,
    is_causal: bool = False,
) -> Any:
    """Call keras.ops.dot_product_attention with the backend torch."""
    import keras

    keras.config.set_floatx("float64" if query.dtype.itemsize == 8 else "float32")
    return keras.ops.dot_product_attention(query, key, value, bias, mask, scale, is_causal)
