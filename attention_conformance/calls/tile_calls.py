"""Plans of calls of two or three tiles of queries by as many tiles of keys: the shape that everybody runs.

A kernel works on tiles of queries and keys. What goes wrong from one tile to the next, such as running statistics that
begin anew, shows only if a row meets several tiles, at the width of heads for which the kernel chooses these tiles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

TILES = ((128, 2), (64, 3), (256, 2), (128, 3), (256, 3))
"""Numbers of queries, and of keys, in a tile, each with the number of tiles. Three tiles of 64 are beyond two."""
WIDTHS = ("64", "128", "192", "256")
"""Widths of heads in models, for which kernels choose their tiles."""
OPTIONS = ("none", "causal", "window", "grouped")
BESIDE = ((1, 1), (-1, 1), (-1, -1), (1, -1))
"""By how much L and T differ from whole tiles in the second call of each width and option."""
ELONGATED = ({"lengths": "3x5000", "width": "64"}, {"lengths": "257x4500", "width": "64"})
"""Few queries beside many tiles of keys."""


def tile_plans(
    neutral: Mapping[str, str], levels: Mapping[str, Sequence[str]], declares: Collection[str], seed: int
) -> Iterator[dict[str, str]]:
    """Yield two plans for each width and option that the kernel has: one of whole tiles, one with lengths beside them.

    Args:
        neutral: the first level of each factor.
        levels: the levels of each factor that the kernel has.
        declares: the capabilities that the kernel declares.
        seed: the tiles and the lengths with which each option begins; they take turns.
    """
    scale = "own" if "own" in levels["scale"] else "1"
    usual = {**neutral, "numbers": "tiles", "batch": "1", "heads": "1/1", "scale": scale}
    for w, width in enumerate(WIDTHS):
        for o, option in enumerate(OPTIONS):
            for ragged in (0, 1):
                tile, count = TILES[(w + 2 * o + 3 * ragged + seed) % len(TILES)]
                more, further = BESIDE[(w + o + seed) % len(BESIDE)] if ragged else (0, 0)
                if option == "causal":  # with L > T the first rows may see no key, which other calls test
                    more, further = sorted((more, further))
                options = _levels_of(option, tile, levels)
                if options is None:
                    continue
                T = count * tile + further
                is_square = option in ("causal", "window") and "causal-rectangle" not in declares
                L = T if is_square else count * tile + more
                relation = "L = T" if L == T else "L < T" if L < T else "L > T"
                sizes = {"width": width, "values": width, "lengths": f"{L}x{T}", "relation": relation}
                # Half precision hides a lost tile in sums of many terms: the calls without rounding show it.
                numbers = {"numbers": "blocks", "scale": "1", "heads": "2/2"} if ragged and option != "window" else {}
                yield {**usual, **sizes, **numbers, **options}
    for elongated in ELONGATED:
        yield {**usual, **elongated, "values": elongated["width"], "relation": "L < T"}


def _levels_of(option: str, tile: int, levels: Mapping[str, Sequence[str]]) -> dict[str, str] | None:
    """Return the levels of an option; None if the kernel lacks it."""
    if option == "none":
        return {}
    if option == "grouped":
        return {"heads": "4/2", "group": "grouped"} if "grouped" in levels["group"] else None
    if len(levels[option]) == 1:
        return None
    return {option: "causal" if option == "causal" else f"{tile}+{tile // 2}"}
