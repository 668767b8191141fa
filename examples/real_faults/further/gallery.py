"""The faults of this folder as data, and the right kernels that they are variants of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class FurtherFault:
    """A kernel with one thing wrong; its file says what, and when it is right.

    Attributes:
        name: of its file.
        thread: where it was reported; empty for one of our own.
        capability: that it breaks.
        claim: that is falsified of it.
        right: the file of the kernel that it is a variant of, and the name there.
    """

    name: str
    thread: str
    capability: str
    claim: str
    right: str

    @property
    def kernel(self) -> Callable[..., Any]:
        """The function."""
        return kernel_of_folder(self.name)


def kernel_of_folder(name: str) -> Callable[..., Any]:
    """``attention`` of a file of this folder, or another name, FILE:NAME."""
    file, _, of = name.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"{__package__}.{file}"), of or "attention")
    return function


RIGHT = (
    *("rows", "bias", "varlen", "cache", "merge:merge_state", "merge:combine"),
    *("gpt_oss", "flex", "invariant", "fp8", "mla", "flash_mla", "nested", "mlx"),
)
FORCED = MappingProxyType({"nested": "nested"})
"""Interfaces that no parameter tells from others, by the right kernel."""
OUTPUT, ALONE, DROPPED = "output-is-attention", "same-bits-alone", "each-weight-is-kept-or-dropped"
FURTHER_GALLERY = (
    FurtherFault("merge_in_base_two", "sgl-project/sglang #40903", "merged-parts", OUTPUT, "merge:merge_state"),
    FurtherFault("merge_of_nothing", "flashinfer-ai/flashinfer #4051", "merged-parts", OUTPUT, "merge:merge_state"),
    FurtherFault("combine_without_maximum", "flashinfer-ai/flashinfer #4267", "merged-parts", OUTPUT, "merge:combine"),
    FurtherFault(
        "lse_not_differentiated", "Dao-AILab/flash-attention #1817", "log-sum-exp-gradient", "query-gradient", "rows"
    ),
    FurtherFault(
        "lse_gradient_subtracted", "pytorch/pytorch PR #189784", "log-sum-exp-gradient", "key-gradient", "rows"
    ),
    FurtherFault("sink_beside_maximum", "Dao-AILab/flash-attention PR #2752", "sinks", OUTPUT, "rows"),
    FurtherFault("sink_counted_twice", "ROCm/rocm-libraries #12227", "sinks", OUTPUT, "rows"),
    FurtherFault("sink_gradient_zero", "NVIDIA/TransformerEngine PR #3551", "sinks", "sink-gradient", "rows"),
    FurtherFault("alibi_sign", "meta-pytorch/attention-gym PR #86", "alibi", OUTPUT, "rows"),
    FurtherFault("alibi_of_columns", "Dao-AILab/flash-attention PR #540", "alibi", OUTPUT, "rows"),
    FurtherFault(
        "bias_gradient_of_one", "HKUSTDial/flash-sparse-attention PR #194", "bias-gradient", "bias-gradient", "bias"
    ),
    FurtherFault(
        "bias_before_scale", "AI-Hypercomputer/accelerator-agents PR #101", "bias-gradient", "bias-gradient", "bias"
    ),
    FurtherFault(
        "empty_sequence_gives_nan", "Dao-AILab/flash-attention PR #2421", "ragged-batch", "key-gradient", "varlen"
    ),
    FurtherFault("key_starts_of_query_heads", "jax-ml/jax PR #39521", "grouped-heads", OUTPUT, "varlen"),
    FurtherFault("diagonal_of_the_longest", "ROCm/rocm-libraries PR #10999", "ragged-batch", OUTPUT, "varlen"),
    FurtherFault("sequences_see_each_other", "pytorch/pytorch #177378", "output", OUTPUT, "nested"),
    FurtherFault("backward_to_the_longest_query", "pytorch/pytorch PR #115576", "gradients", "key-gradient", "nested"),
    FurtherFault("splits_without_rest", "tile-ai/tilelang PR #2010", "splits", OUTPUT, "cache"),
    FurtherFault("splits_of_the_first_entry", "vllm-project/flash-attention PR #176", "splits", OUTPUT, "cache"),
    FurtherFault("last_page_whole", "hw-native-sys/simpler PR #72", "paged-keys", OUTPUT, "cache"),
    FurtherFault("pages_in_a_row", "hw-native-sys/pypto PR #470", "paged-keys", OUTPUT, "cache"),
    FurtherFault("sinks_dropped", "vllm-project/vllm PR #52156", "sinks", OUTPUT, "gpt_oss"),
    FurtherFault("sinks_in_each_score", "huggingface/transformers PR #41083", "sinks", OUTPUT, "gpt_oss"),
    FurtherFault("last_columns_of_mask", "huggingface/transformers PR #35681", "longer-masks", OUTPUT, "gpt_oss"),
    FurtherFault("mask_rows_of_keys", "facebookresearch/xformers #808", "longer-masks", OUTPUT, "gpt_oss"),
    FurtherFault("dropout_before_softmax", "PaddlePaddle/Parakeet PR #74", "dropout", DROPPED, "gpt_oss"),
    FurtherFault("dropout_gradient_times_p", "NVIDIA/apex PR #816", "dropout", "query-gradient", "gpt_oss"),
    FurtherFault("dropout_of_inverse_p", "lmjohns3/theanets PR #123", "dropout", DROPPED, "gpt_oss"),
    FurtherFault("mods_of_key_heads", "intel/intel-xpu-backend-for-triton #3632", "score-mod", OUTPUT, "flex"),
    FurtherFault("score_without_gradient", "pytorch/pytorch PR #185991", "score-mod", "query-gradient", "flex"),
    FurtherFault("keys_beyond_the_last_block", "pytorch/pytorch #159247", "mask-mod", OUTPUT, "flex"),
    FurtherFault("blocks_whole_in_backward", "Dao-AILab/flash-attention #2623", "mask-mod", "key-gradient", "flex"),
    FurtherFault("splits_by_batch", "sgl-project/sgl-flash-attn PR #43", "batch-invariance", ALONE, "invariant"),
    FurtherFault("tiles_by_batch", "deepseek-ai/FlashMLA #212", "batch-invariance", ALONE, "invariant"),
    FurtherFault("descales_dropped", "vllm-project/vllm PR #42580", "fp8-descale", OUTPUT, "fp8"),
    FurtherFault("descales_of_the_first_entry", "ROCm/rocm-libraries PR #10474", "fp8-descale", OUTPUT, "fp8"),
    FurtherFault("values_in_step_of_their_width", "ikawrakow/ik_llama.cpp PR #2031", "output", OUTPUT, "mla"),
    FurtherFault("last_columns_are_values", "ROCm/aiter #3095", "output", OUTPUT, "mla"),
    FurtherFault(
        "gradient_of_values_alone", "tenstorrent/tt-metal PR #45621", "shared-keys-values", "key-gradient", "mla"
    ),
    FurtherFault("gradient_of_keys_alone", "ROCm/aiter PR #4766", "shared-keys-values", "key-gradient", "mla"),
    FurtherFault("half_of_the_values", "gittensor-ai-lab/sparkinfer #425", "output", OUTPUT, "flash_mla"),
    FurtherFault("whole_steps_of_columns", "", "shared-keys-values", OUTPUT, "flash_mla"),
    FurtherFault("causal_of_long_queries", "ml-explore/mlx #2835", "causal-rectangle", OUTPUT, "mlx"),
    FurtherFault("causal_of_few_keys", "pytorch/executorch PR #22443", "causal-rectangle", OUTPUT, "mlx"),
    FurtherFault(
        "causal_loop_of_queries", "HKUSTDial/flash-sparse-attention PR #213", "causal-rectangle", OUTPUT, "mlx"
    ),
)
