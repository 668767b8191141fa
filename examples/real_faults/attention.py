"""A correct attention kernel in the style of flash attention, and the means to plant faults in it.

The kernel processes the keys block by block, with an online softmax, and has its own backward pass. ``tiled`` has the
interface of flash-attn, ``tiled_sdpa`` that of PyTorch, and ``tiled_plain`` takes three tensors and no option. A fault
is a function that replaces one step of :class:`Tiled` (one method) by the wrong step of a real kernel;
:func:`wrong_step` makes a faulty kernel from the function. Axes: B batch entries, H query heads, H' key heads, L
queries (rows), T keys, E columns of queries and keys, m columns of values.

    theorems verify --attention examples.real_faults.attention:tiled
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar

import torch
from torch import Tensor

BLOCK = 32
"""The number of keys in a block."""
Kernel = Callable[..., Any]
Gradients = tuple[Tensor, Tensor, Tensor]
"""The type of a triple of gradients, with respect to q, k and v."""


@dataclass(frozen=True)
class Tiled:
    """The steps of the correct kernel as methods, and the options of a call as attributes.

    Query row i is aligned with key i + ``first_key``. It sees the keys from ``window[0]`` places before the aligned key
    to ``window[1]`` places after it (−1: no limit); a causal row sees no key after the aligned key. A row that sees no
    key has output 0, log-sum-exp −∞ and no gradient.

    Attributes:
        scale: the factor by which the inner products q·k are multiplied.
        causal: whether rows are causal.
        first_key: the index of the key with which the first row is aligned: 0, or T − L so that the last row is aligned
            with the last key.
        window: the numbers of keys that a row sees before and after the aligned key.
        softcap: c > 0 replaces each logit by c·tanh(logit / c); 0 changes nothing.
        mask: Booleans, True where a row sees a key, or numbers to add to the logits; broadcastable to (…, H, L, T).
    """

    scale: float
    causal: bool = False
    first_key: int = 0
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    mask: Tensor | None = None

    by_autograd: ClassVar[bool] = False
    """True if autograd differentiates the forward pass, in place of the method ``backward``."""
    in_halves: ClassVar[bool] = False
    """True if keys that exceed one block are split into two halves, whose results are merged."""

    def right(self, **changes: Any) -> Tiled:
        """Return the steps of the correct kernel, with some options changed."""
        return Tiled(**(vars(self) | changes))

    # ---- steps of both passes ----

    def heads(self, queries: int, keys: int) -> list[int]:
        """List, for each of ``queries`` query heads, the index of the key head, out of ``keys``, that it attends to."""
        return [h // (queries // keys) for h in range(queries)]

    def visible(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Return a mask (L, t), True where a row sees a key, for indices of rows (L, 1) and of t keys (1, t)."""
        before, after = self.window
        ahead = keys - rows - self.first_key
        mask = torch.ones_like(ahead, dtype=torch.bool)
        if before >= 0:
            mask &= ahead >= -before
        if after >= 0:
            mask &= ahead <= after
        return mask & (ahead <= 0) if self.causal else mask

    def capped(self, q: Tensor, k: Tensor) -> Tensor:
        """Compute the logits, scaled and capped, of all rows and the keys k, before any mask."""
        logits = q @ k.transpose(-2, -1) * self.scale
        return self.softcap * torch.tanh(logits / self.softcap) if self.softcap > 0 else logits

    def hidden_logit(self) -> float:
        """Return the logit that a key gets if a Boolean mask hides it."""
        return -math.inf

    def masked(self, logits: Tensor, block: slice) -> Tensor:
        """Return the logits with −∞ where a row does not see a key of the block, and with a mask of numbers added."""
        rows = torch.arange(logits.shape[-2], device=logits.device)[:, None]
        keys = torch.arange(block.start, block.stop, device=logits.device)[None, :]
        logits = logits.masked_fill(~self.visible(rows, keys), -math.inf)
        if self.mask is None:
            return logits
        mask = self.mask[..., block] if self.mask.shape[-1] > 1 else self.mask
        if mask.dtype == torch.bool:
            return logits.masked_fill(~mask, self.hidden_logit())
        return logits + mask.to(logits.dtype)

    # ---- forward ----

    def first_maximum(self) -> float:
        """Return the value with which the running maximum of the online softmax starts."""
        return -math.inf

    def maximum(self, top: Tensor, logits: Tensor) -> Tensor:
        """Return the running maximum of each row, ``top``, updated by the logits of the next block."""
        return torch.maximum(top, logits.detach().amax(dim=-1))

    def correction(self, decay: Tensor) -> Tensor:
        """Return the factor that corrects the running sum when the maximum rises: e^{old − new maximum}, ``decay``."""
        return decay

    def log_sum_exp(self, top: Tensor, total: Tensor) -> Tensor:
        """Compute the log-sum-exp from the maximum ``top`` and ``total``, the sum of e^{logit − maximum}."""
        return top + or_one(total).log()

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the output (…, H, L, m) and the log-sum-exp (…, H, L)."""
        every_k, every_v = (self.for_each_query_head(q, x) for x in (k, v))
        t = k.shape[-2]
        if not self.in_halves or t <= BLOCK:
            return self.over_keys(q, every_k, every_v, range(t))
        halves = [self.over_keys(q, every_k, every_v, keys) for keys in (range(t // 2), range(t // 2, t))]
        outs, lses = (torch.stack(parts) for parts in zip(*halves, strict=True))
        top = lses.detach().amax(dim=0)
        weights = torch.exp(lses - finite(top))
        total = weights.sum(dim=0)
        return (weights[..., None] * outs).sum(dim=0) / or_one(total)[..., None], top + or_one(total).log()

    def over_keys(self, q: Tensor, k: Tensor, v: Tensor, keys: range) -> tuple[Tensor, Tensor]:
        """Run the online softmax over the keys with the indices ``keys`` only; return output and log-sum-exp."""
        top = q.new_full(q.shape[:-1], self.first_maximum())
        total, mean = torch.zeros_like(top), q.new_zeros((*q.shape[:-1], v.shape[-1]))
        for block in blocks(keys):
            logits = self.masked(self.capped(q, k[..., block, :]), block)
            new = self.maximum(top, logits)
            decay, weights = torch.exp(top - finite(new)), torch.exp(logits - finite(new)[..., None])
            total = total * self.correction(decay) + weights.sum(dim=-1)
            mean = mean * decay[..., None] + weights @ v[..., block, :]
            top = new
        return mean / or_one(total)[..., None], self.log_sum_exp(top, total)

    def for_each_query_head(self, q: Tensor, x: Tensor) -> Tensor:
        """Return keys or values x with a head for each query head, by repeating their heads."""
        return x if q.dim() < 3 else x[..., self.heads(q.shape[-3], x.shape[-3]), :, :]

    def returned_log_sum_exp(self, lse: Tensor) -> Tensor:
        """Return the log-sum-exp in the form in which the caller gets it."""
        return lse

    # ---- backward ----

    def backward(self, upstream: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor) -> Gradients:
        """Compute dQ, dK and dV; the attention weights are recomputed from the log-sum-exp."""
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
        """Add up a gradient over the query heads that share a key head; the result has the shape of ``like``."""
        if like.dim() < 3:
            return gradient
        heads = torch.tensor(self.heads(gradient.shape[-3], like.shape[-3]), device=like.device)
        return torch.zeros_like(like).index_add(-3, heads, gradient)


def blocks(keys: range) -> Iterator[slice]:
    """Yield the slices of consecutive blocks of at most BLOCK keys."""
    for start in range(keys.start, keys.stop, BLOCK):
        yield slice(start, min(start + BLOCK, keys.stop))


def finite(top: Tensor) -> Tensor:
    """Replace the maximum −∞ of a row that has seen no key by 0, as −∞ − −∞ is NaN."""
    return torch.where(top == -math.inf, 0.0, top)


def or_one(total: Tensor) -> Tensor:
    """Replace the sum 0 of a row that has seen no key by 1, as 0 / 0 is NaN."""
    return torch.where(total == 0, 1.0, total)


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
    """Run the kernel; return the output in the dtype of q, and the log-sum-exp.

    float16 and bfloat16 are converted to float32 first.
    """
    wide = [x.to(at_least_float32(x)) for x in (q, k, v)]
    out, lse = steps.forward(*wide) if steps.by_autograd else _ByHand.apply(steps, *wide)  # type: ignore[no-untyped-call]
    return out.to(q.dtype), steps.returned_log_sum_exp(lse.detach())


# ---- interfaces ----


def interface(build: Callable[[type[Any]], Kernel]) -> Callable[..., Kernel]:
    """Decorate ``build``, which makes a kernel from a class of steps, so that the kernel gets a name and a module.

    Other processes import the kernel by its name from that module, the module of the steps.
    """

    @wraps(build)
    def kernel_of(steps: type[Any], name: str = "attention") -> Kernel:
        kernel = build(steps)
        kernel.__module__, kernel.__doc__ = steps.__module__, steps.__doc__
        kernel.__name__ = kernel.__qualname__ = name
        return kernel

    return kernel_of


def wrong_step(
    with_interface: Callable[..., Kernel], right: type[Any], step: str, **attributes: Any
) -> Callable[[Kernel], Kernel]:
    """Return a decorator that turns a function, a wrong step, into a faulty kernel with the function's name.

    Args:
        with_interface: the function that makes a kernel from a class of steps.
        right: the class of the correct steps.
        step: the name of the method that the wrong step replaces.
        attributes: further attributes of the class of steps, such as ``by_autograd=True``.
    """

    def kernel_of(wrong: Kernel) -> Kernel:
        if not hasattr(right, step):
            raise AttributeError(f"{right.__name__} has no step {step}")
        members = {step: wrong, "__module__": wrong.__module__, "__doc__": wrong.__doc__, **attributes}
        return with_interface(type(wrong.__name__, (right,), members), wrong.__name__)

    return kernel_of


@interface
def with_plain(steps: type[Tiled]) -> Kernel:
    """Make a kernel of three tensors from a class of steps: (…, L, d), (…, T, d), (…, T, m) → (…, L, m)."""

    def attention(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attend(steps(1.0), query, keys, values)[0]

    return attention


@interface
def with_sdpa(steps: type[Tiled]) -> Kernel:
    """Make a kernel with PyTorch's interface from a class of steps.

    The kernel takes (B, H, L, E), (B, H', T, E), (B, H', T, m) and returns (B, H, L, m). The causal diagonal starts at
    the first row and the first key, as in PyTorch, also if L ≠ T. A mask gets no gradient. The kernel raises a
    ValueError for dropout, and for H ≠ H' without ``enable_gqa``.
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
            raise ValueError(f"heads of query {(*query.shape,)} and key {(*key.shape,)} differ: give enable_gqa=True")
        return attend(steps(or_root(scale, query), causal=is_causal, mask=attn_mask), query, key, value)[0]

    return attention


@interface
def with_flash(steps: type[Tiled]) -> Kernel:
    """Make a kernel with flash-attn's interface from a class of steps.

    The kernel takes (B, L, H, E), (B, T, H', E), (B, T, H', m) and returns (B, L, H, m) and, on request, log-sum-exps
    (B, H, L). The last row is aligned with the last key, as in flash-attn, also if L ≠ T. The log-sum-exps are natural
    logarithms for the scaled logits, in float32 or wider, and cannot be differentiated.
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
        chosen = steps(or_root(softmax_scale, q), causal, k.shape[1] - q.shape[1], window_size, softcap)
        out, lse = attend(chosen, *(x.transpose(1, 2) for x in (q, k, v)))
        return (out.transpose(1, 2), lse) if return_lse else out.transpose(1, 2)

    return attention


def or_root(scale: float | None, query: Tensor) -> float:
    """Return the scale, or 1/√E, for queries of E columns, if ``scale`` is None."""
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def at_least_float32(x: Tensor) -> torch.dtype:
    """Return the dtype in which to compute with x: float32, or the dtype of x if it is wider."""
    return torch.promote_types(x.dtype, torch.float32)


tiled, tiled_sdpa = with_flash(Tiled, "tiled"), with_sdpa(Tiled, "tiled_sdpa")
tiled_plain = with_plain(Tiled, "tiled_plain")
