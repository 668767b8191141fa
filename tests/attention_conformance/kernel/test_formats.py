"""A kernel is tested in each number format that it accepts, and the report names the other formats."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attention_conformance.kernel.check import verify_kernel
from attention_conformance.kernel.kernel_loader import kernel_of
from attention_conformance.kernel.kernel_source import KernelSource
from attention_conformance.kernel.operators import attention_operators
from attention_conformance.kernel.report import headline, kernel_json
from attention_conformance.kernel.results_table import summary
from examples.kernels import handwritten
from theorems.core.claim import Verdict
from theorems.run.session import Request, Session
from theorems.run.statement_unit import Unit

SDPA = torch.nn.functional.scaled_dot_product_attention
COARSER = ("float32", "bfloat16", "float16")


def wrong_in(dtype: torch.dtype) -> Any:
    """Return a kernel whose output is too large by 2 % on tensors of the given dtype, and right on others."""

    def kernel(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        output = handwritten(query, keys, values)
        return output * 1.02 if query.dtype == dtype else output

    return kernel


def no_float16(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    if query.dtype == torch.float16:
        raise TypeError("float16 is not supported")
    return handwritten(query, keys, values)


@pytest.mark.parametrize("name", COARSER)
def test_a_kernel_wrong_in_one_format_is_falsified_only_in_that_format(name: str) -> None:
    ids = ["kernel-output", *(f"kernel-{coarser}" for coarser in COARSER)]
    results = verify_kernel(wrong_in(getattr(torch, name)), statements=ids, examples=6)
    falsified = [result.id for result in results if result.verdict is Verdict.FALSIFIED]
    assert falsified == [f"kernel-{name}"]
    [failure] = [result.failure for result in results if result.failure]
    assert "output at" in failure.line


@pytest.mark.parametrize("kernel", [handwritten, SDPA])
def test_right_kernels_are_upheld_in_every_format(kernel: Any) -> None:
    results = verify_kernel(kernel, statements=[f"kernel-{coarser}" for coarser in COARSER], examples=12)
    assert [result.verdict for result in results] == [Verdict.UPHELD] * 3


def test_a_format_that_is_not_accepted_is_named() -> None:
    kernel = kernel_of(no_float16)
    assert kernel.coarser == ("float32", "bfloat16")
    assert "float16 is not supported" in kernel.not_tried["float16"]
    results = verify_kernel(no_float16, statements=["kernel-output", "kernel-float16"], examples=3)
    assert [result.verdict for result in results] == [Verdict.UPHELD, Verdict.NOT_APPLICABLE]
    assert "float16 is not supported" in results[1].reason
    assert "not tried in float16" in summary(results, kernel_json(kernel))


def test_a_requested_format_is_the_only_one_tested() -> None:
    kernel = kernel_of(handwritten, "float32")
    assert kernel.coarser == ()
    assert set(kernel.not_tried) == {"bfloat16", "float16"}
    results = verify_kernel(handwritten, statements=["kernel-bfloat16"], examples=3, dtype="float32")
    assert results[0].verdict is Verdict.NOT_APPLICABLE
    assert "--dtype auto" in results[0].reason


def test_the_report_names_number_formats_and_the_pytorch_operators_called() -> None:
    kernel = kernel_of(SDPA)
    assert "every pair of options in float32, bfloat16, float16" in headline(kernel)
    assert "scaled_dot_product_attention: this tests PyTorch's code" in headline(kernel)
    assert kernel_json(kernel)["formats"] == dict.fromkeys(("float64", *COARSER), "tried")
    assert attention_operators(kernel_of(handwritten)) == ()
    assert "PyTorch's" not in headline(kernel_of(handwritten))


def test_every_pair_of_options_is_tried_even_if_this_takes_more_calls_than_requested() -> None:
    """The run requests 25 examples, but every pair of options takes more calls; another process makes them all."""
    assert Unit("kernel-output", 25, 0, urgency=1).total is None
    assert Unit("lemma-3", 25, 0).total == 25
    under_test = KernelSource("examples.kernels:handwritten", "float64")
    [result] = Session(Request(("kernel-exact-weights",), 25, under_test=under_test)).finish().results
    assert result.verdict is Verdict.UPHELD
    assert result.examples > 26
