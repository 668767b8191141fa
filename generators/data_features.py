"""Properties of data as users have them, decided from the numbers: formats of features, copies, few distinct scores.

Numbers are "short" if all are multiples of 1/64. Short numbers count neither as decimals, nor as pixels, nor as 16-bit
floats, because small fractions such as 1/2 have all these formats.

References: issue reports; IEEE 754, binary16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from jaxtyping import Bool, Float64

from generators.case import Case
from generators.margin_assumptions import difference_rows, dot
from generators.realistic_numbers import in_bfloat16
from reference_attention.svm.max_margin import MaxMargin

SHORT = 64.0
"""The denominator of short numbers, which are the multiples of 1/64."""
COLUMNS_APART = 100.0
"""The ratio of two columns' largest entries above which the columns count as having different units."""
FEW = 3
"""The largest number of distinct scores that counts as few; cases with fewer than twice as many scores do not count."""

Features = Float64[np.ndarray, "n T d"]
Pairs = Bool[np.ndarray, "n T T"]


def features_of(case: Case) -> Features:
    """Return the features of a case: keys or, if W is trained, tokens without the coordinate that holds scores."""
    data = case.queried or case.sequence
    if data is None:
        return np.asarray(case.problem.keys)
    return np.asarray(data.X[:, :, 1:] if data.X.shape[2] > 1 else data.X)


def _short(x: Features) -> bool:
    return bool((x * SHORT % 1 == 0).all())


def flags(x: Features) -> bool:
    """Return whether all numbers are 0 or 1, and at least one is 1."""
    return bool(((x == 0) | (x == 1)).all() and x.any())


def decimals(x: Features) -> bool:
    """Return whether all numbers are decimals of 0, 2, 3, 5 or 6 digits after the point, and not all are short."""
    return not _short(x) and any(bool((x == _in_digits(x, digits)).all()) for digits in (0, 2, 3, 5, 6))


def _in_digits(x: Features, digits: int) -> Features:
    return np.asarray(np.rint(x * 10.0**digits) / 10.0**digits)


def of_float16(x: Features) -> bool:
    """Return whether all numbers are exact in float16, not all are short, and not all are exact in bfloat16."""
    with np.errstate(over="ignore"):
        representable = bool((x.astype(np.float16) == x).all())
    return representable and not _short(x) and not bool((in_bfloat16(x) == x).all())


def of_bfloat16(x: Features) -> bool:
    """Return whether all numbers are exact in bfloat16, and not all are short."""
    return not _short(x) and bool((in_bfloat16(x) == x).all())


def pixels(x: Features) -> bool:
    """Return whether all numbers are k/255 for k = 0, …, 255, and not all are short."""
    k = np.rint(255 * np.clip(x, 0, 1))
    return not _short(x) and bool((x == k / 255).all())


def weighted_counts(x: Features) -> bool:
    """Return whether numbers look like tf-idf: non-negative, mostly 0, not short, and of no format defined above."""
    others = (decimals, of_float16, of_bfloat16, pixels)
    return bool((x >= 0).all() and (x == 0).mean() > 0.5) and not _short(x) and not any(is_it(x) for is_it in others)


def mostly_zero(x: Features) -> bool:
    """Return whether some coordinate is 0 in more than half of the tokens, but not in all tokens."""
    zero = (x == 0).mean(axis=(0, 1))
    return bool(((zero > 0.5) & (zero < 1)).any())


def as_users_have_them(x: Features) -> bool:
    """Return whether numbers have a format of users' data: 0 and 1, decimals, 16-bit floats, pixels or tf-idf."""
    looks = (flags, decimals, of_float16, of_bfloat16, pixels, weighted_counts)
    return any(is_it(x) for is_it in looks)


def columns_apart(x: Features) -> bool | None:
    """Return whether the largest entries of two coordinates differ by a factor of a hundred or more."""
    if x.shape[2] < 2:
        return None
    sizes = np.abs(x).max(axis=(0, 1))
    nonzero = sizes[sizes > 0]
    return bool(nonzero.size and nonzero.max() >= COLUMNS_APART * nonzero.min())


def constant_coordinate(x: Features) -> bool | None:
    """Return whether some coordinate is equal in all tokens of all inputs."""
    return None if x.shape[2] < 2 else bool((x == x[:1, :1]).all(axis=(0, 1)).any())


def repeated_inputs(case: Case) -> bool | None:
    """Return whether two inputs have the same keys and scores."""
    n = case.problem.n
    rows = np.concatenate([np.asarray(case.problem.keys).reshape(n, -1), case.problem.scores], axis=1)
    return None if n < 2 else len(np.unique(rows, axis=0)) < n


def few_levels(case: Case) -> bool | None:
    """Return whether the scores of all inputs together have at most three distinct values."""
    scores = case.problem.scores
    return None if scores.size < 2 * FEW else len(np.unique(scores)) <= FEW


def apart_in_one_coordinate(x: Features) -> Pairs:
    """Return a mask, (n, T, T), of the pairs of an input's tokens that differ in exactly one of several coordinates."""
    several = x.shape[2] > 1
    return np.stack([several & (np.sum(rows[:, None] != rows[None], axis=2) == 1) for rows in x])


def _pairs(*, uses: bool) -> Callable[[Case, MaxMargin | None], bool | None]:
    """Return the property: two tokens that differ in one coordinate have different (``uses``) or equal margins."""

    def holds(case: Case, svm: MaxMargin | None) -> bool | None:
        if svm is None:
            return None
        p, rows = list(svm.exact.p), difference_rows(case.problem.exact_keys, case.chosen_tokens)
        margins: dict[tuple[int, int], object] = {}

        def margin(i: int, t: int) -> object:
            if (i, t) not in margins:
                margins[i, t] = dot(rows[i, t], p) if (i, t) in rows else 0
            return margins[i, t]

        pairs = np.argwhere(np.triu(apart_in_one_coordinate(features_of(case))))
        return any((margin(i, a) != margin(i, b)) == uses for i, a, b in pairs.tolist())

    return holds


OF_FEATURES: Mapping[str, Callable[[Features], bool | None]] = MappingProxyType(
    {
        "numbers as users have them": as_users_have_them,
        "zeros and ones": flags,
        "decimals": decimals,
        "numbers of float16": of_float16,
        "numbers of bfloat16": of_bfloat16,
        "k/255": pixels,
        "weighted counts": weighted_counts,
        "coordinate mostly zero": mostly_zero,
        "columns in other units": columns_apart,
        "constant coordinate": constant_coordinate,
    }
)
"""Properties that depend only on the features, by their names in tables."""
OF_CASES: Mapping[str, Callable[[Case], bool | None]] = MappingProxyType(
    {"repeated input": repeated_inputs, "scores of three levels": few_levels}
)
"""Properties that depend on keys and scores, by their names in tables."""
OF_COPIES: Mapping[str, Callable[[Case, MaxMargin | None], bool | None]] = MappingProxyType(
    {
        "apart in one coordinate, p_mm uses it": _pairs(uses=True),
        "apart in one coordinate, p_mm does not": _pairs(uses=False),
    }
)
"""Properties that depend on the solution of ATT-SVM, too, by their names in tables."""
