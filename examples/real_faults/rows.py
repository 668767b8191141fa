"""A correct attention kernel with sinks, linear biases, and gradients of biases and log-sum-exps.

:class:`examples.real_faults.attention.Tiled` lacks these options. The kernel computes whole rows of logits, and has its
own backward pass; the kernels for sequences of different lengths and caches use it. A sink is an
additional key of a head with a logit of its own and value 0. Axes: B batch entries, H heads, L queries (rows), T keys,
E columns of queries and keys, M columns of values.

    theorems verify --attention examples.real_faults.rows:right_rows
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from examples.real_faults.attention import Kernel, at_least_float32, finite, interface, or_one, or_root


@dataclass(frozen=True)
class Rows:
    """The steps of the kernel on (…, H, L, E), (…, H, T, E), (…, H, T, M) as methods, and its options as attributes.

    Row i is aligned with key i + ``first_key``; a causal row sees no key after the aligned key. A row that sees no key
    has output 0, log-sum-exp −∞ and no gradient.

    Attributes:
        scale: the factor by which the inner products q·k are multiplied.
        causal: whether rows are causal.
        slopes: (…, H), for each head the slope of the linear bias: slope times the distance between a key and the row's
            aligned key is subtracted from the logit.
        first_key: the index of the key with which the first row is aligned; T − L if None.
    """

    scale: float = 1.0
    causal: bool = False
    slopes: Tensor | None = None
    first_key: int | None = None

    def ahead(self, rows: int, keys: int) -> Tensor:
        """Return, for each row and key, (L, T), by how many places the key follows the row's aligned key."""
        first = keys - rows if self.first_key is None else self.first_key
        return torch.arange(keys) - torch.arange(rows)[:, None] - first

    def linear_bias(self, slopes: Tensor, ahead: Tensor) -> Tensor:
        """Compute the linear bias, (…, H, L, T), which is added to the logits."""
        return -slopes[..., None, None] * ahead.abs()

    def added_bias(self, bias: Tensor) -> Tensor:
        """Return the term that a bias adds to the logits: here the bias itself."""
        return bias

    def logits(self, q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
        """Compute the logits (…, H, L, T), which are −∞ where a row does not see a key."""
        ahead = self.ahead(q.shape[-2], k.shape[-2])
        logits = q @ k.mT * self.scale
        if self.slopes is not None:
            logits = logits + self.linear_bias(self.slopes.to(logits.dtype), ahead)
        if bias is not None:
            logits = logits + bias
        return logits.masked_fill(ahead > 0, -math.inf) if self.causal else logits

    def total(self, logits: Tensor, sinks: Tensor | None) -> tuple[Tensor, Tensor]:
        """Compute each row's maximum and sum of e^{logit − maximum}, both (…, H, L), over keys and sink."""
        if sinks is not None:
            logits = torch.cat([logits, sinks[:, None, None].expand(*logits.shape[:-1], 1)], dim=-1)
        return top_and_total(logits)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the output (…, H, L, M) and the log-sum-exp (…, H, L)."""
        logits = self.logits(q, k, bias)
        weights, lse = divided(logits, *self.total(logits, sinks))
        return weights @ v, lse

    def delta(self, upstream: Tensor, out: Tensor, dlse: Tensor) -> Tensor:
        """Compute the number, (…, H, L), that is subtracted from the gradients by the weights of a row.

        The number is Σ out · dout minus ``dlse``, the upstream gradient of the log-sum-exp.
        """
        return (upstream * out).sum(dim=-1) - dlse

    def sink_gradient(self, sinks: Tensor, lse: Tensor, delta: Tensor) -> Tensor:
        """Compute the gradient by the sinks, (H,), where ``delta`` is the result of the method ``delta``."""
        each = -torch.exp(sinks[:, None] - lse) * delta
        return each.sum(dim=-1).reshape(-1, len(sinks)).sum(dim=0)

    def bias_gradient(self, dlogits: Tensor, bias: Tensor) -> Tensor:
        """Compute the gradient by the bias: ``dlogits``, summed over the axes along which the bias is broadcast."""
        return dlogits.sum_to_size(bias.shape)

    def backward(self, upstream: Tensor, dlse: Tensor, *saved: Any) -> tuple[Tensor | None, ...]:
        """Compute the gradients by q, k, v, sinks and bias."""
        q, k, v, sinks, bias, out, lse = saved
        delta = self.delta(upstream, out, dlse)
        weights = torch.exp(self.logits(q, k, bias) - finite(lse)[..., None])
        dlogits = weights * (upstream @ v.mT - delta[..., None])
        return (
            dlogits @ k * self.scale,
            dlogits.mT @ q * self.scale,
            weights.mT @ upstream,
            None if sinks is None else self.sink_gradient(sinks, lse, delta),
            None if bias is None else self.bias_gradient(dlogits, bias),
        )


class _ByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Rows, *arguments: Any) -> tuple[Tensor, Tensor]:
        out, lse = rows.forward(*arguments)
        ctx.rows = rows
        ctx.save_for_backward(*arguments, out, lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return None, *ctx.rows.backward(*upstream, *ctx.saved_tensors)


def attend(
    rows: Rows, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run the kernel; return the output in the dtype of q, and the log-sum-exp.

    float16 and bfloat16 are converted to float32 first.
    """
    if bias is not None and bias.dtype == torch.bool:
        bias = torch.zeros(bias.shape, dtype=q.dtype).masked_fill(~bias, -math.inf)
    group, wide = q.shape[-3] // k.shape[-3], at_least_float32(q)
    every = (q, k.repeat_interleave(group, dim=-3), v.repeat_interleave(group, dim=-3), sinks)
    converted = [None if x is None else x.to(wide) for x in every]
    added = None if bias is None else rows.added_bias(bias.to(wide))
    out, lse = _ByHand.apply(rows, *converted, added)  # type: ignore[no-untyped-call]
    return out.to(q.dtype), lse


def top_and_total(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's maximum and sum of e^{logit − maximum}; both are 0 for a row that sees no key."""
    none = logits.new_full((*logits.shape[:-1], 1), -math.inf)
    top = finite(torch.cat([logits.detach(), none], dim=-1).amax(dim=-1))
    return top, torch.exp(logits - top[..., None]).sum(dim=-1)


def divided(logits: Tensor, top: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the weights (…, L, T) and the log-sum-exp (…, L) from the results of :func:`top_and_total`."""
    weights = torch.exp(logits - top[..., None]) / or_one(total)[..., None]
    return weights, torch.where(total == 0, -math.inf, top + or_one(total).log())


def softmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights and the log-sum-exp of each row; they are 0 and −∞ for a row that sees no key."""
    return divided(logits, *top_and_total(logits))


def hide_later_keys(logits: Tensor) -> Tensor:
    """Return the logits (…, L, T), made causal with the last row aligned with the last key."""
    return logits.masked_fill(Rows().ahead(*logits.shape[-2:]) > 0, -math.inf)


@interface
def with_rows(rows: type[Rows]) -> Kernel:
    """Make a kernel with the interface of flash-attn 4 from a class of steps.

    Its queries are (B, L, H, E), and its log-sum-exp can be differentiated.
    """

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
        chosen = rows(or_root(softmax_scale, q), causal, alibi_slopes)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out, lse = attend(chosen, q, k, v, learnable_sink)
        return (out.transpose(1, 2), lse) if return_lse else out.transpose(1, 2)

    return attention


@interface
def with_bias(rows: type[Rows]) -> Kernel:
    """Make a kernel with PyTorch's interface from a class of steps; an additive mask of it gets a gradient."""

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        return attend(rows(or_root(scale, query)), query, key, value, bias=attn_mask)[0]

    return attention


right_rows, right_bias = with_rows(Rows, "right_rows"), with_bias(Rows, "right_bias")
