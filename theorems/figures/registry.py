"""The figures by name, in the papers' order."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from reference_attention.errors import InvalidInput
from theorems.figures import (
    figure_1,
    figure_2,
    figure_3,
    figure_4,
    figure_5,
    figure_6,
    figure_8,
    figure_9,
    followed_trials,
    next_tokens,
    steepest_norms,
    tsvm_convergence,
    tsvm_factored,
    tsvm_mixing,
    tsvm_paths,
    tsvm_ranks,
)
from theorems.figures.figure import Figure

FIGURES: dict[str, Figure] = {
    one.name: one
    for module in (
        figure_1,
        figure_2,
        figure_3,
        figure_4,
        figure_5,
        figure_6,
        figure_8,
        figure_9,
        followed_trials,
        tsvm_paths,
        tsvm_convergence,
        tsvm_ranks,
        tsvm_factored,
        tsvm_mixing,
        steepest_norms,
        next_tokens,
    )
    for one in module.FIGURES
}
"""Every figure that can be drawn."""


def missing(one: Figure) -> bool:
    """Whether it needs a module that is not installed."""
    return any(find_spec(module) is None for module in one.needs)


def missing_sentence(figures: Sequence[Figure]) -> str:
    """A sentence on figures that :func:`missing` names."""
    names = [one.name for one in figures]
    who = f"figure {names[0]} trains" if len(names) == 1 else f"figures {' and '.join(names)} train"
    why = "a transformer with torch, which is not installed: pip install 'max-margin-theorems[kernels]'"
    return f"{who} {why}."


def figures_named(names: Sequence[str]) -> list[Figure]:
    """The figures of those names (``figure-3b`` is ``3b``, ``3`` all of 3a, 3b, 3c), each once; all that
    can be drawn without names.

    Raises:
        InvalidInput: an unknown name, or a figure that needs what is not installed.
    """
    found: dict[str, Figure] = {}
    for name in names or FIGURES:
        short = name.removeprefix("figure-")
        some = {key: one for key, one in FIGURES.items() if short in (key, key.rstrip("abc"))}
        if not some:
            raise InvalidInput(f"figures: {name!r} is not one of {', '.join(FIGURES)}.")
        lacking = [one for one in some.values() if missing(one)]
        if names and lacking:
            raise InvalidInput(missing_sentence(lacking))
        found |= {key: one for key, one in some.items() if one not in lacking}
    return [one for key, one in FIGURES.items() if key in found]
