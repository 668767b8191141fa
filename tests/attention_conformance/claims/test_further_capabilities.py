"""Capabilities of special parameters (sinks, lengths, pages, …): right kernels are upheld, faulty ones falsified."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attention_conformance.claims.call_shrinker
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.claims.agreement import GRADIENTS
from attention_conformance.claims.call_claims import SINK_GRADIENT, WEIGHTS, examine
from attention_conformance.claims.second_calls import RESCALED
from attention_conformance.kernel.check import verify_kernel
from attention_conformance.kernel.kernel_loader import kernel_of
from attention_conformance.kernel.report import headline
from examples.real_faults.attention import Kernel
from examples.real_faults.caches import right_kvcache
from examples.real_faults.gallery import FURTHER_FAULTS, RIGHT, FurtherFault
from examples.real_faults.ragged import right_varlen
from examples.real_faults.rows import right_rows
from examples.real_faults.transformers_functions import Eager, right_eager, with_eager
from reference_attention.errors import InvalidInput
from theorems.core.claim import Verdict

OWN = {
    "right_rows": ("sinks", "alibi", "log-sum-exp-gradient"),
    "right_bias": ("bias-gradient",),
    "right_varlen": ("ragged-batch",),
    "right_kvcache": ("ragged-batch", "splits", "paged-keys"),
    "right_eager": ("sinks", "longer-masks", "dropout"),
    "right_batch": ("batch-invariance",),
    "right_factors": ("fp8-descale",),
}
EXAMPLES = {"float64": 6, "float32": 4, "bfloat16": 3, "float16": 3}
INTERFACES = {
    "right_varlen": "flash-varlen",
    "right_kvcache": "flash-kvcache",
    "right_eager": "hf",
}
each_right_kernel = pytest.mark.parametrize("right", RIGHT, ids=lambda right: right.__name__)


@pytest.fixture(autouse=True)
def _little_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_conformance.claims.call_shrinker, "TRIALS", 6)


@pytest.mark.parametrize("dtype", EXAMPLES)
@each_right_kernel
def test_right_kernels_are_upheld(right: Kernel, dtype: str) -> None:
    """Test output, gradients and the capabilities that :data:`OWN` lists for the kernel."""
    ids = [f"kernel-{item}" for item in ("output", "gradients", *OWN[right.__name__])]
    results = verify_kernel(right, statements=ids, examples=EXAMPLES[dtype], dtype=dtype)
    assert {result.id: result.verdict for result in results} == dict.fromkeys(ids, Verdict.UPHELD)


@each_right_kernel
def test_special_capabilities_of_a_kernel_are_recognised(right: Kernel) -> None:
    kernel = kernel_of(right, "float64")
    assert {*OWN[right.__name__]} <= kernel.declares
    assert kernel.interface.name == INTERFACES.get(right.__name__, kernel.interface.name)


@pytest.mark.parametrize("fault", FURTHER_FAULTS, ids=lambda fault: fault.name)
def test_each_fault_falsifies_the_capability_that_the_gallery_names(fault: FurtherFault) -> None:
    id = f"kernel-{fault.capability}"
    (result,) = verify_kernel(fault.kernel, statements=[id], examples=20, dtype="float64")
    assert result.verdict is Verdict.FALSIFIED, result.reason
    falsified = {claim.name for claim in result.claims if claim.verdict is Verdict.FALSIFIED}
    # Which results are compared first is drawn at random, so another claim may fail in place of the fault's own.
    assert falsified & {fault.claim, SINK_GRADIENT, WEIGHTS, RESCALED, *GRADIENTS}
    assert fault.right in RIGHT
    assert fault.capability in (
        *OWN[fault.right.__name__],
        "grouped-heads",
        "output",
        "gradients",
    )  # some faults show in calls without the special parameter, too


@pytest.mark.parametrize(
    "name",
    [
        *("lse_not_differentiated", "sink_counted_twice", "alibi_sign", "pages_in_a_row"),
        *("sinks_dropped", "splits_by_batch", "descales_dropped"),
    ],
)
def test_faults_are_caught_in_float32(name: str) -> None:
    fault = next(item for item in FURTHER_FAULTS if item.name == name)
    id = f"kernel-{fault.capability}"
    (result,) = verify_kernel(fault.kernel, statements=[id], examples=20, dtype="float32")
    assert result.verdict is Verdict.FALSIFIED, result.reason


def test_each_special_capability_has_two_faulty_kernels_in_the_gallery() -> None:
    """Count the faulty kernels in the gallery for each capability in :data:`OWN`."""
    count = {name: 0 for names in OWN.values() for name in names}
    for fault in FURTHER_FAULTS:
        count[fault.capability] = count.get(fault.capability, 0) + 1
    assert min(count[name] for names in OWN.values() for name in names) >= 2


def test_a_log_sum_exp_detached_from_autograd_is_not_tested_for_a_gradient() -> None:
    """flash-attention's maintainers propose to detach the log-sum-exp, so a kernel that does so is right."""

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, return_lse: bool = False) -> Any:
        out, lse = right_rows(q, k, v, return_lse=True)
        return (out, lse.detach()) if return_lse else out

    assert "log-sum-exp-gradient" not in kernel_of(attention, "float64").declares


@pytest.mark.parametrize("right", [right_varlen, right_kvcache])
def test_batch_entries_without_keys_are_tested(right: Kernel) -> None:
    """Results of such calls are compared; the kernel does not refuse the calls."""
    under_test = kernel_of(right, "float64").as_implementation()
    call = tensors(Sizes(B=3, H=2, G=2, L=3, T=5, E=4, M=4), Numbers.NORMAL, seed=0)
    lengths = np.array([[3, 0], [3, 5], [0, 2]])
    claims = list(examine(call.replace(lengths=lengths, log_sum_exp=True), under_test))
    assert {claim.name for _, claim in claims} >= {"output-is-attention", *GRADIENTS}
    assert {claim.verdict for _, claim in claims} == {Verdict.UPHELD}


def test_masks_are_only_as_long_as_the_keys_if_a_kernel_refuses_longer_ones() -> None:
    """Eager functions of current transformers refuse masks longer than the keys. If a kernel accepts them, the report
    says that only the first columns count.
    """

    def attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float) -> Any:
        if attention_mask is not None and attention_mask.shape[-1] != key.shape[2]:
            raise ValueError("a column for each key")
        return right_eager(module, query, key, value, attention_mask, scaling)

    assert "longer-masks" not in kernel_of(attention, "float64").declares
    assert "first columns" in headline(kernel_of(right_eager, "float64"))
    assert "first columns" not in headline(kernel_of(attention, "float64"))


def test_a_kernel_that_drops_weights_in_evaluation_is_refused() -> None:
    """The module's dropout is applied in evaluation as well as in training (facebookresearch/vjepa2 PR #160)."""

    class Steps(Eager):
        def drop(self, weights: torch.Tensor, share: float, module: Any) -> torch.Tensor:
            return torch.nn.functional.dropout(weights, p=module.attention_dropout)

    with pytest.raises(InvalidInput, match=r"different numbers for the same tensors.*switch off dropout"):
        kernel_of(with_eager(Steps), "float64")


@pytest.mark.parametrize("dtype", EXAMPLES)
@pytest.mark.parametrize(("left", "verdict"), [(1.0, Verdict.UPHELD), (8.0, Verdict.FALSIFIED)])
def test_weights_returned_under_dropout_are_those_after_dropout(left: float, verdict: Verdict, dtype: str) -> None:
    def attention(
        module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float, dropout: float = 0.0
    ) -> Any:
        out, weights = right_eager(module, query, key, value, attention_mask, scaling, dropout)
        return out, weights * left if module.training else weights

    under_test = kernel_of(attention, dtype).as_implementation()
    call = tensors(Sizes(B=2, H=2, G=1, L=3, T=5, E=4, M=5), Numbers.NORMAL, seed=0)
    call = call.replace(value=np.broadcast_to(np.eye(5), call.value.shape).copy(), dropout=0.5)
    (result,) = (claim for _, claim in examine(call, under_test) if claim.name == WEIGHTS)
    assert result.verdict is verdict
