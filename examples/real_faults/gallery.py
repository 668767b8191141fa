"""The faults of this folder as data: where each was reported, what it breaks, the smallest shape on which it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch

EVERY_NUMBER = ("out", "dq", "dk", "dv")
EVERY_GRADIENT = ("dq", "dk", "dv")


@dataclass(frozen=True)
class Shape:
    """Sizes of a call; values are as wide as keys."""

    batch: int = 1
    heads: int = 1
    key_heads: int = 1
    queries: int = 1
    keys: int = 1
    width: int = 1


@dataclass(frozen=True)
class Fault:
    """A kernel with one thing wrong; its file says what, and when it is right.

    Every fault shows in float64, float32, bfloat16 and float16.

    Attributes:
        name: of its file.
        thread: where it was reported.
        interface: ``plain``, ``sdpa`` or ``flash``.
        capability: of the kernel, that first has it: output, gradients, boolean-mask, grouped-heads, causal (L = T),
            causal-rectangle (L ≠ T), window, log-sum-exp, or memory for how tensors lie in it.
        wrong: which of out, dq, dk, dv and lse are wrong on the smallest call.
        smallest: sizes of a call on which it shows; with one less of any it does not.
        options: the options of that call; a mask is cut to the keys that there are.
        means: what the entries of q and of k are around, in standard deviations.
        rising: the logits of that call rise from key to key.
        transposed: the values of that call lie in memory as (B, T, H, m).
    """

    name: str
    thread: str
    interface: str
    capability: str
    wrong: tuple[str, ...]
    smallest: Shape
    options: Mapping[str, Any] = field(default_factory=dict)
    means: tuple[float, float] = (0.0, 0.0)
    rising: bool = False
    transposed: bool = False

    @property
    def kernel(self) -> Callable[..., Any]:
        """The function."""
        function: Callable[..., Any] = import_module(f"examples.real_faults.{self.name}").attention
        return function


FIRST_OF_TWO = {"attn_mask": torch.tensor([[True, False]])}
GALLERY = (
    Fault(
        "finite_first_maximum",
        "flashinfer-ai/flashinfer #4267",
        "flash",
        "output",
        ("out", "dv", "lse"),
        Shape(),
        means=(-300, 300),
    ),
    Fault(
        "sum_not_corrected",
        "paiml/aprender #2753",
        "plain",
        "output",
        EVERY_NUMBER,
        Shape(keys=33),
        rising=True,
    ),
    Fault(
        "constant_for_maximum",
        "HabanaAI/vllm-fork #275",
        "sdpa",
        "output",
        EVERY_NUMBER,
        Shape(),
        means=(40, 40),
    ),
    Fault(
        "lse_scaled_twice",
        "HKUSTDial/flash-sparse-attention PR #106",
        "flash",
        "log-sum-exp",
        ("lse",),
        Shape(width=2),
    ),
    Fault("tail_of_last_block", "pytorch/pytorch PR #169222", "sdpa", "output", EVERY_NUMBER, Shape(width=64)),
    Fault(
        "backward_always_causal",
        "triton-lang/triton #4541, #5660",
        "sdpa",
        "gradients",
        EVERY_GRADIENT,
        Shape(keys=2),
    ),
    Fault(
        "dq_of_a_batch",
        "NVIDIA/TransformerEngine #3216",
        "flash",
        "gradients",
        ("dq",),
        Shape(batch=2, keys=2, width=256),
        means=(1, 2),
    ),
    Fault(
        "backward_without_mask",
        "Dao-AILab/flash-attention #2424",
        "sdpa",
        "boolean-mask",
        EVERY_GRADIENT,
        Shape(keys=2),
        FIRST_OF_TWO,
    ),
    Fault(
        "heads_by_remainder",
        "XunhaoLai/native-sparse-attention-triton #27",
        "sdpa",
        "grouped-heads",
        ("dv",),
        Shape(heads=4, key_heads=2),
    ),
    Fault(
        "causal_once_in_four",
        "pytorch/pytorch #195910",
        "sdpa",
        "causal",
        EVERY_NUMBER,
        Shape(keys=2),
        {"is_causal": True},
    ),
    Fault(
        "window_sees_future",
        "jax-ml/jax PR #39576",
        "flash",
        "window",
        ("out", "dv", "lse"),
        Shape(queries=2),
        {"window_size": (0, 0)},
    ),
    Fault(
        "output_strides",
        "flagos-ai/FlagGems #5235",
        "flash",
        "memory",
        ("out", "dv"),
        Shape(heads=2),
    ),
    Fault("lse_in_base_two", "deepseek-ai/FlashMLA PR #106", "flash", "log-sum-exp", ("lse",), Shape()),
    Fault(
        "value_strides",
        "flagos-ai/FlagGems #5896",
        "sdpa",
        "memory",
        EVERY_NUMBER,
        Shape(heads=2, key_heads=2, keys=2),
        transposed=True,
    ),
    Fault(
        "mask_of_ten_thousand",
        "ohdearquant/lattice #361",
        "sdpa",
        "boolean-mask",
        ("out", "dv"),
        Shape(keys=2),
        FIRST_OF_TWO,
        means=(-150, 150),
    ),
    Fault(
        "window_ignored",
        "jax-ml/jax #32300",
        "flash",
        "window",
        (*EVERY_NUMBER, "lse"),
        Shape(keys=2),
        {"window_size": (0, 0)},
    ),
    Fault(
        "backward_other_corner",
        "xlite-dev/ffpa-attn PR #300",
        "flash",
        "causal-rectangle",
        EVERY_GRADIENT,
        Shape(keys=2),
        {"causal": True},
    ),
)
