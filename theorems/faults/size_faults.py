"""Faults in the softmax that show at sizes only: kernels work block by block, and their tests are small."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from reference_attention.loss import Array
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults.attention_faults import OnOtherKeys
from theorems.faults.fault import Fault, Kind
from theorems.faults.softmax import Shifted

FORGOTTEN = -1e100
"""Added to a logit, it leaves no weight; its square is a float."""
LANES = 8
"""Tokens that are taken at once; up to so many are taken one by one."""
BLOCK = 16
"""Tokens between two looks at the maximum."""
DIMENSIONS = 64
"""Coordinates that fit."""


@dataclass(frozen=True)
class AtSizes:
    """The reference itself, to the last digit, but where the number of tokens is of a kind."""

    wrong: Shifted
    shows: Callable[[int], bool]

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        made = self.wrong(size)
        names = ("weights", "risk", "scaled_gradient", "log_excess_risk")
        both = {name: (getattr(made, name), getattr(REFERENCE, name)) for name in names}
        return REFERENCE.replace("", **{name: _Either(self.shows, *pair) for name, pair in both.items()})


@dataclass(frozen=True)
class _Either:
    shows: Callable[[int], bool]
    wrong: Callable[..., Any]
    right: Callable[..., Any]

    def __call__(self, keys: Array, *further: Any) -> Any:
        return (self.wrong if self.shows(keys.shape[-2]) else self.right)(keys, *further)


def _many(tokens: int) -> bool:
    return tokens > LANES


def _is_ragged(tokens: int) -> bool:
    return tokens > LANES and tokens % LANES != 0


def _blocks(tokens: int) -> bool:
    return tokens > BLOCK


def _positions(logits: Array) -> Array:
    xp = array_namespace(logits)
    return xp.cumulative_sum(xp.ones_like(logits), axis=-1) - 1


def _from(logits: Array, first: int) -> Array:
    """Takes the weight of all tokens from that one on."""
    xp = array_namespace(logits)
    return xp.where(_positions(logits) >= first, FORGOTTEN * xp.ones_like(logits), xp.zeros_like(logits))


def _after_the_eighth(logits: Array, size: float) -> Array:
    return _from(logits, LANES)


def _tail(logits: Array, size: float) -> Array:
    """Tokens after the last full group."""
    tokens = logits.shape[-1]
    return _from(logits, tokens - tokens % LANES)


def _padding(logits: Array, size: float) -> Array:
    """The last group is filled up with tokens of logit 0 and score 0: one of logit log of their number."""
    xp = array_namespace(logits)
    return xp.zeros_like(logits[..., :1]) + math.log(LANES - logits.shape[-1] % LANES)


def _never_rescaled(logits: Array, size: float) -> Array:
    """e^{l − m}, m the largest logit up to the block: what was added up before a larger one came stays as it was."""
    xp = array_namespace(logits)
    parts, largest = [], None
    for first in range(0, logits.shape[-1], BLOCK):
        block = logits[..., first : first + BLOCK]
        here = xp.max(block, axis=-1, keepdims=True)
        largest = here if largest is None else xp.where(here > largest, here, largest)
        parts.append(largest + xp.zeros_like(block))
    return largest - xp.concat(parts, axis=-1)


def _first_dimensions(keys: Array, size: float) -> Array:
    xp = array_namespace(keys)
    if keys.shape[-1] <= DIMENSIONS:
        return keys
    return xp.concat([keys[..., :DIMENSIONS], xp.zeros_like(keys[..., DIMENSIONS:])], axis=-1)


SIZE_FAULTS = (
    Fault(
        "tokens-after-the-eighth-forgotten",
        Kind.SOFTMAX,
        "no weight for the ninth token and those after it",
        "lemma-3",
        AtSizes(Shifted(_after_the_eighth), _many),
    ),
    Fault(
        "ragged-tail-forgotten",
        Kind.SOFTMAX,
        "T > 8: the tokens after the last full eight have no weight",
        "lemma-3",
        AtSizes(Shifted(_tail), _is_ragged),
    ),
    Fault(
        "ragged-tail-padded",
        Kind.SOFTMAX,
        "T > 8: the last eight is filled up with logits 0 that are not masked",
        "lemma-3",
        AtSizes(Shifted(sink=_padding), _is_ragged),
    ),
    Fault(
        "running-maximum-never-rescaled",
        Kind.SOFTMAX,
        "blocks of 16 are added up without a factor when a larger logit comes",
        "lemma-3",
        AtSizes(Shifted(_never_rescaled), _blocks),
    ),
    Fault(
        "dimensions-beyond-64-dropped",
        Kind.SOFTMAX,
        "K p of the first 64 coordinates",
        "lemma-3",
        OnOtherKeys(_first_dimensions),
    ),
)
"""Faults that no case with T ≤ 8 and d ≤ 64 shows."""
