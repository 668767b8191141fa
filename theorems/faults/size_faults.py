"""Faults in the softmax that show only with many tokens or dimensions, as in kernels that work block by block."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from operator import lt
from typing import Any

from array_api_compat import array_namespace

from reference_attention.loss import Array
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.fault import Faults, Function, Kind
from theorems.faults.softmax import Attention, on_keys, shifted, with_sink

FORGOTTEN = -1e100
"""The amount that is added to a logit to remove its token's weight; its square does not overflow."""
LANES = 8
"""Number of tokens that a kernel processes at once as a group; its faults show only with more tokens."""
BLOCK = 16
"""Number of tokens in a block, after which a kernel updates its running maximum."""
DIMENSIONS = 64
"""Number of coordinates of keys and prompt that the faulty kernel uses."""
FAULTS = Faults(Kind.SOFTMAX)


def _at_sizes(made: Attention, shows: Callable[[int], bool], size: float) -> Implementation:
    """Return the implementation that is wrong by ``size`` at some numbers of tokens, and right at all others.

    Args:
        made: the function size → implementation that is wrong at every number of tokens.
        shows: the function that returns, for a number of tokens, whether the fault shows.
        size: size of the fault.
    """
    return REFERENCE.replace(
        "", {right: partial(_choose, shows, wrong, right) for right, wrong in made(size).replaced.items()}
    )


def _choose(shows: Callable[[int], bool], wrong: Any, right: Any, keys: Array, *further: Any) -> Any:
    return (wrong if shows(keys.shape[-2]) else right)(keys, *further)


def _at(
    name: str, says: str, shows: Callable[[int], bool], made: Callable[[Any], Attention] = shifted
) -> Callable[[Function], Function]:
    """Return a decorator that plants ``made(decorated function)`` where ``shows`` is true of the number of tokens."""
    return FAULTS.wrap(name, says, "lemma-3", lambda wrong: partial(_at_sizes, made(wrong), shows))


def _is_ragged(tokens: int) -> bool:
    return tokens > LANES and tokens % LANES != 0


def _positions(logits: Array) -> Array:
    xp = array_namespace(logits)
    return xp.cumulative_sum(xp.ones_like(logits), axis=-1) - 1


def _from(logits: Array, first: int) -> Array:
    """Return what to add to the logits to remove the weight of all tokens from the index ``first`` on."""
    xp = array_namespace(logits)
    return xp.where(_positions(logits) >= first, FORGOTTEN * xp.ones_like(logits), xp.zeros_like(logits))


@_at("tokens-after-the-eighth-forgotten", "the ninth and later tokens have no weight", partial(lt, LANES))
def _after_the_eighth(logits: Array, size: float) -> Array:
    return _from(logits, LANES)


@_at("ragged-tail-forgotten", "T > 8: the tokens after the last full group of eight have no weight", _is_ragged)
def _tail(logits: Array, size: float) -> Array:
    """Return what to add to the logits to remove the weight of the tokens after the last full group."""
    tokens = logits.shape[-1]
    return _from(logits, tokens - tokens % LANES)


@_at(
    "ragged-tail-padded",
    "T > 8: the last group of eight is padded with logits 0 that are not masked",
    _is_ragged,
    with_sink,
)
def _padding(logits: Array, size: float) -> Array:
    """Return the logarithm of the number of tokens, with logit 0 and score 0, that pad the last group."""
    xp = array_namespace(logits)
    return xp.zeros_like(logits[..., :1]) + math.log(LANES - logits.shape[-1] % LANES)


@_at(
    "running-maximum-never-rescaled",
    "sums of blocks of 16 are not rescaled when a later block has a larger logit",
    partial(lt, BLOCK),
)
def _never_rescaled(logits: Array, size: float) -> Array:
    """Return what to add to logits l so that weights become proportional to e^{l − m}.

    m is the largest logit up to the end of the token's block of :data:`BLOCK` tokens.
    """
    xp = array_namespace(logits)
    parts, largest = [], None
    for first in range(0, logits.shape[-1], BLOCK):
        block = logits[..., first : first + BLOCK]
        block_maximum = xp.max(block, axis=-1, keepdims=True)
        largest = block_maximum if largest is None else xp.where(block_maximum > largest, block_maximum, largest)
        parts.append(largest + xp.zeros_like(block))
    return largest - xp.concat(parts, axis=-1)


@FAULTS.wrap("dimensions-beyond-64-dropped", "K p is computed from the first 64 coordinates only", "lemma-3", on_keys)
def _first_dimensions(keys: Array, size: float) -> Array:
    xp = array_namespace(keys)
    if keys.shape[-1] <= DIMENSIONS:
        return keys
    return xp.concat([keys[..., :DIMENSIONS], xp.zeros_like(keys[..., DIMENSIONS:])], axis=-1)
