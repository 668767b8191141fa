"""Tensors of further options: affine functions of scores and positions, tensors of 8 bits, shared values, longer masks.

The affine functions are those that flex attention takes. Shared values are columns of the keys; longer masks have more
columns than there are keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall, Memory

FACTORS = (0.5, 2.0, 0.25, 0.3, 1.7)
"""Factors that multiply queries, keys and values of 8 bits; those that are not powers of two are rounded to float32."""


def with_score_mod(call: AttentionCall, rng: np.random.Generator) -> AttentionCall:
    """Draw the factor, slope and shift (a, b, c) of ``score_mod`` for each head; if a is 0, q·k has no effect."""
    H = call.sizes["H"]
    coefficients = (rng.choice(kinds, H) for kinds in ((0.5, 2.0, -1.0, 0.0), (0.0, 0.25, -0.125), (0.0, 1.5, -3.0)))
    return call.replace(score_mod=np.stack(list(coefficients), axis=-1), exact=False)


def with_mask_mod(call: AttentionCall, rng: np.random.Generator) -> AttentionCall:
    """Draw a half-plane of visible pairs (query i, key j) for each head and batch entry, with a pair on its edge."""
    B, H, L, T = (call.sizes[axis] for axis in "BHLT")
    slopes = rng.integers(-2, 3, (B, H, 2))
    slopes[..., 0] += slopes[..., 0] == 0  # otherwise rows see all keys or none
    places = np.stack([rng.integers(0, T, (B, H)), rng.integers(0, L, (B, H))], axis=-1)
    edge = np.sum(slopes * places, axis=-1, keepdims=True)
    return call.replace(mask_mod=np.concatenate([slopes, edge], axis=-1))


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


def with_values_in_keys(call: AttentionCall) -> AttentionCall:
    """Return the call with the first columns of the keys as values; the gradient of the keys then includes dV."""
    width = min(call.sizes["E"], call.sizes["M"])
    wants = "".join(letter for letter in "qk" if letter in call.wants or (letter == "k" and "v" in call.wants))
    tensors = {"value": call.key[..., :width], "upstream": call.upstream[..., :width]}
    return call.replace(**tensors, wants=wants, shared=True, exact=False)


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
