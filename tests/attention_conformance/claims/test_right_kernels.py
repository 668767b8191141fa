"""Right kernels are upheld in each capability that they have, in every number format; others do not apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from attention_conformance.kernel.check import verify_kernel
from examples.real_faults.attention import tiled, tiled_sdpa
from theorems.core.claim import Verdict
from theorems.run.registry.suite import capabilities

SDPA = torch.nn.functional.scaled_dot_product_attention
OF_OTHERS = {
    f"kernel-{name}" for name in ("alibi", "log-sum-exp-gradient", "paged-keys", "parameters", "ragged-batch")
} | {f"kernel-{name}" for name in ("batch-invariance", "fp8-descale", "longer-masks")}
OF_OTHERS |= {"kernel-sinks", "kernel-splits"}
"""The ids of the capabilities that none of the kernels in :data:`NOT_DECLARED` has."""
COARSER = {"kernel-float32", "kernel-bfloat16", "kernel-float16"}
"""The ids of the statements about coarser number formats, which do not apply if one format is requested."""
OF_MASKS = {f"kernel-{name}" for name in ("boolean-mask", "additive-mask", "empty-rows", "bias-gradient", "dropout")}
OF_FLASH = {f"kernel-{name}" for name in ("softcap", "log-sum-exp", "window")}
NOT_DECLARED = {
    tiled: OF_OTHERS | OF_MASKS,
    tiled_sdpa: OF_OTHERS | OF_FLASH | {"kernel-dropout", "kernel-bias-gradient"},
    SDPA: OF_OTHERS | OF_FLASH,
}
EXAMPLES = {"float64": 5, "float32": 3, "bfloat16": 3, "float16": 3}


@pytest.mark.parametrize("dtype", [pytest.param("float64", marks=pytest.mark.compiler), *list(EXAMPLES)[1:]])
@pytest.mark.parametrize("kernel", NOT_DECLARED, ids=lambda kernel: kernel.__name__)
def test_each_capability_of_a_right_kernel_is_upheld(kernel: Callable[..., Any], dtype: str) -> None:
    results = verify_kernel(kernel, statements=list(capabilities()), examples=EXAMPLES[dtype], dtype=dtype)
    verdicts = {result.id: result.verdict for result in results}
    others = NOT_DECLARED[kernel] | COARSER | (set() if dtype == "float64" else {"kernel-compiled"})
    asked = {id: Verdict.UPHELD for id in capabilities() if id not in others}
    assert verdicts == asked | dict.fromkeys(others, Verdict.NOT_APPLICABLE)
    assert all(1 <= result.examples <= EXAMPLES[dtype] for result in results if result.id in asked)
    assert all(result.touched == ("attend",) for result in results if result.id in asked)


def test_without_a_backward_pass_only_gradients_are_not_applicable() -> None:
    def detached(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return SDPA(query, key, value, scale=1.0).detach()

    results = verify_kernel(detached, statements=["kernel-output", "kernel-memory", "kernel-gradients"], examples=25)
    assert [str(result.verdict) for result in results] == ["upheld", "upheld", "not-applicable"]
    assert "backward pass" in results[2].reason
    names = [claim.name for claim in results[1].claims]
    assert names == ["inputs-are-unchanged", "settings-are-unchanged", "output-is-attention"]
