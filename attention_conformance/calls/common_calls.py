"""Plans of plain calls, as most programs make them: all sizes, and all triples of options except masks.

If calls cover every pair of options, nearly every call has a mask and few calls have each size. They may miss faults
that occur only without a mask or only at one width of heads. The plain calls find such faults. They also include calls
that must not be left to chance: each multiple of 8 as a width, and masks with as many batch entries as heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, product

import numpy as np
from covertable import make

BETWEEN = (12, 24, 40, 72, 80, 96, 100, 112, 136, 144, 160, 192, 200, 224)
"""Widths of heads other than 32, 64, 128 and 256, the widths of the blocks in which kernels work."""
MULTIPLES = tuple(range(8, 257, 8))
"""Widths for which a kernel may have special code: of keys and values together, only of keys, or only of values."""
MANY_HEADS = (17, 20, 24, 32, 40)
CACHED = (513, 1025, 4097, 8192)
"""Numbers of keys for a single query, most of them just above the size of a block or of a split of the keys."""
OPTIONS = ("relation", "group", "scale", "causal", "window", "softcap", "log-sum-exp")
"""Options of which each triple of levels occurs in some call."""
ALONE = ("causal", "window", "softcap", "sinks", "slopes")
"""Options that also occur without any other option."""
CYCLES: Mapping[str, Sequence[str]] = {
    "width": (*map(str, BETWEEN), "64", "128", "256"),
    "heads": ("few", *map(str, MANY_HEADS[:2]), "few", *map(str, MANY_HEADS[2:])),
    "lengths": ("short", "keys", "short", "both", "queries"),
    "values": ("same", "narrower", "wider"),
    "batch": ("few", "many", "few", "few"),
    "numbers": ("normal", "integers", "normal"),
    "memory": ("contiguous", "transposed", "fused", "transposed"),
    "wants": ("qkv", "qkv", "nothing", "qkv", "kv"),
}
"""For each factor, the levels that calls take in turn; cycles of different lengths combine levels in many ways."""


def common_plans(
    neutral: Mapping[str, str], levels: Mapping[str, Sequence[str]], rng: np.random.Generator
) -> Iterator[dict[str, str]]:
    """Yield plans without masks, and plans whose only option is a mask.

    Args:
        neutral: the first level of each factor.
        levels: the levels of each factor that the kernel has.
        rng: draws the order of the plans.
    """
    free = {name: levels[name] for name in OPTIONS if len(levels[name]) > 1}
    plans = make(free, strength=min(3, len(free)), salt=str(int(rng.integers(2**16))))
    rows = [plans[k] for k in rng.permutation(len(plans))]
    # Each width occurs twice, since the sizes of a few calls are reduced afterwards.
    count = max(len(rows), 2 * len(CYCLES["width"]))
    walks = {name: cycle([x for x in walk if x in levels[name] or x.isdigit()]) for name, walk in CYCLES.items()}
    for _, row in zip(range(count), cycle(rows), strict=False):
        yield {**neutral, **row, **{name: next(walk) for name, walk in walks.items()}}
    for keys in CACHED:
        yield {**neutral, "lengths": str(keys), "numbers": "normal"}
    # The softmax's denominator is a sum of 4096 ones, but half precision counts only to 2048.
    yield {**neutral, "lengths": "4097", "numbers": "sums"}
    for causal in levels["causal"]:  # with more than 512 queries and keys
        yield {**neutral, "lengths": "long", "width": "narrow", "causal": causal}
    if len(levels["rows"]) > 1:
        yield from _plans_of_empty_rows(neutral, levels)
    yield from _plans_of_single_options(neutral, levels)
    yield from _plans_of_as_many_entries_as_heads(neutral, levels)
    yield from _plans_of_widths(neutral, levels)


def _plans_of_empty_rows(neutral: Mapping[str, str], levels: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Yield plans in which some rows, which must not affect the others, see no key."""
    masks = [mask for mask in levels["mask"] if mask.startswith("boolean") and mask.count(",") == 3]
    for mask in masks:
        for batch in levels["batch"]:
            yield {**neutral, "rows": levels["rows"][-1], "mask": mask, "batch": batch}


def _plans_of_single_options(
    neutral: Mapping[str, str], levels: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, str]]:
    """Yield plans with one option and lengths around block sizes, and plans with key masks and many batch entries."""
    for name in ALONE:
        for level, _ in product(levels[name][1:], range(3)):
            yield {**neutral, name: level, "lengths": "keys", "numbers": "normal"}
    for mask, _ in product([level for level in levels["mask"] if level.endswith("(B, 1, 1, T)")], range(3)):
        yield {**neutral, "mask": mask, "lengths": "keys", "batch": "many", "numbers": "normal"}


def _plans_of_as_many_entries_as_heads(
    neutral: Mapping[str, str], levels: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, str]]:
    """Yield plans with as many batch entries as heads, so that a kernel may confuse these two axes of a mask."""
    masks = [mask for mask in levels["mask"] if "B" in mask or "H" in mask]
    for mask, size in zip(masks, cycle("23"), strict=False):
        # With so many rows and keys, no two batch entries have the same mask, and many keys have noticeable weights.
        yield {**neutral, "lengths": "both", "width": "8", "mask": mask, "batch": size, "heads": size}


def _plans_of_widths(neutral: Mapping[str, str], levels: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Yield plans with each multiple of 8 as a width: values as wide as keys, then values of other widths.

    With the kernel's own scale, logits are about one, so that even half precision shows faults. With scale 1, only
    numbers on which a kernel rounds nothing show them.
    """
    scale = "own" if "own" in levels["scale"] else "1"
    for width in MULTIPLES:
        yield {**neutral, "width": str(width), "values": str(width), "scale": scale, "numbers": "normal"}
    for width, values in zip(MULTIPLES, reversed(MULTIPLES), strict=True):
        yield {**neutral, "lengths": "keys", "width": str(width), "values": str(values), "numbers": "ranks"}
