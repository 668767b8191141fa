"""Plans with rare levels, a few for each level; the plans that cover all pairs of options leave these levels out.

The rare levels are masks in another number format than the query's, finite biases that hide keys, masks of three axes
or one column, scales of zero and below, more keys than 16 bits can count, axes of equal size but different stride,
contexts of PyTorch such as autocast, one tensor for query and key, and many calls in the same memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from attention_conformance.calls.attention_call import Memory, State

HIDES = ("-inf", "-10000", "the smallest number")
"""Levels of the number with which an additive mask hides a key; "the smallest number" is the format's most negative."""
NO_KEYS = "no-keys"
"""The capability of kernels that return a result for a call without keys; other kernels may refuse such a call."""
THREE_AXES, ONE_COLUMN = "H, L, T", "B, H, L, 1"
"""Shapes of masks for kernels that broadcast masks as PyTorch does."""
MASKS = (
    {"shape": "B, 1, 1, T", "hides": HIDES[1]},
    {"shape": "B, H, L, T", "hides": HIDES[1], "causal": "causal"},
    {"shape": "L, T", "hides": HIDES[2]},
    {"shape": "B, 1, L, T", "hides": HIDES[2], "causal": "causal"},
    {"shape": "B, H, L, T", "mask format": "float32"},
    {"shape": "B, 1, 1, T", "mask format": "float32", "hides": HIDES[1]},
    {"shape": THREE_AXES, "heads": "3"},
    {"shape": THREE_AXES, "heads": "3", "batch": "3"},
    {"shape": ONE_COLUMN, "rows": "some see nothing"},
    {"shape": "B, 1, L, T", "group": "grouped", "batch": "many"},
)
"""Levels of rare masks, each with the levels of other factors in the plans with that mask."""
ALIKE: tuple[Mapping[str, str], ...] = (
    {"lengths": "6x6", "heads": "6/6"},
    {"lengths": "4x7", "heads": "3/3", "batch": "3", "relation": "L < T", "mask": "B, 1, L, T"},
    {"lengths": "8x8", "heads": "2/2", "width": "8", "values": "8"},
    {"lengths": "4x7", "heads": "3/3", "batch": "3", "relation": "L < T", "mask": "1, H, L, T"},
)
"""Sets of levels that each make two of the sizes (queries, batch entries, heads, width) equal; some add a mask."""


def plans_of_rare_levels(neutral: Mapping[str, str], levels: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Yield the plans with rare levels, as far as the kernel has the options.

    Args:
        neutral: the first level of each factor.
        levels: the levels of each factor that the kernel has.
    """
    usual = {**neutral, "lengths": "keys", "relation": "L < T", "width": "narrow", "numbers": "normal"}
    kinds = dict.fromkeys(mask.split(" (")[0] for mask in levels["mask"][1:])
    for kind in kinds:
        for mask in MASKS:
            further = {name: level for name, level in mask.items() if name != "shape"}
            if kind == "boolean" and {"hides", "mask format"} & {*further}:
                continue
            supported = {
                name: x for name, x in further.items() if name not in levels or x in levels[name] or x.isdigit()
            }
            yield {**usual, "mask": f"{kind} ({mask['shape']})", **supported}
    if "power" in levels["scale"]:
        for scale in ("zero", "negative"):
            yield {**usual, "scale": scale}
            yield {**usual, "scale": scale, "lengths": "short"}
        sizes = {"lengths": "5x32", "heads": "2/2", "batch": "2", "width": "64", "values": "64"}
        yield {**usual, **sizes, "numbers": "products"}
    for group in dict.fromkeys((levels["group"][0], levels["group"][-1])):
        yield {**usual, "lengths": "huge", "group": group}
    for alike in ALIKE:  # only strides or a mask distinguish axes of equal size
        for memory, kind in ((Memory.TRANSPOSED, "boolean"), (Memory.FUSED, "additive")):
            level = f"{kind} ({alike.get('mask')})"
            masked = {"mask": level if level in levels["mask"] else levels["mask"][0], "memory": memory}
            yield {**usual, "batch": "2", "width": "16", "values": "16", "relation": "L = T", **alike, **masked}
    yield from _plans_of_contexts(usual, levels)


def plans_of_causal_scales(neutral: Mapping[str, str], levels: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Yield causal plans with a scale of zero or below, by which some kernels multiply the −∞ of hidden logits.

    Args:
        neutral: the first level of each factor.
        levels: the levels of each factor that the kernel has.
    """
    if "power" not in levels["scale"] or "causal" not in levels["causal"]:
        return
    sizes = {"batch": "2", "heads": "2/2", "width": "8", "values": "8", "relation": "L = T"}
    for scale in ("zero", "negative"):
        for lengths in ("5x5", "67x67"):
            yield {**neutral, **sizes, "numbers": "normal", "causal": "causal", "scale": scale, "lengths": lengths}


def plans_of_calls_in_between(
    neutral: Mapping[str, str], levels: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, str]]:
    """Yield plans with one option; a call with another level of this option comes before the backward pass.

    Args:
        neutral: the first level of each factor.
        levels: the levels of each factor that the kernel has.
    """
    sizes = {"batch": "2", "heads": "2/2", "width": "8", "values": "8", "relation": "L = T", "lengths": "5x5"}
    for option in ("scale", "causal", "window", "softcap"):
        if len(levels[option]) > 1:
            yield {**neutral, **sizes, "numbers": "normal", "state": State.INTERLEAVED, option: levels[option][1]}


def plans_of_moderate_logits(neutral: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the plan of a call with moderate logits, in which even half precision shows a wrong factor of the logits.

    Args:
        neutral: the first level of each factor.
    """
    sizes = {"batch": "2", "heads": "2/2", "width": "1", "values": "1", "lengths": "3x2", "relation": "L > T"}
    yield {**neutral, **sizes, "numbers": "moderate"}


def plans_without_keys(neutral: Mapping[str, str], declares: Collection[str]) -> Iterator[dict[str, str]]:
    """Yield the plan of a call without keys, for kernels that return a result for such a call.

    Args:
        neutral: the first level of each factor.
        declares: the capabilities that the kernel declares.
    """
    if NO_KEYS in declares:
        sizes = {"batch": "2", "heads": "2/2", "width": "8", "values": "8", "lengths": "3x0", "relation": "L > T"}
        yield {**neutral, **sizes, "numbers": "normal"}


def _plans_of_contexts(usual: Mapping[str, str], levels: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Yield plans of calls within PyTorch's contexts, such as autocast."""
    square = {**usual, "relation": "L = T", "lengths": "queries"}
    masks = [levels["mask"][0], *(mask for mask in levels["mask"] if mask.endswith("(L, T)"))][:2]
    for state in (State.SELF, State.INFERENCE, State.AUTOCAST, State.CREATE_GRAPH):
        wants = "nothing" if state is State.INFERENCE else "qkv"
        for level, name in dict.fromkeys([(x, "causal") for x in levels["causal"]] + [(x, "mask") for x in masks]):
            yield {**square, name: level, "state": state, "wants": wants}
        if state is State.SELF:
            yield {**square, "state": state, "wants": "nothing"}
    yield {**usual, "lengths": "short", "relation": "L = T", "state": State.REPLAYED}
