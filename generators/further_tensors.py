"""Affine functions of scores and places, as flex attention takes them; tensors of 8 bits; values that are keys;
masks that are longer than the keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from generators.attention_call import AttentionCall, Memory

FACTORS = (0.5, 2.0, 0.25, 0.3, 1.7)
"""Of queries, keys and values of 8 bits, powers of two among them; rounded to float32."""


def with_score_mod(call: AttentionCall, rng: np.random.Generator) -> AttentionCall:
    """A factor, a slope and a shift of each head; a score that does not matter has no gradient."""
    H = call.sizes["H"]
    drawn = (rng.choice(kinds, H) for kinds in ((0.5, 2.0, -1.0, 0.0), (0.0, 0.25, -0.125), (0.0, 1.5, -3.0)))
    return call.replace(score_mod=np.stack(list(drawn), axis=-1), exact=False)


def with_mask_mod(call: AttentionCall, rng: np.random.Generator) -> AttentionCall:
    """A half-plane of each head and entry, whose edge goes through one of the pairs of a query and a key."""
    B, H, L, T = (call.sizes[axis] for axis in "BHLT")
    slopes = rng.integers(-2, 3, (B, H, 2))
    slopes[..., 0] += slopes[..., 0] == 0  # else rows see all keys or none
    places = np.stack([rng.integers(0, T, (B, H)), rng.integers(0, L, (B, H))], axis=-1)
    edge = np.sum(slopes * places, axis=-1, keepdims=True)
    return call.replace(mask_mod=np.concatenate([slopes, edge], axis=-1))


def with_descales(call: AttentionCall, rng: np.random.Generator) -> AttentionCall:
    """Query, key and value are numbers of four bits, a factor for each group of heads of an entry; nothing has a
    gradient, and no other number is there to be exchanged for a hidden one.
    """
    held = {name: rng.integers(-8, 9, getattr(call, name).shape) / 4 for name in ("query", "key", "value")}
    if call.memory is Memory.BROADCAST:
        held = {name: np.repeat(x[:1], len(x), axis=0) for name, x in held.items()}
    if call.memory is Memory.HEADS:
        held = {name: np.repeat(x[:, :1], x.shape[1], axis=1) for name, x in held.items()}
    drawn = rng.choice(FACTORS, (3, call.sizes["B"], call.sizes["G"])).astype(np.float32)
    return call.replace(**held, descales=drawn.astype(np.float64), wants="", poison=False, exact=False)


def with_values_in_keys(call: AttentionCall) -> AttentionCall:
    """Values are the first columns of the keys, no wider than those, and have no gradient but theirs."""
    width = min(call.sizes["E"], call.sizes["M"])
    wants = "".join(one for one in "qk" if one in call.wants or (one == "k" and "v" in call.wants))
    held = {"value": call.key[..., :width], "upstream": call.upstream[..., :width]}
    return call.replace(**held, wants=wants, shared=True, exact=False)


BEYOND = (0.0, 16.0, 1024.0)
"""What is added behind the keys: it would show them, or take all the weight."""


def with_columns_beyond(call: AttentionCall, mask: Any) -> Any:
    """The mask of a call, (…, T), with columns behind those of the keys: (…, T + beyond). Most of them show a key."""
    if not call.beyond:
        return mask
    rng = np.random.default_rng((call.seed, call.beyond))
    shape = (*mask.shape[:-1], call.beyond)
    drawn = rng.random(shape) < 0.7 if mask.dtype == bool else rng.choice(BEYOND, shape)
    return np.concatenate([mask, drawn], axis=-1)
