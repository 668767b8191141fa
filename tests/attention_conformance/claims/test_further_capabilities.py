"""Capabilities of special parameters (sinks, lengths, pages, …): right kernels are upheld, faulty ones falsified."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attention_conformance.claims.call_shrinker
from attention_conformance.calls.attention_call import Alignment
from attention_conformance.calls.further_tensors import with_values_in_keys
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.claims.agreement import GRADIENTS
from attention_conformance.claims.call_claims import NEUTRAL, SINK_GRADIENT, WEIGHTS, examine
from attention_conformance.claims.second_calls import RESCALED
from attention_conformance.kernel.check import verify_kernel
from attention_conformance.kernel.kernel_loader import kernel_of
from attention_conformance.kernel.report import headline
from examples.real_faults.attention import Kernel
from examples.real_faults.caches import right_flash_mla, right_kvcache, right_latent
from examples.real_faults.gallery import FORCED, FURTHER_FAULTS, RIGHT, FurtherFault
from examples.real_faults.log_sum_exp import merge_of_nothing, right_combine, right_merge_state
from examples.real_faults.masks import causal_loop_of_queries, causal_of_few_keys, causal_of_long_queries
from examples.real_faults.ragged import right_varlen
from examples.real_faults.rows import right_mlx, right_rows
from examples.real_faults.transformers_functions import Eager, right_eager, with_eager
from reference_attention.errors import InvalidInput
from theorems.core.claim import Verdict

OWN = {
    "right_rows": ("sinks", "alibi", "log-sum-exp-gradient"),
    "right_bias": ("bias-gradient",),
    "right_varlen": ("ragged-batch",),
    "right_kvcache": ("ragged-batch", "splits", "paged-keys"),
    "right_merge_state": ("merged-parts",),
    "right_combine": ("merged-parts",),
    "right_eager": ("sinks", "longer-masks", "dropout"),
    "right_flex": ("score-mod", "mask-mod"),
    "right_batch": ("batch-invariance",),
    "right_factors": ("fp8-descale",),
    "right_nested": ("ragged-batch",),
    "right_latent": ("shared-keys-values", "ragged-batch", "paged-keys"),
    "right_mlx": ("causal-rectangle",),
    "right_flash_mla": ("shared-keys-values", "ragged-batch", "paged-keys"),
}
EXAMPLES = {"float64": 6, "float32": 4, "bfloat16": 3, "float16": 3}
INTERFACES = {
    "right_varlen": "flash-varlen",
    "right_kvcache": "flash-kvcache",
    "right_merge_state": "merge-state",
    "right_eager": "hf",
    "right_flex": "flex",
    "right_latent": "mla",
    "right_flash_mla": "mla",
    "right_mlx": "mlx",
    "right_nested": "nested",
}
each_right_kernel = pytest.mark.parametrize("right", RIGHT, ids=lambda right: right.__name__)


@pytest.fixture(autouse=True)
def _little_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_conformance.claims.call_shrinker, "TRIALS", 6)


def probed(kernel: Kernel, dtype: str, right: Kernel | None = None) -> Any:
    """Return a loaded kernel, called through the same interface as ``right``, from which it differs by the fault."""
    return kernel_of(kernel, dtype, interface=FORCED.get(right or kernel))


@pytest.mark.parametrize("dtype", EXAMPLES)
@each_right_kernel
def test_right_kernels_are_upheld(right: Kernel, dtype: str) -> None:
    """Test output, gradients and the capabilities that :data:`OWN` lists for the kernel."""
    ids = [f"kernel-{item}" for item in ("output", "gradients", *OWN[right.__name__])]
    results = verify_kernel(probed(right, dtype), statements=ids, examples=EXAMPLES[dtype])
    assert {result.id: result.verdict for result in results} == dict.fromkeys(ids, Verdict.UPHELD)


@each_right_kernel
def test_special_capabilities_of_a_kernel_are_recognised(right: Kernel) -> None:
    kernel = probed(right, "float64")
    assert {*OWN[right.__name__]} <= kernel.declares
    assert kernel.interface.name == INTERFACES.get(right.__name__, kernel.interface.name)


@pytest.mark.parametrize("fault", FURTHER_FAULTS, ids=lambda fault: fault.name)
def test_each_fault_falsifies_the_capability_that_the_gallery_names(fault: FurtherFault) -> None:
    id = f"kernel-{fault.capability}"
    (result,) = verify_kernel(probed(fault.kernel, "float64", fault.right), statements=[id], examples=20)
    assert result.verdict is Verdict.FALSIFIED, result.reason
    falsified = {claim.name for claim in result.claims if claim.verdict is Verdict.FALSIFIED}
    # Which results are compared first is drawn at random, so another claim may fail in place of the fault's own.
    assert falsified & {fault.claim, SINK_GRADIENT, WEIGHTS, NEUTRAL, RESCALED, *GRADIENTS}
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
        *("merge_in_base_two", "lse_not_differentiated", "sink_counted_twice", "alibi_sign", "pages_in_a_row"),
        *("sinks_dropped", "mods_of_key_heads", "splits_by_batch", "descales_dropped", "gradient_of_keys_alone"),
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


def test_merges_with_base_two_logarithms_are_upheld() -> None:
    """flashinfer's log-sum-exps have base two; the base is recognised from the log-sum-exp of two merged parts."""

    def merge(v_a: torch.Tensor, s_a: torch.Tensor, v_b: torch.Tensor, s_b: torch.Tensor) -> Any:
        log2 = float(torch.log(torch.tensor(2.0, dtype=torch.float64)))
        v, s = right_merge_state(v_a, s_a * log2, v_b, s_b * log2)
        return v, s / log2

    ids = ["kernel-merged-parts", "kernel-log-sum-exp"]
    results = verify_kernel(merge, statements=ids, examples=5, dtype="float64")
    assert [result.verdict for result in results] == [Verdict.UPHELD] * 2


@pytest.mark.parametrize(
    ("kernel", "verdict"), [(right_merge_state, Verdict.UPHELD), (merge_of_nothing, Verdict.FALSIFIED)]
)
def test_merging_two_parts_without_visible_keys_gives_zero_and_minus_infinity(kernel: Kernel, verdict: Verdict) -> None:
    """Output and log-sum-exp must be (0, −∞), although other kernels may return NaN in rows without visible keys."""
    under_test = kernel_of(kernel, "float64").as_implementation()
    visible = np.ones((1, 2, 3, 5), dtype=np.bool_)
    visible[0, 1, 2] = False
    call = tensors(Sizes(B=1, H=2, G=2, L=3, T=5, E=4, M=4), Numbers.NORMAL, seed=0)
    claims = examine(call.replace(visible=visible, log_sum_exp=True, parts=2), under_test)
    (result,) = (claim for about, claim in claims if (about, claim.name) == ("merged-parts", NEUTRAL))
    assert result.verdict is verdict


def test_a_log_sum_exp_detached_from_autograd_is_not_tested_for_a_gradient() -> None:
    """flash-attention's maintainers propose to detach the log-sum-exp, so a kernel that does so is right."""

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, return_lse: bool = False) -> Any:
        out, lse = right_rows(q, k, v, return_lse=True)
        return (out, lse.detach()) if return_lse else out

    assert "log-sum-exp-gradient" not in kernel_of(attention, "float64").declares


@pytest.mark.parametrize("right", [right_varlen, right_kvcache, right_merge_state, right_combine])
def test_batch_entries_and_parts_without_keys_are_tested(right: Kernel) -> None:
    """Results of such calls are compared; the kernel does not refuse the calls."""
    under_test = kernel_of(right, "float64").as_implementation()
    call = tensors(Sizes(B=3, H=2, G=2, L=3, T=5, E=4, M=4), Numbers.NORMAL, seed=0)
    lengths = np.array([[3, 0], [3, 5], [0, 2]])
    asked = call.replace(parts=6) if right in (right_merge_state, right_combine) else call.replace(lengths=lengths)
    claims = list(examine(asked.replace(log_sum_exp=True), under_test))
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


def test_a_kernel_that_takes_only_the_sizes_of_one_model_is_tested_at_these_sizes() -> None:
    """The widths, number of heads and page size that the kernel requires are found by small calls; statements that need
    other sizes do not apply.
    """
    kernel = kernel_of(right_flash_mla, "float64")
    sizes = "widths of 576 and values of 512, one head of keys, pages of 64"
    assert f"it takes {sizes} only" in headline(kernel)
    (result,) = verify_kernel(right_flash_mla, statements=["lemma-3"], examples=2)
    assert (result.verdict, f"the kernel takes only {sizes}" in result.reason) == (Verdict.NOT_APPLICABLE, True)

    def attention(
        q: Any, k_cache: Any, block_table: Any, cache_seqlens: Any, head_dim_v: int, causal: bool = False
    ) -> Any:
        if (q.shape[-1], head_dim_v) != (576, 512):
            raise ValueError("576 and 512 columns")
        return right_latent(q, k_cache, block_table, cache_seqlens, head_dim_v, None, causal)

    assert "it takes widths of 576 and values of 512 only" in headline(kernel_of(attention, "float64"))
    calls = tensors(Sizes(B=2, H=4, G=2, L=3, T=5, E=8, M=8), Numbers.NORMAL, seed=0)
    fitted = kernel.suit(with_values_in_keys(calls.replace(page=16)))
    assert fitted.sizes == {"B": 2, "H": 4, "G": 1, "L": 3, "T": 5, "E": 576, "M": 512}
    assert fitted.page == 64
    assert np.array_equal(fitted.value, fitted.key[..., :512])


def test_an_alignment_that_depends_on_the_longer_length_is_recognised_in_faulty_kernels() -> None:
    """The faults do not show in the small calls that find out the alignment, by which larger calls are judged."""
    for kernel in (right_mlx, causal_of_long_queries, causal_of_few_keys, causal_loop_of_queries):
        assert probed(kernel, "float64").alignment is Alignment.BY_LONGER
