"""Checks of the figures of Transformers as Support Vector Machines."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np

from reference_attention.risk import scaled_gradient
from tests.theorems.figures.wrong_gradients import without_the_second_input
from theorems.core.implementation import REFERENCE, Implementation
from theorems.faults import fault_named
from theorems.figures.figure import Numbers
from theorems.transformers_as_svms.figures import convergence
from theorems.transformers_as_svms.figures import ranks as rank_figure


def shortened(put: Callable[[ModuleType, str, object], None]) -> None:
    """Replace the settings of figures by ones with fewer dimensions and sizes, to save time."""
    put(convergence, "DIMENSIONS", (2, 8))
    put(rank_figure, "SIZES", (5, 10))
    put(rank_figure, "DIMENSIONS", (1, 4, 8, 12))


def shows_tsvm_paths(numbers: Numbers) -> bool:
    """Return whether, from every start, W goes to the direction of W^mm of the optimal tokens, and each W z_i to W^mm
    z_i.
    """
    goal = [row["kind"] for row in numbers["optima"]].index("GMM")
    for path in numbers["paths"]:
        if path["ends_at"] != goal or path["one_minus_cosine"] > 0.01:
            return False
        for way, ray in zip(path["attended"], numbers["optima"][goal]["attended"], strict=True):
            last, unit = np.array(way[-1]), np.array(ray) / np.linalg.norm(ray)
            if not last @ unit > 0.99 * np.linalg.norm(last):
                return False
    return len(numbers["paths"]) == 5


def shows_tsvm_convergence(numbers: Numbers) -> bool:
    """Return whether for large d the data are separable and W goes to W^mm of locally optimal tokens, but not for small
    d.
    """
    small, large = numbers["dimensions"]
    sums = all(abs(sum(row["fractions"].values()) - 1) < 1e-9 for row in numbers["dimensions"])
    ends = large["separable"] == 1 and large["locally_optimal"] > 0.9 > small["separable"]
    near = large["median_cosine_selected"] > 0.98
    return sums and ends and near and small["fractions"]["elsewhere"] > large["fractions"]["elsewhere"]


def shows_tsvm_ranks(numbers: Numbers) -> bool:
    """Return whether ranks of W^mm are at most min(n, d) and mostly equal to it, and all trials are separable for d =
    12 and none for d = 1.

    The rank r of the solution of least nuclear norm must be mostly lower, with r(r + 1)/2 ≤ n(T − 1).
    """
    bounded, equal, count, lower = True, 0, 0, 0
    for curve in numbers["curves"]:
        for d, ranks in zip(numbers["dimensions"], curve["ranks"], strict=True):
            bounded &= all(rank <= min(curve["n"], d) for rank in ranks)
            equal, count = equal + sum(rank == min(curve["n"], d) for rank in ranks), count + len(ranks)
        bounded &= len(curve["ranks"][-1]) == numbers["trials"] and not curve["ranks"][0]
        for ranks, nuclear in zip(curve["ranks"], curve["nuclear_ranks"], strict=True):
            bounded &= len(nuclear) == len(ranks) and all(
                r * (r + 1) <= 2 * curve["n"] * (curve["T"] - 1) for r in nuclear
            )
            lower += sum(a < b for a, b in zip(nuclear, ranks, strict=True))
    return bounded and equal > 0.9 * count and lower > 0.7 * count


def shows_tsvm_directions(numbers: Numbers) -> bool:
    """Return whether the flows on W and on (K, Q) end in the direction of the solutions of least Frobenius and of least
    nuclear norm, and these differ.
    """
    for i in range(len(numbers["X"])):
        ends, limits = ([np.array(sides[name][i]) for name in ("W", "(K, Q)")] for sides in _ends(numbers))
        units = [way / np.linalg.norm(way) for way in (*ends, *limits)]
        if not (units[0] @ units[2] > 0.999 and units[1] @ units[3] > 0.999):
            return False
    (frobenius, its_nuclear), (other, nuclear) = numbers["norms"]["frobenius"], numbers["norms"]["nuclear"]
    return bool(frobenius < other and nuclear < its_nuclear)


def _ends(numbers: Numbers) -> tuple[Numbers, Numbers]:
    return {name: ways[-1] for name, ways in numbers["ways"].items()}, numbers["limits"]


def shows_tsvm_factored(numbers: Numbers) -> bool:
    """Return whether the relative excess of the nuclear norm vanishes along the flow on (K, Q), but not on W."""
    if not numbers["compared"] > 0.5 * numbers["trials"]:
        return False
    by_w, by_factors = (numbers["quartiles"][name][1] for name in ("W", "(K, Q)"))
    return bool(by_w[-1] > 0.02 and by_factors[-1] < 0.1 * by_w[-1] and by_factors[-1] < 0.1 * by_factors[8])


def shows_tsvm_mixing(numbers: Numbers) -> bool:
    """Return whether each input mixes a set of tokens, larger in ten dimensions than in four, and W_fin is only a part
    of what stays finite of W.
    """
    means, apart = [], True
    for row in numbers["dimensions"]:
        means.append(float(np.average(np.arange(1, 5), weights=row["sizes"])))
        apart &= sum(row["sizes"]) == 3 * numbers["trials"] and len(row["shares"]) > numbers["trials"] / 2
        apart &= all(share <= 1 for share in row["shares"]) and 0.1 < np.median(row["shares"]) < 0.95
    return bool(apart and means[0] < means[-1])


CHECKS: dict[str, Callable[[Numbers], bool]] = {
    "tsvm-paths": shows_tsvm_paths,
    "tsvm-convergence": shows_tsvm_convergence,
    "tsvm-ranks": shows_tsvm_ranks,
    "tsvm-directions": shows_tsvm_directions,
    "tsvm-factored": shows_tsvm_factored,
    "tsvm-mixing": shows_tsvm_mixing,
}
"""For each figure, the function that decides whether its numbers show the intended effect."""
WRONG: dict[str, Implementation] = {
    "tsvm-paths": REFERENCE.replace("short", {scaled_gradient: without_the_second_input}),
    "tsvm-ranks": fault_named("svm-coordinate-off").implementation,
    "tsvm-mixing": fault_named("mixing-offset-is-finite-part").implementation,
}
"""For some figures, a fault that the figure's check must notice, in place of the fault for other figures."""
