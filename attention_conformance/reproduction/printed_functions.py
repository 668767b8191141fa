"""Functions that printed tests call; each file of tests contains the source of those that its tests need.

The functions need only torch.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from attention_conformance.kernel.torch_import import torch

inf, nan = math.inf, math.nan


def numbers(entries: list[float], *shape: int) -> Tensor:
    """Return the entries as a float64 tensor of the given shape."""
    return torch.tensor(entries, dtype=torch.float64).reshape(shape)


def drawn(seed: int, *shape: int) -> Tensor:
    """Return a float64 tensor of random whole numbers from -3 to 3."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).double()


def own_of(x: Tensor) -> Tensor:
    """Return the part of x that holds each number in memory once: index 0 on each axis along which x is expanded."""
    return x[tuple(slice(1) if stride == 0 else slice(None) for stride in x.stride())]


def strided(x: Tensor, *strides: int, offset: int = 0) -> Tensor:
    """Return a copy of x with the given strides in memory, NaN between its entries, and 64 NaN before and after."""
    size = 1 + sum((n - 1) * stride for n, stride in zip(x.shape, strides, strict=True))
    memory = x.new_full((size + offset + 128,), False if x.dtype == torch.bool else nan)
    placed = memory.as_strided(x.shape, strides, 64 + offset)
    own = own_of(placed)
    own.copy_(x[tuple(slice(n) for n in own.shape)])
    return placed


def memory_of(x: Tensor) -> Tensor:
    """Return a copy of all numbers in the memory of x, including those around its entries."""
    return x.new_empty(0).set_(x.untyped_storage()).detach().clone()


def run(
    attend: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    upstream: Tensor | None = None,
    lse_upstream: Tensor | None = None,
    *,
    wants: str = "qkv",
    before_backward: Any = None,
    **further: Tensor,
) -> dict[str, Any]:
    """Call attend, and return its results and gradients by name.

    There are gradients with respect to further tensors and to those of query, key and value whose letter is in wants.
    """
    tensors = {"dq": query, "dk": key, "dv": value}
    tensors = {name: x.detach().requires_grad_(name[1] in wants) for name, x in tensors.items()}
    leaves = {name: x for name, x in tensors.items() if x.requires_grad}
    leaves |= {name: x.requires_grad_() for name, x in further.items()}
    with torch.set_grad_enabled(bool(wants)):
        found: dict[str, Any] = attend(*tensors.values())
    if before_backward is not None:
        before_backward(found, leaves)
    if leaves and upstream is not None:
        pairs = [(found["output"], upstream), *([] if lse_upstream is None else [(found["lse"], lse_upstream)])]
        pairs = [(x, u.to(x)) for x, u in pairs if x.requires_grad]
        assert pairs, "no gradient: autograd does not connect the results with the inputs"
        results, upstreams = zip(*pairs, strict=True)
        gradients = torch.autograd.grad(results, list(leaves.values()), upstreams, allow_unused=True)
        found |= dict(zip(leaves, gradients, strict=True))
    return found


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    score_mod: Tensor | None = None,  # (H, 3): a score becomes factor * score + slope * (j - i) + shift
    softcap: float = 0.0,
    bias: Tensor | None = None,
    slopes: Tensor | None = None,  # (B, H), of ALiBi
    visible: Tensor | None = None,  # True: the key is seen
    mask_mod: Tensor | None = None,  # (B, H, 3): query i sees key j if a j + b i <= c
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),  # keys before and after the diagonal; -1 is no limit
    diagonal: int | Tensor = 0,  # the diagonal of query i is at key i + diagonal
    lengths: Tensor | None = None,  # (B, 2): queries and keys of an entry, without padding
    sinks: Tensor | None = None,  # (H,): the logit of one more key, whose value is 0
    kept: float | Tensor = 1.0,  # the factor of each weight under dropout
    empty_rows: int = 0,  # rows that see no key: 0 zeros, 1 the mean of all values, 2 the mean with its gradient
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the output softmax(scale · q kᵀ) v, the log-sum-exps and the weights, by the textbook formula."""
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
    i, j = torch.arange(query.shape[2])[:, None], torch.arange(key.shape[2])
    ahead = j - i - diagonal
    logits = query @ key.mT * scale
    if score_mod is not None:
        factor, slope, shift = score_mod.T[..., None, None]
        logits = factor * logits + slope * (j - i) + shift
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    alike = logits - logits.detach()  # zeros with the gradient of the logits
    if bias is not None:
        logits = logits + bias
    if slopes is not None:
        logits = logits - slopes[..., None, None] * ahead.abs()
    seen = logits > -inf
    seen = seen if visible is None else seen & visible
    seen = seen & (ahead <= 0) if causal else seen
    before, after = window
    seen = seen & ((ahead >= -before) | (before < 0)) & ((ahead <= after) | (after < 0))
    if mask_mod is not None:
        a, b, c = (x[..., None, None] for x in mask_mod.unbind(-1))
        seen = seen & (a * j + b * i <= c)
    if lengths is not None:
        queries, keys = (x[:, None, None, None] for x in lengths.unbind(-1))
        seen = seen & (i < queries) & (j < keys)
    empty = ~seen.any(dim=-1, keepdim=True)
    logits = torch.where(seen, logits, torch.where(empty, 0.0, -inf))
    sink = torch.tensor(-inf) if sinks is None else sinks[:, None, None]
    every = torch.cat([logits, sink.to(logits).expand(*logits.shape[:-1], 1)], dim=-1)
    weights = torch.where(seen, torch.softmax(every, dim=-1)[..., :-1], 0.0)
    if empty_rows:
        weights = torch.where(empty, torch.softmax(alike if empty_rows > 1 else 0 * alike, dim=-1), weights)
    lse = torch.where(empty[..., 0], -inf, torch.logsumexp(logits, dim=-1))
    return kept * weights @ value, lse, kept * weights


def part_of(
    query: Tensor, key: Tensor, value: Tensor, places: list[int], *, scale: float, visible: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the output and log-sum-exp of attention to the keys at the given places only."""
    q, k, v = query.double(), key.double()[:, :, places], value.double()[:, :, places]
    output, lse, _ = attention(q, k, v, scale=scale, visible=None if visible is None else visible[..., places])
    return output.to(query.dtype), lse.to(torch.promote_types(query.dtype, torch.float32))


def textbook(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    upstream: Tensor,
    *,
    lse_upstream: Tensor | None = None,
    shared: bool = False,
    descales: Tensor | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Return the correct results and gradients in float64 for the arguments of the kernel.

    If shared is True, the values are the first columns of the keys; descales are factors of query, key and value.
    """
    tensors = {
        "dq": query,
        "dk": key,
        "dv": value,
        "dsinks": options.pop("sinks", None),
        "dbias": options.pop("bias", None),
    }
    leaves = {name: x.detach().cpu().double().requires_grad_() for name, x in tensors.items() if x is not None}
    options = {name: x.cpu() if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    q, k, v = (leaves[name] for name in ("dq", "dk", "dv"))
    if shared:
        v = k[..., : value.shape[-1]]
    if descales is not None:
        of_q, of_k, of_v = descales.cpu().double()[..., None, None]
        q, k, v = q * of_q.repeat_interleave(q.shape[1] // k.shape[1], dim=1), k * of_k, v * of_v
    output, lse, weights = attention(q, k, v, sinks=leaves.get("dsinks"), bias=leaves.get("dbias"), **options)
    loss = (output * upstream.cpu().double()).sum()
    if lse_upstream is not None:
        loss = loss + (torch.where(lse > -inf, lse, 0.0) * lse_upstream.cpu().double()).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    found = {"output": output.detach(), "lse": lse.detach(), "weights": weights.detach()}
    return found | dict(zip(leaves, gradients, strict=True))


def check(name: str, found: Tensor | None, due: Tensor, allowed: float | Tensor) -> None:
    """Check that each entry of found differs from that of due by at most allowed; where allowed is inf, all pass."""
    if found is None:
        raise AssertionError(f"{name}: autograd returned None")
    found = found.detach().cpu().double()
    wrong = (~((found - due).abs() <= allowed) & (torch.as_tensor(allowed) < inf)).nonzero().tolist()
    if wrong:
        at = tuple(wrong[0])
        here = f"{name} at {at} is {found[at]:.6g} where {due[at]:.6g} is due"
        raise AssertionError(f"{here}; {len(wrong)} of {due.numel()} entries are wrong")


def check_same(name: str, found: Tensor | None, due: Tensor | None) -> None:
    """Check that the two tensors have exactly the same numbers, NaN at the same places."""
    if found is None or due is None:
        assert found is due, f"{name}: only one of the two calls has a gradient"
        return
    found, due = (x.detach().cpu().double() for x in (found, due))
    if not torch.allclose(found, due, rtol=0, atol=0, equal_nan=True):
        raise AssertionError(f"{name}: the two tensors differ by up to {(found - due).abs().max():.3g}")
