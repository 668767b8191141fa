"""Faults in the softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from array_api_compat import array_namespace

from reference_attention.loss import Array
from theorems.core.implementation import Implementation
from theorems.faults.fault import Fault, Kind
from theorems.faults.softmax import Normalised, OtherData, Shifted, as_it_is, softmax_of

BFLOAT16 = 2.0**-8
"""Unit roundoff of bfloat16: eight significant bits."""


@dataclass(frozen=True)
class Softmax:
    """Size → attention with that normaliser."""

    normalised: Normalised

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        made = self.normalised
        return Normalised(made.weights_of, made.pulled_back, size, made.single).implementation


@dataclass(frozen=True)
class OnOtherKeys:
    """Size → the reference attention on changed keys."""

    change: Callable[[Array, float], Array]

    def __call__(self, size: float) -> Implementation:
        """The implementation."""
        return OtherData(keys_to=self.change, size=size).implementation


def _colder(keys: Array, size: float) -> Array:
    return (1 + size) * keys


def _negate(keys: Array, size: float) -> Array:
    return -keys


def _over_root_d(keys: Array, size: float) -> Array:
    return keys / math.sqrt(keys.shape[-1])


def _mask_last_key(keys: Array, size: float) -> Array:
    xp = array_namespace(keys)
    return xp.concat([keys[..., :-1, :], keys[..., -2:-1, :]], axis=-2)


def _epsilon(logits: Array, size: float) -> Array:
    """e^l / (Σ e^l + ε e^{max}): ε is a token of logit max l + log ε and score 0."""
    xp = array_namespace(logits)
    return xp.max(logits, axis=-1, keepdims=True) + math.log(size)


def _without_maximum(logits: Array, size: float) -> Array:
    xp = array_namespace(logits)
    raw = xp.exp(logits)
    return raw / xp.sum(raw, axis=-1, keepdims=True)


def _clipping_change(logits: Array, size: float) -> Array:
    xp = array_namespace(logits)
    return xp.clip(logits, min=-1 / size, max=1 / size) - logits


def _rounding_change(logits: Array, size: float) -> Array:
    """To the numbers with ⌊log2(1/size)⌋ significant bits, ties to even."""
    xp = array_namespace(logits)
    large = xp.abs(logits)
    normal = large > 1e-300
    exponent = xp.floor(xp.log2(xp.where(normal, large, xp.ones_like(large)))) + 1
    quantum = xp.exp2(exponent) * 2.0 ** -math.floor(math.log2(1 / size))
    return xp.where(normal, xp.round(logits / quantum) * quantum - logits, xp.zeros_like(logits))


def _sigmoids(logits: Array, size: float) -> Array:
    """σ(l_t)/Σ σ(l_u), by the softmax of log σ."""
    xp = array_namespace(logits)
    return softmax_of(xp.clip(logits, max=0.0) - xp.log1p(xp.exp(-xp.abs(logits))))


def _sigmoids_back(logits: Array, weights: Array, scores: Array, size: float) -> Array:
    xp = array_namespace(logits)
    small = xp.exp(-xp.abs(logits))
    complement = xp.where(logits > 0, small, xp.ones_like(small)) / (1 + small)
    return complement * weights * (scores - xp.sum(weights * scores, axis=-1, keepdims=True))


def _sparsemax(logits: Array, size: float) -> Array:
    """The projection of the logits on the simplex."""
    xp = array_namespace(logits)
    moved = logits - xp.max(logits, axis=-1, keepdims=True)
    ordered = xp.sort(moved, axis=-1, descending=True)
    sums = xp.cumulative_sum(ordered, axis=-1)
    places = xp.cumulative_sum(xp.ones_like(ordered), axis=-1)
    inside = 1 + places * ordered > sums
    count = xp.sum(xp.astype(inside, xp.float64), axis=-1, keepdims=True)
    threshold = (xp.sum(xp.where(inside, ordered, xp.zeros_like(ordered)), axis=-1, keepdims=True) - 1) / count
    return xp.clip(moved - threshold, min=0.0)


def _sparsemax_back(logits: Array, weights: Array, scores: Array, size: float) -> Array:
    xp = array_namespace(logits)
    inside = xp.astype(weights > 0, xp.float64)
    mean = xp.sum(inside * scores, axis=-1, keepdims=True) / xp.sum(inside, axis=-1, keepdims=True)
    return inside * (scores - mean)


def _top_two(logits: Array, size: float) -> Array:
    xp = array_namespace(logits)
    second = xp.sort(logits, axis=-1, descending=True)[..., 1:2]
    return softmax_of(xp.where(logits >= second, logits, -math.inf * xp.ones_like(logits)))


def _softmax(weights_of: Callable[[Array, float], Array]) -> Softmax:
    return Softmax(Normalised(weights_of))


ATTENTION_FAULTS = (
    Fault(
        "temperature",
        Kind.SOFTMAX,
        "softmax((1 + ε) K p): a wrong temperature",
        "lemma-3",
        OnOtherKeys(_colder),
        1e-2,
        "relative error of the temperature",
    ),
    Fault(
        "scaled-by-root-d",
        Kind.SOFTMAX,
        "logits divided by √d, the default of many kernels",
        "lemma-3",
        OnOtherKeys(_over_root_d),
    ),
    Fault("negated-logits", Kind.SOFTMAX, "softmax(−K p): the wrong sign", "lemma-3", OnOtherKeys(_negate)),
    Fault(
        "masked-token",
        Kind.SOFTMAX,
        "the last token attends to the one before it: its own key is lost",
        "lemma-3",
        OnOtherKeys(_mask_last_key),
    ),
    Fault(
        "epsilon-in-denominator",
        Kind.SOFTMAX,
        "e^l / (Σ e^l + ε), the largest logit subtracted and detached",
        "lemma-3",
        Shifted(sink=_epsilon),
        1e-6,
        "ε",
        1e-300,
    ),
    Fault(
        "no-maximum-subtracted",
        Kind.SOFTMAX,
        "e^l / Σ e^l: overflows at logits of 710",
        "lemma-3",
        _softmax(_without_maximum),
    ),
    Fault(
        "clipped-logits",
        Kind.SOFTMAX,
        "logits clipped to [−1/ε, 1/ε]",
        "lemma-3",
        Shifted(_clipping_change),
        0.2,
        "1 / the largest logit",
    ),
    Fault(
        "float32-softmax",
        Kind.SOFTMAX,
        "logits and exponentials in float32",
        "lemma-3",
        Softmax(Normalised(as_it_is, single=True)),
    ),
    Fault(
        "logits-of-few-bits",
        Kind.SOFTMAX,
        "logits rounded to eight significant bits, as in bfloat16",
        "lemma-3",
        Shifted(_rounding_change),
        BFLOAT16,
        "unit roundoff of the logits",
    ),
    Fault(
        "sigmoid-normalised",
        Kind.SOFTMAX,
        "σ(l_t) / Σ σ(l_u)",
        "lemma-3",
        Softmax(Normalised(_sigmoids, _sigmoids_back)),
    ),
    Fault(
        "sparsemax",
        Kind.SOFTMAX,
        "the projection of the logits on the simplex",
        "lemma-3",
        Softmax(Normalised(_sparsemax, _sparsemax_back)),
    ),
    Fault("top-2", Kind.SOFTMAX, "softmax over the two largest logits", "lemma-3", _softmax(_top_two)),
)
"""Faults in the softmax: weights, risk and gradient agree with each other and are all wrong."""
