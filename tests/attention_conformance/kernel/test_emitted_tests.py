"""For each capability, ``--emit-test`` writes a test that fails on a kernel wrong in the capability, names the wrong
result, and passes on a right kernel.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

import pytest

import attention_conformance.claims.call_shrinker
from attention_conformance.claims.capabilities import CAPABILITIES
from attention_conformance.kernel.callable_import import import_callable
from attention_conformance.kernel.check import verify_kernel
from attention_conformance.kernel.kernel_loader import kernel_named
from attention_conformance.kernel.reproducer_file import file_of
from tests.attention_conformance.claims.planted_kernels import LeftOver
from theorems.core.claim import Verdict

FAULTS = "examples.real_faults."
PLANTED = "tests.attention_conformance.claims.planted_kernels:"
COMBINED = "tests.attention_conformance.claims.combined_faults:"
COMPILED = "tests.attention_conformance.claims.compiled_kernels:"
OWN = "tests.attention_conformance.kernel.emitted_kernels:"
FLASH, SDPA = f"{FAULTS}attention:tiled", f"{FAULTS}attention:tiled_sdpa"
LINES = 90
"""Largest number of lines of an emitted test, without the helper functions in its file."""
TORCH = "torch.nn.functional:scaled_dot_product_attention"


@dataclass(frozen=True)
class Row:
    """A wrong kernel, on which an emitted test must fail, and a right one, on which the test must pass.

    Attributes:
        capability: the capability in which the kernel is wrong.
        wrong: the wrong kernel, MODULE:CALLABLE.
        right: a right kernel with the same signature, MODULE:CALLABLE.
        says: a pattern for the beginning of the test's message.
        dtype: the number format in which the wrong kernel is tested.
        interface: the name of the kernel's interface; None to recognise the interface.
        examples: the number of calls that are tried; with 25, every pair of options occurs.
    """

    capability: str
    wrong: str
    right: str
    says: str = "output at"
    dtype: str = "float64"
    interface: str | None = None
    examples: int = 20

    def __str__(self) -> str:
        return f"{self.capability}-{self.wrong.rpartition(':')[2]}"


ROWS = (
    Row("output", f"{FAULTS}softmax_and_strides:finite_first_maximum", FLASH),
    Row("output", f"{PLANTED}flat", f"{OWN}plain"),
    Row("output", f"{COMBINED}reads_beside_its_keys", SDPA),
    Row("output", f"{FAULTS}caches:last_columns_are_values", f"{FAULTS}caches:right_latent"),
    Row("output", f"{FAULTS}ragged:sequences_see_each_other", f"{FAULTS}ragged:right_nested", interface="nested"),
    Row("gradients", f"{FAULTS}backward:backward_always_causal", SDPA, "dQ at"),
    Row("gradients", f"{COMBINED}gradient_of_values_alone_is_lost", SDPA, "dV at", examples=25),
    Row("scale", f"{PLANTED}scale_of_keys_forgotten", SDPA, "dK at"),
    Row("default-scale", f"{PLANTED}root_of_keys", SDPA),
    Row("softcap", f"{PLANTED}cap_not_differentiated", FLASH, "d"),
    Row("log-sum-exp", f"{FAULTS}log_sum_exp:lse_in_base_two", FLASH, "log-sum-exp at"),
    Row("causal", f"{FAULTS}masks:causal_once_in_four", SDPA),
    Row("causal-rectangle", f"{FAULTS}backward:backward_other_corner", FLASH, "d"),
    Row("boolean-mask", f"{FAULTS}backward:backward_without_mask", SDPA, "d"),
    Row("boolean-mask", f"{OWN}module_weights", f"{OWN}module_of_right_weights", "weights at"),
    Row(
        "longer-masks",
        f"{FAULTS}transformers_functions:last_columns_of_mask",
        f"{FAULTS}transformers_functions:right_eager",
        "",
    ),
    Row("additive-mask", f"{COMBINED}bias_scaled", SDPA),
    Row("window", f"{FAULTS}masks:window_ignored", FLASH, ""),
    Row("window", f"{OWN}heads_one_by_one", f"{OWN}heads_one_by_one_right"),
    Row("hidden-keys", f"{PLANTED}scaled_by_the_largest_value", SDPA, "output: the two tensors differ by up to"),
    Row("empty-rows", f"{PLANTED}nan_forward_alone", SDPA, "rows that see no key"),
    Row("empty-rows", f"{FAULTS}masks:mask_of_ten_thousand", SDPA, "d"),
    Row("grouped-heads", f"{FAULTS}backward:heads_by_remainder", SDPA, ""),
    Row("grouped-heads", f"{FAULTS}ragged:key_starts_of_query_heads", f"{FAULTS}ragged:right_varlen"),
    Row("bias-gradient", f"{FAULTS}sinks_and_biases:bias_gradient_of_one", f"{FAULTS}rows:right_bias", "db at"),
    Row("alibi", f"{FAULTS}sinks_and_biases:alibi_of_columns", f"{FAULTS}rows:right_rows"),
    Row("sinks", f"{FAULTS}sinks_and_biases:sink_gradient_zero", f"{FAULTS}rows:right_rows", "dσ at"),
    Row("sinks", f"{FAULTS}transformers_functions:sinks_dropped", f"{FAULTS}transformers_functions:right_eager"),
    Row("log-sum-exp-gradient", f"{FAULTS}log_sum_exp:lse_not_differentiated", f"{FAULTS}rows:right_rows", "d"),
    Row("ragged-batch", f"{FAULTS}ragged:diagonal_of_the_longest", f"{FAULTS}ragged:right_varlen", ""),
    Row("ragged-batch", f"{FAULTS}ragged:empty_sequence_gives_nan", f"{FAULTS}ragged:right_varlen", "d"),
    Row("shared-keys-values", f"{FAULTS}caches:gradient_of_values_alone", f"{FAULTS}caches:right_latent", "dK at"),
    Row("score-mod", f"{FAULTS}flex_attention:mods_of_key_heads", f"{FAULTS}flex_attention:right_flex"),
    Row("score-mod", f"{FAULTS}flex_attention:score_without_gradient", f"{FAULTS}flex_attention:right_flex", "d"),
    Row("mask-mod", f"{FAULTS}flex_attention:keys_beyond_the_last_block", f"{FAULTS}flex_attention:right_flex"),
    Row("fp8-descale", f"{FAULTS}precision:descales_dropped", f"{FAULTS}precision:right_factors", ""),
    Row(
        "fp8-descale",
        f"{OWN}factors_up_to_two",
        f"{FAULTS}precision:right_factors",
        ".*: the two tensors differ by up to",
    ),
    Row(
        "batch-invariance",
        f"{FAULTS}precision:splits_by_batch",
        f"{FAULTS}precision:right_batch",
        ".*: the two tensors differ by up to",
    ),
    Row("splits", f"{FAULTS}caches:splits_without_rest", f"{FAULTS}caches:right_kvcache"),
    Row("paged-keys", f"{FAULTS}caches:last_page_whole", f"{FAULTS}caches:right_kvcache"),
    Row("merged-parts", f"{FAULTS}log_sum_exp:merge_of_nothing", f"{FAULTS}log_sum_exp:right_merge_state", ""),
    Row("output", f"{FAULTS}log_sum_exp:combine_without_maximum", f"{FAULTS}log_sum_exp:right_combine", ""),
    Row("dropout", f"{COMBINED}dropout_not_made_up_for", TORCH),
    Row("dropout", f"{COMBINED}dropout_ignored", TORCH, ""),
    Row("memory", f"{PLANTED}writes_to_its_keys", SDPA, "key: the two tensors differ by up to"),
    Row("memory", f"{COMBINED}last_stride_taken_for_one", SDPA, "", examples=25),
    Row("memory", f"{COMBINED}upstream_taken_for_contiguous", SDPA, "d", examples=25),
    Row("memory", f"{COMBINED}mask_read_in_its_own_order", SDPA, examples=25),
    Row("repeated-calls", f"{PLANTED}left_over", SDPA, "dQ at"),
    Row("repeated-calls", f"{PLANTED}unsteady", f"{OWN}steady", "output: the two tensors differ by up to"),
    Row("repeated-calls", f"{COMBINED}output_is_a_buffer", SDPA),
    Row("repeated-calls", f"{COMBINED}keys_remembered_by_their_pointer", SDPA, ""),
    Row("repeated-calls", f"{COMBINED}second_backward_is_another", SDPA, "d"),
    Row("compiled", f"{COMPILED}mask_dropped", TORCH, ""),
    Row(
        "parameters",
        f"{OWN}window_of_no_effect",
        f"{OWN}window_of_an_effect",
        "the kernel takes sliding_window, but",
    ),
    Row("exact-weights", f"{PLANTED}one_unit_off", SDPA, dtype="bfloat16"),
    *(
        Row(name, f"{PLANTED}wrong_in_{name}", f"{PLANTED}right_in_every_format", dtype="auto")
        for name in ("float32", "bfloat16", "float16")
    ),
)


def emitted(row: Row) -> str:
    """Return the text of the test file that is written for a wrong kernel."""
    kernel = kernel_named(row.wrong, row.dtype, interface=row.interface)
    (result,) = verify_kernel(kernel, statements=[f"kernel-{row.capability}"], examples=row.examples)
    assert result.verdict is Verdict.FALSIFIED, result.reason
    assert result.failure is not None
    assert result.failure.test, result.failure.no_test
    return file_of(row.wrong, [result.failure.test], "test_mine.py")


def run(text: str, kernel: Any = None) -> None:
    """Run the only test in the text of a file, on the kernel that the file imports or on ``kernel``."""
    namespace: dict[str, Any] = {"__name__": "emitted"}
    exec(text, namespace)
    (function,) = (item for name, item in namespace.items() if name.startswith("test_"))
    if kernel is not None:
        namespace["kernel"] = kernel
    function()


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=[pytest.mark.compiler] * (row.capability == "compiled"), id=str(row)) for row in ROWS],
)
def test_an_emitted_test_names_the_error_and_passes_on_a_right_kernel(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_conformance.claims.call_shrinker, "TRIALS", 40)
    LeftOver.buffers.clear()  # this kernel would remember the calls of earlier tests
    text = emitted(row)
    with pytest.raises(AssertionError, match=f"^{row.says}"):
        run(text)
    run(text, import_callable(row.right))
    imported = {
        name.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    own = row.wrong.partition(":")[0]
    standard = {"__future__", "contextlib", "math", "os", "sys", "typing"}
    assert imported <= {*standard, "torch", "torch.nn.attention.flex_attention", own}
    _, _, test = text.partition("\ndef test_")
    assert len(test.splitlines()) < LINES


def test_every_capability_has_an_emitted_test() -> None:
    assert {row.capability for row in ROWS} == {capability.name for capability in CAPABILITIES}
