"""Tensors of further options: tensors of 8 bits, and masks that have more columns than there are keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall, Memory

FACTORS = (0.5, 2.0, 0.25, 0.3, 1.7)
"""Factors that multiply queries, keys and values of 8 bits; those that are not powers of two are rounded to float32."""


def with_descales(call: AttentionCall, rng: np.random.Generator) -> AttentionCall:
    """Draw query, key and value as numbers of few bits, and their factors for each group of heads of a batch entry.

    The call requests no gradient, and numbers in hidden keys are not replaced, since 8 bits offer no suitable number.
    """
    tensors = {name: rng.integers(-8, 9, getattr(call, name).shape) / 4 for name in ("query", "key", "value")}
    if call.memory is Memory.BROADCAST:
        tensors = {name: np.repeat(x[:1], len(x), axis=0) for name, x in tensors.items()}
    if call.memory is Memory.HEADS:
        tensors = {name: np.repeat(x[:, :1], x.shape[1], axis=1) for name, x in tensors.items()}
    factors = rng.choice(FACTORS, (3, call.sizes["B"], call.sizes["G"])).astype(np.float32)
    return call.replace(**tensors, descales=factors.astype(np.float64), wants="", poison=False, exact=False)


BEYOND = (0.0, 16.0, 1024.0)
"""Biases in a mask's columns after the keys; if a kernel used these columns, they would get noticeable weight."""


def with_columns_beyond(call: AttentionCall, mask: Any) -> Any:
    """Extend the mask of a call from (…, T) to (…, T + call.beyond); most of the added Boolean entries are True."""
    if not call.beyond:
        return mask
    rng = np.random.default_rng((call.seed, call.beyond))
    shape = (*mask.shape[:-1], call.beyond)
    further_columns = rng.random(shape) < 0.7 if mask.dtype == bool else rng.choice(BEYOND, shape)
    return np.concatenate([mask, further_columns], axis=-1)
