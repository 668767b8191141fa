"""The figures of all papers by name, in the papers' order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from max_margin_theorems.papers import papers
from reference_attention.errors import InvalidInput
from theorems.figures.figure import Figure
from theorems.run.registry.suite import module_order


def _figures() -> Iterator[Figure]:
    """Yield all figures, for each paper in the order in which the docstring of its figures package lists modules."""
    for paper in papers():
        place = module_order(paper.figures) if paper.figures else {}
        for module in sorted(paper.modules(paper.figures), key=lambda module: place.get(module.__name__, len(place))):
            yield from getattr(module, "FIGURES", ())


FIGURES: dict[str, Figure] = {figure.name: figure for figure in _figures()}
"""All figures by name."""


def figures_named(names: Sequence[str]) -> list[Figure]:
    """Return the figures with the given names, without duplicates; if no name is given, all figures.

    The name ``figure-3b`` means ``3b``, and ``3`` means 3a, 3b and 3c.

    Raises:
        InvalidInput: a name is unknown.
    """
    by_key: dict[str, Figure] = {}
    for name in names or FIGURES:
        short = name.removeprefix("figure-")
        some = {key: figure for key, figure in FIGURES.items() if short in (key, key.rstrip("abc"))}
        if not some:
            raise InvalidInput(f"figures: {name!r} is not one of {', '.join(FIGURES)}.")
        by_key |= some
    return [figure for key, figure in FIGURES.items() if key in by_key]
