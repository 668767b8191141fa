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
    """Return an attention function with transformers' signature; the default arguments make it right.

    Args:
        wider: how many keys before the window a row sees, too.
        read: changes a boolean mask before it is used.
        scale: returns the scale, given the argument ``scaling`` and the number of columns of the queries.
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
    """Return attention as an eager function of transformers does: it adds the mask, which must not be boolean."""
    return textbook(query, key, value, bias=attention_mask, scale=scaling)[0].transpose(1, 2), None


IDS = ("kernel-boolean-mask", "kernel-default-scale", "kernel-window")


def verdicts(kernel: Callable[..., Any]) -> dict[str, Verdict]:
    results = verify_kernel(kernel, statements=IDS, examples=6, dtype="float64")
    return {result.id: result.verdict for result in results}


def test_a_right_function_is_upheld_and_the_report_mentions_its_boolean_masks() -> None:
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
def test_each_fault_falsifies_its_capability_and_no_other(fault: str) -> None:
    id, wrong = FAULTS[fault]
    verdicts_by_id = verdicts(function(**wrong))
    assert {id for id, verdict in verdicts_by_id.items() if verdict is Verdict.FALSIFIED} == {id}


def test_functions_that_add_masks_to_logits_get_no_boolean_masks() -> None:
    assert BOOLEAN not in kernel_of(adds, "float64").declares
    assert verdicts(adds)["kernel-boolean-mask"] is Verdict.UPHELD
