"""Attention functions of transformers: boolean masks, default scales and sliding windows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attention_conformance.kernel.answers import BOOLEAN
from attention_conformance.kernel.check import verify_kernel
from attention_conformance.kernel.kernel_loader import kernel_of
from attention_conformance.kernel.report import headline
from tests.attention_conformance.claims.combined_faults import near, textbook
from theorems.core.claim import Verdict

Scale = Callable[[float | None, int], float]


def own_scale(scaling: float | None, E: int) -> float:
    return 1 / math.sqrt(E) if scaling is None else scaling


def function(
    *, wider: int = 0, read: Callable[[Tensor], Tensor] = lambda mask: mask, scale: Scale = own_scale
) -> Callable[..., Any]:
    """Return an attention function; by default it is right.

    Args:
        wider: so many keys more than those of the window are seen.
        read: how a boolean mask is read.
        scale: the scale by what is given, and the width of heads.
    """

    def attention(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        sliding_window: int | None = None,
        is_causal: bool | None = None,
    ) -> tuple[Tensor, None]:
        causal = attention_mask is None and (module.is_causal if is_causal is None else is_causal)
        window = (-1, -1) if sliding_window is None else (sliding_window - 1 + wider, -1)
        visible = near(query.shape[2], key.shape[2], causal=causal, window=window, corner=True)
        bias = attention_mask
        if attention_mask is not None and attention_mask.dtype == torch.bool:
            visible, bias = visible & read(attention_mask), None
        share = dropout if module.training else 0.0
        options: Any = {"scale": scale(scaling, query.shape[-1]), "dropout": share}
        return textbook(query, key, value, visible=visible, bias=bias, **options)[0].transpose(1, 2), None

    return attention


def adds(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, scaling: float) -> Any:
    """Return the result of an eager function, which adds masks and must not get boolean ones."""
    return textbook(query, key, value, bias=attention_mask, scale=scaling)[0].transpose(1, 2), None


IDS = ("kernel-boolean-mask", "kernel-default-scale", "kernel-window")


def verdicts(kernel: Callable[..., Any]) -> dict[str, Verdict]:
    results = verify_kernel(kernel, statements=IDS, examples=6, dtype="float64")
    return {result.id: result.verdict for result in results}


def test_a_right_function_is_upheld_and_its_contract_is_described() -> None:
    assert verdicts(function()) == dict.fromkeys(IDS, Verdict.UPHELD)
    assert "boolean masks" in headline(kernel_of(function(), "float64"))


FAULTS = {
    "boolean mask, one row for all": (
        "kernel-boolean-mask",
        {"read": lambda mask: mask[..., :1, :] if mask.shape[-1] > 8 else mask},
    ),
    "boolean mask, dropped": ("kernel-boolean-mask", {"read": torch.ones_like}),
    "scaling=None": ("kernel-default-scale", {"scale": lambda scaling, E: scaling or 1 / E}),
    "sliding_window": ("kernel-window", {"wider": 1}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_each_function_is_caught(fault: str) -> None:
    id, wrong = FAULTS[fault]
    verdicts_by_id = verdicts(function(**wrong))
    assert {id for id, verdict in verdicts_by_id.items() if verdict is Verdict.FALSIFIED} == {id}


def test_a_boolean_mask_that_hides_is_reported() -> None:
    kernel = kernel_of(function(read=lambda mask: ~mask), "float64")
    assert "attention_mask: True hides a key" in headline(kernel)


def test_functions_that_add_masks_get_no_boolean_ones() -> None:
    assert BOOLEAN not in kernel_of(adds, "float64").declares
    assert verdicts(adds)["kernel-boolean-mask"] is Verdict.UPHELD
