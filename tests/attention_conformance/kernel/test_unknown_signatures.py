"""Signatures of no known library: small calls find out how to call right kernels, and faults are caught."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

from attention_conformance.kernel.kernel_loader import kernel_named, kernel_of
from attention_conformance.kernel.report import headline
from tests.attention_conformance.kernel.signatures import SIGNATURES, Signature, attend, sdpa
from tests.attention_conformance.kernel.test_interfaces import CALLS, STEP, falsified
from tests.attention_conformance.kernel.unknown_signatures import READ

cases = pytest.mark.parametrize("signature", READ.values(), ids=list(READ))


@cases
def test_a_right_kernel_is_neither_refused_nor_misread_nor_falsified(signature: Signature) -> None:
    kernel = kernel_of(signature.make(attend))
    assert kernel.interface.name == signature.interface
    assert {*signature.claims} <= kernel.declares
    assert not list(falsified(kernel, CALLS // 2, step=2 * STEP, optional=True))


@cases
def test_a_fault_is_caught_under_every_signature(signature: Signature) -> None:
    assert any(falsified(kernel_of(signature.make(signature.fault)), 2 * CALLS, optional=True))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("paddle", "tensors are (B, L, H, E); attn_mask: True shows a key; attn_mask: is added to the logits"),
        ("Megatron", "tensors are (L, B, H, E); attention_mask: True hides a key"),
        ("true hides", "tensors are (B, H, L, E); attn_mask: True hides a key"),
        ("of keys alone", "tensors are (B, H, L, E); mask: True shows a key, of shape (B, T)"),
        ("hf flash", "tensors are (B, H, L, E); its output is (B, L, H, E); attention_mask: True shows a key"),
        ("nanoGPT", "tensors are (B, H, L, E); every call is causal"),
    ],
)
def test_the_report_describes_what_small_calls_found_out(name: str, message: str) -> None:
    assert f"found out by small calls: {message}" in headline(kernel_of(READ[name].make(attend)))


def test_arguments_passed_in_every_call_are_described() -> None:
    assert "given in every call: input_layout='BSND'" in headline(kernel_of(READ["npu"].make(attend)))


def into_nothing(q: Tensor, k: Tensor, v: Tensor, mask: Any = None, causal: bool = False) -> Tensor:
    """Accept a mask and causality, and ignore both."""
    return attend(q, k, v, scale=None)[0]


def always_causal(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, is_causal: bool = False) -> Tensor:
    """Return causal attention even if ``is_causal`` is False."""
    return attend(query, key, value, scale=None, mask=attn_mask, causal=True)[0]


def inverted(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False
) -> Tensor:
    """Hide keys where a boolean mask is True, although with PyTorch's parameter names True shows a key."""
    hides = attn_mask is not None and attn_mask.dtype == torch.bool
    return attend(query, key, value, scale=None, mask=~attn_mask if hides else attn_mask, causal=is_causal)[0]


@pytest.mark.parametrize("kernel", [into_nothing, always_causal, inverted])
def test_a_fault_is_not_read_as_a_convention(kernel: Any) -> None:
    assert any(falsified(kernel_of(kernel), 2 * CALLS, optional=True))


def with_changed(change: Any) -> Any:
    """Return a core that replaces its mask, brought to four axes, by ``change(mask)``."""

    def core(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        mask = options.get("mask")
        whole = None if mask is None else mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape))
        return attend(q, k, v, **options | {"mask": whole if whole is None else change(whole)})

    return core


CHANGED = {
    "first head": lambda mask: mask[:, :1],
    "first entry": lambda mask: mask[:1],
    "first row": lambda mask: mask[..., :1, :],
    "all booleans are true": lambda mask: mask | True if mask.dtype == torch.bool else mask,
}


@pytest.mark.parametrize(
    ("signature", "change"),
    [
        (SIGNATURES["torch"], "all booleans are true"),
        (SIGNATURES["gpt2"], "first entry"),
        (SIGNATURES["gpt2"], "first row"),
        (READ["paddle"], "first head"),
        (READ["paddle"], "all booleans are true"),
        (READ["LLaMA"], "first entry"),
        (READ["bias and mask"], "first row"),
    ],
)
def test_a_kernel_that_reads_only_part_of_a_mask_is_not_taken_for_one_with_smaller_masks(
    signature: Any, change: str
) -> None:
    kernel = kernel_of(signature.make(with_changed(CHANGED[change])))
    assert {"boolean-mask", "additive-mask"} <= kernel.declares
    assert any(falsified(kernel, 2 * CALLS, optional=True))


def test_one_mask_for_all_heads_is_accepted_as_in_transformers() -> None:
    kernel = kernel_of(SIGNATURES["gpt2"].make(with_changed(CHANGED["first head"])))
    assert "attention_mask: True shows a key, of shape (B, 1, L, T)" in headline(kernel)
    assert not list(falsified(kernel, optional=True))


def test_a_kernel_that_is_always_causal_is_falsified() -> None:
    def core(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        return attend(q, k, v, **options | {"causal": True})

    assert any(falsified(kernel_of(READ["paddle"].make(core)), 2 * CALLS, optional=True))


def test_signatures_that_fit_an_interface_are_called_through_it() -> None:
    names = {name: kernel_of(signature.make(attend)).interface.name for name, signature in SIGNATURES.items()}
    assert names == {name: signature.interface for name, signature in SIGNATURES.items()}


def test_what_small_calls_found_out_about_a_kernel_is_pickled_with_it() -> None:
    kernel = kernel_named(f"{__name__}:into_nothing")
    again = pickle.loads(pickle.dumps(kernel))
    assert again.reading == kernel.reading
    assert again.interface.name == "by-name"
    assert again.interface.declared_capabilities(again.parameters) >= {"boolean-mask", "causal", "causal-rectangle"}


def test_the_interface_by_name_can_be_requested_for_a_known_signature() -> None:
    kernel = kernel_of(sdpa(attend), interface="by-name")
    assert {"boolean-mask", "additive-mask", "causal", "scale", "default-scale"} <= kernel.declares
    result = kernel.run(kernel.request(_call(), _tensors(), {}))
    assert torch.equal(result.output, sdpa(attend)(*_tensors().values(), scale=1.0))


def _call() -> Any:
    from attention_conformance.kernel.contract import small_call

    return small_call(L=3)


def _tensors() -> dict[str, Tensor]:
    return {name: torch.tensor(getattr(_call(), name)) for name in ("query", "key", "value")}
