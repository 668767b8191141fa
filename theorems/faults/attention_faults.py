"""Faults in the softmax: wrong logits, wrong normalisation and low precision."""

from __future__ import annotations

import math
from functools import partial

from array_api_compat import array_namespace

from reference_attention.loss import Array
from theorems.faults.fault import Faults, Kind
from theorems.faults.softmax import Normalised, as_it_is, on_keys, shifted, softmax_of, with_sink

BFLOAT16 = 2.0**-8
"""Unit roundoff of bfloat16, which has eight significant bits."""


FAULTS = Faults(Kind.SOFTMAX)


@FAULTS.wrap(
    "temperature",
    "softmax((1 + ε) K p): the temperature is wrong",
    "lemma-3",
    on_keys,
    size=1e-2,
)
def _colder(keys: Array, size: float) -> Array:
    return (1 + size) * keys


@FAULTS.wrap("negated-logits", "softmax(−K p): the sign of the logits is wrong", "lemma-3", on_keys)
def _negate(keys: Array, size: float) -> Array:
    return -keys


@FAULTS.wrap("scaled-by-root-d", "logits are divided by √d, the default of many kernels", "lemma-3", on_keys)
def _over_root_d(keys: Array, size: float) -> Array:
    return keys / math.sqrt(keys.shape[-1])


@FAULTS.wrap("masked-token", "the last token has the key of the token before it", "lemma-3", on_keys)
def _mask_last_key(keys: Array, size: float) -> Array:
    xp = array_namespace(keys)
    return xp.concat([keys[..., :-1, :], keys[..., -2:-1, :]], axis=-2)


@FAULTS.wrap(
    "epsilon-in-denominator",
    "e^l / (Σ e^l + ε), computed after the largest logit is subtracted",
    "lemma-3",
    with_sink,
    size=1e-6,
)
def _epsilon(logits: Array, size: float) -> Array:
    """Return max l + log ε, ε = ``size``: as the logit of a further token of score 0, it adds ε e^{max l} to Σ e^l."""
    xp = array_namespace(logits)
    return xp.max(logits, axis=-1, keepdims=True) + math.log(size)


@FAULTS.wrap(
    "no-maximum-subtracted",
    "e^l / Σ e^l without subtracting the largest logit: overflows at logits of 710",
    "lemma-3",
    Normalised,
)
def _without_maximum(logits: Array, size: float) -> Array:
    xp = array_namespace(logits)
    raw = xp.exp(logits)
    return raw / xp.sum(raw, axis=-1, keepdims=True)


@FAULTS.wrap("clipped-logits", "logits are clipped to [−1/ε, 1/ε]", "lemma-3", shifted, size=0.2)
def _clipping_change(logits: Array, size: float) -> Array:
    xp = array_namespace(logits)
    return xp.clip(logits, min=-1 / size, max=1 / size) - logits


@FAULTS.wrap(
    "logits-of-few-bits",
    "logits are rounded to eight significant bits, as in bfloat16",
    "lemma-3",
    shifted,
    size=BFLOAT16,
)
def _rounding_change(logits: Array, size: float) -> Array:
    """Return by how much the logits change when rounded to ⌊log2(1/size)⌋ significant bits, ties to even."""
    xp = array_namespace(logits)
    large = xp.abs(logits)
    normal = large > 1e-300
    exponent = xp.floor(xp.log2(xp.where(normal, large, xp.ones_like(large)))) + 1
    quantum = xp.exp2(exponent) * 2.0 ** -math.floor(math.log2(1 / size))
    return xp.where(normal, xp.round(logits / quantum) * quantum - logits, xp.zeros_like(logits))


def _sigmoids_back(logits: Array, weights: Array, scores: Array, size: float) -> Array:
    xp = array_namespace(logits)
    small = xp.exp(-xp.abs(logits))
    complement = xp.where(logits > 0, small, xp.ones_like(small)) / (1 + small)
    return complement * weights * (scores - xp.sum(weights * scores, axis=-1, keepdims=True))


@FAULTS.wrap(
    "sigmoid-normalised",
    "σ(l_t) / Σ σ(l_u), the normalised sigmoids, in place of the softmax",
    "lemma-3",
    partial(Normalised, pulled_back=_sigmoids_back),
)
def _sigmoids(logits: Array, size: float) -> Array:
    """Return the normalised sigmoids σ(l_t)/Σ σ(l_u) of the logits l, computed as the softmax of log σ(l)."""
    xp = array_namespace(logits)
    return softmax_of(xp.clip(logits, max=0.0) - xp.log1p(xp.exp(-xp.abs(logits))))


def _sparsemax_back(logits: Array, weights: Array, scores: Array, size: float) -> Array:
    xp = array_namespace(logits)
    inside = xp.astype(weights > 0, xp.float64)
    mean = xp.sum(inside * scores, axis=-1, keepdims=True) / xp.sum(inside, axis=-1, keepdims=True)
    return inside * (scores - mean)


@FAULTS.wrap(
    "sparsemax",
    "sparsemax, the projection of the logits onto the simplex, in place of the softmax",
    "lemma-3",
    partial(Normalised, pulled_back=_sparsemax_back),
)
def _sparsemax(logits: Array, size: float) -> Array:
    """Return the projection of the logits onto the probability simplex."""
    xp = array_namespace(logits)
    moved = logits - xp.max(logits, axis=-1, keepdims=True)
    ordered = xp.sort(moved, axis=-1, descending=True)
    sums = xp.cumulative_sum(ordered, axis=-1)
    places = xp.cumulative_sum(xp.ones_like(ordered), axis=-1)
    inside = 1 + places * ordered > sums
    count = xp.sum(xp.astype(inside, xp.float64), axis=-1, keepdims=True)
    threshold = (xp.sum(xp.where(inside, ordered, xp.zeros_like(ordered)), axis=-1, keepdims=True) - 1) / count
    return xp.clip(moved - threshold, min=0.0)


@FAULTS.wrap("top-2", "the softmax over the two largest logits only", "lemma-3", Normalised)
def _top_two(logits: Array, size: float) -> Array:
    xp = array_namespace(logits)
    second = xp.sort(logits, axis=-1, descending=True)[..., 1:2]
    return softmax_of(xp.where(logits >= second, logits, -math.inf * xp.ones_like(logits)))


FAULTS.wrap(
    "float32-softmax", "logits and exponentials are computed in float32", "lemma-3", partial(Normalised, single=True)
)(as_it_is)
