"""What the statements of the papers ask of a kernel: weights, outputs and gradients of one query to an input."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_conformance.interfaces.interface import Request
from attention_conformance.kernel.placing import float64_of
from attention_conformance.kernel.with_torch import torch
from reference_attention.loss import Array, Loss

ENTRIES = 1 << 22
"""About how many numbers one call of the kernel is given: longer batches are cut."""


@dataclass(frozen=True, eq=False)
class Held:
    """Keys (…, n, T, d) and scores (…, n, T, 1) as tensors, divided by powers of two
    so that the largest is about one."""

    made_of_keys: Array
    made_of_scores: Array | None
    keys: torch.Tensor
    values: torch.Tensor | None
    key_unit: float
    unit: float

    def of(self, keys: Array, scores: Array | None) -> bool:
        """Whether they are these very arrays, and cannot have changed since."""
        same = keys is self.made_of_keys and (scores is self.made_of_scores)
        return same and not any(x.flags.writeable for x in (keys, scores) if x is not None)

    def batch(self, queries: Array) -> tuple[int, ...]:
        """The batch axes of a result."""
        stacked = () if self.values is None else self.values.shape[:-3]
        return np.broadcast_shapes(self.keys.shape[:-3], stacked, np.shape(queries)[:-2])


def attend_to(kernel: Any, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The kernel on (B, n, 1, d), (B, n, T, d), (B, n, T, m), in its layout → (B, n, 1, m).

    Raises:
        InvalidInput: it raises, or returns something else.
    """
    d, m, tokens = query.shape[-1], values.shape[-1], keys.shape[-2]
    width = kernel.taken.width(d, quartic=kernel.fixed_scale)
    if kernel.fixed_scale:
        query = query * math.sqrt(width)
    if width != d:
        query, keys = (torch.nn.functional.pad(x, (0, width - d)) for x in (query, keys))
    rows, _ = kernel.taken.lengths(1, tokens)
    query = query.expand(*query.shape[:-2], rows, width)
    piece = width if kernel.layout.square else kernel.taken.value_width(m)
    if piece != m:
        pieces = torch.nn.functional.pad(values, (0, -m % piece))
        parts = [_outputs(kernel, query, keys, v) for v in torch.split(pieces, piece, dim=-1)]
        return torch.cat(parts, dim=-1)[..., :1, :m]
    return _outputs(kernel, query, keys, values)[..., :1, :]


def _outputs(kernel: Any, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    # A kernel may assume contiguous tensors; one that writes to them is refused (attention_conformance.kernel.loading).
    inputs = query.shape[:2]
    if kernel.taken.one_head:
        query, keys, values = (x.flatten(0, 1)[:, None] for x in (query, keys, values))
    query, keys, values = (x.contiguous() for x in (query, keys, values))
    found = kernel.run(Request(query, keys, values, scale=None if kernel.fixed_scale else 1.0)).output
    return found.reshape(*inputs, *found.shape[2:])


def weights_at(kernel: Any, keys: Array, queries: Array) -> Array:
    """s_i = softmax(K_i q_i), (*b, n, T), of queries (*b, n or 1, d): the kernel on the identity."""
    held = _tensors(kernel, keys, None)
    identity = torch.eye(held.keys.shape[-2], dtype=getattr(torch, kernel.dtype), device=kernel.device)
    with torch.no_grad():
        found = [
            kernel.attend(query, k, identity.expand(*k.shape[:-1], len(identity)))[..., 0, :]
            for query, k, _ in _blocks(kernel, held, queries, len(identity))
        ]
    return _join_blocks(found, held, queries)


def outputs_at(kernel: Any, keys: Array, scores: Array, queries: Array) -> Array:
    """γ_iᵀ s_i, (*b, n), of queries (*b, n or 1, d)."""
    held = _tensors(kernel, keys, scores)
    with torch.no_grad():
        found = [kernel.attend(query, k, v)[..., 0, 0] for query, k, v in _blocks(kernel, held, queries, 1)]
    return _join_blocks(found, held, queries) * held.unit


def gradients_at(kernel: Any, keys: Array, scores: Array, loss: Loss, queries: Array) -> tuple[Array, Array]:
    """Of each ℓ(γ_iᵀ s_i) in its query, by the kernel's backward pass: (*b, n, d), and log of its unit, (*b,).

    The unit is that of the loss's slope, of keys and of scores alone.
    """
    held = _tensors(kernel, keys, scores)
    gradients, powers = [], []
    for query, k, v in _blocks(kernel, held, queries, 1):
        query.requires_grad_()
        with torch.enable_grad():
            found = kernel.attend(query, k, v)
        log_slopes = loss.log_slope(float64_of(found[..., 0, 0]) * held.unit)
        # A power of two is taken out of every slope: it is put back in float64, where it does not underflow.
        power = np.floor(log_slopes / math.log(2))
        upstream = kernel.tensor(-np.exp(log_slopes - power * math.log(2)))
        (each,) = torch.autograd.grad((found * upstream[..., None, None]).sum(), query)
        gradients.append(each[..., 0, :])
        powers.append(torch.from_numpy(power))
    exponents = _join_blocks(powers, held, queries)
    top = np.max(exponents, axis=-1)
    each = _join_blocks(gradients, held, queries) * np.exp2(exponents - top[..., None])[..., None]
    return each, top * math.log(2) + math.log(held.unit * held.key_unit)


def _tensors(kernel: Any, keys: Array, scores: Array | None) -> Held:
    """Keys and scores as tensors; the last ones are kept, because a descent asks for the same ones every step."""
    last = kernel.last.get("held")
    if last is not None and last.of(keys, scores):
        return last
    key_unit, unit = _unit(keys), 1.0 if scores is None else _unit(scores)
    values = None if scores is None else kernel.tensor(np.asarray(scores) / unit)[..., None]
    made = Held(keys, scores, kernel.tensor(np.asarray(keys) / key_unit), values, key_unit, unit)
    kernel.last["held"] = made
    return made


def _blocks(kernel: Any, held: Held, queries: Array, width: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """Query (B, n, 1, d), keys (B, n, T, d) and values (B, n, T, 1), at most ENTRIES numbers at a time."""
    batch, (n, tokens, d) = held.batch(queries), held.keys.shape[-3:]
    each = np.shape(queries)[-2]
    points = torch.tensor(np.broadcast_to(np.asarray(queries) * held.key_unit, (*batch, each, d)).reshape(-1, each, d))
    points = points.to(getattr(torch, kernel.dtype)).to(kernel.device)[:, :, None, :]
    values = held.keys[..., :1] if held.values is None else held.values  # no values: not looked at
    stacked = [
        x.expand(len(points), *x.shape) if x.dim() == 3 else x.expand(*batch, *x.shape[-3:]).reshape(-1, *x.shape[-3:])
        for x in (held.keys, values)
    ]
    at_once = max(1, ENTRIES // (n * tokens * (d + width)))
    for start in range(0, len(points), at_once):
        rows = slice(start, start + at_once)
        yield points[rows].repeat(1, n // each, 1, 1), stacked[0][rows], stacked[1][rows]


def _unit(values: Array) -> float:
    """The power of two that the largest of the values is a little more than one of; 1 if all are zero."""
    largest = float(np.max(np.abs(values), initial=0.0))
    return 2.0 ** math.floor(math.log2(largest)) if 0 < largest < math.inf else 1.0


def _join_blocks(parts: list[torch.Tensor], held: Held, queries: Array) -> np.ndarray:
    """Blocks put together: a float64 array of shape (*b, …)."""
    array = float64_of(parts[0] if len(parts) == 1 else torch.cat(parts))
    return np.asarray(array.reshape(*held.batch(queries), *array.shape[1:]))
