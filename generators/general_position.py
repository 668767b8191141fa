"""General position of keys (Theorem 4, in the appendix Theorem 7), decided exactly.

The assumption is about the matrices M whose rows are k_iα_i − k_it, for the selected tokens α and any m pairs (input i,
token t). With m ≤ d rows M must have full rank; with m > d rows the all-ones vector 1 must not be in the range of M.
Because the theorem is applied to the tokens that any direction q selects, both are required for every choice α.

Two reductions keep the enumeration small. Rows of a matrix of full row rank are independent, so among the sizes m ≤ d
only m = min(d, n(T−1)) has to be checked. If 1 = M p for m > d rows, then 1 = M' p for the matrix M' of the first d + 1
of these rows, so among the sizes m > d only m = d + 1 has to be checked; in that case, given full rank d, 1 ∈ range(M)
exactly if det [M 1] = 0.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 7.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from math import comb

import numpy as np
from flint import fmpz, fmpz_mat

from generators.case import Case
from generators.finding import Finding
from reference_attention.outer_keys import Keys, rational_keys

MOST_MATRICES = 20_000
"""The largest number of matrices that are checked, in about 0.2 s; with more, the finding is "not established"."""
COUNTED = 10**9
"""The number at which counting of matrices stops, so that products of counts never overflow float64."""

Choice = tuple[tuple[int, int, int], ...]
"""The rows k_iα_i − k_it of one matrix M, each as (i, α_i, t)."""


def selections(n: int, tokens: int, m: int) -> Iterator[Choice]:
    """Yield, for every α, all choices of m rows k_iα_i − k_it with distinct (i, t), t ≠ α_i.

    The token α_i is enumerated only for inputs i to which a row belongs.
    """
    for split in compositions(m, n, tokens - 1):
        per_input = []
        for i, count in enumerate(split):
            if count:
                per_input.append(
                    [
                        tuple((i, a, t) for t in chosen)
                        for a in range(tokens)
                        for chosen in combinations([t for t in range(tokens) if t != a], count)
                    ]
                )
        for parts in product(*per_input):
            yield tuple(row for part in parts for row in part)


def compositions(m: int, n: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to write m as a sum of n numbers from 0 to ``most``, in lexicographic order."""
    if n == 0:
        yield ()
        return
    for first in range(max(0, m - (n - 1) * most), min(m, most) + 1):
        for tail in compositions(m - first, n - 1, most):
            yield (first, *tail)


@cache
def matrices(n: int, tokens: int, d: int) -> int:
    """Count the matrices that have to be checked for general position; the count stops at :data:`COUNTED`.

    The number of matrices of m rows is the coefficient of x^m in (1 + Σ_c T C(T−1, c) x^c)^n, with binomial
    coefficients C.
    """
    largest = max(sizes(n, tokens, d))
    ways = [1.0] + [float(min(tokens * comb(tokens - 1, c), COUNTED)) for c in range(1, min(tokens - 1, largest) + 1)]
    total = np.ones(1)
    for _ in range(n):
        total = np.minimum(np.convolve(total, ways)[: largest + 1], COUNTED)
    return int(min(total[list(sizes(n, tokens, d))].sum(), COUNTED))


def sizes(n: int, tokens: int, d: int) -> tuple[int, ...]:
    """Return the numbers of rows of the matrices to check: min(d, n(T−1)), and also d + 1 if n(T−1) > d."""
    rows = n * (tokens - 1)
    return (d, d + 1) if rows > d else (rows,)


def _integer_keys(keys: Keys) -> list[list[list[fmpz]]]:
    """Multiply the keys by a power of two that makes them integers; general position does not change."""
    T, exact = keys.shape[1], rational_keys(keys).tolist()
    unit = max(int(x.q) for token in exact for x in token)
    integers = [[fmpz(int(x.p) * (unit // int(x.q))) for x in token] for token in exact]
    return [integers[first : first + T] for first in range(0, len(integers), T)]


def offending_choice(keys: Keys) -> Choice | None:
    """Return a choice of rows k_iα_i − k_it that is not in general position, or ``None`` if there is no such choice."""
    n, tokens, d = keys.shape
    exact = _integer_keys(keys)
    for m in sizes(n, tokens, d):
        for choice in selections(n, tokens, m):
            rows = [[a - b for a, b in zip(exact[i][alpha], exact[i][t], strict=True)] for i, alpha, t in choice]
            if m > d:
                # Keys were multiplied by a number to make them integers, which does not change the range of M.
                if fmpz_mat([[*row, fmpz(1)] for row in rows]).det() == 0:
                    return choice
            elif fmpz_mat(rows).rank() < m:
                return choice
    return None


def general_position(case: Case) -> Finding:
    """Decide whether differences of keys are in general position, for every choice α of selected tokens.

    If W is trained, keys are products rounded to float64; the decision is about the rounded numbers.
    """
    n, tokens, d = case.problem.keys.shape
    count = matrices(n, tokens, d)
    if count > MOST_MATRICES:
        return Finding(None, f"more than {MOST_MATRICES} matrices have to be checked at n = {n}, T = {tokens}, d = {d}")
    offending = offending_choice(case.problem.keys)
    if offending is None:
        return Finding(True, f"all {count} matrices of {' and '.join(map(str, sizes(n, tokens, d)))} rows pass")
    rows = ", ".join(f"k_{i},{alpha} − k_{i},{t}" for i, alpha, t in offending)
    defect = "reach the all-ones vector" if len(offending) > d else "are linearly dependent"
    return Finding(False, f"the {len(offending)} rows {rows} {defect}")
