"""The results of attention for many queries, and their gradients, with bounds of rounding errors.

A row of causal, masked or windowed attention is softmax attention on the keys that the row's query q sees. With logits
z_t = cap(scale · q·k_t) + b_t (cap is the soft cap, b the bias), weights s = softmax(z), output o = Σ_t s_t v_t, the
upstream gradient u of o, and

    dz_t = s_t (u·v_t − u·o),

(the covariance, under s, of the indicator of key t and the scores u·v, as in Lemma 3), the chain rule gives

    dV_t = Σ s_t u,   dQ = scale Σ_t dz_t cap'(z_t) k_t,   dK_t = scale Σ dz_t cap'(z_t) q,

where the sums without an index are over the rows (of all heads of a group) that see key t. Under dropout, a factor m_t
(0 for a dropped weight) multiplies each weight: o = Σ m_t s_t v_t and dz_t = s_t (m_t u·v_t − u·o).

References: *Max-Margin Token Selection in Attention Mechanism*, Lemma 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from attention_conformance.calls.attention_call import Alignment, AttentionCall
from theorems.bounded import Bounded, exact, spacing, with_rounding
from theorems.bounded.arithmetic import current
from theorems.bounded.formats import HALF, Format
from theorems.rounding.attention_at import BLOCK, EXPONENTIAL
from theorems.rounding.softmax import recompute_weights, softmax

EXPONENTIAL_IN_HALF = 2.0
"""The error of an exponential in half precision, in units in the last place.

Kernels that compute the exponential in float32 and round it err by half a unit; the GPU instruction that computes two
exponentials at a time errs by one unit.
"""
HIDING = -1e30
"""Bias at or below which a key counts as hidden: beside any other key of a call its weight is zero in every format."""


@dataclass(frozen=True, eq=False)
class AttentionRows:
    """The correct results of a call, each with a bound on the rounding error of the textbook formula in floating point.

    Attributes:
        call: the call, whose tensors are taken as exact (sizes B, H, …: see :class:`AttentionCall`).
        numbers: the format that the kernel computes in.
        alignment: the position of the diagonal of causal masks and windows.
        stored: the format of the kernel's results, if it is coarser than the format in which the kernel computes.
        uniform: whether rows that see no key give each key the same weight; otherwise all their weights are zero.
        through: whether rows that see no key pass a gradient through their weights to the logits.
        skips: a kernel may leave out weights smaller than this share of the largest weight in their row.
        factor: under dropout, the factor m of each weight, (B, H, L, T), applied after the softmax; otherwise None.
    """

    call: AttentionCall
    numbers: Format
    alignment: Alignment = Alignment.TOP_LEFT
    stored: Format | None = None
    uniform: bool = False
    through: bool = False
    skips: float = 0.0
    factor: Float64[np.ndarray, "B H L T"] | None = None

    @contextmanager
    def _as_the_kernel(self) -> Iterator[None]:
        # A kernel's sums have the range of float32 even if tensors are float16, whose numbers are below float16's
        # largest.
        units = EXPONENTIAL_IN_HALF if self.numbers.name in HALF else EXPONENTIAL
        with spacing(self.numbers.eps, units, lost=self.numbers.lost):
            yield

    @cached_property
    def visibility(self) -> Bool[np.ndarray, "B H L T"]:
        """A mask of the keys that each query sees; a bias that is a format's most negative number hides a key, too.

        If a row sees another key, a key with such a bias has a weight below e^(−10^29), which is zero in every format.
        """
        visible = self.call.visibility(self.alignment)
        if self.call.bias is None or self.call.bias.min(initial=0.0, where=~np.isneginf(self.call.bias)) > HIDING:
            return visible
        near = visible & (self.call.bias > HIDING)
        return np.asarray(np.where(near.any(axis=-1, keepdims=True), near, visible))

    @cached_property
    def empty(self) -> Bool[np.ndarray, "B H L"]:
        """A mask of the rows that see no key: they have no softmax, and add nothing to the gradients computed here."""
        return np.asarray(~self.visibility.any(axis=-1))

    def _round_to_output(self, x: Any) -> Any:
        """Add the error of rounding to the format of the kernel's results to the bound of ``x``."""
        if self.stored is None:
            return x
        return x.widen(self.stored.eps / 2 * (np.abs(x.value) + x.error) + self.stored.lost)

    def _by_head(self, x: Float64[np.ndarray, "B G T W"]) -> Any:
        """Repeat keys or values, of width W, for each head of their group: (B, G, T, W) to (B, H, T, W)."""
        sizes = self.call.sizes
        return exact(np.repeat(x, sizes["H"] // sizes["G"], axis=1))

    @cached_property
    def scale(self) -> Any:
        """The factor of the products q·k; 1/√E if the call leaves the scale to the kernel."""
        if self.call.scale is None:
            return with_rounding(np.array(1 / math.sqrt(self.call.sizes["E"])))
        return with_rounding(np.array(self.call.scale))

    @cached_property
    def _capped_logits(self) -> tuple[Any, Any]:
        """The logits cap(scale · q·k), (B, H, L, T), and the derivative cap', or None if cap' is 1 everywhere."""
        with self._as_the_kernel():
            raw: Any = np.matmul(exact(self.call.query), np.swapaxes(self._by_head(self.call.key), -1, -2)) * self.scale
            if not self.call.softcap:
                return raw, None
            tanh = np.tanh(raw / self.call.softcap)
            return tanh * self.call.softcap, (1 - tanh) * (1 + tanh)

    @cached_property
    def logits(self) -> Any:
        """The logits z, (B, H, L, T): −∞ for keys that the row does not see, 0 in rows that see no key."""
        with self._as_the_kernel():
            logits = self._capped_logits[0]
            if self.call.bias is not None:
                bias = np.where(np.isneginf(self.call.bias), 0.0, self.call.bias)
                logits = logits + np.broadcast_to(bias, self.visibility.shape)
        return np.where(self.visibility, logits, np.where(self.empty[..., None], 0.0, -np.inf))

    @cached_property
    def weights(self) -> Any:
        """The softmax weights s, (B, H, L, T); zero in rows that see no key, unless ``uniform``."""
        with self._as_the_kernel():
            s: Any = softmax(self.logits, updates=(self.call.sizes["T"] - 1) // BLOCK)
        s = np.where(self._has_weight, s, 0.0)
        return s.widen(self._error_of_skipping(s)) if self.skips else s

    @property
    def _has_weight(self) -> Bool[np.ndarray, "B H L T"]:
        return self.visibility | self.empty[..., None] if self.uniform else self.visibility

    def _error_of_skipping(self, s: Any) -> Float64[np.ndarray, "B H L T"]:
        """Bound the error of weights s if the kernel may leave out weights below a share of the row's largest weight.

        If δ is the sum of the weights that may be left out, each such weight becomes a number between 0 and s/(1 − δ),
        and every other weight a number between s and s/(1 − δ).
        """
        largest = np.max(s.value - s.error, axis=-1, keepdims=True)
        may = s.value - s.error < self.skips * (largest + 2 * np.max(s.error, axis=-1, keepdims=True))
        delta = np.minimum(np.sum(np.where(may, s.value + s.error, 0.0), axis=-1, keepdims=True), 0.5)
        return np.asarray(np.where(may, s.value, s.value * delta) / (1 - delta))

    @cached_property
    def returned_weights(self) -> Any:
        """The weights s as a kernel returns them, rounded to the format of the results."""
        return self._round_to_output(self.weights)

    @cached_property
    def returned_weights_after_dropout(self) -> Any:
        """The weights m_t s_t after dropout as a kernel returns them, rounded to the format of the results."""
        with self._as_the_kernel():
            return self._round_to_output(self._after_dropout(self.returned_weights))

    def _after_dropout(self, s: Any) -> Any:
        """Multiply weights s_t, or scores u·v_t, by the dropout factors m_t."""
        return s if self.factor is None else s * self.factor

    @cached_property
    def _weights_again(self) -> Any:
        """The weights s as a kernel's backward pass recomputes them from the logits, with bounds of the error."""
        with self._as_the_kernel():
            return np.where(self._has_weight, recompute_weights(self.weights, self.logits), 0.0)

    @cached_property
    def log_sum_exp(self) -> Any:
        """The log-sum-exp log Σ_t e^{z_t} of the logits z, (B, H, L), without meaning in rows that see no key."""
        with self._as_the_kernel():
            lse: Any = np.logaddexp.reduce(self.logits, axis=-1)
            return self._round_to_output(np.where(np.isfinite(lse.error), lse, self._coarse_log_sum_exp()))

    def _coarse_log_sum_exp(self) -> Any:
        """Return the log-sum-exp with a coarser bound, for sums of so many terms that the usual bound is infinite.

        An error of the logits z changes the log-sum-exp by no more than that error. For given logits, the log-sum-exp
        is max z + log Σ e^{z − max z}. The sum of positive terms, added in any order, is at least 1, its largest term,
        and at most T, apart from additions and exponentials that are rounded up; so the logarithm is off by at most log
        T plus the roundings.
        """
        z: Any = self.logits
        value = np.logaddexp.reduce(z.value, axis=-1)
        T, now = self.call.sizes["T"], current()
        moved = np.max(np.where(np.isfinite(z.value), z.error, 0.0), axis=-1)
        rounding = math.log(T) + (T + 2) * now.rounding + 2 * now.function
        return exact(value).widen(moved + rounding + 2 * now.rounding * (np.abs(value) + math.log(T)))

    @cached_property
    def output(self) -> Any:
        """The output o = Σ_t s_t v_t, (B, H, L, M)."""
        with self._as_the_kernel():
            return self._round_to_output(np.matmul(self._after_dropout(self.weights), self._by_head(self.call.value)))

    @cached_property
    def value_gradient(self) -> Any:
        """The gradient dV of the values, (B, G, T, M)."""
        with self._as_the_kernel():
            s = self._after_dropout(self._weights_again)
            return self._over_group(np.matmul(np.swapaxes(s, -1, -2), exact(self.call.upstream)))

    @cached_property
    def _masked_logit_gradient(self) -> Any:
        """The gradient dz, (B, H, L, T); the error bound covers kernels that use u·o, and those that use Σ s (u·v)."""
        with self._as_the_kernel():
            upstream: Any = exact(self.call.upstream)
            scores: Any = np.matmul(upstream, np.swapaxes(self._by_head(self.call.value), -1, -2))
            scores = self._after_dropout(scores)
            s: Any = self._weights_again
            mean: Any = np.sum(s * scores, axis=-1, keepdims=True)
            flash: Any = np.sum(upstream * self.output, axis=-1, keepdims=True)
            apart = np.abs(mean.value - flash.value) + flash.error - mean.error
            dz: Any = s * (scores - self._after_lse(mean.widen(np.maximum(apart, 0.0))))
            dz = dz if self.through else np.where(self.empty[..., None], 0.0, dz)
            return dz.widen(self._stray(dz))

    def _after_lse(self, mean: Any) -> Any:
        """Return the number that the formula of dz subtracts from the scores u·v_t: in this class ``mean``, or u·o."""
        return mean

    @property
    def _logit_gradient(self) -> Any:
        """The gradient dz cap' of the logits before the soft cap, (B, H, L, T)."""
        with self._as_the_kernel():
            dz = self._masked_logit_gradient
            return dz if self._capped_logits[1] is None else dz * self._capped_logits[1]

    def _stray(self, dz: Bounded) -> Float64[np.ndarray, "B H L T"]:
        """Bound the rounding error −Σ dz that a kernel may add to the gradient of a row's largest logit.

        A kernel that subtracts the row's maximum within the differentiated graph adds the maximum's gradient to the
        largest logit. The maximum's gradient is −Σ dz, minus the sum of the gradients of the row's logits, which is
        zero without rounding.
        """
        z = self.logits
        reach = np.where(self._has_weight, z.value + z.error, -np.inf)
        least = np.max(np.where(self._has_weight, z.value - z.error, -np.inf), axis=-1, keepdims=True)
        total: Any = np.sum(dz, axis=-1, keepdims=True)
        return np.where((reach >= least) & self._has_weight, np.abs(total.value) + total.error, 0.0)

    @cached_property
    def query_gradient(self) -> Any:
        """The gradient dQ of the queries, (B, H, L, E)."""
        with self._as_the_kernel():
            gradient: Any = np.matmul(self._logit_gradient, self._by_head(self.call.key))
            return self._round_to_output(gradient * self.scale)

    @cached_property
    def key_gradient(self) -> Any:
        """The gradient dK of the keys, (B, G, T, E)."""
        with self._as_the_kernel():
            each: Any = np.matmul(np.swapaxes(self._logit_gradient, -1, -2), exact(self.call.query))
            return self._over_group(each * self.scale)

    def _over_group(self, x: Any) -> Any:
        """Sum an array of width W over the heads of each group: (B, H, T, W) to (B, G, T, W)."""
        sizes = self.call.sizes
        B, G, T = (sizes[axis] for axis in "BGT")
        return self._round_to_output(np.sum(np.reshape(x, (B, G, sizes["H"] // G, T, x.shape[-1])), axis=2))
