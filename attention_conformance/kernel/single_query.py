"""A kernel's weights, outputs and gradients for one query per input, which the papers' statements need.

Arrays have batch axes *b, n inputs, T tokens and d columns. For input i, K_i are the keys, γ_i the scores, q_i is the
query, s_i = softmax(K_i q_i) are the weights, and ℓ is the loss. Tensors have B points (the batch axes, flattened).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_conformance.interfaces.interface import Request
from attention_conformance.kernel.memory_layout import float64_of
from attention_conformance.kernel.torch_import import torch
from reference_attention.loss import Array, Loss

ENTRIES = 1 << 22
"""About the most tensor entries in one call of the kernel; a batch with more is cut into several calls."""


@dataclass(frozen=True, eq=False)
class Held:
    """Keys and scores as tensors, each divided by a power of two so that its largest entry is about one.

    Attributes:
        made_of_keys, made_of_scores: the arrays from which the tensors were computed.
        keys: the keys, (…, n, T, d), divided by ``key_unit``.
        values: the scores, (…, n, T, 1), divided by ``unit``; None if there are no scores.
        key_unit, unit: the powers of two.
    """

    made_of_keys: Array
    made_of_scores: Array | None
    keys: torch.Tensor
    values: torch.Tensor | None
    key_unit: float
    unit: float

    def of(self, keys: Array, scores: Array | None) -> bool:
        """Return whether the tensors were computed from exactly these array objects, and the arrays are read-only."""
        same = keys is self.made_of_keys and (scores is self.made_of_scores)
        return same and not any(x.flags.writeable for x in (keys, scores) if x is not None)

    def batch(self, queries: Array) -> tuple[int, ...]:
        """Return the lengths of the batch axes of a result for the given queries."""
        stacked = () if self.values is None else self.values.shape[:-3]
        return np.broadcast_shapes(self.keys.shape[:-3], stacked, np.shape(queries)[:-2])


def attend_to(kernel: Any, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the kernel's output (B, n, 1, m) for queries (B, n, 1, d), keys (B, n, T, d) and values (B, n, T, m).

    The tensors are padded, cut and reshaped to shapes that the kernel takes, and the output is reshaped back.

    Raises:
        InvalidInput: the kernel raises an error, or returns no tensor of the right shape.
    """
    d, m, tokens = query.shape[-1], values.shape[-1], keys.shape[-2]
    width = kernel.taken.width(d, quartic=kernel.fixed_scale)
    if kernel.fixed_scale:
        query = query * math.sqrt(width)
    if width != d:
        query, keys = (torch.nn.functional.pad(x, (0, width - d)) for x in (query, keys))
    reading = kernel.reading
    if reading is not None and reading.own_scale != 1:
        query = query / reading.own_scale
    # A kernel that is always causal repeats the query itself.
    rows = 1 if reading is not None and reading.always_causal else kernel.taken.lengths(1, tokens)[0]
    query = query.expand(*query.shape[:-2], rows, width)
    piece = width if kernel.layout.square else kernel.taken.width(m)
    if piece != m:
        pieces = torch.nn.functional.pad(values, (0, -m % piece))
        parts = [_outputs(kernel, query, keys, v) for v in torch.split(pieces, piece, dim=-1)]
        return torch.cat(parts, dim=-1)[..., :1, :m]
    return _outputs(kernel, query, keys, values)[..., :1, :]


def _outputs(kernel: Any, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    # A kernel may assume contiguous tensors; the probe (kernel_loader) refuses a kernel that writes to them.
    inputs = query.shape[:2]
    query, keys, values = (x.contiguous() for x in (query, keys, values))
    outputs = kernel.run(Request(query, keys, values, scale=None if kernel.fixed_scale else 1.0)).output
    return outputs.reshape(*inputs, *outputs.shape[2:])


def weights_at(kernel: Any, keys: Array, queries: Array) -> Array:
    """Return the weights s_i, (*b, n, T), for queries (*b, n or 1, d): the outputs if the values are the identity."""
    tensors = _tensors(kernel, keys, None)
    identity = torch.eye(tensors.keys.shape[-2], dtype=getattr(torch, kernel.dtype), device=kernel.device)
    with torch.no_grad():
        blocks = [
            kernel.attend(query, k, identity.expand(*k.shape[:-1], len(identity)))[..., 0, :]
            for query, k, _ in _blocks(kernel, tensors, queries, len(identity))
        ]
    return _join_blocks(blocks, tensors, queries)


def outputs_at(kernel: Any, keys: Array, scores: Array, queries: Array) -> Array:
    """Return γ_iᵀ s_i, (*b, n), for queries (*b, n or 1, d): the outputs if the values are the scores."""
    tensors = _tensors(kernel, keys, scores)
    with torch.no_grad():
        blocks = [kernel.attend(query, k, v)[..., 0, 0] for query, k, v in _blocks(kernel, tensors, queries, 1)]
    return _join_blocks(blocks, tensors, queries) * tensors.unit


def gradients_at(kernel: Any, keys: Array, scores: Array, loss: Loss, queries: Array) -> tuple[Array, Array]:
    """Return the gradient of each ℓ(γ_iᵀ s_i) by its query, divided by a factor, and the logarithm of the factor.

    The kernel's backward pass computes the gradients, (*b, n, d). The factor, (*b,), depends only on the loss's slope,
    the keys and the scores, and keeps the gradients from underflow.
    """
    tensors = _tensors(kernel, keys, scores)
    gradients, powers = [], []
    for query, k, v in _blocks(kernel, tensors, queries, 1):
        query.requires_grad_()
        with torch.enable_grad():
            output = kernel.attend(query, k, v)
        log_slopes = loss.log_slope(float64_of(output[..., 0, 0]) * tensors.unit)
        # Divide every slope by a power of two; the gradients are multiplied by it in float64, without underflow.
        power = np.floor(log_slopes / math.log(2))
        upstream = kernel.tensor(-np.exp(log_slopes - power * math.log(2)))
        (each,) = torch.autograd.grad((output * upstream[..., None, None]).sum(), query)
        gradients.append(each[..., 0, :])
        powers.append(torch.from_numpy(power))
    exponents = _join_blocks(powers, tensors, queries)
    top = np.max(exponents, axis=-1)
    each = _join_blocks(gradients, tensors, queries) * np.exp2(exponents - top[..., None])[..., None]
    return each, top * math.log(2) + math.log(tensors.unit * tensors.key_unit)


def _tensors(kernel: Any, keys: Array, scores: Array | None) -> Held:
    """Return keys and scores as tensors; the last result is cached, since a descent needs it again at each step."""
    last = kernel.last.get("held")
    if last is not None and last.of(keys, scores):
        return last
    key_unit, unit = _unit(keys), 1.0 if scores is None else _unit(scores)
    values = None if scores is None else kernel.tensor(np.asarray(scores) / unit)[..., None]
    converted = Held(keys, scores, kernel.tensor(np.asarray(keys) / key_unit), values, key_unit, unit)
    kernel.last["held"] = converted
    return converted


def _blocks(kernel: Any, tensors: Held, queries: Array, width: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield query (B, n, 1, d), keys (B, n, T, d) and values (B, n, T, 1) with about ENTRIES entries at a time.

    ``width`` is the number of columns that the values will have.
    """
    batch, (n, tokens, d) = tensors.batch(queries), tensors.keys.shape[-3:]
    each = np.shape(queries)[-2]
    points = torch.tensor(
        np.broadcast_to(np.asarray(queries) * tensors.key_unit, (*batch, each, d)).reshape(-1, each, d)
    )
    points = points.to(getattr(torch, kernel.dtype)).to(kernel.device)[:, :, None, :]
    values = tensors.keys[..., :1] if tensors.values is None else tensors.values  # None: ignored later
    stacked = [
        x.expand(len(points), *x.shape) if x.dim() == 3 else x.expand(*batch, *x.shape[-3:]).reshape(-1, *x.shape[-3:])
        for x in (tensors.keys, values)
    ]
    at_once = max(1, ENTRIES // (n * tokens * (d + width)))
    for start in range(0, len(points), at_once):
        rows = slice(start, start + at_once)
        yield points[rows].repeat(1, n // each, 1, 1), stacked[0][rows], stacked[1][rows]


def _unit(values: Array) -> float:
    """Return the largest power of two that is at most the largest absolute value; 1 if all values are zero."""
    largest = float(np.max(np.abs(values), initial=0.0))
    return 2.0 ** math.floor(math.log2(largest)) if 0 < largest < math.inf else 1.0


def _join_blocks(parts: list[torch.Tensor], tensors: Held, queries: Array) -> np.ndarray:
    """Join results that were computed for blocks of points to one float64 array of shape (*b, …)."""
    array = float64_of(parts[0] if len(parts) == 1 else torch.cat(parts))
    return np.asarray(array.reshape(*tensors.batch(queries), *array.shape[1:]))
