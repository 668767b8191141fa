"""The figures by name, in the paper's order, and those that are left out."""

from __future__ import annotations

from collections.abc import Sequence

from reference_attention.errors import InvalidInput
from theorems.figures import figure_1, figure_2, figure_3, figure_4, figure_5, figure_8, figure_9
from theorems.figures.figure import Figure

FIGURES: dict[str, Figure] = {
    one.name: one
    for module in (figure_1, figure_2, figure_3, figure_4, figure_5, figure_8, figure_9)
    for one in module.FIGURES
}
"""Every figure that can be drawn."""

LEFT_OUT = dict.fromkeys(
    "67", "a vision transformer trained on real images (CIFAR-10), which this repository does not hold"
)
"""Figures of the paper that are not drawn, and why."""


def figures_named(names: Sequence[str]) -> list[Figure]:
    """The figures of those names (``figure-3b`` is ``3b``, ``3`` all of 3a, 3b, 3c), each once; all without names.

    Raises:
        InvalidInput: an unknown name, or a figure that is left out.
    """
    found: dict[str, Figure] = {}
    for name in names or FIGURES:
        short = name.removeprefix("figure-")
        if short in LEFT_OUT:
            raise InvalidInput(f"figures: {name!r} is left out: {LEFT_OUT[short]}.")
        some = {key: one for key, one in FIGURES.items() if short in (key, key.rstrip("abc"))}
        if not some:
            raise InvalidInput(f"figures: {name!r} is not one of {', '.join(FIGURES)}.")
        found |= some
    return [one for key, one in FIGURES.items() if key in found]
