"""Plans of calls with the sizes of popular models, and with sizes just beyond the blocks in which kernels work.

To stay cheap, each call has either the model's numbers of heads, or its lengths, or its width; the other sizes are
smaller. These plans come before the plans that cover pairs of options.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from types import MappingProxyType

import numpy as np

MODELS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        # Prefill and training: as many queries as keys.
        "Llama 3 70B, prefill": {"heads": "64/8", "width": "128", "lengths": "17x17", "causal": "causal"},
        "Llama 3.1 405B, prefill": {"heads": "128/8", "width": "128", "lengths": "5x5", "causal": "causal"},
        "Llama 3.2 1B, training": {"heads": "4/1", "width": "64", "lengths": "130x130", "causal": "causal"},
        "Qwen2.5 7B, prefill": {"heads": "28/4", "width": "128", "lengths": "20x20", "causal": "causal"},
        "Qwen2.5 32B, prefill": {"heads": "40/8", "width": "128", "lengths": "18x18", "causal": "causal"},
        "Qwen3 235B, prefill": {"heads": "64/4", "width": "128", "lengths": "9x9", "causal": "causal"},
        "Command R+, prefill": {"heads": "96/8", "width": "128", "lengths": "9x9", "causal": "causal"},
        "Falcon 7B, prefill": {"heads": "71/1", "width": "64", "lengths": "19x19", "causal": "causal"},
        "GPT-2, training": {"heads": "4/4", "width": "64", "lengths": "67x67", "causal": "causal"},
        "Gemma 2 9B": {"heads": "16/8", "width": "256", "lengths": "20x20", "causal": "causal", "softcap": "50"},
        "DeepSeek V3, prefill": {
            "heads": "2/2",
            "width": "192",
            "values": "128",
            "lengths": "80x80",
            "causal": "causal",
        },
        # Windows.
        "gpt-oss 20B, local layer": {
            "heads": "8/1",
            "width": "64",
            "lengths": "150x150",
            "batch": "1",
            "causal": "causal",
            "window": "127+0",
            "sinks": "around",
        },
        "ModernBERT, local layer": {"heads": "2/2", "width": "64", "lengths": "150x150", "window": "64+64"},
        "Longformer, chunk": {"heads": "2/2", "width": "64", "lengths": "9x600", "window": "256+256"},
        "Gemma 3 4B, local layer": {
            "heads": "8/4",
            "width": "32",
            "lengths": "5x1100",
            "causal": "causal",
            "window": "1023+0",
        },
        "Mistral 7B, chunk": {
            "heads": "4/2",
            "width": "16",
            "lengths": "3x4200",
            "causal": "causal",
            "window": "4095+0",
        },
        # Decoding: a few queries at a time, or a single query.
        "Llama 3 8B, chunk of a prompt": {"heads": "8/2", "width": "32", "lengths": "3x2310", "causal": "causal"},
        "Llama 3 8B, chunk without a mask": {"heads": "4/1", "width": "32", "lengths": "5x2500"},
        "Llama 3 70B, decode": {"heads": "16/2", "width": "32", "lengths": "1x1025"},
        "Llama 3 8B, decode": {"heads": "8/2", "width": "32", "lengths": "1x2100"},
        "Mixtral, decode of a batch": {"heads": "4/2", "width": "64", "lengths": "1x33", "batch": "64"},
        "DeepSeek V3, latent decode": {"heads": "16/1", "width": "576", "values": "512", "lengths": "1x130"},
        "DeepSeek V3, latent decode of all heads": {
            "heads": "128/1",
            "width": "576",
            "values": "512",
            "lengths": "1x17",
        },
        "Gemma 4, global layer": {"heads": "8/1", "width": "512", "lengths": "9x33", "causal": "causal"},
        # Without causality.
        "ViT-B/16": {"heads": "1/1", "width": "64", "lengths": "197x197"},
        "ViT-B/32, batch": {"heads": "3/3", "width": "64", "lengths": "10x10", "batch": "64"},
        "Whisper, cross-attention": {"heads": "2/2", "width": "64", "lengths": "2x1500"},
        "Stable Diffusion, cross-attention": {"heads": "8/8", "width": "40", "lengths": "64x77"},
        "T5, bias": {"heads": "8/8", "width": "64", "lengths": "40x40", "mask": "additive (1, H, L, T)", "scale": "1"},
        "Swin, bias": {
            "heads": "3/3",
            "width": "32",
            "lengths": "49x49",
            "batch": "6",
            "mask": "additive (1, H, L, T)",
        },
        "BERT, padding": {
            "heads": "12/12",
            "width": "64",
            "lengths": "17x17",
            "batch": "4",
            "mask": "boolean (B, 1, 1, T)",
        },
    }
)
"""For each model, the levels that set its call's sizes and options; kernels get only the options that they have.

Heads are given as "query heads/key heads", lengths as "queries x keys", and windows as "keys to the left + keys to the
right".
"""
OPTIONS = ("causal", "window", "softcap", "sinks", "mask")
OPTIONS_BEYOND_BLOCKS = ("window", "softcap", "sinks", "slopes")
"""Options of the plans of :func:`plans_of_options_beyond_blocks`; :func:`plans_beyond_blocks` leaves them out."""
BLOCKS = (16, 32, 64, 128, 256, 512)
"""Sizes of the blocks in which kernels work: a length just beyond a multiple of a block size has a short last block."""
WIDTH_BEYOND: Mapping[int, str] = MappingProxyType({16: "64", 32: "128", 64: "64", 128: "64", 256: "16", 512: "8"})
"""For each block size, the width of heads in calls with lengths just beyond a block, chosen to keep calls cheap."""


def model_plans(
    neutral: Mapping[str, str], levels: Mapping[str, Sequence[str]], declares: Collection[str]
) -> Iterator[dict[str, str]]:
    """Yield the plans with the sizes and options of models, as far as the kernel has the options.

    Args:
        neutral: the first level of each factor.
        levels: the levels of each factor that the kernel has.
        declares: the capabilities that the kernel declares.
    """
    usual = {"numbers": "normal", "batch": "1", "scale": "own" if "own" in levels["scale"] else "1"}
    for name, model in MODELS.items():
        lacking = [option for option in OPTIONS if option in model and not _has(levels[option], model[option])]
        if {"window", "mask"} & {*lacking}:  # without this option, the plan repeats another model's plan
            continue
        L, T = map(int, model["lengths"].split("x"))
        if L != T and "causal-rectangle" not in declares:
            if "window" in model:
                continue
            lacking.append("causal")
        supported = {option: level for option, level in model.items() if option not in lacking}
        values = {"values": model.get("values", model["width"])}
        yield {**neutral, **usual, **values, **supported, "relation": _relation(L, T), "model": name}


def _relation(L: int, T: int) -> str:
    """Return the level of the factor "relation" that describes whether L is less than, equal to or more than T."""
    return "L = T" if L == T else "L < T" if L < T else "L > T"


def _has(levels: Sequence[str], level: str) -> bool:
    return level in levels or (len(levels) > 1 and level.partition("+")[0].isdigit())


def plans_of_options_beyond_blocks(
    neutral: Mapping[str, str], levels: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, str]]:
    """Yield plans with one option each and a short last block of queries and of keys, and plans with padded batches.

    Args:
        neutral: the first level of each factor.
        levels: the levels of each factor that the kernel has.
    """
    # 131 is not a multiple of any block size, and exceeds each block size up to 128.
    sizes = {"heads": "2/2", "batch": "1", "width": "64", "values": "64", "lengths": "131x131", "numbers": "normal"}
    for option in OPTIONS_BEYOND_BLOCKS:
        if len(levels[option]) > 1:
            # If a kernel wrongly hides keys before it applies a softcap of 2, not after, they keep a noticeable weight;
            # with a softcap of 30 they do not.
            yield {**neutral, **sizes, option: "2" if option == "softcap" else levels[option][1]}
    padded = {**sizes, "batch": "4", "lengths": "9x131", "relation": "L < T", "padding": "of each entry"}
    for kind in ("boolean", "additive"):
        masks = [mask for mask in levels["mask"] if mask.startswith(f"{kind} (B") and mask.endswith("T)")]
        if masks:
            yield {**neutral, **padded, "mask": masks[-1]}


def plans_beyond_blocks(
    neutral: Mapping[str, str],
    levels: Mapping[str, Sequence[str]],
    declares: Collection[str],
    rng: np.random.Generator,
) -> Iterator[dict[str, str]]:
    """Yield plans with lengths just beyond each block size, for L = T and L ≠ T, with and without causality.

    Args:
        neutral: the first level of each factor.
        levels: the levels of each factor that the kernel has.
        declares: the capabilities that the kernel declares.
        rng: draws the lengths.
    """
    usual = {"heads": "2/2", "batch": "1", "scale": "own" if "own" in levels["scale"] else "1"}
    for causal, block in product(levels["causal"], BLOCKS):
        square = causal != "none" and "causal-rectangle" not in declares
        for of_square in (True, square):
            # If a length exceeds a block size by an odd number, it is not a multiple of a smaller block size either.
            less, more = (block + 1 + 2 * int(k) for k in sorted(rng.permutation(min(block // 2, 12))[:2]))
            # With L > T the first rows may see no key, which other calls test.
            fewer = causal != "none" or rng.random() < 0.5
            L, T = (less, less) if of_square else (less, more) if fewer else (more, less)
            heads = {"heads": "1/1"} if block > 64 else {}
            sizes = {"width": WIDTH_BEYOND[block], "values": WIDTH_BEYOND[block], "lengths": f"{L}x{T}", **heads}
            yield {**neutral, **usual, **sizes, "relation": _relation(L, T), "numbers": "normal", "causal": causal}
