"""The faults of this folder as data: each faulty kernel, the corresponding correct kernel, and what the fault breaks.

Each fault is a function in the module of its family. The function's docstring says what is wrong with the kernel, on
which calls the results are right nevertheless, and where the fault was reported. Test a fault with:

    theorems verify --attention examples.real_faults.FAMILY:FAULT
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from examples.real_faults import (
    backward,
    caches,
    log_sum_exp,
    masks,
    precision,
    ragged,
    sinks_and_biases,
    softmax_and_strides,
    transformers_functions,
)
from examples.real_faults.attention import Kernel, tiled, tiled_plain, tiled_sdpa
from examples.real_faults.caches import right_kvcache
from examples.real_faults.precision import right_batch, right_factors
from examples.real_faults.ragged import right_varlen
from examples.real_faults.rows import right_bias, right_rows
from examples.real_faults.transformers_functions import right_eager

EVERY_NUMBER = ("out", "dq", "dk", "dv")
EVERY_GRADIENT = ("dq", "dk", "dv")


@dataclass(frozen=True)
class Fault:
    """A kernel with a single fault.

    Attributes:
        kernel: the faulty kernel, a function.
        right: the correct kernel with the same interface.
        capability: the capability that the fault breaks; for a fault of the tiled kernel the first that it breaks among
            output, gradients, boolean-mask, grouped-heads, causal (as many queries as keys), causal-rectangle (more or
            fewer queries than keys), window, log-sum-exp, and memory (how tensors lie in memory).
    """

    kernel: Kernel
    right: Kernel
    capability: str

    @property
    def name(self) -> str:
        """The name of the faulty kernel's function."""
        return self.kernel.__name__

    @property
    def thread(self) -> str:
        """The issue or change that reported the fault, from the kernel's docstring; empty for a fault of our own."""
        return (self.kernel.__doc__ or "").partition("Source: ")[2].strip()


@dataclass(frozen=True)
class Shape:
    """The sizes of a call.

    Attributes:
        batch, heads, key_heads, queries, keys: the numbers of batch entries, query heads, key heads, queries and keys.
        width: the number of columns of queries, keys and values.
    """

    batch: int = 1
    heads: int = 1
    key_heads: int = 1
    queries: int = 1
    keys: int = 1
    width: int = 1


@dataclass(frozen=True)
class TiledFault(Fault):
    """A fault of the tiled kernel, with a smallest call that shows it in float64 and in each coarser format.

    Attributes:
        wrong: the names of the results that are wrong in the smallest call, among out (the output), dq, dk, dv and lse
            (the log-sum-exp).
        smallest: the sizes of the smallest call; if any size is reduced by one, the fault does not show.
        options: the options of the smallest call; a mask in them is cut to the number of keys.
        means: the means of the entries of queries and of keys, in standard deviations of the entries.
        rising: whether the logits rise from key to key.
        transposed: whether the values lie in memory with the axis of keys before the axis of heads.
    """

    wrong: tuple[str, ...]
    smallest: Shape
    options: Mapping[str, Any] = field(default_factory=dict)
    means: tuple[float, float] = (0.0, 0.0)
    rising: bool = False
    transposed: bool = False


@dataclass(frozen=True)
class FurtherFault(Fault):
    """A fault of a kernel other than the tiled kernel.

    Attributes:
        claim: the name of the claim that the faulty kernel falsifies.
    """

    claim: str = "output-is-attention"


FIRST_OF_TWO = {"attn_mask": torch.tensor([[True, False]])}
TILED_FAULTS = (
    TiledFault(
        softmax_and_strides.finite_first_maximum, tiled, "output", ("out", "dv", "lse"), Shape(), means=(-300, 300)
    ),
    TiledFault(softmax_and_strides.sum_not_corrected, tiled_plain, "output", EVERY_NUMBER, Shape(keys=33), rising=True),
    TiledFault(softmax_and_strides.constant_for_maximum, tiled_sdpa, "output", EVERY_NUMBER, Shape(), means=(40, 40)),
    TiledFault(log_sum_exp.lse_scaled_twice, tiled, "log-sum-exp", ("lse",), Shape(width=2)),
    TiledFault(softmax_and_strides.tail_of_last_block, tiled_sdpa, "output", EVERY_NUMBER, Shape(width=64)),
    TiledFault(backward.backward_always_causal, tiled_sdpa, "gradients", EVERY_GRADIENT, Shape(keys=2)),
    TiledFault(backward.dq_of_a_batch, tiled, "gradients", ("dq",), Shape(batch=2, keys=2, width=256), means=(1, 2)),
    TiledFault(backward.backward_without_mask, tiled_sdpa, "boolean-mask", EVERY_GRADIENT, Shape(keys=2), FIRST_OF_TWO),
    TiledFault(backward.heads_by_remainder, tiled_sdpa, "grouped-heads", ("dv",), Shape(heads=4, key_heads=2)),
    TiledFault(masks.causal_once_in_four, tiled_sdpa, "causal", EVERY_NUMBER, Shape(keys=2), {"is_causal": True}),
    TiledFault(
        masks.window_sees_future, tiled, "window", ("out", "dv", "lse"), Shape(queries=2), {"window_size": (0, 0)}
    ),
    TiledFault(softmax_and_strides.output_strides, tiled, "memory", ("out", "dv"), Shape(heads=2)),
    TiledFault(log_sum_exp.lse_in_base_two, tiled, "log-sum-exp", ("lse",), Shape()),
    TiledFault(
        softmax_and_strides.value_strides,
        tiled_sdpa,
        "memory",
        EVERY_NUMBER,
        Shape(heads=2, key_heads=2, keys=2),
        transposed=True,
    ),
    TiledFault(
        masks.mask_of_ten_thousand,
        tiled_sdpa,
        "boolean-mask",
        ("out", "dv"),
        Shape(keys=2),
        FIRST_OF_TWO,
        means=(-150, 150),
    ),
    TiledFault(masks.window_ignored, tiled, "window", (*EVERY_NUMBER, "lse"), Shape(keys=2), {"window_size": (0, 0)}),
    TiledFault(
        backward.backward_other_corner, tiled, "causal-rectangle", EVERY_GRADIENT, Shape(keys=2), {"causal": True}
    ),
)

RIGHT = (*(right_rows, right_bias, right_varlen, right_kvcache, right_eager, right_batch, right_factors),)
"""The correct kernels other than the tiled kernels."""
ALONE, DROPPED = "same-bits-alone", "each-weight-is-kept-or-dropped"
FURTHER_FAULTS = (
    FurtherFault(log_sum_exp.lse_not_differentiated, right_rows, "log-sum-exp-gradient", "query-gradient"),
    FurtherFault(log_sum_exp.lse_gradient_subtracted, right_rows, "log-sum-exp-gradient", "key-gradient"),
    FurtherFault(sinks_and_biases.sink_beside_maximum, right_rows, "sinks"),
    FurtherFault(sinks_and_biases.sink_counted_twice, right_rows, "sinks"),
    FurtherFault(sinks_and_biases.sink_gradient_zero, right_rows, "sinks", "sink-gradient"),
    FurtherFault(sinks_and_biases.alibi_sign, right_rows, "alibi"),
    FurtherFault(sinks_and_biases.alibi_of_columns, right_rows, "alibi"),
    FurtherFault(sinks_and_biases.bias_gradient_of_one, right_bias, "bias-gradient", "bias-gradient"),
    FurtherFault(sinks_and_biases.bias_before_scale, right_bias, "bias-gradient", "bias-gradient"),
    FurtherFault(ragged.empty_sequence_gives_nan, right_varlen, "ragged-batch", "key-gradient"),
    FurtherFault(ragged.key_starts_of_query_heads, right_varlen, "grouped-heads"),
    FurtherFault(ragged.diagonal_of_the_longest, right_varlen, "ragged-batch"),
    FurtherFault(caches.splits_without_rest, right_kvcache, "splits"),
    FurtherFault(caches.splits_of_the_first_entry, right_kvcache, "splits"),
    FurtherFault(caches.last_page_whole, right_kvcache, "paged-keys"),
    FurtherFault(caches.pages_in_a_row, right_kvcache, "paged-keys"),
    FurtherFault(transformers_functions.sinks_dropped, right_eager, "sinks"),
    FurtherFault(transformers_functions.sinks_in_each_score, right_eager, "sinks"),
    FurtherFault(transformers_functions.last_columns_of_mask, right_eager, "longer-masks"),
    FurtherFault(transformers_functions.mask_rows_of_keys, right_eager, "longer-masks"),
    FurtherFault(transformers_functions.dropout_before_softmax, right_eager, "dropout", DROPPED),
    FurtherFault(transformers_functions.dropout_gradient_times_p, right_eager, "dropout", "query-gradient"),
    FurtherFault(transformers_functions.dropout_of_inverse_p, right_eager, "dropout", DROPPED),
    FurtherFault(precision.splits_by_batch, right_batch, "batch-invariance", ALONE),
    FurtherFault(precision.tiles_by_batch, right_batch, "batch-invariance", ALONE),
    FurtherFault(precision.descales_dropped, right_factors, "fp8-descale"),
    FurtherFault(precision.descales_of_the_first_entry, right_factors, "fp8-descale"),
)
GALLERY: tuple[Fault, ...] = (*TILED_FAULTS, *FURTHER_FAULTS)
