"""Capabilities that no kernel of the gallery breaks: small kernels, each wrong in one way, and the claim that says so."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import theorems.run.verify
from examples.real_faults.attention import Tiled, with_flash, with_sdpa
from theorems.core.claim import Verdict
from theorems.kernel.check import verify_kernel


@pytest.fixture(autouse=True)
def _little_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theorems.run.verify, "SHRINKING_CALLS", 3)


class ScaleOfKeysForgotten(Tiled):
    """dK without the scale."""

    def backward(self, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
        dq, dk, dv = super().backward(*given)
        return dq, dk / self.scale, dv


class CapNotDifferentiated(Tiled):
    """The derivative of the cap is taken for 1."""

    def backward(self, upstream: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> Any:
        found = super().backward(upstream, q, k, v, *rest)
        if not self.softcap:
            return found
        capped = self.capped(q, k)
        weights = torch.softmax(self.masked(capped, slice(0, k.shape[-2])), dim=-1)
        scores = upstream @ v.mT
        dz = weights * (scores - (weights * scores).sum(dim=-1, keepdim=True)) * self.scale
        return dz @ k, dz.mT @ q, found[2]


class OneUnitOff(Tiled):
    """Weights that add up to 1 − 2⁻⁷: what half precision may lose of an output, but not of an exact one."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = super().forward(q, k, v)
        return out * (1 - 2**-7), lse


class Warm(Tiled):
    """A temperature that is 0.1% off, with more than one query."""

    def capped(self, q: Tensor, k: Tensor) -> Tensor:
        return super().capped(q, k) * (1.001 if q.shape[-2] > 1 else 1.0)


class ScaledByTheLargestValue(Tiled):
    """Values are divided by the largest of all, hidden ones included: right up to rounding."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        largest = v.abs().amax(dim=(-2, -1), keepdim=True).clamp(min=1e-30)
        out, lse = super().forward(q, k, v / largest)
        return out * self.for_each_query_head(q, largest), lse


class LeftOver(Tiled):
    """dQ is added to what the last call of that shape left in its buffer."""

    buffers: ClassVar[dict[tuple[int, ...], Tensor]] = {}

    def backward(self, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
        dq, dk, dv = super().backward(*given)
        dq = dq + self.buffers.get(tuple(dq.shape), torch.zeros(()))
        self.buffers[tuple(dq.shape)] = dq
        return dq, dk, dv


def root_of_keys(query: Tensor, key: Tensor, value: Tensor, scale: float | None = None, is_causal: bool = False) -> Any:
    """The scale by itself is 1/√T."""
    chosen = 1 / math.sqrt(key.shape[-2]) if scale is None else scale
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=chosen, is_causal=is_causal)


def nan_forward_alone(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, scale: float | None = None
) -> Any:
    """A row that sees nothing is NaN, its dQ zero."""
    query = query * 1
    if query.requires_grad:
        query.register_hook(torch.nan_to_num)
    logits = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        logits = logits.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        logits = logits + attn_mask
    return torch.softmax(logits, dim=-1) @ value


@dataclass
class Unsteady:
    """Declares that it is deterministic, and is so but for the last bit of every second call."""

    right: Callable[..., Any] = field(default_factory=lambda: with_flash(Tiled))
    calls: int = 0

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None, deterministic: bool = True
    ) -> Any:
        self.calls += 1
        out = self.right(q, k, v, softmax_scale)
        return out * (1 + 2**-52) if self.calls % 2 else out


@pytest.mark.parametrize(
    ("capability", "kernel", "claim", "dtype"),
    [
        ("output", with_sdpa(Warm), "output-is-attention", "float64"),
        ("output", with_sdpa(Warm), "output-is-attention", "float32"),
        ("scale", with_sdpa(ScaleOfKeysForgotten), "key-gradient", "float64"),
        ("default-scale", root_of_keys, "output-is-attention", "float64"),
        ("softcap", with_flash(CapNotDifferentiated), "query-gradient", "float64"),
        ("repeated-calls", with_sdpa(LeftOver), "query-gradient", "float64"),
        ("repeated-calls", Unsteady(), "same-bits", "float64"),
        ("empty-rows", nan_forward_alone, "rows-that-see-nothing", "float64"),
        ("hidden-keys", with_sdpa(ScaledByTheLargestValue), "hidden-keys-change-no-output", "float64"),
        ("exact-weights", with_sdpa(OneUnitOff), "output-is-attention", "bfloat16"),
        ("exact-weights", with_sdpa(OneUnitOff), "output-is-attention", "float16"),
    ],
)
def test_a_planted_fault_is_caught_by_the_claim_about_it(
    capability: str, kernel: Callable[..., Any], claim: str, dtype: str
) -> None:
    (result,) = verify_kernel(kernel, statements=[f"kernel-{capability}"], examples=20, dtype=dtype)
    assert result.verdict is Verdict.FALSIFIED, result.reason
    falsified = [one.name for one in result.claims if one.verdict is Verdict.FALSIFIED]
    assert falsified[0] == claim


@pytest.mark.parametrize(
    ("capability", "kernel", "dtype"),
    [
        ("boolean-mask", with_sdpa(ScaledByTheLargestValue), "float64"),
        ("boolean-mask", nan_forward_alone, "float64"),
        ("output", with_sdpa(OneUnitOff), "bfloat16"),
        ("gradients", with_flash(CapNotDifferentiated), "float64"),
        ("output", with_sdpa(ScaleOfKeysForgotten), "float64"),
    ],
)
def test_and_by_no_other_that_is_about_something_else(capability: str, kernel: Callable[..., Any], dtype: str) -> None:
    (result,) = verify_kernel(kernel, statements=[f"kernel-{capability}"], examples=10, dtype=dtype)
    assert result.verdict is Verdict.UPHELD, result.reason
