"""Small calls with which every run on a kernel begins: each option alone, and most options with causality or groups.

They take little time, and show which option of a kernel is wrong before larger calls are made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from attention_conformance.calls.attention_call import LONG_STATES, Memory

SINGLE = (
    *("numbers", "group", "scale", "mask", "columns", "rows", "causal", "window", "softcap", "log-sum-exp", "dropout"),
    *("sinks", "slopes", "lse upstream", "entries", "splits", "pages", "descales"),
    *("alone", "poison", "values", "memory", "placed", "upstream", "mask memory", "state", "wants"),
)
"""Factors of which each level occurs in a small call without any other option."""
LEFT_OUT = ("normal", "ranks", "sums", "narrower", "wider", *LONG_STATES)
"""Levels that occur in no small call of their own: they need many keys or other widths, take long, or occur anyway."""
OF_MASKS = ("columns", "rows", "poison", "mask memory")
"""Factors of masks, whose calls have a mask of all four axes."""
PAIRED = (*("group", "mask", "window", "softcap", "sinks", "slopes", "entries", "pages", "descales"),)
"""Factors whose second level also occurs together with causality, and together with grouped heads."""
GROUPED = {"heads": "4/2", "group": "grouped"}
"""Levels of a call with four query heads and two key heads."""
DRAWN = {"lengths": "short", "batch": "few", "heads": "few", "width": "narrow", "values": "same"}
"""Levels of a small call whose sizes are drawn."""


def plans_of_small_calls(
    neutral: Mapping[str, str], levels: Mapping[str, Sequence[str]], declares: Collection[str]
) -> Iterator[dict[str, str]]:
    """Yield the plans of the small calls.

    Args:
        neutral: the first level of each factor.
        levels: the levels of each factor that the kernel has.
        declares: the capabilities that the kernel declares.
    """
    sizes = {"batch": "3", "heads": "4/4", "width": "8", "values": "8", "relation": "L = T", "lengths": "5x5"}
    usual = {**neutral, **sizes, "numbers": "normal"}
    masks = [mask for mask in levels["mask"] if mask.endswith("(B, H, L, T)")]
    for name in SINGLE:
        for level in levels[name][1:]:
            if level not in LEFT_OUT and (masks or name not in OF_MASKS):
                masked = {"mask": masks[0]} if name in OF_MASKS else {}
                for further in _further_levels(name, level):
                    yield {**usual, **masked, **further, name: level}
    for name in PAIRED:
        for level in levels[name][1:2]:
            paired = {**usual, **_further_levels(name, level)[0], name: level}
            if "causal" in levels["causal"]:
                yield {**paired, "causal": "causal"}
            if "grouped" in levels["group"] and name != "group":
                yield {**paired, **GROUPED}
    if "causal-rectangle" in declares:
        for relation, lengths in (("L < T", "9x13"), ("L > T", "13x9")):
            rectangle = {**usual, "relation": relation, "lengths": lengths, "causal": "causal"}
            yield rectangle
            if len(levels["entries"]) > 1:
                yield {**rectangle, "entries": levels["entries"][1]}


def _further_levels(name: str, level: str) -> Sequence[Mapping[str, str]]:
    """Return the levels that a call needs besides ``level`` of the factor ``name``: one mapping for each call."""
    match name:
        case "group":
            return [GROUPED if level == "grouped" else {"heads": "4/1"}]
        case "pages":  # more than two pages
            return [{"relation": "L < T", "lengths": f"5x{2 * int(level) + 3}"}]
        case "splits" | "alone":  # long sums
            return [{"relation": "L < T", "lengths": "5x67"}]
        case "entries" if level == "some empty":
            return [{"empty": "queries"}, {"empty": "keys"}]
        case "dropout":
            return [{**DRAWN, "share": "0.25"}, {**DRAWN, "share": "0.5"}]
        case "placed":
            return [{"memory": Memory.TRANSPOSED}]
    return [{}]
