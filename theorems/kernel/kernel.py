"""Somebody's attention kernel as an :class:`theorems.core.implementation.Implementation`:
weights, risk, gradient by autograd.

A kernel is a callable on torch tensors, (query (…, 1, d), keys (…, T, d), values (…, T, m)) → (…, 1, m), that returns
softmax(q kᵀ) v: no scale, no mask, no dropout. Everything here is linear bookkeeping around calls of it:

- weights are the kernel on the identity as values, m = T;
- γ_iᵀ s_i is the kernel on the scores as values, m = 1, divided by a power of two so that no score overflows;
- ∇L is the kernel's own backward pass: each input has a copy of the query, its upstream gradient is the slope ℓ'_i
  of the loss at the kernel's own output (mantissa only; the power of two is put back in float64), and the n gradients
  are added in float64.

A log-excess risk is below the spacing of the kernel's numbers as soon as the softmax saturates: it stays the
reference's. So do the SVMs, which have nothing to do with a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from reference_attention.errors import InvalidInput
from reference_attention.loss import Array, Loss
from reference_attention.risk import ScaledGradient
from theorems.core.on_kernel import OnKernel
from theorems.kernel.importing import imported
from theorems.kernel.with_torch import torch

DTYPES: Mapping[str, torch.dtype] = MappingProxyType({"float64": torch.float64, "float32": torch.float32})
"""What a kernel may compute in. Half precision has no rounding bound here: logits of 100 have no digits in it."""

ENTRIES = 1 << 22
"""About how many numbers one call of the kernel is given: longer batches are cut."""


@dataclass(frozen=True)
class Layout:
    """How a kernel wants its tensors.

    Attributes:
        rank: 4 for (B, n, 1, d), one point of the batch and one input per pair of leading axes; 3 for (B·n, 1, d).
        square: values have exactly d columns; others are padded with zeros and cut into pieces.
    """

    rank: int = 4
    square: bool = False

    def __str__(self) -> str:
        shape = "(B, n, T, d)" if self.rank == 4 else "(B·n, T, d)"
        return f"{shape}, values {'padded to d columns' if self.square else 'of any width'}"


LAYOUTS = (Layout(4, False), Layout(4, True), Layout(3, False), Layout(3, True))
"""In the order in which they are tried."""


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

    def batch(self, p: Array) -> tuple[int, ...]:
        """The batch axes of a result."""
        stacked = () if self.values is None else self.values.shape[:-3]
        return np.broadcast_shapes(self.keys.shape[:-3], stacked, np.shape(p)[:-1])


@dataclass(frozen=True, eq=False)
class Kernel:
    """A callable and how to call it; travels to other processes by ``source`` if it has one.

    Attributes:
        call: the callable.
        name: MODULE:CALLABLE, or what the object calls itself.
        source: MODULE:CALLABLE to import it by; empty for an object that was handed over.
        dtype: a key of :data:`DTYPES`.
        layout: which shapes it is given.
        keywords: keyword arguments of every call (``scale=1.0`` where it takes a scale).
    """

    call: Callable[..., Any]
    name: str
    source: str = ""
    dtype: str = "float64"
    layout: Layout = LAYOUTS[0]
    keywords: Mapping[str, float] = field(default_factory=dict)
    _last: dict[str, Held] = field(default_factory=dict, init=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        held = (self.name, self.source, self.dtype, self.layout, dict(self.keywords))
        return _received, (None if self.source else self.call, *held)

    @property
    def eps(self) -> float:
        """Spacing of the kernel's numbers at one."""
        return float(torch.finfo(DTYPES[self.dtype]).eps)

    def attend(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """The kernel on (B, n, 1, d), (B, n, T, d), (B, n, T, m), in its layout → (B, n, 1, m).

        Raises:
            InvalidInput: it raises, or returns something else.
        """
        d, m = query.shape[-1], values.shape[-1]
        if self.layout.square and m != d:
            pieces = values.new_zeros((*values.shape[:-1], -(-m // d) * d))
            pieces[..., :m] = values
            return torch.cat([self._called(query, keys, v) for v in torch.split(pieces, d, dim=-1)], dim=-1)[..., :m]
        return self._called(query, keys, values)

    def _called(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        given: tuple[torch.Tensor, ...] = (query, keys, values)
        if self.layout.rank == 3:
            given = tuple(x.reshape(-1, *x.shape[-2:]) for x in given)
        # A kernel may assume contiguous tensors; one that writes to them is refused (theorems.kernel.loading).
        given = tuple(x.contiguous() for x in given)
        shapes = ", ".join(str(tuple(x.shape)) for x in given)
        try:
            found = self.call(*given, **self.keywords)
        except (Exception, SystemExit) as error:
            said = " ".join(str(error).split())[:200].rstrip(".")
            raise InvalidInput(
                f"--attention: {self.name} raised {type(error).__name__} on {self.dtype} tensors of shapes {shapes}:"
                f" {said}."
            ) from None
        wanted = (*given[0].shape[:-1], given[2].shape[-1])
        if not isinstance(found, torch.Tensor):
            raise InvalidInput(f"--attention: {self.name} returned {_kind(found)}; return one tensor {wanted}.")
        if tuple(found.shape) != wanted:
            raise InvalidInput(
                f"--attention: {self.name} returned shape {tuple(found.shape)} for {shapes}; return {wanted}."
            )
        if found.dtype != query.dtype:
            raise InvalidInput(
                f"--attention: {self.name} returned {str(found.dtype).removeprefix('torch.')} for {self.dtype} tensors;"
                " keep the dtype, or choose another with --dtype."
            )
        return found.to(query.device).reshape(*query.shape[:-1], values.shape[-1])

    def tensor(self, array: Array) -> torch.Tensor:
        """A float64 array in the kernel's dtype."""
        return torch.tensor(np.asarray(array, dtype=np.float64)).to(DTYPES[self.dtype])

    def weights(self, keys: Array, p: Array) -> Array:
        """s_i = softmax(K_i p), (*b, n, T): the kernel on the identity."""
        held = self._held(keys, None)
        identity = torch.eye(held.keys.shape[-2], dtype=DTYPES[self.dtype])
        with torch.no_grad():
            found = [
                self.attend(query, k, identity.expand(*k.shape[:-1], len(identity)))[..., 0, :]
                for query, k, _ in self._blocks(held, p, len(identity))
            ]
        return _joined(found, held, p)

    def outputs(self, keys: Array, scores: Array, p: Array) -> Array:
        """γ_iᵀ s_i, (*b, n)."""
        held = self._held(keys, scores)
        with torch.no_grad():
            found = [self.attend(query, k, v)[..., 0, 0] for query, k, v in self._blocks(held, p, 1)]
        return _joined(found, held, p) * held.unit

    def risk(self, keys: Array, scores: Array, loss: Loss, p: Array) -> Array:
        """L(p) = (1/n) Σ_i ℓ(γ_iᵀ s_i), (*b,)."""
        return np.mean(loss.value(self.outputs(keys, scores, p)), axis=-1)

    def scaled_gradient(self, keys: Array, scores: Array, loss: Loss, p: Array) -> ScaledGradient:
        """∇L(p) by the kernel's backward pass; the scale is that of the loss's slope and of the units alone."""
        held = self._held(keys, scores)
        gradients, powers = [], []
        for query, k, v in self._blocks(held, p, 1):
            query.requires_grad_()
            with torch.enable_grad():
                found = self.attend(query, k, v)
            log_slopes = loss.log_slope(found.detach()[..., 0, 0].to(torch.float64).numpy() * held.unit)
            # A power of two is taken out of every slope: it is put back in float64, where it does not underflow.
            power = np.floor(log_slopes / math.log(2))
            upstream = self.tensor(-np.exp(log_slopes - power * math.log(2)))
            (each,) = torch.autograd.grad(found, query, upstream[..., None, None])
            gradients.append(each[..., 0, :])
            powers.append(torch.from_numpy(power))
        exponents = _joined(powers, held, p)
        top = np.max(exponents, axis=-1)
        direction = np.mean(_joined(gradients, held, p) * np.exp2(exponents - top[..., None])[..., None], axis=-2)
        return ScaledGradient(top * math.log(2) + math.log(held.unit * held.key_unit), direction)

    def _held(self, keys: Array, scores: Array | None) -> Held:
        """Keys and scores as tensors; the last ones are kept, because a descent asks for the same ones every step."""
        last = self._last.get("held")
        if last is not None and last.of(keys, scores):
            return last
        key_unit, unit = _unit(keys), 1.0 if scores is None else _unit(scores)
        values = None if scores is None else self.tensor(np.asarray(scores) / unit)[..., None]
        made = Held(keys, scores, self.tensor(np.asarray(keys) / key_unit), values, key_unit, unit)
        self._last["held"] = made
        return made

    def _blocks(self, held: Held, p: Array, width: int) -> Iterator[tuple[torch.Tensor, ...]]:
        """Query (B, n, 1, d), keys (B, n, T, d) and values (B, n, T, 1), at most ENTRIES numbers at a time."""
        batch, (n, tokens, d) = held.batch(p), held.keys.shape[-3:]
        points = torch.tensor(np.broadcast_to(np.asarray(p) * held.key_unit, (*batch, d)).reshape(-1, d))
        points = points.to(DTYPES[self.dtype])[:, None, None, :]
        values = held.keys[..., :1] if held.values is None else held.values  # no values: not looked at
        stacked = [
            x.expand(len(points), *x.shape)
            if x.dim() == 3
            else x.expand(*batch, *x.shape[-3:]).reshape(-1, *x.shape[-3:])
            for x in (held.keys, values)
        ]
        at_once = max(1, ENTRIES // (n * tokens * (d + width)))
        for start in range(0, len(points), at_once):
            rows = slice(start, start + at_once)
            yield points[rows].repeat(1, n, 1, 1), stacked[0][rows], stacked[1][rows]

    def as_implementation(self) -> OnKernel:
        """The kernel in place of the reference's softmax, risk and gradient."""
        return OnKernel(
            name=self.name,
            weights=self.weights,
            risk=self.risk,
            scaled_gradient=self.scaled_gradient,
            textbook_eps=self.eps,
            kernel=self,
        )

    def but(self, **changed: Any) -> Kernel:
        """This kernel, called otherwise."""
        return replace(self, **changed)


def _received(call: Any, name: str, source: str, dtype: str, layout: Layout, keywords: Mapping[str, float]) -> Kernel:
    if call is None:
        call = imported(source)
    return Kernel(call, name, source, dtype, layout, keywords)


def _unit(values: Array) -> float:
    """The power of two that the largest of the values is a little more than one of; 1 if all are zero."""
    largest = float(np.max(np.abs(values), initial=0.0))
    return 2.0 ** math.floor(math.log2(largest)) if 0 < largest < math.inf else 1.0


def _joined(parts: list[torch.Tensor], held: Held, p: Array) -> np.ndarray:
    """Blocks put together: a float64 array of shape (*b, …)."""
    array = (parts[0] if len(parts) == 1 else torch.cat(parts)).to(torch.float64).numpy()
    return np.asarray(array.reshape(*held.batch(p), *array.shape[1:]))


def _kind(found: object) -> str:
    return f"a {type(found).__name__}" if found is not None else "nothing"
