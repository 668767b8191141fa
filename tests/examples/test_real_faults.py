"""The gallery of real faults: each kernel is wrong where its docstring says, and only there; and which faults a common
test finds.
"""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from examples.real_faults import common_test
from examples.real_faults.attention import Tiled, tiled, tiled_plain, tiled_sdpa, wrong_step
from examples.real_faults.common_test import failures, gaussian_check, interface_of
from examples.real_faults.gallery import EVERY_GRADIENT, EVERY_NUMBER, GALLERY, RIGHT, TILED_FAULTS, Shape, TiledFault
from examples.real_faults.softmax_and_strides import read_on
from tests.places import ROOT

BY_NAME = {fault.name: fault for fault in TILED_FAULTS}
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
each_fault = pytest.mark.parametrize("fault", TILED_FAULTS, ids=lambda fault: fault.name)
ROUNDING = 1e-12
"""Difference up to which two numbers differ only by rounding: in float64, 300 terms of size 10 have an error of
7e-13.
"""
VISIBLE = 5e-4
"""Difference above which a number is wrong; rounding stays below, since half precisions are computed in float32 and
rounded alike.
"""


def tensors(fault: TiledFault, shape: Shape, dtype: torch.dtype) -> list[Tensor]:
    """Return query, key, value and an upstream gradient in the layout of the fault's interface."""
    generator = torch.Generator().manual_seed(0)
    at, keys = (shape.heads, shape.queries), (shape.key_heads, shape.keys)
    q, k, v, upstream = (
        torch.randn(shape.batch, *sizes, shape.width, generator=generator, dtype=torch.float64)
        for sizes in (at, keys, keys, at)
    )
    q, k = q + fault.means[0], k + fault.means[1]
    if fault.rising:
        q, k = q.abs(), k.sort(dim=-2).values
    if fault.transposed:
        v = in_memory_as(v.transpose(1, 2)).transpose(1, 2)
    given = [x.to(dtype) for x in (q, k, v, upstream)]
    return [in_memory_as(x.transpose(1, 2)) for x in given] if interface_of(fault.kernel) == "flash" else given


def in_memory_as(x: Tensor) -> Tensor:
    """Return a copy with the strides of its shape, also on axes of length 1, which ``contiguous`` leaves unchanged."""
    return x.clone(memory_format=torch.contiguous_format)


def numbers(
    kernel: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, upstream: Tensor, options: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Return output and gradients, and the log-sum-exp if the kernel has one."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    always = {"sdpa": {"enable_gqa": True}, "flash": {"return_lse": True}, "plain": {}}[interface_of(kernel)]
    result = kernel(*leaves, **always, **options)
    out, *lse = result if isinstance(result, tuple) else (result,)
    gradients = dict(zip(EVERY_GRADIENT, torch.autograd.grad(out, leaves, upstream), strict=True))
    return {"out": out.detach(), **gradients} | ({"lse": lse[0]} if lse else {})


def errors(fault: TiledFault, shape: Shape, dtype: torch.dtype = torch.float64) -> dict[str, float]:
    """Return the largest error of each result against that of a right kernel, or ∞ where only one of the two is
    finite.
    """
    given = tensors(fault, shape, dtype)
    options = dict(fault.options)
    if "attn_mask" in options:
        options["attn_mask"] = options["attn_mask"][:, : shape.keys]
    result, right = (numbers(kernel, *given, options) for kernel in (fault.kernel, fault.right))
    apart = {name: (result[name].double() - right[name].double()).abs() for name in result}
    same = {name: result[name] == right[name] for name in result}
    return {name: float(apart[name].nan_to_num(torch.inf).where(~same[name], 0).max()) for name in result}


def wrong_numbers(found: Mapping[str, float]) -> set[str]:
    """Return the names of wrong results; assert that every other result is right up to rounding."""
    assert not {name: error for name, error in found.items() if ROUNDING < error <= VISIBLE}
    return {name for name, error in found.items() if error > VISIBLE}


# ---- the faults ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@each_fault
def test_a_fault_shows_on_its_smallest_call_in_every_precision(fault: TiledFault, dtype: torch.dtype) -> None:
    result = errors(fault, fault.smallest, dtype)
    assert {name for name, error in result.items() if error > VISIBLE} == set(fault.wrong)
    assert wrong_numbers(errors(fault, fault.smallest)) == set(fault.wrong)


SMALLER = [
    (fault, less)
    for fault in TILED_FAULTS
    for size in fields(Shape)
    if (n := getattr(fault.smallest, size.name)) > 1
    and (less := replace(fault.smallest, **{size.name: n - 1})).heads % less.key_heads == 0
]


@pytest.mark.parametrize(("fault", "less"), SMALLER, ids=lambda x: x.name if isinstance(x, TiledFault) else str(x))
def test_a_fault_does_not_show_on_a_smaller_call(fault: TiledFault, less: Shape) -> None:
    assert not wrong_numbers(errors(fault, less))


def test_most_faults_have_a_smaller_call_on_which_they_do_not_show() -> None:
    assert {fault.name for fault in TILED_FAULTS} - {fault.name for fault, _ in SMALLER} == {
        "finite_first_maximum",
        "constant_for_maximum",
        "lse_in_base_two",
    }


@dataclass(frozen=True)
class On:
    """A call, its changes from the gallery's call, and the numbers that are wrong on it."""

    name: str
    shape: Shape
    other: Mapping[str, Any] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()


CAUSAL = {"options": {"is_causal": True}}
LONG = Shape(2, 4, 2, 9, 70, 16)
CALLS = [
    On("finite_first_maximum", LONG, {"means": (0, 0)}),
    On("finite_first_maximum", Shape(), {"means": (-200, 200)}),
    On("finite_first_maximum", LONG, {"means": (-100, 100)}, (*EVERY_NUMBER, "lse")),
    On("sum_not_corrected", Shape(2, 2, 2, 5, 32, 4)),
    On("constant_for_maximum", LONG, {"means": (0, 0)}),
    On("constant_for_maximum", LONG, {"means": (0, 0), "options": {"attn_mask": torch.arange(70)[None, :] < 40}}),
    On("lse_scaled_twice", replace(LONG, keys=32), wrong=("lse",)),
    On("lse_scaled_twice", LONG, wrong=(*EVERY_NUMBER, "lse")),
    On("lse_scaled_twice", LONG, {"options": {"softmax_scale": 1.0}}),
    On("tail_of_last_block", Shape(2, 4, 2, 8, 40, 64), wrong=EVERY_NUMBER),
    On("tail_of_last_block", Shape(2, 4, 2, 8, 64, 64)),
    On("tail_of_last_block", Shape(2, 4, 2, 9, 40, 64)),
    On("tail_of_last_block", Shape(2, 4, 2, 5, 4, 64)),
    On("tail_of_last_block", Shape(2, 4, 2, 8, 40, 32)),
    On("tail_of_last_block", Shape(2, 4, 2, 8, 40, 64), CAUSAL),
    On("backward_always_causal", LONG, wrong=EVERY_GRADIENT),
    On("backward_always_causal", LONG, CAUSAL),
    On("dq_of_a_batch", Shape(2, 2, 2, 5, 40, 256), wrong=("dq",)),
    On("dq_of_a_batch", Shape(2, 2, 2, 5, 40, 256), {"means": (0, 0)}),
    On("dq_of_a_batch", Shape(2, 2, 2, 70, 70, 256), {"means": (0, 0), "options": {"causal": True}}),
    On("dq_of_a_batch", Shape(2, 2, 2, 5, 40, 128)),
    On("dq_of_a_batch", Shape(1, 2, 2, 5, 40, 256)),
    On("backward_without_mask", LONG, {"options": {"attn_mask": torch.arange(70)[None, :] < 40}}, EVERY_GRADIENT),
    On("backward_without_mask", LONG, {"options": {"attn_mask": torch.arange(70.0)[None, :] / 9}}, EVERY_GRADIENT),
    On("backward_without_mask", LONG, CAUSAL),
    On("heads_by_remainder", LONG, wrong=("dk", "dv")),
    On("heads_by_remainder", replace(LONG, key_heads=4)),
    On("heads_by_remainder", replace(LONG, key_heads=1)),
    On("causal_once_in_four", LONG, wrong=EVERY_NUMBER),
    On("causal_once_in_four", LONG, {"options": {}}),
    On("window_sees_future", LONG, {"options": {"window_size": (3, 0)}}, (*EVERY_NUMBER, "lse")),
    On("window_sees_future", LONG, {"options": {"window_size": (3, 2)}}),
    On("window_sees_future", LONG, {"options": {"window_size": (3, 0), "causal": True}}),
    On("output_strides", Shape(2, 4, 2, 8, 70, 4), wrong=EVERY_NUMBER),
    On("output_strides", Shape(2, 4, 2, 9, 70, 4)),
    On("output_strides", Shape(2, 1, 1, 8, 70, 4)),
    On("value_strides", LONG, wrong=EVERY_NUMBER),
    On("value_strides", LONG, {"transposed": False}),
    On("mask_of_ten_thousand", LONG, {"options": {"attn_mask": torch.arange(70)[None, :] < 40}, "means": (0, 0)}),
    On("mask_of_ten_thousand", LONG, {"options": {"is_causal": True}}),
    On("window_ignored", LONG, {"options": {"window_size": (3, 2)}}, (*EVERY_NUMBER, "lse")),
    On("window_ignored", LONG, {"options": {"window_size": (3, 2), "causal": True}}),
    On("backward_other_corner", LONG, wrong=EVERY_GRADIENT),
    On("backward_other_corner", replace(LONG, queries=70)),
    On("backward_other_corner", LONG, {"options": {}}),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_a_kernel_of_the_gallery_is_wrong_only_where_its_docstring_says(call: On) -> None:
    assert wrong_numbers(errors(replace(BY_NAME[call.name], **call.other), call.shape)) == set(call.wrong)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("queries", [1, 8])
def test_faults_of_strides_show_only_in_one_layout(queries: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, n, 4, 6, generator=generator).to(dtype) for n in (queries, 8, 8))
    transposed = [in_memory_as(x.transpose(1, 2)).transpose(1, 2) for x in (q, k, v)]
    flash, sdpa = BY_NAME["output_strides"].kernel, BY_NAME["value_strides"].kernel
    assert not torch.allclose(flash(q, k, v), tiled(q, k, v))
    assert torch.equal(flash(*transposed), tiled(q, k, v))
    q, k, v = (x.transpose(1, 2) for x in transposed)
    right = tiled_sdpa(q, k, v)
    assert not torch.allclose(sdpa(q, k, in_memory_as(v.transpose(1, 2)).transpose(1, 2)), right)
    sliced = torch.stack([v, v], dim=-1)[..., 0]
    assert not sliced.is_contiguous()
    assert torch.equal(sdpa(q, k, sliced), right)
    one_for_all = v[:, :1].expand_as(v)
    assert torch.equal(sdpa(q, k, one_for_all), tiled_sdpa(q, k, in_memory_as(one_for_all)))


def test_rows_that_see_no_key_are_as_the_docstrings_say() -> None:
    one = torch.ones(1, 1, 2, 3, dtype=torch.float64)
    hidden = torch.zeros(2, 2, dtype=torch.bool)
    values = torch.arange(6.0, dtype=torch.float64).reshape(1, 1, 2, 3)
    assert not tiled_sdpa(one, one, values, attn_mask=hidden).any()
    all_keys = BY_NAME["mask_of_ten_thousand"].kernel(one, one, values, attn_mask=hidden)
    torch.testing.assert_close(all_keys, values.mean(dim=-2, keepdim=True).expand_as(values))
    _, lse = BY_NAME["finite_first_maximum"].kernel(
        one, one, one, 0.5, window_size=(-1, -1), causal=True, return_lse=True
    )
    assert lse.isfinite().all()
    nothing = one[:, :, :0].transpose(1, 2), one[:, :, :0].transpose(1, 2)
    _, lse = BY_NAME["finite_first_maximum"].kernel(one.transpose(1, 2), *nothing, 0.5, return_lse=True)
    assert lse.unique().tolist() == [-5e4 * 0.5]


def test_the_kernel_that_reads_too_far_uses_the_memory_behind_the_tensor() -> None:
    x = torch.arange(2 * 3 * 30.0).reshape(2, 3, 30, 1)
    longer = read_on(x)
    assert longer.shape == (2, 3, 32, 1)
    assert longer[0, 1, :, 0].tolist() == list(range(30, 62))
    assert longer[1, 2, -2:, 0].tolist() == [0, 0]


# ---- the gallery -----------------------------------------------------------------------------------------


def test_every_fault_of_a_file_is_in_the_gallery_and_cites_its_thread() -> None:
    written = {
        f"examples.real_faults.{path.stem}:{name}"
        for path in (ROOT / "examples" / "real_faults").glob("*.py")
        for name in re.findall(r"^@wrong_step.*\ndef (\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert {f"{fault.kernel.__module__}:{fault.name}" for fault in GALLERY} == written
    assert len({fault.name for fault in GALLERY}) == len(GALLERY) == 44
    assert len(TILED_FAULTS) == 17
    unreported = [
        item.name for item in GALLERY if not re.fullmatch(r"[\w.-]+/[\w.-]+( PR)? #\d+(, #\d+)*", item.thread)
    ]
    assert unreported == []


@pytest.mark.parametrize("kernel", [*(fault.kernel for fault in GALLERY), *RIGHT], ids=lambda kernel: kernel.__name__)
def test_each_kernel_of_the_gallery_is_found_by_name(kernel: Callable[..., Any]) -> None:
    assert pickle.loads(pickle.dumps(kernel)) is kernel
    assert kernel.__doc__


def test_replacing_a_step_that_the_tiled_kernel_does_not_have_is_refused() -> None:
    with pytest.raises(AttributeError, match="Tiled has no step bakward"):
        wrong_step(lambda steps, name: steps, Tiled, "bakward")(lambda self: None)


@each_fault
def test_a_fault_has_the_signature_of_a_right_kernel(fault: TiledFault) -> None:
    assert fault.right in (tiled, tiled_sdpa, tiled_plain)
    assert interface_of(fault.kernel) == interface_of(fault.right)
    assert str(inspect.signature(fault.kernel)) == str(inspect.signature(fault.right))


# ---- common practice -------------------------------------------------------------------------------------

USUAL = {"sum_not_corrected", "lse_scaled_twice", "backward_always_causal", "causal_once_in_four"}
"""Faults that a comparison on Gaussian tensors finds, with and without a causal mask."""
BY_OPTION = {"backward_without_mask", "heads_by_remainder", "window_sees_future", "window_ignored", "lse_in_base_two"}
"""Faults that the comparison finds only if every option is tried."""


def test_a_common_test_finds_few_faults_and_a_test_of_every_option_half_of_them() -> None:
    failed = {fault.name: failures(fault.kernel) for fault in TILED_FAULTS}
    assert {name for name, options in failed.items() if {"", "causal"} & set(options)} == USUAL
    assert {name for name, options in failed.items() if options} == USUAL | BY_OPTION


def test_the_common_test_finds_the_same_faults_in_bfloat16() -> None:
    assert {fault.name for fault in TILED_FAULTS if not gaussian_check(fault.kernel, torch.bfloat16)} == USUAL


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_right_kernels_pass_the_common_test(dtype: torch.dtype) -> None:
    for kernel in (tiled, tiled_sdpa, torch_sdpa):
        assert gaussian_check(kernel, dtype)
        assert not failures(kernel, dtype)


def torch_sdpa(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask, is_causal=is_causal)


def test_the_common_test_tries_only_options_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert failures(lambda query, key, value: torch.zeros_like(query) * (query + key + value)) == [""]
    monkeypatch.setattr(common_test, "TILED_FAULTS", TILED_FAULTS[:1])
    assert common_test.table().splitlines() == [
        "| kernel | float32 | bfloat16 | float32, every option |",
        "|---|---|---|---|",
        "| finite_first_maximum | passes | passes | passes |",
        "| tiled | passes | passes | passes |",
        "| tiled_sdpa | passes | passes | passes |",
    ]
