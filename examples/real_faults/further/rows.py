"""Right attention kernels with what the ones beside this folder have not: sinks, linear biases, gradients of bias and
log-sum-exp, sequences of different lengths, caches in splits and pages, parts that are merged.

A fault is a subclass of :class:`Rows`, :class:`Cache` or :class:`Merge` with one step as somebody's kernel had it.

    theorems verify --attention examples.real_faults.further.rows:attention
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """Softmax attention on (…, H, L, E), (…, H, T, E), (…, H, T, M), with the backward pass by hand.

    Row i stands at key i + T − L; a causal row sees none after it. A row that sees no key has output 0, log-sum-exp −∞
    and no gradient.

    Attributes:
        scale: of the inner products.
        causal: whether no row sees what comes after it.
        slopes: (…, H), what is subtracted from a logit per key of distance.
    """

    scale: float = 1.0
    causal: bool = False
    slopes: Tensor | None = None

    def ahead(self, rows: int, keys: int) -> Tensor:
        """How far a key lies behind the place of a row, (L, T)."""
        return torch.arange(keys) - torch.arange(rows)[:, None] - (keys - rows)

    def linear_bias(self, slopes: Tensor, ahead: Tensor) -> Tensor:
        """What is added to the logits, (…, H, L, T)."""
        return -slopes[..., None, None] * ahead.abs()

    def logits(self, q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
        """(…, H, L, T), −∞ where a row does not see a key."""
        ahead = self.ahead(q.shape[-2], k.shape[-2])
        logits = q @ k.mT * self.scale
        if self.slopes is not None:
            logits = logits + self.linear_bias(self.slopes.to(logits.dtype), ahead)
        if bias is not None:
            logits = logits + bias
        return logits.masked_fill(ahead > 0, -math.inf) if self.causal else logits

    def total(self, logits: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
        """The maximum and the sum of e^{logit − maximum} of each row, (…, H, L), with the sink's."""
        if sinks is not None:
            logits = torch.cat([logits, sinks[:, None, None].expand(*logits.shape[:-1], 1)], dim=-1)
        return self.total_of_keys(logits)

    def total_of_keys(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The same of keys alone; of none 0 and 0."""
        least = logits.new_full((*logits.shape[:-1], 1), -math.inf)
        top = torch.cat([logits, least], dim=-1).amax(dim=-1)
        top = torch.where(top == -math.inf, 0.0, top)
        return top, torch.exp(logits - top[..., None]).sum(dim=-1)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Output (…, H, L, M) and log-sum-exp (…, H, L)."""
        logits = self.logits(q, k, bias)
        top, total = self.total(logits, sinks)
        weights = torch.exp(logits - top[..., None]) / or_one(total)[..., None]
        return weights @ v, top + total.log()

    def delta(self, upstream: Tensor, out: Tensor, dlse: Tensor) -> Tensor:
        """What is subtracted from the scores of a row, (…, H, L)."""
        return (upstream * out).sum(dim=-1) - dlse

    def sink_gradient(self, sinks: Tensor, lse: Tensor, delta: Tensor) -> Tensor:
        """dσ, (H,)."""
        each = -torch.exp(sinks[:, None] - lse) * delta
        return each.sum(dim=-1).reshape(-1, len(sinks)).sum(dim=0)

    def bias_gradient(self, dlogits: Tensor, bias: Tensor) -> Tensor:
        """db, summed over what it is broadcast along."""
        return dlogits.sum_to_size(bias.shape)

    def backward(self, upstream: Tensor, dlse: Tensor, *saved: Any) -> tuple[Tensor | None, ...]:
        """dQ, dK, dV, dσ, db."""
        q, k, v, sinks, bias, out, lse = saved
        delta = self.delta(upstream, out, dlse)
        logits = self.logits(q, k, bias)
        weights = torch.exp(logits - torch.where(lse == -math.inf, 0.0, lse)[..., None])
        dlogits = weights * (upstream @ v.mT - delta[..., None])
        return (
            dlogits @ k * self.scale,
            dlogits.mT @ q * self.scale,
            weights.mT @ upstream,
            None if sinks is None else self.sink_gradient(sinks, lse, delta),
            None if bias is None else self.bias_gradient(dlogits, bias),
        )


def or_one(total: Tensor) -> Tensor:
    """The sum, 1 for a row that sees no key."""
    return torch.where(total == 0, 1.0, total)


class _ByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Rows, *given: Any) -> tuple[Tensor, Tensor]:
        out, lse = rows.forward(*given)
        ctx.rows = rows
        ctx.save_for_backward(*given, out, lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return None, *ctx.rows.backward(*upstream, *ctx.saved_tensors)


def attend(
    rows: Rows, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Output in the dtype of q, and log-sum-exp; half precisions are computed in float32."""
    wide = torch.promote_types(q.dtype, torch.float32)
    heads = q.shape[-3] // k.shape[-3]
    every = (q, k.repeat_interleave(heads, dim=-3), v.repeat_interleave(heads, dim=-3), sinks, bias)
    out, lse = _ByHand.apply(rows, *(None if x is None else x.to(wide) for x in every))  # type: ignore[no-untyped-call]
    return out.to(q.dtype), lse


def with_flash(rows: type[Rows]) -> Callable[..., Any]:
    """flash-attn's interface, (B, L, H, E), of its fourth generation, whose log-sum-exp can be differentiated."""

    def attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        softmax_scale: float | None = None,
        causal: bool = False,
        alibi_slopes: Tensor | None = None,
        learnable_sink: Tensor | None = None,
        return_lse: bool = False,
    ) -> Any:
        chosen = rows(1 / math.sqrt(q.shape[-1]) if softmax_scale is None else softmax_scale, causal, alibi_slopes)
        out, lse = attend(chosen, *(x.transpose(1, 2) for x in (q, k, v)), sinks=learnable_sink)
        return (out.transpose(1, 2), lse) if return_lse else out.transpose(1, 2)

    return of_module(rows, attention)


def with_bias(rows: type[Rows]) -> Callable[..., Tensor]:
    """PyTorch's interface, (B, H, L, E), with a mask that is added and differentiated."""

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        chosen = rows(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros(attn_mask.shape, dtype=query.dtype).masked_fill(~attn_mask, -math.inf)
        return attend(chosen, query, key, value, bias=attn_mask)[0]

    return of_module(rows, attention)


def of_module(step: type, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under the name ``attention`` in the module of its steps, where it can be found again."""
    function.__module__, function.__qualname__ = step.__module__, "attention"
    return function


attention = with_flash(Rows)
