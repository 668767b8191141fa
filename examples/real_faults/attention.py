"""A right attention kernel in the manner of flash attention: blocks of keys, an online softmax, its own backward pass.

``tiled`` has flash-attn's interface, ``tiled_sdpa`` PyTorch's. The faults beside this file are this kernel with a step
of :class:`Tiled` replaced, as somebody's kernel had it.

    theorems verify --attention examples.real_faults.attention:tiled
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

BLOCK = 32
"""Keys in a block."""


@dataclass(frozen=True)
class Tiled:
    """The steps of the kernel; a fault is a subclass in which one of them is another.

    Row i stands at key i + ``first_key`` and sees the keys from ``window[0]`` before it to ``window[1]`` after it, −1
    for all; a causal row sees none after it. A row that sees no key has output 0, log-sum-exp −∞ and no gradient.

    Attributes:
        scale: what the inner products are multiplied by.
        causal: whether no row sees what comes after it.
        first_key: the key at which the first row stands: 0, or T − L for rows that end where the keys end.
        window: keys before and after a row that it sees.
        softcap: c > 0 for logits c·tanh(logit / c).
        mask: Booleans, True where a row sees a key, or what is added to the logits; broadcasts to (…, H, L, T).
    """

    scale: float
    causal: bool = False
    first_key: int = 0
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    mask: Tensor | None = None

    hidden: ClassVar[float] = -math.inf
    """The logit of a key that a Boolean mask hides."""
    by_autograd: ClassVar[bool] = False
    """Differentiate the forward pass instead of running the backward pass."""

    def right(self, **changes: Any) -> Tiled:
        """The kernel without fault, with other options."""
        return Tiled(**(vars(self) | changes))

    # ---- steps of both passes ----

    def heads(self, queries: int, keys: int) -> list[int]:
        """The head of the keys that each head of the queries attends to."""
        return [h // (queries // keys) for h in range(queries)]

    def visible(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Which keys (1, t) the rows (L, 1) see, by their numbers."""
        before, after = self.window
        ahead = keys - rows - self.first_key
        seen = torch.ones_like(ahead, dtype=torch.bool)
        if before >= 0:
            seen &= ahead >= -before
        if after >= 0:
            seen &= ahead <= after
        return seen & (ahead <= 0) if self.causal else seen

    def capped(self, q: Tensor, k: Tensor) -> Tensor:
        """Logits (…, L, t) before any mask."""
        logits = q @ k.transpose(-2, -1) * self.scale
        return self.softcap * torch.tanh(logits / self.softcap) if self.softcap > 0 else logits

    def masked(self, logits: Tensor, block: slice) -> Tensor:
        """Logits with −∞ where a row does not see a key of the block."""
        rows = torch.arange(logits.shape[-2], device=logits.device)[:, None]
        keys = torch.arange(block.start, block.stop, device=logits.device)[None, :]
        logits = logits.masked_fill(~self.visible(rows, keys), -math.inf)
        if self.mask is None:
            return logits
        mask = self.mask[..., block] if self.mask.shape[-1] > 1 else self.mask
        return logits.masked_fill(~mask, self.hidden) if mask.dtype == torch.bool else logits + mask.to(logits.dtype)

    # ---- forward ----

    def first_maximum(self) -> float:
        """Where the running maximum starts."""
        return -math.inf

    def maximum(self, top: Tensor, logits: Tensor) -> Tensor:
        """The running maximum (…, L) with one block more."""
        return torch.maximum(top, logits.detach().amax(dim=-1))

    def correction(self, kept: Tensor) -> Tensor:
        """What the running sum is multiplied by when the maximum rises; ``kept`` is e^{old − new}."""
        return kept

    def log_sum_exp(self, top: Tensor, total: Tensor) -> Tensor:
        """From the maximum and the sum of e^{logit − maximum}."""
        return top + or_one(total).log()

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Output (…, H, L, m) and log-sum-exp (…, H, L)."""
        every_k, every_v = (self.for_each_query_head(q, x) for x in (k, v))
        return self.over_keys(q, every_k, every_v, range(k.shape[-2]))

    def over_keys(self, q: Tensor, k: Tensor, v: Tensor, keys: range) -> tuple[Tensor, Tensor]:
        """The online softmax over some of the keys."""
        top = q.new_full(q.shape[:-1], self.first_maximum())
        total, mean = torch.zeros_like(top), q.new_zeros((*q.shape[:-1], v.shape[-1]))
        for block in blocks(keys):
            logits = self.masked(self.capped(q, k[..., block, :]), block)
            new = self.maximum(top, logits)
            kept, weights = torch.exp(top - finite(new)), torch.exp(logits - finite(new)[..., None])
            total = total * self.correction(kept) + weights.sum(dim=-1)
            mean = mean * kept[..., None] + weights @ v[..., block, :]
            top = new
        return mean / or_one(total)[..., None], self.log_sum_exp(top, total)

    def for_each_query_head(self, q: Tensor, x: Tensor) -> Tensor:
        """Keys or values with as many heads as the queries."""
        return x if q.dim() < 3 else x[..., self.heads(q.shape[-3], x.shape[-3]), :, :]

    # ---- backward ----

    def backward(
        self, upstream: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients with respect to q, k and v; weights are computed anew from the log-sum-exp."""
        every_k, every_v = (self.for_each_query_head(q, x) for x in (k, v))
        delta = (upstream * out).sum(dim=-1, keepdim=True)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(every_k), torch.zeros_like(every_v)
        for block in blocks(range(k.shape[-2])):
            keys, values = every_k[..., block, :], every_v[..., block, :]
            capped = self.capped(q, keys)
            weights = torch.exp(self.masked(capped, block) - finite(lse)[..., None])
            dlogits = weights * (upstream @ values.transpose(-2, -1) - delta) * self.scale
            if self.softcap > 0:
                dlogits = dlogits * (1 - (capped / self.softcap) ** 2)
            dq += dlogits @ keys
            dk[..., block, :] = dlogits.transpose(-2, -1) @ q
            dv[..., block, :] = weights.transpose(-2, -1) @ upstream
        return dq, self.for_each_key_head(dk, k), self.for_each_key_head(dv, v)

    def for_each_key_head(self, gradient: Tensor, like: Tensor) -> Tensor:
        """The sum of the gradients of the heads that share keys."""
        if like.dim() < 3:
            return gradient
        heads = torch.tensor(self.heads(gradient.shape[-3], like.shape[-3]), device=like.device)
        return torch.zeros_like(like).index_add(-3, heads, gradient)


def blocks(keys: range) -> Iterator[slice]:
    """The keys, 32 at a time."""
    for start in range(keys.start, keys.stop, BLOCK):
        yield slice(start, min(start + BLOCK, keys.stop))


def finite(top: Tensor) -> Tensor:
    """The maximum, 0 for a row that has seen no key: −∞ − −∞ has no value."""
    return torch.where(top == -math.inf, 0, top)


def or_one(total: Tensor) -> Tensor:
    """The sum, 1 for a row that has seen no key: 0 / 0 has no value."""
    return torch.where(total == 0, 1, total)


class _ByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, steps: Tiled, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = steps.forward(q, k, v)
        ctx.steps = steps
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return None, *ctx.steps.backward(upstream[0], *ctx.saved_tensors)


def attend(steps: Tiled, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Output in the dtype of q, and log-sum-exp; half precisions are computed in float32, as on any accelerator."""
    wide = [x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v)]
    out, lse = steps.forward(*wide) if steps.by_autograd else _ByHand.apply(steps, *wide)  # type: ignore[no-untyped-call]
    return out.to(q.dtype), lse.detach()


# ---- interfaces ----


def with_plain(steps: type[Tiled], name: str = "attention") -> Callable[..., Tensor]:
    """softmax(q kᵀ) v with these steps: (…, L, d), (…, T, d), (…, T, m) → (…, L, m)."""

    def attention(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attend(steps(1.0), query, keys, values)[0]

    return _of(steps, attention, name)


def with_sdpa(steps: type[Tiled], name: str = "attention") -> Callable[..., Tensor]:
    """PyTorch's interface: (B, H, L, E), (B, H', T, E), (B, H', T, m) → (B, H, L, m).

    Causal starts in the first row and the first key, as PyTorch has it, also where L ≠ T. A mask gets no gradient.

    Raises:
        ValueError: dropout, or heads that do not match without ``enable_gqa``.
    """

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if dropout_p != 0:
            raise ValueError("this kernel has no dropout: leave dropout_p at 0")
        if not enable_gqa and query.shape[:-2] != key.shape[:-2]:
            raise ValueError(f"query has shape {(*query.shape,)} and key {(*key.shape,)}: give enable_gqa=True")
        return attend(steps(scale=_or_root(scale, query), causal=is_causal, mask=attn_mask), query, key, value)[0]

    return _of(steps, attention, name)


def with_flash(steps: type[Tiled], name: str = "attention") -> Callable[..., Any]:
    """flash-attn's interface: (B, L, H, E), (B, T, H', E), (B, T, H', m) → (B, L, H, m), with log-sum-exps (B, H, L).

    Causal rows and windows are aligned to the last row and the last key, as flash-attn has it, also where L ≠ T. The
    log-sum-exp is natural, of the scaled logits, at least in float32, and not differentiable.
    """

    def attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[int, int] = (-1, -1),
        softcap: float = 0.0,
        return_lse: bool = False,
    ) -> Any:
        chosen = steps(_or_root(softmax_scale, q), causal, k.shape[1] - q.shape[1], window_size, softcap)
        out, lse = attend(chosen, *(x.transpose(1, 2) for x in (q, k, v)))
        return (out.transpose(1, 2), lse) if return_lse else out.transpose(1, 2)

    return _of(steps, attention, name)


def _or_root(scale: float | None, query: Tensor) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _of(steps: type[Tiled], attention: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function under its name in the module of its steps, where it can be found again."""
    attention.__module__, attention.__doc__ = steps.__module__, steps.__doc__
    attention.__name__ = attention.__qualname__ = name
    return attention


tiled, tiled_sdpa = with_flash(Tiled, "tiled"), with_sdpa(Tiled, "tiled_sdpa")
