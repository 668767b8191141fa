"""Rows of attention with a sink, with linear biases or merged from parts of the keys; gradients of log Σ e^z.

The notation is that of :mod:`.attention_rows`. A sink is one more key of each row, with logit σ and value 0. The
softmax over T + 1 logits gives the sink the weight s_σ = e^σ / (e^σ + Σ e^{z_t}), and the keys the other weights; o =
Σ_t s_t v_t. The sink has the gradient of a key with score 0:

    dσ = −Σ s_σ (u·o) over the rows of a head.

If the loss also depends on the log-sum-exp l = log Σ_t e^{z_t}, with the upstream gradient u_l, then ∂l/∂z_t = s_t
gives

    dz_t = s_t (u·v_t − u·o + u_l).

ALiBi subtracts slope · |j − i| from the logit of key j in row i. A bias b has the gradient db = Σ dz over the axes
along which the bias is broadcast. If the keys are split into parts, and part p has the output o_p and the log-sum-exp
l_p, the output of all keys is Σ_p e^{l_p − l} o_p with l = log Σ_p e^{l_p}, a softmax over the parts, however the keys
are split. A function that merges parts rounds l_p once for each merge, which shifts all logits of a part equally.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64, Int

from attention_conformance.calls.attention_rows import AttentionRows
from theorems.bounded import Bounded, exact, with_rounding
from theorems.bounded.arithmetic import current
from theorems.rounding.attention_at import BLOCK
from theorems.rounding.softmax import softmax


@dataclass(frozen=True, eq=False)
class FurtherRows(AttentionRows):
    """The correct results of a call with sinks, slopes, parts or an upstream gradient of its log-sum-exp, as intervals.

    Attributes:
        parts: the number of parts of the keys whose outputs and log-sum-exps are rounded before merging; 0 if nothing
            is merged.
        places: j − i for each row i and key j, (L, T), if the rows are only some rows of a longer call.
        from_start: j − i, (L, T), counted from the first query and the first key of the longer call, as the score
            modification uses it.
        coarse: whether weights are rounded to 8 bits, e4m3, before they are multiplied with values.
    """

    parts: int = 0
    places: Int[np.ndarray, "L T"] | None = None
    from_start: Int[np.ndarray, "L T"] | None = None
    coarse: bool = False

    def _modify(self, raw: Any) -> tuple[Any, Any]:
        """Return the modified score a · raw + b (j − i) + c of query i and key j, and its derivative a by ``raw``."""
        if self.call.score_mod is None:
            return raw, None
        L, T = self.call.sizes["L"], self.call.sizes["T"]
        ahead = np.arange(T) - np.arange(L)[:, None] if self.from_start is None else self.from_start
        a, b, c = (x[:, None, None] for x in self.call.score_mod.T)
        return raw * a + with_rounding(b * ahead) + exact(c), a

    @cached_property
    def logits(self) -> Any:
        """The logits z of the keys, (B, H, L, T)."""
        logits: Any = super().logits
        with self._as_the_kernel():
            if self.call.slopes is not None:
                logits = np.where(np.isneginf(logits.value), logits, logits - self._linear_bias)
                logits = np.where(self.empty[..., None], 0.0, logits)
            if self.parts:
                logits = logits.widen(np.where(np.isneginf(logits.value), 0.0, self._rounding_of_merges(logits)))
        return logits

    @property
    def _linear_bias(self) -> Any:
        """The subtracted bias slope · |j − i|, (B, H, L, T), with an error bound that covers two formulas of kernels.

        In causal rows, some kernels add slope · j instead of subtracting the bias: all logits of row i are larger by
        slope · i, and are rounded more coarsely.
        """
        assert self.call.slopes is not None
        sizes = self.call.sizes
        places = self.call.ahead(np.arange(sizes["L"]), self.alignment) if self.places is None else self.places
        ahead = np.abs(places)
        slopes: Any = with_rounding(self.call.slopes)[..., None, None]
        bias = slopes * np.broadcast_to(ahead.astype(np.float64), self.visibility.shape)
        reach = np.abs(self.call.slopes)[..., None, None] * (int(ahead.max()) + sizes["T"])
        return bias.widen(np.broadcast_to(2 * current().rounding * reach, self.visibility.shape))

    def _rounding_of_merges(self, logits: Any) -> Float64[np.ndarray, "B H L 1"]:
        """Bound the error of rounding the log-sum-exp l in each of ``parts`` merges, where |l| ≤ max |z| + log T."""
        reach = np.where(self.visibility, np.abs(logits.value) + logits.error, 0.0).max(axis=-1, keepdims=True)
        return np.asarray(self.parts * current().rounding * (reach + np.log(self.call.sizes["T"])))

    @cached_property
    def _weights_and_sink(self) -> Any:
        """The weights s of the T keys and, last, of the sink; a row that sees no key gives the sink weight 1."""
        assert self.call.sinks is not None
        shape = (*self.visibility.shape[:3], 1)
        with self._as_the_kernel():
            sink = exact(np.broadcast_to(self.call.sinks[:, None, None], shape))
            keys = np.where(self.empty[..., None], -np.inf, self.logits)
            blocks = self.call.sizes["T"] // BLOCK
            logits: Any = np.concatenate([keys, sink], axis=-1)
            return softmax(logits, updates=blocks + 1)

    @cached_property
    def weights(self) -> Any:
        """The weights s of the keys, (B, H, L, T)."""
        if self.call.sinks is None:
            return self._round_to_8_bits(super().weights)
        s: Any = np.where(self.visibility, self._weights_and_sink[..., :-1], 0.0)
        return self._round_to_8_bits(s.widen(self._error_of_skipping(s)) if self.skips else s)

    def _round_to_8_bits(self, s: Any) -> Any:
        """Widen the bounds of coarse weights by the rounding of x = e^{z − max z} to 8 bits (e4m3): 2⁻⁴ x + 2⁻¹⁰."""
        if not self.coarse:
            return s
        most = np.max(s.value + s.error, axis=-1, keepdims=True)
        return s.widen(np.where(self.visibility, 2.0**-4 * (s.value + s.error) + 2.0**-10 * most, 0.0))

    @cached_property
    def output(self) -> Any:
        """The output o, (B, H, L, M), with the rounding of the parts' outputs added to the bound."""
        return super().output.widen(self._rounding_of_parts @ self._size_of_values) if self.parts else super().output

    @property
    def _rounding_of_parts(self) -> Float64[np.ndarray, "B H L T"]:
        """The numbers ε s_t; Σ_t ε s_t |v_t| bounds the error of rounding each part's output to precision ε."""
        eps = (self.stored or self.numbers).eps
        return np.asarray(eps * (self.weights.value + self.weights.error))

    @property
    def _size_of_values(self) -> Float64[np.ndarray, "B H T M"]:
        return np.abs(self._by_head(self.call.value).value)

    @cached_property
    def value_gradient(self) -> Any:
        """The gradient dV of the values, (B, G, T, M)."""
        gradient: Any = super().value_gradient
        if not self.parts:
            return gradient
        # The upstream gradient e^{l_p − l} u of each part's output is rounded when it is passed back.
        lost: Any = np.swapaxes(self._rounding_of_parts, -1, -2) @ np.abs(self.call.upstream)
        return gradient.widen(self._over_group(exact(lost)).value)

    @cached_property
    def key_gradient(self) -> Any:
        """The gradient dK, (B, G, T, E); if the keys' first columns are the values, dV is added to these columns."""
        gradient: Any = super().key_gradient
        if not self.call.shared:
            return gradient
        zeros = np.zeros((*gradient.shape[:-1], gradient.shape[-1] - self.call.sizes["M"]))
        with self._as_the_kernel():
            return gradient + np.concatenate([self.value_gradient, exact(zeros)], axis=-1)

    @cached_property
    def _masked_logit_gradient(self) -> Any:
        """The gradient dz of the logits, (B, H, L, T), with an error bound that includes the merging of parts.

        Merging rounds products u·o of the upstream gradient u with outputs o of parts; |u·o| ≤ Σ_m |u_m| max_t |v_tm|.
        """
        gradient: Any = super()._masked_logit_gradient
        if not self.parts:
            return gradient
        reach = np.abs(self.call.upstream) @ self._size_of_values.max(axis=-2)[..., None]
        return gradient.widen(4 * self._rounding_of_parts * reach)

    def _after_lse(self, mean: Any) -> Any:
        return mean if self.call.lse_upstream is None else mean - exact(self.call.lse_upstream[..., None])

    def _stray(self, dz: Bounded) -> Float64[np.ndarray, "B H L T"]:
        if self.call.sinks is not None:
            # The sum of dz over the keys and the sink is zero, so the sink's gradient is spread over the keys.
            stray: Any = self._sink_logit_gradient[..., None] / dz.shape[-1]
            dz = dz + stray
        elif self.call.lse_upstream is not None:
            # Here Σ dz is u_l, the gradient of the log-sum-exp. The row's maximum still gets no gradient: kernels
            # subtract it inside the logarithm and add it outside.
            stray = self._weights_again * exact(self.call.lse_upstream[..., None])
            dz = dz - stray
        return super()._stray(dz)

    @cached_property
    def _sink_logit_gradient(self) -> Any:
        """The gradient −s_σ (u·o) of the sink's logit in each row, (B, H, L)."""
        with self._as_the_kernel():
            upstream: Any = exact(self.call.upstream)
            return -self._weights_and_sink[..., -1] * np.sum(upstream * self.output, axis=-1)

    @cached_property
    def sink_gradient(self) -> Any:
        """The gradient dσ of the sinks' logits, (H,)."""
        with self._as_the_kernel():
            return self._round_to_output(np.sum(self._sink_logit_gradient, axis=(0, 2)))

    @cached_property
    def bias_gradient(self) -> Any:
        """The gradient db, in the shape of the bias."""
        assert self.call.bias is not None
        shape = self.call.bias.shape
        whole = (1,) * (4 - len(shape)) + shape
        axes = tuple(axis for axis, size in enumerate(whole) if size == 1)
        with self._as_the_kernel():
            total: Any = (
                np.sum(self._masked_logit_gradient, axis=axes, keepdims=True) if axes else (self._masked_logit_gradient)
            )
            return self._round_to_output(np.reshape(total, shape))
