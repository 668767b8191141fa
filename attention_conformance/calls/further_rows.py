"""Rows of attention with a sink or with linear biases; gradients of log Σ e^z.

The notation is that of :mod:`.attention_rows`. A sink is one more key of each row, with logit σ and value 0. The
softmax over T + 1 logits gives the sink the weight s_σ = e^σ / (e^σ + Σ e^{z_t}), and the keys the other weights; o =
Σ_t s_t v_t. The sink has the gradient of a key with score 0:

    dσ = −Σ s_σ (u·o) over the rows of a head.

If the loss also depends on the log-sum-exp l = log Σ_t e^{z_t}, with the upstream gradient u_l, then ∂l/∂z_t = s_t
gives

    dz_t = s_t (u·v_t − u·o + u_l).

ALiBi subtracts slope · |j − i| from the logit of key j in row i. A bias b has the gradient db = Σ dz over the axes
along which the bias is broadcast.
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
    """The correct results of a call with sinks, slopes or an upstream gradient of its log-sum-exp, as intervals.

    Attributes:
        places: j − i for each row i and key j, (L, T), if the rows are only some rows of a longer call.
        coarse: whether weights are rounded to 8 bits, e4m3, before they are multiplied with values.
    """

    places: Int[np.ndarray, "L T"] | None = None
    coarse: bool = False

    @cached_property
    def logits(self) -> Any:
        """The logits z of the keys, (B, H, L, T)."""
        logits: Any = super().logits
        with self._as_the_kernel():
            if self.call.slopes is not None:
                logits = np.where(np.isneginf(logits.value), logits, logits - self._linear_bias)
                logits = np.where(self.empty[..., None], 0.0, logits)
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
